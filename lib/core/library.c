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

/* Loads the library from the first place that has it; places are relative to the folder of file. *found: a place has it,
 * though it may not load. */
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

/* Returns 1 if the address lies in the first object, which is the program, else -1: 0 would ask for the next object. */
static int adamod__has_address(struct dl_phdr_info *object, size_t size, void *address) {
    (void)size;
    const uintptr_t at = (uintptr_t)address - object->dlpi_addr;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
        if (segment->p_type == PT_LOAD && at - segment->p_vaddr < segment->p_memsz) return 1;
    }
    return -1;
}

/* Searches near the file that contains this code, then near the program. A program without this code, such as Python,
 * may be anywhere, so only its own folder is searched. The caller of exec chooses the name that dladdr has for the
 * program, so /proc/self/exe is used instead. A relative name is of no use once the working directory has changed. */
static void *adamod__load_beside(const char *name, const char *const *places, bool *found) {
    static const char anchor;
    static const char *const same_folder[] = {"", NULL};
    const bool in_program = dl_iterate_phdr(adamod__has_address, (void *)(uintptr_t)&anchor) > 0;
    Dl_info here;
    void *library = NULL;
    if (!in_program && dladdr(&anchor, &here) && here.dli_fname[0] == '/') {
        library = adamod__load_near(here.dli_fname, places, name, found);
    }
    char program[LIBRARY_PATH_SIZE];
    const ssize_t length = *found ? -1 : readlink("/proc/self/exe", program, sizeof program);
    if (length > 0 && length < (ssize_t)sizeof program) {
        program[length] = '\0';
        library = adamod__load_near(program, in_program ? places : same_folder, name, found);
    }
    return library;
}

static void *adamod__load_library(const char *name, const char *variable, const char *const *places) {
    const char *named = variable ? secure_getenv(variable) : NULL;
    if (named && *named) return adamod__load(named);
    bool found = false;
    /* A user can hard-link a set-user-ID program into a folder of their own. */
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
