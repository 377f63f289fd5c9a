/* Tests of tests/golden: every state file that a version of this library left there is read by all later ones, which have
 * the states that it recorded, and take the same next update, bit for bit.
 *
 *     test_golden --write DIRECTORY       writes those of this version; scripts/golden calls it, once for a version
 *
 * Beside NAME.safetensors is NAME.txt, with all that another program needs to be in the same place: a word for the kind of
 * line, then what it is about. Numbers are the bits of elements.
 *
 *     rule adamod
 *     option lr 0.01                      every option there was, so that defaults may change
 *     group 1 lr 0.02                     what differs in another group
 *     schedule 0 lr warmup_rsqrt(0,6)
 *     tensor weight 0 bf16 f32 2 3 4      group, types of parameter and gradient, dimensions
 *     before weight 3f80 ...              the parameter, and the gradient of the update to come
 *     gradient weight 3f800000 ...
 *     counts 5 1                          updates done and skipped
 *     steps weight 5
 *     state weight exp_avg f32 12 HASH    type, elements, and a hash of the bytes
 *     after weight 3f81 ...               after that update
 *     then weight exp_avg f32 12 HASH
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "adamod.h"
#include "check.h"
#include "values.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdlib.h>

enum { TENSORS = 4, MOST = 512, LINE = 16384 };

static const char *const type_names[] = {"f32", "f64", "bf16", "f16", "q8"};
enum { TYPES = sizeof type_names / sizeof *type_names };

typedef struct golden {
    adamod_optimizer *opt;
    adamod_tensor tensor[TENSORS];
    char name[TENSORS][32];
    int n;
    double p[TENSORS][MOST], g[TENSORS][MOST]; /* room for the largest type */
} golden;

static int64_t count_of(const adamod_tensor *t) {
    int64_t n = 1;
    for (int d = 0; d < t->ndim; d++) n *= t->shape[d];
    return n;
}

/* FNV-1a of the elements, whatever the order of their bytes. */
static uint64_t hash_of(adamod_type type, const void *data, int64_t n) {
    const size_t width = type == ADAMOD_Q8 ? 1 : type_size(type);
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (int64_t i = 0; i < n; i++) {
        uint64_t bits = 0;
        memcpy(&bits, (const char *)data + (size_t)i * width, width); /* little-endian, as all platforms are */
        hash = (hash ^ bits) * UINT64_C(0x100000001b3);
    }
    return hash;
}

/* ---- reading ---- */

static char line[LINE];
static char *rest;

static const char *word(void) {
    const char *found = strtok_r(rest, " \n", &rest);
    return found ? found : "";
}

static int tensor_named(const golden *x, const char *name) {
    for (int i = 0; i < x->n; i++) {
        if (!strcmp(x->name[i], name)) return i;
    }
    check_true(0, name, __FILE__, __LINE__);
    return 0;
}

static int type_named(const char *name) {
    int type = 0;
    while (type < TYPES - 1 && strcmp(type_names[type], name)) type++;
    return type;
}

static void read_array(adamod_type type, int64_t n, void *out) {
    for (int64_t i = 0; i < n; i++) {
        const uint64_t bits = strtoull(word(), NULL, 16);
        memcpy((char *)out + (size_t)i * type_size(type), &bits, type_size(type));
    }
}

static void read_tensor(golden *x) {
    if (!CHECK(x->n < TENSORS)) return;
    adamod_tensor *t = &x->tensor[x->n];
    snprintf(x->name[x->n], sizeof x->name[0], "%s", word());
    const int group = atoi(word());
    t->name = x->name[x->n];
    t->param_type = (adamod_type)type_named(word());
    t->grad_type = (adamod_type)type_named(word());
    t->ndim = atoi(word());
    for (int d = 0; d < t->ndim && d < ADAMOD_MAX_DIMS; d++) t->shape[d] = atoi(word());
    t->param = x->p[x->n];
    t->grad = x->g[x->n];
    if (!CHECK(count_of(t) <= MOST)) return;
    CHECK_INT(adamod_add_tensor(x->opt, group, t, NULL), ADAMOD_OK);
    x->n++;
}

