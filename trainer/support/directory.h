/* directory.h - makes a directory and its parents. */
#pragma once

#include <stdbool.h>

/* Returns 0, also if the directory exists, or the errno of the first that cannot be made: ENOTDIR if a file is in the way.
 * Stores in *made, unless NULL, whether path itself is new. */
int directory_make(const char *path, bool *made);
