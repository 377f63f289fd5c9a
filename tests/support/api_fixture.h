/* api_fixture.h - a small optimizer for tests of the public interface: every type, a matrix, a scalar, an empty array
 * and a frozen one, in two groups; and whether a call that is refused has changed it.
 *
 *     api_fixture f;
 *     if (!api_fixture_make(&f, "adamod", 3)) return;
 *     REFUSED(&f, adamod_set(f.opt, "lr", -1), ADAMOD_ERROR_RANGE, "lr is -1");
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef ADAMOD_TESTS_API_FIXTURE_H
#define ADAMOD_TESTS_API_FIXTURE_H

#include "adamod.h"
#include "check.h"
#include "snapshot.h"

typedef struct api_fixture {
    adamod_optimizer *opt;
    const char *rule;
    float matrix[35], matrix_grad[35];
    _Alignas(8) uint16_t half[9];
    _Alignas(8) uint16_t half_grad[9];
    double scalar, scalar_grad;
    float empty[1];
    float frozen[4], frozen_grad[4];
    int group;
} api_fixture;

enum { MATRIX, HALF, SCALAR, EMPTY, FROZEN, PARAMETERS };

/* The arrays alone; no optimizer yet. */
void api_fixture_arrays(api_fixture *f, const char *rule);
adamod_tensor api_fixture_tensor(api_fixture *f, int which);
/* With steps updates done; 0 if it could not be made. */
int api_fixture_make(api_fixture *f, const char *rule, int steps);

/* Updates that a parameter has had. */
int64_t steps_of(const adamod_optimizer *opt, int64_t id);
void snapshot_states(snapshot *s, const adamod_optimizer *opt, int64_t id);

/* Everything that can be seen of a fixture; and whether all of it is as it was then. */
void api_fixture_remember(const api_fixture *f);
bool api_fixture_unchanged(const api_fixture *f);

/* The last error that keep_message saw; it returns the status. */
extern char message[600];
adamod_status keep_message(adamod_status status);

/* The call fails with this status, says this, and changes nothing. */
#define REFUSED(f, call, status, part)                                                                                 \
    do {                                                                                                               \
        api_fixture_remember(f);                                                                                       \
        check_int(keep_message(call), status, #call, __FILE__, __LINE__);                                              \
        check_has(message, part, #call, __FILE__, __LINE__);                                                           \
        check_has(message, "adamod: ", #call, __FILE__, __LINE__);                                                     \
        check_true(api_fixture_unchanged(f), #call " changes nothing", __FILE__, __LINE__);                            \
    } while (0)

#endif
