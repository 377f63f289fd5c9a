#include "support/fingerprint.h"

#include "core/crc32.h"

uint64_t fingerprint_names(uint64_t hash, const void *data, size_t n) {
    const unsigned char *p = data;
    for (size_t i = 0; i < n; i++) hash = (hash ^ p[i]) * UINT64_C(0x100000001b3);
    return hash;
}

uint64_t fingerprint_data(uint64_t hash, const void *data, size_t n) {
    const uint32_t sum = adamod__crc32((uint32_t)hash, data, n);
    const uint32_t ends = ((uint32_t)(hash >> 32) ^ sum ^ (uint32_t)n) * UINT32_C(0x9e3779b1);
    return (uint64_t)ends << 32 | sum;
}
