/* PyTorch as a contestant of `adamod optim bench`: a Python process that is told, line by line, which of its optimizers
 * to run next, so that its measurements alternate with ours.
 *
 * SPDX-License-Identifier: MIT
 */
#include "cli/optim_bench.h"
#include "cli/bench_python.h"

#include <stdlib.h>
#include <string.h>

struct bench_torch {
    bench_python *process;
    char version[64];
    bool fused, muon, adafactor;
    const char *same; /* what it was prepared for beside AdamW */
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
    "device = sys.argv[2]\n"
    "if int(sys.argv[1]): torch.set_num_threads(int(sys.argv[1]))\n"
    "if device != 'cpu' and not torch.cuda.is_available():\n"
    "    say(error='its torch finds no GPU')\n"
    "    sys.exit(1)\n"
    "if device != 'cpu': torch.cuda.set_device(torch.device(device).index or 0)\n"
    "EMBEDDING = 1 << 14  # a dimension that is larger is a vocabulary's\n"
    "\n"
    "def adamw(params):\n"
    "    return torch.optim.AdamW(params, lr=1e-3, weight_decay=0, **{kind: True})\n"
    "\n"
    "def parameter(shape):\n"
    "    p = torch.nn.Parameter(torch.empty(shape, device=device).uniform_(-1, 1))\n"
    "    p.grad = torch.empty(shape, device=device).uniform_(-1, 1)\n"
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
    "class Muon:\n"
    "    def __init__(self, params):\n"
    "        flat = [p if p.ndim < 3 else torch.nn.Parameter(p.data.flatten(1)) for p in params]\n"
    "        for p, q in zip(params, flat): q.grad = p.grad.reshape(q.shape)\n"
    "        hidden = [p for p in flat if p.ndim == 2 and max(p.shape) <= EMBEDDING]\n"
    "        rest = [p for p in flat if p.ndim < 2 or max(p.shape) > EMBEDDING]\n"
    "        self.both = [torch.optim.Muon(hidden, lr=1e-3, weight_decay=0)] if hidden else []\n"
    "        if rest: self.both.append(adamw(rest))\n"
    "    def step(self):\n"
    "        for optimizer in self.both: optimizer.step()\n"
    "\n"
    "def adafactor(params):\n"
    "    return torch.optim.Adafactor(params, foreach=device != 'cpu')\n"
    "\n"
    "kind = 'fused'\n"
    "fused = has_fused()\n"
    "kind = 'fused' if fused else 'foreach'\n"
    "say(version=torch.__version__, python=sys.executable, fused=fused, muon=hasattr(torch.optim, 'Muon'),\n"
    "    adafactor=hasattr(torch.optim, 'Adafactor'))\n"
    "sets = {'probe': [AdaMod([parameter([65536]) for _ in range(20)])]}\n"
    "for line in sys.stdin:\n"
    "    try:\n"
    "        ask = json.loads(line)\n"
    "        if ask['do'] == 'prepare':\n"
    "            make = {'adamw': adamw, 'adamod': AdaMod, 'muon': Muon, 'adafactor': adafactor}\n"
    "            sets = {who: [make[who]([parameter(shape) for shape in ask['shapes']]) for _ in range(ask['sets'])]\n"
    "                    for who in ask['who']}\n"
    "            say(ok=True)\n"
    "        elif ask['do'] == 'drop':\n"
    "            sets = {}\n"
    "            if device != 'cpu': torch.cuda.empty_cache()\n"
    "            say(ok=True)\n"
    "        elif device == 'cpu':\n"
    "            start = time.perf_counter()\n"
    "            for optimizer in sets[ask.get('who', 'probe')]:\n"
    "                optimizer.step()\n"
    "            say(seconds=time.perf_counter() - start)\n"
    "        else:\n"
    "            optimizer, times = sets[ask['who']][0], 5\n"
    "            begin, end = torch.cuda.Event(True), torch.cuda.Event(True)\n"
    "            optimizer.step()\n"
    "            torch.cuda.synchronize()\n"
    "            begin.record()\n"
    "            for _ in range(times): optimizer.step()\n"
    "            end.record()\n"
    "            torch.cuda.synchronize()\n"
    "            say(seconds=begin.elapsed_time(end) / 1e3 / times)\n"
    "    except Exception as error:\n"
    "        say(error=str(error).replace(chr(34), chr(39))[:200])\n";

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
        for (int d = 0; d < c->shapes[i].ndim; d++) {
            fprintf(to, "%s%lld", d ? ", " : "", (long long)c->shapes[i].dim[d]);
        }
        fprintf(to, "]");
    }
    fprintf(to, "]}\n");
    return bench_python_answer(t->process);
}

double bench_torch_burst(bench_torch *t, bench_peer peer) {
    char seconds[32];
    fprintf(bench_python_request(t->process), "{\"do\": \"time\", \"who\": \"%s\"}\n",
            peer == PEER_ADAMW ? "adamw" : t->same);
    if (!bench_python_answer(t->process) || !bench_python_get(t->process, "seconds", seconds, sizeof seconds))
        return -1;
    return strtod(seconds, NULL);
}

bool bench_torch_drop(bench_torch *t) {
    fprintf(bench_python_request(t->process), "{\"do\": \"drop\"}\n");
    return bench_python_answer(t->process);
}

static bool says(const bench_torch *t, const char *what) {
    char answer[16] = "";
    return bench_python_get(t->process, what, answer, sizeof answer) && strcmp(answer, "true") == 0;
}

bench_torch *bench_torch_start(const char *python, int threads, const char *device, char *message, size_t size) {
    bench_torch *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    const bool sleeps = threads > 1 && strcmp(device, "cpu") == 0 && !getenv("GOMP_SPINCOUNT");
    const char *const trials[BENCH_TRIALS] = {sleeps ? BENCH_WAIT_ASLEEP : NULL};
    t->process = bench_python_start(python, script, threads, device, trials, message, size);
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
const char *bench_torch_version(const bench_torch *t) { return t->version; }
bool bench_torch_fused(const bench_torch *t) { return t->fused; }
bool bench_torch_has(const bench_torch *t, const char *rule) {
    if (strcmp(rule, "muon") == 0) return t->muon;
    if (strcmp(rule, "adafactor") == 0) return t->adafactor;
    return strcmp(rule, "adamod") == 0;
}
const char *bench_torch_error(const bench_torch *t) { return bench_python_error(t->process); }
