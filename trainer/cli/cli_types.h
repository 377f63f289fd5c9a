/* cli_types.h - sizes of number types, and conversion from one to another. */
#pragma once

#include "adamod.h"

#include <stddef.h>

size_t type_size(adamod_type type);

/* Converts n numbers, rounded to nearest (ties to even). */
void type_convert(adamod_type to_type, void *to, adamod_type from_type, const void *from, size_t n);
