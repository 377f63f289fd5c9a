/* libFuzzer target: trainer/tasks/gpt_folder.c, on the bytes of a config.json.
 *
 * A refusal is one line that names the file. An accepted file has sizes that the recipe's keys allow.
 *
 * SPDX-License-Identifier: MIT
 */
#include "fuzz.h"
#include "tasks/gpt_folder.h"
#include "tasks/tasks.h"
#include "core/error.h"
#include "models/gpt.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    recipe r;
    recipe_defaults(&r, tasks_all);
    if (gpt_folder_parse((const char *)data, size, "f", &r)) {
        const char *message = adamod__last_message();
        require(strncmp(message, "f: ", 3) == 0 && is_line(message));
    } else {
        const gpt_settings *s = r.model_settings;
        require(s->model.layers >= 1 && s->model.d >= 2 && s->model.heads >= 1 && s->model.context >= 1);
    }
    recipe_free(&r);
    return 0;
}
