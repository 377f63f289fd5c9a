/* world.h - a small world for tests of the public interface: every type, a matrix, a scalar, an empty array and a frozen
 * one, in two groups; and whether a call that is refused has changed it.
 *
 *     world w;
 *     if (!world_make(&w, "adamod", 3)) return;
 *     REFUSED(&w, adamod_set(w.opt, "lr", -1), ADAMOD_ERROR_RANGE, "lr is -1");
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef ADAMOD_TESTS_WORLD_H
#define ADAMOD_TESTS_WORLD_H

#include "adamod.h"
#include "check.h"
#include "snapshot.h"

typedef struct world {
    adamod_optimizer *opt;
    const char *rule;
    float matrix[35], matrix_grad[35];
    _Alignas(8) uint16_t half[9];
    _Alignas(8) uint16_t half_grad[9];
    double scalar, scalar_grad;
    float empty[1];
    float frozen[4], frozen_grad[4];
    int group;
} world;

enum { MATRIX, HALF, SCALAR, EMPTY, FROZEN, PARAMETERS };

/* The arrays alone; no optimizer yet. */
void world_arrays(world *w, const char *rule);
adamod_tensor world_tensor(world *w, int which);
/* With steps updates done; 0 if it could not be made. */
int world_make(world *w, const char *rule, int steps);

/* Updates that a parameter has had. */
int64_t steps_of(const adamod_optimizer *opt, int64_t id);
void snapshot_states(snapshot *s, const adamod_optimizer *opt, int64_t id);

/* Everything that can be seen of a world; and whether all of it is as it was then. */
void world_remember(const world *w);
bool world_unchanged(const world *w);

/* The last error that keep_message saw; it returns the status. */
extern char message[600];
adamod_status keep_message(adamod_status status);

/* The call fails with this status, says this, and changes nothing. */
#define REFUSED(w, call, status, part)                                                                                 \
    do {                                                                                                               \
        world_remember(w);                                                                                             \
        check_int(keep_message(call), status, #call, __FILE__, __LINE__);                                              \
        check_has(message, part, #call, __FILE__, __LINE__);                                                           \
        check_has(message, "adamod: ", #call, __FILE__, __LINE__);                                                     \
        check_true(world_unchanged(w), #call " changes nothing", __FILE__, __LINE__);                                  \
    } while (0)

#endif
