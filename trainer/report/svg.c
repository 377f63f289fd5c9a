/* svg.c - gnuplot's SVG for the page: without what HTML has no use for, text and axes in the colour of the page's text,
 * and the colours of variants by name, so that one style serves light and dark. Only elements and attributes that are
 * listed here pass. */
#include "report/figures.h"

#include "support/text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

typedef struct buffer {
    char *text;
    size_t n, room;
    bool failed;
} buffer;

static void add(buffer *b, const char *text, size_t n) {
    if (b->failed) return;
    if (b->room - b->n <= n) {
        const size_t room = 2 * (b->n + n) + 4096;
        char *grown = realloc(b->text, room);
        if (!grown) {
            b->failed = true;
            return;
        }
        b->text = grown;
        b->room = room;
    }
    memcpy(b->text + b->n, text, n);
    b->n += n;
    b->text[b->n] = '\0';
}

static void add_text(buffer *b, const char *text) { add(b, text, strlen(text)); }

/* n bytes within the source. */
typedef struct part {
    const char *at;
    size_t n;
} part;

static bool is(part p, const char *word) { return p.n == strlen(word) && memcmp(p.at, word, p.n) == 0; }

static bool is_one_of(part p, const char *const *list) {
    while (*list && !is(p, *list)) list++;
    return *list != NULL;
}

/* ---- Colours ----------------------------------------------------------------------------------------------------- */

/* "rgb( 0, 114, 178)" or "black", as the page should have it. */
static void add_colour(buffer *out, part value, int variants) {
    char text[40], name[24];
    unsigned r, g, b;
    snprintf(text, sizeof text, "%.*s", (int)value.n, value.at);
    if (sscanf(text, "rgb( %u , %u , %u )", &r, &g, &b) != 3 || r > 255 || g > 255 || b > 255) {
        add_text(out, is(value, "black") ? "currentColor" : text);
        return;
    }
    const unsigned colour = r << 16 | g << 8 | b;
    for (int i = 0; i < variants && i < REPORT_COLOURS; i++) {
        for (int shade = 0; shade < REPORT_SHADES; shade++) {
            if (report_colour(i, (report_shade)shade, false) != colour) continue;
            snprintf(text, sizeof text, "var(%s)", report_colour_name(i, (report_shade)shade, name));
        }
    }
    if (colour == REPORT_AXIS || colour == 0) snprintf(text, sizeof text, "currentColor");
    if (colour == REPORT_GRID) snprintf(text, sizeof text, "var(--grid)");
    add_text(out, text);
}

/* ---- Tags -------------------------------------------------------------------------------------------------------- */

static const char *const elements[] = {"g",    "path",  "polygon", "polyline", "rect",
                                       "text", "tspan", "circle",  "use",      NULL};
static const char *const attributes[] = {"d",
                                         "points",
                                         "x",
                                         "y",
                                         "dx",
                                         "dy",
                                         "width",
                                         "height",
                                         "transform",
                                         "fill",
                                         "stroke",
                                         "stroke-width",
                                         "fill-opacity",
                                         "stroke-opacity",
                                         "font-size",
                                         "color",
                                         "text-anchor",
                                         "font-style",
                                         "font-weight",
                                         "stroke-dasharray",
                                         NULL};
static const char *const dropped_whole[] = {"title", "desc", "defs", NULL};

/* Takes the next attribute of a tag; gnuplot has spaces around some of the '='. */
static bool next_attribute(const char **at, const char *end, part *name, part *value) {
    const char *c = *at;
    while (c < end && isspace((unsigned char)*c)) c++;
    name->at = c;
    while (c < end && *c != '=' && !isspace((unsigned char)*c)) c++;
    name->n = (size_t)(c - name->at);
    while (c < end && isspace((unsigned char)*c)) c++;
    if (c == end || *c != '=') return false;
    c++;
    while (c < end && isspace((unsigned char)*c)) c++;
    if (c == end || (*c != '"' && *c != '\'')) return false;
    const char *close = memchr(c + 1, *c, (size_t)(end - c - 1));
    if (!close) return false;
    *value = (part){c + 1, (size_t)(close - c - 1)};
    *at = close + 1;
    return true;
}

static bool is_colour(part name) { return is(name, "fill") || is(name, "stroke") || is(name, "color"); }

static void add_attributes(buffer *out, const char *at, const char *end, int variants) {
    part name, value;
    while (next_attribute(&at, end, &name, &value)) {
        if (!is_one_of(name, attributes) || memchr(value.at, '"', value.n)) continue;
        /* gnuplot sets the colour of every group to black, which would hide the page's */
        if (is(name, "color") && (is(value, "black") || is(value, "white"))) continue;
        add_text(out, " ");
        add(out, name.at, name.n);
        add_text(out, "=\"");
        if (is_colour(name)) add_colour(out, value, variants);
        else add(out, value.at, value.n);
        add_text(out, "\"");
    }
}

/* ---- The drawing ------------------------------------------------------------------------------------------------- */

enum { DEEPEST = 64 };

typedef struct filter {
    buffer out;
    int variants;
    const report_drawing *d;
    size_t opened[DEEPEST], inside[DEEPEST]; /* where each open group begins, and its content */
    int depth;
} filter;

/* A group that nothing was drawn in goes again: gnuplot makes hundreds. */
static bool close_group(filter *f) {
    if (f->depth == 0) return false;
    f->depth--;
    if (f->depth >= DEEPEST || f->out.n != f->inside[f->depth]) return true;
    f->out.n = f->opened[f->depth];
    return false;
}

