#include "comm/mpi.h"

#include "support/functions.h"
#include "core/library.h"
#include "core/error.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_set(const char *name) {
    const char *value = getenv(name);
    return value && *value;
}

/* Open MPI first, unless the launcher is of MPICH or a derivative. */
static const char *const *library_names(void) {
    static const char *const names[] = {"libmpi.so.40", "libmpi.so.12", "libmpich.so.12", NULL};
    static const char *const mpich_first[] = {"libmpi.so.12", "libmpich.so.12", "libmpi.so.40", NULL};
    return !is_set("OMPI_COMM_WORLD_SIZE") && (is_set("PMI_RANK") || is_set("PMI_SIZE")) ? mpich_first : names;
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

static void *load(mpi *m, const char **name) {
    const function_place list[] = {{"MPI_Init_thread", &m->init},
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
                                   {"MPI_Get_library_version", &m->version},
                                   {NULL, NULL}};
    return functions_load(library_names(), "ADAMOD_MPI_LIBRARY", list, name);
}

/* The first words of the version, which may be a page: "Open MPI v4.1.4". */
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

const mpi *mpi_load(void) {
    static mpi found;
    const char *name = "";
    if (*found.name) return &found;
    mpi m = {0};
    void *library = load(&m, &name);
    if (!library) return adamod__context("no MPI library: "), NULL;
    if (!find_handles(&m, library)) return adamod__refuse("no MPI library: %s has no data types", name), NULL;
    find_name(&m, name);
    found = m;
    return &found;
}