static void read_group(golden *x) {
    const int group = atoi(word());
    double lr;
    int added;
    if (adamod_group_get(x->opt, group, "lr", &lr)) CHECK_INT(adamod_add_group(x->opt, &added), ADAMOD_OK);
    const char *option = word();
    CHECK_INT(adamod_group_set_text(x->opt, group, option, word()), ADAMOD_OK);
}

static void read_schedule(golden *x) {
    adamod_schedule *s = NULL;
    const int group = atoi(word());
    const char *option = word();
    CHECK_INT(adamod_schedule_parse(&s, word()), ADAMOD_OK);
    CHECK_INT(adamod_set_schedule(x->opt, group, option, s), ADAMOD_OK);
    adamod_schedule_free(s);
}

static void check_state(const golden *x) {
    const int i = tensor_named(x, word());
    const char *state = word();
    const int type = type_named(word());
    const int64_t n = strtoll(word(), NULL, 10);
    void *data = NULL;
    adamod_type found = ADAMOD_F32;
    int64_t count = -1;
    if (!CHECK_INT(adamod_state(x->opt, i, state, &data, &found, &count), ADAMOD_OK)) return;
    CHECK_INT(found, type);
    CHECK_INT(count, n);
    CHECK(hash_of(found, data, count) == strtoull(word(), NULL, 16));
}

static void check_after(const golden *x) {
    const int i = tensor_named(x, word());
    const adamod_tensor *t = &x->tensor[i];
    static double wanted[MOST];
    read_array(t->param_type, count_of(t), wanted);
    CHECK(memcmp(x->p[i], wanted, (size_t)count_of(t) * type_size(t->param_type)) == 0);
}

static void read_line(golden *x, const char *states, bool *loaded, bool *stepped) {
    const char *kind = word();
    if (!strcmp(kind, "rule")) {
        CHECK_INT(adamod_create(&x->opt, word()), ADAMOD_OK);
    } else if (!strcmp(kind, "option")) {
        const char *option = word();
        CHECK_INT(adamod_set_text(x->opt, option, word()), ADAMOD_OK);
    } else if (!strcmp(kind, "group")) {
        read_group(x);
    } else if (!strcmp(kind, "schedule")) {
        read_schedule(x);
    } else if (!strcmp(kind, "tensor")) {
        read_tensor(x);
    } else if (!strcmp(kind, "before") || !strcmp(kind, "gradient")) {
        const int i = tensor_named(x, word());
        const adamod_tensor *t = &x->tensor[i];
        const bool gradient = *kind == 'g';
        read_array(gradient ? t->grad_type : t->param_type, count_of(t), gradient ? x->g[i] : x->p[i]);
    } else if (!strcmp(kind, "counts")) {
        if (!CHECK_INT(adamod_load(x->opt, states), ADAMOD_OK)) printf("  %s\n", adamod_last_error());
        *loaded = true;
        CHECK_INT(adamod_steps(x->opt), strtoll(word(), NULL, 10));
        CHECK_INT(adamod_skipped(x->opt), strtoll(word(), NULL, 10));
    } else if (!strcmp(kind, "steps")) {
        int64_t steps = -1;
        CHECK_INT(adamod_tensor_steps(x->opt, tensor_named(x, word()), &steps), ADAMOD_OK);
        CHECK_INT(steps, strtoll(word(), NULL, 10));
    } else if (!strcmp(kind, "state") || !strcmp(kind, "then")) {
        check_state(x);
    } else if (!strcmp(kind, "after")) {
        if (!*stepped) CHECK_INT(adamod_step(x->opt), ADAMOD_OK);
        *stepped = true;
        check_after(x);
    } else {
        check_true(0, kind, __FILE__, __LINE__);
    }
}

