/* gpt_folder.h - GPT-2 as Hugging Face's transformers has it: a folder with config.json, model.safetensors, and vocab.json and
 * merges.txt, which are read as a run's. Names of parameters are the same, with or without "transformer." before them; the
 * matrices of blocks are transposed. Messages begin with the path. */
#pragma once

#include "tasks/language.h"

/* Whether a directory is such a folder, whole or not, and no run. */
bool gpt_folder_is(const char *directory);
/* Makes the recipe of its model, with defaults for the rest; text is looked for in the current directory. */
int gpt_folder_recipe(const char *directory, recipe *r);
/* Does so with the bytes of config.json; path is for messages. */
int gpt_folder_parse(const char *text, size_t n, const char *path, recipe *r);

/* As task.foreign. Loads weights of F32, BF16 or F16; parameters that match train.init_skip stay as they are. The file has
 * the model's parameters and no others, and a config.json beside it must fit the model. */
int gpt_folder_load(experiment *e, const char *path, bool *known);

/* Makes the directory and writes config.json and model.safetensors. The model must have GPT-2's form. */
int gpt_folder_save(const experiment *e, const char *directory);
