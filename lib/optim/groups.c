/* The optimizer's groups: their options, and the schedules of these. */
#include "optim/optimizer.h"
#include "optim/schedule.h"

#include <stdlib.h>
#include <string.h>

adamod_status adamod__check_group(const adamod_optimizer *opt, int g) {
    if (g >= 0 && g < opt->n_groups) return ADAMOD_OK;
    return adamod__fail(ADAMOD_ERROR_RANGE, "group is %d, expected 0 <= group < %d", g, opt->n_groups);
}

adamod_status adamod__check_group_or_all(const adamod_optimizer *opt, int g) {
    if (g >= -1 && g < opt->n_groups) return ADAMOD_OK;
    return adamod__fail(ADAMOD_ERROR_RANGE, "group is %d, expected -1 for all, or 0 <= group < %d", g, opt->n_groups);
}

/* ---- options ---- */

/* Whether a value would change the states of a parameter that was added. */
static bool adamod__changes_states(const adamod_optimizer *opt, int g, const option_spec *o, double value) {
    double options[OPT_COUNT];
    memcpy(options, opt->groups[g].options, sizeof options);
    options[o->id] = value;
    for (int64_t i = 0; i < opt->n; i++) {
        if (opt->tensors[i].group != g) continue;
        if (o->id == OPT_STATE_TYPE || o->id == OPT_LOW_PRECISION || o->id == OPT_WINDOW) return true;
        const adamod_span *x = &opt->tensors[i].span;
        if (adamod__type_of_states(opt->groups[g].options, x) != adamod__type_of_states(options, x)) return true;
        state_spec now[ADAMOD_MAX_STATES], then[ADAMOD_MAX_STATES];
        adamod__states(opt->rule, opt->groups[g].options, opt->tensors[i].span.ndim, now);
        adamod__states(opt->rule, options, opt->tensors[i].span.ndim, then);
        for (int s = 0; s < ADAMOD_MAX_STATES; s++) {
            const bool same = !now[s].name == !then[s].name && now[s].shape == then[s].shape;
            if (!same || now[s].initial != then[s].initial) return true;
        }
    }
    return false;
}

/* Sets one group's option, or with first 0 and last n_groups - 1 all. */
static adamod_status adamod__set_range(adamod_optimizer *opt, int first, int last, const option_spec *o, double value) {
    bool same = true;
    for (int g = first; g <= last; g++) same = same && opt->groups[g].options[o->id] == value;
    ADAMOD__TRY(same ? ADAMOD_OK : adamod__device_outside(opt, o->info.name));
    for (int g = first; g <= last; g++) {
        if (!o->info.structural || opt->groups[g].options[o->id] == value) continue;
        if (!adamod__changes_states(opt, g, o, value)) continue;
        return adamod__fail(ADAMOD_ERROR_ORDER,
                            "%s: %s decides which states exist, and group %d has parameters already", opt->rule->name,
                            o->info.name, g);
    }
    if (o->id == OPT_CAUTIOUS && !same) ADAMOD__TRY(adamod__device_unlay(opt)); /* it means other kernels */
    for (int g = first; g <= last; g++) opt->groups[g].options[o->id] = value;
    if (o->id == OPT_THREADS) adamod__drop_pool(opt);
    return same ? ADAMOD_OK : adamod__device_options(opt, first, last);
}

adamod_status adamod__check_in_group(const adamod_optimizer *opt, int g, const option_spec *o, double value) {
    for (int i = 0; o->info.kind == ADAMOD_REAL && i < RANGE_TYPES; i++) {
        if (!opt->groups[g].computes[i]) continue;
        ADAMOD__TRY(adamod__check_number(opt->rule, o, value, i == RANGE_F64 ? ADAMOD_F64 : ADAMOD_F32, NULL));
    }
    return ADAMOD_OK;
}

/* g < 0: all groups. text NULL: value is given. */
static adamod_status adamod__set_option(adamod_optimizer *opt, int g, const char *name, double value,
                                        const char *text) {
    if (!opt) return adamod__null_handle();
    const option_spec *o = adamod__find_option(opt->rule, name);
    if (!o) return name ? ADAMOD_ERROR_NAME : ADAMOD_ERROR_ARGUMENT;
    ADAMOD__TRY(g < 0 ? ADAMOD_OK : adamod__check_group(opt, g));
    if (g >= 0 && o->info.optimizer_wide) {
        return adamod__refuse("%s belongs to the whole optimizer, not to a group: use adamod_set", o->info.name);
    }
    const int first = g < 0 ? 0 : g, last = g < 0 ? opt->n_groups - 1 : g;
    ADAMOD__TRY(text ? adamod__parse_value(opt->rule, o, text, &value) : adamod__check_value(opt->rule, o, value));
    for (int i = first; i <= last; i++) ADAMOD__TRY(adamod__check_in_group(opt, i, o, value));
    return adamod__set_range(opt, first, last, o, value);
}

adamod_status adamod_set(adamod_optimizer *opt, const char *option, double value) {
    return adamod__set_option(opt, -1, option, value, NULL);
}

adamod_status adamod_set_text(adamod_optimizer *opt, const char *option, const char *text) {
    if (!text) return adamod__refuse("the option's value is NULL");
    return adamod__set_option(opt, -1, option, 0, text);
}