/* path: of NAME.txt. */
static void check_file(const char *path) {
    static golden x;
    char states[1024];
    bool loaded = false, stepped = false;
    const int failures = check_failures;
    FILE *file = fopen(path, "r");
    if (!CHECK(file != NULL)) return;
    memset(&x, 0, sizeof x);
    snprintf(states, sizeof states, "%.*s.safetensors", (int)(strlen(path) - strlen(".txt")), path);
    while (fgets(line, sizeof line, file) && check_failures == failures) {
        rest = line;
        read_line(&x, states, &loaded, &stepped);
    }
    fclose(file);
    adamod_free(x.opt);
    CHECK(loaded && stepped);
    if (check_failures > failures) printf("  %s\n", path);
}

static int by_name(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }
static int is_shown(const struct dirent *e) { return e->d_name[0] != '.'; }

/* DIRECTORY/VERSION/states/NAME.txt, of all versions. */
static int check_versions(const char *directory) {
    struct dirent **versions = NULL, **files = NULL;
    int checked = 0;
    const int n = scandir(directory, &versions, is_shown, by_name);
    for (int v = 0; v < n; v++) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s/states", directory, versions[v]->d_name);
        const int m = scandir(path, &files, is_shown, by_name);
        for (int i = 0; i < m; i++) {
            const size_t length = strlen(files[i]->d_name);
            char name[1024];
            snprintf(name, sizeof name, "%s/%s", path, files[i]->d_name);
            if (length > 4 && !strcmp(files[i]->d_name + length - 4, ".txt")) check_file(name), checked++;
            free(files[i]);
        }
        if (m >= 0) free(files);
        free(versions[v]);
    }
    if (n >= 0) free(versions);
    return checked;
}

TEST(every_state_file_of_every_version_is_read_and_continued) {
    char directory[512];
    snprintf(directory, sizeof directory, "%s/tests/golden", source_dir());
    CHECK(check_versions(directory) >= 18); /* those of version 0.1 */
}

/* ---- writing ---- */

typedef struct golden_case {
    const char *name, *rule, *options;
    adamod_type p, g;
    int64_t columns; /* of the matrix */
    const char *group_options, *lr_schedule;
} golden_case;

static const golden_case golden_cases[] = {
    {"adamod-groups", "adamod", "lr=0.01 weight_decay=0.1 decay=decoupled", ADAMOD_F32, ADAMOD_F32, 4,
     "lr=0.02 weight_decay=0", "warmup_rsqrt(0,6)"},
    {"adamod-published-bf16", "adamod", "lr=0.01 flavour=published", ADAMOD_BF16, ADAMOD_F32, 4, "lr=0.5",
     "multistep(3,5;0.1)"},
    {"adamod-q8", "adamod", "lr=0.01 state_type=q8 min_8bit_size=6", ADAMOD_F32, ADAMOD_F32, 100, "lr=0.02",
     "cosine(0,20)"},
    {"adam-bf16-states", "adam", "lr=0.01 state_type=bf16 seed=42", ADAMOD_F32, ADAMOD_BF16, 4, "lr=0.02", NULL},
    {"adam-bf16-stochastic", "adam", "lr=0.1 low_precision=stochastic seed=42", ADAMOD_BF16, ADAMOD_BF16, 4, "lr=0.02",
     "linear(0.5,9)"},
    {"adam-bound", "adam", "lr=0.01 bound=momental beta3=0.9", ADAMOD_F64, ADAMOD_F64, 4, "lr=0.02", NULL},
    {"amsgrad-f16", "amsgrad", "lr=0.01", ADAMOD_F16, ADAMOD_F16, 4, "lr=0.02", "constant_rsqrt(2)"},
    {"sgd-q8", "sgd", "lr=0.1 momentum=0.9 state_type=q8 min_8bit_size=1", ADAMOD_BF16, ADAMOD_F32, 4, "lr=0.2", NULL},
    {"rmsprop", "rmsprop", "lr=0.01 centered=1 momentum=0.5", ADAMOD_F32, ADAMOD_F32, 4, "lr=0.02", NULL},
    {"adadelta", "adadelta", "lr=1", ADAMOD_F32, ADAMOD_F32, 4, "lr=0.5", NULL},
    {"adashift", "adashift", "lr=0.01 window=3", ADAMOD_F32, ADAMOD_F32, 4, "lr=0.02", NULL},
    {"adafactor", "adafactor", "lr=0.01 beta1=0.9", ADAMOD_F32, ADAMOD_F32, 4, "lr=0.02", NULL},
    {"nadam", "nadam", "lr=0.01", ADAMOD_F32, ADAMOD_F32, 4, "lr=0.02", "warmup(0,6)"},
    {"ademamix", "ademamix", "lr=0.01 beta_slow_warmup=4", ADAMOD_F32, ADAMOD_F32, 4, "lr=0.02", NULL},
    {"schedulefree", "schedulefree_adamw", "lr=0.01 warmup_steps=3", ADAMOD_F32, ADAMOD_F32, 4, "weight_decay=0.1",
     NULL},
    {"prodigy", "prodigy", "lr=1", ADAMOD_F32, ADAMOD_F32, 4, "weight_decay=0.1", NULL},
    {"muon-bf16", "muon", "lr=0.02", ADAMOD_BF16, ADAMOD_BF16, 4, "lr=0.01 use_muon=0", NULL},
    {"soap", "soap", "lr=0.01", ADAMOD_F32, ADAMOD_F32, 4, "lr=0.02", NULL},
};
enum { UPDATES = 5, FROZEN_UNTIL = 3 };

