#include "support/run_format.h"

#include "core/error.h"
#include "core/file.h"
#include "support/json_input.h"
#include "support/text.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int run_format_check(const char *directory) {
    char text[64], key[16] = "";
    uint64_t n = 0;
    const int fd = adamod__file_open(path_join(directory, "task.json").text, O_RDONLY | O_NONBLOCK);
    if (fd < 0) return 0;
    const int error = adamod__file_read(fd, 0, text, sizeof text, &n);
    close(fd);
    json_input in = json_input_of(text, error ? 0 : (size_t)n);
    if (json_input_enter(&in, '{')) json_input_key(&in, key, sizeof key);
    if (strcmp(key, "format") != 0) return 0;
    const double format = json_input_number(&in);
    if (in.expected || !(format > RUN_FORMAT)) return 0;
    return adamod__refuse("%s: a run directory of format %.15g, which a newer version made, expected at most %d",
                          directory, format, RUN_FORMAT);
}
