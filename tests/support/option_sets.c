/* Options for the library and the reference: see option_sets.h. */
#include "option_sets.h"
#include "check.h"
#include "values.h"

void apply(const char *text, ref_options *o, adamod_optimizer *opt, int group, adamod_hyper *h) {
    char copy[256], *rest = copy, *name, *value;
    snprintf(copy, sizeof copy, "%s", text);
    while (next_option(&rest, &name, &value)) {
        if (o) {
            const bool known = ref_set_text(o, name, value);
            CHECK(known || !strcmp(name, "clip_norm") || !strcmp(name, "state_type") || !strcmp(name, "low_precision"));
        }
        if (opt)
            CHECK_INT(group < 0 ? adamod_set_text(opt, name, value) : adamod_group_set_text(opt, group, name, value),
                      0);
        if (h) CHECK_INT(adamod_hyper_set_text(h, name, value), 0);
    }
}

/* ---- the lists ---- */

/* For every rule. */
static const char *const common_sets[] = {
    "",
    "lr=0.1",
    "weight_decay=0.02 decay=none",
    "weight_decay=0.01 decay=l2",
    "weight_decay=0.02 decay=decoupled",
    "weight_decay=0.002 decay=independent",
    "maximize=1",
    "clip_value=0.5",
    "grad_scale=0.0078125",
    "grad_scale=0.3 maximize=1 clip_value=2 weight_decay=0.01 decay=l2",
    "grad_scale=0.3 maximize=1 clip_value=2 weight_decay=0.01 decay=decoupled",
};
enum { COMMON_SETS = sizeof common_sets / sizeof *common_sets };

bool set_at(int i, option_set *out) {
    if (rule_options(ROW_SETS, i, out)) return true;
    option_set own;
    for (int n = 0; rule_options(ROW_SETS, n, &own); n++) i--;
    *out = (option_set){adamod_rule_name(i / COMMON_SETS), common_sets[i % COMMON_SETS]};
    return out->rule != NULL;
}
