/* adamod optim list: the rules and their options. */
#include "cli/cli.h"
#include "optim/optim.h"
#include "support/json.h"
#include "support/text.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#define COMMAND "optim list"

/* ---- states ---- */

enum { SIDE = 1024 };

typedef struct rule_states {
    adamod_state_desc state[ADAMOD_MAX_STATES];
    int n;
    double bytes; /* for each parameter */
} rule_states;

static adamod_status find_states(const char *rule, rule_states *out) {
    const int64_t shape[2] = {SIDE, SIDE};
    adamod_hyper *hyper;
    adamod_status status = adamod_hyper_create(&hyper, rule);
    if (status) return status;
    *out = (rule_states){0};
    for (int i = 0; i < ADAMOD_MAX_STATES && !status; i++) {
        adamod_state_desc *desc = &out->state[out->n];
        status = adamod_state_at(hyper, 2, shape, i, desc);
        if (status || !desc->name) continue;
        out->bytes += 4.0 * (double)desc->count / (SIDE * SIDE);
        out->n++;
    }
    adamod_hyper_free(hyper);
    return status;
}

static void join_states(const rule_states *states, char *buffer, size_t size) {
    snprintf(buffer, size, "%s", states->n ? "" : "none");
    for (int i = 0; i < states->n; i++) text_join(buffer, size, ", ", states->state[i].name);
}

/* ---- options ---- */

/* "0 <= x < 1", "x > 0", "0 or 1", or the choices. */
static void describe_bounds(const adamod_option *o, char *buffer, size_t size) {
    char low[32], high[32];
    buffer[0] = '\0';
    if (o->kind == ADAMOD_CHOICE) {
        for (int i = 0; o->choices[i]; i++) text_join(buffer, size, ", ", o->choices[i]);
        return;
    }
    if (o->kind == ADAMOD_INTEGER && o->min == 0 && o->max == 1) {
        snprintf(buffer, size, "0 or 1");
        return;
    }
    snprintf(buffer, size, "%s %s x %s %s%s", cli_number(o->min, low),
             o->min_open ? "<" : "<=", o->max_open ? "<" : "<=", cli_number(o->max, high),
             o->kind == ADAMOD_INTEGER ? ", whole" : "");
}

static void describe_default(const adamod_option *o, char *buffer, size_t size) {
    char number[32];
    snprintf(buffer, size, "%s", o->kind == ADAMOD_CHOICE ? o->choices[(int)o->value] : cli_number(o->value, number));
}

static const char *describe_scope(const adamod_option *o) {
    if (o->optimizer_wide) return " (whole optimizer)";
    return o->structural ? " (fixed once a parameter was added)" : "";
}

static int print_rule(const char *rule, const char *summary) {
    rule_states states;
    const adamod_status status = find_states(rule, &states);
    if (status) return cli_library(COMMAND, status);
    char text[256], value[32];
    join_states(&states, text, sizeof text);
    printf("%s: %s\nstates: %s\n\n", rule, summary, text);
    int width = 0, names = 0;
    adamod_option o;
    for (int i = 0; adamod_option_at(rule, i, &o) == ADAMOD_OK; i++) {
        describe_bounds(&o, text, sizeof text);
        if ((int)strlen(text) > width) width = (int)strlen(text);
        if ((int)strlen(o.name) > names) names = (int)strlen(o.name);
    }
    printf("%-*s  %-9s  %-*s  %s\n", names, "option", "default", width, "values", "meaning");
    for (int i = 0; adamod_option_at(rule, i, &o) == ADAMOD_OK; i++) {
        describe_default(&o, value, sizeof value);
        describe_bounds(&o, text, sizeof text);
        printf("%-*s  %-9s  %-*s  %s%s\n", names, o.name, value, width, text, o.help, describe_scope(&o));
    }
    return 0;
}

static int print_rules(void) {
    printf("%-18s  %-49s  %6s  %s\n", "rule", "states", "bytes", "summary");
    for (int i = 0; adamod_rule_name(i); i++) {
        rule_states states;
        const adamod_status status = find_states(adamod_rule_name(i), &states);
        if (status) return cli_library(COMMAND, status);
        char text[256];
        join_states(&states, text, sizeof text);
        printf("%-18s  %-49s  %6.4g  %s\n", adamod_rule_name(i), text, round(states.bytes * 100) / 100,
               adamod_rule_summary(i));
    }
    printf("\n");
    for (int i = 0; adamod_rule_name(i); i++) {
        const char *summary, *alias = adamod__rule_alias(i, &summary);
        if (alias) printf("%s: %s.\n", alias, summary);
    }
    printf("bytes: of the states, for each f32 parameter of a %d x %d matrix, with the default options.\n"
           "'adamod optim list RULE' shows a rule's options.\n",
           SIDE, SIDE);
    return 0;
}

