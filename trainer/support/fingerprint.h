/* fingerprint.h - 64-bit fingerprints. Both are in files of runs, so they must not change.
 *
 *     uint64_t hash = fingerprint_names(FINGERPRINT_NAMES, name, strlen(name) + 1);   // then the next name, with hash
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* FNV-1a of what was hashed before and n bytes more, for names and other short texts. The first hash is
 * FINGERPRINT_NAMES. */
#define FINGERPRINT_NAMES UINT64_C(0xcbf29ce484222325)
uint64_t fingerprint_names(uint64_t hash, const void *data, size_t n);

/* For large data, at the speed of memory. The first hash is 0. It depends on where pieces end: CRC-32 of the bytes in the
 * low half, a hash of the ends in the high half. */
uint64_t fingerprint_data(uint64_t hash, const void *data, size_t n);
