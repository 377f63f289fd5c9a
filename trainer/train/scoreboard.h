/* scoreboard.h - progress of all runs of a command, in memory that forked processes share. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef enum scoreboard_state { SCOREBOARD_WAITS, SCOREBOARD_RUNS, SCOREBOARD_OVER } scoreboard_state;

/* The state of a run. */
typedef struct scoreboard_run {
    scoreboard_state state;
    double begun, left;  /* clock; seconds until the end, negative: not known yet */
    int64_t step, steps; /* steps 0: it reads its data */
    double loss, valid;  /* of the last batch and the last evaluation; NAN: none */
} scoreboard_run;

typedef struct scoreboard scoreboard;

/* A board of n waiting runs, of which at_once run at a time. NULL: no memory. */
scoreboard *scoreboard_create(int n, int at_once);
void scoreboard_free(scoreboard *b);
int scoreboard_size(const scoreboard *b);

/* A run begins, reports its progress (state and begun are ignored), and ends; a run that was complete before only ends. */
void scoreboard_begin(scoreboard *b, int run);
void scoreboard_tell(scoreboard *b, int run, const scoreboard_run *now);
void scoreboard_end(scoreboard *b, int run);
/* A run was stopped before its end: it waits again. */
void scoreboard_stop(scoreboard *b, int run);

/* Says how many seconds a waiting run will take. */
void scoreboard_expect(scoreboard *b, int run, double seconds);

/* Lock of the terminal. */
void scoreboard_lock(scoreboard *b);
void scoreboard_unlock(scoreboard *b);

scoreboard_run scoreboard_look(const scoreboard *b, int run);

/* Mean seconds of a whole run, of those that are over, or else of those that run; negative: not known yet. */
double scoreboard_usual(const scoreboard *b);
/* Seconds until all runs are over; negative: not known yet. A waiting run counts as expected, or else as usual. */
double scoreboard_left(const scoreboard *b);
