/* Tests of trainer/support/digest.c: the values that the standards print, and every way to cut the data.
 *
 * SPDX-License-Identifier: MIT
 */
#include "support/digest.h"
#include "check.h"

#include <stdlib.h>

static const char *hex_of(digest_kind kind, const char *text, int times) {
    static char hex[DIGEST_HEX];
    digest d;
    digest_start(&d, kind);
    for (int i = 0; i < times; i++) digest_add(&d, text, strlen(text));
    digest_end(&d, hex);
    return hex;
}

/* FIPS 180-4's examples, of NIST's "SHA256.pdf" and of the first version's appendix. */
TEST(sha256_of_the_standard) {
    CHECK_STR(hex_of(DIGEST_SHA256, "abc", 1), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    CHECK_STR(hex_of(DIGEST_SHA256, "", 1), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    CHECK_STR(hex_of(DIGEST_SHA256, "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1),
              "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    CHECK_STR(hex_of(DIGEST_SHA256, "aaaaaaaaaa", 100000),
              "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    CHECK_STR(digest_name(DIGEST_SHA256), "SHA-256");
}

/* RFC 1321, A.5. */
TEST(md5_of_the_standard) {
    CHECK_STR(hex_of(DIGEST_MD5, "", 1), "d41d8cd98f00b204e9800998ecf8427e");
    CHECK_STR(hex_of(DIGEST_MD5, "a", 1), "0cc175b9c0f1b6a831c399e269772661");
    CHECK_STR(hex_of(DIGEST_MD5, "abc", 1), "900150983cd24fb0d6963f7d28e17f72");
    CHECK_STR(hex_of(DIGEST_MD5, "message digest", 1), "f96b697d7cb7938d525a2f31aaf161d0");
    CHECK_STR(hex_of(DIGEST_MD5, "abcdefghijklmnopqrstuvwxyz", 1), "c3fcd3d76192e4007dfb496cca67e13b");
    CHECK_STR(hex_of(DIGEST_MD5, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", 1),
              "d174ab98d277d9f5a5611c2c9f419d9f");
    CHECK_STR(hex_of(DIGEST_MD5, "1234567890", 8), "57edf4a22be3c955ac49da2e2107b67a");
    CHECK_STR(digest_name(DIGEST_MD5), "MD5");
}

/* However it is cut, and whatever is left of the last block. */
TEST(every_cut) {
    char bytes[200];
    for (int i = 0; i < 200; i++) bytes[i] = (char)(i * 7 + 1);
    for (int kind = 0; kind < 2; kind++) {
        for (size_t n = 0; n <= 200; n++) {
            char whole[DIGEST_HEX], cut[DIGEST_HEX];
            digest a, b;
            digest_start(&a, (digest_kind)kind);
            digest_start(&b, (digest_kind)kind);
            digest_add(&a, bytes, n);
            for (size_t i = 0; i < n; i++) digest_add(&b, bytes + i, 1);
            digest_end(&a, whole);
            digest_end(&b, cut);
            CHECK_STR(whole, cut);
            CHECK_INT(strlen(whole), kind == DIGEST_SHA256 ? 64 : 32);
        }
    }
}

RUN_TESTS(ENTRY(sha256_of_the_standard), ENTRY(md5_of_the_standard), ENTRY(every_cut))
