/* Loads shared libraries. */
#include "core/library.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
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

/* Whether the address lies in the first object, which is the program: 1, or -1, as 0 would ask for the next one. */
static int adamod__has_address(struct dl_phdr_info *object, size_t size, void *address) {
    (void)size;
    const uintptr_t at = (uintptr_t)address - object->dlpi_addr;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
        if (segment->p_type == PT_LOAD && at - segment->p_vaddr < segment->p_memsz) return 1;
    }
    return -1;
}

/* Near the file that this code is in. If that is the program, its name is what the caller of exec chose to call it, and
 * /proc/self/exe what it is. A relative name means another file once the working directory has changed. */
static void *adamod__load_beside(const char *name, const char *const *places, bool *found) {
    static const char anchor;
    Dl_info here;
    void *library = NULL;
    if (dl_iterate_phdr(adamod__has_address, (void *)(uintptr_t)&anchor) < 0 && dladdr(&anchor, &here) &&
        here.dli_fname[0] == '/') {
        library = adamod__load_near(here.dli_fname, places, name, found);
    }
    char program[LIBRARY_PATH_SIZE];
    const ssize_t length = *found ? -1 : readlink("/proc/self/exe", program, sizeof program);
    if (length > 0 && length < (ssize_t)sizeof program) {
        program[length] = '\0';
        library = adamod__load_near(program, places, name, found);
    }
    return library;
}

static void *adamod__load_library(const char *name, const char *variable, const char *const *places) {
    const char *named = variable ? secure_getenv(variable) : NULL;
    if (named && *named) return adamod__load(named);
    bool found = false;
    /* Who starts a set-user-ID program may have given it another name, in a folder of their own: a hard link. */
    void *library = getauxval(AT_SECURE) ? NULL : adamod__load_beside(name, places, &found);
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
