/* functions.h - the functions of a library that a program uses where there is one, and does without where there is none. */
#ifndef ADAMOD_SUPPORT_FUNCTIONS_H
#define ADAMOD_SUPPORT_FUNCTIONS_H

#include <stddef.h>

typedef struct function_place {
    const char *name;
    void *function; /* where to store it: a pointer to a pointer to a function */
} function_place;

/* Loads the library that the environment variable names (NULL: none may), or else the first that there is of NAMES, a list
 * that ends with NULL; then stores all the FUNCTIONS, a list that ends with {NULL, NULL}. The library, and *named (NULL: not
 * wanted) is what it was loaded as, good until the environment changes. NULL if none can be loaded
 * or a function is missing: those before it are stored. */
void *functions_load(const char *const *names, const char *variable, const function_place *functions,
                     const char **named);

#endif
