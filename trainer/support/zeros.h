/* zeros.h - large arrays filled with 0, which take memory from the system where they are touched. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Aligned to 256 bytes; NULL: no memory. dense: all of it is soon used, so it may be in large pages, which save the processor
 * look-ups of addresses. */
void *zeros_new(size_t bytes, bool dense);
void zeros_free(void *memory);
