#include "support/functions.h"

#include "core/library.h"
#include "core/error.h"

#include <stdlib.h>

void *functions_load(const char *const *names, const char *variable, const function_place *functions,
                     const char **named) {
    static const char *const nowhere[] = {NULL};
    const char *only = variable ? secure_getenv(variable) : NULL, *why = "no library is named";
    const char *const alone[] = {only, NULL};
    void *library = NULL;
    if (only && *only) names = alone;
    while (*names && !(library = adamod__library_open(*names, NULL, nowhere, &why))) names++;
    if (!library) return adamod__refuse("%s", why), NULL;
    for (; functions->name; functions++) {
        if (!adamod__library_function(library, functions->name, functions->function))
            return adamod__refuse("%s has no %s", *names, functions->name), NULL;
    }
    if (named) *named = *names;
    return library;
}
