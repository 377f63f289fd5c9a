#include "train/checkpoint_parts.h"

#include "core/error.h"
#include "core/file.h"
#include "support/json.h"
#include "optim/optim.h"
#include "core/safetensors.h"
#include "core/thread.h"
#include "support/text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char format[] = "adamod checkpoint 1";
enum { FORMAT_NAME = sizeof format - 2 }; /* bytes before the number */
static const char optimizer_part[] = "optimizer/", state_part[] = "state/";
const char checkpoint_evaluation_key[] = "evaluation";

int checkpoint_fail_memory(const char *path) { return adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", path); }

bool checkpoint_is_optimizers(const char *name) { return strncmp(name, optimizer_part, strlen(optimizer_part)) == 0; }
bool checkpoint_is_state(const char *name) { return strncmp(name, state_part, strlen(state_part)) == 0; }
bool checkpoint_is_param(const char *name) { return !checkpoint_is_optimizers(name) && !checkpoint_is_state(name); }

/* ---- Metadata ---------------------------------------------------------------------------------------------------- */

/* The numbers of a checkpoint_meta, by the names they have in a file. */
typedef struct number {
    const char *name;
    enum { INTEGER, REAL, HASH } kind;
    size_t offset;
    const char *missing; /* value for files of earlier versions that lack it; NULL: required */
} number;

static const number numbers[] = {
    {"step", INTEGER, offsetof(checkpoint_meta, step), NULL},
    {"epoch", INTEGER, offsetof(checkpoint_meta, epoch), NULL},
    {"batch", INTEGER, offsetof(checkpoint_meta, batch), NULL},
    {"samples", INTEGER, offsetof(checkpoint_meta, samples), NULL},
    {"tokens", INTEGER, offsetof(checkpoint_meta, tokens), NULL},
    {"seconds", REAL, offsetof(checkpoint_meta, seconds), NULL},
    {"best", REAL, offsetof(checkpoint_meta, best), NULL},
    {"best_step", INTEGER, offsetof(checkpoint_meta, best_step), NULL},
    {"fingerprint", HASH, offsetof(checkpoint_meta, fingerprint), NULL},
    {"stale", INTEGER, offsetof(checkpoint_meta, stale), "0"},
    {"last_step", INTEGER, offsetof(checkpoint_meta, last_step), "-1"},
    {"replaces", HASH, offsetof(checkpoint_meta, replaces), "0"},
};
enum { NUMBERS = sizeof numbers / sizeof *numbers, PAIRS = NUMBERS + 6 };

static const char *number_text(const checkpoint_meta *meta, const number *x, char out[32]) {
    const void *field = (const char *)meta + x->offset;
    double real;
    uint64_t bits;
    memcpy(&real, field, sizeof real);
    memcpy(&bits, field, sizeof bits);
    if (x->kind == REAL)
        return isfinite(real) ? json_shortest(real, out) : isnan(real) ? "nan" : real > 0 ? "inf" : "-inf";
    if (x->kind == HASH) snprintf(out, 32, "%016" PRIx64, bits);
    else snprintf(out, 32, "%" PRId64, (int64_t)bits);
    return out;
}

static bool parse_number(const char *text, const number *x, checkpoint_meta *meta) {
    void *field = (char *)meta + x->offset;
    char *end = NULL;
    if (!text || !*text) return false;
    errno = 0;
    if (x->kind == REAL) {
        const double real = strtod(text, &end);
        memcpy(field, &real, sizeof real);
        return !*end; /* denormals set errno, but are valid */
    }
    const uint64_t bits = x->kind == HASH ? strtoull(text, &end, 16) : (uint64_t)strtoll(text, &end, 10);
    memcpy(field, &bits, sizeof bits);
    return !*end && !errno && (x->kind == HASH || (int64_t)bits >= 0 || text == x->missing);
}

/* The recipe as YAML, to be freed; NULL: no memory. */
static char *recipe_text(const recipe *r) {
    char *text = NULL;
    size_t n = 0;
    FILE *file = open_memstream(&text, &n);
    if (!file) return NULL;
    const int status = recipe_write(r, file);
    if (fclose(file) == 0 && status == 0) return text;
    free(text);
    return NULL;
}

/* A checkpoint to write. */
typedef struct outgoing {
    adamod__st_tensor *tensors;
    size_t n;
    adamod__st_pair pairs[PAIRS + ADAMOD__STATE_PAIRS];
    size_t n_pairs;
    char number[NUMBERS][32];
    char evaluation[32];
    char *recipe;
    char (*state_names)[256]; /* of the model's persistent states */
    adamod__state_list states;
    void *copy; /* of tensors' data; NULL: the data are the caller's */
    /* For files without the optimizer: the number of pairs, and tensors with the weights for evaluation. n_used 0: these
     * cannot be computed. */
    size_t n_used, n_used_pairs;
    adamod__st_tensor *used;
    float *used_data;
} outgoing;

static void free_outgoing(outgoing *out) {
    free(out->tensors);
    free(out->recipe);
    free(out->state_names);
    adamod__state_list_free(&out->states);
    free(out->copy);
    free(out->used);
    free(out->used_data);
}

static void add_pair(outgoing *out, const char *key, const char *value) {
    out->pairs[out->n_pairs++] = (adamod__st_pair){key, value};
}

static int list_metadata(outgoing *out, const checkpoint_meta *meta, const char *path) {
    add_pair(out, "format", format);
    add_pair(out, "version", adamod_version_string());
    for (int i = 0; i < NUMBERS; i++) add_pair(out, numbers[i].name, number_text(meta, &numbers[i], out->number[i]));
    if (*meta->mark) add_pair(out, "mark", meta->mark);
    if (*meta->data) add_pair(out, "data", meta->data);
    if (!meta->recipe) return 0;
    if (!(out->recipe = recipe_text(meta->recipe))) return checkpoint_fail_memory(path);
    add_pair(out, "recipe", out->recipe);
    return 0;
}

/* ---- Saving ------------------------------------------------------------------------------------------------------ */

/* Name of a persistent state in a file; false: it is too long. */
static bool state_name(const nn_param *p, char out[256]) {
    return snprintf(out, 256, "%s%s", state_part, p->name) < 256;
}

static void add_tensor(outgoing *out, const char *name, const nn_param *p, float *data) {
    adamod__st_tensor *t = &out->tensors[out->n++];
    *t = (adamod__st_tensor){.name = name, .dtype = ADAMOD__ST_F32, .ndim = p->ndim, .data = data + p->offset};
    memcpy(t->shape, p->shape, (size_t)p->ndim * sizeof *t->shape);
}

static int list_params(outgoing *out, const nn_params *params, const char *path) {
    if (!params->data) return adamod__refuse("%s: the parameters have no memory yet", path);
    for (int i = 0; i < params->n; i++) {
        const nn_param *p = &params->list[i];
        if (!checkpoint_is_param(p->name)) {
            return adamod__refuse("%s: a parameter is called '%s', a name reserved for %s", path, p->name,
                                  checkpoint_is_state(p->name) ? "persistent states" : "the optimizer");
        }
        add_tensor(out, p->name, p, params->data);
    }
    return 0;
}

static int list_states(outgoing *out, const nn_params *params, const char *path) {
    out->state_names = calloc((size_t)params->n_states + 1, sizeof *out->state_names);
    if (!out->state_names) return checkpoint_fail_memory(path);
    for (int i = 0; i < params->n_states; i++) {
        const nn_param *p = &params->states[i];
        if (!state_name(p, out->state_names[i])) {
            return adamod__refuse("%s: the name of the state '%.80s' is too long", path, p->name);
        }
        add_tensor(out, out->state_names[i], p, params->state_data);
    }
    return 0;
}

static int list_all(outgoing *out, const nn_params *params, const adamod_optimizer *optimizer,
                    const checkpoint_meta *meta, const char *path) {
    if (optimizer && adamod__state_list_make(optimizer, optimizer_part, &out->states)) return -1;
    out->tensors = calloc((size_t)(params->n + params->n_states) + out->states.n + 1, sizeof *out->tensors);
    if (!out->tensors) return checkpoint_fail_memory(path);
    if (list_params(out, params, path) || list_states(out, params, path) || list_metadata(out, meta, path)) return -1;
    out->n_used = out->n;
    out->n_used_pairs = out->n_pairs;
    if (!optimizer) return 0;
    const double weight = adamod__evaluation_weight(optimizer);
    snprintf(out->evaluation, sizeof out->evaluation, "%.17g", weight);
    if (weight != 0) add_pair(out, checkpoint_evaluation_key, out->evaluation);
    memcpy(out->tensors + out->n, out->states.tensors, out->states.n * sizeof *out->tensors);
    out->n += out->states.n;
    for (int i = 0; i < ADAMOD__STATE_PAIRS; i++) out->pairs[out->n_pairs++] = out->states.metadata[i];
    return 0;
}

int checkpoint_save(const char *path, const nn_params *params, const adamod_optimizer *optimizer,
                    const checkpoint_meta *meta) {
    outgoing out = {0};
    int status = nn_params_fetch(params) ? -1 : list_all(&out, params, optimizer, meta, path);
    if (!status && adamod__st_write(path, out.pairs, out.n_pairs, out.tensors, out.n)) status = -1;
    free_outgoing(&out);
    return status;
}

/* ---- Saving beside training -------------------------------------------------------------------------------------- */

#define MOST_COPIED ((uint64_t)1 << 30)

typedef struct place {
    char *path;
    bool states;
} place;

struct checkpoint_writer {
    checkpoint_meta meta;
    outgoing out;
    place *places;
    int n;
    pthread_t thread;
    bool beside; /* the thread was started */
    atomic_bool failed;
    adamod__failure failure;
};

/* Whether tensor i is still the caller's memory. States from a device are copies, except counts of steps. */
static bool is_callers(const outgoing *out, size_t i) {
    return i < out->n - out->states.n || !out->states.copies || out->tensors[i].dtype == ADAMOD__ST_I64;
}

/* Copies the caller's tensors. False: they are too large, or there is no memory. */
static bool copy_tensors(outgoing *out) {
    uint64_t sum = 0, bytes = 0;
    for (size_t i = 0; i < out->n; i++) {
        const adamod__st_tensor *t = &out->tensors[i];
        if (!is_callers(out, i)) continue;
        if (adamod__st_tensor_bytes(t->dtype, t->ndim, t->shape, &bytes)) return false;
        sum += bytes;
    }
    if (sum > MOST_COPIED || !(out->copy = malloc(sum + 1))) return false;
    for (size_t i = 0, at = 0; i < out->n; i++) {
        adamod__st_tensor *t = &out->tensors[i];
        if (!is_callers(out, i)) continue;
        (void)adamod__st_tensor_bytes(t->dtype, t->ndim, t->shape, &bytes);
        if (bytes) t->data = memcpy((char *)out->copy + at, t->data, bytes);
        at += bytes;
    }
    return true;
}

/* The f32 state that weights for evaluation are computed from; NULL: there is none. */
static const float *find_z(const outgoing *out, const nn_param *p) {
    char name[300];
    snprintf(name, sizeof name, "%s%s.z", optimizer_part, p->name);
    for (size_t i = out->n - out->states.n; i < out->n; i++) {
        const adamod__st_tensor *t = &out->tensors[i];
        if (strcmp(t->name, name) == 0 && t->dtype == ADAMOD__ST_F32) return t->data;
    }
    return NULL;
}

static void use_weight(float *x, double weight, const float *z, int64_t n) {
    for (int64_t k = 0; k < n; k++) x[k] = x[k] + (float)weight * (z[k] - x[k]);
}

/* Lists the tensors of files without the optimizer. */
static int list_used(outgoing *out, const nn_params *params, double weight, const char *path) {
    out->used = malloc((out->n_used + 1) * sizeof *out->used);
    if (!out->used) return checkpoint_fail_memory(path);
    memcpy(out->used, out->tensors, out->n_used * sizeof *out->used);
    if (weight == 0) return 0;
    out->used_data = malloc(((size_t)params->count + 1) * sizeof *out->used_data);
    if (!out->used_data) return checkpoint_fail_memory(path);
    for (int i = 0; i < params->n; i++) {
        const nn_param *p = &params->list[i];
        const float *z = find_z(out, p);
        if (!z) return out->n_used = 0, 0;
        float *x = out->used_data + p->offset;
        memcpy(x, out->tensors[i].data, (size_t)p->count * sizeof *x);
        use_weight(x, weight, z, p->count);
        out->used[i].data = x;
    }
    return 0;
}

/* Syncs the directory's entries; some file systems cannot. */
static bool sync_directory_of(const char *path) {
    char *parent = strdup(path);
    char *slash = parent ? strrchr(parent, '/') : NULL;
    if (slash) slash[slash == parent] = '\0';
    const int fd = parent ? adamod__file_open(slash ? parent : ".", O_RDONLY | O_DIRECTORY) : -1;
    const int error = fd < 0 ? errno : adamod__file_sync(fd);
    if (fd >= 0) close(fd);
    free(parent);
    return !error || error == EINVAL || error == ENOTSUP;
}

/* Makes path a hard link to a file that was just written. False if that fails; path is then the old file or the new one.
 * checkpoint_prune removes temporary names like this. */
static bool link_to(const char *file, const char *path) {
    struct stat st;
    const size_t room = strlen(path) + 16;
    char *temp = malloc(room);
    if (!temp) return false;
    snprintf(temp, room, "%s.tmp.link", path);
    (void)unlinkat(AT_FDCWD, temp, 0); /* left by a killed process */
    bool made = (lstat(path, &st) ? errno == ENOENT : S_ISREG(st.st_mode)) &&
                linkat(AT_FDCWD, file, AT_FDCWD, temp, AT_SYMLINK_FOLLOW) == 0;
    if (made && renameat(AT_FDCWD, temp, AT_FDCWD, path)) {
        (void)unlink(temp);
        made = false;
    }
    free(temp);
    return made && sync_directory_of(path);
}

static bool has_states(const checkpoint_writer *w, int i) { return w->places[i].states || !w->out.n_used; }

static int write_place(checkpoint_writer *w, int i) {
    const outgoing *out = &w->out;
    const char *path = w->places[i].path;
    const bool states = has_states(w, i);
    for (int k = 0; k < i; k++) {
        if (has_states(w, k) == states && link_to(w->places[k].path, path)) return 0;
    }
    return adamod__st_write(path, out->pairs, states ? out->n_pairs : out->n_used_pairs,
                            states ? out->tensors : out->used, states ? out->n : out->n_used);
}

static void *write_all(void *writer) {
    checkpoint_writer *w = writer;
    for (int i = 0; i < w->n && !w->failed; i++) {
        if (!write_place(w, i)) continue;
        adamod__save_failure(&w->failure);
        w->failed = true;
    }
    return NULL;
}

static void free_writer(checkpoint_writer *w) {
    for (int i = 0; w->places && i < w->n; i++) free(w->places[i].path);
    free(w->places);
    free_outgoing(&w->out);
    free(w);
}

static int list_places(checkpoint_writer *w, const checkpoint_target *targets, int n, const char *path) {
    if (!(w->places = calloc((size_t)n, sizeof *w->places))) return checkpoint_fail_memory(path);
    for (; w->n < n; w->n++) {
        w->places[w->n] = (place){strdup(targets[w->n].path), targets[w->n].states};
        if (!w->places[w->n].path) return checkpoint_fail_memory(path);
    }
    return 0;
}

checkpoint_writer *checkpoint_begin(const checkpoint_target *targets, int n, const nn_params *params,
                                    const adamod_optimizer *optimizer, const checkpoint_meta *meta) {
    const char *path = targets[0].path;
    checkpoint_writer *w = calloc(1, sizeof *w);
    if (!w) return checkpoint_fail_memory(path), NULL;
    const double weight = optimizer ? adamod__evaluation_weight(optimizer) : 0;
    bool states = weight != 0;
    for (int i = 0; i < n; i++) states |= targets[i].states;
    w->meta = *meta;
    int status = list_places(w, targets, n, path);
    if (!status) status = nn_params_fetch(params);
    if (!status) status = list_all(&w->out, params, states ? optimizer : NULL, &w->meta, path);
    const bool copied = !status && copy_tensors(&w->out);
    if (!status) status = list_used(&w->out, params, weight, path);
    if (status) return free_writer(w), NULL;
    w->beside = copied && adamod__start_thread(&w->thread, write_all, w) == 0;
    if (!w->beside) write_all(w);
    return w;
}

bool checkpoint_has_failed(const checkpoint_writer *w) { return w && w->failed; }

int checkpoint_end(checkpoint_writer *w) {
    if (!w) return 0;
    if (w->beside) pthread_join(w->thread, NULL);
    const int status = w->failed ? adamod__fail_again(&w->failure) : 0;
    free_writer(w);
    return status;
}

/* ---- Loading ----------------------------------------------------------------------------------------------------- */

static void shape_text(int ndim, const int64_t *shape, char out[128]) {
    snprintf(out, 128, "[");
    for (int d = 0; d < ndim; d++) text_add(out, 128, "%s%" PRId64, d ? ", " : "", shape[d]);
    text_add(out, 128, "]");
}

static bool is_checkpoint(const adamod__st_file *file) {
    const char *found = adamod__st_metadata(file, "format");
    return found && strcmp(found, format) == 0;
}

/* Whether a later version wrote the file, in a format that this one does not know. */
static bool is_newer(const adamod__st_file *file) {
    const char *found = adamod__st_metadata(file, "format");
    return found && !is_checkpoint(file) && strncmp(found, format, FORMAT_NAME) == 0;
}

/* Reads a text of the metadata; "" if it is missing. */
static int read_text(const adamod__st_file *file, const char *name, char *out, size_t room, const char *path) {
    const char *found = adamod__st_metadata(file, name);
    if ((size_t)snprintf(out, room, "%s", found ? found : "") < room) return 0;
    return adamod__refuse("%s: its %s is longer than %zu bytes", path, name, room - 1);
}

int checkpoint_read_metadata(const adamod__st_file *file, checkpoint_meta *meta, const char *path) {
    const char *found = adamod__st_metadata(file, "format");
    if (!is_checkpoint(file)) {
        return adamod__refuse("%s: %s: its format is '%.40s', expected '%s'", path,
                              is_newer(file) ? "a newer version's checkpoint" : "not a checkpoint", found ? found : "",
                              format);
    }
    for (int i = 0; i < NUMBERS; i++) {
        const char *text = adamod__st_metadata(file, numbers[i].name);
        if (parse_number(text ? text : numbers[i].missing, &numbers[i], meta)) continue;
        return adamod__refuse("%s: its metadata say %s is '%.40s', expected a number", path, numbers[i].name,
                              text ? text : "");
    }
    return read_text(file, "mark", meta->mark, sizeof meta->mark, path) ||
                   read_text(file, "data", meta->data, sizeof meta->data, path)
               ? -1
               : 0;
}

/* The recipe in a checkpoint, to be freed. */
static int read_recipe(const adamod__st_file *file, const task *const *tasks, recipe *r, const char *path) {
    const char *text = adamod__st_metadata(file, "recipe");
    char name[1024];
    snprintf(name, sizeof name, "%.1000s: recipe", path);
    if (!text) return adamod__refuse("%s: it contains no recipe", path);
    if (recipe_defaults(r, tasks)) return -1;
    if (recipe_parse(r, text, strlen(text), name) == 0) return 0;
    recipe_free(r);
    return -1;
}

static int check_fingerprint(uint64_t wanted, uint64_t found, const char *path) {
    if (!wanted || !found || wanted == found) return 0;
    return adamod__refuse("%s: made with another vocabulary or other classes: its fingerprint is %016" PRIx64
                          ", expected %016" PRIx64,
                          path, found, wanted);
}

/* Fails if the file was made with another recipe or vocabulary. */
static int check_metadata(const adamod__st_file *file, const checkpoint_meta *wanted, const checkpoint_meta *found,
                          const char *path) {
    recipe was;
    if (check_fingerprint(wanted->fingerprint, found->fingerprint, path)) return -1;
    if (!wanted->recipe) return 0;
    if (read_recipe(file, wanted->recipe->tasks, &was, path)) return -1;
    const int differs = recipe_compare(&was, wanted->recipe, wanted->except);
    recipe_free(&was);
    if (!differs) return 0;
    return adamod__context("%s: made with another recipe: ", path);
}

/* A file to load. */
typedef struct loading {
    const char *path;
    adamod__st_file file;
    nn_params *params;
    const checkpoint_weights *how; /* NULL: all weights */
    bool goes_on;                  /* to continue training */
} loading;

static bool is_skipped(const loading *l, const char *name) {
    return l->how && l->how->skip && key_matches(l->how->skip, name);
}

/* Whether all parameters that the fingerprint is about are skipped. */
static bool skips_meaning(const loading *l) {
    bool skips = l->how->meaning != NULL;
    for (int i = 0; skips && i < l->params->n; i++) {
        const char *name = l->params->list[i].name;
        skips = !key_matches(l->how->meaning, name) || is_skipped(l, name);
    }
    return skips;
}

static int check_meaning(const loading *l) {
    const checkpoint_weights *how = l->how;
    checkpoint_meta found = {0};
    if (!is_checkpoint(&l->file) && !is_newer(&l->file)) return 0;
    if (checkpoint_read_metadata(&l->file, &found, l->path)) return -1;
    if (!how || !how->fingerprint || !found.fingerprint || how->fingerprint == found.fingerprint) return 0;
    if (skips_meaning(l)) return 0;
    return adamod__refuse("%s: made with %s%s%s", l->path, how->other, *how->way_out ? "; " : "", how->way_out);
}

/* Fails unless the file has the parameter or state, under this name, with type and shape. */
static int check_tensor(const loading *l, const char *name, const nn_param *p) {
    const adamod__st_entry *e = adamod__st_find(&l->file, name);
    char has[128], wants[128];
    if (!e) {
        return adamod__refuse("%s: from another model: it has no %s '%s'", l->path,
                              checkpoint_is_state(name) ? "persistent state" : "parameter", p->name);
    }
    if (e->dtype != ADAMOD__ST_F32) {
        return adamod__refuse("%s: '%s' is %s, expected F32", l->path, name, adamod__st_dtype_name(e->dtype));
    }
    if (e->ndim == p->ndim && memcmp(e->shape, p->shape, (size_t)p->ndim * sizeof *p->shape) == 0) return 0;
    shape_text(e->ndim, e->shape, has);
    shape_text(p->ndim, p->shape, wants);
    return adamod__refuse("%s: from another model: '%s' has shape %s, expected %s", l->path, name, has, wants);
}

/* Whether the model has what the file calls name. */
static bool is_known(const nn_params *params, const char *name) {
    return checkpoint_is_state(name) ? nn_params_find_state(params, name + strlen(state_part)) != NULL
                                     : nn_params_find(params, name) != NULL;
}

/* States that are carried from batch to batch are loaded only to continue training. */
static bool is_wanted(const nn_param *state, bool goes_on) { return goes_on || !state->carried; }

/* Like check_tensor; if the parameter's meaning may explain another shape, the message has the way out. */
static int check_param(const loading *l, const nn_param *p) {
    const checkpoint_weights *how = l->how;
    if (is_skipped(l, p->name) || !check_tensor(l, p->name, p)) return 0;
    const bool means = how && how->meaning && *how->way_out &&
                       !is_checkpoint(&l->file) && /* else the meaning is the same */
                       key_matches(how->meaning, p->name);
    return means ? adamod__refuse("%s; %s", adamod__last_message(), how->way_out) : -1;
}

/* Fails unless the file has every parameter and state that is not skipped, and no other parameter. If training goes on,
 * it must have no other state either. */
static int check_params(const loading *l) {
    const adamod__st_file *file = &l->file;
    const nn_params *params = l->params;
    char name[256];
    for (int i = 0; i < params->n; i++) {
        if (check_param(l, &params->list[i])) return -1;
    }
    for (int i = 0; i < params->n_states; i++) {
        const nn_param *state = &params->states[i];
        if (!is_wanted(state, l->goes_on) || is_skipped(l, state->name)) continue;
        if (!state_name(state, name) || check_tensor(l, name, state)) return -1;
    }
    size_t others = 0;
    for (size_t i = 0; i < file->n_entries; i++) {
        others +=
            checkpoint_is_param(file->entries[i].name) || (checkpoint_is_state(file->entries[i].name) && l->goes_on);
    }
    if (others == (size_t)params->n + (l->goes_on ? (size_t)params->n_states : 0)) return 0;
    for (size_t i = 0; i < file->n_entries; i++) {
        const char *found = file->entries[i].name;
        if (checkpoint_is_optimizers(found) || (checkpoint_is_state(found) && !l->goes_on) || is_known(params, found) ||
            is_skipped(l, found))
            continue;
        return adamod__refuse("%s: from another model: this one has no %s '%.80s'", l->path,
                              checkpoint_is_state(found) ? "persistent state" : "parameter",
                              checkpoint_is_state(found) ? found + strlen(state_part) : found);
    }
    return 0;
}

/* Reads all parameters, in the layout of params->data, then all states; to be freed. Those that are not loaded keep their
 * values. */
static float *read_params(const loading *l) {
    const nn_params *params = l->params;
    float *data = malloc(((size_t)(params->count + params->state_count) + 1) * sizeof *data);
    char name[256];
    if (!data) (void)checkpoint_fail_memory(l->path);
    for (int i = 0; data && i < params->n + params->n_states; i++) {
        const bool state = i >= params->n;
        const nn_param *p = state ? &params->states[i - params->n] : &params->list[i];
        float *at = data + (state ? params->count : 0) + p->offset;
        if ((state && !is_wanted(p, l->goes_on)) || is_skipped(l, p->name)) {
            memcpy(at, (state ? params->state_data : params->data) + p->offset, (size_t)p->count * sizeof *at);
            continue;
        }
        const adamod__st_entry *e = adamod__st_find(&l->file, state && state_name(p, name) ? name : p->name);
        if (!adamod__st_read(&l->file, e, at)) continue;
        free(data);
        data = NULL;
    }
    return data;
}

/* Whether the parameter was trained. */
static bool knew_parameter(const adamod__st_file *file, const char *parameter) {
    char name[300];
    snprintf(name, sizeof name, "%s%s.step", optimizer_part, parameter);
    return adamod__st_find(file, name) != NULL;
}

int checkpoint_to_evaluate_with(const adamod__st_file *file, const char *parameter, float *y, size_t n,
                                const char *path) {
    const char *text = adamod__st_metadata(file, checkpoint_evaluation_key);
    const double weight = text ? strtod(text, NULL) : 0;
    char name[300];
    if (weight == 0) return 0;
    snprintf(name, sizeof name, "%s%s.z", optimizer_part, parameter);
    const adamod__st_entry *e = adamod__st_find(file, name);
    if (!e && !knew_parameter(file, parameter)) return 0; /* it was frozen */
    if (!e || e->dtype != ADAMOD__ST_F32 || e->end - e->begin != (uint64_t)n * sizeof *y) {
        return adamod__refuse("%s: it has no f32 state %s to make the weights to use from", path, name);
    }
    float *z = malloc(n * sizeof *z + 1);
    if (!z) return checkpoint_fail_memory(path);
    const int failed = adamod__st_read(file, e, z);
    if (!failed) use_weight(y, weight, z, (int64_t)n);
    free(z);
    return failed ? -1 : 0;
}

static int all_to_evaluate_with(const loading *l, float *data) {
    int status = 0;
    for (int i = 0; !status && i < l->params->n; i++) {
        const nn_param *p = &l->params->list[i];
        if (is_skipped(l, p->name)) continue;
        status = checkpoint_to_evaluate_with(&l->file, p->name, data + p->offset, (size_t)p->count, l->path);
    }
    return status;
}

/* Whether evaluation reads this tensor. */
static bool is_used(const loading *l, const char *name) {
    const bool is_state = checkpoint_is_state(name);
    const char *own = is_state ? name + strlen(state_part) : name;
    const nn_param *state = is_state ? nn_params_find_state(l->params, own) : NULL;
    return !checkpoint_is_optimizers(name) && is_known(l->params, name) && (!state || is_wanted(state, false)) &&
           !is_skipped(l, own);
}

/* Reads the tensors that are not loaded, as they must be undamaged too; without parameters, every tensor. */
static int verify(const loading *l) {
    const adamod__st_file *file = &l->file;
    uint64_t most = 0;
    for (size_t i = 0; i < file->n_entries; i++) {
        const uint64_t bytes = file->entries[i].end - file->entries[i].begin;
        if (bytes > most) most = bytes;
    }
    char *block = malloc((size_t)most + 1);
    int status = block ? 0 : checkpoint_fail_memory(l->path);
    for (size_t i = 0; !status && i < file->n_entries; i++) {
        const adamod__st_entry *e = &file->entries[i];
        if (l->params && is_used(l, e->name)) continue;
        if (adamod__st_read(file, e, block)) status = -1;
    }
    free(block);
    return status;
}

static void copy_numbers(float *to, const float *from, const nn_param *list, int n) {
    for (int i = 0; i < n; i++) {
        memcpy(to + list[i].offset, from + list[i].offset, (size_t)list[i].count * sizeof *to);
    }
}

/* Only a device can still fail. */
static int store(nn_params *params, const float *data) {
    copy_numbers(params->data, data, params->list, params->n);
    copy_numbers(params->state_data, data + params->count, params->states, params->n_states);
    return nn_params_store(params);
}

/* Loads a file that has passed all checks. */
static int take(const loading *l, adamod_optimizer *optimizer) {
    if (!optimizer && verify(l)) return -1;
    float *data = read_params(l);
    if (!data) return -1;
    int status = optimizer ? adamod__state_restore(optimizer, &l->file, l->path, optimizer_part) ? -1 : 0
                           : all_to_evaluate_with(l, data);
    if (!status) status = store(l->params, data);
    free(data);
    return status;
}

static int load(const loading *l, adamod_optimizer *optimizer, checkpoint_meta *meta) {
    checkpoint_meta found = {0};
    if (checkpoint_read_metadata(&l->file, &found, l->path)) return -1;
    if ((meta && check_metadata(&l->file, meta, &found, l->path)) || check_params(l)) return -1;
    if (optimizer && !adamod__st_metadata(&l->file, "optimizer/rule")) {
        return adamod__refuse(
            "%s: it has only parameters, no optimizer state to resume from: only --reset optimizer goes on from it",
            l->path);
    }
    const int status = take(l, optimizer);
    if (status || !meta) return status;
    found.recipe = meta->recipe;
    found.except = meta->except;
    *meta = found;
    return 0;
}

static int open_to_load(loading *l) {
    if (!l->params->data) return adamod__refuse("%s: the parameters have no memory yet", l->path);
    return adamod__st_open_within(l->path, CHECKPOINT_MOST_HEADER, &l->file) ? -1 : 0;
}

int checkpoint_load(const char *path, nn_params *params, adamod_optimizer *optimizer, checkpoint_meta *meta) {
    const bool goes_on = optimizer || (meta && meta->recipe); /* also with a new optimizer */
    loading l = {.path = path, .params = params, .goes_on = goes_on};
    if (open_to_load(&l)) return -1;
    const int status = load(&l, optimizer, meta);
    adamod__st_close(&l.file);
    return status;
}

int checkpoint_load_weights(const char *path, nn_params *params, const checkpoint_weights *how) {
    loading l = {.path = path, .params = params, .how = how};
    if (open_to_load(&l)) return -1;
    const int status = check_meaning(&l) || check_params(&l) ? -1 : take(&l, NULL);
    adamod__st_close(&l.file);
    return status;
}

int checkpoint_verify(const char *path, bool *resumable, checkpoint_meta *meta) {
    loading l = {.path = path};
    if (adamod__st_open_within(path, CHECKPOINT_MOST_HEADER, &l.file)) return -1;
    int status = checkpoint_read_metadata(&l.file, meta, path);
    if (!status) status = verify(&l);
    *resumable = !status && adamod__st_metadata(&l.file, "optimizer/rule");
    adamod__st_close(&l.file);
    return status;
}

int checkpoint_info(const char *path, checkpoint_meta *meta, recipe *r) {
    checkpoint_meta found = {0};
    recipe read;
    adamod__st_file file;
    if (adamod__st_open_within(path, CHECKPOINT_MOST_HEADER, &file)) return -1;
    int status = checkpoint_read_metadata(&file, &found, path);
    if (!status && r) status = read_recipe(&file, r->tasks, &read, path);
    adamod__st_close(&file);
    if (status) return status;
    if (r) {
        recipe_free(r);
        *r = read;
    }
    *meta = found;
    return 0;
}
