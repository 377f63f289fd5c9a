/* --dry-run: prints what a list of runs would do. */
#include "cli/make_runs.h"

#include "support/text.h"
#include "cli/cli.h"
#include "train/progress.h"

#include <ftw.h>
#include <math.h>
#include <string.h>
#include <sys/statvfs.h>

/* ---- disk ---- */

static double bytes_counted;

static int count_bytes(const char *path, const struct stat *st, int kind, struct FTW *at) {
    (void)path, (void)at;
    if (kind == FTW_F) bytes_counted += 512.0 * (double)st->st_blocks;
    return 0;
}

static double bytes_of(const char *directory) {
    bytes_counted = 0;
    (void)nftw(directory, count_bytes, 16, FTW_PHYS);
    return bytes_counted;
}

/* Mean bytes of the runs of a group that are over; the guess if there are none; NAN: nor that. */
static double usual_bytes(const run_list *p, const char *group) {
    double sum = 0, guess = NAN;
    int n = 0;
    for (int i = 0; i < p->n; i++) {
        if (strcmp(p->at[i].group, group) != 0) continue;
        guess = p->at[i].bytes;
        if (p->at[i].state != RUN_IS_OVER) continue;
        sum += bytes_of(p->at[i].directory);
        n++;
    }
    return n ? sum / n : guess;
}

/* Free bytes where the directory is, or will be. */
static double bytes_free(const char *directory) {
    char path[4096];
    struct statvfs st;
    snprintf(path, sizeof path, "%s", directory);
    while (statvfs(path, &st)) {
        char *slash = strrchr(path, '/');
        if (!slash && strcmp(path, ".") == 0) return NAN;
        if (!slash) snprintf(path, sizeof path, ".");
        else slash[slash == path] = '\0';
    }
    return (double)st.f_bavail * (double)st.f_frsize;
}

static const char *size_text(double bytes, char out[32]) {
    const char *const unit[] = {"kB", "MB", "GB", "TB"};
    int i = 0;
    if (isnan(bytes)) return "not known";
    for (bytes /= 1e3; bytes >= 999.5 && i < 3; i++) bytes /= 1e3;
    snprintf(out, 32, "%.3g %s", bytes, unit[i]);
    return out;
}

/* ---- the table ---- */

typedef struct sums {
    int n, states[RUN_STATES], unknown;
    double seconds, bytes; /* that are needed; bytes NAN: not known */
} sums;

/* Sums over the runs of a group. */
static sums sum_up(const run_list *p, const char *group) {
    sums s = {0};
    for (int i = 0; i < p->n; i++) {
        if (strcmp(p->at[i].group, group) != 0) continue;
        s.n++;
        s.states[p->at[i].state]++;
    }
    s.seconds = run_list_left(p, group, &s.unknown);
    if (s.states[RUN_IS_NEW]) s.bytes = s.states[RUN_IS_NEW] * usual_bytes(p, group);
    return s;
}

static void print_row(const char *name, int width, const sums *s, int64_t at_once) {
    char time[48] = "not known", duration[32], size[32];
    progress_duration(s->seconds / (double)at_once, duration);
    if (!s->unknown) snprintf(time, sizeof time, "%s", duration);
    else if (s->seconds > 0) snprintf(time, sizeof time, "more than %s", duration);
    if (width) printf("%-*s  ", width, name);
    printf("%5d  %5d  %5d  %5d  %-14s  %s\n", s->n, s->states[RUN_IS_OVER], s->states[RUN_IS_BEGUN],
           s->states[RUN_IS_NEW], time, size_text(s->bytes, size));
}

static bool is_first(const run_list *p, int index) {
    int i = 0;
    while (strcmp(p->at[i].group, p->at[index].group) != 0) i++;
    return i == index;
}

static void add(sums *all, const sums *s) {
    all->n += s->n;
    for (int i = 0; i < RUN_STATES; i++) all->states[i] += s->states[i];
    all->unknown += s->unknown;
    all->seconds += s->seconds;
    all->bytes += s->bytes;
}

/* Columns of the groups' names; 0: they have none. */
static int name_width(const run_list *p) {
    static const char all[] = "in all";
    size_t width = 0;
    for (int i = 0; i < p->n; i++) {
        const size_t n = strlen(p->at[i].group);
        width = n > width ? n : width;
    }
    return width == 0 ? 0 : width < sizeof all - 1 ? (int)sizeof all - 1 : width < 60 ? (int)width : 60;
}

void make_runs_print(const run_list *p, const make_options *o) {
    const int width = name_width(p);
    const int64_t at_once = o->jobs > 1 ? o->jobs : 1;
    sums all = {0};
    int groups = 0;
    char size[32];
    if (width) printf("%-*s  ", width, "");
    printf("%5s  %5s  %5s  %5s  %-14s  %s\n", "runs", "over", "begun", "to do", "time", "disk");
    for (int i = 0; i < p->n; i++) {
        if (!is_first(p, i)) continue;
        const sums s = sum_up(p, p->at[i].group);
        print_row(p->at[i].group, width, &s, at_once);
        add(&all, &s);
        groups++;
    }
    if (groups > 1) print_row("in all", width, &all, at_once);
    const double room = bytes_free(o->out);
    text_line(stdout, "%s are free in %s%s", size_text(room, size), o->out,
              all.bytes > room ? ", too little for all of these runs" : "");
    if (all.unknown) printf("Times that are not known become known with the first run of their kind.\n");
}
