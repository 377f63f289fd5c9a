/* run_format.h - the number of the format of run directories (train/run.h). It is the first member of task.json; in
 * directories without one, it is 1. It grows when an earlier version would misread a directory. */
#pragma once

enum { RUN_FORMAT = 1 };

/* Refuses a directory of a later format. Accepts an unreadable one: later readers report its faults. */
int run_format_check(const char *directory);