static void must(adamod_status status) {
    if (!status) return;
    fprintf(stderr, "test_golden: %s\n", adamod_last_error());
    exit(1);
}

static void set_options(FILE *out, golden *x, const golden_case *c) {
    char text[200], *options = text, *name, *value;
    adamod_option o;
    fprintf(out, "rule %s\n", c->rule);
    must(adamod_create(&x->opt, c->rule));
    snprintf(text, sizeof text, "threads=1 nonfinite=skip %s", c->options);
    while (next_option(&options, &name, &value)) must(adamod_set_text(x->opt, name, value));
    for (int i = 0; !adamod_option_at(c->rule, i, &o); i++) {
        double number;
        must(adamod_get(x->opt, o.name, &number));
        if (o.kind == ADAMOD_CHOICE) fprintf(out, "option %s %s\n", o.name, o.choices[(int)number]);
        else fprintf(out, "option %s %.17g\n", o.name, number);
    }
    int group;
    must(adamod_add_group(x->opt, &group));
    snprintf(text, sizeof text, "%s", c->group_options);
    for (options = text; next_option(&options, &name, &value);) {
        must(adamod_group_set_text(x->opt, group, name, value));
        fprintf(out, "group %d %s %s\n", group, name, value);
    }
    if (!c->lr_schedule) return;
    adamod_schedule *s;
    must(adamod_schedule_parse(&s, c->lr_schedule));
    must(adamod_set_schedule(x->opt, 0, "lr", s));
    adamod_schedule_free(s);
    fprintf(out, "schedule 0 lr %s\n", c->lr_schedule);
}

static void add_tensors(FILE *out, golden *x, const golden_case *c) {
    static const struct {
        const char *name;
        int group, ndim;
        int64_t shape[2];
    } layout[] = {{"weight", 0, 2, {3, 0}}, {"bias", 1, 1, {5}}, {"scale", 1, 0, {0}}};
    for (x->n = 0; x->n < 3; x->n++) {
        adamod_tensor *t = &x->tensor[x->n];
        snprintf(x->name[x->n], sizeof x->name[0], "%s", layout[x->n].name);
        *t = (adamod_tensor){.name = x->name[x->n],
                             .param = x->p[x->n],
                             .param_type = c->p,
                             .grad_type = c->g,
                             .ndim = layout[x->n].ndim,
                             .shape = {layout[x->n].shape[0], layout[x->n].shape[1]}};
        if (x->n == 0) t->shape[1] = c->columns;
        if (x->n != 1) t->grad = x->g[x->n]; /* the bias is frozen at first: its count is another */
        for (int64_t i = 0; i < count_of(t); i++) put(c->p, x->p[x->n], i, noise((uint64_t)(x->n * 1000 + i)));
        must(adamod_add_tensor(x->opt, layout[x->n].group, t, NULL));
        fprintf(out, "tensor %s %d %s %s %d", t->name, layout[x->n].group, type_names[c->p], type_names[c->g], t->ndim);
        for (int d = 0; d < t->ndim; d++) fprintf(out, " %" PRId64, t->shape[d]);
        fprintf(out, "\n");
    }
}

