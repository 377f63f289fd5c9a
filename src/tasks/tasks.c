#include "tasks/tasks.h"

#include <stddef.h>

static const metric metrics[] = {
    {"loss", "loss", "loss", "", 1, 4, METRIC_LOWER, true},
    {"nll", "nll", "negative log-likelihood per token", "", 1, 4, METRIC_LOWER, false},
    {"ppl", "perplexity", "perplexity", "", 1, 3, METRIC_LOWER, false},
    {"exact", "exact", "exact translations", "%", 100, 1, METRIC_HIGHER, true},
    {"bleu", "BLEU", "BLEU", "", 1, 2, METRIC_HIGHER, true},
};

const metric *tasks_metrics(int *n) {
    *n = sizeof metrics / sizeof *metrics;
    return metrics;
}
