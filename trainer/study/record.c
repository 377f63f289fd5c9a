#include "core/platform.h" /* first */

#include "study/record.h"

#include "core/error.h"
#include "report/variants.h"
#include "study/record_parts.h"
#include "support/directory.h"
#include "support/keys.h"
#include "support/text.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Files ------------------------------------------------------------------------------------------------------- */

typedef struct file_path {
    char text[PATH_MAX + 64];
} file_path;

static file_path path_of(const char *directory, const char *name) {
    file_path path;
    snprintf(path.text, sizeof path.text, "%s/%s", directory, name);
    return path;
}

int record_read(const record *r, const char *name, char **text, size_t *n) {
    const file_path path = path_of(r->run.directory, name);
    if (access(path.text, F_OK)) return 0;
    return text_read(path.text, text, n) ? -1 : 1;
}

static int write_file(const record *r, const char *name, const char *text, size_t n) {
    return text_write(path_of(r->to, name).text, (text_slice){text, n});
}

int record_write_json(const record *r, const char *name, json *j) {
    const int status = j->failed ? adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", name)
                                 : write_file(r, name, j->text ? j->text : "", j->n);
    json_free(j);
    return status;
}

/* ---- Values ------------------------------------------------------------------------------------------------------ */

void record_number(json *out, double x, int digits) {
    char text[32];
    snprintf(text, sizeof text, "%.*g", digits, x);
    json_number(out, strtod(text, NULL));
}

void record_value(json_input *in, json *out, int digits) {
    const char *from = in->at;
    double x;
    json_input_skip(in);
    while (from < in->at && (*from == ' ' || *from == '\t')) from++;
    char *text = strndup(from, (size_t)(in->at - from));
    if (!text) {
        out->failed = true;
        return;
    }
    if (digits && key_parse_number(text, &x)) record_number(out, x, digits);
    else json_raw(out, text);
    free(text);
}

