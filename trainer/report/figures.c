#include "report/figures.h"

#include "core/error.h"
#include "report/report.h"
#include "report_assets.h"
#include "support/text.h"
#include "support/array.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- Colours ----------------------------------------------------------------------------------------------------- */

static const unsigned colours[2][REPORT_COLOURS] = {
    {0x0072b2, 0xd55e00, 0x009e73, 0xcc79a7, 0xe69f00, 0x56b4e9, 0x6b6b6b, 0x8c7a00},
    {0x58b0ea, 0xff8c4a, 0x35cb9c, 0xe6a3c9, 0xf3b93a, 0x8fd0f7, 0xb4b4b4, 0xd0be45},
};
enum { LIGHT_PAGE = 0xffffff, DARK_PAGE = 0x16181c };

static unsigned mix(unsigned colour, unsigned with, double share) {
    unsigned out = 0;
    for (int shift = 0; shift < 24; shift += 8) {
        const double a = colour >> shift & 0xff, b = with >> shift & 0xff;
        out |= (unsigned)(share * a + (1 - share) * b + 0.5) << shift;
    }
    return out;
}

bool report_is_crowded(const report *r) { return r->n_variants > REPORT_COLOURS; }

unsigned report_colour(int variant, report_shade shade, bool dark) {
    static const double share[2][REPORT_SHADES] = {{1, 0.4, 0.26}, {1, 0.42, 0.34}};
    return mix(colours[dark][variant % REPORT_COLOURS], dark ? DARK_PAGE : LIGHT_PAGE, share[dark][shade]);
}

const char *report_colour_name(int variant, report_shade shade, char out[24]) {
    static const char *const endings[REPORT_SHADES] = {"", "-faint", "-tint"};
    snprintf(out, 24, "--v%d%s", variant % REPORT_COLOURS, endings[shade]);
    return out;
}

/* ---- Files ------------------------------------------------------------------------------------------------------- */

/* The path of a file in PAGE-figures. */
typedef struct figure_path {
    char text[PATH_MAX + 128];
} figure_path;

static figure_path path_in(const report_figures *f, const char *name, const char *ending) {
    figure_path path;
    snprintf(path.text, sizeof path.text, "%s/%s%s", f->directory, name, ending);
    return path;
}

int report_file_open(report_file *out, const char *format, ...) {
    va_list arguments;
    *out = (report_file){0};
    va_start(arguments, format);
    vsnprintf(out->name, sizeof out->name, format, arguments);
    va_end(arguments);
    out->to = open_memstream(&out->text, &out->n);
    return out->to ? 0 : adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory");
}

int report_file_close(report_figures *f, report_file *file) {
    const int status = fclose(file->to) == 0
                           ? text_write(path_in(f, file->name, "").text, (text_slice){file->text, file->n})
                           : adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", file->name);
    free(file->text);
    return status;
}

report_drawing *report_figures_add(report_figures *f, report_group group, const char *name) {
    if (!ARRAY_EXTEND(f->drawing, f->n)) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory"), NULL;
    report_drawing *d = &f->drawing[f->n++];
    *d = (report_drawing){.group = group, .on_page = true};
    snprintf(d->name, sizeof d->name, "%s", name);
    return d;
}

/* Within single quotes, only the quote itself is special to gnuplot. */
void report_quote(FILE *out, const char *text, int most) {
    fputc('\'', out);
    for (text_slice rest = text_of(text); rest.n; most--) {
        const size_t n = text_code_point(rest);
        if (most == 0) {
            fputs("…", out);
            break;
        }
        if (!n || (unsigned char)*rest.bytes < 0x20 || *rest.bytes == 0x7f) fputc('?', out);
        else fprintf(out, "%s%.*s", *rest.bytes == '\'' ? "'" : "", (int)n, rest.bytes);
        rest.bytes += n ? n : 1;
        rest.n -= n ? n : 1;
    }
    fputc('\'', out);
}

