/* libFuzzer target: trainer/study/study_read.c, on the bytes of a study. What is refused gets one line.
 *
 * SPDX-License-Identifier: MIT
 */
#include "fuzz.h"
#include "study/study.h"
#include "core/error.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    study s = {0};
    if (study_parse(&s, (const char *)data, size, "f")) {
        const char *message = adamod__last_message();
        require(is_line(message) && strncmp(message, "f:", 2) == 0);
        return 0;
    }
    require(s.n_experiments > 0 && s.experiment[0].n_methods > 0);
    study_free(&s);
    return 0;
}
