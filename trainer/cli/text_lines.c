#include "cli/text_lines.h"

#include "core/error.h"
#include "data/line_map.h"

#include <errno.h>
#include <string.h>

static int print_lines(void *context, int n, char *const *lines) {
    (void)context;
    for (int i = 0; i < n; i++) {
        fputs(lines[i], stdout);
        putchar('\n');
    }
    fflush(stdout);
    if (!ferror(stdout)) return 0;
    return adamod__fail(ADAMOD_ERROR_IO, "cannot write to standard output: %s", strerror(errno));
}

int text_lines_run(const char *command, const text_lines *t) {
    const line_map m = {.threads = (int)t->threads,
                        .any = t->any,
                        .open = t->open,
                        .close = t->close,
                        .options = t->options,
                        .run = t->run,
                        .take = print_lines};
    const int failed = line_map_run(&m, t->paths.n, (const char *const *)t->paths.list);
    return failed ? cli_failed(command) : 0;
}
