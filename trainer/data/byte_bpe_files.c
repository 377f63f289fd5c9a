/* Reads and writes vocab.json and merges.txt. */
#include "data/byte_bpe_internal.h"

#include "core/error.h"
#include "support/array.h"
#include "support/directory.h"
#include "support/json.h"
#include "support/json_input.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char version[] = "#version: 0.2";

enum { SHOWN = 64 }; /* bytes of a token in a message */

typedef struct shown {
    char text[SHOWN + 4];
} shown;

static shown show(text_slice spelled) {
    shown s;
    const bool whole = spelled.n <= SHOWN;
    snprintf(s.text, sizeof s.text, "%.*s%s", (int)(whole ? spelled.n : SHOWN), spelled.bytes, whole ? "" : "...");
    return s;
}

static shown show_bytes(text_slice bytes) {
    adamod__buffer spelled = {0};
    byte_bpe_spell(bytes, &spelled);
    const shown s = show((text_slice){spelled.text ? spelled.text : "", spelled.n});
    adamod__buffer_free(&spelled);
    return s;
}

static int out_of_memory(const char *name) { return adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", name); }

/* ---- vocab.json ---- */

/* A token of the file, in the order of the file. */
typedef struct entry {
    int64_t id;
    size_t at, n; /* its bytes in all */
} entry;

typedef struct vocabulary {
    const char *name;
    entry *entries;
    int64_t *by_id; /* which entry; -1: none so far */
    int64_t n;
    size_t room;
    adamod__buffer all, token;
    char *key; /* room for the longest string that the file can have */
} vocabulary;

static text_slice bytes_of(const vocabulary *v, int64_t i) {
    return (text_slice){v->all.text + v->entries[i].at, v->entries[i].n};
}

static int add_entry(vocabulary *v, double id) {
    const text_slice key = text_of(v->key);
    uint32_t other;
    if (!(id >= 0 && id < INT32_MAX / 4 && id == (double)(int64_t)id))
        return adamod__refuse("%s: token '%s' has the id %g, expected a whole number from 0 on", v->name,
                              show(key).text, id);
    if (!key.n) return adamod__refuse("%s: the token of id %.0f is empty", v->name, id);
    if (!byte_bpe_read_bytes(key, &v->token, &other))
        return adamod__refuse("%s: token '%s' has the character U+%04" PRIX32
                              ", which stands for no byte: expected a byte-level vocabulary, as GPT-2's",
                              v->name, show(key).text, other);
    if (!ARRAY_RESERVE(v->entries, v->n + 1, v->room)) return out_of_memory(v->name);
    v->entries[v->n++] = (entry){(int64_t)id, v->all.n, v->token.n};
    adamod__buffer_add(&v->all, v->token.text, v->token.n);
    return v->all.failed || v->token.failed ? out_of_memory(v->name) : 0;
}

static int read_entries(vocabulary *v, text_slice text) {
    json_input in = json_input_of(text.bytes, text.n);
    int status = 0;
    for (bool more = json_input_enter(&in, '{'); more && !status; more = json_input_next(&in, '}')) {
        json_input_key(&in, v->key, text.n + 1);
        const double id = json_input_number(&in);
        if (in.expected) break;
        status = add_entry(v, id);
    }
    if (status) return status;
    json_input_end(&in);
    if (in.expected)
        return adamod__refuse("%s: byte %zu: expected %s", v->name, (size_t)(in.at - in.begin) + 1, in.expected);
    return 0;
}

/* Ids must be 0 to n - 1, each once. */
static int sort_entries(vocabulary *v) {
    if (!v->n) return adamod__refuse("%s: no tokens", v->name);
    if (!(v->by_id = malloc((size_t)v->n * sizeof *v->by_id))) return out_of_memory(v->name);
    for (int64_t i = 0; i < v->n; i++) v->by_id[i] = -1;
    for (int64_t i = 0; i < v->n; i++) {
        const int64_t id = v->entries[i].id;
        if (id >= v->n)
            return adamod__refuse("%s: token '%s' has the id %" PRId64 ", expected ids from 0 to %" PRId64
                                  ", as there are %" PRId64 " tokens",
                                  v->name, show_bytes(bytes_of(v, i)).text, id, v->n - 1, v->n);
        if (v->by_id[id] >= 0)
            return adamod__refuse("%s: tokens '%s' and '%s' both have the id %" PRId64, v->name,
                                  show_bytes(bytes_of(v, v->by_id[id])).text, show_bytes(bytes_of(v, i)).text, id);
        v->by_id[id] = i;
    }
    return 0;
}

static int take_tokens(byte_bpe *b, const vocabulary *v) {
    for (int64_t id = 0; id < v->n; id++) {
        const text_slice token = bytes_of(v, v->by_id[id]);
        const int32_t number = strings_add(b->tokens, token);
        if (number < 0) return out_of_memory(v->name);
        if (number < id)
            return adamod__refuse("%s: token '%s' is there twice, with the ids %" PRId32 " and %" PRId64, v->name,
                                  show_bytes(token).text, number, id);
    }
    const int missing = byte_bpe_find_bytes(b);
    if (missing < 0) return 0;
    return adamod__refuse("%s: no token for the byte 0x%02x ('%s')", v->name, (unsigned)missing,
                          show_bytes((text_slice){&(char){(char)missing}, 1}).text);
}

static int parse_vocab(byte_bpe *b, text_slice text, const char *name) {
    vocabulary v = {.name = name, .key = malloc(text.n + 1)};
    int status = v.key ? 0 : out_of_memory(name);
    if (!status) status = read_entries(&v, text);
    if (!status) status = sort_entries(&v);
    if (!status) status = take_tokens(b, &v);
    free(v.entries);
    free(v.by_id);
    free(v.key);
    adamod__buffer_free(&v.all);
    adamod__buffer_free(&v.token);
    return status;
}

/* ---- merges.txt ---- */

typedef struct merge_list {
    const char *name;
    byte_bpe *b;
    int64_t line, first; /* first: the line of rank 0 */
    adamod__buffer part, both;
} merge_list;

/* The id of a part of a merge, whose bytes are added to `both`. */
static int part_id(merge_list *l, text_slice spelled, int32_t *id) {
    uint32_t other;
    *id = byte_bpe_read_bytes(spelled, &l->part, &other)
              ? strings_find(l->b->tokens, (text_slice){l->part.text, l->part.n})
              : -1;
    if (*id < 0)
        return adamod__refuse("%s:%" PRId64 ": '%s' is no token of the vocabulary", l->name, l->line,
                              show(spelled).text);
    adamod__buffer_add(&l->both, l->part.text, l->part.n);
    return 0;
}

static int add_merge(merge_list *l, text_slice line) {
    const char *space = line.n ? memchr(line.bytes, ' ', line.n) : NULL;
    const size_t n = space ? (size_t)(space - line.bytes) : 0;
    if (n == 0 || n + 1 == line.n || memchr(space + 1, ' ', line.n - n - 1))
        return adamod__refuse("%s:%" PRId64 ": expected two tokens with a space between", l->name, l->line);
    byte_bpe_merge m;
    l->both.n = 0;
    if (part_id(l, (text_slice){line.bytes, n}, &m.left)) return -1;
    if (part_id(l, (text_slice){space + 1, line.n - n - 1}, &m.right)) return -1;
    if (l->part.failed || l->both.failed) return out_of_memory(l->name);
    m.both = strings_find(l->b->tokens, (text_slice){l->both.text, l->both.n});
    if (m.both < 0)
        return adamod__refuse("%s:%" PRId64 ": '%s', which this merge makes, is no token of the vocabulary", l->name,
                              l->line, show_bytes((text_slice){l->both.text, l->both.n}).text);
    const int32_t next = l->b->n_merges, rank = byte_bpe_add_merge(l->b, m);
    if (rank < 0) return out_of_memory(l->name);
    if (rank < next)
        return adamod__refuse("%s:%" PRId64 ": the merge is already in line %" PRId64, l->name, l->line,
                              l->first + rank);
    return 0;
}

static bool is_in_brackets(text_slice token) {
    const char a = token.bytes[0], z = token.bytes[token.n - 1];
    return (a == '<' && z == '>') || (a == '[' && z == ']');
}

/* A token that no merge makes shows that the file was cut. The last line may have no end: some copies of GPT-2's file have
 * none. */
static int check_made(const merge_list *l) {
    const byte_bpe *b = l->b;
    const int32_t n = byte_bpe_size(b);
    bool *made = calloc((size_t)n, sizeof *made);
    if (!made) return out_of_memory(l->name);
    for (int32_t i = 0; i < b->n_merges; i++) made[b->merges[i].both] = true;
    int32_t id = 0;
    for (; id < n; id++) {
        const text_slice token = byte_bpe_token(b, id);
        if (token.n > 1 && !made[id] && !is_in_brackets(token)) break;
    }
    free(made);
    if (id == n) return 0;
    return adamod__refuse("%s: no merge makes token '%s' of the vocabulary (id %" PRId32
                          "): the file is cut short, or of "
                          "another vocabulary",
                          l->name, show_bytes(byte_bpe_token(b, id)).text, id);
}

static int parse_merges(byte_bpe *b, text_slice text, const char *name) {
    merge_list l = {.name = name, .b = b, .first = 1};
    const size_t n = sizeof "#version" - 1;
    int status = 0;
    text_slice line;
    if (text.n >= n && memcmp(text.bytes, "#version", n) == 0 && text_next_line(&text, &line)) l.first = 2;
    l.line = l.first - 1;
    while (!status && text.n) {
        l.line++;
        text_next_line(&text, &line);
        if (line.n && line.bytes[line.n - 1] == '\r') line.n--;
        status = add_merge(&l, line);
    }
    if (!status) status = check_made(&l);
    adamod__buffer_free(&l.part);
    adamod__buffer_free(&l.both);
    return status;
}

/* ---- both ---- */

int byte_bpe_parse(byte_bpe **out, text_slice vocab, const char *vocab_name, text_slice merges,
                   const char *merges_name) {
    byte_bpe *b = *out = byte_bpe_create();
    if (!b) return out_of_memory(vocab_name);
    if (!parse_vocab(b, vocab, vocab_name) && !parse_merges(b, merges, merges_name)) return 0;
    byte_bpe_free(b);
    *out = NULL;
    return -1;
}

static char *path_of(const char *directory, const char *name) {
    adamod__buffer path = {0};
    adamod__buffer_format(&path, "%s/%s", directory, name);
    if (path.failed) adamod__buffer_free(&path);
    return path.text;
}

/* transformers 5 saves a tokenizer as this file alone. */
static void explain_missing(const char *directory, const char *vocab) {
    if (access(vocab, F_OK) == 0 || access(path_join(directory, "tokenizer.json").text, F_OK) != 0) return;
    (void)adamod__refuse(
        "%s: no such file, only tokenizer.json: in Python, tokenizer.backend_tokenizer.model.save(DIR) "
        "writes it and merges.txt",
        vocab);
}

int byte_bpe_load(byte_bpe **out, const char *directory) {
    char *names[2] = {path_of(directory, "vocab.json"), path_of(directory, "merges.txt")}, *bytes[2] = {NULL, NULL};
    size_t n[2];
    *out = NULL;
    int status = names[0] && names[1] ? 0 : out_of_memory(directory);
    for (int i = 0; i < 2 && !status; i++) status = text_read(names[i], &bytes[i], &n[i]);
    if (status && names[0]) explain_missing(directory, names[0]);
    if (!status)
        status = byte_bpe_parse(out, (text_slice){bytes[0], n[0]}, names[0], (text_slice){bytes[1], n[1]}, names[1]);
    for (int i = 0; i < 2; i++) {
        free(names[i]);
        free(bytes[i]);
    }
    return status;
}

static int save_vocab(const byte_bpe *b, const char *path) {
    json j = {0};
    adamod__buffer token = {0};
    json_open(&j, '{');
    for (int32_t id = 0; id < byte_bpe_size(b); id++) {
        token.n = 0;
        byte_bpe_spell(byte_bpe_token(b, id), &token);
        if (!token.failed) json_pair_integer(&j, token.text, id);
    }
    json_close(&j, '}');
    j.failed |= token.failed;
    adamod__buffer_free(&token);
    return json_save(&j, path);
}

static int save_merges(const byte_bpe *b, const char *path) {
    adamod__buffer text = {0};
    adamod__buffer_format(&text, "%s\n", version);
    for (int32_t i = 0; i < b->n_merges; i++) {
        byte_bpe_spell(byte_bpe_token(b, b->merges[i].left), &text);
        adamod__buffer_text(&text, " ");
        byte_bpe_spell(byte_bpe_token(b, b->merges[i].right), &text);
        adamod__buffer_text(&text, "\n");
    }
    const int status = text.failed ? out_of_memory(path) : text_write(path, (text_slice){text.text, text.n});
    adamod__buffer_free(&text);
    return status;
}

int byte_bpe_save(const byte_bpe *b, const char *directory) {
    bool made;
    const int error = directory_make(directory, &made);
    if (error) return adamod__fail(ADAMOD_ERROR_IO, "%s: cannot make this directory: %s", directory, strerror(error));
    char *vocab = path_of(directory, "vocab.json"), *merges = path_of(directory, "merges.txt");
    int status = vocab && merges ? 0 : out_of_memory(directory);
    if (!status) status = save_vocab(b, vocab);
    if (!status) status = save_merges(b, merges);
    if (status && made) rmdir(directory); /* unless a file was written */
    free(vocab);
    free(merges);
    return status;
}
