/* PyTorch as a contestant of `adamod optim bench`: a Python process that is told, line by line, which of its optimizers
 * to run next, so that its measurements alternate with ours.
 *
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "optim_bench.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct bench_torch {
    pid_t pid;
    FILE *to, *from;
    char python[256], version[64], error[512], *line;
    size_t capacity;
    bool fused;
};

/* What it runs. Requests and answers are lines of JSON, one answer to each request. AdaMod is the flavour published of
 * docs/optimizers.md, one tensor after the other, as a torch.optim.Optimizer would write it. */
static const char script[] =
    "import json, math, sys, time\n"
    "def say(**answer):\n"
    "    print(json.dumps(answer), flush=True)\n"
    "try:\n"
    "    import torch\n"
    "except Exception as error:\n"
    "    say(error=str(error).replace(chr(34), chr(39)))\n"
    "    sys.exit(1)\n"
    "torch.set_num_threads(int(sys.argv[1]))\n"
    "\n"
    "def adamw(params):\n"
    "    return torch.optim.AdamW(params, lr=1e-3, weight_decay=0, **{kind: True})\n"
    "\n"
    "def parameter(shape):\n"
    "    p = torch.nn.Parameter(torch.empty(shape).uniform_(-1, 1))\n"
    "    p.grad = torch.empty(shape).uniform_(-1, 1)\n"
    "    return p\n"
    "\n"
    "def has_fused():\n"
    "    try:\n"
    "        adamw([parameter([8])]).step()\n"
    "        return True\n"
    "    except Exception:\n"
    "        return False\n"
    "\n"
    "class AdaMod:\n"
    "    def __init__(self, params):\n"
    "        self.t = 0\n"
    "        self.items = [(p, torch.zeros_like(p), torch.zeros_like(p), torch.zeros_like(p)) for p in params]\n"
    "    @torch.no_grad()\n"
    "    def step(self, lr=1e-3, beta1=0.9, beta2=0.999, beta3=0.999, eps=1e-8):\n"
    "        self.t += 1\n"
    "        for p, m, v, s in self.items:\n"
    "            m.mul_(beta1).add_(p.grad, alpha=1 - beta1)\n"
    "            v.mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)\n"
    "            denominator = v.sqrt().add_(eps)\n"
    "            eta = lr * math.sqrt(1 - beta2**self.t) / (1 - beta1**self.t) / denominator\n"
    "            s.mul_(beta3).add_(eta, alpha=1 - beta3)\n"
    "            p.sub_(torch.min(eta, s).mul_(m))\n"
    "\n"
    "kind = 'fused'\n"
    "fused = has_fused()\n"
    "kind = 'fused' if fused else 'foreach'\n"
    "say(version=torch.__version__, fused=fused)\n"
    "sets = {'probe': [AdaMod([parameter([65536]) for _ in range(20)])]}\n"
    "for line in sys.stdin:\n"
    "    try:\n"
    "        ask = json.loads(line)\n"
    "        if ask['do'] == 'prepare':\n"
    "            make = {'adamw': adamw, 'adamod': AdaMod}\n"
    "            sets = {who: [make[who]([parameter(shape) for shape in ask['shapes']]) for _ in range(ask['sets'])]\n"
    "                    for who in ask['who']}\n"
    "            say(ok=True)\n"
    "        elif ask['do'] == 'drop':\n"
    "            sets = {}\n"
    "            say(ok=True)\n"
    "        else:\n"
    "            start = time.perf_counter()\n"
    "            for optimizer in sets[ask['who']]:\n"
    "                optimizer.step()\n"
    "            say(seconds=time.perf_counter() - start)\n"
    "    except Exception as error:\n"
    "        say(error=str(error).replace(chr(34), chr(39))[:200])\n";

/* ---- the process ---- */

/* How a thread of torch waits for the others at the end of every operation. */
typedef enum waiting { WAIT_DEFAULT, WAIT_ASLEEP } waiting;

