/* tfevents.h - records of TensorBoard's event files, made in memory.
 *
 * A file is a sequence of TFRecords: length of the data (8 bytes, little-endian), its masked CRC-32C (4), the data, its
 * masked CRC-32C (4). The data are an Event as a protocol buffer; the first one has the format's version.
 *
 *     tfevents e = {0};
 *     tfevents_version(&e, now);                       // once, at the beginning of a file
 *     tfevents_begin(&e, now, step);
 *     tfevents_scalar(&e, "train/loss", 0.5);
 *     tfevents_end(&e);
 *     write(fd, e.bytes.text, e.bytes.n); */
#pragma once

#include "core/buffer.h"

#include <stdint.h>

typedef struct tfevents {
    adamod__buffer bytes;
    size_t record, summary; /* begin of the current record and of its summary */
} tfevents;

void tfevents_free(tfevents *e);

/* wall_time is seconds since 1970. */
void tfevents_version(tfevents *e, double wall_time);
/* A record with the values of one step. */
void tfevents_begin(tfevents *e, double wall_time, int64_t step);
void tfevents_scalar(tfevents *e, const char *tag, double value);
/* counts[i] values lie between low + i width and low + (i + 1) width, all of them between least and most. */
typedef struct tfevents_histogram {
    double low, width, least, most;
    const int64_t *counts;
    int bins;
} tfevents_histogram;
void tfevents_add_histogram(tfevents *e, const char *tag, const tfevents_histogram *h);
void tfevents_end(tfevents *e);

/* Bytes of the undamaged records at the beginning of a file and, unless first is NULL, of the first one; -1: the file could
 * not be read. */
int64_t tfevents_whole(int fd, int64_t *first);

uint32_t tfevents_crc32c(const void *data, size_t n);
