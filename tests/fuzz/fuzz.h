/* The head of every libFuzzer target. Include it first. */
#ifndef ADAMOD_FUZZ_H
#define ADAMOD_FUZZ_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A broken promise is a crash, which the fuzzer reports. */
static inline void require(int condition) {
    if (!condition) abort();
}

/* Whether a message is one line that a terminal can show. */
static inline int is_line(const char *message) { return *message && !strpbrk(message, "\n\r\033"); }

/* The place for files: in memory if it can be, since saving waits for the disk. */
static inline const char *fuzz_place(void) { return access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm"; }

#endif
