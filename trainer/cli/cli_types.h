/* Number types by name, and numbers from one into another. SPDX-License-Identifier: MIT */
#ifndef CLI_TYPES_H
#define CLI_TYPES_H

#include "adamod.h"

#include <stdbool.h>

size_t type_size(adamod_type type);
/* f32, f64, bf16, f16 */
const char *type_name(adamod_type type);
bool type_parse(const char *name, adamod_type *out);

/* n numbers, rounded to nearest (ties to even) where the new type is narrower. */
void type_convert(adamod_type to_type, void *to, adamod_type from_type, const void *from, size_t n);

#endif
