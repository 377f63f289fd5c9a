/* record.h - a run that is over in some 50 KB, so that a repository can keep what a published number rests on.
 *
 * A recorded run is a run directory (train/run.h) that every reader of runs reads, with fewer files and points:
 *
 *   recipe.yaml, data.json     as they were, but of paths only the last part; data.json also has the checksums of the
 *                              vocabularies, which are left out themselves ("split":"vocabulary")
 *   machine*.json              as they were, without the name of the host
 *   task.json, result.json     as they were
 *   metrics.jsonl              of training the first update and means over windows, RECORD_POINTS lines at most; of
 *                              evaluations RECORD_EVALUATIONS, among them the last and the best of each metric; the tests
 *                              at the end. Numbers have five digits, those of evaluations six
 *   note.txt                   as it was, or the note that is given
 *   histograms.jsonl           of the updates 1, 3, 10, 30 and so on, and of the last
 *
 * Samples, pictures, events and checkpoints are left out. */
#pragma once

#include "support/metric.h"

enum { RECORD_POINTS = 120, RECORD_EVALUATIONS = 400 };

/* Records the run in directory `from` as directory `to`, which must not exist; its parents are made. Refuses a run that is
 * not over. After a failure there is no `to`. note: in place of the run's own, as report_note_fault allows it; NULL: its own.
 * known: see report/reader.h. */
int record_run(const char *from, const char *to, const char *note, const metric *known, int n_known);
