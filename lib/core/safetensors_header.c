/* Safetensors: parses and checks the header. */
#include "core/safetensors_internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Header: JSON ------------------------------------------------------------------------------------------------ */

/* A parser for the one structure that a header can have: it does not recurse and skips nothing. */
typedef struct st_parser {
    const char *path; /* for messages */
    char *json;       /* file->text, where strings are decoded in place */
    size_t len, pos;
    const char *tensor; /* being parsed, for messages */
    adamod__st_file *file;
    size_t max_entries, max_metadata;
    int metadata_seen, sum_seen;
    const char *sums; /* checksums of the tensors, in the order of their data; NULL: there are none */
} st_parser;

static adamod_status st_malformed(const st_parser *ps, const char *format, ...) __attribute__((format(printf, 2, 3)));

static adamod_status st_malformed(const st_parser *ps, const char *format, ...) {
    char text[256];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!ps->tensor) return adamod__st_malformed(ps->path, "header byte %zu: %s", ps->pos, text);
    return adamod__st_malformed(ps->path, "header byte %zu, tensor \"%s\": %s", ps->pos,
                                adamod__st_quote(ps->tensor).text, text);
}

static adamod_status st_unexpected(const st_parser *ps, const char *expected) {
    if (ps->pos >= ps->len) return st_malformed(ps, "expected %s, found the end of the header", expected);
    unsigned char c = (unsigned char)ps->json[ps->pos];
    if (c <= 0x20 || c >= 0x7f) return st_malformed(ps, "expected %s, found byte 0x%02x", expected, c);
    return st_malformed(ps, "expected %s, found '%c'", expected, c);
}

static void st_skip_space(st_parser *ps) {
    while (ps->pos < ps->len && memchr(" \t\n\r", ps->json[ps->pos], 4)) ps->pos++;
}

static int st_at(const st_parser *ps, char c) { return ps->pos < ps->len && ps->json[ps->pos] == c; }

static adamod_status st_expect(st_parser *ps, char c) {
    st_skip_space(ps);
    if (!st_at(ps, c)) return st_unexpected(ps, (const char[]){'\'', c, '\'', '\0'});
    ps->pos++;
    return ADAMOD_OK;
}

/* Before item n of an object or array: stores in *more whether there is one, and reads the comma or closing bracket. */
static adamod_status st_next_item(st_parser *ps, char closing, size_t n, int *more) {
    st_skip_space(ps);
    *more = !st_at(ps, closing);
    if (!*more || (n && st_at(ps, ','))) ps->pos++;
    else if (n) return st_unexpected(ps, closing == '}' ? "',' or '}'" : "',' or ']'");
    return ADAMOD_OK;
}

static adamod_status st_parse_hex4(st_parser *ps, uint32_t *out) {
    *out = 0;
    for (int i = 0; i < 4; i++, ps->pos++) {
        static const char digits[] = "0123456789abcdef0123456789ABCDEF";
        const char *digit = ps->pos < ps->len ? memchr(digits, ps->json[ps->pos], 32) : NULL;
        if (!digit) return st_unexpected(ps, "four hexadecimal digits after \\u");
        *out = *out << 4 | (uint32_t)((digit - digits) & 15);
    }
    return ADAMOD_OK;
}

/* Reads one character after "\u"; a surrogate needs a second escape. */
static adamod_status st_parse_unicode(st_parser *ps, uint32_t *out) {
    uint32_t low = 0;
    ADAMOD__TRY(st_parse_hex4(ps, out));
    if (*out == 0) return st_malformed(ps, "the character U+0000 is not allowed");
    if (*out < 0xd800 || *out > 0xdfff) return ADAMOD_OK;
    if (*out > 0xdbff || ps->len - ps->pos < 2 || memcmp(ps->json + ps->pos, "\\u", 2))
        return st_malformed(ps, "lone surrogate \\u%04" PRIx32, *out);
    ps->pos += 2;
    ADAMOD__TRY(st_parse_hex4(ps, &low));
    if (low < 0xdc00 || low > 0xdfff) return st_malformed(ps, "lone surrogate \\u%04" PRIx32, *out);
    *out = 0x10000 + ((*out - 0xd800) << 10) + (low - 0xdc00);
    return ADAMOD_OK;
}

