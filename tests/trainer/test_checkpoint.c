/* Checkpoints: training goes on from one as if it had not stopped, one that does not fit changes nothing, and a crash
 * or a full disk leaves the last good one.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "check.h"
#include "child.h"
#include "scratch.h"
#include "small_recipe.h"
#include "core/safetensors.h"
#include "tasks/tasks.h"
#include "train/checkpoint.h"
#include "train/checkpoints.h"
#include "core/error.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- files ---- */

static bool exists(const char *path) { return access(path, F_OK) == 0; }

/* Writes the first n bytes of a file to another; returns how many the first has. */
static int64_t copy_bytes(const char *from, const char *to, int64_t n) {
    static char block[1 << 16];
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    const size_t size = in ? fread(block, 1, sizeof block, in) : 0;
    CHECK(size < sizeof block);
    if (out) fwrite(block, 1, n < 0 || (size_t)n > size ? size : (size_t)n, out);
    if (in) fclose(in);
    if (out) fclose(out);
    return (int64_t)size;
}

/* ---- a model ---- */

enum { PARAMS = 3, ALIGN = 16 };

typedef struct model {
    nn_param list[PARAMS];
    nn_params params;
    adamod_optimizer *opt;
} model;

/* Built by hand, as the engine would lay it out: a matrix, a vector and a single number, with padding between them. */
static void make_params(model *m) {
    static const nn_param shapes[PARAMS] = {{.name = "encoder.0.w", .ndim = 2, .shape = {5, 7}, .count = 35},
                                            {.name = "encoder.0.b", .ndim = 1, .shape = {5}, .count = 5},
                                            {.name = "scale", .ndim = 0, .count = 1}};
    memcpy(m->list, shapes, sizeof shapes);
    m->params = (nn_params){.list = m->list, .n = PARAMS};
    for (int i = 0; i < PARAMS; i++) {
        m->list[i].offset = m->params.count;
        m->params.count += (m->list[i].count + ALIGN - 1) / ALIGN * ALIGN;
    }
    m->params.data = calloc((size_t)m->params.count, sizeof(float));
    m->params.grad = calloc((size_t)m->params.count, sizeof(float));
    for (int64_t i = 0; i < m->params.count; i++) m->params.data[i] = sinf((float)i);
}

static bool add_optimizer(model *m, const char *rule_name) {
    if (!CHECK_INT(adamod_create(&m->opt, rule_name), ADAMOD_OK)) return false;
    adamod_set(m->opt, "threads", 1);
    for (int i = 0; i < m->params.n; i++) {
        const nn_param *p = &m->list[i];
        CHECK_INT(
            adamod_add(m->opt, p->name, m->params.data + p->offset, m->params.grad + p->offset, p->ndim, p->shape),
            ADAMOD_OK);
    }
    return true;
}

static bool make(model *m, const char *rule_name) {
    *m = (model){0};
    make_params(m);
    return add_optimizer(m, rule_name);
}

static void drop(model *m) {
    adamod_free(m->opt);
    free(m->params.data);
    free(m->params.grad);
}

/* Gradients follow from the number of the update alone. */
static void train(model *m, int from, int to) {
    for (int t = from; t < to; t++) {
        for (int64_t i = 0; i < m->params.count; i++) m->params.grad[i] = cosf((float)(i * 7 + t * 13));
        CHECK_INT(adamod_step(m->opt), ADAMOD_OK);
    }
}

static checkpoint_meta some_meta(void) {
    return (checkpoint_meta){.step = 5,
                             .epoch = 1,
                             .batch = 7,
                             .samples = 240,
                             .tokens = 9000,
                             .seconds = 1.0 / 3,
                             .best = NAN,
                             .best_step = 4,
                             .mark = "metrics.jsonl 120",
                             .fingerprint = 0xfedcba9876543210u};
}

/* ---- there and back ---- */

TEST(training_goes_on_from_a_checkpoint_with_every_rule) {
    for (int i = 0; adamod_rule_name(i); i++) {
        model whole, first, second;
        checkpoint_meta meta = some_meta();
        if (!make(&whole, adamod_rule_name(i)) || !make(&first, adamod_rule_name(i))) return;
        if (!make(&second, adamod_rule_name(i))) return;
        train(&whole, 0, 12);
        train(&first, 0, 5);
        if (!CHECK_INT(checkpoint_save(below("a.safetensors"), &first.params, first.opt, &meta), 0))
            puts(adamod__last_message());
        memset(second.params.data, 0, (size_t)second.params.count * sizeof(float));
        meta = (checkpoint_meta){0};
        if (!CHECK_INT(checkpoint_load(below("a.safetensors"), &second.params, second.opt, &meta), 0))
            puts(adamod__last_message());
        CHECK_INT(adamod_steps(second.opt), 5);
        train(&second, 5, 12);
        for (int p = 0; p < PARAMS; p++) {
            const nn_param *x = &whole.list[p];
            CHECK(memcmp(whole.params.data + x->offset, second.params.data + x->offset, (size_t)x->count * 4) == 0);
        }
        drop(&whole);
        drop(&first);
        drop(&second);
    }
}

/* Whether two files have the same bytes. */
static bool same_files(const char *a, const char *b) {
    FILE *x = fopen(a, "rb"), *y = fopen(b, "rb");
    int c = 0, d = 0;
    while (x && y && c == d && c != EOF) c = getc(x), d = getc(y);
    const bool same = x && y && c == d;
    if (x) fclose(x);
    if (y) fclose(y);
    return same;
}

TEST(what_is_written_beside_training_is_what_was_there_when_it_began) {
    for (int i = 0; adamod_rule_name(i); i++) {
        model m;
        checkpoint_meta meta = some_meta();
        char one[512], two[512], plain[512];
        if (!make(&m, adamod_rule_name(i))) return;
        snprintf(one, sizeof one, "%s", below("one.safetensors"));
        snprintf(two, sizeof two, "%s", below("two.safetensors"));
        snprintf(plain, sizeof plain, "%s", below("plain.safetensors"));
        train(&m, 0, 5);
        CHECK_INT(checkpoint_save(plain, &m.params, m.opt, &meta), 0);
        checkpoint_writer *w =
            checkpoint_begin((checkpoint_target[]){{one, true}, {two, true}}, 2, &m.params, m.opt, &meta);
        meta = (checkpoint_meta){0};
        train(&m, 5, 12);
        if (!CHECK_INT(checkpoint_end(w), 0)) puts(adamod__last_message());
        CHECK(same_files(one, plain));
        CHECK(same_files(two, plain));
        drop(&m);
    }
    CHECK_INT(checkpoint_end(NULL), 0);
    CHECK(!checkpoint_has_failed(NULL));
}

