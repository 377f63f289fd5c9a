/* folders.h - directories and lock files of the cache. */
#pragma once

#include <stdint.h>

/* Makes a directory and its parents. */
int folder_make(const char *path);
/* Removes a directory and all in it, if it exists. Links are not followed. */
int folder_remove(const char *path);
/* Renames durably. */
int folder_rename(const char *from, const char *to);
/* Fails if the file system of a directory has fewer bytes left. */
int folder_space(const char *path, int64_t needed);
/* Opens or makes a file and locks it until it is closed. Returns a descriptor, or fails. */
int folder_lock(const char *path);