/* ---- Markdown ---- */

static bool has_state(const rule_states *states, const char *name) {
    for (int i = 0; i < states->n; i++) {
        if (strcmp(states->state[i].name, name) == 0) return true;
    }
    return false;
}

/* The states of a matrix with the default options, then in parentheses those of other shapes or options. The bound's
 * has a column of its own. */
static void print_state_cell(const adamod_rule *info, const rule_states *states) {
    const char *between = "", *last = "";
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < info->n_states; i++) {
            const adamod_rule_state *s = &info->states[i];
            const bool named = s->presence == ADAMOD_STATE_WITH_BOUND || strcmp(s->name, last) == 0 ||
                               (info->bound == ADAMOD_BOUND_OPTION && strcmp(s->name, "exp_avg_lr") == 0);
            if (named || has_state(states, s->name) != (pass == 0)) continue;
            printf(pass ? "%s(%s)" : "%s%s", between, s->name);
            between = ", ";
            last = s->name;
        }
    }
}

static int print_rule_row(const adamod_rule *info) {
    static const char *const bounds[] = {"", "yes", "always"};
    static const char arxiv[] = "arXiv ";
    rule_states states;
    adamod_option lr;
    adamod_status status = find_states(info->name, &states);
    if (!status) status = adamod_option_find(info->name, "lr", &lr);
    if (status) return cli_library(COMMAND, status);
    char number[32];
    const bool paper = strncmp(info->source, arxiv, strlen(arxiv)) == 0;
    printf("| `%s` | %d | %s%s%s | ", info->name, info->year, paper ? "[" : "",
           info->source + (paper ? strlen(arxiv) : 0), paper ? "]" : "");
    print_state_cell(info, &states);
    printf(" | %.4g | %s | %s |\n", round(states.bytes * 100) / 100, bounds[info->bound], cli_number(lr.value, number));
    return 0;
}

static bool has_l2_decay(const adamod_rule *info) {
    adamod_option decay;
    return !adamod_option_find(info->name, "decay", &decay) && strcmp(decay.choices[(int)decay.value], "l2") == 0;
}

typedef struct rule_fact {
    const char *what;
    size_t at; /* in adamod_rule; 0: has_l2_decay tells */
} rule_fact;

static void print_fact_row(const rule_fact *fact) {
    adamod_rule info;
    const char *between = "";
    printf("| %s | ", fact->what);
    for (int i = 0; adamod_rule_name(i); i++) {
        if (adamod_rule_info(adamod_rule_name(i), &info, sizeof info)) continue;
        const bool holds = fact->at ? *(const int *)((const char *)&info + fact->at) != 0 : has_l2_decay(&info);
        if (holds) printf("%s`%s`", between, info.name), between = ", ";
    }
    printf(" |\n");
}

static int print_rules_markdown(void) {
    static const rule_fact facts[] = {
        {"need whole arrays, and cannot update a part of one", offsetof(adamod_rule, whole_arrays)},
        {"also look at the dimensions of an array", offsetof(adamod_rule, shaped)},
        {"look at all arrays of an update at once", offsetof(adamod_rule, couples_arrays)},
        {"take sparse gradients in PyTorch", offsetof(adamod_rule, sparse_gradients)},
        {"can have states in 8 bits", offsetof(adamod_rule, q8_states)},
        {"evaluate with other weights than they train", offsetof(adamod_rule, averages)},
        {"have L2 decay in the C library by default", 0},
    };
    int status = 0;
    adamod_rule info;
    printf("| rule | year | source | states | bytes | bound | lr |\n|---|---|---|---|---|---|---|\n");
    for (int i = 0; adamod_rule_name(i) && !status; i++) {
        if (!adamod_rule_info(adamod_rule_name(i), &info, sizeof info)) status = print_rule_row(&info);
    }
    printf("\n| rules that | |\n|---|---|\n");
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) print_fact_row(&facts[i]);
    return status;
}

/* ---- JSON ---- */

