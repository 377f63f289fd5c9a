/* library.h - shared libraries that are loaded at run time, so that a program also runs without them. None is ever
 * unloaded: the CUDA runtime, for one, does not survive that. */
#ifndef ADAMOD_CORE_LIBRARY_H
#define ADAMOD_CORE_LIBRARY_H

#include "core/platform.h" /* first */

#include <stdbool.h>

/* Opens a library; opening it again returns the same handle. It is the first of these that exists:
 *   - the file that the environment variable names (variable NULL: none), a path or a name for the loader;
 *   - name in one of the places, a NULL-terminated list of folders ending with a slash. They are relative first to the
 *     folder of the file that contains this code ("" is that folder, "../lib/" one beside it), then to the program's;
 *   - name, in the loader's search path.
 * A program with more rights than its caller (set-user-ID) uses only the last: the caller controls the others, and must
 * not choose what code runs.
 * On failure returns NULL and stores the loader's reason in *why, valid until the thread's next call. */
void *adamod__library_open(const char *name, const char *variable, const char *const *places, const char **why);

/* Stores a function of a library (NULL: of any loaded one) in *function, a function pointer. If there is no such
 * function, stores NULL and returns false. */
bool adamod__library_function(void *library, const char *name, void *function);

#endif
