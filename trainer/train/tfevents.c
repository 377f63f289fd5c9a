/* Fields are those of tensorflow/core/util/event.proto and framework/summary.proto. */
#include "train/tfevents.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { EVENT_WALL_TIME = 1, EVENT_STEP = 2, EVENT_FILE_VERSION = 3, EVENT_SUMMARY = 5 };
enum { SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_SIMPLE = 2, VALUE_HISTOGRAM = 5 };
enum { HISTO_MIN = 1, HISTO_MAX, HISTO_NUM, HISTO_SUM, HISTO_SUM_SQUARES, HISTO_LIMITS, HISTO_COUNTS };
enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };
enum { HEADER = 12, FOOTER = 4 };

/* ---- CRC-32C (Castagnoli), four bits at a time ------------------------------------------------------------------- */

static uint32_t crc_add(uint32_t crc, const void *data, size_t n) {
    static const uint32_t table[16] = {0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3,
                                       0x61c69362, 0x7198540d, 0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
                                       0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75};
    const unsigned char *p = data;
    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        crc = crc >> 4 ^ table[crc & 15];
        crc = crc >> 4 ^ table[crc & 15];
    }
    return crc;
}

uint32_t tfevents_crc32c(const void *data, size_t n) { return ~crc_add(~0u, data, n); }

/* TFRecord's mask, for data that contain checksums. */
static uint32_t masked(uint32_t crc) { return (crc >> 15 | crc << 17) + 0xa282ead8u; }

/* ---- Bytes ------------------------------------------------------------------------------------------------------- */

void tfevents_free(tfevents *e) { adamod__buffer_free(&e->bytes); }

static void add(tfevents *e, const void *data, size_t n) { adamod__buffer_add(&e->bytes, data, n); }

static void put_little(unsigned char *out, uint64_t x, int bytes) {
    for (int i = 0; i < bytes; i++) out[i] = (unsigned char)(x >> (8 * i));
}

static uint64_t get_little(const unsigned char *in, int bytes) {
    uint64_t x = 0;
    for (int i = 0; i < bytes; i++) x |= (uint64_t)in[i] << (8 * i);
    return x;
}

static void add_little(tfevents *e, uint64_t x, int bytes) {
    unsigned char b[8];
    put_little(b, x, bytes);
    add(e, b, (size_t)bytes);
}

/* ---- Protocol buffers -------------------------------------------------------------------------------------------- */

static int varint(uint64_t x, unsigned char out[10]) {
    int n = 0;
    for (; x >= 0x80; x >>= 7) out[n++] = (unsigned char)(x | 0x80);
    out[n++] = (unsigned char)x;
    return n;
}

static void add_varint(tfevents *e, uint64_t x) {
    unsigned char b[10];
    add(e, b, (size_t)varint(x, b));
}

static void add_field(tfevents *e, int field, int wire) { add_varint(e, (uint64_t)(field << 3 | wire)); }

static void add_bare_double(tfevents *e, double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    add_little(e, bits, 8);
}

static void add_double(tfevents *e, int field, double x) {
    add_field(e, field, WIRE_64);
    add_bare_double(e, x);
}

static void add_text(tfevents *e, int field, const char *text) {
    add_field(e, field, WIRE_BYTES);
    add_varint(e, strlen(text));
    add(e, text, strlen(text));
}

/* A message or packed numbers: begin_nested returns the start of the content, end_nested inserts the length before it. */
static size_t begin_nested(tfevents *e, int field) {
    add_field(e, field, WIRE_BYTES);
    return e->bytes.n;
}

static void end_nested(tfevents *e, size_t start) {
    unsigned char length[10];
    const size_t content = e->bytes.n - start, n = (size_t)varint(content, length);
    add(e, length, n);
    if (e->bytes.failed) return;
    memmove(e->bytes.text + start + n, e->bytes.text + start, content);
    memcpy(e->bytes.text + start, length, n);
}

/* ---- Records ----------------------------------------------------------------------------------------------------- */

static void begin_record(tfevents *e, double wall_time) {
    e->record = e->bytes.n;
    const unsigned char header[HEADER] = {0};
    add(e, header, sizeof header);
    add_double(e, EVENT_WALL_TIME, wall_time);
}

static void end_record(tfevents *e) {
    if (e->bytes.failed) return;
    unsigned char *header = (unsigned char *)e->bytes.text + e->record;
    const size_t n = e->bytes.n - e->record - HEADER;
    put_little(header, n, 8);
    put_little(header + 8, masked(tfevents_crc32c(header, 8)), 4);
    add_little(e, masked(tfevents_crc32c(header + HEADER, n)), FOOTER);
}

