#include "comm/mpi.h"

#include "base/library.h"
#include "base/text.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const open_mpi = "libmpi.so.40", *const mpich[] = {"libmpi.so.12", "libmpich.so.12"};

static bool is_set(const char *name) {
    const char *value = getenv(name);
    return value && *value;
}

/* Open MPI's, unless the launcher is one that only MPICH's kin have. */
static void *open_library(const char **name, const char **why) {
    static const char *const nowhere[] = {NULL};
    const bool kin = !is_set("OMPI_COMM_WORLD_SIZE") && (is_set("PMI_RANK") || is_set("PMI_SIZE"));
    const char *const order[2][3] = {{open_mpi, mpich[0], mpich[1]}, {mpich[0], mpich[1], open_mpi}};
    const char *first = NULL;
    void *library = NULL;
    for (int i = 0; !library && i < 3; i++) {
        *name = order[kin][i];
        library = adamod__library_open(*name, "ADAMOD_MPI_LIBRARY", nowhere, why);
        if (!i) first = *name;
        if (is_set("ADAMOD_MPI_LIBRARY")) {
            *name = getenv("ADAMOD_MPI_LIBRARY");
            break;
        }
    }
    if (!library) *name = first;
    return library;
}

static mpi_handle number(uintptr_t value) { return (mpi_handle)value; } /* NOLINT(performance-no-int-to-ptr) */

static bool find_handles(mpi *m, void *library) {
    struct {
        const char *name;
        mpi_handle *handle;
        uintptr_t mpich;
    } list[] = {{"ompi_mpi_comm_world", &m->world, 0x44000000}, {"ompi_mpi_byte", &m->byte, 0x4c00010d},
                {"ompi_mpi_float", &m->real, 0x4c00040a},       {"ompi_mpi_double", &m->number, 0x4c00080b},
                {"ompi_mpi_op_sum", &m->sum, 0x58000003},       {"ompi_mpi_op_max", &m->most, 0x58000001}};
    const bool ours = adamod__library_function(library, list[0].name, list[0].handle);
    m->in_place = ours ? number(1) : number(UINTPTR_MAX);
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        if (!ours) *list[i].handle = number(list[i].mpich);
        else if (!adamod__library_function(library, list[i].name, list[i].handle)) return false;
    }
    return true;
}

/* The first that is missing; NULL: none is. */
static const char *find_functions(mpi *m, void *library) {
    struct {
        const char *name;
        void *function;
    } list[] = {{"MPI_Init_thread", &m->init},
                {"MPI_Finalize", &m->finalize},
                {"MPI_Abort", &m->abort},
                {"MPI_Comm_rank", &m->rank},
                {"MPI_Comm_size", &m->size},
                {"MPI_Barrier", &m->barrier},
                {"MPI_Bcast", &m->broadcast},
                {"MPI_Allgather", &m->gather},
                {"MPI_Allgatherv", &m->gather_parts},
                {"MPI_Alltoallv", &m->exchange_parts},
                {"MPI_Allreduce", &m->reduce},
                {"MPI_Get_library_version", &m->version}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        if (!adamod__library_function(library, list[i].name, list[i].function)) return list[i].name;
    }
    return NULL;
}

/* "Open MPI v4.1.4" of what may be a page about how it was built. */
static void find_name(mpi *m, const char *library) {
    char text[MPI_VERSION_ROOM] = "";
    int length = 0;
    m->version(text, &length);
    text[sizeof text - 1] = '\0';
    text[strcspn(text, "\n,")] = '\0';
    for (char *c = text; *c; c++) {
        if (*c == '\t') *c = ' ';
    }
    snprintf(m->name, sizeof m->name, "%.60s, %.60s", text, library);
}

const mpi *mpi_load(char *message, size_t size) {
    static mpi found;
    const char *name = "", *why = "";
    if (*found.name) return &found;
    mpi m = {0};
    void *library = open_library(&name, &why);
    if (!library) return text_fail(message, size, "no MPI library: %s", why), NULL;
    const char *missing = find_functions(&m, library);
    if (missing || !find_handles(&m, library))
        return text_fail(message, size, "%s: no MPI library: it has no %s", name, missing ? missing : "data types"),
               NULL;
    find_name(&m, name);
    found = m;
    return &found;
}
