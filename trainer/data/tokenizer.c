/* Text to tokens. detokenizer.c does the reverse.
 *
 * Each substitution of Moses is a pass over the characters of t->in that writes t->out and never reads what it wrote. */
#include "data/tokenizer_internal.h"

#include "data/prefixes.h"

/* The other rules see a run of n full stops as one character, STOPS + n. */
enum { STOPS = 0x200000 };

bool tokenizer__is_letter(const tokenizer *t, uint32_t c) {
    return unicode_is_letter(c) || (t->han && unicode_is_han(c)) || (t->hangul && unicode_is_hangul(c)) ||
           (t->kana && unicode_is_kana(c));
}

static bool is_alnum(const tokenizer *t, uint32_t c) { return tokenizer__is_letter(t, c) || unicode_is_digit(c); }

/* ---- handle ---- */

tokenizer *tokenizer_create(const tokenizer_options *o) {
    tokenizer *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    const char *language = o->language ? o->language : "en";
    snprintf(t->language, sizeof t->language, "%s", language);
    t->options = *o;
    t->options.language = t->language;
    t->prefixes = prefixes_of(language);
    t->han = strcmp(language, "zh") == 0 || strcmp(language, "ja") == 0;
    t->kana = strcmp(language, "ja") == 0;
    t->hangul = strcmp(language, "ko") == 0;
    return t;
}

void tokenizer_free(tokenizer *t) {
    if (!t) return;
    points_free(&t->in);
    points_free(&t->out);
    free(t);
}

bool tokenizer_knows(const char *language) { return prefixes_known(language); }

void tokenizer__run(tokenizer *t, void (*pass)(tokenizer *t)) {
    pass(t);
    points_swap(&t->in, &t->out);
}

/* ---- passes ---- */

void tokenizer__squeeze(tokenizer *t) {
    const points *s = &t->in;
    for (size_t i = 0; i < s->n; i++) {
        if (!unicode_is_space(s->at[i])) points_add(&t->out, s->at[i]);
        else if (t->out.n && t->out.at[t->out.n - 1] != ' ') points_add(&t->out, ' ');
    }
    while (t->out.n && t->out.at[t->out.n - 1] == ' ') t->out.n--;
}

/* Also removes spaces at both ends, because rules look at the last character of a line. */
static void drop_controls(tokenizer *t) {
    for (size_t i = 0; i < t->in.n; i++) {
        const uint32_t c = t->in.at[i];
        if (c >= ' ' && (c != ' ' || t->out.n)) points_add(&t->out, c);
    }
    while (t->out.n && t->out.at[t->out.n - 1] == ' ') t->out.n--;
}

static void pad_symbols(tokenizer *t) {
    for (size_t i = 0; i < t->in.n; i++) {
        const uint32_t c = t->in.at[i];
        const bool pad = !is_alnum(t, c) && !unicode_is_space(c) && (c > 0x7f || !strchr(".'`,-", (int)c));
        if (pad) points_add(&t->out, ' ');
        points_add(&t->out, c);
        if (pad) points_add(&t->out, ' ');
    }
}

static void split_hyphens(tokenizer *t) {
    const points *s = &t->in;
    for (size_t i = 0; i < s->n; i++) {
        points_add(&t->out, s->at[i]);
        if (i + 2 >= s->n || s->at[i + 1] != '-' || !is_alnum(t, s->at[i]) || !is_alnum(t, s->at[i + 2])) continue;
        points_add_text(&t->out, " @-@ ");
        i++;
    }
}

static void join_stops(tokenizer *t) {
    const points *s = &t->in;
    for (size_t i = 0; i < s->n;) {
        size_t n = 0;
        while (i + n < s->n && s->at[i + n] == '.' && n < STOPS) n++;
        if (n < 2) {
            points_add(&t->out, s->at[i++]);
            continue;
        }
        points_add(&t->out, ' ');
        points_add(&t->out, (uint32_t)(STOPS + n));
        if ((i += n) < s->n) points_add(&t->out, ' ');
    }
}

/* Commas are tokens unless they stand between numbers. */
static void comma_behind(tokenizer *t) {
    const points *s = &t->in;
    for (size_t i = 0; i < s->n; i++) {
        points_add(&t->out, s->at[i]);
        if (i + 1 == s->n || s->at[i + 1] != ',' || unicode_is_number(s->at[i])) continue;
        points_add_text(&t->out, " , ");
        i++;
    }
}

static void comma_before(tokenizer *t) {
    const points *s = &t->in;
    for (size_t i = 0; i < s->n; i++) {
        const bool last = i + 1 == s->n, split = s->at[i] == ',' && !last && !unicode_is_number(s->at[i + 1]);
        if (split) {
            points_add_text(&t->out, " , ");
            points_add(&t->out, s->at[++i]);
        } else if (s->at[i] == ',' && last && i > 0 && unicode_is_number(s->at[i - 1])) {
            points_add_text(&t->out, " , ");
        } else {
            points_add(&t->out, s->at[i]);
        }
    }
}

/* ---- apostrophes ---- */

typedef bool (*character_test)(const tokenizer *t, uint32_t c);

static bool letter(const tokenizer *t, uint32_t c) { return tokenizer__is_letter(t, c); }
static bool no_letter(const tokenizer *t, uint32_t c) { return !tokenizer__is_letter(t, c); }
static bool number(const tokenizer *t, uint32_t c) { return (void)t, unicode_is_number(c); }
static bool neither(const tokenizer *t, uint32_t c) { return no_letter(t, c) && !unicode_is_number(c); }
static bool is_s(const tokenizer *t, uint32_t c) { return (void)t, c == 's'; }

