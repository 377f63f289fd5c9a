/* adamod data list, get, prepare: see data/sets/data_sets.h. */
#include "cli/cli.h"
#include "core/error.h"

#include "core/number.h"
#include "support/clock.h"
#include "support/json.h"
#include "support/text.h"
#include "data/sets/data_sets.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_SETS = 64 };

/* ---- list ---- */

static bool there(const data_set *s, const char *what, const char *file) {
    char folder[DATA_SET_PATH];
    return !data_set_folder(s, what, folder, sizeof folder) && access(path_join(folder, file).text, F_OK) == 0;
}

static const char *state_of(const data_set *s) {
    int files = 0, here = 0;
    for (const data_file *f = s->files; f->name; f++, files++) here += there(s, "downloads", f->name);
    const data_state state = data_set_state(s);
    if (state != DATA_MISSING) return state == DATA_PREPARED ? "prepared" : "partly deleted";
    return here == files ? "fetched" : here ? "partly fetched" : "not here";
}

/* The same for people, who should see where a prepared set did not come from the published files. */
static const char *shown_state(const data_set *s) {
    static const char *const words[] = {[DATA_AS_PUBLISHED] = "prepared",
                                        [DATA_UNRECORDED] = "no record",
                                        [DATA_CHANGED] = "changed",
                                        [DATA_OF_OWN_FILES] = "own files"};
    data_origin origin;
    if (data_set_state(s) != DATA_PREPARED) return state_of(s);
    data_set_origin(s, &origin);
    return words[origin.kind];
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
    data_origin origin = {0};
    if (data_set_state(s) == DATA_PREPARED) data_set_origin(s, &origin);
    printf("%s: %s\n  data.task   %s\n  home        %s\n  licence     %s\n  size        %s\n  state       %s\n",
           s->name, s->about, s->task, s->home, s->licence, size_of(s, size), state_of(s));
    if (*origin.why) text_line(stdout, "  own files   %s", origin.why);
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
    json j = {.spaced = true};
    data_origin origin;
    json_open(&j, '{');
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) json_pair(&j, texts[i][0], texts[i][1]);
    if (data_set_state(s) == DATA_PREPARED) {
        data_set_origin(s, &origin);
        json_pair_boolean(&j, "published", origin.kind == DATA_AS_PUBLISHED);
        if (*origin.why) json_pair(&j, "why", origin.why);
    }
    printf("  ");
    (void)cli_print_json("data list", &j, ", \"files\": [");
    for (const data_file *f = s->files; f->name; f++) {
        j.spaced = true;
        json_open(&j, '{');
        json_pair(&j, "name", f->name);
        json_pair(&j, "url", f->url);
        json_key(&j, "bytes");
        if (f->size) json_integer(&j, f->size);
        else json_string(&j, NULL);
        json_pair(&j, f->kind == DIGEST_MD5 ? "md5" : "sha256", f->checksum);
        json_pair_boolean(&j, "here", there(s, "downloads", f->name));
        json_close(&j, '}');
        printf("%s\n    ", f == s->files ? "" : ",");
        (void)cli_print_json("data list", &j, "");
    }
    printf("]}");
}

static void print_table(void) {
    for (int i = 0; i < data_sets_n; i++) {
        char size[32];
        printf("%-15s %11s  %-14s  %s\n", data_sets[i].name, size_of(&data_sets[i], size), shown_state(&data_sets[i]),
               data_sets[i].about);
    }
}

/* Finds a set by its name; prints a message and returns NULL if there is none. */
static const data_set *named(const char *command, const char *name) {
    const char *names[MOST_SETS] = {NULL};
    const data_set *s = data_set_find(name);
    for (int i = 0; i < data_sets_n && i < MOST_SETS - 1; i++) names[i] = data_sets[i].name;
    if (s) return s;
    const char *nearest = cli_nearest(name, names);
    for (int i = 0; !nearest && *name && names[i]; i++)
        nearest = strncmp(names[i], name, strlen(name)) ? NULL : names[i];
    if (nearest) cli_usage(command, "no data set '%.40s'; did you mean '%s'?", name, nearest);
    else cli_usage(command, "no data set '%.40s'; 'adamod data list' shows them", name);
    return NULL;
}

/* The arguments of data list, get and prepare. */
typedef struct job {
    const char *command;
    const data_set *sets[MOST_SETS];
    int n;
    data_sources sources;
    data_options o;
    int64_t threads;
    bool mirrors; /* a file of them was given */
    bool json;
} job;

static const cli_flag list_flags[] = {CLI_SWITCH("json", "print JSON", job, json), CLI_HELP_FLAG, {0}};

static int add_set(void *to, const char *name) {
    job *j = to;
    if (j->n == MOST_SETS) return cli_usage(j->command, "too many names, expected at most %d", MOST_SETS);
    return (j->sets[j->n++] = named(j->command, name)) ? 0 : CLI_USAGE;
}

