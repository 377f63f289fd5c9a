/* crc32.h - the CRC-32 of zlib, PNG and gzip (polynomial 0x04c11db7, reflected). It detects every change within 32
 * consecutive bits. */
#ifndef ADAMOD_CRC32_H
#define ADAMOD_CRC32_H

#include "core/platform.h" /* first */

#include <stddef.h>
#include <stdint.h>

/* Returns the CRC of some bytes followed by data, where crc is the CRC of those bytes; 0 for none. */
uint32_t adamod__crc32(uint32_t crc, const void *data, size_t n);
/* Portable version, without special instructions of the processor. */
uint32_t adamod__crc32_plain(uint32_t crc, const void *data, size_t n);

#endif
