/* PyTorch as a contestant of `adamod optim bench`: a Python process that is told, line by line, which of its optimizers to
 * run next, so that its measurements alternate with ours. */
#include "cli/optim_bench.h"
#include "cli/bench_python.h"
#include "cli/cli.h"
#include "peers.h"

#include <stdlib.h>
#include <string.h>

void bench_torch_stop(bench_torch *t) {
    if (!t) return;
    bench_python_stop(t->process);
    free(t);
}

bool bench_torch_prepare(bench_torch *t, const bench_case *c, const char *same) {
    FILE *to = bench_python_request(t->process);
    t->same = same;
    fprintf(to, "{\"do\": \"prepare\", \"sets\": %d, \"who\": [\"adamw\"", c->sets);
    if (same) fprintf(to, ", \"%s\"", same);
    fprintf(to, "], \"shapes\": [");
    for (int i = 0; i < c->n_shapes; i++) {
        fprintf(to, "%s[", i ? ", " : "");
        for (int d = 0; d < c->shapes[i].ndim; d++)
            fprintf(to, "%s%lld", d ? ", " : "", (long long)c->shapes[i].dim[d]);
        fprintf(to, "]");
    }
    fprintf(to, "]}\n");
    return bench_python_answer(t->process);
}

double bench_torch_burst(bench_torch *t, bench_peer peer) {
    char seconds[32];
    if (!bench_python_ask(t->process, "{\"do\": \"time\", \"who\": \"%s\"}\n",
                          peer == PEER_ADAMW ? "adamw" : t->same) ||
        !bench_python_get(t->process, "seconds", seconds, sizeof seconds))
        return -1;
    return strtod(seconds, NULL);
}

bool bench_torch_drop(bench_torch *t) { return bench_python_ask(t->process, "{\"do\": \"drop\"}\n"); }

static bool says(const bench_torch *t, const char *what) {
    char answer[16] = "";
    return bench_python_get(t->process, what, answer, sizeof answer) && strcmp(answer, "true") == 0;
}

bench_torch *bench_torch_start(const char *python, int threads, const char *device) {
    bench_torch *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    const bool sleeps = threads > 1 && strcmp(device, "cpu") == 0 && !getenv("GOMP_SPINCOUNT");
    const char *const trials[BENCH_TRIALS] = {sleeps ? BENCH_WAIT_ASLEEP : NULL};
    t->process = bench_python_start(python, peer_torch_optim, threads, device, trials);
    if (!t->process) {
        free(t);
        return NULL;
    }
    bench_python_get(t->process, "version", t->version, sizeof t->version);
    bench_python_warn(t->process, "optim bench", t->version);
    t->fused = says(t, "fused");
    t->muon = says(t, "muon");
    t->adafactor = says(t, "adafactor");
    return t;
}

const char *bench_torch_python(const bench_torch *t) { return bench_python_name(t->process); }

bool bench_torch_has(const bench_torch *t, const char *rule) {
    if (strcmp(rule, "muon") == 0) return t->muon;
    if (strcmp(rule, "adafactor") == 0) return t->adafactor;
    return strcmp(rule, "adamod") == 0;
}

int bench_torch_failed(const bench_torch *t) {
    return cli_fail("optim bench", "%s: %s", bench_torch_python(t), bench_python_error(t->process));
}