int cli_data_list(int argc, char **argv) {
    const cli_syntax syntax = {
        .command = "data list",
        .help = "usage: adamod data list [--json] [NAME]...\n\n"
                "Lists the public data sets that recipes name. With a name: its files, addresses and checksums.\n\n",
        .flags = list_flags,
        .operand = add_set};
    job a = {.command = syntax.command};
    const int status = cli_parse(&syntax, argc, argv, &a);
    if (status >= 0) return status;
    if (!a.n && !a.json) return print_table(), 0;
    for (int i = 0; !a.n && i < data_sets_n; i++) a.sets[i] = &data_sets[i];
    if (!a.n) a.n = data_sets_n;
    if (a.json) printf("[\n");
    for (int i = 0; i < a.n; i++) {
        if (a.json) print_json(a.sets[i]), printf(i + 1 < a.n ? ",\n" : "\n]\n");
        else print_set(a.sets[i]);
    }
    return 0;
}

/* ---- get and prepare ---- */

/* How progress is shown: on a terminal in a live line, elsewhere in a line now and then. */
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

static int read_mirror(void *to, const cli_flag *flag, const char *value) {
    job *j = to;
    (void)flag;
    return data_sources_mirror(&j->sources, value) ? cli_refused(j->command) : 0;
}

static int read_mirrors(void *to, const cli_flag *flag, const char *value) {
    job *j = to;
    (void)flag;
    j->mirrors = true;
    return data_sources_read(&j->sources, value, false) ? cli_failed(j->command) : 0;
}

static int read_timeout(void *to, const cli_flag *flag, const char *value) {
    job *j = to;
    char *end = NULL;
    j->o.timeout = adamod__read_number(value, &end);
    if (end != value && !*end && j->o.timeout >= 1 && j->o.timeout <= 86400) return 0;
    return cli_usage(j->command, "--%s is '%.40s', expected seconds from 1 to 86400", flag->name, value);
}

#define GET_FLAGS                                                                                                      \
    CLI_READ("mirror", "URL", "server that has SET/FILE, tried first; may be repeated", read_mirror),                  \
        CLI_READ("mirrors", "FILE", "file of more addresses (~/.config/adamod/mirrors)", read_mirrors),                \
        CLI_READ("timeout", "SECONDS", "give up on a server that sends next to nothing for this long (30)",            \
                 read_timeout),                                                                                        \
        CLI_HELP_FLAG
static const cli_flag get_flags[] = {GET_FLAGS, {0}};
static const cli_flag prepare_flags[] = {
    GET_FLAGS,
    CLI_WHOLE("threads", "N", "threads; 0: one for each core (0)", job, threads, 0, 1024),
    CLI_SWITCH("again", "prepare again what is already prepared", job, o.again),
    {0}};

static int run_job(cli_syntax syntax, int argc, char **argv, int (*run)(const data_set *s, const data_options *o)) {
    const char *command = syntax.command;
    job j = {.command = command};
    shown s = {.command = command, .live = isatty(STDERR_FILENO)};
    char usual[DATA_SET_PATH];
    syntax.operand = add_set;
    int status = cli_parse(&syntax, argc, argv, &j);
    if (status < 0 && j.n == 0)
        status = cli_usage(command, "needs the name of a data set; 'adamod data list' shows them");
    data_sources_default(usual, sizeof usual);
    if (status < 0 && !j.mirrors && *usual && data_sources_read(&j.sources, usual, true)) status = cli_failed(command);
    j.o.threads = (int)j.threads;
    j.o.sources = &j.sources;
    j.o.progress = show_progress;
    j.o.note = show_note;
    j.o.context = &s;
    for (int i = 0; status < 0 && i < j.n; i++) {
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
    data_downloads got;
    const int status = data_set_get(s, o, &got);
    data_downloads_free(&got);
    return status ? -1 : print_folder(s, "downloads");
}

static int prepare(const data_set *s, const data_options *o) {
    return data_set_prepare(s, o) ? -1 : print_folder(s, "prepared");
}

int cli_data_get(int argc, char **argv) {
    const cli_syntax syntax = {
        .command = "data get",
        .help = "usage: adamod data get [--mirror URL] [--mirrors FILE] NAME...\n\n"
                "Downloads the files of data sets into the cache, verifies their checksums, and prints the folder.\n"
                "Interrupted downloads are continued.\n\n",
        .flags = get_flags};
    return run_job(syntax, argc, argv, get);
}

int cli_data_prepare(int argc, char **argv) {
    const cli_syntax syntax = {
        .command = "data prepare",
        .help =
            "usage: adamod data prepare [--again] [--mirror URL] [--mirrors FILE] NAME...\n\n"
            "Downloads data sets, unless they are in the cache, prepares them for recipes with data.set, and prints\n"
            "the folder.\n\n",
        .flags = prepare_flags};
    return run_job(syntax, argc, argv, prepare);
}
