/* The cache of data sets, and other addresses of their files. */
#include "core/error.h"
#include "support/keys.h"
#include "support/text.h"
#include "support/array.h"
#include "data/sets/address.h"
#include "data/sets/data_sets.h"
#include "data/text_input.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* ---- the cache ---- */

/* A directory by the XDG convention, which ignores variables that are not absolute. */
static int xdg_folder(const char *variable, const char *below_home, const char *name, char *out, size_t size) {
    const char *base = getenv(variable), *home = getenv("HOME");
    if (base && *base == '/') snprintf(out, size, "%s/%s", base, name);
    else if (home && *home == '/') snprintf(out, size, "%s/%s/%s", home, below_home, name);
    else return -1;
    return 0;
}

int data_set_folder(const data_set *s, const char *what, char *out, size_t size) {
    const char *chosen = getenv("ADAMOD_DATA");
    char cache[DATA_SET_PATH];
    if (chosen && *chosen && *chosen != '/')
        return adamod__refuse("ADAMOD_DATA is '%.80s', expected an absolute path", chosen);
    if (chosen && *chosen) snprintf(cache, sizeof cache, "%s", chosen);
    else if (xdg_folder("XDG_CACHE_HOME", ".cache", "adamod/data", cache, sizeof cache))
        return adamod__refuse("no cache for data sets: neither ADAMOD_DATA, XDG_CACHE_HOME nor HOME is given");
    const int n = snprintf(out, size, "%s/%s/%s", cache, what, s->name);
    if ((size_t)n + 80 < size && strlen(cache) + 1 < sizeof cache) return 0; /* with room for names of files */
    return adamod__refuse("the path of the cache for data sets is too long: %.80s...", cache);
}

int data_set_path(const data_set *s, char *out, size_t size) {
    if (data_set_folder(s, "prepared", out, size)) return -1;
    if (access(out, R_OK | X_OK) == 0) return 0;
    return adamod__fail(ADAMOD_ERROR_IO,
                        "the data set %s is not prepared: %s: %s; to fetch and prepare it: adamod data prepare %s",
                        s->name, out, strerror(errno), s->name);
}

/* ---- what is there ---- */

bool data_set_files(const data_set *s, bool (*look)(void *context, const char *name), void *context) {
    static const char *const parts[] = {"train.", "valid.", "test.", "test.raw.", NULL};
    bool all = !s->pairs || look(context, "codes");
    for (const char *const *part = parts; s->pairs && *part; part++) {
        for (int side = 0; side < 2 && all; side++) {
            char name[64];
            snprintf(name, sizeof name, "%s%s", *part, s->languages[side]);
            all = look(context, name);
        }
    }
    for (const data_copy *c = s->copies; all && c && c->to; c++) all = look(context, c->to);
    for (const data_file *f = s->files; !s->pairs && !s->copies && f->name; f++) {
        for (const char *const *m = f->members; all && m && *m; m++) all = look(context, *m);
    }
    return all;
}

static bool is_in(void *folder, const char *name) { return access(path_join(folder, name).text, F_OK) == 0; }

data_state data_set_state(const data_set *s) {
    char folder[DATA_SET_PATH];
    if (data_set_folder(s, "prepared", folder, sizeof folder) || access(folder, F_OK)) return DATA_MISSING;
    return data_set_files(s, is_in, folder) ? DATA_PREPARED : DATA_PARTLY;
}

int data_set_explain(const data_set *s) {
    adamod__failure failure;
    adamod__save_failure(&failure);
    if (!s || data_set_state(s) != DATA_PARTLY) return adamod__fail_again(&failure);
    return adamod__fail(failure.status, "%s; some of the data set was deleted: adamod data prepare %s makes it again",
                        failure.message, s->name);
}

/* ---- other addresses ---- */

static data_source *add_source(data_sources *s) {
    if (!ARRAY_EXTEND(s->list, s->n)) return NULL;
    s->list[s->n] = (data_source){0};
    return &s->list[s->n++];
}

static const char *url_fault(const char *url) {
    const size_t scheme = strncasecmp(url, "http://", 7) == 0    ? 7
                          : strncasecmp(url, "https://", 8) == 0 ? 8
                          : strncasecmp(url, "file:///", 8) == 0 ? 8
                                                                 : 0;
    if (!scheme || !url[scheme] || url[scheme] == '/') return "expected http://HOST, https://HOST or file:///FOLDER";
    for (const char *c = url; *c; c++) {
        if ((unsigned char)*c <= ' ' || *c == 0x7f) return "it has a space or a control character";
    }
    return strlen(url) >= DATA_SET_URL / 2 ? "it is too long" : NULL;
}