static void make_gradients(golden *x, const golden_case *c, int update) {
    for (int k = 0; k < x->n; k++) {
        for (int64_t i = 0; i < count_of(&x->tensor[k]); i++) {
            put(c->g, x->g[k], i, noise((uint64_t)(update * 100000 + k * 1000 + i)));
        }
    }
}

static void write_array(FILE *out, const char *kind, const char *name, adamod_type type, const void *data, int64_t n) {
    fprintf(out, "%s %s", kind, name);
    for (int64_t i = 0; i < n; i++) {
        uint64_t bits = 0;
        memcpy(&bits, (const char *)data + (size_t)i * type_size(type), type_size(type));
        fprintf(out, " %" PRIx64, bits);
    }
    fprintf(out, "\n");
}

static void write_states(FILE *out, const char *kind, const golden *x) {
    for (int k = 0; k < x->n; k++) {
        for (int i = 0; state_name(i); i++) {
            void *data;
            adamod_type type;
            int64_t n;
            if (adamod_state(x->opt, k, state_name(i), &data, &type, &n)) continue;
            fprintf(out, "%s %s %s %s %" PRId64 " %016" PRIx64 "\n", kind, x->name[k], state_name(i), type_names[type],
                    n, hash_of(type, data, n));
        }
    }
}

static void write_case(const char *directory, const golden_case *c) {
    static golden x;
    char path[512];
    memset(&x, 0, sizeof x);
    snprintf(path, sizeof path, "%s/%s.txt", directory, c->name);
    FILE *out = fopen(path, "wx");
    if (!out) perror(path), exit(1);
    set_options(out, &x, c);
    add_tensors(out, &x, c);
    for (int t = 1; t <= UPDATES; t++) {
        make_gradients(&x, c, t);
        if (t == FROZEN_UNTIL) {
            memset(x.g[0], 0xff, 8); /* NaN in every type: an update that is skipped */
            must(adamod_step(x.opt));
            make_gradients(&x, c, t);
            must(adamod_set_grad(x.opt, 1, x.g[1]));
        }
        must(adamod_step(x.opt));
    }
    make_gradients(&x, c, UPDATES + 1);
    for (int k = 0; k < x.n; k++) {
        write_array(out, "before", x.name[k], c->p, x.p[k], count_of(&x.tensor[k]));
        write_array(out, "gradient", x.name[k], c->g, x.g[k], count_of(&x.tensor[k]));
    }
    fprintf(out, "counts %" PRId64 " %" PRId64 "\n", adamod_steps(x.opt), adamod_skipped(x.opt));
    for (int k = 0; k < x.n; k++) {
        int64_t steps;
        must(adamod_tensor_steps(x.opt, k, &steps));
        fprintf(out, "steps %s %" PRId64 "\n", x.name[k], steps);
    }
    write_states(out, "state", &x);
    snprintf(path, sizeof path, "%s/%s.safetensors", directory, c->name);
    must(adamod_save(x.opt, path));
    must(adamod_step(x.opt));
    for (int k = 0; k < x.n; k++) write_array(out, "after", x.name[k], c->p, x.p[k], count_of(&x.tensor[k]));
    write_states(out, "then", &x);
    if (fclose(out)) perror(path), exit(1);
    adamod_free(x.opt);
}

int main(int argc, char **argv) {
    static const check_test tests[] = {ENTRY(every_state_file_of_every_version_is_read_and_continued)};
    if (argc == 3 && !strcmp(argv[1], "--write")) {
        for (size_t i = 0; i < sizeof golden_cases / sizeof *golden_cases; i++) write_case(argv[2], &golden_cases[i]);
        return 0;
    }
    return check_run(tests, sizeof tests / sizeof *tests, argc > 1 ? argv[1] : "");
}
