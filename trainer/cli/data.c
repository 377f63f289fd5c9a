/* adamod data list, get, prepare: see data/sets/data_sets.h. */
#include "cli/cli.h"
#include "core/error.h"

#include "support/clock.h"
#include "core/number.h"
#include "support/text.h"
#include "data/sets/data_sets.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- list ---- */

static bool there(const data_set *s, const char *what, const char *file) {
    char folder[DATA_SET_PATH], path[DATA_SET_PATH + 128];
    if (data_set_folder(s, what, folder, sizeof folder)) return false;
    snprintf(path, sizeof path, "%s/%s", folder, file);
    return access(path, F_OK) == 0;
}

static const char *state_of(const data_set *s) {
    int files = 0, here = 0;
    for (const data_file *f = s->files; f->name; f++, files++) here += there(s, "downloads", f->name);
    const data_state state = data_set_state(s);
    if (state != DATA_MISSING) return state == DATA_PREPARED ? "prepared" : "partly deleted";
    return here == files ? "fetched" : here ? "partly fetched" : "not here";
}

/* "1656.4 MB", with a + if some file's size is not known. */
static const char *size_of(const data_set *s, char out[32]) {
    double bytes = 0;
    bool whole = true;
    for (const data_file *f = s->files; f->name; f++) {
        bytes += (double)f->size;
        whole = whole && f->size;
    }
    if (bytes > 0) snprintf(out, 32, "%.1f MB%s", bytes / 1e6, whole ? "" : " +");
    else snprintf(out, 32, "unknown");
    return out;
}

static void print_set(const data_set *s) {
    char folder[DATA_SET_PATH], size[32];
    printf("%s: %s\n  data.task   %s\n  home        %s\n  licence     %s\n  size        %s\n  state       %s\n",
           s->name, s->about, s->task, s->home, s->licence, size_of(s, size), state_of(s));
    if (!data_set_folder(s, "prepared", folder, sizeof folder)) text_line(stdout, "  prepared in %s", folder);
    for (const data_file *f = s->files; f->name; f++) {
        printf("  %s%s\n    %s\n", f->name, there(s, "downloads", f->name) ? ", here" : "", f->url);
        if (f->size) printf("    %lld bytes", (long long)f->size);
        else printf("    size not published");
        printf(", %s %s\n", digest_name(f->kind),
               f->checksum ? f->checksum : "not published: that of the first one prepared counts");
    }
}

static void print_json(const data_set *s) {
    const char *const texts[][2] = {{"name", s->name}, {"about", s->about},     {"task", s->task},
                                    {"home", s->home}, {"licence", s->licence}, {"state", state_of(s)}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        printf("%s", i ? ", " : "  {");
        cli_json_string(stdout, texts[i][0]);
        printf(": ");
        cli_json_string(stdout, texts[i][1]);
    }
    printf(", \"files\": [");
    for (const data_file *f = s->files; f->name; f++) {
        printf("%s\n    {\"name\": ", f == s->files ? "" : ",");
        cli_json_string(stdout, f->name);
        printf(", \"url\": ");
        cli_json_string(stdout, f->url);
        printf(", \"bytes\": ");
        if (f->size) printf("%lld", (long long)f->size);
        else printf("null");
        printf(", \"%s\": ", f->kind == DIGEST_MD5 ? "md5" : "sha256");
        if (f->checksum) cli_json_string(stdout, f->checksum);
        else printf("null");
        printf(", \"here\": %s}", there(s, "downloads", f->name) ? "true" : "false");
    }
    printf("]}");
}

static void print_table(void) {
    for (int i = 0; i < data_sets_n; i++) {
        char size[32];
        printf("%-15s %11s  %-14s  %s\n", data_sets[i].name, size_of(&data_sets[i], size), state_of(&data_sets[i]),
               data_sets[i].about);
    }
}

/* A set by its name; NULL, with the message printed. */
static const data_set *named(const char *command, const char *name) {
    const char *names[64] = {NULL};
    const data_set *s = data_set_find(name);
    for (int i = 0; i < data_sets_n && i < 63; i++) names[i] = data_sets[i].name;
    if (s) return s;
    const char *nearest = cli_nearest(name, names);
    for (int i = 0; !nearest && *name && names[i]; i++)
        nearest = strncmp(names[i], name, strlen(name)) ? NULL : names[i];
    if (nearest) cli_usage(command, "no data set '%.40s'; did you mean '%s'?", name, nearest);
    else cli_usage(command, "no data set '%.40s'; 'adamod data list' shows them", name);
    return NULL;
}

