#include "study/run_list.h"

#include "core/error.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void run_list_slug(const char *name, char *out, size_t size) {
    size_t n = 0;
    for (; *name && n + 1 < size; name++) {
        if (isalnum((unsigned char)*name) || *name == '.') out[n++] = (char)tolower((unsigned char)*name);
        else if (n > 0 && out[n - 1] != '-') out[n++] = '-';
    }
    while (n > 0 && out[n - 1] == '-') n--;
    out[n] = '\0';
}
