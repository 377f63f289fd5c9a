/* folders.h - directories, and files in them, of the cache. */
#ifndef FOLDERS_H
#define FOLDERS_H

#include <stddef.h>
#include <stdint.h>

/* A directory and all above it. */
int folder_make(const char *path);
/* All that is in it, and itself. Links are removed, never followed. It need not be there. */
int folder_remove(const char *path);
/* Renames, and makes sure that this survives a crash. */
int folder_rename(const char *from, const char *to);
/* Refuses if the file system of a directory has fewer bytes left. */
int folder_space(const char *path, int64_t needed);
/* An open file that is locked for this process until it is closed; a new one, if there is none. -1: with a message. */
int folder_lock(const char *path);

#endif