/* ---- Style ------------------------------------------------------------------------------------------------------- */

static void write_colours(FILE *out, const char *name, report_shade shade) {
    fprintf(out, "%s(i) = word('", name);
    for (int i = 0; i < REPORT_COLOURS; i++) fprintf(out, "%s#%06x", i ? " " : "", report_colour(i, shade, false));
    fprintf(out, "', (i - 1) %% %d + 1)\n", REPORT_COLOURS);
}

int report_figures_style(report_figures *f) {
    report_file file;
    if (report_file_open(&file, "style.gp")) return -1;
    fputs(style_head, file.to);
    write_colours(file.to, "colour", REPORT_FULL);
    write_colours(file.to, "faint", REPORT_FAINT);
    write_colours(file.to, "tint", REPORT_TINT);
    fprintf(file.to, "dash(i) = (i - 1) / %d %% %d + 1\n", REPORT_COLOURS, REPORT_DASHES);
    fputs(style_rest, file.to);
    return report_file_close(f, &file);
}

/* ---- gnuplot ----------------------------------------------------------------------------------------------------- */

/* Finds gnuplot in PATH. */
static bool find_gnuplot(char *out, size_t size) {
    const char *path = getenv("PATH");
    for (const char *at = path ? path : ""; *at;) {
        const size_t n = strcspn(at, ":");
        struct stat st;
        const int used = snprintf(out, size, "%.*s/gnuplot", (int)n, at);
        if (n && used > 0 && (size_t)used < size && stat(out, &st) == 0 && S_ISREG(st.st_mode) &&
            access(out, X_OK) == 0)
            return true;
        at += n + (at[n] == ':');
    }
    return false;
}

/* Runs in the child: only calls that are safe after a fork with threads. -d ignores the user's settings. */
static void become_gnuplot(const char *gnuplot, const char *directory, const char *script, int log) {
    const int nothing = open("/dev/null", O_RDWR);
    sigset_t none; /* signals are blocked after training */
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (nothing < 0 || chdir(directory) || dup2(nothing, 0) < 0 || dup2(nothing, 1) < 0 || dup2(log, 2) < 0) _exit(127);
    execl(gnuplot, "gnuplot", "-d", script, (char *)NULL);
    _exit(127);
}

/* Takes the last line with a colon: the error without the echo of the script. */
static void read_log(FILE *log, char *out, size_t size) {
    char line[256];
    rewind(log);
    while (fgets(line, sizeof line, log)) {
        line[strcspn(line, "\n")] = '\0';
        if (strchr(line, ':')) snprintf(out, size, "%s", line);
    }
}

static int run_gnuplot(const char *gnuplot, const char *directory, const char *script) {
    FILE *log = tmpfile();
    char why[300] = "it could not be started";
    int status = -1;
    if (!log) return adamod__fail(ADAMOD_ERROR_IO, "%s", why);
    const pid_t child = fork();
    if (child == 0) become_gnuplot(gnuplot, directory, script, fileno(log));
    if (child > 0) {
        pid_t ended;
        while ((ended = waitpid(child, &status, 0)) < 0 && errno == EINTR) continue;
        if (ended < 0) status = -1;
        if (status) read_log(log, why, sizeof why);
    }
    fclose(log);
    return status ? adamod__fail(ADAMOD_ERROR_IO, "%s", why) : 0;
}

/* ---- Drawing ----------------------------------------------------------------------------------------------------- */

/* Removes drawings of an earlier page. */
static void remove_old(const report_figures *f, const char *name) {
    (void)unlink(path_in(f, name, ".svg").text);
    (void)unlink(path_in(f, name, ".pdf").text);
}

