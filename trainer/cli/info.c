/* adamod info: the build, and the machine's instruction sets, memory and GPUs. */
#include "cli/cli.h"
#include "core/error.h"
#include "comm/nccl.h"
#include "support/json.h"
#ifdef ADAMOD_TRAINER
#include "nn/profile.h"
#include "train/loop.h"
#endif

#include <string.h>
#include <unistd.h>

typedef struct machine {
    char compiler[96];
    char processor[128];
    char huge_pages[64]; /* the system's setting: "madvise", "always", ... */
    const char *isa;     /* in use */
    int threads;
    long page_bytes;
    long cache_bytes; /* of the last level; 0: unknown */
    double memory_bytes;
} machine;

static const char *compiler_name(char *buffer, size_t size) {
#if defined(__clang__)
    snprintf(buffer, size, "clang %d.%d.%d", __clang_major__, __clang_minor__, __clang_patchlevel__);
#elif defined(__GNUC__)
    snprintf(buffer, size, "gcc %d.%d.%d", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#else
    snprintf(buffer, size, "unknown");
#endif
#ifndef __OPTIMIZE__
    strncat(buffer, ", not optimized", size - strlen(buffer) - 1);
#endif
    return buffer;
}

/* Copies the text after ": " in the first line that starts with key; without a key, the word in brackets. */
static void read_system(const char *path, const char *key, char *buffer, size_t size) {
    char line[512];
    FILE *file = fopen(path, "r");
    buffer[0] = '\0';
    while (file && fgets(line, sizeof line, file)) {
        if (key && strncmp(line, key, strlen(key)) != 0) continue;
        const char *begin = strchr(line, key ? ':' : '[');
        if (!begin) break;
        begin += strspn(begin, ":[ \t");
        snprintf(buffer, size, "%.*s", (int)strcspn(begin, "]\n"), begin);
        break;
    }
    if (file) fclose(file);
}

static int look(machine *m) {
    adamod_optimizer *opt;
    adamod_pool *pool;
    adamod_status status = adamod_create(&opt, "adamod");
    if (status) return cli_library("info", status);
    m->isa = adamod_isa(opt);
    adamod_free(opt);
    if ((status = adamod_pool_create(&pool, 0))) return cli_library("info", status);
    m->threads = adamod_pool_threads(pool);
    adamod_pool_free(pool);
    compiler_name(m->compiler, sizeof m->compiler);
    read_system("/proc/cpuinfo", "model name", m->processor, sizeof m->processor);
    read_system("/sys/kernel/mm/transparent_hugepage/enabled", NULL, m->huge_pages, sizeof m->huge_pages);
    m->page_bytes = sysconf(_SC_PAGESIZE);
    const long pages = sysconf(_SC_PHYS_PAGES);
    m->memory_bytes = pages > 0 ? (double)pages * (double)m->page_bytes : 0;
#ifdef _SC_LEVEL3_CACHE_SIZE
    const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    m->cache_bytes = cache > 0 ? cache : 0;
#endif
    return 0;
}

/* The library's last message, without its prefix. */
static const char *why_no_cuda(void) {
    const char *text = adamod__last_message();
    return strncmp(text, "cuda: ", 6) == 0 ? text + 6 : text;
}

/* NULL: the trainer can use CUDA. */
static const char *why_no_training(void) {
#ifdef ADAMOD_TRAINER
    return experiment_cuda_status() ? why_no_cuda() : NULL;
#else
    return "the trainer was not built";
#endif
}

/* The libraries that connect ranks, processes that train one model. */
static const struct {
    const char *name, *key;
    bool (*find)(char *out, size_t size);
} of_ranks[] = {{"MPI", "mpi", comm_library}, {"NCCL", "nccl", nccl_library}};
enum { RANKS = sizeof of_ranks / sizeof *of_ranks };

/* How a GPU runs op number i of those with something to say. */
typedef struct op_note {
    const char *op, *title;
    char line[96];
} op_note;

static bool note_on_cuda(int i, op_note *out) {
#ifdef ADAMOD_TRAINER
    nn_note note;
    if (experiment_cuda_status() || nn_device_note("cuda", i, &note) || !note.op) return false;
    *out = (op_note){.op = note.op, .title = note.title};
    snprintf(out->line, sizeof out->line, "%s", note.text);
    return true;
#else
    (void)i, (void)out;
    return false;
#endif
}

/* The instructions for train.precision mixed on the processor; NULL: none. */
static const char *bf16_here(void) {
#ifdef ADAMOD_TRAINER
    return nn_profile_narrow();
#else
    return NULL;
#endif
}

static void print_text(const machine *m) {
    printf("version           %s\n", adamod_version_string());
    printf("compiler          %s\n", m->compiler);
    printf("processor         %s\n", m->processor[0] ? m->processor : "unknown");
    printf("instruction sets  ");
    for (int i = 0; adamod_isa_name(i); i++) {
        const char *name = adamod_isa_name(i);
        printf("%s%s%s", i ? ", " : "", name, strcmp(name, m->isa) == 0 ? " (in use)" : "");
    }
    printf("\nmixed precision   %s\n", bf16_here() ? bf16_here() : "no instructions for products of bf16");
    printf("threads           %d\n", m->threads);
    if (m->memory_bytes > 0) printf("memory            %.1f GiB\n", m->memory_bytes / (1 << 30));
    if (m->cache_bytes) printf("last-level cache  %.1f MiB\n", (double)m->cache_bytes / (1 << 20));
    printf("page size         %ld bytes%s%s\n", m->page_bytes, m->huge_pages[0] ? ", huge pages: " : "", m->huge_pages);
    const bool off = adamod_cuda_status() != ADAMOD_OK;
    if (off) printf("CUDA              off: %s\n", why_no_cuda());
    adamod_cuda_device d;
    for (int i = 0; !adamod_cuda_device_at(i, &d); i++) {
        printf("%-17s %s, compute capability %d.%d, %.1f GiB, %.1f free, driver for CUDA %d.%d\n", i ? "" : "CUDA",
               d.name, d.major, d.minor, (double)d.memory / (1 << 30), (double)d.free_memory / (1 << 30),
               d.driver / 1000, d.driver % 1000 / 10);
    }
    const char *why = off ? NULL : why_no_training();
    if (why) printf("training on CUDA  off: %s\n", why);
    op_note note;
    for (int i = 0; !off && note_on_cuda(i, &note); i++) {
        char title[32];
        snprintf(title, sizeof title, "%s on CUDA", note.title);
        printf("%-17s %s\n", title, note.line);
    }
    for (int i = 0; i < RANKS; i++) {
        char found[256];
        const bool there = of_ranks[i].find(found, sizeof found);
        printf("%-17s %s%s\n", of_ranks[i].name, there ? "" : "off: ", there ? found : adamod__last_message());
    }
}

static void put_ranks(json *j) {
    for (int i = 0; i < RANKS; i++) {
        char found[256], key[16];
        const bool there = of_ranks[i].find(found, sizeof found);
        snprintf(key, sizeof key, "%s%s", of_ranks[i].key, there ? "" : "_off");
        json_pair(j, key, there ? found : adamod__last_message());
    }
}

static void put_gpus(json *j, bool off) {
    json_pair_open(j, "cuda", '[');
    adamod_cuda_device d;
    for (int i = 0; !off && !adamod_cuda_device_at(i, &d); i++) {
        char capability[16];
        snprintf(capability, sizeof capability, "%d.%d", d.major, d.minor);
        json_open(j, '{');
        json_pair(j, "name", d.name);
        json_pair(j, "capability", capability);
        json_pair_integer(j, "memory_bytes", (int64_t)d.memory);
        json_pair_integer(j, "free_bytes", (int64_t)d.free_memory);
        json_pair_integer(j, "driver", d.driver);
        json_close(j, '}');
    }
    json_close(j, ']');
}

static int print_json(const machine *m) {
    json j = {.spaced = true};
    json_open(&j, '{');
    json_pair(&j, "version", adamod_version_string());
    json_pair(&j, "compiler", m->compiler);
    json_pair(&j, "processor", m->processor);
    json_pair_open(&j, "instruction_sets", '[');
    for (int i = 0; adamod_isa_name(i); i++) json_string(&j, adamod_isa_name(i));
    json_close(&j, ']');
    json_pair(&j, "instruction_set", m->isa);
    json_pair(&j, "bf16", bf16_here());
    json_pair_integer(&j, "threads", m->threads);
    json_pair_integer(&j, "memory_bytes", (int64_t)m->memory_bytes);
    json_pair_integer(&j, "cache_bytes", m->cache_bytes);
    json_pair_integer(&j, "page_bytes", m->page_bytes);
    json_pair(&j, "huge_pages", m->huge_pages);
    const bool off = adamod_cuda_status() != ADAMOD_OK;
    json_pair(&j, "cuda_off", off ? why_no_cuda() : NULL);
    const char *why = why_no_training();
    json_pair(&j, "cuda_training_off", why);
    op_note note;
    for (int i = 0; !why && note_on_cuda(i, &note); i++) {
        char key[32];
        snprintf(key, sizeof key, "cuda_%s", note.op);
        json_pair(&j, key, note.line);
    }
    put_ranks(&j);
    put_gpus(&j, off);
    json_close(&j, '}');
    return cli_print_json("info", &j, "\n");
}

typedef struct arguments {
    bool json;
} arguments;

static const cli_flag flags[] = {CLI_SWITCH("json", "print one JSON object", arguments, json), CLI_HELP_FLAG, {0}};

int cli_info(int argc, char **argv) {
    const cli_syntax syntax = {
        .command = "info",
        .help =
            "usage: adamod info [--json]\n\n"
            "Shows the version, the build, and what this machine has for the library: instruction sets, memory, GPUs,\n"
            "MPI. The best instruction set is used, unless the environment variable ADAMOD_ISA names another.\n\n",
        .flags = flags};
    arguments a = {false};
    machine m = {0};
    int status = cli_parse(&syntax, argc, argv, &a);
    if (status >= 0 || (status = look(&m))) return status;
    if (a.json) return print_json(&m);
    print_text(&m);
    return 0;
}
