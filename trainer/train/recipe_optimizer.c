#include "train/recipe_parts.h"

#include "core/error.h"
#include "support/text.h"
#include "train/epochs.h"

#include <string.h>

static recipe_place place_of_line(const recipe *r, int line) { return (recipe_place){.file = r->file, .line = line}; }

/* The library's last error without the rule's name, as messages name the key. */
static const char *library_words(const recipe *r) {
    const char *text = adamod__last_message();
    const size_t n = strlen(r->optimizer.rule);
    return strncmp(text, r->optimizer.rule, n) == 0 && strncmp(text + n, ": ", 2) == 0 ? text + n + 2 : text;
}

static bool any_rule_has(const char *option) {
    adamod_option unused;
    for (int i = 0; adamod_rule_name(i); i++) {
        if (adamod_option_find(adamod_rule_name(i), option, &unused) == ADAMOD_OK) return true;
    }
    return false;
}

bool recipe_is_foreign(const recipe *r, const char *option) {
    adamod_option found;
    return adamod_option_at(r->optimizer.rule, 0, &found) == ADAMOD_OK &&
           adamod_option_find(r->optimizer.rule, option, &found) == ADAMOD_ERROR_NAME && any_rule_has(option);
}

/* Names the flags that remove all options of another rule. */
static int foreign_option(const recipe *r, const char *option, const recipe_place *at) {
    char flags[1024] = "";
    int n = 0;
    for (int i = 0; i < r->optimizer.options.n; i++) {
        const char *other = r->optimizer.options.at[i].key;
        if (!recipe_is_foreign(r, other)) continue;
        text_add(flags, sizeof flags, "%s--set optimizer.%s=", n++ ? " " : "", other);
    }
    return recipe_fail(at, "optimizer.%s: %s has no such option; %s %s", option, r->optimizer.rule, flags,
                       n > 1 ? "remove them" : "removes it");
}

/* The library takes 0 and 1 for YAML's true and false. */
static const char *value_of(const recipe_pair *pair, const adamod_option *option) {
    if (option->kind != ADAMOD_INTEGER || option->min != 0 || option->max != 1) return pair->value;
    return strcmp(pair->value, "true") == 0 ? "1" : strcmp(pair->value, "false") == 0 ? "0" : pair->value;
}

static int set_option(const recipe *r, adamod_optimizer *opt, const recipe_pair *pair, const recipe_place *at) {
    adamod_option option;
    if (adamod_option_find(r->optimizer.rule, pair->key, &option)) {
        char words[512];
        snprintf(words, sizeof words, "%s", library_words(r));
        if (recipe_is_foreign(r, pair->key)) return foreign_option(r, pair->key, at);
        return recipe_fail(at, "optimizer.%s: %s", pair->key, words);
    }
    if (adamod_set_text(opt, pair->key, value_of(pair, &option)) == ADAMOD_OK) return 0;
    return recipe_fail(at, "optimizer.%s: %s", pair->key, library_words(r));
}

/* Reports the library's last error about a schedule; text is the schedule with epochs converted to updates. */
static int wrong_schedule(const recipe *r, const recipe_pair *pair, const char *text, const recipe_place *at) {
    const char *words = library_words(r), *end = strstr(words, "': expected ");
    if (strncmp(words, "schedule '", 10) == 0 && end)
        return recipe_fail(at, "optimizer.schedule.%s: schedule '%.80s%s", pair->key, pair->value, end);
    if (strcmp(text, pair->value) == 0) return recipe_fail(at, "optimizer.schedule.%s: %s", pair->key, words);
    return recipe_fail(at, "optimizer.schedule.%s: '%.80s' is '%.80s' in updates: %s", pair->key, pair->value, text,
                       words);
}