static struct stat stat_of(const char *path) {
    struct stat st = {0};
    CHECK_INT(stat(path, &st), 0);
    return st;
}

/* As a run saves them: best and step-N for use alone, last to go on from. */
TEST(checkpoints_that_are_equal_share_a_file_and_those_for_use_have_no_states) {
    static const char *const names[] = {"best", "step", "last", "kept"};
    for (int i = 0; adamod_rule_name(i); i++) {
        model m, used, other;
        const checkpoint_meta meta = some_meta();
        char path[4][512];
        checkpoint_target targets[4];
        bool resumable[4];
        struct stat st[4];
        checkpoint_meta found = {0};
        if (!make(&m, adamod_rule_name(i)) || !make(&used, "sgd") || !make(&other, "sgd")) return;
        train(&m, 0, 5);
        for (int k = 0; k < 4; k++) {
            snprintf(path[k], sizeof path[k], "%s/%s.safetensors", below("."), names[k]);
            targets[k] = (checkpoint_target){path[k], k >= 2};
        }
        checkpoint_writer *w = checkpoint_begin(targets, 4, &m.params, m.opt, &meta);
        train(&m, 5, 7);
        if (!CHECK_INT(checkpoint_end(w), 0)) puts(adamod__last_message());
        for (int k = 0; k < 4; k++) {
            st[k] = stat_of(path[k]);
            CHECK_INT(checkpoint_verify(path[k], &resumable[k], &found), 0);
            CHECK_INT(resumable[k], k >= 2);
            CHECK_INT(found.step, 5);
        }
        CHECK(st[0].st_ino == st[1].st_ino && st[2].st_ino == st[3].st_ino && st[0].st_ino != st[2].st_ino);
        CHECK(st[0].st_size < st[2].st_size);
        CHECK_INT(checkpoint_load(path[0], &used.params, NULL, NULL), 0);
        CHECK_INT(checkpoint_load(path[2], &other.params, NULL, NULL), 0);
        for (int p = 0; p < PARAMS; p++) {
            const nn_param *x = &used.list[p];
            CHECK(memcmp(used.params.data + x->offset, other.params.data + x->offset, (size_t)x->count * 4) == 0);
        }
        drop(&m);
        drop(&used);
        drop(&other);
    }
}

/* A file that two checkpoints share is not changed by the next one of either name. */
TEST(a_shared_file_stays_what_it_is_under_its_other_name) {
    model m;
    checkpoint_meta meta = some_meta(), found = {0};
    char one[512], two[512];
    bool resumable;
    if (!make(&m, "adamod")) return;
    snprintf(one, sizeof one, "%s", below("shared-1.safetensors"));
    snprintf(two, sizeof two, "%s", below("shared-2.safetensors"));
    const checkpoint_target both[] = {{one, true}, {two, true}};
    for (int i = 0; i < 2; i++) { /* over nothing, and over names that are linked already */
        CHECK_INT(checkpoint_end(checkpoint_begin(both, 2, &m.params, m.opt, &meta)), 0);
        CHECK_INT(stat_of(one).st_nlink, 2);
        CHECK_INT(stat_of(two).st_ino, stat_of(one).st_ino);
    }
    meta.step = 6;
    CHECK_INT(checkpoint_end(checkpoint_begin(both + 1, 1, &m.params, m.opt, &meta)), 0);
    CHECK_INT(checkpoint_verify(one, &resumable, &found), 0);
    CHECK_INT(found.step, 5);
    CHECK_INT(checkpoint_verify(two, &resumable, &found), 0);
    CHECK_INT(found.step, 6);
    drop(&m);
}

TEST(what_cannot_be_written_beside_training_is_told_at_the_end) {
    model m;
    const checkpoint_meta meta = some_meta();
    char good[512], bad[512];
    if (!make(&m, "adamod")) return;
    snprintf(good, sizeof good, "%s", below("good.safetensors"));
    snprintf(bad, sizeof bad, "%s", below("nowhere/bad.safetensors"));
    checkpoint_writer *w =
        checkpoint_begin((checkpoint_target[]){{bad, true}, {good, true}}, 2, &m.params, m.opt, &meta);
    if (!CHECK(w)) return;
    for (int i = 0; i < 2000 && !checkpoint_has_failed(w); i++) usleep(1000);
    CHECK(checkpoint_has_failed(w));
    CHECK_INT(checkpoint_end(w), ADAMOD_ERROR_IO);
    CHECK_HAS(adamod__last_message(), "nowhere/bad.safetensors: ");
    CHECK_INT(access(good, F_OK), -1); /* nothing is written after a failure */
    w = checkpoint_begin(&(checkpoint_target){good, true}, 1, &m.params, m.opt, &meta);
    CHECK_INT(checkpoint_end(w), 0);
    CHECK_INT(access(good, F_OK), 0);
    drop(&m);
}

TEST(metadata_come_back_exactly) {
    model m;
    OWNED_RECIPE r = {0}, back = {0};
    if (!make(&m, "adamod")) return;
    recipe_defaults(&r, tasks_all);
    recipe_defaults(&back, tasks_all);
    CHECK_INT(recipe_set(&r, "name=\"a\" \\ \xc3\xbc"), 0);
    CHECK_INT(recipe_set(&r, "optimizer.lr=3e-3"), 0);
    checkpoint_meta meta = some_meta(), found = {.recipe = &r};
    meta.recipe = &r;
    CHECK_INT(checkpoint_save(below("m.safetensors"), &m.params, m.opt, &meta), 0);
    if (!CHECK_INT(checkpoint_load(below("m.safetensors"), &m.params, m.opt, &found), 0)) puts(adamod__last_message());
    CHECK_INT(found.step, 5);
    CHECK_INT(found.epoch, 1);
    CHECK_INT(found.batch, 7);
    CHECK_INT(found.samples, 240);
    CHECK_INT(found.tokens, 9000);
    CHECK_INT(found.best_step, 4);
    CHECK_CLOSE(found.seconds, 1.0 / 3, 0);
    CHECK(isnan(found.best));
    CHECK(found.fingerprint == meta.fingerprint);
    CHECK_STR(found.mark, "metrics.jsonl 120");
    CHECK(found.recipe == &r);
    found = (checkpoint_meta){0};
    CHECK_INT(checkpoint_info(below("m.safetensors"), &found, &back), 0);
    CHECK_INT(found.tokens, 9000);
    CHECK(!found.recipe);
    CHECK_STR(back.name, r.name);
    CHECK_STR(back.optimizer.options.at[0].value, "3e-3");
    meta.best = INFINITY;
    CHECK_INT(checkpoint_save(below("m.safetensors"), &m.params, NULL, &meta), 0);
    CHECK_INT(checkpoint_info(below("m.safetensors"), &found, NULL), 0);
    CHECK(isinf(found.best));
    drop(&m);
}

