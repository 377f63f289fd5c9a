/* Choosing a device where there is none, or none is wanted: clear errors, and the CPU works.
 *
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "check.h"
#include "adamod.h"
#include "optim/optim.h"

#include <stdlib.h>

TEST(the_cpu_is_a_device) {
    adamod_optimizer *opt = NULL;
    float p = 1, g = 1;
    if (!CHECK_INT(adamod_create_on(&opt, "sgd", "cpu"), ADAMOD_OK)) return;
    CHECK_STR(adamod_device(opt), "cpu");
    CHECK_INT(adamod_add(opt, NULL, &p, &g, 0, NULL), ADAMOD_OK);
    CHECK_INT(adamod_step(opt), ADAMOD_OK);
    CHECK_INT(adamod_sync(opt), ADAMOD_OK);
    CHECK(p == 1 - 0.01f);
    CHECK_INT(adamod_set_stream(opt, NULL), ADAMOD_ERROR_ARGUMENT);
    CHECK_HAS(adamod_last_error(), "on the CPU");
    CHECK_INT(adamod_set_scaler(opt, &p, &p), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_set_device_value(opt, 0, "lr", &p, ADAMOD_F32), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod__set_ranks(opt, &(adamod__ranks){0}), ADAMOD_ERROR_ARGUMENT);
    adamod_free(opt);
    CHECK(adamod_device(NULL) == NULL);
}

TEST(names_of_devices) {
    static const char *const wrong[] = {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", "cuda:99999999999", "CUDA"};
    adamod_optimizer *opt = NULL;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_INT(adamod_create_on(&opt, "sgd", wrong[i]), ADAMOD_ERROR_NAME);
        CHECK_HAS(adamod_last_error(), "expected cpu, cuda or cuda:N");
    }
    CHECK_INT(adamod_create_on(&opt, "sgd", NULL), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_create_on(NULL, "sgd", "cpu"), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_create_on(&opt, "nothing", "cuda"), ADAMOD_ERROR_NAME);
    CHECK_INT(adamod_sync(NULL), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_cuda_device_at(0, NULL), ADAMOD_ERROR_ARGUMENT);
}

/* On any machine: a file that is not a library, and a library that is not ours. */
TEST(a_library_that_is_not_there) {
    adamod_optimizer *opt = NULL;
    adamod_cuda_device device;
    setenv("ADAMOD_CUDA_LIBRARY", "/nowhere/libadamod_cuda.so.0", 1);
    CHECK_INT(adamod_cuda_status(), ADAMOD_ERROR_NO_CUDA);
    CHECK_HAS(adamod_last_error(), "/nowhere/libadamod_cuda.so.0");
    CHECK_INT(adamod_create_on(&opt, "sgd", "cuda"), ADAMOD_ERROR_NO_CUDA);
    CHECK_INT(adamod_cuda_device_at(0, &device), ADAMOD_ERROR_NO_CUDA);
    setenv("ADAMOD_CUDA_LIBRARY", "libm.so.6", 1);
    CHECK_INT(adamod_cuda_status(), ADAMOD_ERROR_NO_CUDA);
    CHECK_HAS(adamod_last_error(), "is from another version");
    unsetenv("ADAMOD_CUDA_LIBRARY");
}

/* With a GPU or without, the answer is one line, and asking again gives the same. */
TEST(the_status_says_why) {
    const adamod_status status = adamod_cuda_status();
    char line[512];
    snprintf(line, sizeof line, "%s", adamod_last_error());
    CHECK_INT(adamod_cuda_status(), status);
    if (status == ADAMOD_OK) return;
    CHECK_STR(adamod_last_error(), line);
    CHECK_HAS(line, "adamod: cuda: ");
    adamod_optimizer *opt = NULL;
    CHECK_INT(adamod_create_on(&opt, "sgd", "cuda"), status);
    CHECK(opt == NULL);
}

RUN_TESTS(ENTRY(the_cpu_is_a_device), ENTRY(names_of_devices), ENTRY(a_library_that_is_not_there),
          ENTRY(the_status_says_why))
