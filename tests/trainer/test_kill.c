/* A run is killed before each of its calls that change a file, half way through each of its writes too, and again while
 * it resumes, with other numbers of threads: it always ends bit for bit where an undisturbed run ends.
 *
 * The calls are this program's own, which take the place of libc's and count.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define _FILE_OFFSET_BITS 64 /* the calls of files that are compiled so */

#include "check.h"
#include "core/safetensors.h"
#include "tasks/tasks.h"
#include "train/checkpoints.h"
#include "train/resume.h"
#include "train/loop.h"
#include "core/error.h"

#include <ctype.h>
#include <fcntl.h>
#include <ftw.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- calls that kill ---- */

static int *calls;    /* made so far, in memory that parent and child share */
static int fatal;     /* the call to die in; 0: none */
static bool half_way; /* a write does half of its work first */

/* A run writes a checkpoint tensor by tensor: the first two of writes in a row to one file stand for all. In a row by one
 * thread, so that there are as many in every run. */
static bool now_fatal(int fd) {
    static _Thread_local int last_fd = -1, in_a_row;
    in_a_row = fd >= 0 && fd == last_fd ? in_a_row + 1 : 0;
    last_fd = fd;
    return calls && in_a_row < 2 && __atomic_add_fetch(calls, 1, __ATOMIC_RELAXED) == fatal;
}

static void die_if_now(void) {
    if (now_fatal(-1)) raise(SIGKILL);
}

ssize_t write(int fd, const void *data, size_t n) {
    if (now_fatal(fd)) {
        if (half_way) (void)!syscall(SYS_write, fd, data, n / 2);
        raise(SIGKILL);
    }
    return syscall(SYS_write, fd, data, n);
}

ssize_t pwrite(int fd, const void *data, size_t n, off_t offset) {
    if (now_fatal(fd)) {
        if (half_way) (void)!syscall(SYS_pwrite64, fd, data, n / 2, offset);
        raise(SIGKILL);
    }
    return syscall(SYS_pwrite64, fd, data, n, offset);
}

int fsync(int fd) { return die_if_now(), (int)syscall(SYS_fsync, fd); }
int ftruncate(int fd, off_t n) { return die_if_now(), (int)syscall(SYS_ftruncate, fd, n); }
int renameat(int from, const char *a, int to, const char *b) {
    return die_if_now(), (int)syscall(SYS_renameat2, from, a, to, b, 0);
}
int linkat(int from, const char *a, int to, const char *b, int flags) {
    return die_if_now(), (int)syscall(SYS_linkat, from, a, to, b, flags);
}
int unlinkat(int directory, const char *name, int flags) {
    return die_if_now(), (int)syscall(SYS_unlinkat, directory, name, flags);
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int mkdir(const char *path, mode_t mode) { return die_if_now(), (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode); }

/* ---- runs ---- */

static char root[64];

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw) {
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

static void remove_root(void) { nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS); }

