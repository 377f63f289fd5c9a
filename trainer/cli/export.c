/* adamod export: a run's model as a folder that transformers loads. */
#include "cli/open_run.h"
#include "core/error.h"
#include "tasks/gpt_folder.h"

#include <unistd.h>

typedef struct arguments {
    opened_run run;
    const char *out;
} arguments;

static const cli_flag flags[] = {OPEN_RUN_FLAGS, CLI_TEXT("out", "DIR", "the folder to write", arguments, out), {0}};

static const cli_syntax syntax = {
    .command = "export",
    .help = "usage: adamod export RUN --out DIR [--checkpoint NAME]\n\n"
            "Writes the model of a run of model.kind gpt, of GPT-2's form, as Hugging Face's transformers loads it:\n"
            "config.json, model.safetensors and, if tokens are bytes, vocab.json and merges.txt.\n\n",
    .flags = flags,
    .takes = CLI_ONE_OPERAND,
    .operands = offsetof(arguments, run.directory)};

/* Refuses a directory with weights or a vocabulary, which may be the only copy, and a run's directory. */
static int check_out(const char *directory) {
    static const char *const files[] = {"recipe.yaml", "config.json", "model.safetensors", "vocab.json", "merges.txt"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        if (access(path_join(directory, files[i]).text, F_OK) == 0)
            return cli_fail("export", "%s/%s exists: choose another --out", directory, files[i]);
    }
    return 0;
}

static int export_to(experiment *e, const char *directory) {
    const int status = check_out(directory);
    if (status) return status;
    const byte_bpe *bytes = e->task->answer == TASK_WRITES ? language_of(e)->bytes : NULL;
    return gpt_folder_save(e, directory) || (bytes && byte_bpe_save(bytes, directory)) ? cli_failed("export") : 0;
}

int cli_export(int argc, char **argv) {
    arguments a = {0};
    experiment e;
    int status = open_run(&syntax, argc, argv, &a.run, &e, TASK_APPLY);
    if (status >= 0) return status;
    if (e.task->answer != TASK_WRITES)
        status =
            cli_fail("export", "%s: data.task %s has no model that transformers loads", a.run.directory, e.task->name);
    else if (!a.out) status = cli_usage("export", "needs --out DIR");
    else status = export_to(&e, a.out);
    experiment_close(&e);
    return status;
}
