/* Tokens to text. */
#include "data/tokenizer_internal.h"

/* ---- entities ---- */

static const struct {
    uint32_t c;
    const char *entity;
    bool old; /* only read: written by earlier versions of Moses */
} entities[] = {{'&', "&amp;", false},   {'|', "&#124;", false}, {'<', "&lt;", false},  {'>', "&gt;", false},
                {'\'', "&apos;", false}, {'"', "&quot;", false}, {'[', "&#91;", false}, {']', "&#93;", false},
                {'|', "&bar;", true},    {'[', "&bra;", true},   {']', "&ket;", true}};

const char *tokenizer__entity_of(uint32_t c) {
    if (c > ']' && c != '|') return NULL;
    for (size_t i = 0; i < sizeof entities / sizeof *entities; i++) {
        if (entities[i].c == c && !entities[i].old) return entities[i].entity;
    }
    return NULL;
}

/* Whether text is at i. */
static bool begins(const points *s, size_t i, const char *text) {
    for (; *text; text++, i++) {
        if (i >= s->n || s->at[i] != (unsigned char)*text) return false;
    }
    return true;
}

static void read_entities(tokenizer *t) {
    const points *s = &t->in;
    for (size_t i = 0; i < s->n; i++) {
        uint32_t c = s->at[i];
        for (size_t k = 0; s->at[i] == '&' && k < sizeof entities / sizeof *entities; k++) {
            if (!begins(s, i, entities[k].entity)) continue;
            c = entities[k].c;
            i += strlen(entities[k].entity) - 1;
            break;
        }
        points_add(&t->out, c);
    }
}

static void join_hyphens(tokenizer *t) {
    const points *s = &t->in;
    for (size_t i = 0; i < s->n; i++) {
        if (begins(s, i, " @-@ ")) {
            points_add(&t->out, '-');
            i += 4;
        } else {
            points_add(&t->out, s->at[i]);
        }
    }
}

/* ---- tokens ---- */

typedef struct token {
    const uint32_t *at;
    size_t n;
} token;

/* The first token from i on; n is 0 if there is none. */
static token token_from(const points *s, size_t i) {
    while (i < s->n && unicode_is_space(s->at[i])) i++;
    token w = {s->at + i, 0};
    while (i + w.n < s->n && !unicode_is_space(s->at[i + w.n])) w.n++;
    return w;
}

static token after(const points *s, token w) { return token_from(s, (size_t)(w.at - s->at) + w.n); }

static bool is_one_of(uint32_t c, const char *characters) {
    if (c < 0x80) return c && strchr(characters, (int)c);
    for (text_slice set = text_of(characters); set.n;) {
        if (unicode_next(&set) == c) return true;
    }
    return false;
}

static bool all_in(token w, const char *characters) {
    for (size_t i = 0; i < w.n; i++) {
        if (!is_one_of(w.at[i], characters)) return false;
    }
    return w.n > 0;
}

static bool all_digits(token w) { return all_in(w, "0123456789"); }

static bool is_cjk(uint32_t c) {
    static const uint32_t ranges[][2] = {{0x1100, 0x11ff},   {0x2e80, 0xa4cf},   {0xa840, 0xa87f},  {0xac00, 0xd7af},
                                         {0xf900, 0xfaff},   {0xfe30, 0xfe4f},   {0xff65, 0xffdc},  {0x17000, 0x18aff},
                                         {0x1b000, 0x1b12f}, {0x1b170, 0x1b2ff}, {0x20000, 0x2ffff}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        if (c >= ranges[i][0] && c <= ranges[i][1]) return true;
    }
    return false;
}

/* Opening brackets, marks and currency signs get a space before and none after. */
static bool is_opening(token w) {
    for (size_t i = 0; i < w.n; i++) {
        if (!is_one_of(w.at[i], "([{¿¡") && !unicode_is_currency(w.at[i])) return false;
    }
    return true;
}

static bool is_quotes(token w) { return all_in(w, "'\"`„“"); }

/* Counts the quotation marks of each kind, to tell opening from closing ones. */
typedef struct quotes {
    struct {
        token mark;
        int count;
    } of[16];
    int n;
} quotes;