enum { LIST_JSON, LIST_HELP };
static const cli_flag list_flags[] = {{"json", NULL, "print JSON"}, CLI_HELP_FLAG, {0}};

int cli_data_list(int argc, char **argv) {
    const data_set *chosen[64];
    cli_parser p = {.command = "data list", .flags = list_flags, .argc = argc, .argv = argv};
    bool json = false;
    int n = 0;
    for (int flag; (flag = cli_next(&p)) != CLI_END;) {
        if (flag == CLI_BAD) return CLI_USAGE;
        if (flag == LIST_HELP) {
            fputs("usage: adamod data list [--json] [NAME]...\n\n"
                  "Lists the public data sets that recipes name. With a name: its files, addresses and checksums.\n\n",
                  stdout);
            cli_print_flags(stdout, list_flags);
            return 0;
        }
        if (flag == LIST_JSON) json = true;
        else if (n == 64) return cli_usage(p.command, "too many names, expected at most 64");
        else if (!(chosen[n++] = named(p.command, p.value))) return CLI_USAGE;
    }
    if (!n && !json) return print_table(), 0;
    for (int i = 0; !n && i < data_sets_n; i++) chosen[i] = &data_sets[i];
    if (!n) n = data_sets_n;
    if (json) printf("[\n");
    for (int i = 0; i < n; i++) {
        if (!json) print_set(chosen[i]);
        else {
            print_json(chosen[i]);
            printf(i + 1 < n ? ",\n" : "\n]\n");
        }
    }
    return 0;
}

/* ---- get and prepare ---- */

enum { FLAG_MIRROR, FLAG_MIRRORS, FLAG_TIMEOUT, FLAG_HELP, FLAG_THREADS, FLAG_AGAIN };
#define GET_FLAGS                                                                                                      \
    {"mirror", "URL", "server that has SET/FILE, tried first; may be repeated"},                                       \
        {"mirrors", "FILE", "file of more addresses (~/.config/adamod/mirrors)"},                                      \
        {"timeout", "SECONDS", "give up on a server that sends next to nothing for this long (30)"}, CLI_HELP_FLAG
static const cli_flag get_flags[] = {GET_FLAGS, {0}};
static const cli_flag prepare_flags[] = {GET_FLAGS,
                                         {"threads", "N", "threads; 0: one for each core (0)"},
                                         {"again", NULL, "prepare again what is already prepared"},
                                         {0}};

/* What is shown: on a terminal a live line, elsewhere one now and then. */
typedef struct shown {
    const char *command, *set;
    bool live, dirty;
    double last;
} shown;

static void clear_line(shown *s) {
    if (s->dirty) fputs("\r\033[K", stderr);
    s->dirty = false;
}

static void show_progress(void *context, const char *what, int64_t done, int64_t total) {
    shown *s = context;
    const double now = clock_seconds();
    const bool bytes = strncmp(what, "fetching ", 9) == 0 || strncmp(what, "checking ", 9) == 0 ||
                       strncmp(what, "unpacking ", 10) == 0;
    if (now - s->last < (s->live ? 0.2 : 30)) return;
    if (!s->live && s->last == 0) {
        s->last = now;
        return;
    }
    s->last = now;
    clear_line(s);
    fprintf(stderr, "%s: ", s->set);
    if (bytes && total > 0)
        fprintf(stderr, "%s: %.1f of %.1f MB, %.0f %%", what, (double)done / 1e6, (double)total / 1e6,
                100 * (double)done / (double)total);
    else if (bytes) fprintf(stderr, "%s: %.1f MB", what, (double)done / 1e6);
    else if (done > 0) fprintf(stderr, "%lld %s", (long long)done, what);
    else fputs(what, stderr);
    if (s->live) s->dirty = true;
    else fputc('\n', stderr);
    fflush(stderr);
}

static void show_note(void *context, const char *line) {
    shown *s = context;
    clear_line(s);
    text_line(stderr, "adamod: %s: %s", s->command, line);
}

typedef struct job {
    const char *command;
    const data_set *sets[64];
    int n;
    data_sources sources;
    data_options o;
    bool mirrors; /* a file of them was given */
} job;