static adamod_status st_parse_escape(st_parser *ps, uint32_t *out) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    ps->pos++;
    if (st_at(ps, 'u')) {
        ps->pos++;
        return st_parse_unicode(ps, out);
    }
    const char *found = ps->pos < ps->len ? memchr(from, ps->json[ps->pos], sizeof from - 1) : NULL;
    if (!found) return st_unexpected(ps, "one of \"\\/bfnrtu after a backslash");
    *out = (unsigned char)to[found - from];
    ps->pos++;
    return ADAMOD_OK;
}

/* Decodes in place: no escape is shorter than its UTF-8, and the closing quote leaves room for the terminating 0. */
static adamod_status st_parse_string(st_parser *ps, const char *expected, const char **out) {
    st_skip_space(ps);
    if (!st_at(ps, '"')) return st_unexpected(ps, expected);
    ps->pos++;
    char *start = ps->json + ps->pos, *to = start;
    while (!st_at(ps, '"')) {
        if (ps->pos == ps->len) return st_unexpected(ps, "'\"' to end a string");
        if (st_at(ps, '\\')) {
            uint32_t c = 0;
            ADAMOD__TRY(st_parse_escape(ps, &c));
            to += adamod__utf8_encode(c, to);
            continue;
        }
        size_t n = adamod__utf8_length(ps->json + ps->pos, ps->len - ps->pos);
        if (!n) return st_malformed(ps, "invalid UTF-8");
        if ((unsigned char)ps->json[ps->pos] < 0x20) return st_unexpected(ps, "a control character to be escaped");
        memmove(to, ps->json + ps->pos, n);
        to += n;
        ps->pos += n;
    }
    ps->pos++;
    *to = '\0';
    *out = start;
    return ADAMOD_OK;
}

static adamod_status st_parse_integer(st_parser *ps, uint64_t max, uint64_t *out) {
    st_skip_space(ps);
    size_t start = ps->pos;
    uint64_t value = 0;
    for (; ps->pos < ps->len && ps->json[ps->pos] >= '0' && ps->json[ps->pos] <= '9'; ps->pos++) {
        unsigned digit = (unsigned)(ps->json[ps->pos] - '0');
        if (value > (max - digit) / 10) return st_malformed(ps, "a number is above %" PRIu64, max);
        value = value * 10 + digit;
    }
    if (ps->pos == start) return st_unexpected(ps, "a non-negative integer");
    if (ps->json[start] == '0' && ps->pos - start > 1) return st_malformed(ps, "a number has a leading zero");
    if (st_at(ps, '.') || st_at(ps, 'e') || st_at(ps, 'E')) return st_unexpected(ps, "an integer to end");
    *out = value;
    return ADAMOD_OK;
}

/* ---- Header: its members ----------------------------------------------------------------------------------------- */

static adamod_status st_parse_dtype(st_parser *ps, adamod__st_entry *entry) {
    const char *name = "";
    ADAMOD__TRY(st_parse_string(ps, "a string for dtype", &name));
    for (int i = 0; i < ADAMOD__ST_DTYPES; i++) {
        if (strcmp(name, adamod__st_dtype_name((adamod__st_dtype)i))) continue;
        entry->dtype = (adamod__st_dtype)i;
        return ADAMOD_OK;
    }
    return st_malformed(ps, "unknown dtype \"%s\"", adamod__st_quote(name).text);
}

static adamod_status st_parse_shape(st_parser *ps, adamod__st_entry *entry) {
    ADAMOD__TRY(st_expect(ps, '['));
    for (int n = 0;; n++) {
        int more = 0;
        uint64_t dim = 0;
        ADAMOD__TRY(st_next_item(ps, ']', (size_t)n, &more));
        entry->ndim = n;
        if (!more) return ADAMOD_OK;
        if (n == ADAMOD_MAX_DIMS) return st_malformed(ps, "shape has more than %d dimensions", ADAMOD_MAX_DIMS);
        ADAMOD__TRY(st_parse_integer(ps, INT64_MAX, &dim));
        entry->shape[n] = (int64_t)dim;
    }
}

static adamod_status st_parse_offsets(st_parser *ps, adamod__st_entry *entry) {
    ADAMOD__TRY(st_expect(ps, '['));
    ADAMOD__TRY(st_parse_integer(ps, UINT64_MAX, &entry->begin));
    ADAMOD__TRY(st_expect(ps, ','));
    ADAMOD__TRY(st_parse_integer(ps, UINT64_MAX, &entry->end));
    return st_expect(ps, ']');
}