static int set_schedule(const recipe *r, adamod_optimizer *opt, epoch_length length, const recipe_pair *pair,
                        const recipe_place *at) {
    char text[3 * sizeof pair->value];
    adamod_schedule *schedule = NULL;
    if (!epochs_schedule(length, pair->value, text, sizeof text))
        return recipe_fail(at, "optimizer.schedule.%s is too long", pair->key);
    adamod_status status = adamod_schedule_parse(&schedule, text);
    if (status == ADAMOD_OK) status = adamod_set_schedule(opt, -1, pair->key, schedule);
    adamod_schedule_free(schedule);
    /* Whether updates and epochs ascend can be checked once the length of an epoch is known. */
    if (status == ADAMOD_ERROR_RANGE && length.batches == 0 && strcmp(text, pair->value) != 0) return 0;
    return status ? wrong_schedule(r, pair, text, at) : 0;
}

/* ---- groups ---- */

static int set_group_option(const recipe *r, adamod_optimizer *opt, int group, const recipe_pair *pair,
                            const recipe_place *at) {
    adamod_option option;
    const char *name = recipe_leaf(pair->key);
    if (adamod_option_find(r->optimizer.rule, name, &option))
        return recipe_fail(at, "%s%s: %s", recipe_group_section, pair->key, library_words(r));
    if (option.optimizer_wide)
        return recipe_fail(at, "%s%s: %s is of the whole optimizer, so it cannot differ between groups",
                           recipe_group_section, pair->key, name);
    if (adamod_group_set_text(opt, group, name, value_of(pair, &option)) == ADAMOD_OK) return 0;
    return recipe_fail(at, "%s%s: %s", recipe_group_section, pair->key, library_words(r));
}

/* Sets the options of one of the library's groups; of NULL: for parameters in no group of the recipe. */
static int make_group(const recipe *r, adamod_optimizer *opt, const recipe_group *of, int group, bool undecayed) {
    const recipe_pair *pair;
    adamod_status status = ADAMOD_OK;
    for (int i = 0; of && (pair = recipe_group_option(r, of->name, i)); i++) {
        const recipe_place at = place_of_line(r, pair->line);
        if (set_group_option(r, opt, group, pair, &at)) return -1;
    }
    if (undecayed) status = adamod_group_set(opt, group, "weight_decay", 0);
    if (undecayed && !status) status = adamod_set_schedule(opt, group, "weight_decay", NULL);
    const recipe_place nowhere = {0};
    return status ? recipe_fail(&nowhere, "optimizer.no_decay: %s", library_words(r)) : 0;
}

static int make_groups(const recipe *r, adamod_optimizer *opt) {
    recipe_group groups[RECIPE_MAX_GROUPS];
    const int all = recipe_library_groups(r), each = all / (1 + recipe_groups(r, groups));
    const recipe_place nowhere = {0};
    for (int i = 1; i < all; i++) {
        int group;
        if (adamod_add_group(opt, &group)) return recipe_fail(&nowhere, "optimizer.groups: %s", library_words(r));
        if (make_group(r, opt, i < each ? NULL : &groups[i / each - 1], group, i % each == 1)) return -1;
    }
    return 0;
}

int recipe_optimizer(const recipe *r, const char *device, int64_t batches, adamod_optimizer **out) {
    const epoch_length length = {batches, r->train.accumulate};
    adamod_optimizer *opt;
    if (adamod_create_on(&opt, r->optimizer.rule, device)) {
        int line = 0;
        for (int i = 0; i < r->n_given; i++) {
            if (strcmp(r->given[i].path, "optimizer.rule") == 0) line = r->given[i].line;
        }
        const recipe_place at = place_of_line(r, line);
        return recipe_fail(&at, "optimizer.rule: %s", library_words(r));
    }
    int status = 0;
    for (int i = 0; !status && i < r->optimizer.options.n; i++) {
        const recipe_place at = place_of_line(r, r->optimizer.options.at[i].line);
        status = set_option(r, opt, &r->optimizer.options.at[i], &at);
    }
    for (int i = 0; !status && i < r->optimizer.schedules.n; i++) {
        const recipe_place at = place_of_line(r, r->optimizer.schedules.at[i].line);
        status = set_schedule(r, opt, length, &r->optimizer.schedules.at[i], &at);
    }
    if (!status) status = make_groups(r, opt);
    if (status) adamod_free(opt);
    else *out = opt;
    return status;
}