static void run_python(const char *python, int threads, waiting how, int in, int out) {
    char count[16];
    snprintf(count, sizeof count, "%d", threads);
    if (how == WAIT_ASLEEP) setenv("OMP_WAIT_POLICY", "passive", 1);
    const int nowhere = open("/dev/null", O_WRONLY);
    if (dup2(in, STDIN_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0 && dup2(nowhere, STDERR_FILENO) >= 0) {
        execlp(python, python, "-c", script, count, (char *)NULL);
    }
    _exit(127);
}

static bool spawn(bench_torch *t, const char *python, int threads, waiting how) {
    int down[2] = {-1, -1}, up[2] = {-1, -1};
    if (pipe2(down, O_CLOEXEC) || pipe2(up, O_CLOEXEC) || (t->pid = fork()) < 0) {
        for (int i = 0; i < 2; i++) {
            if (down[i] >= 0) close(down[i]);
            if (up[i] >= 0) close(up[i]);
        }
        return false;
    }
    if (t->pid == 0) run_python(python, threads, how, down[0], up[1]);
    close(down[0]);
    close(up[1]);
    t->to = fdopen(down[1], "w");
    t->from = fdopen(up[0], "r");
    return t->to && t->from;
}

void bench_torch_stop(bench_torch *t) {
    if (!t) return;
    if (t->to) fclose(t->to); /* the end of its input is the end of it */
    if (t->from) fclose(t->from);
    while (t->pid > 0 && waitpid(t->pid, NULL, 0) < 0 && errno == EINTR) {}
    free(t->line);
    free(t);
}

/* ---- requests and answers ---- */

/* Copies the string or number after "key": out of the answer; the script writes no quotes within strings. */
static bool get(const bench_torch *t, const char *key, char *out, size_t size) {
    char quoted[32];
    snprintf(quoted, sizeof quoted, "\"%s\": ", key);
    const char *at = strstr(t->line, quoted);
    if (!at) return false;
    at += strlen(quoted);
    const bool string = *at == '"';
    at += string;
    snprintf(out, size, "%.*s", (int)strcspn(at, string ? "\"\n" : ",}\n"), at);
    return true;
}

static bool read_answer(bench_torch *t) {
    if (getline(&t->line, &t->capacity, t->from) < 0) {
        snprintf(t->error, sizeof t->error, "it ended without an answer");
        return false;
    }
    return !get(t, "error", t->error, sizeof t->error);
}

static bool answered(bench_torch *t) {
    if (fflush(t->to) == 0) return read_answer(t);
    snprintf(t->error, sizeof t->error, "it takes no requests: %s", strerror(errno));
    return false;
}

bool bench_torch_prepare(bench_torch *t, const bench_case *c, bool adamod) {
    fprintf(t->to, "{\"do\": \"prepare\", \"sets\": %d, \"who\": [\"adamw\"%s], \"shapes\": [", c->sets,
            adamod ? ", \"adamod\"" : "");
    for (int i = 0; i < c->n_shapes; i++) {
        fprintf(t->to, "%s[", i ? ", " : "");
        for (int d = 0; d < c->shapes[i].ndim; d++) {
            fprintf(t->to, "%s%lld", d ? ", " : "", (long long)c->shapes[i].dim[d]);
        }
        fprintf(t->to, "]");
    }
    fprintf(t->to, "]}\n");
    return answered(t);
}

static double request_time(bench_torch *t, const char *who) {
    char seconds[32];
    fprintf(t->to, "{\"do\": \"time\", \"who\": \"%s\"}\n", who);
    if (!answered(t) || !get(t, "seconds", seconds, sizeof seconds)) return -1;
    return strtod(seconds, NULL);
}

double bench_torch_burst(bench_torch *t, bench_peer peer) {
    return request_time(t, peer == PEER_ADAMW ? "adamw" : "adamod");
}

bool bench_torch_drop(bench_torch *t) {
    fprintf(t->to, "{\"do\": \"drop\"}\n");
    return answered(t);
}

/* ---- start ---- */

static bench_torch *start_one(const char *python, int threads, waiting how, char *message, size_t size) {
    bench_torch *t = calloc(1, sizeof *t);
    char fused[16] = "";
    if (!t) return NULL;
    snprintf(t->python, sizeof t->python, "%s", python);
    if (spawn(t, python, threads, how) && read_answer(t) && get(t, "version", t->version, sizeof t->version) &&
        get(t, "fused", fused, sizeof fused)) {
        t->fused = strcmp(fused, "true") == 0;
        return t;
    }
    const size_t used = strlen(message);
    snprintf(message + used, size - used, "%s%s: %.160s", used ? "; " : "", python,
             t->error[0] ? t->error : "cannot run");
    bench_torch_stop(t);
    return NULL;
}

/* The shortest of three short trials of each of two processes, in turns; the one that is slower is stopped. */
static bench_torch *keep_faster(bench_torch *a, bench_torch *b) {
    bench_torch *both[2] = {a, b};
    double best[2] = {1e9, 1e9};
    for (int i = 0; i < 6; i++) {
        const double seconds = request_time(both[i % 2], "probe");
        if (seconds >= 0 && seconds < best[i % 2]) best[i % 2] = seconds;
    }
    const int kept = best[1] < best[0];
    bench_torch_stop(both[!kept]);
    return both[kept];
}

/* On a busy machine threads that spin while they wait are many times slower than threads that sleep, and on an idle one
 * the other way round. torch gets what serves it best here, unless the environment says how it is to wait. */
bench_torch *bench_torch_start(const char *const *pythons, int threads, char *message, size_t size) {
    bench_torch *t = NULL;
    message[0] = '\0';
    for (; *pythons && !t; pythons++) t = start_one(*pythons, threads, WAIT_DEFAULT, message, size);
    if (!t || threads == 1 || getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT")) return t;
    char ignored[256] = "";
    bench_torch *asleep = start_one(t->python, threads, WAIT_ASLEEP, ignored, sizeof ignored);
    return asleep ? keep_faster(t, asleep) : t;
}

const char *bench_torch_python(const bench_torch *t) { return t->python; }
const char *bench_torch_version(const bench_torch *t) { return t->version; }
bool bench_torch_fused(const bench_torch *t) { return t->fused; }
const char *bench_torch_error(const bench_torch *t) { return t->error; }