static adamod_status st_parse_fields(st_parser *ps, adamod__st_entry *entry) {
    static const struct {
        const char *name;
        adamod_status (*parse)(st_parser *ps, adamod__st_entry *entry);
    } fields[] = {{"dtype", st_parse_dtype}, {"shape", st_parse_shape}, {"data_offsets", st_parse_offsets}};
    int seen[3] = {0};
    ADAMOD__TRY(st_expect(ps, '{'));
    for (size_t n = 0;; n++) {
        int more = 0, i = 0;
        const char *key = "";
        ADAMOD__TRY(st_next_item(ps, '}', n, &more));
        if (!more) break;
        ADAMOD__TRY(st_parse_string(ps, "a field's name", &key));
        while (i < 3 && strcmp(key, fields[i].name)) i++;
        if (i == 3) return st_malformed(ps, "unknown field \"%s\"", adamod__st_quote(key).text);
        if (seen[i]++) return st_malformed(ps, "%s is given twice", key);
        ADAMOD__TRY(st_expect(ps, ':'));
        ADAMOD__TRY(fields[i].parse(ps, entry));
    }
    for (int i = 0; i < 3; i++)
        if (!seen[i]) return st_malformed(ps, "%s is missing", fields[i].name);
    return ADAMOD_OK;
}

/* Makes room for one more element in items, which has room for *max and uses n. */
static void *st_grow(void *items, size_t n, size_t *max, size_t size) {
    if (n < *max) return items;
    size_t new_max = *max ? *max * 2 : 16;
    void *bigger = new_max > SIZE_MAX / size ? NULL : realloc(items, new_max * size);
    if (bigger) *max = new_max;
    return bigger;
}

static adamod_status st_check_entry(const char *path, const adamod__st_entry *e, uint64_t data_size) {
    st_quoted name = adamod__st_quote(e->name);
    uint64_t bytes;
    if (e->begin > e->end || e->end > data_size)
        return adamod__st_malformed(path,
                                    "tensor \"%s\": data_offsets [%" PRIu64 ", %" PRIu64
                                    "] are not a range within %" PRIu64 " bytes of data",
                                    name.text, e->begin, e->end, data_size);
    const char *why = adamod__st_tensor_bytes(e->dtype, e->ndim, e->shape, &bytes);
    if (why) return adamod__st_malformed(path, "tensor \"%s\": %s", name.text, why);
    if (bytes != e->end - e->begin)
        return adamod__st_malformed(path,
                                    "tensor \"%s\": data_offsets [%" PRIu64 ", %" PRIu64 "] hold %" PRIu64
                                    " bytes, shape and dtype %s need %" PRIu64,
                                    name.text, e->begin, e->end, e->end - e->begin, adamod__st_dtype_name(e->dtype),
                                    bytes);
    return ADAMOD_OK;
}

static adamod_status st_parse_tensor(st_parser *ps, const char *name, uint64_t data_size) {
    adamod__st_file *file = ps->file;
    void *entries = st_grow(file->entries, file->n_entries, &ps->max_entries, sizeof *file->entries);
    if (!entries) return adamod__st_fail_memory(ps->path);
    file->entries = entries;
    adamod__st_entry *entry = &file->entries[file->n_entries];
    *entry = (adamod__st_entry){.name = name};
    ps->tensor = name;
    ADAMOD__TRY(st_parse_fields(ps, entry));
    ps->tensor = NULL;
    ADAMOD__TRY(st_check_entry(ps->path, entry, data_size));
    file->n_entries++;
    return ADAMOD_OK;
}

static adamod_status st_parse_metadata(st_parser *ps) {
    adamod__st_file *file = ps->file;
    if (ps->metadata_seen++) return st_malformed(ps, "__metadata__ is given twice");
    ADAMOD__TRY(st_expect(ps, '{'));
    for (size_t n = 0;; n++) {
        int more = 0;
        ADAMOD__TRY(st_next_item(ps, '}', n, &more));
        if (!more) return ADAMOD_OK;
        void *pairs = st_grow(file->metadata, file->n_metadata, &ps->max_metadata, sizeof *file->metadata);
        if (!pairs) return adamod__st_fail_memory(ps->path);
        file->metadata = pairs;
        adamod__st_pair *pair = &file->metadata[file->n_metadata];
        ADAMOD__TRY(st_parse_string(ps, "a key of __metadata__", &pair->key));
        ADAMOD__TRY(st_expect(ps, ':'));
        ADAMOD__TRY(st_parse_string(ps, "a string as a value of __metadata__", &pair->value));
        if (!strcmp(pair->key, ADAMOD__ST_SUM)) {
            if (ps->sum_seen++) return st_malformed(ps, "__metadata__ has \"%s\" twice", pair->key);
        } else if (!strcmp(pair->key, ADAMOD__ST_SUMS)) {
            if (ps->sums) return st_malformed(ps, "__metadata__ has \"%s\" twice", pair->key);
            ps->sums = pair->value;
        } else {
            file->n_metadata++;
        }
    }
}