static void take_svg(report_figures *f, report_drawing *d, int variants) {
    const figure_path path = path_in(f, d->name, d->for_page ? ".page.svg" : ".svg");
    char *text = NULL;
    size_t n = 0;
    if (text_read(path.text, &text, &n) == 0) {
        char *ended = realloc(text, n + 1);
        if (ended) {
            text = ended;
            text[n] = '\0';
            if (strlen(text) == n) d->svg = report_svg_inline(text, n, d, variants);
        }
    }
    if (d->for_page) (void)unlink(path.text); /* its content is in the page now */
    free(text);
}

static void draw_one(report_figures *f, report_drawing *d, const char *gnuplot, int variants) {
    char script[80];
    snprintf(script, sizeof script, "%s.gp", d->name);
    if (run_gnuplot(gnuplot, f->directory, script) == 0) {
        d->pdf = access(path_in(f, d->name, ".pdf").text, R_OK) == 0;
        if (d->on_page) take_svg(f, d, variants);
        if (!d->on_page || d->svg) return;
        adamod__fail(ADAMOD_ERROR_FORMAT, "its drawing is not SVG as expected");
    }
    snprintf(f->why, sizeof f->why, "gnuplot could not draw %s: %s", script, adamod__last_message());
}

void report_figures_draw(report_figures *f, int variants) {
    char gnuplot[4096];
    for (int i = 0; i < f->n; i++) remove_old(f, f->drawing[i].name);
    if (!find_gnuplot(gnuplot, sizeof gnuplot)) {
        snprintf(f->why, sizeof f->why,
                 "There are no figures, because gnuplot was not found. On Debian and Ubuntu it comes with: sudo apt "
                 "install gnuplot-nox");
        return;
    }
    for (int i = 0; i < f->n; i++) draw_one(f, &f->drawing[i], gnuplot, variants);
}

static int make_directory(report_figures *f, bool *made) {
    *made = mkdir(f->directory, 0777) == 0;
    if (*made || errno == EEXIST) return 0;
    return adamod__fail(ADAMOD_ERROR_IO, "%s: cannot make this directory: %s", f->directory, strerror(errno));
}

const char *report_beside(const char *page, const char *what, char out[PATH_MAX]) {
    const char *slash = strrchr(page, '/');
    size_t n = strlen(page);
    if (n > 5 && strcmp(page + n - 5, ".html") == 0 && page[n - 6] != '/') n -= 5;
    snprintf(out, PATH_MAX, "%.*s-%s", (int)n, page, what);
    return out + (slash ? slash + 1 - page : 0);
}

/* report.html has report-figures beside it; several tasks have a directory each in it: "report-figures/2-images". */
static int open_directory(report_figures *f, const report *r, const char *page, bool *made) {
    const char *task = r->run[0].task;
    char name[24];
    f->link = report_beside(page, "figures", f->directory);
    if (make_directory(f, made)) return -1;
    if (r->of < 2) return 0;
    snprintf(name, sizeof name, "%s", task);
    for (char *c = name; *c; c++) *c = (char)(isalnum((unsigned char)*c) ? *c : '-');
    text_add(f->directory, sizeof f->directory, "/%d%s%s", r->number + 1, *name ? "-" : "", name);
    return make_directory(f, made);
}

int report_draw(report_figures *out, const report *r, const char *page) {
    *out = (report_figures){0};
    bool made = false;
    int status = open_directory(out, r, page, &made);
    if (!status) status = report_figures_style(out);
    if (!status) status = report_draw_curves(out, r);
    if (!status) status = report_draw_ridges(out, r);
    if (!status) report_figures_draw(out, r->n_variants);
    if (!status && *out->why) report_note("%s: %s", out->directory, out->why);
    if (status && made) rmdir(out->directory); /* unless a file was written */
    if (status) report_figures_free(out);
    return status;
}

void report_figures_free(report_figures *f) {
    for (int i = 0; i < f->n; i++) {
        free(f->drawing[i].svg);
        free(f->drawing[i].plot);
    }
    free(f->drawing);
    *f = (report_figures){0};
}