/* Files of versions that did not know of data, nor of what was saved before. */
TEST(what_earlier_versions_did_not_write_is_not_known) {
    const char *path = below("old.safetensors");
    model m;
    checkpoint_meta meta = some_meta(), found = {0};
    adamod__st_file file;
    adamod__st_pair pairs[64];
    size_t n = 0;
    if (!make(&m, "adamod")) return;
    meta.last_step = 4;
    snprintf(meta.data, sizeof meta.data, "data.source 0123456789abcdef");
    CHECK_INT(checkpoint_save(path, &m.params, NULL, &meta), 0);
    CHECK_INT(checkpoint_info(path, &found, NULL), 0);
    CHECK_INT(found.last_step, 4);
    CHECK_STR(found.data, meta.data);
    if (!CHECK_INT(adamod__st_open_within(path, ADAMOD__ST_MAX_HEADER, &file), ADAMOD_OK)) return;
    for (size_t i = 0; i < file.n_metadata && n < 64; i++) {
        const char *key = file.metadata[i].key;
        if (strcmp(key, "last_step") != 0 && strcmp(key, "data") != 0) pairs[n++] = file.metadata[i];
    }
    CHECK_INT(file.n_metadata - n, 2);
    CHECK_INT(adamod__st_write(below("older.safetensors"), pairs, n, NULL, 0), ADAMOD_OK);
    adamod__st_close(&file);
    CHECK_INT(checkpoint_info(below("older.safetensors"), &found, NULL), 0);
    CHECK_INT(found.last_step, -1);
    CHECK_STR(found.data, "");
    drop(&m);
}

TEST(parameters_can_be_loaded_alone) {
    model m;
    if (!make(&m, "adamod")) return;
    train(&m, 0, 3);
    const checkpoint_meta meta = some_meta();
    CHECK_INT(checkpoint_save(below("p.safetensors"), &m.params, m.opt, &meta), 0);
    model other = {0};
    make_params(&other);
    CHECK_INT(checkpoint_load(below("p.safetensors"), &other.params, NULL, NULL), 0);
    CHECK(other.params.data[0] == m.params.data[0] && other.params.data[3] == m.params.data[3]);
    CHECK_INT(checkpoint_save(below("p.safetensors"), &m.params, NULL, &meta), 0);
    CHECK_INT(checkpoint_load(below("p.safetensors"), &other.params, NULL, NULL), 0);
    CHECK_INT(checkpoint_load(below("p.safetensors"), &m.params, m.opt, NULL), -1);
    CHECK_HAS(adamod__last_message(), "p.safetensors: it has only parameters, no optimizer state to resume from");
    drop(&other);
    drop(&m);
}

TEST(the_file_is_plain_safetensors) {
    model m;
    adamod__st_file file;
    if (!make(&m, "adamod")) return;
    train(&m, 0, 2);
    const checkpoint_meta meta = some_meta();
    CHECK_INT(checkpoint_save(below("f.safetensors"), &m.params, m.opt, &meta), 0);
    if (!CHECK_INT(adamod__st_open_within(below("f.safetensors"), ADAMOD__ST_MAX_HEADER, &file), ADAMOD_OK)) return;
    CHECK_INT(file.n_entries, PARAMS * 5);
    CHECK(adamod__st_find(&file, "encoder.0.w") && adamod__st_find(&file, "optimizer/encoder.0.w.exp_avg_lr"));
    CHECK_STR(adamod__st_metadata(&file, "format"), "adamod checkpoint 1");
    CHECK_STR(adamod__st_metadata(&file, "optimizer/rule"), "adamod");
    CHECK_STR(adamod__st_metadata(&file, "optimizer/steps"), "2");
    CHECK_STR(adamod__st_metadata(&file, "best"), "nan");
    adamod__st_close(&file);
    drop(&m);
}

/* ---- what lasts beside the parameters ---- */

/* A model with two persistent states, the first named as a parameter is. */
typedef struct lasting {
    nn_params *params;
    adamod_optimizer *opt;
} lasting;

static bool make_lasting(lasting *m, int64_t units) {
    *m = (lasting){.params = nn_params_create()};
    nn_graph *g = nn_graph_create(m->params);
    const nn_init zeros = {.kind = NN_ZEROS}, ones = {.kind = NN_ONES};
    nn_parameter(g, "w", 2, (int64_t[]){3, 4}, ones);
    nn_persistent(g, "w", 1, &units, zeros);
    nn_scope_push(g, "norm");
    nn_persistent(g, "variance", 2, (int64_t[]){2, 3}, ones);
    nn_scope_pop(g);
    nn_graph_free(g);
    const nn_param *w = nn_params_find(m->params, "w");
    if (!CHECK_INT(nn_params_allocate(m->params, 1), ADAMOD_OK)) return false;
    if (!CHECK_INT(adamod_create(&m->opt, "adamod"), ADAMOD_OK)) return false;
    const nn_param_memory at = nn_params_memory(m->params, w);
    return CHECK_INT(adamod_add(m->opt, w->name, at.data, at.grad, w->ndim, w->shape), ADAMOD_OK);
}

static void drop_lasting(lasting *m) {
    adamod_free(m->opt);
    nn_params_free(m->params);
}

static float *state_of(const lasting *m, const char *name) {
    const nn_param *p = nn_params_find_state(m->params, name);
    return m->params->state_data + p->offset;
}

static void set_states(const lasting *m, float x) {
    for (int i = 0; i < 5; i++) state_of(m, "w")[i] = x / (float)(i + 3);
    for (int i = 0; i < 6; i++) state_of(m, "norm.variance")[i] = x * sinf((float)i);
}

static bool same_states(const lasting *a, const lasting *b) {
    return memcmp(state_of(a, "w"), state_of(b, "w"), 5 * sizeof(float)) == 0 &&
           memcmp(state_of(a, "norm.variance"), state_of(b, "norm.variance"), 6 * sizeof(float)) == 0;
}

