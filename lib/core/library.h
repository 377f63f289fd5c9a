/* library.h - shared libraries that are loaded only when they are wanted, so that a program runs where they are not.
 *
 * None is ever unloaded: what such libraries have within, say the CUDA runtime, does not survive that.
 */
#ifndef ADAMOD_CORE_LIBRARY_H
#define ADAMOD_CORE_LIBRARY_H

#include "core/platform.h" /* first */

#include <stdbool.h>

/* Opens a library; opened again, it is the same one. The first of these that there is decides:
 *   - the environment variable (NULL: none), if it is set: a path, or a name that the loader looks for;
 *   - NAME in one of the places, a list that ends with NULL: folders, with a slash at the end, relative to that of the
 *     file this code is in ("" is that folder itself, "../lib/" one beside it), then to that of the program;
 *   - NAME, wherever the loader looks for it.
 * In a program that runs with more rights than its caller (set-user-ID and the like) only the last: the caller decides about
 * all others, and must not choose what code runs.
 * NULL, and *why is the loader's reason, if it cannot be loaded. *why is good until the thread's next call. */
void *adamod__library_open(const char *name, const char *variable, const char *const *places, const char **why);

/* Finds a function of a library (NULL: of all that is loaded already) and stores it in *FUNCTION, a pointer to a function.
 * False, and *FUNCTION is NULL, if there is none. */
bool adamod__library_function(void *library, const char *name, void *function);

#endif
