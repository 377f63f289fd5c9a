/* What the optimizer needs of schedules beyond the public interface. */
#ifndef ADAMOD_SCHEDULE_H
#define ADAMOD_SCHEDULE_H

#include "internal.h"

/* NULL, with the last error set, if there is no memory. */
adamod_schedule *adamod__schedule_copy(const adamod_schedule *from);

#endif