TEST(persistent_states_come_back_bit_for_bit) {
    lasting a, b;
    adamod__st_file file;
    const checkpoint_meta meta = some_meta();
    if (!make_lasting(&a, 5) || !make_lasting(&b, 5)) return;
    CHECK(state_of(&a, "w")[4] == 0 && state_of(&a, "norm.variance")[5] == 1);
    set_states(&a, 1.0f / 3);
    CHECK_INT(checkpoint_save(below("s.safetensors"), a.params, a.opt, &meta), 0);
    if (CHECK_INT(adamod__st_open_within(below("s.safetensors"), ADAMOD__ST_MAX_HEADER, &file), ADAMOD_OK)) {
        CHECK(adamod__st_find(&file, "w") && adamod__st_find(&file, "state/w"));
        const adamod__st_entry *e = adamod__st_find(&file, "state/norm.variance");
        CHECK(e && e->ndim == 2 && e->shape[0] == 2 && e->shape[1] == 3);
        CHECK(!adamod__st_find(&file, "optimizer/norm.variance.exp_avg")); /* it is not the optimizer's */
        adamod__st_close(&file);
    }
    CHECK(!same_states(&a, &b));
    if (!CHECK_INT(checkpoint_load(below("s.safetensors"), b.params, b.opt, NULL), 0)) puts(adamod__last_message());
    CHECK(same_states(&a, &b));
    drop_lasting(&a);
    drop_lasting(&b);
}

/* A state carried along a text does not keep others from using the model. */
TEST(who_takes_the_model_alone_needs_no_carried_state) {
    lasting a, b, c;
    const checkpoint_meta meta = some_meta();
    if (!make_lasting(&a, 5) || !make_lasting(&b, 7) || !make_lasting(&c, 5)) return;
    nn_params *const all[] = {a.params, b.params, c.params};
    for (int i = 0; i < 3; i++) nn_params_find_state(all[i], "w")->carried = true;
    set_states(&a, 1.0f / 3);
    CHECK_INT(checkpoint_save(below("s.safetensors"), a.params, a.opt, &meta), 0);
    CHECK_INT(checkpoint_load(below("s.safetensors"), b.params, NULL, NULL), 0);
    CHECK(state_of(&b, "w")[6] == 0 && state_of(&b, "norm.variance")[5] == state_of(&a, "norm.variance")[5]);
    CHECK_INT(checkpoint_load_weights(below("s.safetensors"), b.params, NULL), 0);
    CHECK_INT(checkpoint_load(below("s.safetensors"), c.params, c.opt, NULL), 0); /* goes on */
    CHECK(same_states(&a, &c));
    CHECK_INT(checkpoint_load(below("s.safetensors"), b.params, b.opt, NULL), -1);
    CHECK_HAS(adamod__last_message(), "'state/w' has shape [5], expected [7]");
    drop_lasting(&a);
    drop_lasting(&b);
    drop_lasting(&c);
}

TEST(states_of_another_model_are_refused) {
    lasting a, b;
    const checkpoint_meta meta = some_meta();
    if (!make_lasting(&a, 5) || !make_lasting(&b, 7)) return;
    CHECK_INT(checkpoint_save(below("s.safetensors"), a.params, a.opt, &meta), 0);
    CHECK_INT(checkpoint_load(below("s.safetensors"), b.params, b.opt, NULL), -1);
    CHECK_HAS(adamod__last_message(), "s.safetensors: from another model: 'state/w' has shape [5], expected [7]");
    b.params->n_states = 0; /* a model that only computes may lack them; one that trains on may not */
    CHECK_INT(checkpoint_load(below("s.safetensors"), b.params, NULL, NULL), 0);
    CHECK_INT(checkpoint_load(below("s.safetensors"), b.params, b.opt, NULL), -1);
    CHECK_HAS(adamod__last_message(), "s.safetensors: from another model: this one has no persistent state '");
    CHECK_INT(checkpoint_save(below("without.safetensors"), b.params, b.opt, &meta), 0);
    b.params->n_states = 2;
    CHECK_INT(checkpoint_load(below("without.safetensors"), a.params, NULL, NULL), -1);
    CHECK_HAS(adamod__last_message(), "without.safetensors: from another model: it has no persistent state 'w'");
    drop_lasting(&a);
    drop_lasting(&b);
}

/* Parameters are means; a mean of hidden states means nothing. */
TEST(averages_have_the_states_of_the_last) {
    lasting a, b;
    const checkpoint_meta meta = some_meta();
    if (!make_lasting(&a, 5) || !make_lasting(&b, 5)) return;
    const char *paths[2] = {below("1.safetensors"), below("2.safetensors")};
    for (int i = 0; i < 2; i++) {
        set_states(&a, (float)(i + 1) / 3);
        for (int j = 0; j < 12; j++) a.params->data[j] = (float)(2 * i);
        CHECK_INT(checkpoint_save(paths[i], a.params, a.opt, &meta), 0);
    }
    CHECK_INT(checkpoint_average(paths, 2, below("mean.safetensors")), 0);
    if (!CHECK_INT(checkpoint_load(below("mean.safetensors"), b.params, NULL, NULL), 0)) puts(adamod__last_message());
    CHECK(b.params->data[0] == 1 && b.params->data[11] == 1);
    CHECK(same_states(&a, &b));
    drop_lasting(&a);
    drop_lasting(&b);
}

/* ---- what does not fit ---- */

/* Loads into a model that was trained a little, and sees that a failure leaves it as it was. */
static const char *complaint(const char *path, model *m, const checkpoint_meta *wanted) {
    float data[256];
    void *state = NULL;
    adamod_type type;
    int64_t count = 0;
    checkpoint_meta meta = wanted ? *wanted : (checkpoint_meta){0};
    const checkpoint_meta before = meta;
    float first = 0;
    const int64_t steps = m->opt ? adamod_steps(m->opt) : 0;
    memcpy(data, m->params.data, (size_t)m->params.count * sizeof *data);
    if (m->opt && adamod_state(m->opt, 0, "exp_avg", &state, &type, &count) == ADAMOD_OK) first = *(float *)state;
    if (checkpoint_load(path, &m->params, m->opt, &meta) == 0) return "(none)";
    CHECK(memcmp(data, m->params.data, (size_t)m->params.count * sizeof *data) == 0);
    CHECK(memcmp(&meta, &before, sizeof meta) == 0);
    if (state) CHECK(*(float *)state == first && adamod_steps(m->opt) == steps);
    CHECK(!strncmp(adamod__last_message(), path, strlen(path)) && !strpbrk(adamod__last_message(), "\n\r\033"));
    return adamod__last_message() + strlen(path);
}