/* gnuplot numbers its plots from 1 on, in the order of the script. */
static void add_plot(filter *f, const char *at, const char *end) {
    part name, value;
    while (next_attribute(&at, end, &name, &value)) {
        int number = 0;
        char text[40];
        snprintf(text, sizeof text, "%.*s", (int)value.n, value.at);
        if (!is(name, "id") || sscanf(text, "gnuplot_plot_%d", &number) != 1) continue;
        if (number < 1 || number > f->d->n_plots) return;
        const report_plot *p = &f->d->plot[number - 1];
        snprintf(text, sizeof text, " data-v=\"%d\"%s", p->variant, p->line ? " class=\"line\"" : "");
        add_text(&f->out, text);
    }
}

static void open_tag(filter *f, part name, const char *end) {
    /* All marks are dots, which gnuplot would take from definitions whose names clash with those of other figures. */
    const bool mark = is(name, "use"), closed = end[-1] == '/';
    const size_t before = f->out.n;
    add_text(&f->out, "<");
    if (mark) add_text(&f->out, "circle r=\"1\" fill=\"currentColor\" stroke=\"none\"");
    else add(&f->out, name.at, name.n);
    if (is(name, "g")) add_plot(f, name.at + name.n, end);
    add_attributes(&f->out, name.at + name.n, closed ? end - 1 : end, f->variants);
    add_text(&f->out, closed ? "/>" : ">");
    if (!is(name, "g") || closed) return;
    if (f->depth < DEEPEST) {
        f->opened[f->depth] = before;
        f->inside[f->depth] = f->out.n;
    }
    f->depth++;
}

/* One tag, from its '<'; where to go on, or NULL. */
static const char *take_tag(filter *f, const char *at, const char *end) {
    const char *close = memchr(at, '>', (size_t)(end - at));
    if (!close) return NULL;
    const bool closing = at[1] == '/';
    part name = {at + 1 + closing, 0};
    while (name.at + name.n < close && (isalnum((unsigned char)name.at[name.n]) || name.at[name.n] == ':')) name.n++;
    if (!closing && is_one_of(name, dropped_whole)) {
        char last[16];
        snprintf(last, sizeof last, "</%.*s>", (int)name.n, name.at);
        const char *found = strstr(at, last);
        return found ? found + strlen(last) : NULL;
    }
    if (!is_one_of(name, elements)) return close + 1;
    if (!closing) {
        open_tag(f, name, close);
    } else if (!is(name, "g") || close_group(f)) {
        add_text(&f->out, "</");
        add(&f->out, name.at, name.n);
        add_text(&f->out, ">");
    }
    return close + 1;
}

/* What is between tags: white space between shapes goes, text stays; gnuplot has escaped it. */
static const char *take_text(filter *f, const char *at, const char *end) {
    const char *next = memchr(at, '<', (size_t)(end - at));
    if (!next) next = end;
    bool blank = true;
    for (const char *c = at; c < next; c++) blank &= isspace((unsigned char)*c) != 0;
    if (!blank) add(&f->out, at, (size_t)(next - at));
    return next;
}

/* Names come from files, and may be cut. */
static void add_escaped(buffer *out, const char *text) {
    for (text_slice rest = text_of(text); rest.n;) {
        const size_t n = text_code_point(rest);
        const char c = *rest.bytes;
        if (!n || (unsigned char)c < 0x20 || c == 0x7f) add_text(out, "?");
        else if (c == '"') add_text(out, "&quot;");
        else if (c == '&') add_text(out, "&amp;");
        else if (c == '<') add_text(out, "&lt;");
        else add(out, rest.bytes, n);
        rest.bytes += n ? n : 1;
        rest.n -= n ? n : 1;
    }
}

char *report_svg_inline(const char *svg, size_t n, const report_drawing *d, int variants) {
    filter f = {.variants = variants, .d = d};
    const char *end = svg + n, *at = strstr(svg, "<svg"), *view = at ? strstr(at, "viewBox=\"") : NULL;
    double box[4];
    char root[160];
    if (!view || sscanf(view, "viewBox=\"%lf %lf %lf %lf\"", &box[0], &box[1], &box[2], &box[3]) != 4) return NULL;
    /* Side by side while each has four fifths of its size, never much larger than it was made for. */
    snprintf(root, sizeof root, "<svg viewBox=\"%g %g %g %g\" style=\"flex:1 1 %.0fpx;max-width:%.0fpx", box[0], box[1],
             box[2], box[3], 0.8 * box[2], 1.05 * box[2]);
    add_text(&f.out, root);
    if (d->least_width) {
        snprintf(root, sizeof root, ";min-width:%dpx", d->least_width);
        add_text(&f.out, root);
    }
    snprintf(root, sizeof root, "\" role=\"img\" aria-label=\"");
    add_text(&f.out, root);
    add_escaped(&f.out, d->label);
    add_text(&f.out, "\"");
    add_text(&f.out, d->attributes);
    add_text(&f.out, ">");
    at = memchr(at, '>', (size_t)(end - at));
    if (at) at++;
    while (at && at < end) at = *at == '<' ? take_tag(&f, at, end) : take_text(&f, at, end);
    add_text(&f.out, "</svg>");
    if (at && !f.out.failed && f.depth == 0) return f.out.text;
    free(f.out.text);
    return NULL;
}