static const char *below(const char *name) {
    static char paths[4][256];
    static int at;
    char *path = paths[at++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", root, name);
    return path;
}

static void remove_run(const char *name) { nftw(below(name), remove_one, 16, FTW_DEPTH | FTW_PHYS); }

static void copy_run(const char *from, const char *to) {
    char command[300];
    remove_run(to);
    snprintf(command, sizeof command, "cp -r %s/%s %s/%s", root, from, root, to);
    CHECK_INT(system(command), 0);
}

static bool exists(const char *name) { return access(below(name), F_OK) == 0; }

/* A training, and the texts that its runs keep. */
typedef struct problem {
    const char *const *settings, *const *texts; /* both end with NULL */
    int spread;                                 /* between calls to die in, as many times that of the first problem */
} problem;

/* Evaluations and checkpoints fall together and apart, the last ones with the end. */
#define LOOP                                                                                                           \
    "train.steps=4", "train.evaluate_every=3", "train.checkpoint_every=2", "train.histogram_dense=2",                  \
        "train.average=2", "train.accumulate=2"
static const problem translation = {
    (const char *const[]){"data.train=400", "data.valid=6", "data.test=6", "data.sentences=6", "model.layers=1",
                          "model.d=8", "model.ffn=8", "model.heads=2", "model.dropout=0.2", LOOP,
                          "train.keep_states=true", "decode.beam=2", "decode.max_length=6", "decode.samples=3", NULL},
    (const char *const[]){"metrics.jsonl", "histograms.jsonl", "samples.jsonl", "source.vocab", "target.vocab", NULL},
    1};
/* Checkpoints but the last are without states. An epoch has three updates: the state of the network, the place in the text
 * and the lengths of batches go on within one and from one to the next. */
static const problem language = {
    (const char *const[]){"data.task=language", "data.set=text", "data.batch=3", "data.length=6", "data.spread=2",
                          "data.valid_batch=2", "data.tokens=subwords", "data.merges=3", "model.layers=2",
                          "model.embedding=6", "model.hidden=5", LOOP, "generate.samples=2", "generate.tokens=5", NULL},
    (const char *const[]){"metrics.jsonl", "histograms.jsonl", "samples.jsonl", "words.vocab", "bpe.codes", NULL}, 3};
static const problem *trained = &translation;

static void put_texts(void) {
    static const char *const names[] = {"train.txt", "valid.txt", "test.txt"};
    for (int i = 0; i < 3; i++) {
        FILE *file = fopen(below(names[i]), "w");
        for (int k = 0; file && k < (i ? 4 : 12); k++) fputs(k * k % 3 ? "lower the boat\n" : "the lowest\n", file);
        if (file) fclose(file);
    }
}

static recipe small(int threads) {
    recipe r;
    char path[300];
    recipe_defaults(&r, tasks_all);
    for (const char *const *s = trained->settings; *s; s++) {
        if (!CHECK_INT(recipe_set(&r, *s), 0)) printf("%s\n", adamod__last_message());
    }
    snprintf(path, sizeof path, "data.path=%s", root);
    if (trained == &language) CHECK_INT(recipe_set(&r, path), 0);
    r.train.threads = threads;
    return r;
}

/* As adamod train --resume, which needs a directory; or, with begin, without; or with --reset and other settings. */
static bool begin;
static int reset;
static const char *const *changes; /* which end with NULL; NULL: none */
static bool own_recipe;            /* the run's own in place of the problem's */

static recipe recipe_for(const char *name, int threads) {
    recipe r = small(threads);
    if (own_recipe) {
        recipe_free(&r);
        recipe_defaults(&r, tasks_all);
    }
    if (own_recipe && !CHECK_INT(checkpoints_recipe(below(name), &r), 0)) puts(adamod__last_message());
    for (const char *const *s = changes; s && *s; s++) {
        if (!CHECK_INT(recipe_set(&r, *s), 0)) puts(adamod__last_message());
    }
    return r;
}

/* In a process of its own: 0, or the signal that ended it, or -1 with a message printed. */
static int train_from(const char *name, const char *from, int threads, int die_in) {
    const pid_t child = fork();
    if (child == 0) {
        train_result result;
        const recipe r = recipe_for(name, threads);
        const train_options o = {
            .directory = below(name), .resume = !begin && exists(name), .resume_from = from, .reset = reset};
        *calls = 0;
        fatal = die_in;
        const int failed = train_run(&r, &o, &result);
        fatal = 0;
        if (failed) printf("%s\n", adamod__last_message());
        fflush(stdout);
        _exit(failed ? 1 : 0);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child) return -1;
    return WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status) ? -1 : 0;
}

static int train(const char *name, int threads, int die_in) { return train_from(name, NULL, threads, die_in); }

/* ---- what must be equal ---- */

static const char *undisturbed = "whole"; /* the run that others must equal */

static char *contents(const char *path) {
    FILE *file = fopen(path, "rb");
    char *text = calloc(1, 1 << 18);
    if (file && text) (void)!fread(text, 1, (1 << 18) - 1, file);
    if (file) fclose(file);
    return text;
}

/* Without numbers that are a clock's. */
static void blank_times(char *text) {
    static const char *const clocks[] = {"\"time\":", "\"tokens_per_second\":"};
    for (int i = 0; i < 2; i++) {
        for (char *at = text; (at = strstr(at, clocks[i]));) {
            for (at += strlen(clocks[i]); *at != ',' && *at != '}'; at++) *at = ' ';
        }
    }
    char *to = text;
    for (const char *from = text; *from; from++) {
        if (*from != ' ') *to++ = *from;
    }
    *to = '\0';
}