static int *count_of(quotes *q, token mark) {
    static const uint32_t plain[] = {'"'};
    if (all_in(mark, "„“”")) mark = (token){plain, 1};
    for (int i = 0; i < q->n; i++) {
        if (q->of[i].mark.n == mark.n && memcmp(q->of[i].mark.at, mark.at, mark.n * sizeof *mark.at) == 0)
            return &q->of[i].count;
    }
    if (q->n == sizeof q->of / sizeof *q->of) q->n--; /* more kinds than any text has */
    q->of[q->n].mark = mark;
    q->of[q->n].count = 0;
    return &q->of[q->n++].count;
}

/* ---- joining ---- */

typedef struct joiner {
    tokenizer *t;
    token before2, before, next; /* neighbours of the current token; n is 0: none */
    quotes quotes;
    bool space; /* before the next token */
} joiner;

static bool is_language(const joiner *j, const char *language) { return strcmp(j->t->language, language) == 0; }

static void put(joiner *j, token w, bool space_before, bool space_behind) {
    if (space_before && j->t->out.n) points_add(&j->t->out, ' ');
    for (size_t i = 0; i < w.n; i++) points_add(&j->t->out, w.at[i]);
    j->space = space_behind;
}

static bool is_contraction(const joiner *j, token w) {
    return is_language(j, "en") && j->before.n && w.n > 1 && w.at[0] == '\'' && tokenizer__is_letter(j->t, w.at[1]);
}

static bool ends_elided(const joiner *j, token w) {
    return w.n > 1 && w.at[w.n - 1] == '\'' && tokenizer__is_letter(j->t, w.at[w.n - 2]);
}

static bool is_elision(const joiner *j, token w) {
    if (!is_language(j, "fr") && !is_language(j, "it") && !is_language(j, "ga")) return false;
    return ends_elided(j, w) && j->next.n && tokenizer__is_letter(j->t, j->next.at[0]);
}

static bool is_czech_decimal(const joiner *j, token w) {
    return is_language(j, "cs") && all_digits(w) && j->before.n == 1 && all_in(j->before, ".,") &&
           all_digits(j->before2);
}

static void put_quotes(joiner *j, token w) {
    int *count = count_of(&j->quotes, w);
    if (is_language(j, "cs") && w.n == 1 && all_in(w, "„")) *count = 0;
    if (is_language(j, "cs") && w.n == 1 && all_in(w, "“")) *count = 1;
    const bool possessive =
        is_language(j, "en") && w.n == 1 && w.at[0] == '\'' && j->before.n && j->before.at[j->before.n - 1] == 's';
    if (*count % 2) {
        put(j, w, false, true);
        ++*count;
    } else if (possessive) {
        put(j, w, false, true);
    } else {
        put(j, w, j->space, false);
        ++*count;
    }
}

static void put_token(joiner *j, token w) {
    if (is_cjk(w.at[0]) && !is_language(j, "ko")) {
        put(j, w, !(j->before.n && is_cjk(j->before.at[j->before.n - 1])) && j->space, true);
    } else if (is_opening(w)) {
        put(j, w, j->space, false);
    } else if (all_in(w, ",.?!:;\\%}])")) {
        put(j, w, is_language(j, "fr") && w.n == 1 && all_in(w, "?!:;\\%"), true);
    } else if (is_contraction(j, w) || is_czech_decimal(j, w)) {
        put(j, w, false, true);
    } else if (is_elision(j, w)) {
        put(j, w, j->space, false);
    } else if (is_quotes(w)) {
        put_quotes(j, w);
    } else {
        put(j, w, j->space, true);
    }
}

char *tokenizer_join(tokenizer *t, text_slice line) {
    joiner j = {.t = t, .space = true};
    size_t n;
    t->in.n = t->out.n = 0;
    points_add(&t->in, ' ');
    points_add_slice(&t->in, line);
    points_add(&t->in, ' ');
    tokenizer__run(t, join_hyphens);
    if (!t->options.plain) tokenizer__run(t, read_entities);
    for (token w = token_from(&t->in, 0); w.n; w = j.next) {
        j.next = after(&t->in, w);
        put_token(&j, w);
        j.before2 = j.before;
        j.before = w;
    }
    points_swap(&t->in, &t->out);
    tokenizer__run(t, tokenizer__squeeze);
    return points_utf8(&t->in, &n);
}