static adamod_status st_parse_header(st_parser *ps, uint64_t data_size) {
    if (!st_at(ps, '{')) return st_unexpected(ps, "'{'");
    ps->pos++;
    for (size_t n = 0;; n++) {
        int more = 0;
        const char *name = "";
        ADAMOD__TRY(st_next_item(ps, '}', n, &more));
        if (!more) break;
        ADAMOD__TRY(st_parse_string(ps, "a tensor's name", &name));
        ADAMOD__TRY(st_expect(ps, ':'));
        if (!strcmp(name, "__metadata__")) ADAMOD__TRY(st_parse_metadata(ps));
        else ADAMOD__TRY(st_parse_tensor(ps, name, data_size));
    }
    while (st_at(ps, ' ')) ps->pos++;
    return ps->pos == ps->len ? ADAMOD_OK : st_unexpected(ps, "nothing but spaces after the last '}'");
}

/* ---- Header: checksums -------------------------------------------------------------------------------------------- */

/* Accepts lower case only: with upper case, a changed bit could pass. */
static int st_parse_sum(const char *text, uint32_t *out) {
    *out = 0;
    for (int i = 0; i < 8; i++) {
        static const char digits[] = "0123456789abcdef";
        const char *digit = memchr(digits, text[i], 16);
        if (!digit) return 0;
        *out = *out << 4 | (uint32_t)(digit - digits);
    }
    return 1;
}

/* Finds the digits of the header's own checksum; NULL if there are none. Quotes within strings are escaped, so a match can
 * only be a key and its value. */
static char *st_find_sum(char *json, size_t len) {
    static const char key[] = "\"" ADAMOD__ST_SUM "\":\"";
    char *found = memmem(json, len, key, sizeof key - 1), *digits = found ? found + sizeof key - 1 : NULL;
    return digits && (size_t)(json + len - digits) > 8 && digits[8] == '"' ? digits : NULL;
}

/* Runs before the header is parsed. */
static adamod_status st_check_sum(const char *path, char *json, size_t len, int *present) {
    char *digits = st_find_sum(json, len), length[8];
    uint32_t expected;
    *present = digits != NULL;
    if (!digits) return ADAMOD_OK;
    const size_t before = (size_t)(digits - json);
    for (int i = 0; i < 8; i++) length[i] = (char)(unsigned char)((uint64_t)len >> (8 * i) & 0xff);
    uint32_t sum = adamod__crc32(0, length, 8);
    sum = adamod__crc32(sum, json, before);
    sum = adamod__crc32(sum, "00000000", 8);
    sum = adamod__crc32(sum, digits + 8, len - before - 8);
    if (st_parse_sum(digits, &expected) && !ADAMOD__ST_DIFFER(sum, expected)) return ADAMOD_OK;
    return adamod__st_malformed(path, "damaged: the header's CRC-32 is %08" PRIx32 ", its " ADAMOD__ST_SUM " says '%s'",
                                sum,
                                adamod__st_quote((const char[]){digits[0], digits[1], digits[2], digits[3], digits[4],
                                                                digits[5], digits[6], digits[7], '\0'})
                                    .text);
}

/* Requires both checksums or none, so that no changed bit can turn a file into one without checksums. */
static adamod_status st_check_sums(const st_parser *ps, int sum_found) {
    const adamod__st_file *file = ps->file;
    uint32_t sum;
    if (!sum_found && !ps->sum_seen && !ps->sums) return ADAMOD_OK;
    if (!sum_found || !ps->sum_seen || !ps->sums)
        return adamod__st_malformed(ps->path, "damaged: __metadata__ has one of " ADAMOD__ST_SUM " and " ADAMOD__ST_SUMS
                                              ", expected both or none");
    size_t n = strlen(ps->sums), good = 0;
    while (good < n / 8 && st_parse_sum(ps->sums + 8 * good, &sum)) good++;
    if (n == 8 * file->n_entries && good == file->n_entries) return ADAMOD_OK;
    return adamod__st_malformed(ps->path, "damaged: " ADAMOD__ST_SUMS " is not 8 digits for each of %zu tensors",
                                file->n_entries);
}