static bool same_text(const char *name, const char *file) {
    char a[300], b[300];
    snprintf(a, sizeof a, "%s/%s/%s", root, undisturbed, file);
    snprintf(b, sizeof b, "%s/%s/%s", root, name, file);
    char *x = contents(a), *y = contents(b);
    blank_times(x), blank_times(y);
    const bool same = *x && strcmp(x, y) == 0;
    free(x), free(y);
    return same;
}

static bool same_entry(const adamod__st_file *a, const adamod__st_file *b, const adamod__st_entry *e) {
    const adamod__st_entry *other = adamod__st_find(b, e->name);
    const size_t n = (size_t)(e->end - e->begin);
    char *x = malloc(n + 1), *y = malloc(n + 1);
    const bool same = other && other->end - other->begin == n && adamod__st_read(a, e, x) == ADAMOD_OK &&
                      adamod__st_read(b, other, y) == ADAMOD_OK && memcmp(x, y, n) == 0;
    free(x), free(y);
    return same;
}

static bool same_tensors(const char *name, const char *file) {
    char path[300];
    adamod__st_file a, b;
    snprintf(path, sizeof path, "%s/%s/checkpoints/%s.safetensors", root, undisturbed, file);
    const bool none = access(path, F_OK) != 0;
    if (!none && adamod__st_open_within(path, ADAMOD__ST_MAX_HEADER, &a)) return false;
    snprintf(path, sizeof path, "%s/%s/checkpoints/%s.safetensors", root, name, file);
    if (none) return access(path, F_OK) != 0;
    bool same = adamod__st_open_within(path, ADAMOD__ST_MAX_HEADER, &b) == ADAMOD_OK && a.n_entries == b.n_entries;
    for (size_t i = 0; same && i < a.n_entries; i++) same = same_entry(&a, &b, &a.entries[i]);
    adamod__st_close(&a);
    adamod__st_close(&b);
    return same;
}

static int temporaries;
static int count_temporary(const char *path, const struct stat *st, int flag, struct FTW *ftw) {
    (void)st, (void)flag, (void)ftw;
    temporaries += strstr(path, ".tmp") != NULL;
    return 0;
}

static void check_same(const char *name, int first, int second) {
    static const char *const tensors[] = {"last", "best", "averaged", "step-2", "step-4", "step-6"};
    bool same = exists(name);
    for (const char *const *text = trained->texts; *text; text++) same &= same_text(name, *text);
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) same &= same_tensors(name, tensors[i]);
    temporaries = 0;
    nftw(below(name), count_temporary, 16, FTW_PHYS);
    const int held = CHECK(same) + CHECK_INT(temporaries, 0);
    if (held < 2) printf("  killed in call %d, then in call %d\n", first, second);
}

/* ---- tests ---- */

static int calls_of_a_run;

TEST(a_run_makes_many_calls) {
    CHECK_INT(train("whole", 1, 0), 0);
    calls_of_a_run = *calls;
    CHECK(calls_of_a_run > 60);
    check_same("whole", 0, 0);
}

/* Some calls spread over all of a run; each of them if ADAMOD_TEST_ALL is set. */
static void kill_everywhere(bool half, int first) {
    const int stride = getenv("ADAMOD_TEST_ALL") ? 1 : (getenv("ADAMOD_TEST_FAST") ? 29 : 7) * trained->spread;
    half_way = half;
    for (first = stride == 1 ? 1 : first; first <= calls_of_a_run && check_failures < 10; first += stride) {
        const int second = 1 + first * 7 % 40;
        remove_run("killed");
        CHECK_INT(train("killed", 1 + first % 3, first), SIGKILL);
        const int again = train("killed", 1 + second % 3, second);
        CHECK(again == SIGKILL || again == 0);
        CHECK_INT(train("killed", 2, 0), 0);
        check_same("killed", first, second);
    }
}

TEST(killed_before_any_call_it_ends_where_it_would_have) { kill_everywhere(false, 1); }
TEST(killed_within_any_write_it_ends_where_it_would_have) { kill_everywhere(true, 4); }

