/* Loads shared libraries. */
#define _GNU_SOURCE
#include "base/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LIBRARY_PATH_SIZE = 4096 };

static void *adamod__load(const char *path) { return dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE); }

/* Of the places, relative to the folder of a file, the first that has the library. *found: a place has it, though it may
 * not load. */
static void *adamod__load_near(const char *file, const char *const *places, const char *name, bool *found) {
    char path[LIBRARY_PATH_SIZE];
    const char *slash = strrchr(file, '/');
    for (; slash && *places && !*found; places++) {
        const int length = snprintf(path, sizeof path, "%.*s%s%s", (int)(slash + 1 - file), file, *places, name);
        if (length >= (int)sizeof path || access(path, F_OK) != 0) continue;
        *found = true;
        return adamod__load(path);
    }
    return NULL;
}

static void *adamod__load_library(const char *name, const char *variable, const char *const *places) {
    const char *named = variable ? secure_getenv(variable) : NULL;
    if (named && *named) return adamod__load(named);
    Dl_info here;
    char program[LIBRARY_PATH_SIZE];
    static const char anchor; /* its address lies in the library, or in the program it is linked into */
    bool found = false;
    void *library =
        dladdr(&anchor, &here) && here.dli_fname ? adamod__load_near(here.dli_fname, places, name, &found) : NULL;
    const ssize_t length = found ? -1 : readlink("/proc/self/exe", program, sizeof program - 1);
    if (length > 0) {
        program[length] = '\0';
        library = adamod__load_near(program, places, name, &found);
    }
    return found ? library : adamod__load(name);
}

void *adamod__library_open(const char *name, const char *variable, const char *const *places, const char **why) {
    void *library = adamod__load_library(name, variable, places);
    if (!library) {
        *why = dlerror();
        if (!*why) *why = "unknown error";
    }
    return library;
}

bool adamod__library_function(void *library, const char *name, void *function) {
    void *symbol = dlsym(library ? library : RTLD_DEFAULT, name);
    memcpy(function, &symbol, sizeof symbol); /* ISO C has no cast from an object to a function */
    return symbol != NULL;
}
