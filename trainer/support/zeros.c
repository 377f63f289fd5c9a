#include "support/zeros.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

enum { ALIGNMENT = 256 };

/* Asks for large pages where the array has whole ones. */
static void ask_for_large_pages(char *memory, size_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    const uintptr_t size = (uintptr_t)1 << 21, at = (uintptr_t)memory;
    const uintptr_t first = (at + size - 1) / size * size, end = (at + bytes) / size * size;
    if (end > first) (void)madvise(memory + (first - at), end - first, MADV_HUGEPAGE);
#else
    (void)memory, (void)bytes;
#endif
}

/* calloc takes a large block from the system, which fills pages with 0 when they are touched. The pointer to free stands before
 * the array. */
void *zeros_new(size_t bytes, bool dense) {
    char *const memory = bytes < SIZE_MAX - 2 * ALIGNMENT ? calloc(1, bytes + 2 * ALIGNMENT) : NULL;
    if (!memory) return NULL;
    if (dense) ask_for_large_pages(memory, bytes + 2 * ALIGNMENT);
    char *const array = memory + 2 * ALIGNMENT - (uintptr_t)memory % ALIGNMENT;
    memcpy(array - sizeof memory, &memory, sizeof memory);
    return array;
}

void zeros_free(void *memory) {
    char *block = NULL;
    if (memory) memcpy(&block, (char *)memory - sizeof block, sizeof block);
    free(block);
}
