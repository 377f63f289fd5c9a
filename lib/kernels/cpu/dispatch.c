/* Chooses kernels that this processor can run. */
#include "optim/internal.h"
#include "optim/optim.h"

#include <stdlib.h>
#include <string.h>

const kernel_set *adamod__kernels_at(int index) {
    const kernel_set *sets[4] = {NULL};
    int n = 0;
#ifdef ADAMOD_X86
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq")) {
        sets[n++] = &adamod__kernels_avx512;
    }
    /* Every processor with AVX2 has F16C; only the latter has no name in this builtin. */
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) sets[n++] = &adamod__kernels_avx2;
#endif
#ifdef ADAMOD_NEON
    sets[n++] = &adamod__kernels_neon;
#endif
    sets[n++] = &adamod__kernels_plain;
    return index >= 0 && index < n ? sets[index] : NULL;
}

const kernel_set *adamod__kernels_choose(void) {
    const char *wanted = secure_getenv("ADAMOD_ISA");
    if (!wanted || !*wanted) return adamod__kernels_at(0);
    char known[64] = "";
    for (int i = 0; adamod__kernels_at(i); i++) {
        const char *name = adamod__kernels_at(i)->name;
        if (strcmp(name, wanted) == 0) return adamod__kernels_at(i);
        strcat(strcat(known, i ? ", " : ""), name);
    }
    adamod__fail(ADAMOD_ERROR_NAME, "environment variable ADAMOD_ISA is '%.32s', this processor has %s", wanted, known);
    return NULL;
}

const char *adamod__chosen_isa(void) {
    const kernel_set *k = adamod__kernels_choose();
    return k ? k->name : NULL;
}

const char *adamod_isa_name(int index) {
    const kernel_set *k = adamod__kernels_at(index);
    return k ? k->name : NULL;
}
