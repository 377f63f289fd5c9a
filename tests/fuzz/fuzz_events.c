/* libFuzzer target: trainer/train/tfevents.c, on records of any tags and numbers, in a file that was cut or damaged anywhere, and
 * on files of any bytes.
 *
 * An input is one byte that says what happens to the file, two that say where, and then records: a byte each for what it
 * has, and the bytes of that. Resuming a run asks how much of a file is whole, and cuts it there.
 *
 * SPDX-License-Identifier: MIT
 */
#include "fuzz.h"
#include "train/tfevents.h"

#include <sys/mman.h>

typedef struct input {
    const uint8_t *data;
    size_t size;
} input;

static unsigned take(input *in) {
    if (!in->size) return 0;
    in->size--;
    return *in->data++;
}

static double take_number(input *in) {
    double x;
    unsigned char bytes[sizeof x];
    for (size_t i = 0; i < sizeof x; i++) bytes[i] = (unsigned char)take(in);
    memcpy(&x, bytes, sizeof x);
    return x;
}

static const char *take_text(input *in) {
    static char text[256];
    const unsigned n = take(in) % sizeof text;
    for (unsigned i = 0; i < n; i++) text[i] = (char)take(in);
    text[n] = '\0';
    return text;
}

/* ---- protocol buffers, as any reader of them sees the records ---- */

static uint64_t read_varint(input *in) {
    uint64_t x = 0;
    for (int shift = 0;; shift += 7) {
        require(in->size > 0 && shift < 70);
        const unsigned byte = take(in);
        x |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) return x;
    }
}

/* Checks that every field ends within its message. Fields of bytes may be messages: event.summary is 5, .value 1,
 * .histo 5. */
static void check_message(input in, int depth) {
    static const unsigned nested[] = {5, 1, 5};
    while (in.size > 0) {
        const uint64_t key = read_varint(&in), field = key >> 3;
        uint64_t n = 0;
        require(field > 0);
        switch (key & 7) {
            case 0: read_varint(&in); break;
            case 1: n = 8; break;
            case 2: n = read_varint(&in); break;
            case 5: n = 4; break;
            default: abort();
        }
        require(n <= in.size);
        if ((key & 7) == 2 && depth < 3 && field == nested[depth])
            check_message((input){in.data, (size_t)n}, depth + 1);
        in.data += n;
        in.size -= (size_t)n;
    }
}

/* ---- a file ---- */

enum { MOST_RECORDS = 32, MOST_BINS = 16, HEADER = 12, FOOTER = 4 };

static void add_value(tfevents *e, input *in) {
    const unsigned what = take(in);
    int64_t counts[MOST_BINS];
    if (what % 2) {
        tfevents_scalar(e, take_text(in), take_number(in));
        return;
    }
    tfevents_histogram h = {.counts = counts, .bins = 1 + (int)(what / 2 % MOST_BINS)};
    h.low = take_number(in), h.width = take_number(in), h.least = take_number(in), h.most = take_number(in);
    for (int i = 0; i < h.bins; i++) counts[i] = (int64_t)take(in) << take(in) % 48;
    tfevents_add_histogram(e, take_text(in), &h);
}

/* Writes records; ends[]: the offset of each one's end. */
static int make_records(tfevents *e, input *in, size_t ends[MOST_RECORDS]) {
    int n = 0;
    tfevents_version(e, take_number(in));
    ends[n++] = e->bytes.n;
    for (; in->size > 0 && n < MOST_RECORDS; n++) {
        const double now = take_number(in);
        const int64_t step = (int64_t)take(in) << take(in) % 56;
        tfevents_begin(e, now, step);
        for (unsigned k = take(in) % 4; k > 0; k--) add_value(e, in);
        tfevents_end(e);
        ends[n] = e->bytes.n;
    }
    require(!e->bytes.failed);
    return n;
}

static void check_records(const tfevents *e, const size_t *ends, int n) {
    size_t start = 0;
    for (int i = 0; i < n; start = ends[i++]) {
        require(ends[i] >= start + HEADER + FOOTER);
        check_message((input){(const uint8_t *)e->bytes.text + start + HEADER, ends[i] - start - HEADER - FOOTER}, 0);
    }
}

static int64_t whole(const void *bytes, size_t n, int64_t *first) {
    static int fd = -1;
    if (fd < 0) fd = memfd_create("events", 0);
    require(fd >= 0 && ftruncate(fd, 0) == 0 && pwrite(fd, bytes, n, 0) == (ssize_t)n);
    return tfevents_whole(fd, first);
}

/* The records before the one with that byte. */
static int64_t before(const size_t *ends, int n, size_t at) {
    int64_t size = 0;
    for (int i = 0; i < n && ends[i] <= at; i++) size = (int64_t)ends[i];
    return size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    tfevents e = {0};
    size_t ends[MOST_RECORDS];
    int64_t first = -1;
    input in = {data, size};
    const unsigned what = take(&in), high = take(&in), where = high << 8 | take(&in);
    const int64_t any = whole(in.data, in.size, &first);
    require(any >= 0 && any <= (int64_t)in.size && first >= 0 && first <= any);
    const int n = make_records(&e, &in, ends);
    check_records(&e, ends, n);
    require(whole(e.bytes.text, e.bytes.n, &first) == (int64_t)e.bytes.n && first == (int64_t)ends[0]);
    const size_t at = where % e.bytes.n;
    require(whole(e.bytes.text, at, NULL) == before(ends, n, at));
    e.bytes.text[at] ^= (char)(1 + what % 255);
    require(whole(e.bytes.text, e.bytes.n, NULL) == before(ends, n, at));
    tfevents_free(&e);
    return 0;
}
