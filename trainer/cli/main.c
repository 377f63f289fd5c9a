/* adamod: the table of commands, each of which has a file of its own. */
#include "cli/cli.h"
#include "support/text.h"
#ifdef ADAMOD_TRAINER
#include "cli/ranks.h"
#endif

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>

static const cli_command commands[] = {
#ifdef ADAMOD_TRAINER
    {"train", "train the model that a recipe describes", cli_train, false},
    {"compare", "train variants of a recipe and write one report", cli_compare, true},
    {"reproduce", "make the runs, tables and figures of the paper", cli_reproduce, true},
    {"report", "write a page of tables and figures from runs", cli_report, true},
    {"evaluate", "measure a trained model: loss, accuracy, BLEU, ...", cli_evaluate, false},
    {"translate", "translate text with a trained model", cli_translate, true},
    {"predict", "classify images with a trained model", cli_predict, true},
    {"generate", "write text with a trained model", cli_generate, true},
    {"export", "write a model as transformers loads it", cli_export, true},
    {"bench train", "time a training step, beside the matrix library and PyTorch", cli_bench_train, true},
    {"bench comm", "time sums over ranks, beside MPI alone and a copy", cli_bench_comm, false},
    {"bench decode", "time beam search, beside CTranslate2", cli_bench_decode, true},
#endif
    {"data list", "list public data sets: source, size, what is here", cli_data_list, false},
    {"data get", "download data sets and verify them", cli_data_get, true},
    {"data prepare", "download data sets and prepare them for recipes", cli_data_prepare, true},
    {"text tokenize", "split text into tokens, by Moses' rules", cli_text_tokenize, false},
    {"text detokenize", "join tokens into text", cli_text_detokenize, false},
    {"text normalize", "make punctuation uniform, by Moses' rules", cli_text_normalize, false},
    {"text lowercase", "convert text to lower case", cli_text_lowercase, false},
    {"text bpe learn", "learn subwords from text", cli_text_bpe_learn, false},
    {"text bpe apply", "split words into subwords", cli_text_bpe_apply, false},
    {"text bpe vocab", "count words", cli_text_bpe_vocab, false},
    {"text tokens learn", "learn a byte-level vocabulary, as GPT-2's", cli_text_tokens_learn, false},
    {"text tokens encode", "convert text to ids of tokens", cli_text_tokens_encode, false},
    {"text tokens decode", "convert ids of tokens to text", cli_text_tokens_decode, false},
    {"text tokens pack", "pack text into a file of tokens, as llm.c's", cli_text_tokens_pack, false},
    {"text score", "score translations: BLEU and chrF, as sacreBLEU", cli_text_score, false},
    {"text clean", "keep pairs of sentences of reasonable lengths", cli_text_clean, false},
    {"info", "show version, build, processor and GPUs", cli_info, false},
    {"optim list", "list the optimizers, their options and states", cli_optim_list, false},
    {"optim trace", "run an optimizer over recorded gradients", cli_optim_trace, false},
    {"optim bench", "time a step, beside a loop that moves the same bytes and PyTorch", cli_optim_bench, false},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static void print_help(FILE *out) {
    fprintf(out, "usage: adamod COMMAND [ARGUMENT]...\n\n"
                 "AdaMod, and every optimizer its paper names.\n\n");
    for (int i = 0; i < COMMANDS; i++) fprintf(out, "  %-18s  %s\n", commands[i].name, commands[i].summary);
    fprintf(out, "  %-18s  %s\n", "help COMMAND", "show the arguments of a command");
    fprintf(out, "\n  --help, --version\n\nExit status: 0; 1 if something failed; 2 if the command line is wrong.\n");
}

/* The number of arguments that are the command's name; 0: they are not. */
static int match(const cli_command *command, int argc, char **argv) {
    const char *name = command->name;
    for (int i = 0; i < argc; i++) {
        const size_t length = strcspn(name, " ");
        if (strlen(argv[i]) != length || strncmp(name, argv[i], length) != 0) return 0;
        if (!name[length]) return i + 1;
        name += length + 1;
    }
    return 0;
}

/* The name within a family of commands, "trace" of "optim trace"; NULL: it is not of this family. */
static const char *member_of(const cli_command *command, const char *family) {
    const size_t length = strlen(family);
    if (!length || strncmp(command->name, family, length) != 0 || command->name[length] != ' ') return NULL;
    return command->name + length + 1;
}

static bool is_family(const char *word) {
    int n = 0;
    for (int i = 0; i < COMMANDS; i++) n += member_of(&commands[i], word) != NULL;
    return n > 0;
}

static int print_family(const char *family) {
    printf("usage: adamod %s COMMAND [ARGUMENT]...\n\n", family);
    for (int i = 0; i < COMMANDS; i++) {
        if (member_of(&commands[i], family)) printf("  %-18s  %s\n", commands[i].name, commands[i].summary);
    }
    return 0;
}

static bool is_help(const char *word) { return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0; }

/* A family of commands without one of them, or with one that does not exist. */
static int bad_member(const char *family, const char *member) {
    const char *words[COMMANDS + 1], *nearest = NULL;
    char known[256] = "";
    int n = 0;
    for (int i = 0; i < COMMANDS; i++) {
        if (!(words[n] = member_of(&commands[i], family))) continue;
        text_join(known, sizeof known, ", ", words[n++]);
    }
    words[n] = NULL;
    if (!member) return cli_usage(family, "needs a command: %s", known);
    if ((nearest = cli_nearest(member, words)))
        return cli_usage(family, "unknown command '%.40s'; did you mean '%s'?", member, nearest);
    return cli_usage(family, "unknown command '%.40s'; there are %s", member, known);
}

static int bad_command(int argc, char **argv) {
    if (is_family(argv[0])) {
        if (argc < 2 || !is_help(argv[1])) return bad_member(argv[0], argc > 1 ? argv[1] : NULL);
        return print_family(argv[0]);
    }
    char first[COMMANDS][32];
    const char *words[COMMANDS + 2];
    for (int i = 0; i < COMMANDS; i++) {
        snprintf(first[i], sizeof first[i], "%.*s", (int)strcspn(commands[i].name, " "), commands[i].name);
        words[i] = first[i];
    }
    words[COMMANDS] = "help";
    words[COMMANDS + 1] = NULL;
    const char *nearest = cli_nearest(argv[0], words);
    if (nearest) return cli_usage(NULL, "unknown command '%.40s'; did you mean '%s'?", argv[0], nearest);
    return cli_usage(NULL, "unknown command '%.40s'; 'adamod --help' lists them", argv[0]);
}

static int help(int argc, char **argv) {
    char *flag[] = {"--help"};
    if (argc == 0 || (argc == 1 && (is_help(argv[0]) || strcmp(argv[0], "help") == 0))) return print_help(stdout), 0;
    for (int i = 0; i < COMMANDS; i++) {
        const int words = match(&commands[i], argc, argv);
        if (words && words < argc) return cli_usage("help", "unexpected argument '%.40s'", argv[words]);
        if (words) return commands[i].run(1, flag);
    }
    if (argc == 1 && is_family(argv[0])) return print_family(argv[0]);
    return bad_command(argc, argv);
}

/* A stack that is too small would end the program by a signal. */
static int ensure_stack(const char *command) {
    const rlim_t need = 1 << 20;
    struct rlimit stack;
    if (getrlimit(RLIMIT_STACK, &stack) || stack.rlim_cur >= need) return 0;
    stack.rlim_cur = need;
    if (need <= stack.rlim_max && setrlimit(RLIMIT_STACK, &stack) == 0) return 0;
    return cli_fail(command, "the stack is limited to %llu KiB, expected at least %llu (ulimit -s)",
                    (unsigned long long)stack.rlim_max >> 10, (unsigned long long)need >> 10);
}

static int start(const cli_command *command, int argc, char **argv) {
    const int small = ensure_stack(command->name);
    if (small) return small;
#ifdef ADAMOD_TRAINER
    const int refused = command->alone ? ranks_refuse(command->name) : 0;
    if (refused) return refused;
#endif
    return command->run(argc, argv);
}

static int run(int argc, char **argv) {
    if (argc == 0) return print_help(stderr), CLI_USAGE;
    if (is_help(argv[0])) return print_help(stdout), 0;
    if (strcmp(argv[0], "help") == 0) return help(argc - 1, argv + 1);
    if (strcmp(argv[0], "--version") == 0) return printf("adamod %s\n", adamod_version_string()), 0;
    for (int i = 0; i < COMMANDS; i++) {
        const int words = match(&commands[i], argc, argv);
        if (words) return start(&commands[i], argc - words, argv + words);
    }
#ifdef ADAMOD_TRAINER
    if (!ranks_speak()) return CLI_USAGE;
#endif
    if (argv[0][0] == '-') return cli_usage(NULL, "unknown flag '%.40s'; 'adamod --help' shows what there is", argv[0]);
    return bad_command(argc, argv);
}

/* Occupies the standard streams that the caller has closed: a file that the program opens would take their place, and
 * get its messages. Opened the wrong way round, they fail when used, as closed ones do. */
static int occupy_streams(void) {
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) < 0)
            return cli_fail(NULL, "/dev/null: cannot open: %s", strerror(errno));
    }
    return 0;
}

int main(int argc, char **argv) {
    const int closed = occupy_streams();
    if (closed) return closed;
    signal(SIGXFSZ, SIG_IGN); /* a file at the size limit is a failed write, with a message */
    const int status = run(argc - 1, argv + 1);
    if ((fflush(stdout) != 0 || ferror(stdout)) && status == 0)
        return cli_fail(NULL, "cannot write to standard output: %s", strerror(errno));
    return status;
}
