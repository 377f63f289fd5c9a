#include "report/reader_parts.h"

#include "core/crc32.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PAIRS = 1000 };

const char *reader_add_pair(report_pairs *pairs, const char *key, const char *value) {
    if (pairs->n == MOST_PAIRS) return "there are more than 1000 keys";
    if (!ARRAY_EXTEND(pairs->at, pairs->n)) return reader_no_memory;
    const report_pair p = {strdup(key), strdup(value)};
    if (!p.key || !p.value) {
        free(p.key);
        free(p.value);
        return reader_no_memory;
    }
    pairs->at[pairs->n++] = p;
    return NULL;
}

void reader_free_pairs(report_pairs *pairs) {
    for (size_t i = 0; i < pairs->n; i++) {
        free(pairs->at[i].key);
        free(pairs->at[i].value);
    }
    free(pairs->at);
    *pairs = (report_pairs){0};
}

const char *report_pairs_find(const report_pairs *pairs, const char *key) {
    for (size_t i = 0; i < pairs->n; i++) {
        if (strcmp(pairs->at[i].key, key) == 0) return pairs->at[i].value;
    }
    return NULL;
}

/* ---- The machine ---- */

const char *reader_machine(report_run *r, json_input *in) {
    report_pairs *pairs = &r->machine[r->n_machines];
    const char *what = NULL;
    for (bool more = json_input_enter(in, '{'); more && !what; more = json_input_next(in, '}')) {
        char key[64], value[512];
        json_input_key(in, key, sizeof key);
        json_input_scalar(in, value, sizeof value);
        if (!in->expected && *value) what = reader_add_pair(pairs, key, value);
    }
    if (!what) json_input_end(in);
    return what;
}

int reader_machines(report_run *r) {
    char name[32] = "machine.json";
    while (r->n_machines < REPORT_MACHINES) {
        const int status = reader_value(r, name, READER_BYTES, reader_machine);
        if (status <= 0) return status;
        r->n_machines++;
        snprintf(name, sizeof name, "machine.%d.json", r->n_machines + 1);
    }
    return 0;
}

/* ---- Data ---- */

static const char *pull_part(report_run *r, json_input *in) {
    char split[16] = "", name[64] = "", fingerprint[64] = "", text[64] = "", path[96];
    for (bool more = json_input_enter(in, '{'); more; more = json_input_next(in, '}')) {
        char key[32];
        json_input_key(in, key, sizeof key);
        if (strcmp(key, "split") == 0) json_input_text(in, split, sizeof split);
        else if (strcmp(key, "key") == 0) json_input_text(in, name, sizeof name);
        else if (strcmp(key, "fingerprint") == 0) json_input_text(in, fingerprint, sizeof fingerprint);
        else if (strcmp(key, "text") == 0) json_input_text(in, text, sizeof text);
        else json_input_skip(in);
    }
    if (in->expected) return NULL;
    snprintf(path, sizeof path, "text %s %s", split, name);
    const char *what = *text ? reader_add_pair(&r->data, path, text) : NULL;
    return what ? what : reader_add_pair(&r->data, path + strlen("text "), fingerprint);
}

static void describe_own(report_run *r, const char *set, const char *why) {
    snprintf(r->own, sizeof r->own, "data set%s%s not as published%s%s", *set ? " " : "", set, *why ? ": " : "", why);
}

const char *reader_data(report_run *r, json_input *in) {
    const char *what = NULL;
    char set[32] = "", why[128] = "";
    bool own = false;
    for (bool more = json_input_enter(in, '{'); more && !what; more = json_input_next(in, '}')) {
        char key[32];
        json_input_key(in, key, sizeof key);
        if (strcmp(key, "parts") == 0) {
            for (bool one = json_input_enter(in, '['); one && !what; one = json_input_next(in, ']'))
                what = pull_part(r, in);
        } else if (strcmp(key, REPORT_TRAIN_SAMPLES) == 0) {
            char number[32];
            snprintf(number, sizeof number, "%.0f", json_input_number(in));
            what = reader_add_pair(&r->data, key, number);
        } else if (strcmp(key, "published") == 0) own = !json_input_flag(in) && !in->expected;
        else if (strcmp(key, "set") == 0) json_input_text(in, set, sizeof set);
        else if (strcmp(key, "why") == 0) json_input_text(in, why, sizeof why);
        else json_input_skip(in);
    }
    if (!what) json_input_end(in);
    if (own) describe_own(r, set, why);
    r->has_data = true;
    return what;
}

/* The k-th fingerprint of a split; NULL: there are fewer. */
static const char *fingerprint_of(const report_run *r, const char *split, size_t k) {
    for (size_t i = 0; i < r->data.n; i++) {
        if (strncmp(r->data.at[i].key, split, strlen(split)) == 0 && k-- == 0) return r->data.at[i].value;
    }
    return NULL;
}

bool report_validates_on_test(const report_run *r) {
    for (size_t k = 0;; k++) {
        const char *valid = fingerprint_of(r, "valid ", k), *test = fingerprint_of(r, "test ", k);
        if (!valid && !test) return k > 0;
        if (!valid || !test || strcmp(valid, test) != 0) return false;
    }
}

int reader_vocabulary(report_run *r, const char *name, const char *side) {
    char key[32], value[16], block[8192];
    const reader_place at = reader_file(r->directory, name);
    FILE *file = NULL;
    int status = reader_open(&at, &file);
    uint32_t sum = 0;
    for (size_t n; status > 0 && (n = fread(block, 1, sizeof block, file));) sum = adamod__crc32(sum, block, n);
    snprintf(key, sizeof key, "vocabulary %s", side);
    snprintf(value, sizeof value, "%08" PRIx32, sum);
    const char *what = status <= 0 ? NULL : ferror(file) ? "cannot read it" : reader_add_pair(&r->data, key, value);
    if (what) status = reader_fail(&at, what);
    if (file) fclose(file);
    return status < 0 ? -1 : 0;
}