adamod_status adamod_group_set(adamod_optimizer *opt, int g, const char *option, double value) {
    if (opt && g < 0) return adamod__check_group(opt, g);
    return adamod__set_option(opt, g, option, value, NULL);
}

adamod_status adamod_group_set_text(adamod_optimizer *opt, int g, const char *option, const char *text) {
    if (!text) return adamod__refuse("the option's value is NULL");
    if (opt && g < 0) return adamod__check_group(opt, g);
    return adamod__set_option(opt, g, option, 0, text);
}

adamod_status adamod_group_get(const adamod_optimizer *opt, int g, const char *option, double *out) {
    if (!opt) return adamod__null_handle();
    if (!out) return adamod__refuse("out is NULL");
    ADAMOD__TRY(adamod__check_group(opt, g));
    const option_spec *o = adamod__find_option(opt->rule, option);
    if (!o) return option ? ADAMOD_ERROR_NAME : ADAMOD_ERROR_ARGUMENT;
    *out = opt->groups[g].options[o->id];
    return ADAMOD_OK;
}

adamod_status adamod_get(const adamod_optimizer *opt, const char *option, double *out) {
    return adamod_group_get(opt, 0, option, out);
}

/* ---- groups and schedules ---- */

static bool adamod__copy_schedules(group *to, const group *from) {
    for (int o = 0; o < OPT_COUNT; o++) {
        to->schedule[o] = NULL;
        if (from->schedule[o] && !(to->schedule[o] = adamod__schedule_copy(from->schedule[o]))) {
            while (o-- > 0) adamod_schedule_free(to->schedule[o]);
            return false;
        }
    }
    return true;
}

adamod_status adamod_add_group(adamod_optimizer *opt, int *out) {
    if (!opt) return adamod__null_handle();
    if (!out) return adamod__refuse("out is NULL");
    ADAMOD__TRY(adamod__device_unlay(opt));
    const size_t n = (size_t)opt->n_groups;
    group *grown = adamod__resize(opt->groups, n + 1, sizeof *grown);
    if (grown) opt->groups = grown;
    stats_counts *counts = opt->collect ? adamod__resize(opt->stats.groups, n + 1, sizeof *counts) : NULL;
    if (counts) opt->stats.groups = counts;
    if (!grown || (opt->collect && !counts) || !adamod__copy_schedules(&grown[n], &grown[0])) {
        return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for group %zu", n);
    }
    memcpy(grown[n].options, grown[0].options, sizeof grown[n].options);
    memset(grown[n].computes, 0, sizeof grown[n].computes);
    if (opt->collect) {
        adamod__stats_clear(&opt->stats.groups[n]);
        opt->stats.n_groups = opt->n_groups + 1;
    }
    *out = opt->n_groups++;
    return ADAMOD_OK;
}

adamod_status adamod_set_schedule(adamod_optimizer *opt, int g, const char *option, const adamod_schedule *s) {
    if (!opt) return adamod__null_handle();
    const option_spec *o = adamod__find_option(opt->rule, option);
    if (!o) return option ? ADAMOD_ERROR_NAME : ADAMOD_ERROR_ARGUMENT;
    ADAMOD__TRY(adamod__check_group_or_all(opt, g));
    if (o->info.kind != ADAMOD_REAL || o->info.structural || o->info.optimizer_wide) {
        return adamod__refuse(
            "%s: %s cannot have a schedule: only real options of a group that do not decide states can",
            opt->rule->name, o->info.name);
    }
    ADAMOD__TRY(adamod__device_outside(opt, "set_schedule"));
    const int first = g == -1 ? 0 : g, last = g == -1 ? opt->n_groups - 1 : g;
    adamod_schedule **copies = calloc((size_t)(last - first) + 1, sizeof *copies);
    bool complete = copies != NULL;
    for (int i = first; complete && s && i <= last; i++)
        complete = (copies[i - first] = adamod__schedule_copy(s)) != NULL;
    for (int i = first; copies && i <= last; i++) {
        adamod_schedule **to = &opt->groups[i].schedule[o->id];
        adamod_schedule_free(complete ? *to : copies[i - first]);
        if (complete) *to = copies[i - first];
    }
    free(copies);
    opt->groups_changed = opt->groups_changed || complete;
    return complete ? ADAMOD_OK : adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for a schedule of %s", o->info.name);
}

adamod_status adamod_scheduled_at(const adamod_optimizer *opt, int g, const char *option, int64_t t, double *out) {
    double base = 0;
    if (!out) return adamod__refuse("out is NULL");
    ADAMOD__TRY(adamod_group_get(opt, g, option, &base));
    const option_spec *o = adamod__find_option(opt->rule, option);
    *out = adamod_schedule_value(opt->groups[g].schedule[o->id], base, t);
    return ADAMOD_OK;
}

adamod_status adamod_scheduled(const adamod_optimizer *opt, int g, const char *option, double *out) {
    double value;
    ADAMOD__TRY(adamod_scheduled_at(opt, g, option, 1, &value)); /* is there such an option? */
    if (!out) return adamod__refuse("out is NULL");
    ADAMOD__TRY(adamod__refresh(opt));
    return adamod_scheduled_at(opt, g, option, opt->steps + 1, out);
}
