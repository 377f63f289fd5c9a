/* scoreboard.h - how far the runs of one command are, and how long all of them will take. The memory is shared: a run may be
 * in a process that was forked from the one that made the board, and any of them may read what the others tell. */
#ifndef ADAMOD_SCOREBOARD_H
#define ADAMOD_SCOREBOARD_H

#include <stdbool.h>
#include <stdint.h>

typedef enum scoreboard_state { SCOREBOARD_WAITS, SCOREBOARD_RUNS, SCOREBOARD_OVER } scoreboard_state;

/* What a run tells of itself. */
typedef struct scoreboard_run {
    scoreboard_state state;
    double begun, left;  /* clock; seconds until its end, negative: not known yet */
    int64_t step, steps; /* steps 0: it reads its data */
    double loss, valid;  /* of the last batch and of the last evaluation; NAN: none */
} scoreboard_run;

typedef struct scoreboard scoreboard;

/* For n runs, at_once at a time, which all wait. NULL: no memory. */
scoreboard *scoreboard_create(int n, int at_once);
void scoreboard_free(scoreboard *b);
int scoreboard_size(const scoreboard *b);

/* A run begins, is so far (state and begun are known), is over. One that was over before is only ended. */
void scoreboard_begin(scoreboard *b, int run);
void scoreboard_tell(scoreboard *b, int run, const scoreboard_run *now);
void scoreboard_end(scoreboard *b, int run);

/* Only one of them draws or prints on a terminal at a time. */
void scoreboard_lock(scoreboard *b);
void scoreboard_unlock(scoreboard *b);

scoreboard_run scoreboard_look(const scoreboard *b, int run);

/* Seconds until all runs are over, if those that wait take as long as the mean of those that are over, or else of those
 * under way; negative: not known yet. */
double scoreboard_left(const scoreboard *b);

#endif
