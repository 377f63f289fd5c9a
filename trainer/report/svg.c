/* svg.c - adapts gnuplot's SVG to the page: text and axes in the page's text colour, variants by names of colours, so that one
 * style serves light and dark pages. Only the elements and attributes listed here remain. */
#include "report/figures.h"

#include "core/buffer.h"
#include "support/text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static bool is(text_slice p, const char *word) { return p.n == strlen(word) && memcmp(p.bytes, word, p.n) == 0; }

/* Whether p is a word of a list with spaces between words. */
static bool is_one_of(text_slice p, const char *list) {
    for (const char *at = list; *at; at += strcspn(at, " "), at += strspn(at, " ")) {
        if (strcspn(at, " ") == p.n && memcmp(at, p.bytes, p.n) == 0) return true;
    }
    return false;
}

/* ---- Colours ----------------------------------------------------------------------------------------------------- */

/* Translates "rgb( 0, 114, 178)" or "black" into a colour of the page. */
static void add_colour(adamod__buffer *out, text_slice value, int variants) {
    char text[40], name[24];
    unsigned r, g, b;
    snprintf(text, sizeof text, "%.*s", (int)value.n, value.bytes);
    if (sscanf(text, "rgb( %u , %u , %u )", &r, &g, &b) != 3 || r > 255 || g > 255 || b > 255) {
        adamod__buffer_text(out, is(value, "black") ? "currentColor" : text);
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
    adamod__buffer_text(out, text);
}

/* ---- Tags -------------------------------------------------------------------------------------------------------- */

static const char elements[] = "g path polygon polyline rect text tspan circle use";
static const char attributes[] =
    "d points x y dx dy width height transform fill stroke stroke-width fill-opacity stroke-opacity font-size color "
    "text-anchor font-style font-weight stroke-dasharray";
static const char dropped_whole[] = "title desc defs";

/* Takes the next attribute of a tag; gnuplot has spaces around some of the '='. */
static bool next_attribute(const char **at, const char *end, text_slice *name, text_slice *value) {
    const char *c = *at;
    while (c < end && isspace((unsigned char)*c)) c++;
    name->bytes = c;
    while (c < end && *c != '=' && !isspace((unsigned char)*c)) c++;
    name->n = (size_t)(c - name->bytes);
    while (c < end && isspace((unsigned char)*c)) c++;
    if (c == end || *c != '=') return false;
    c++;
    while (c < end && isspace((unsigned char)*c)) c++;
    if (c == end || (*c != '"' && *c != '\'')) return false;
    const char *close = memchr(c + 1, *c, (size_t)(end - c - 1));
    if (!close) return false;
    *value = (text_slice){c + 1, (size_t)(close - c - 1)};
    *at = close + 1;
    return true;
}

static bool is_colour(text_slice name) { return is(name, "fill") || is(name, "stroke") || is(name, "color"); }

static void add_attributes(adamod__buffer *out, const char *at, const char *end, int variants) {
    text_slice name, value;
    while (next_attribute(&at, end, &name, &value)) {
        if (!is_one_of(name, attributes) || memchr(value.bytes, '"', value.n)) continue;
        /* gnuplot makes every group black, which would hide the page's colour */
        if (is(name, "color") && (is(value, "black") || is(value, "white"))) continue;
        adamod__buffer_format(out, " %.*s=\"", (int)name.n, name.bytes);
        if (is_colour(name)) add_colour(out, value, variants);
        else adamod__buffer_add(out, value.bytes, value.n);
        adamod__buffer_text(out, "\"");
    }
}

/* ---- The drawing ------------------------------------------------------------------------------------------------- */

enum { DEEPEST = 64 };

typedef struct filter {
    adamod__buffer out;
    int variants;
    const report_drawing *d;
    size_t opened[DEEPEST], inside[DEEPEST]; /* where each open group and its content begin */
    int depth;
} filter;

/* Removes an empty group: gnuplot makes hundreds. */
static bool close_group(filter *f) {
    if (f->depth == 0) return false;
    f->depth--;
    if (f->depth >= DEEPEST || f->out.n != f->inside[f->depth]) return true;
    f->out.n = f->opened[f->depth];
    return false;
}

/* gnuplot numbers plots from 1 in the order of the script. */
static void add_plot(filter *f, const char *at, const char *end) {
    text_slice name, value;
    while (next_attribute(&at, end, &name, &value)) {
        int number = 0;
        char text[40];
        snprintf(text, sizeof text, "%.*s", (int)value.n, value.bytes);
        if (!is(name, "id") || sscanf(text, "gnuplot_plot_%d", &number) != 1) continue;
        if (number < 1 || number > f->d->n_plots) return;
        const report_plot *p = &f->d->plot[number - 1];
        adamod__buffer_format(&f->out, " data-v=\"%d\"%s", p->variant, p->line ? " class=\"line\"" : "");
    }
}

static void open_tag(filter *f, text_slice name, const char *end) {
    /* All marks are dots. gnuplot's definitions of them have the same names in all figures, so circles replace them. */
    const bool mark = is(name, "use"), closed = end[-1] == '/';
    const size_t before = f->out.n;
    adamod__buffer_text(&f->out, "<");
    if (mark) adamod__buffer_text(&f->out, "circle r=\"1\" fill=\"currentColor\" stroke=\"none\"");
    else adamod__buffer_add(&f->out, name.bytes, name.n);
    if (is(name, "g")) add_plot(f, name.bytes + name.n, end);
    add_attributes(&f->out, name.bytes + name.n, closed ? end - 1 : end, f->variants);
    adamod__buffer_text(&f->out, closed ? "/>" : ">");
    if (!is(name, "g") || closed) return;
    if (f->depth < DEEPEST) {
        f->opened[f->depth] = before;
        f->inside[f->depth] = f->out.n;
    }
    f->depth++;
}

/* Copies the tag at '<'; returns the place after it, or NULL. */
static const char *take_tag(filter *f, const char *at, const char *end) {
    const char *close = memchr(at, '>', (size_t)(end - at));
    if (!close) return NULL;
    const bool closing = at[1] == '/';
    text_slice name = {at + 1 + closing, 0};
    while (name.bytes + name.n < close && (isalnum((unsigned char)name.bytes[name.n]) || name.bytes[name.n] == ':'))
        name.n++;
    if (!closing && is_one_of(name, dropped_whole)) {
        char last[16];
        snprintf(last, sizeof last, "</%.*s>", (int)name.n, name.bytes);
        const char *found = strstr(at, last);
        return found ? found + strlen(last) : NULL;
    }
    if (!is_one_of(name, elements)) return close + 1;
    if (!closing) {
        open_tag(f, name, close);
    } else if (!is(name, "g") || close_group(f)) {
        adamod__buffer_format(&f->out, "</%.*s>", (int)name.n, name.bytes);
    }
    return close + 1;
}

/* Copies text between tags, which gnuplot has escaped, but not white space. */
static const char *take_text(filter *f, const char *at, const char *end) {
    const char *next = memchr(at, '<', (size_t)(end - at));
    if (!next) next = end;
    bool blank = true;
    for (const char *c = at; c < next; c++) blank &= isspace((unsigned char)*c) != 0;
    if (!blank) adamod__buffer_add(&f->out, at, (size_t)(next - at));
    return next;
}

/* Names come from files, and may be cut. */
static void add_escaped(adamod__buffer *out, const char *text) {
    for (text_slice rest = text_of(text); rest.n;) {
        const size_t n = text_code_point(rest);
        const char c = *rest.bytes;
        if (!n || (unsigned char)c < 0x20 || c == 0x7f) adamod__buffer_text(out, "?");
        else if (c == '"') adamod__buffer_text(out, "&quot;");
        else if (c == '&') adamod__buffer_text(out, "&amp;");
        else if (c == '<') adamod__buffer_text(out, "&lt;");
        else adamod__buffer_add(out, rest.bytes, n);
        rest.bytes += n ? n : 1;
        rest.n -= n ? n : 1;
    }
}

char *report_svg_inline(const char *svg, size_t n, const report_drawing *d, int variants) {
    filter f = {.variants = variants, .d = d};
    const char *end = svg + n, *at = strstr(svg, "<svg"), *view = at ? strstr(at, "viewBox=\"") : NULL;
    double box[4];
    if (!view || sscanf(view, "viewBox=\"%lf %lf %lf %lf\"", &box[0], &box[1], &box[2], &box[3]) != 4) return NULL;
    /* Figures stand side by side down to four fifths of their size, and do not grow much. */
    adamod__buffer_format(&f.out, "<svg viewBox=\"%g %g %g %g\" style=\"flex:1 1 %.0fpx;max-width:%.0fpx", box[0],
                          box[1], box[2], box[3], 0.8 * box[2], 1.05 * box[2]);
    if (d->least_width) adamod__buffer_format(&f.out, ";min-width:%dpx", d->least_width);
    adamod__buffer_text(&f.out, "\" role=\"img\" aria-label=\"");
    add_escaped(&f.out, d->label);
    adamod__buffer_format(&f.out, "\"%s>", d->attributes);
    at = memchr(at, '>', (size_t)(end - at));
    if (at) at++;
    while (at && at < end) at = *at == '<' ? take_tag(&f, at, end) : take_text(&f, at, end);
    adamod__buffer_text(&f.out, "</svg>");
    if (at && !f.out.failed && f.depth == 0) return f.out.text;
    adamod__buffer_free(&f.out);
    return NULL;
}