TEST(a_checkpoint_of_another_model_or_rule_is_refused) {
    model saved, m;
    const checkpoint_meta meta = some_meta();
    if (!make(&saved, "adamod") || !make(&m, "adamod")) return;
    train(&saved, 0, 3);
    train(&m, 0, 1);
    CHECK_INT(checkpoint_save(below("o.safetensors"), &saved.params, saved.opt, &meta), 0);
    const char *path = below("o.safetensors");
    m.list[0].name = "decoder.0.w";
    CHECK_STR(complaint(path, &m, NULL), ": from another model: it has no parameter 'decoder.0.w'");
    m.list[0].name = "encoder.0.w";
    m.list[0].shape[0] = 7, m.list[0].shape[1] = 5;
    CHECK_STR(complaint(path, &m, NULL), ": from another model: 'encoder.0.w' has shape [5, 7], expected [7, 5]");
    m.list[0].shape[0] = 5, m.list[0].shape[1] = 7;
    m.params.n = 2;
    CHECK_STR(complaint(path, &m, NULL), ": from another model: this one has no parameter 'scale'");
    m.params.n = PARAMS;
    CHECK_STR(complaint(path, &m, NULL), "(none)");
    drop(&m);
    if (!make(&m, "adam")) return;
    train(&m, 0, 1);
    CHECK_STR(complaint(path, &m, NULL), ": state of rule 'adamod', expected 'adam'");
    drop(&m);
    if (!make(&m, "adamod")) return;
    train(&m, 0, 1);
    CHECK_INT(adamod_add(m.opt, "more", (float[4]){0}, (float[4]){0}, 1, (int64_t[]){4}), ADAMOD_OK);
    CHECK_STR(complaint(path, &m, NULL),
              ": 12 tensors, expected 16 for 4 parameters; it has no 'optimizer/more.exp_avg'");
    drop(&m);
    drop(&saved);
}

TEST(a_checkpoint_of_another_recipe_or_vocabulary_is_refused) {
    model m;
    OWNED_RECIPE r = {0}, other = {0};
    if (!make(&m, "adamod")) return;
    train(&m, 0, 1);
    recipe_defaults(&r, tasks_all);
    checkpoint_meta meta = some_meta();
    meta.recipe = &r;
    CHECK_INT(checkpoint_save(below("r.safetensors"), &m.params, m.opt, &meta), 0);
    const char *path = below("r.safetensors");
    CHECK_INT(recipe_copy(&other, &r), 0);
    CHECK_INT(recipe_set(&other, "train.steps=7"), 0);
    CHECK_STR(complaint(path, &m, &(checkpoint_meta){.recipe = &other}), "(none)");
    CHECK_INT(recipe_set(&other, "optimizer.beta3=0.5"), 0);
    CHECK_STR(complaint(path, &m, &(checkpoint_meta){.recipe = &other}),
              ": made with another recipe: optimizer.beta3 is 0.5, but was 0.999");
    CHECK_STR(
        complaint(path, &m, &(checkpoint_meta){.fingerprint = 1}),
        ": made with another vocabulary or other classes: its fingerprint is fedcba9876543210, expected 0000000000000001");
    meta.recipe = NULL;
    CHECK_INT(checkpoint_save(path, &m.params, m.opt, &meta), 0);
    CHECK_STR(complaint(path, &m, &(checkpoint_meta){.recipe = &other}), ": it contains no recipe");
    drop(&m);
}

/* Fine-tuning: what begins anew needs neither the shape nor the meaning that the file has. */
TEST(weights_that_are_skipped_stay_as_they_are) {
    const char *path = below("w.safetensors");
    model m, other;
    const checkpoint_meta meta = some_meta();
    checkpoint_weights how = {
        .fingerprint = 1, .meaning = "encoder.0.b", .other = "other classes", .way_out = "do this"};
    if (!make(&m, "adamod") || !make(&other, "adamod")) return;
    other.list[1].shape[0] = other.list[1].count = 4;
    for (int64_t i = 0; i < other.params.count; i++) other.params.data[i] = 0.125f;
    CHECK_INT(checkpoint_save(path, &m.params, m.opt, &meta), 0);
    CHECK_INT(checkpoint_load_weights(path, &other.params, &how), -1);
    CHECK_HAS(adamod__last_message(), "w.safetensors: made with other classes; do this");
    how.skip = "*.w"; /* not what the meaning is of */
    CHECK_INT(checkpoint_load_weights(path, &other.params, &how), -1);
    CHECK(other.params.data[0] == 0.125f);
    how.skip = "none,*.b";
    if (!CHECK_INT(checkpoint_load_weights(path, &other.params, &how), 0)) puts(adamod__last_message());
    CHECK(memcmp(other.params.data, m.params.data, 35 * sizeof(float)) == 0);
    CHECK(other.params.data[other.list[2].offset] == m.params.data[m.list[2].offset]);
    for (int i = 0; i < 4; i++) CHECK(other.params.data[other.list[1].offset + i] == 0.125f);
    m.params.n = 1; /* a file that lacks them is as good */
    CHECK_INT(checkpoint_save(path, &m.params, NULL, &meta), 0);
    CHECK_INT(checkpoint_load_weights(path, &other.params, &how), -1);
    CHECK_HAS(adamod__last_message(), "it has no parameter 'scale'");
    how.skip = "*.b,scale";
    CHECK_INT(checkpoint_load_weights(path, &other.params, &how), 0);
    drop(&m);
    drop(&other);
}

/* A file that is no checkpoint says nothing of its meaning; its shapes do. */
TEST(a_shape_of_another_meaning_gets_the_way_out) {
    const char *path = below("plain.safetensors");
    static const float numbers[35];
    const adamod__st_tensor all[] = {
        {.name = "encoder.0.w", .dtype = ADAMOD__ST_F32, .ndim = 2, .shape = {5, 7}, .data = numbers},
        {.name = "encoder.0.b", .dtype = ADAMOD__ST_F32, .ndim = 1, .shape = {3}, .data = numbers},
        {.name = "scale", .dtype = ADAMOD__ST_F32, .data = numbers}};
    const checkpoint_weights how = {.meaning = "*.b", .other = "other classes", .way_out = "do this"};
    model m;
    if (!make(&m, "adamod")) return;
    CHECK_INT(adamod__st_write(path, NULL, 0, all, 3), 0);
    CHECK_INT(checkpoint_load_weights(path, &m.params, &how), -1);
    CHECK_HAS(adamod__last_message(), "from another model: 'encoder.0.b' has shape [3], expected [5]; do this");
    drop(&m);
}

