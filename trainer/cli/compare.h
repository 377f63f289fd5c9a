/* compare.h - between the files of `adamod compare`. */
#pragma once

#include "cli/cli.h"
#include "study/run_list.h"

typedef struct comparison {
    cli_operands recipes;
    const char *out;
    cli_changes vary, variants, tune;
    int64_t seeds, jobs;
    double minutes;
    bool resume, show, no_report, dry_run, drop;
    cli_changes changes;
    const char *metric;
    int split;          /* of the results to show: 0: test data if there are any; COMPARE_VALID, COMPARE_TEST */
    double started;     /* NAN: runs that started are not counted */
    bool started_share; /* it is a share of the best mean: see standings_options */
    char tuned[128];    /* key of --tune; "": none */
    char noted[1024];   /* list of the rules whose dropped options were named */
    char standard[160]; /* the default of out */
    run_list runs;
} comparison;

/* Lists and checks all runs before any is made, so that mistakes are not found after hours. Returns the exit status. */
int compare_list_runs(comparison *c);