static void add_option(json *j, const adamod_option *o) {
    static const char *const kinds[] = {"real", "integer", "choice"};
    json_open(j, '{');
    json_pair(j, "name", o->name);
    json_pair(j, "kind", kinds[o->kind]);
    if (o->kind == ADAMOD_CHOICE) {
        json_pair(j, "default", o->choices[(int)o->value]);
        json_pair_open(j, "choices", '[');
        for (int i = 0; o->choices[i]; i++) json_string(j, o->choices[i]);
        json_close(j, ']');
    } else {
        cli_json_number(j, "default", o->value);
        cli_json_number(j, "min", o->min);
        cli_json_number(j, "max", o->max);
        json_pair_boolean(j, "min_open", o->min_open);
        json_pair_boolean(j, "max_open", o->max_open);
    }
    json_pair_boolean(j, "structural", o->structural);
    json_pair_boolean(j, "optimizer_wide", o->optimizer_wide);
    json_pair(j, "help", o->help);
    json_close(j, '}');
}

/* Prints a rule as one object, followed by end. */
static int print_rule_json(const char *rule, const char *summary, const char *end) {
    rule_states states;
    const adamod_status status = find_states(rule, &states);
    if (status) return cli_library(COMMAND, status);
    json j = {.spaced = true};
    json_open(&j, '{');
    json_pair(&j, "name", rule);
    json_pair(&j, "summary", summary);
    json_pair_open(&j, "states", '[');
    for (int i = 0; i < states.n; i++) json_string(&j, states.state[i].name);
    json_close(&j, ']');
    cli_json_number(&j, "bytes_per_parameter", states.bytes);
    json_pair_open(&j, "options", '[');
    adamod_option o;
    for (int i = 0; adamod_option_at(rule, i, &o) == ADAMOD_OK; i++) add_option(&j, &o);
    json_close(&j, ']');
    json_close(&j, '}');
    return cli_print_json(COMMAND, &j, end);
}

static int print_rules_json(void) {
    int status = 0;
    printf("{\"rules\": [");
    for (int i = 0; adamod_rule_name(i) && !status; i++)
        status = print_rule_json(adamod_rule_name(i), adamod_rule_summary(i), adamod_rule_name(i + 1) ? ",\n" : "]}\n");
    return status;
}

/* The summary of a rule or an alias. */
static const char *find_summary(const char *rule) {
    for (int i = 0; adamod_rule_name(i); i++) {
        const char *summary, *alias = adamod__rule_alias(i, &summary);
        if (strcmp(adamod_rule_name(i), rule) == 0) return adamod_rule_summary(i);
        if (alias && strcmp(alias, rule) == 0) return summary;
    }
    return "";
}

typedef struct arguments {
    const char *rule;
    bool json, markdown;
} arguments;

static const cli_flag flags[] = {CLI_SWITCH("json", "print one JSON object", arguments, json),
                                 CLI_SWITCH("markdown", "print the rules as tables in Markdown", arguments, markdown),
                                 CLI_HELP_FLAG,
                                 {0}};

static int take_rule(void *to, const char *value) {
    arguments *a = to;
    if (a->rule) return cli_usage(COMMAND, "unexpected argument '%.40s'", value);
    a->rule = value;
    return 0;
}

int cli_optim_list(int argc, char **argv) {
    const cli_syntax syntax = {
        .command = COMMAND,
        .help =
            "usage: adamod optim list [RULE] [--json]\n"
            "       adamod optim list --markdown\n\n"
            "Lists the update rules: their states, the bytes of state per f32 parameter, and a summary. With RULE, lists\n"
            "its options with defaults and bounds. States and bytes are those of a 1024 x 1024 matrix with the default\n"
            "options. In JSON an infinite number is the string \"inf\". The tables of --markdown are those of\n"
            "docs/optimizers.md and docs/pytorch.md: one of all rules, and one of what only some of them do.\n\n",
        .flags = flags,
        .operand = take_rule};
    arguments a = {.rule = NULL};
    int status = cli_parse(&syntax, argc, argv, &a);
    if (status >= 0) return status;
    if (a.markdown && (a.rule || a.json)) return cli_usage(COMMAND, "--markdown goes with no rule and not with --json");
    if (a.markdown) return print_rules_markdown();
    if (!a.rule) return a.json ? print_rules_json() : print_rules();
    adamod_option first;
    const adamod_status known = adamod_option_at(a.rule, 0, &first);
    if (known) return cli_library(COMMAND, known);
    const char *summary = find_summary(a.rule);
    return a.json ? print_rule_json(a.rule, summary, "\n") : print_rule(a.rule, summary);
}