TEST(files_that_are_no_checkpoints_are_refused) {
    model m;
    adamod__st_tensor none = {0};
    const adamod__st_pair strange[] = {{"format", "pt"}};
    if (!make(&m, "adamod")) return;
    train(&m, 0, 1);
    CHECK_STR(complaint(below("missing.safetensors"), &m, NULL), ": cannot open: No such file or directory");
    CHECK_INT(adamod__st_write(below("s.safetensors"), strange, 1, &none, 0), ADAMOD_OK);
    CHECK_STR(complaint(below("s.safetensors"), &m, NULL),
              ": not a checkpoint: its format is 'pt', expected 'adamod checkpoint 1'");
    CHECK_INT(adamod_save(m.opt, below("s.safetensors")), ADAMOD_OK);
    CHECK_STR(complaint(below("s.safetensors"), &m, NULL),
              ": not a checkpoint: its format is 'adamod optimizer state 1', expected 'adamod checkpoint 1'");
    const adamod__st_pair newer[] = {{"format", "adamod checkpoint 2"}};
    CHECK_INT(adamod__st_write(below("s.safetensors"), newer, 1, &none, 0), ADAMOD_OK);
    CHECK_STR(complaint(below("s.safetensors"), &m, NULL),
              ": a newer version's checkpoint: its format is 'adamod checkpoint 2', expected 'adamod checkpoint 1'");
    CHECK_INT(checkpoint_load_weights(below("s.safetensors"), &m.params, NULL), -1); /* not like any safetensors file */
    CHECK_HAS(adamod__last_message(), "its format is 'adamod checkpoint 2', expected 'adamod checkpoint 1'");
    const adamod__st_pair broken[] = {{"format", "adamod checkpoint 1"}, {"step", "-5"}};
    CHECK_INT(adamod__st_write(below("s.safetensors"), broken, 2, &none, 0), ADAMOD_OK);
    CHECK_STR(complaint(below("s.safetensors"), &m, NULL), ": its metadata say step is '-5', expected a number");
    drop(&m);
}

TEST(a_truncated_checkpoint_changes_nothing_wherever_it_ends) {
    model m;
    const checkpoint_meta meta = some_meta();
    if (!make(&m, "adamod")) return;
    train(&m, 0, 2);
    CHECK_INT(checkpoint_save(below("t.safetensors"), &m.params, m.opt, &meta), 0);
    train(&m, 2, 4);
    const int64_t size = copy_bytes(below("t.safetensors"), below("cut.safetensors"), -1);
    CHECK(size > 1000);
    for (int64_t n = 0; n < size; n += n < 64 || size - n < 64 ? 1 : 37) {
        copy_bytes(below("t.safetensors"), below("cut.safetensors"), n);
        if (!CHECK(strcmp(complaint(below("cut.safetensors"), &m, NULL), "(none)") != 0)) break;
    }
    CHECK_STR(complaint(below("t.safetensors"), &m, NULL), "(none)");
    drop(&m);
}

TEST(names_that_would_be_taken_for_the_optimizers_are_refused) {
    model m;
    const checkpoint_meta meta = some_meta();
    if (!make(&m, "adamod")) return;
    m.list[1].name = "optimizer/x";
    CHECK_INT(checkpoint_save(below("n.safetensors"), &m.params, m.opt, &meta), -1);
    CHECK_HAS(adamod__last_message(), "a parameter is called 'optimizer/x', a name reserved for the optimizer");
    m.list[1].name = "state/x";
    CHECK_INT(checkpoint_save(below("n.safetensors"), &m.params, m.opt, &meta), -1);
    CHECK_HAS(adamod__last_message(), "a parameter is called 'state/x', a name reserved for persistent states");
    CHECK(!exists(below("n.safetensors")));
    drop(&m);
}

/* ---- the last good one survives ---- */

/* Saves a checkpoint that there is room for, then one that there is not; what is said of it. */
static const char *save_two(const char *path, const char *(*shrink)(void)) {
    model m, again;
    const checkpoint_meta first = {.step = 1}, second = {.step = 2};
    checkpoint_meta found = {0};
    if (!make(&m, "adamod") || !make(&again, "adamod")) return "no model";
    train(&m, 0, 1);
    if (checkpoint_save(path, &m.params, m.opt, &first)) return adamod__last_message();
    const char *problem = shrink();
    if (problem) return problem;
    if (checkpoint_save(path, &m.params, m.opt, &second) == 0) return "it was saved";
    static char said[1024];
    char temp[300];
    snprintf(said, sizeof said, "%s", adamod__last_message());
    snprintf(temp, sizeof temp, "%.*s/.adamod-0.tmp", (int)(strrchr(path, '/') - path), path);
    if (exists(temp)) return "a temporary file is left";
    if (checkpoint_load(path, &again.params, again.opt, &found)) return "the old one is gone";
    drop(&again);
    drop(&m);
    return found.step == 1 ? said : "the old one changed";
}

static const char *make_files_small(void) { return limit_files(1500) ? NULL : "skip"; }

static const char *save_with_a_limit(void) { return save_two(below("limit.safetensors"), make_files_small); }

TEST(a_save_that_fails_leaves_the_last_one) {
    const char *told = in_child(save_with_a_limit);
    if (!CHECK(told)) return;
    if (strcmp(told, "skip") == 0) SKIP("no limit for files");
    CHECK_HAS(told, "limit.safetensors: cannot write: File too large");
}

static const char *fill_disk(void) {
    static const char block[4096];
    FILE *file = fopen(below("disk/block"), "wb");
    while (file && fwrite(block, 1, sizeof block, file) == sizeof block && fflush(file) == 0) {}
    if (file) fclose(file);
    return NULL;
}

static const char *save_on_a_full_disk(void) {
    if (!mount_small_disk(below("disk"), "64k")) return "skip";
    return save_two(below("disk/last.safetensors"), fill_disk);
}

TEST(a_full_disk_leaves_the_last_one) {
    mkdir(below("disk"), 0777);
    const char *told = in_child(save_on_a_full_disk);
    if (!CHECK(told)) return;
    if (strcmp(told, "skip") == 0) SKIP("cannot mount a small disk");
    CHECK_HAS(told, "disk/last.safetensors: ");
    CHECK_HAS(told, "No space left on device");
}

TEST(a_crash_while_saving_leaves_the_last_one) {
    model m, again;
    mkdir(below("crash"), 0777);
    const char *path = below("crash/last.safetensors");
    checkpoint_meta meta = some_meta();
    if (!make(&m, "adamod") || !make(&again, "adamod")) return;
    train(&m, 0, 1);
    CHECK_INT(checkpoint_save(path, &m.params, m.opt, &meta), 0);
    for (int i = 0; i < 10; i++) {
        fflush(stdout);
        const pid_t child = fork();
        if (child == 0) {
            alarm(60); /* in case the parent dies */
            for (meta.step = 1000;; meta.step++) (void)checkpoint_save(path, &m.params, m.opt, &meta);
        }
        usleep(3000 + 1711 * (useconds_t)i);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        if (!CHECK_INT(checkpoint_load(path, &again.params, again.opt, &meta), 0)) puts(adamod__last_message());
    }
    CHECK_INT(checkpoint_prune(below("crash"), 1, NULL, NULL), 0);
    char command[300];
    snprintf(command, sizeof command, "ls -A %s | grep -q tmp", below("crash"));
    CHECK(system(command) != 0);
    drop(&again);
    drop(&m);
}