/* Entries are sorted by the position of their data here. */
static void st_take_sums(st_parser *ps) {
    ps->file->summed = ps->sums != NULL;
    for (size_t i = 0; ps->sums && i < ps->file->n_entries; i++) {
        (void)st_parse_sum(ps->sums + 8 * i, &ps->file->entries[i].sum);
    }
}

/* ---- Header: the whole ------------------------------------------------------------------------------------------- */

static int st_compare_offsets(const void *a, const void *b) {
    const adamod__st_entry *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

static int st_compare_names(const void *a, const void *b) {
    return strcmp(((const adamod__st_entry *)a)->name, ((const adamod__st_entry *)b)->name);
}

/* The tensors must cover the data from first byte to last without holes or overlaps. */
static adamod_status st_check_layout(const char *path, adamod__st_file *file, uint64_t data_size) {
    uint64_t end = 0;
    adamod__st_sort(file->entries, file->n_entries, sizeof *file->entries, st_compare_offsets);
    for (size_t i = 0; i < file->n_entries; i++) {
        const adamod__st_entry *e = &file->entries[i];
        if (e->begin != end)
            return adamod__st_malformed(
                path, "tensor \"%s\": begins at byte %" PRIu64 " of the data and %s, expected %" PRIu64,
                adamod__st_quote(e->name).text, e->begin, e->begin < end ? "overlaps the one before" : "leaves a hole",
                end);
        end = e->end;
    }
    if (end != data_size)
        return adamod__st_malformed(
            path, "the tensors end at byte %" PRIu64 " of the data, which has %" PRIu64 " bytes", end, data_size);
    return ADAMOD_OK;
}

static adamod_status st_check_names(const char *path, adamod__st_file *file) {
    adamod__st_sort(file->entries, file->n_entries, sizeof *file->entries, st_compare_names);
    for (size_t i = 1; i < file->n_entries; i++)
        if (!st_compare_names(&file->entries[i - 1], &file->entries[i]))
            return adamod__st_malformed(path, "tensor \"%s\" appears twice",
                                        adamod__st_quote(file->entries[i].name).text);
    adamod__st_sort(file->metadata, file->n_metadata, sizeof *file->metadata, adamod__st_compare_keys);
    for (size_t i = 1; i < file->n_metadata; i++)
        if (!adamod__st_compare_keys(&file->metadata[i - 1], &file->metadata[i]))
            return adamod__st_malformed(path, "__metadata__ has \"%s\" twice",
                                        adamod__st_quote(file->metadata[i].key).text);
    return ADAMOD_OK;
}

const adamod__st_entry *adamod__st_find(const adamod__st_file *file, const char *name) {
    adamod__st_entry key = {.name = name};
    if (!file->n_entries) return NULL;
    return bsearch(&key, file->entries, file->n_entries, sizeof key, st_compare_names);
}

const char *adamod__st_metadata(const adamod__st_file *file, const char *key) {
    adamod__st_pair wanted = {.key = key};
    if (!file->n_metadata) return NULL;
    const adamod__st_pair *pair =
        bsearch(&wanted, file->metadata, file->n_metadata, sizeof wanted, adamod__st_compare_keys);
    return pair ? pair->value : NULL;
}

adamod_status adamod__st_parse_text(const char *path, char *json, size_t len, uint64_t data_size,
                                    adamod__st_file *file) {
    st_parser ps = {.path = path, .json = json, .len = len, .file = file};
    int sum_found = 0;
    file->text = json;
    if (!len) return adamod__st_malformed(path, "the header is empty");
    ADAMOD__TRY(st_check_sum(path, json, len, &sum_found));
    ADAMOD__TRY(st_parse_header(&ps, data_size));
    ADAMOD__TRY(st_check_sums(&ps, sum_found));
    ADAMOD__TRY(st_check_layout(path, file, data_size));
    st_take_sums(&ps);
    return st_check_names(path, file);
}
