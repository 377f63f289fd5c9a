/* functions.h - loads the functions of an optional shared library.
 *
 *     #define FUNCTIONS(F) F(init, curl_easy_init) F(perform, curl_easy_perform)
 *     static struct {
 *         FUNCTIONS(FUNCTION_FIELD)
 *     } curl;
 *     #define PLACE(field, name) {#name, &curl.field},
 *     const function_place functions[] = {FUNCTIONS(PLACE){NULL, NULL}}; */
#pragma once

typedef struct function_place {
    const char *name;
    void *function; /* where to store it: a pointer to a pointer to a function */
} function_place;

#define FUNCTION_FIELD(field, name) __typeof__(name) *field;

/* Loads the library named by an environment variable (NULL: none), or else the first of names that exists, and stores the
 * functions. Both lists end with NULL. Returns the library and stores its name in *named, unless NULL; the name is valid
 * until the environment changes. Returns NULL if no library or one of the functions cannot be loaded. */
void *functions_load(const char *const *names, const char *variable, const function_place *functions,
                     const char **named);
