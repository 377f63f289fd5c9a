/* file_digest.h - the checksum of a file. */
#pragma once

#include "support/digest.h"

/* progress, which may be NULL, hears how many bytes are done. */
int file_digest(const char *path, digest_kind kind, char hex[DIGEST_HEX],
                void (*progress)(void *context, int64_t done, int64_t total), void *context);