/* Replaces an apostrophe between two such characters. */
typedef struct apostrophe_rule {
    character_test before, behind;
    const char *becomes;
} apostrophe_rule;

static const apostrophe_rule english[] = {
    {no_letter, no_letter, " ' "}, {neither, letter, " ' "}, {letter, no_letter, " ' "},
    {letter, letter, " '"},        {number, is_s, " '"},     {0},
};
static const apostrophe_rule french[] = {
    {no_letter, no_letter, " ' "}, {no_letter, letter, " ' "}, {letter, no_letter, " ' "}, {letter, letter, "' "}, {0},
};

static void split_apostrophes(tokenizer *t, const apostrophe_rule *rule) {
    const points *s = &t->in;
    for (size_t i = 0; i < s->n; i++) {
        points_add(&t->out, s->at[i]);
        if (i + 2 >= s->n || s->at[i + 1] != '\'') continue;
        if (!rule->before(t, s->at[i]) || !rule->behind(t, s->at[i + 2])) continue;
        points_add_text(&t->out, rule->becomes);
        points_add(&t->out, s->at[i + 2]);
        i += 2;
    }
    points_swap(&t->in, &t->out);
}

static void pad_apostrophes(tokenizer *t) {
    for (size_t i = 0; i < t->in.n; i++) {
        if (t->in.at[i] == '\'') points_add_text(&t->out, " ' ");
        else points_add(&t->out, t->in.at[i]);
    }
}

static void apostrophes(tokenizer *t) {
    const bool romance = strcmp(t->language, "fr") == 0 || strcmp(t->language, "it") == 0;
    const apostrophe_rule *rules = strcmp(t->language, "en") == 0 ? english : romance ? french : NULL;
    if (!rules) tokenizer__run(t, pad_apostrophes);
    for (; rules && rules->before; rules++) split_apostrophes(t, rules);
}

/* ---- full stops ---- */

/* A word and what follows it: [at, end) of t->in, then [next, ...). */
typedef struct word {
    size_t at, end, next;
} word;

static word word_from(const points *s, size_t i) {
    word w = {0};
    while (i < s->n && unicode_is_space(s->at[i])) i++;
    w.at = i;
    while (i < s->n && !unicode_is_space(s->at[i])) i++;
    w.end = i;
    while (i < s->n && unicode_is_space(s->at[i])) i++;
    w.next = i;
    return w;
}

/* Whether the full stop at the end of a word is part of it. */
static bool keeps_stop(const tokenizer *t, const word *w) {
    const points *s = &t->in;
    bool stop = false, any_letter = false;
    char name[64];
    size_t n = 0;
    for (size_t i = w->at; i + 1 < w->end; i++) {
        stop = stop || s->at[i] == '.';
        any_letter = any_letter || tokenizer__is_letter(t, s->at[i]);
        if (n + 5 < sizeof name && s->at[i] < STOPS) n += unicode_put(s->at[i], name + n);
        else n = sizeof name; /* longer than any abbreviation */
    }
    if (stop && any_letter) return true;
    const prefix_kind kind = n < sizeof name ? prefixes_find(t->prefixes, (text_slice){name, n}) : PREFIX_NONE;
    if (kind == PREFIX_ALWAYS) return true;
    if (w->next == s->n) return false;
    const uint32_t c = s->at[w->next];
    return unicode_is_small(c) || (kind == PREFIX_BEFORE_NUMBER && c >= '0' && c <= '9');
}

static void split_stops(tokenizer *t) {
    const points *s = &t->in;
    for (word w = word_from(s, 0); w.at < s->n; w = word_from(s, w.next)) {
        const bool split = w.end > w.at + 1 && s->at[w.end - 1] == '.' &&
                           ((t->options.split_last && w.next == s->n) || !keeps_stop(t, &w));
        if (t->out.n) points_add(&t->out, ' ');
        for (size_t i = w.at; i < w.end; i++) {
            if (split && i == w.end - 1) points_add(&t->out, ' ');
            points_add(&t->out, s->at[i]);
        }
    }
    const size_t n = t->out.n; /* splits .' at the end of the line */
    if (n > 1 && t->out.at[n - 1] == '\'' && t->out.at[n - 2] == '.') {
        t->out.n -= 2;
        points_add_text(&t->out, n == 2 || t->out.at[n - 3] == ' ' ? ". '" : " . '");
    }
}

/* ---- all of them ---- */

static void write_out(tokenizer *t) {
    for (size_t i = 0; i < t->in.n; i++) {
        const uint32_t c = t->in.at[i];
        const char *entity = t->options.plain || c >= STOPS ? NULL : tokenizer__entity_of(c);
        if (c >= STOPS) {
            for (uint32_t k = STOPS; k < c; k++) points_add(&t->out, '.');
        } else if (entity) {
            points_add_text(&t->out, entity);
        } else {
            points_add(&t->out, c);
        }
    }
}

char *tokenizer_split(tokenizer *t, text_slice line) {
    size_t n;
    t->in.n = t->out.n = 0;
    points_add_slice(&t->in, line);
    tokenizer__run(t, tokenizer__squeeze);
    tokenizer__run(t, drop_controls);
    tokenizer__run(t, pad_symbols);
    if (t->options.split_hyphens) tokenizer__run(t, split_hyphens);
    tokenizer__run(t, join_stops);
    tokenizer__run(t, comma_behind);
    tokenizer__run(t, comma_before);
    apostrophes(t);
    tokenizer__run(t, split_stops);
    tokenizer__run(t, write_out);
    return points_utf8(&t->in, &n);
}
