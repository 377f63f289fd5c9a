/* PyTorch and llm.c as contestants of `adamod bench train`: the task's script, torch_*.py, or llmc.py, told which steps to
 * take. */
#include "cli/bench_train.h"
#include "core/error.h"
#include "cli/bench_python.h"
#include "support/json.h"
#include "peers.h"

#include <stdlib.h>
#include <string.h>

static int failed(const bench_train_peer *p) {
    return cli_fail(BENCH_TRAIN, "%s in %s: %s", p->name, bench_python_name(p->process),
                    bench_python_error(p->process));
}

/* An OpenBLAS that does not know a new processor uses slow kernels unless it is told. */
static const char *blas_kernels(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")) return "OPENBLAS_CORETYPE=SkylakeX";
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "OPENBLAS_CORETYPE=Haswell";
#endif
    return NULL;
}

/* The model in PyTorch, built into the program; NULL: there is none. */
static const char *script_of(const experiment *e) {
    const char *own = recipe_model(&e->recipe)->peer, *peer = own || !e->task->bench ? own : e->task->bench->peer;
    for (size_t i = 0; peer && i < sizeof peer_models / sizeof *peer_models; i++) {
        if (strcmp(peer_models[i].name, peer) == 0) return peer_models[i].text;
    }
    return NULL;
}

void bench_train_peer_start(bench_train_peer *p, const experiment *e, const char *python, int threads, bool device,
                            const char *file) {
    const char *script = script_of(e);
    p->name = "torch";
    if (!script) {
        adamod__refuse("data.task %s has no model in PyTorch", e->task->name);
        return;
    }
    const char *const here[BENCH_TRIALS] = {blas_kernels(),
                                            threads > 1 && !getenv("GOMP_SPINCOUNT") ? BENCH_WAIT_ASLEEP : NULL};
    const char *const there[BENCH_TRIALS] = {NULL};
    const char *const *trials = device ? there : here;
    p->process = bench_python_start(python, script, threads, file, trials);
    if (!p->process) return;
    bench_python_get(p->process, "version", p->version, sizeof p->version);
    bench_python_get(p->process, "optimizer", p->optimizer, sizeof p->optimizer);
    bench_python_get(p->process, "attention", p->attention, sizeof p->attention);
    bench_python_get(p->process, "layout", p->layout, sizeof p->layout);
    bench_python_get(p->process, "how", p->how, sizeof p->how);
    p->rows = bench_python_number(p->process, "rows");
    p->loss = bench_python_number(p->process, "loss");
}

/* Building it is a request, so that what fails there is not tried with another Python. */
void bench_train_llmc_start(bench_train_peer *p, const char *python, int threads, const char *file,
                            const char *folder) {
    const char *const trials[BENCH_TRIALS] = {NULL};
    json j = {0};
    p->name = "llm.c";
    p->process = bench_python_start(python, peer_llmc, threads, file, trials);
    if (!p->process) return;
    json_open(&j, '{');
    json_pair(&j, "do", "open");
    json_pair(&j, "source", folder);
    json_close(&j, '}');
    if (j.failed || !bench_python_ask(p->process, "%s\n", j.text)) {
        adamod__refuse("%s", j.failed ? "out of memory" : bench_python_error(p->process));
        bench_python_stop(p->process);
        p->process = NULL;
    } else {
        bench_python_get(p->process, "version", p->version, sizeof p->version);
        bench_python_get(p->process, "how", p->how, sizeof p->how);
        p->loss = bench_python_number(p->process, "loss");
    }
    json_free(&j);
}

int bench_train_peer_compile(bench_train_peer *p) {
    if (!bench_python_ask(p->process, "{\"do\": \"compile\"}\n")) return failed(p);
    bench_python_get(p->process, "how", p->how, sizeof p->how);
    return 0;
}

int bench_train_peer_run(bench_train_peer *p, int first, int steps, double *seconds) {
    char times[32 * BENCH_BATCHES] = "", *at = times;
    if (!bench_python_ask(p->process, "{\"do\": \"train\", \"first\": %d, \"steps\": %d}\n", first, steps))
        return failed(p);
    bench_python_get(p->process, "seconds", times, sizeof times);
    for (int i = 0; i < steps; i++) seconds[i] = strtod(at, &at);
    return 0;
}

int bench_train_peer_burst(bench_train_peer *p, int first, int steps, double *seconds) {
    if (!bench_python_ask(p->process, "{\"do\": \"burst\", \"first\": %d, \"steps\": %d}\n", first, steps))
        return failed(p);
    *seconds = bench_python_number(p->process, "seconds");
    return 0;
}

int bench_train_peer_memory(bench_train_peer *p) {
    if (!bench_python_ask(p->process, "{\"do\": \"memory\"}\n")) return failed(p);
    p->base = bench_python_number(p->process, "base");
    p->peak = bench_python_number(p->process, "peak");
    p->reserved = bench_python_number(p->process, "reserved");
    return 0;
}

int bench_train_peer_convolutions(bench_train_peer *p) {
    if (!bench_python_ask(p->process, "{\"do\": \"convolutions\"}\n")) return failed(p);
    const double seconds = bench_python_number(p->process, "seconds");
    if (p->convolutions == 0 || seconds < p->convolutions) p->convolutions = seconds;
    return 0;
}
