/* safetensors_internal.h - shared by the files that read and write safetensors. */
#ifndef ADAMOD_SAFETENSORS_INTERNAL_H
#define ADAMOD_SAFETENSORS_INTERNAL_H

#include "core/crc32.h"
#include "core/error.h"
#include "core/safetensors.h"

/* Metadata keys: the CRC-32 of the header and its length, computed with zeros in place of its own 8 hexadecimal digits;
 * and the CRC-32 of each tensor's data, in the order of the data. */
#define ADAMOD__ST_SUM "crc32"
#define ADAMOD__ST_SUMS "crc32.data"

/* A fuzzer cannot guess checksums, so a build for fuzzing accepts any. */
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
#define ADAMOD__ST_DIFFER(a, b) ((void)(a), (void)(b), 0)
#else
#define ADAMOD__ST_DIFFER(a, b) ((a) != (b))
#endif

/* Size of the pieces in which data is read and written: they stay in the cache while they are summed. */
#define ADAMOD__ST_PIECE ((uint64_t)1 << 18)

/* Fail with a message that begins with the path. */
adamod_status adamod__st_fail(const char *path, adamod_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
#define adamod__st_malformed(path, ...) adamod__st_fail(path, ADAMOD_ERROR_FORMAT, __VA_ARGS__)
#define adamod__st_refuse(path, ...) adamod__st_fail(path, ADAMOD_ERROR_ARGUMENT, __VA_ARGS__)
adamod_status adamod__st_fail_memory(const char *path);
adamod_status adamod__st_fail_system(const char *path, int error, const char *doing);

/* Text from a file, shortened and without control characters, for a message. */
typedef struct st_quoted {
    char text[64];
} st_quoted;
st_quoted adamod__st_quote(const char *s);

/* Parses the header's text, from malloc. file owns it from then on, also after a failure. */
adamod_status adamod__st_parse_text(const char *path, char *json, size_t len, uint64_t data_size,
                                    adamod__st_file *file);

int adamod__st_utf8_valid(const char *s);
void adamod__st_sort(void *items, size_t n, size_t size, int (*compare)(const void *, const void *));
/* Compares two adamod__st_pair by key. */
int adamod__st_compare_keys(const void *a, const void *b);

#endif
