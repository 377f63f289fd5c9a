#include "data/byte_pieces.h"

#include "data/unicode.h"

static inline unicode_class class_at(text_slice text, size_t at, size_t *next) {
    const unsigned char first = (unsigned char)text.bytes[at];
    if (first < 0x80) {
        *next = at + 1;
        return unicode_class_of(first);
    }
    text_slice rest = {text.bytes + at, text.n - at};
    const unicode_class class = unicode_class_of(unicode_next(&rest));
    *next = text.n - rest.n;
    return class;
}

/* The end of the run of characters of this class at `at`. */
static size_t run_end(text_slice text, size_t at, unicode_class class) {
    for (size_t next; at < text.n && class_at(text, at, &next) == class;) at = next;
    return at;
}

/* The length of an English ending that begins with an apostrophe; 0: there is none. */
static size_t ending(text_slice text) {
    if (text.n < 2 || text.bytes[0] != '\'') return 0;
    const char a = text.bytes[1], b = text.n > 2 ? text.bytes[2] : 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

/* A run of white space that something else follows ends before its last character: the next piece may begin with that
 * space. */
static size_t white_end(text_slice text) {
    size_t at = 0, last = 0, next;
    while (at < text.n && class_at(text, at, &next) == UNICODE_WHITE) {
        last = at;
        at = next;
    }
    return at == text.n || last == 0 ? at : last;
}

static size_t piece_end(text_slice text) {
    const size_t n = ending(text);
    if (n) return n;
    size_t next;
    unicode_class class = class_at(text, 0, &next);
    if (text.bytes[0] == ' ' && text.n > 1) class = class_at(text, 1, &next);
    return class == UNICODE_WHITE ? white_end(text) : run_end(text, next, class);
}

text_slice byte_pieces_next(text_slice *rest) {
    const text_slice piece = {rest->bytes, piece_end(*rest)};
    rest->bytes += piece.n;
    rest->n -= piece.n;
    return piece;
}
