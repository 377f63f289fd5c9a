/* Finds backends. A device's backend is a shared object of its own, so that the program needs no driver. */
#include "nn/backend.h"
#include "core/error.h"
#include "core/library.h"

#include <pthread.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const nn_backend *cuda; /* once found, for good */

static const nn_backend *load_cuda(void) {
    /* for the program, a test, an installed program */
    static const char *const places[] = {"", "../", "../lib/", "../lib64/", NULL};
    const char *why;
    void *library = adamod__library_open("libadamod_nn_cuda.so", "ADAMOD_NN_CUDA_LIBRARY", places, &why);
    if (!library) {
        adamod__fail(ADAMOD_ERROR_NO_CUDA, "cuda: the backend cannot be loaded: %.200s", why);
        return NULL;
    }
    nn_backend_get get;
    const nn_backend *found = NULL;
    if (adamod__library_function(library, "nn_backend_cuda_get", &get)) found = get(NN_BACKEND_VERSION, adamod__fail);
    if (!found)
        adamod__fail(ADAMOD_ERROR_NO_CUDA, "cuda: libadamod_nn_cuda.so is from another version than this program");
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