void tfevents_version(tfevents *e, double wall_time) {
    begin_record(e, wall_time);
    add_text(e, EVENT_FILE_VERSION, "brain.Event:2");
    end_record(e);
}

void tfevents_begin(tfevents *e, double wall_time, int64_t step) {
    begin_record(e, wall_time);
    add_field(e, EVENT_STEP, WIRE_VARINT);
    add_varint(e, (uint64_t)step);
    e->summary = begin_nested(e, EVENT_SUMMARY);
}

void tfevents_end(tfevents *e) {
    end_nested(e, e->summary);
    end_record(e);
}

void tfevents_scalar(tfevents *e, const char *tag, double value) {
    const float narrow = (float)value;
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof bits);
    const size_t start = begin_nested(e, SUMMARY_VALUE);
    add_text(e, VALUE_TAG, tag);
    add_field(e, VALUE_SIMPLE, WIRE_32);
    add_little(e, bits, 4);
    end_nested(e, start);
}

/* Leaves out empty bins at both ends; one bin always stays. */
static void add_bins(tfevents *e, const tfevents_histogram *h) {
    int first = 0, last = h->bins - 1;
    while (first < last && !h->counts[first]) first++;
    while (first < last && !h->counts[last]) last--;
    size_t start = begin_nested(e, HISTO_LIMITS);
    for (int i = first; i <= last; i++) add_bare_double(e, h->low + (i + 1) * h->width);
    end_nested(e, start);
    start = begin_nested(e, HISTO_COUNTS);
    for (int i = first; i <= last; i++) add_bare_double(e, (double)h->counts[i]);
    end_nested(e, start);
}

void tfevents_add_histogram(tfevents *e, const char *tag, const tfevents_histogram *h) {
    double n = 0, sum = 0, squares = 0;
    for (int i = 0; i < h->bins; i++) { /* each value counts as the middle of its bin */
        const double middle = h->low + (i + 0.5) * h->width, count = (double)h->counts[i];
        n += count;
        sum += count * middle;
        squares += count * middle * middle;
    }
    const size_t start = begin_nested(e, SUMMARY_VALUE);
    add_text(e, VALUE_TAG, tag);
    const size_t histogram = begin_nested(e, VALUE_HISTOGRAM);
    add_double(e, HISTO_MIN, h->least);
    add_double(e, HISTO_MAX, h->most);
    add_double(e, HISTO_NUM, n);
    add_double(e, HISTO_SUM, sum);
    add_double(e, HISTO_SUM_SQUARES, squares);
    add_bins(e, h);
    end_nested(e, histogram);
    end_nested(e, start);
}

/* ---- Reading back ------------------------------------------------------------------------------------------------ */

/* Reads n bytes: 1; 0: there are fewer; -1: an error. */
static int read_at(int fd, void *out, size_t n, int64_t at) {
    for (size_t done = 0; done < n;) {
        const ssize_t got = pread(fd, (char *)out + done, n - done, (off_t)at + (off_t)done);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return (int)got;
        done += (size_t)got;
    }
    return 1;
}

/* The size of the record at an offset; 0: it is not whole; -1: an error. */
static int64_t record_at(int fd, int64_t at) {
    unsigned char header[HEADER], footer[FOOTER], block[4096];
    int status = read_at(fd, header, sizeof header, at);
    if (status <= 0) return status;
    const uint64_t n = get_little(header, 8);
    if (get_little(header + 8, 4) != masked(tfevents_crc32c(header, 8)) || n > (uint64_t)1 << 31) return 0;
    uint32_t crc = ~0u;
    for (uint64_t done = 0; done < n;) {
        const size_t part = n - done < sizeof block ? (size_t)(n - done) : sizeof block;
        if ((status = read_at(fd, block, part, at + HEADER + (int64_t)done)) <= 0) return status;
        crc = crc_add(crc, block, part);
        done += part;
    }
    if ((status = read_at(fd, footer, sizeof footer, at + HEADER + (int64_t)n)) <= 0) return status;
    return get_little(footer, 4) == masked(~crc) ? HEADER + (int64_t)n + FOOTER : 0;
}

int64_t tfevents_whole(int fd, int64_t *first) {
    int64_t size = 0, record;
    if (first) *first = 0;
    while ((record = record_at(fd, size)) > 0) {
        if (first && !size) *first = record;
        size += record;
    }
    return record < 0 ? -1 : size;
}
