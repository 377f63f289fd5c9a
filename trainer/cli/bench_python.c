#include "cli/bench_python.h"
#include "core/error.h"
#include "cli/bench.h"
#include "support/text.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct bench_python {
    pid_t pid;
    FILE *to, *from;
    char name[256], settings[128], error[512], *line;
    char passed_over[512]; /* why those before it were not taken; "": it is the first */
    size_t capacity;
};

/* ---- the process ---- */

typedef struct command {
    const char *script, *argument;
    int threads;
    const char *settings[BENCH_TRIALS]; /* "NAME=VALUE" of the environment; NULL: none */
} command;

static void run_python(const char *python, const command *c, pid_t parent, int in, int out) {
    char count[16];
    snprintf(count, sizeof count, "%d", c->threads);
    for (int i = 0; i < BENCH_TRIALS; i++) {
        if (c->settings[i]) putenv((char *)(uintptr_t)c->settings[i]);
    }
    setenv("OPENBLAS_NUM_THREADS", count, 1); /* torch can be built with an OpenBLAS that heeds nothing else */
    prctl(PR_SET_PDEATHSIG, SIGKILL);         /* a request may take minutes, and its answer is not read then */
    if (getppid() != parent) _exit(127);
    const int nowhere = open("/dev/null", O_WRONLY);
    if (dup2(in, STDIN_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0 && dup2(nowhere, STDERR_FILENO) >= 0)
        execlp(python, python, "-c", c->script, count, c->argument, (char *)NULL);
    _exit(127);
}

static bool spawn(bench_python *p, const command *c) {
    int down[2] = {-1, -1}, up[2] = {-1, -1};
    const pid_t parent = getpid();
    if (pipe2(down, O_CLOEXEC) || pipe2(up, O_CLOEXEC) || (p->pid = fork()) < 0) {
        for (int i = 0; i < 2; i++) {
            if (down[i] >= 0) close(down[i]);
            if (up[i] >= 0) close(up[i]);
        }
        return false;
    }
    if (p->pid == 0) run_python(p->name, c, parent, down[0], up[1]);
    close(down[0]);
    close(up[1]);
    p->to = fdopen(down[1], "w");
    p->from = fdopen(up[0], "r");
    return p->to && p->from;
}

void bench_python_stop(bench_python *p) {
    if (!p) return;
    if (p->to) fclose(p->to); /* it ends at the end of its input */
    if (p->from) fclose(p->from);
    while (p->pid > 0 && waitpid(p->pid, NULL, 0) < 0 && errno == EINTR) {}
    free(p->line);
    free(p);
}

/* ---- requests and answers ---- */

bool bench_python_get(const bench_python *p, const char *key, char *out, size_t size) {
    char quoted[32];
    snprintf(quoted, sizeof quoted, "\"%s\": ", key);
    const char *at = strstr(p->line, quoted);
    if (!at) return false;
    at += strlen(quoted);
    const bool string = *at == '"';
    at += string;
    snprintf(out, size, "%.*s", (int)strcspn(at, string ? "\"\n" : ",}\n"), at);
    return true;
}

static bool read_answer(bench_python *p) {
    if (getline(&p->line, &p->capacity, p->from) < 0) {
        snprintf(p->error, sizeof p->error, "it ended without an answer");
        return false;
    }
    return !bench_python_get(p, "error", p->error, sizeof p->error);
}

double bench_python_number(const bench_python *p, const char *key) {
    char digits[64] = "";
    bench_python_get(p, key, digits, sizeof digits);
    return strtod(digits, NULL);
}

FILE *bench_python_request(bench_python *p) { return p->to; }

bool bench_python_answer(bench_python *p) {
    if (fflush(p->to) == 0) return read_answer(p);
    snprintf(p->error, sizeof p->error, "it takes no requests: %s", strerror(errno));
    return false;
}

bool bench_python_ask(bench_python *p, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(p->to, format, arguments);
    va_end(arguments);
    return bench_python_answer(p);
}

/* ---- start ---- */

static bench_python *start_one(const char *python, const command *c) {
    bench_python *p = calloc(1, sizeof *p);
    if (!p) return adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", python), NULL;
    snprintf(p->name, sizeof p->name, "%s", python);
    for (int i = 0; i < BENCH_TRIALS; i++) {
        if (c->settings[i]) text_join(p->settings, sizeof p->settings, " ", c->settings[i]);
    }
    if (spawn(p, c) && read_answer(p)) return p;
    adamod__refuse("%s: %.160s", python, p->error[0] ? p->error : "cannot run");
    bench_python_stop(p);
    return NULL;
}

static double probe(bench_python *p) {
    if (!bench_python_ask(p, "{\"do\": \"probe\"}\n")) return 1e9;
    const double seconds = bench_python_number(p, "seconds");
    return seconds > 0 ? seconds : 1e9;
}

/* Whether the second of two processes is the faster one, by the shortest of three short trials of each, in turns. */
static bool is_faster(bench_python *was, bench_python *is) {
    bench_python *both[2] = {was, is};
    double best[2] = {1e9, 1e9};
    for (int i = 0; i < 6; i++) {
        const double seconds = probe(both[i % 2]);
        if (seconds < best[i % 2]) best[i % 2] = seconds;
    }
    return best[1] < best[0];
}

static bool is_set(const char *setting) {
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(setting, "="), setting);
    return getenv(name) != NULL;
}

/* Starts a second process with this setting and returns the faster one. */
static bench_python *try_setting(bench_python *p, command *c, int trial, const char *setting) {
    c->settings[trial] = setting;
    bench_python *other = start_one(p->name, c);
    const bool better = other && is_faster(p, other);
    if (!better) c->settings[trial] = NULL;
    bench_python_stop(better ? p : other);
    return better ? other : p;
}

bench_python *bench_python_start(const char *python, const char *script, int threads, const char *argument,
                                 const char *const trials[BENCH_TRIALS]) {
    const char *const names[] = {python, "python3", "/usr/bin/python3"};
    command c = {.script = script, .argument = argument, .threads = threads};
    bench_python *p = NULL;
    char passed_over[512] = "";
    signal(SIGPIPE, SIG_IGN); /* a Python that ends is an error to report */
    for (int i = python ? 0 : 1; i < 3 && !p; i++) {
        p = start_one(names[i], &c);
        if (!p) text_join(passed_over, sizeof passed_over, "; ", adamod__last_message());
    }
    if (!p) adamod__refuse("%s", passed_over);
    char *first = p ? strdup(p->line) : NULL;
    if (p) bench_python_get(p, "python", p->name, sizeof p->name);
    for (int i = 0; p && i < BENCH_TRIALS; i++) {
        if (trials[i] && !is_set(trials[i])) p = try_setting(p, &c, i, trials[i]);
    }
    if (p) snprintf(p->passed_over, sizeof p->passed_over, "%s", passed_over);
    if (first) { /* the next answer read is the first again */
        free(p->line);
        p->line = first;
        p->capacity = strlen(first) + 1;
    }
    return p;
}

void bench_python_warn(const bench_python *p, const char *who, const char *version) {
    if (*p->passed_over)
        fprintf(stderr, "adamod: %s: %s; torch %s of %s is measured instead\n", who, p->passed_over, version, p->name);
    if (bench_torch_is_old(version))
        fprintf(
            stderr,
            "adamod: %s: torch %s is from before 2.0, of 2023: a newer one is faster, name its Python by --python\n",
            who, version);
}

const char *bench_python_name(const bench_python *p) { return p->name; }
const char *bench_python_settings(const bench_python *p) { return p->settings; }
const char *bench_python_error(const bench_python *p) { return p->error; }