int data_sources_mirror(data_sources *s, const char *url) {
    const char *fault = url_fault(url);
    char shown[DATA_SET_URL];
    address_shown(url, shown, sizeof shown);
    if (fault) return adamod__refuse("mirror '%.60s': %s", shown, fault);
    data_source *source = add_source(s);
    if (!source) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory");
    snprintf(source->url, sizeof source->url, "%s", url);
    for (size_t n = strlen(source->url); n && source->url[n - 1] == '/'; n--) source->url[n - 1] = 0;
    return 0;
}

static bool parse_checksum(data_source *source, const char *text) {
    const bool md5 = strncmp(text, "md5:", 4) == 0, sha256 = strncmp(text, "sha256:", 7) == 0;
    source->has_checksum = true;
    if (strcmp(text, "none") == 0) return true;
    if (!md5 && !sha256) return false;
    text += md5 ? 4 : 7;
    source->kind = md5 ? DIGEST_MD5 : DIGEST_SHA256;
    if (strlen(text) != (md5 ? 32 : 64) || strspn(text, "0123456789abcdefABCDEF") != strlen(text)) return false;
    for (int i = 0; text[i]; i++)
        source->checksum[i] = (char)(text[i] >= 'A' && text[i] <= 'F' ? text[i] + 32 : text[i]);
    return true;
}

static const data_file *find_file(const data_set *set, const char *name) {
    for (const data_file *f = set->files; f->name; f++) {
        if (strcmp(f->name, name) == 0) return f;
    }
    return NULL;
}

/* Takes the words of a line. Returns what is wrong, or NULL. */
static const char *read_words(data_sources *s, char *const words[6], int n) {
    const data_set *set = data_set_find(words[0]);
    double size = 0;
    if (strcmp(words[0], "mirror") == 0)
        return n != 2 ? "expected: mirror URL" : data_sources_mirror(s, words[1]) ? adamod__last_message() : NULL;
    if (n < 3 || n > 5) return "expected: mirror URL, or: SET FILE URL [SIZE [CHECKSUM]]";
    if (!set) return "there is no data set of this name; adamod data list shows them";
    if (!find_file(set, words[1])) return "the data set has no file of this name; adamod data list SET shows them";
    if (url_fault(words[2])) return url_fault(words[2]);
    if (n > 3 && (!key_parse_number(words[3], &size) || size < 0 || size > 1e15 || size != (double)(int64_t)size))
        return "expected a number of bytes after the address";
    data_source *source = add_source(s);
    if (!source) return "out of memory";
    snprintf(source->set, sizeof source->set, "%s", words[0]);
    snprintf(source->file, sizeof source->file, "%s", words[1]);
    snprintf(source->url, sizeof source->url, "%s", words[2]);
    source->has_size = n > 3;
    source->size = (int64_t)size;
    return n == 5 && !parse_checksum(source, words[4]) ? "expected sha256:, md5: and the digits, or none" : NULL;
}

static int read_line(data_sources *s, text_slice line, const char *path, int64_t number) {
    char copy[2048], *words[6] = {NULL}, *rest = copy;
    int n = 0;
    if (line.n >= sizeof copy) return adamod__refuse("%s:%lld: the line is too long", path, (long long)number);
    snprintf(copy, sizeof copy, "%.*s", (int)line.n, line.n ? line.bytes : "");
    if (*copy == '#') return 0;
    for (char *word; n < 6 && (word = strtok_r(rest, " \t", &rest)); n++) words[n] = word;
    const char *fault = n ? read_words(s, words, n) : NULL;
    return fault ? adamod__refuse("%s:%lld: %s", path, (long long)number, fault) : 0;
}

int data_sources_read(data_sources *s, const char *path, bool optional) {
    text_input *in;
    text_slice line;
    int got = 0;
    if (optional && access(path, F_OK) != 0) return 0;
    if (text_input_open(&in, path)) return -1;
    while ((got = text_input_line(in, &line)) > 0) {
        if ((got = read_line(s, line, path, text_input_number(in))) < 0) break;
    }
    text_input_close(in);
    return got < 0 ? -1 : 0;
}

void data_sources_default(char *out, size_t size) {
    if (xdg_folder("XDG_CONFIG_HOME", ".config", "adamod/mirrors", out, size)) *out = 0;
}

void data_sources_free(data_sources *s) {
    free(s->list);
    *s = (data_sources){0};
}
