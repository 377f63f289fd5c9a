#include "cli/runs_view.h"

#include "support/text.h"
#include "train/progress.h"

#include <math.h>
#include <stdio.h>

/* The details shown of a run, fewer on a narrow terminal: "adam: step 405/900, validation loss 2.9871",
 * "adam: 45 %, loss 2.9871", "45 %, loss 2.9871", "45 %". */
typedef enum detail { WHOLE, SHORT, NAMELESS, SHARE, DETAILS } detail;

enum { WIDTH = 4096 };

static const char *describe_run(const scoreboard_run *r, detail d, char out[128]) {
    const bool valid = !isnan(r->valid);
    const double loss = valid ? r->valid : r->loss;
    char at[64];
    if (r->steps == 0) return "reading data";
    if (d == WHOLE) snprintf(at, sizeof at, "step %lld/%lld", (long long)r->step, (long long)r->steps);
    else snprintf(at, sizeof at, "%.0f %%", 100 * (double)r->step / (double)r->steps);
    if (d == SHARE || isnan(loss)) snprintf(out, 128, "%s", at);
    else snprintf(out, 128, "%s, %sloss %.4f", at, d > WHOLE ? "" : valid ? "validation " : "batch ", loss);
    return out;
}

static void compose(const scoreboard *b, const run_list *p, detail d, char out[WIDTH]) {
    const double left = scoreboard_left(b);
    int over = 0;
    char duration[32];
    for (int i = 0; i < scoreboard_size(b); i++) over += scoreboard_look(b, i).state == SCOREBOARD_OVER;
    snprintf(out, WIDTH, "%d of %d runs over", over, scoreboard_size(b));
    if (left >= 0) text_add(out, WIDTH, ", %s left", progress_duration(left, duration));
    for (int i = 0; i < scoreboard_size(b); i++) {
        const scoreboard_run r = scoreboard_look(b, i);
        char text[128];
        if (r.state != SCOREBOARD_RUNS) continue;
        text_add(out, WIDTH, "  [%d] %.80s%s%s", i + 1, d <= SHORT ? p->at[i].label : "", d <= SHORT ? ": " : "",
                 describe_run(&r, d, text));
    }
}

void runs_view_draw(scoreboard *b, const run_list *p) {
    char line[WIDTH];
    for (int d = WHOLE; d < DETAILS; d++) {
        compose(b, p, (detail)d, line);
        if (progress_width(line) <= progress_columns()) break;
    }
    scoreboard_lock(b);
    progress_draw(line);
    scoreboard_unlock(b);
}
