/* Finds backends; those of devices are shared objects of their own, so that the program needs no driver. */
#define _GNU_SOURCE
#include "nn/backend.h"
#include "base/error.h"

#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const nn_backend *cuda; /* once found, for good */

/* The shared object beside the program, else by its name alone; NULL with the loader's reason. */
static void *open_library(const char *name, const char **why) {
    const char *given = secure_getenv("ADAMOD_NN_CUDA_LIBRARY");
    char program[PATH_MAX], path[PATH_MAX + 64];
    const ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    void *library = NULL;
    bool found = false;
    if (given && *given) {
        library = dlopen(given, RTLD_NOW | RTLD_LOCAL);
    } else {
        static const char *const places[] = {"", "/..", "/../lib"}; /* of the program, a test, an installed program */
        if (n > 0) program[n] = '\0';
        const char *folder = n > 0 ? dirname(program) : NULL;
        for (size_t i = 0; folder && !library && i < sizeof places / sizeof *places; i++) {
            snprintf(path, sizeof path, "%s%s/%s", folder, places[i], name);
            if (access(path, R_OK) != 0) continue;
            library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
            found = true;
        }
        if (!library && !found) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
    if (!library) *why = dlerror();
    return library;
}

static const nn_backend *load_cuda(void) {
    const char *why = "";
    void *library = open_library("libadamod_nn_cuda.so", &why);
    if (!library) {
        adamod__fail(ADAMOD_ERROR_NO_CUDA, "cuda: the backend cannot be loaded: %.200s", why);
        return NULL;
    }
    nn_backend_get get = NULL;
    *(void **)&get = dlsym(library, "nn_backend_cuda_get");
    const nn_backend *found = get ? get(NN_BACKEND_VERSION, adamod__fail) : NULL;
    if (!found) {
        adamod__fail(ADAMOD_ERROR_NO_CUDA, "cuda: libadamod_nn_cuda.so is from another version than this program");
        dlclose(library);
    }
    return found;
}

const nn_kernels *nn_backend_kernels(const nn_backend *backend, const char *op) {
    const nn_backend_op *x = backend->ops;
    while (x->op && strcmp(x->op, op) != 0) x++;
    return x->kernels;
}

const nn_backend *nn_backend_find(const char *name) {
    if (strcmp(name, "cpu") == 0) return &nn_backend_cpu;
    if (strcmp(name, "cuda") != 0) {
        adamod__fail(ADAMOD_ERROR_NAME, "no backend '%.40s', expected ref, cpu or cuda", name);
        return NULL;
    }
    pthread_mutex_lock(&lock);
    if (!cuda) cuda = load_cuda();
    pthread_mutex_unlock(&lock);
    return cuda;
}