static int parse_flag(job *j, int flag, const char *value) {
    int64_t threads;
    char *end = NULL;
    switch (flag) {
        case FLAG_MIRROR: return data_sources_mirror(&j->sources, value) ? cli_refused(j->command) : 0;
        case FLAG_MIRRORS:
            j->mirrors = true;
            return data_sources_read(&j->sources, value, false) ? cli_failed(j->command) : 0;
        case FLAG_TIMEOUT:
            j->o.timeout = adamod__read_number(value, &end);
            if (end != value && !*end && j->o.timeout >= 1 && j->o.timeout <= 86400) return 0;
            return cli_usage(j->command, "--timeout is '%.40s', expected seconds from 1 to 86400", value);
        case FLAG_THREADS:
            if (!cli_parse_int(j->command, "threads", value, 0, 1024, &threads)) return CLI_USAGE;
            j->o.threads = (int)threads;
            return 0;
        case FLAG_AGAIN: j->o.again = true; return 0;
        default:
            if (j->n == 64) return cli_usage(j->command, "too many names, expected at most 64");
            return (j->sets[j->n++] = named(j->command, value)) ? 0 : CLI_USAGE;
    }
}

/* The command line: exit status, or -1 to go on. */
static int parse_job(job *j, const cli_flag *flags, const char *help, int argc, char **argv) {
    cli_parser p = {.command = j->command, .flags = flags, .argc = argc, .argv = argv};
    for (int flag; (flag = cli_next(&p)) != CLI_END;) {
        if (flag == CLI_BAD) return CLI_USAGE;
        if (flag == FLAG_HELP) {
            fputs(help, stdout);
            cli_print_flags(stdout, flags);
            return 0;
        }
        const int status = parse_flag(j, flag, p.value);
        if (status) return status;
    }
    if (j->n == 0) return cli_usage(j->command, "needs the name of a data set; 'adamod data list' shows them");
    return -1;
}

static int run_job(const char *command, const cli_flag *flags, const char *help, int argc, char **argv,
                   int (*run)(const data_set *s, const data_options *o)) {
    job j = {.command = command};
    shown s = {.command = command, .live = isatty(STDERR_FILENO)};
    char usual[DATA_SET_PATH];
    int status = parse_job(&j, flags, help, argc, argv);
    data_sources_default(usual, sizeof usual);
    if (status < 0 && !j.mirrors && *usual && data_sources_read(&j.sources, usual, true)) status = cli_failed(command);
    j.o.sources = &j.sources;
    j.o.progress = show_progress;
    j.o.note = show_note;
    j.o.context = &s;
    for (int i = 0; status <= 0 && i < j.n; i++) {
        if (status == 0) break; /* --help */
        s.set = j.sets[i]->name;
        const int failed = run(j.sets[i], &j.o);
        clear_line(&s);
        if (failed) status = cli_fail(command, "%s: %s", j.sets[i]->name, adamod__last_message());
    }
    data_sources_free(&j.sources);
    return status < 0 ? 0 : status;
}

static int print_folder(const data_set *s, const char *what) {
    char folder[DATA_SET_PATH];
    if (data_set_folder(s, what, folder, sizeof folder)) return -1;
    if (isatty(STDOUT_FILENO)) text_line(stdout, "%s", folder);
    else printf("%s\n", folder); /* a script needs the name as it is */
    return 0;
}

static int get(const data_set *s, const data_options *o) {
    bool unsure;
    return data_set_get(s, o, &unsure) ? -1 : print_folder(s, "downloads");
}

static int prepare(const data_set *s, const data_options *o) {
    return data_set_prepare(s, o) ? -1 : print_folder(s, "prepared");
}

int cli_data_get(int argc, char **argv) {
    return run_job("data get", get_flags,
                   "usage: adamod data get [--mirror URL] [--mirrors FILE] NAME...\n\n"
                   "Downloads the files of data sets into the cache, verifies their checksums, and prints the folder.\n"
                   "Interrupted downloads are continued.\n\n",
                   argc, argv, get);
}

int cli_data_prepare(int argc, char **argv) {
    return run_job(
        "data prepare", prepare_flags,
        "usage: adamod data prepare [--again] [--mirror URL] [--mirrors FILE] NAME...\n\n"
        "Downloads data sets, unless they are in the cache, prepares them for recipes with data.set, and prints\n"
        "the folder.\n\n",
        argc, argv, prepare);
}