/* The last part of a path. */
static const char *last_part(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* ---- Small files, which the reader has checked ------------------------------------------------------------------- */

static int copy_file(const record *r, const char *name) {
    char *text = NULL;
    size_t n = 0;
    int status = record_read(r, name, &text, &n);
    if (status > 0) status = write_file(r, name, text, n);
    free(text);
    return status;
}

/* The last part of the path that a line of recipe.yaml has as its value; NULL: the value is no path. */
static const char *path_in_recipe(text_slice l, const char **value) {
    const char *colon = memmem(l.bytes, l.n, ": ", 2), *end = l.bytes + l.n, *last = NULL;
    if (!colon) return NULL;
    *value = colon + 2;
    if (*value < end && (**value == '"' || **value == '\'')) ++*value;
    if (*value == end || **value != '/') return NULL;
    while (end > *value && (end[-1] == '"' || end[-1] == '\'' || end[-1] == '/')) end--;
    for (const char *c = *value; c < end; c++) last = *c == '/' ? c : last;
    return last ? last + 1 : NULL;
}

static int record_recipe(const record *r) {
    char *text = NULL;
    size_t n = 0;
    text_slice l;
    FILE *out = open_memstream(&text, &n);
    if (!out) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory");
    for (text_slice rest = text_of(r->run.recipe_text); text_next_line(&rest, &l);) {
        const char *value = NULL, *last = path_in_recipe(l, &value);
        if (last) fprintf(out, "%.*s%.*s\n", (int)(value - l.bytes), l.bytes, (int)(l.bytes + l.n - last), last);
        else fprintf(out, "%.*s\n", (int)l.n, l.bytes);
    }
    const int status =
        fclose(out) ? adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory") : write_file(r, "recipe.yaml", text, n);
    free(text);
    return status;
}

/* Copies a machine's file without the name of the host. */
static int record_machine(const record *r, const char *name) {
    char *text = NULL, key[64];
    size_t n = 0;
    json j = {0};
    const int status = record_read(r, name, &text, &n);
    if (status <= 0) return status;
    json_input in = json_input_of(text, n);
    json_open(&j, '{');
    for (bool more = json_input_enter(&in, '{'); more; more = json_input_next(&in, '}')) {
        json_input_key(&in, key, sizeof key);
        if (strcmp(key, "host") == 0) {
            json_input_skip(&in);
            continue;
        }
        json_key(&j, key);
        record_value(&in, &j, 0);
    }
    json_close(&j, '}');
    json_end_line(&j);
    free(text);
    return record_write_json(r, name, &j);
}

static int record_machines(const record *r) {
    char name[32] = "machine.json";
    for (int i = 0; i < r->run.n_machines; i++) {
        if (record_machine(r, name)) return -1;
        snprintf(name, sizeof name, "machine.%d.json", i + 2);
    }
    return 0;
}

static void copy_part(json_input *in, json *j) {
    char key[64], path[PATH_MAX];
    json_open(j, '{');
    for (bool more = json_input_enter(in, '{'); more; more = json_input_next(in, '}')) {
        json_input_key(in, key, sizeof key);
        json_key(j, key);
        if (strcmp(key, "file") != 0) {
            record_value(in, j, 0);
            continue;
        }
        json_input_text(in, path, sizeof path);
        for (size_t k = strlen(path); k > 1 && path[k - 1] == '/';) path[--k] = '\0';
        json_string(j, last_part(path));
    }
    json_close(j, '}');
}

/* Adds the checksums of vocabularies, unless an earlier record has done it: the last of a key counts, and is the same. */
static void add_vocabularies(const record *r, json *j, bool recorded) {
    static const char prefix[] = "vocabulary ";
    for (size_t i = 0; !recorded && i < r->run.data.n; i++) {
        const report_pair *p = &r->run.data.at[i];
        if (strncmp(p->key, prefix, strlen(prefix)) != 0) continue;
        json_open(j, '{');
        json_pair(j, "split", "vocabulary");
        json_pair(j, "key", p->key + strlen(prefix));
        json_pair(j, "file", "");
        json_pair(j, "fingerprint", p->value);
        json_close(j, '}');
    }
}

/* Copies which data set of the cache it was, and whether that was the published one. */
static void copy_origin(json_input in, json *j) {
    static const char *const keys[] = {"set", "published", "why"};
    char key[64];
    for (bool more = json_input_enter(&in, '{'); more; more = json_input_next(&in, '}')) {
        bool wanted = false;
        json_input_key(&in, key, sizeof key);
        for (int i = 0; i < 3; i++) wanted |= strcmp(key, keys[i]) == 0;
        if (wanted) {
            json_key(j, key);
            record_value(&in, j, 0);
        } else json_input_skip(&in);
    }
}

static int record_data(const record *r) {
    char *text = NULL, key[64];
    size_t n = 0;
    json j = {0};
    const int status = record_read(r, "data.json", &text, &n);
    if (status <= 0) return status;
    json_input in = json_input_of(text, n);
    json_open(&j, '{');
    const char *samples = report_pairs_find(&r->run.data, REPORT_TRAIN_SAMPLES);
    if (samples) json_pair_number(&j, REPORT_TRAIN_SAMPLES, strtod(samples, NULL));
    copy_origin(json_input_of(text, n), &j);
    json_key(&j, "parts");
    json_open(&j, '[');
    for (bool more = json_input_enter(&in, '{'); more; more = json_input_next(&in, '}')) {
        json_input_key(&in, key, sizeof key);
        if (strcmp(key, "parts") != 0) {
            json_input_skip(&in);
            continue;
        }
        for (bool one = json_input_enter(&in, '['); one; one = json_input_next(&in, ']')) copy_part(&in, &j);
    }
    add_vocabularies(r, &j, memmem(text, n, "\"vocabulary\"", 12) != NULL);
    json_close(&j, ']');
    json_close(&j, '}');
    json_end_line(&j);
    free(text);
    return record_write_json(r, "data.json", &j);
}

/* The run's own note was checked when it was read. */
static int record_note(const record *r) {
    char line[REPORT_NOTE + 1];
    const char *note = r->note ? r->note : r->run.note;
    if (!*note) return 0;
    snprintf(line, sizeof line, "%.*s\n", REPORT_NOTE - 1, note);
    return write_file(r, "note.txt", line, strlen(line));
}

/* ---- All of it --------------------------------------------------------------------------------------------------- */

static int check_over(const report_run *r) {
    const report_fate fate = report_fate_of(r);
    if (fate == REPORT_FINISHED || fate == REPORT_DIVERGED) return 0;
    return adamod__refuse("%s: the run is not over, so it cannot be recorded: expected it finished or diverged",
                          r->directory);
}

/* Removes a directory of files, if there is one. */
static void remove_directory(const char *path) {
    DIR *d = opendir(path);
    for (struct dirent *entry; d && (entry = readdir(d));)
        if (*entry->d_name != '.' || strncmp(entry->d_name, ".adamod", 7) == 0)
            (void)unlink(path_of(path, entry->d_name).text);
    if (d) closedir(d);
    (void)rmdir(path);
}

static int write_all(record *r) {
    const int error = directory_make(r->to, NULL);
    if (error) return adamod__fail(ADAMOD_ERROR_IO, "%s: cannot make this directory: %s", r->to, strerror(error));
    if (record_recipe(r) || record_machines(r) || copy_file(r, "task.json") || record_data(r) || record_metrics(r) ||
        record_histograms(r) || record_note(r))
        return -1;
    return copy_file(r, "result.json");
}

int record_run(const char *from, const char *to, const char *note, const metric *known, int n_known) {
    file_path temporary;
    record r = {.to = temporary.text, .note = note};
    if (access(to, F_OK) == 0) return adamod__refuse("%s: is there already, and is not replaced", to);
    if (report_run_read(&r.run, from, known, n_known)) return -1;
    snprintf(temporary.text, sizeof temporary.text, "%s.tmp", to);
    int status = check_over(&r.run);
    if (!status) {
        remove_directory(temporary.text); /* of a process that was killed */
        status = write_all(&r);
        if (!status && rename(temporary.text, to))
            status = adamod__fail(ADAMOD_ERROR_IO, "%s: cannot make this directory: %s", to, strerror(errno));
        if (status) remove_directory(temporary.text);
    }
    report_run_free(&r.run);
    return status;
}