/* ---- damage ---- */

static void flip(const char *path, int64_t bit) {
    const int fd = open(path, O_RDWR);
    unsigned char byte = 0;
    if (pread(fd, &byte, 1, bit / 8) != 1) abort();
    byte ^= (unsigned char)(1u << bit % 8);
    if (pwrite(fd, &byte, 1, bit / 8) != 1) abort();
    close(fd);
}

/* A checkpoint with any bit changed is refused, for resuming and for use, even if the damage is in the optimizer's
 * state and the parameters are right. */
TEST(a_damaged_checkpoint_is_refused) {
    const char *path = below("damaged.safetensors");
    model m, other;
    const checkpoint_meta meta = some_meta();
    if (!make(&m, "adamod") || !make(&other, "adamod")) return;
    train(&m, 0, 3);
    const float untouched = 0.125f;
    int64_t changed = 0;
    bool resumable;
    for (int64_t i = 0; i < other.params.count; i++) other.params.data[i] = untouched;
    CHECK_INT(checkpoint_save(path, &m.params, m.opt, &meta), 0);
    struct stat st;
    if (!CHECK_INT(stat(path, &st), 0)) return;
    for (int64_t bit = 0; bit < 8 * (int64_t)st.st_size && check_failures < 10; bit += 5) { /* of every byte some */
        checkpoint_meta found = {0};
        flip(path, bit);
        adamod__fail(ADAMOD_OK, "%s", "");
        const int resumed = checkpoint_load(path, &other.params, other.opt, &found);
        if (!CHECK_INT(resumed, -1) ||
            !CHECK(strncmp(adamod__last_message(), path, strlen(path)) == 0 && !strchr(adamod__last_message(), '\n')))
            printf("  bit %lld: %s\n", (long long)bit, adamod__last_message());
        CHECK_INT(checkpoint_load(path, &other.params, NULL, &found), -1);
        CHECK_INT(checkpoint_load_weights(path, &other.params, NULL), -1);
        CHECK_INT(checkpoint_load_weights(path, &other.params, &(checkpoint_weights){.skip = "*"}), -1);
        CHECK_INT(checkpoint_verify(path, &resumable, &found), -1);
        for (int64_t i = 0; i < other.params.count; i++) changed += other.params.data[i] != untouched;
        flip(path, bit);
    }
    CHECK_INT(changed, 0);
    CHECK_INT(checkpoint_verify(path, &resumable, &(checkpoint_meta){0}), 0);
    CHECK(resumable);
    CHECK_INT(checkpoint_load(path, &other.params, other.opt, NULL), 0);
    drop(&m);
    drop(&other);
}

TEST(a_file_with_a_huge_header_is_refused_before_memory_is_taken) {
    const char *path = below("huge.safetensors");
    checkpoint_meta found = {0};
    struct rusage before, after;
    FILE *file = fopen(path, "wb");
    CHECK(file && fwrite("\xc0\x83\x2f\x05\0\0\0\0{", 1, 9, file) == 9 && fclose(file) == 0);
    CHECK_INT(truncate(path, 8 + 87000000), 0);
    getrusage(RUSAGE_SELF, &before);
    CHECK_INT(checkpoint_info(path, &found, NULL), -1);
    getrusage(RUSAGE_SELF, &after);
    CHECK_HAS(adamod__last_message(), "huge.safetensors: header length 87000000 exceeds the limit of 50331648 bytes");
    CHECK(after.ru_maxrss - before.ru_maxrss < 8192); /* kilobytes */
}

/* ---- averages ---- */

TEST(averages_are_means_in_double_precision) {
    model m;
    checkpoint_meta meta = some_meta(), found = {0};
    if (!make(&m, "adamod")) return;
    const char *paths[3] = {below("1.safetensors"), below("2.safetensors"), below("3.safetensors")};
    const float values[3] = {16777216.0f, 1.0f, 1.0f}; /* whose sum no float holds */
    for (int i = 0; i < 3; i++) {
        for (int64_t j = 0; j < m.params.count; j++) m.params.data[j] = values[i] + (float)(i ? 0 : 2 * j);
        meta.step = i + 1;
        CHECK_INT(checkpoint_save(paths[i], &m.params, i == 1 ? NULL : m.opt, &meta), 0);
    }
    if (!CHECK_INT(checkpoint_average(paths, 3, below("mean.safetensors")), 0)) puts(adamod__last_message());
    CHECK_INT(checkpoint_load(below("mean.safetensors"), &m.params, NULL, &found), 0);
    CHECK_INT(found.step, 3);
    for (int p = 0; p < PARAMS; p++) {
        for (int64_t j = m.list[p].offset; j < m.list[p].offset + m.list[p].count; j++) {
            const float expected = (float)((16777216.0 + 2 * (double)j + 2) / 3);
            CHECK(m.params.data[j] == expected);
        }
    }
    CHECK_INT(checkpoint_load(below("mean.safetensors"), &m.params, m.opt, NULL), -1);
    CHECK_HAS(adamod__last_message(), "it has only parameters");
    drop(&m);
}

TEST(averages_are_of_the_weights_to_evaluate_with) {
    model m;
    checkpoint_meta meta = some_meta();
    if (!make(&m, "schedulefree_sgd")) return;
    const char *paths[2] = {below("1.safetensors"), below("1.safetensors")};
    for (int64_t j = 0; j < m.params.count; j++) m.params.data[j] = (float)j, m.params.grad[j] = 1;
    for (int i = 0; i < 3; i++) CHECK_INT(adamod_step(m.opt), ADAMOD_OK);
    const float trained = m.params.data[0];
    CHECK_INT(checkpoint_save(paths[0], &m.params, m.opt, &meta), 0);
    CHECK_INT(checkpoint_load(paths[0], &m.params, NULL, NULL), 0);
    const float expected = m.params.data[0];
    CHECK(expected != trained);
    CHECK_INT(checkpoint_average(paths, 2, below("mean.safetensors")), 0);
    if (!CHECK_INT(checkpoint_load(below("mean.safetensors"), &m.params, NULL, NULL), 0)) puts(adamod__last_message());
    CHECK(m.params.data[0] == expected);
    drop(&m);
}

