/* pictures.h - labelled pictures of one size, as bytes, and the names of their classes.
 *
 *     pictures p = {.size = 32};
 *     if (cifar_read(&p, "cifar-10-batches-bin", &(cifar_options){.kind = CIFAR_10})) ...
 *     p.bytes + i * pictures_bytes(&p), p.classes.name[p.labels[i]] ...
 *     pictures_free(&p);
 *
 * Readers (cifar.h, image_folder.h, shapes.h) append, so that training, validation and test pictures can lie in one block.
 * After a failure pictures has what it had before.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef PICTURES_H
#define PICTURES_H

#include "core/pool.h"

#include <stddef.h>
#include <stdint.h>

typedef struct class_names {
    int n;
    char **name; /* UTF-8 without control characters */
} class_names;

/* A copy of a name, at the end. */
int class_names_add(class_names *c, const char *name);
int class_names_find(const class_names *c, const char *name); /* -1: there is none */
void class_names_free(class_names *c);
/* A file with a name in each line; at least one, none twice. Empty lines at the end are left out. */
int class_names_load(class_names *out, const char *path);
int class_names_save(const class_names *c, const char *path);

typedef struct pictures {
    int size;        /* pixels of a side; set before the first are read */
    int64_t n, room; /* pictures there are, and that memory is there for */
    uint8_t *bytes;  /* [n, size, size, 3] */
    int32_t *labels; /* [n] */
    class_names classes;
} pictures;

static inline size_t pictures_bytes(const pictures *p) { return (size_t)p->size * (size_t)p->size * 3; }

/* Memory for so many more. */
int pictures_reserve(pictures *p, int64_t more);
void pictures_free(pictures *p);

/* Who makes or reads many of them, and who is told how far that is. */
typedef struct pictures_crew {
    adamod_pool *pool; /* NULL: this thread alone */
    /* Called by this thread, for each of its own pictures and at the end; NULL: nobody is told. */
    void (*tell)(void *context, int64_t done, int64_t total);
    void *context;
} pictures_crew;

/* adamod__pool_run, and tells. */
void pictures_each(const pictures_crew *crew, int64_t n, pool_task task, void *context);

#endif
