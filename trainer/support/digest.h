/* digest.h - SHA-256 (FIPS 180-4) and MD5 (RFC 1321), to verify downloads. MD5 detects damage, not forgery.
 *
 *     digest d;
 *     char hex[DIGEST_HEX];
 *     digest_start(&d, DIGEST_SHA256);
 *     digest_add(&d, "abc", 3);
 *     digest_end(&d, hex);                             // "ba7816bf..." */
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef enum digest_kind { DIGEST_SHA256, DIGEST_MD5 } digest_kind;
enum { DIGEST_HEX = 65 }; /* enough for either digest in hexadecimal */

typedef struct digest {
    digest_kind kind;
    uint32_t state[8];
    uint64_t n;        /* bytes so far */
    uint8_t block[64]; /* the last n % 64 of them */
} digest;

void digest_start(digest *d, digest_kind kind);
void digest_add(digest *d, const void *data, size_t n);
void digest_end(digest *d, char hex[DIGEST_HEX]);

/* "SHA-256" or "MD5". */
const char *digest_name(digest_kind kind);