TEST(checkpoints_of_different_models_have_no_average) {
    model m;
    const checkpoint_meta meta = some_meta();
    if (!make(&m, "adamod")) return;
    const char *paths[2] = {below("x.safetensors"), below("y.safetensors")};
    CHECK_INT(checkpoint_save(paths[0], &m.params, NULL, &meta), 0);
    m.params.n = 2;
    CHECK_INT(checkpoint_save(paths[1], &m.params, NULL, &meta), 0);
    CHECK_INT(checkpoint_average(paths, 2, below("none.safetensors")), -1);
    CHECK_HAS(adamod__last_message(), "x.safetensors: its parameters differ from those of ");
    CHECK_INT(checkpoint_average(paths, 0, below("none.safetensors")), -1);
    CHECK_HAS(adamod__last_message(), "none.safetensors: no checkpoints to average");
    paths[1] = below("missing.safetensors");
    CHECK_INT(checkpoint_average(paths, 2, below("none.safetensors")), -1);
    CHECK_HAS(adamod__last_message(), "missing.safetensors: ");
    CHECK(!exists(below("none.safetensors")));
    drop(&m);
}

/* ---- the directory ---- */

static bool is_even(const void *context, int64_t step) { return context && step % 2 == 0; }

TEST(steps_to_be_kept_are_not_deleted_and_later_ones_are) {
    int64_t *steps = NULL;
    size_t n = 0;
    char path[300];
    CHECK_INT(mkdir(below("kept"), 0777), 0);
    for (int64_t i = 1; i <= 6; i++) {
        CHECK(checkpoint_path(below("kept"), i, path, sizeof path));
        FILE *file = fopen(path, "w");
        if (file) fclose(file);
    }
    CHECK_INT(checkpoint_prune(below("kept"), 2, is_even, path), 0);
    CHECK_INT(checkpoint_list(below("kept"), &steps, &n), 0);
    CHECK(n == 4 && steps[0] == 6 && steps[1] == 5 && steps[2] == 4 && steps[3] == 2);
    free(steps);
    CHECK_INT(checkpoint_drop_after(below("kept"), 4), 0);
    CHECK_INT(checkpoint_list(below("kept"), &steps, &n), 0);
    CHECK(n == 2 && steps[0] == 4 && steps[1] == 2);
    free(steps);
}

TEST(old_steps_are_deleted_and_nothing_else) {
    static const char *const names[] = {
        "step-1.safetensors",  "step-20.safetensors",  "step-100.safetensors", "step-3.safetensors",
        "last.safetensors",    "step-x.safetensors",   "step-07.safetensors",  "step-5.safetensors.backup",
        "step--5.safetensors", "x.safetensors.tmp.77", "notes.tmp.1"};
    int64_t *steps = NULL;
    size_t n = 0;
    char path[300], name[64];
    mkdir(below("steps"), 0777);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(name, sizeof name, "steps/%s", names[i]);
        FILE *file = fopen(below("%s", name), "wb");
        if (file) fclose(file);
    }
    CHECK_INT(checkpoint_list(below("steps"), &steps, &n), 0);
    if (CHECK_INT(n, 4)) CHECK(steps[0] == 100 && steps[1] == 20 && steps[2] == 3 && steps[3] == 1);
    free(steps);
    CHECK(checkpoint_path(below("steps"), 20, path, sizeof path) && exists(path));
    CHECK(!checkpoint_path(below("steps"), 20, path, 10));
    CHECK_INT(checkpoint_prune(below("steps"), 2, NULL, NULL), 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(name, sizeof name, "steps/%s", names[i]);
        CHECK_INT(exists(below("%s", name)), i != 0 && i != 3 && i != 9);
    }
    CHECK_INT(checkpoint_list(below("nowhere"), &steps, &n), ADAMOD_ERROR_IO);
    CHECK_HAS(adamod__last_message(), "nowhere: No such file or directory");
}

TEST(hashes_tell_contents_apart) {
    const uint64_t a = fingerprint_names(FINGERPRINT_NAMES, "ab", 2);
    CHECK(a == fingerprint_names(fingerprint_names(FINGERPRINT_NAMES, "a", 1), "b", 1));
    CHECK(a != fingerprint_names(FINGERPRINT_NAMES, "ba", 2));
    CHECK(fingerprint_names(FINGERPRINT_NAMES, "a", 1) == UINT64_C(0xaf63dc4c8601ec8c)); /* FNV's own example */
}

RUN_TESTS(ENTRY(training_goes_on_from_a_checkpoint_with_every_rule),
          ENTRY(what_is_written_beside_training_is_what_was_there_when_it_began),
          ENTRY(checkpoints_that_are_equal_share_a_file_and_those_for_use_have_no_states),
          ENTRY(a_shared_file_stays_what_it_is_under_its_other_name),
          ENTRY(what_cannot_be_written_beside_training_is_told_at_the_end), ENTRY(metadata_come_back_exactly),
          ENTRY(what_earlier_versions_did_not_write_is_not_known), ENTRY(parameters_can_be_loaded_alone),
          ENTRY(the_file_is_plain_safetensors), ENTRY(persistent_states_come_back_bit_for_bit),
          ENTRY(who_takes_the_model_alone_needs_no_carried_state), ENTRY(states_of_another_model_are_refused),
          ENTRY(averages_have_the_states_of_the_last), ENTRY(a_checkpoint_of_another_model_or_rule_is_refused),
          ENTRY(a_checkpoint_of_another_recipe_or_vocabulary_is_refused),
          ENTRY(weights_that_are_skipped_stay_as_they_are), ENTRY(a_shape_of_another_meaning_gets_the_way_out),
          ENTRY(files_that_are_no_checkpoints_are_refused),
          ENTRY(a_truncated_checkpoint_changes_nothing_wherever_it_ends),
          ENTRY(names_that_would_be_taken_for_the_optimizers_are_refused), ENTRY(a_save_that_fails_leaves_the_last_one),
          ENTRY(a_full_disk_leaves_the_last_one), ENTRY(a_crash_while_saving_leaves_the_last_one),
          ENTRY(a_damaged_checkpoint_is_refused), ENTRY(a_file_with_a_huge_header_is_refused_before_memory_is_taken),
          ENTRY(averages_are_means_in_double_precision), ENTRY(averages_are_of_the_weights_to_evaluate_with),
          ENTRY(checkpoints_of_different_models_have_no_average),
          ENTRY(steps_to_be_kept_are_not_deleted_and_later_ones_are), ENTRY(old_steps_are_deleted_and_nothing_else),
          ENTRY(hashes_tell_contents_apart))
