/* pictures.h - labelled pictures of one size as bytes, and the names of their classes.
 *
 *     pictures p = {.size = 32};
 *     if (cifar_read(&p, "cifar-10-batches-bin", &(cifar_options){.kind = CIFAR_10})) ...
 *     p.bytes + i * pictures_bytes(&p), p.classes.name[p.labels[i]] ...
 *     pictures_free(&p);
 *
 * Readers (cifar.h, image_folder.h, shapes.h) append, so that training, validation and test pictures can be one block. A
 * failed call appends nothing. */
#pragma once

#include "core/pool.h"

#include <stddef.h>
#include <stdint.h>

typedef struct class_names {
    int n;
    char **name; /* UTF-8 without control characters */
} class_names;

/* Appends a copy of a name. */
int class_names_add(class_names *c, const char *name);
int class_names_find(const class_names *c, const char *name); /* -1: there is none */
void class_names_free(class_names *c);
/* A file has one name per line, at least one, none twice. Empty lines at its end are ignored. */
int class_names_load(class_names *out, const char *path);
int class_names_save(const class_names *c, const char *path);

typedef struct pictures {
    int size;        /* pixels per side; set before the first are read */
    int64_t n, room; /* pictures, and room for pictures */
    uint8_t *bytes;  /* [n, size, size, 3] */
    int32_t *labels; /* [n] */
    class_names classes;
} pictures;

static inline size_t pictures_bytes(const pictures *p) { return (size_t)p->size * (size_t)p->size * 3; }

/* Makes room for `more` pictures. */
int pictures_reserve(pictures *p, int64_t more);
void pictures_free(pictures *p);

/* The threads that make or read pictures, and a callback for progress. */
typedef struct pictures_crew {
    adamod_pool *pool; /* NULL: this thread alone */
    /* Called by this thread for each picture it has done, and at the end; may be NULL. */
    void (*tell)(void *context, int64_t done, int64_t total);
    void *context;
} pictures_crew;

/* adamod__pool_run with progress. */
void pictures_each(const pictures_crew *crew, int64_t n, pool_task task, void *context);
