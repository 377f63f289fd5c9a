#include "tasks/tasks.h"

#include "tasks/images.h"
#include "tasks/language.h"
#include "tasks/translation.h"

#include <string.h>

const task *const tasks_all[] = {&task_numbers, &task_bitext, &task_images, &task_language, NULL};

const metric *tasks_metrics(int *n) {
    enum { MOST = 64 };
    static metric all[MOST];
    *n = 0;
    for (const task *const *t = tasks_all; *t; t++) {
        for (int i = 0; i < (*t)->n_metrics && *n < MOST; i++) {
            int k = 0;
            while (k < *n && strcmp(all[k].name, (*t)->metrics[i].name) != 0) k++;
            if (k == *n) all[(*n)++] = (*t)->metrics[i];
        }
    }
    return all;
}

int tasks_keep(const recipe *r, tasks_kept out[TASKS_KEPT]) {
    const task *t = recipe_task(r);
    int n = 0;
    if (t == &task_language)
        out[n++] = (tasks_kept){"data.vocabularies", language_settings_of(r)->data.vocabularies, ""};
    if (t == &task_bitext) {
        const translation_settings *s = translation_settings_of(r);
        out[n++] = (tasks_kept){"data.vocabularies", s->data.vocabularies, ""};
        out[n++] = (tasks_kept){"data.bpe", s->data.bpe, "/bpe.codes"};
    }
    return n;
}
