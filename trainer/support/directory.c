#include "support/directory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* An existing directory is fine even if mkdir reports another error, such as missing permission. Tries again if another
 * process removes it in between. */
static int make_one(const char *path, bool *made) {
    enum { TRIES = 10 };
    struct stat found;
    int error = EEXIST;
    for (int i = 0; error == EEXIST && i < TRIES; i++) {
        *made = mkdir(path, 0777) == 0;
        if (*made) return 0;
        error = errno;
        if (stat(path, &found) == 0) return S_ISDIR(found.st_mode) ? 0 : ENOTDIR;
    }
    return error;
}

int directory_make(const char *path, bool *made) {
    char *copy = strdup(path);
    bool last = false;
    int error = copy ? 0 : ENOMEM;
    for (size_t n = strlen(path); copy && n > 1 && copy[n - 1] == '/'; n--) copy[n - 1] = '\0';
    for (char *slash = copy; !error && *slash && (slash = strchr(slash + 1, '/'));) {
        *slash = '\0';
        error = make_one(copy, &last);
        *slash = '/';
    }
    if (!error) error = make_one(copy, &last);
    if (made) *made = !error && last;
    free(copy);
    return error;
}