/* Until there is a checkpoint, both commands begin it again: each is killed in its turn, in a call of its own. */
TEST(killed_before_its_first_checkpoint_it_can_be_begun_or_resumed) {
    const int stride = getenv("ADAMOD_TEST_ALL") ? 1 : getenv("ADAMOD_TEST_FAST") ? 7 : 3;
    half_way = true;
    for (int call = 1; check_failures < 10; call += stride) {
        remove_run("early");
        begin = true;
        CHECK_INT(train("early", 1, call), SIGKILL);
        if (exists("early/checkpoints/step-2.safetensors") || exists("early/checkpoints/last.safetensors")) break;
        CHECK_INT(train("early", 1, 1 + call * 5 % 23), SIGKILL);
        begin = false;
        CHECK_INT(train("early", 1, 1 + call * 7 % 23), SIGKILL);
        begin = call % 2 == 0;
        CHECK_INT(train("early", 1, 0), 0);
        check_same("early", call, 1 + call * 5 % 23);
    }
    begin = false;
}

/* On its way back to an earlier checkpoint, and from there on: the next resumption need not be told from where. */
TEST(killed_on_its_way_back_it_ends_where_it_would_have) {
    const int stride = getenv("ADAMOD_TEST_ALL") ? 1 : getenv("ADAMOD_TEST_FAST") ? 29 : 9;
    half_way = true;
    for (int call = 2; call <= 60 && check_failures < 10; call += stride) {
        copy_run("whole", "back");
        CHECK_INT(train_from("back", "step-2", 1, call), SIGKILL);
        CHECK_INT(train("back", 1, 0), 0);
        check_same("back", call, 0);
    }
}

/* Kills --reset in call after call: then --resume, told nothing, goes on from before it or from after it. */
static void kill_in_reset(int first, int what, const char *const *settings, const char *from) {
    const int stride = getenv("ADAMOD_TEST_ALL") ? 1 : getenv("ADAMOD_TEST_FAST") ? 7 : 3;
    bool before = false, after = false;
    copy_run("whole", "renewed");
    reset = what, changes = settings;
    CHECK_INT(train_from("renewed", from, 1, 0), 0);
    for (int call = first; call <= 34 && check_failures < 10; call += stride) {
        copy_run("whole", "reset");
        reset = what, changes = settings, own_recipe = false;
        CHECK_INT(train_from("reset", from, 1, call), SIGKILL);
        reset = 0, changes = NULL, own_recipe = true;
        CHECK_INT(train("reset", 1, 0), 0);
        const bool renewed = exists("reset/checkpoints/step-6.safetensors");
        undisturbed = renewed ? "renewed" : "whole";
        check_same("reset", call, 0);
        before |= !renewed, after |= renewed;
    }
    CHECK(before && after);
    undisturbed = "whole";
    reset = 0, changes = NULL, own_recipe = false;
}

TEST(killed_in_a_reset_it_goes_on_from_before_or_after_it) {
    half_way = true;
    kill_in_reset(1, RESET_OPTIONS, (const char *const[]){"optimizer.lr=0.05", "train.steps=6", NULL}, NULL);
    kill_in_reset(2, RESET_OPTIMIZER, (const char *const[]){"optimizer.rule=sgd", "train.steps=6", NULL}, "step-2");
}

/* The state that a model of language carries on is part of its checkpoints. */
TEST(a_language_model_that_is_killed_ends_where_it_would_have) {
    trained = &language;
    put_texts();
    remove_run("whole");
    CHECK_INT(train("whole", 1, 0), 0);
    calls_of_a_run = *calls;
    check_same("whole", 0, 0);
    kill_everywhere(false, 2);
    kill_everywhere(true, 12);
}

static int run_all(void) {
    static const check_test tests[] = {ENTRY(a_run_makes_many_calls),
                                       ENTRY(killed_before_any_call_it_ends_where_it_would_have),
                                       ENTRY(killed_within_any_write_it_ends_where_it_would_have),
                                       ENTRY(killed_before_its_first_checkpoint_it_can_be_begun_or_resumed),
                                       ENTRY(killed_on_its_way_back_it_ends_where_it_would_have),
                                       ENTRY(killed_in_a_reset_it_goes_on_from_before_or_after_it),
                                       ENTRY(a_language_model_that_is_killed_ends_where_it_would_have)};
    return check_run(tests, sizeof tests / sizeof *tests, "");
}

int main(void) {
    /* in memory, where there is such a place, syncing costs nothing */
    snprintf(root, sizeof root, "%s/test_kill.XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (!mkdtemp(root)) return 1;
    calls = mmap(NULL, sizeof *calls, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (calls == MAP_FAILED) return 1;
    const int status = run_all();
    remove_root();
    return status;
}
