/* crc32.h - the CRC-32 of zlib, PNG and gzip (polynomial 0x04c11db7, reflected); internal.
 *
 * It finds every change of one bit, and every change within 32 bits in a row. */
#ifndef ADAMOD_CRC32_H
#define ADAMOD_CRC32_H

#include "core/platform.h" /* first */

#include <stddef.h>
#include <stdint.h>

/* Of data that follows what crc is of; 0: of nothing. */
uint32_t adamod__crc32(uint32_t crc, const void *data, size_t n);
/* The same without the processor's instructions for it. */
uint32_t adamod__crc32_plain(uint32_t crc, const void *data, size_t n);

#endif
