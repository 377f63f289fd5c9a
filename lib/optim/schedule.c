/* Schedules: small trees, built by functions or from text, that turn an update's number into a value. */
#include "optim/schedule.h"
#include "core/number.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "optim/schedule.inc.h"

static adamod_status adamod__schedule_new(adamod_schedule **out, schedule_kind kind, double number, int64_t whole) {
    if (!out) return adamod__refuse("schedule: out is NULL");
    if (!isfinite(number)) {
        const bool warmup = kind == SCHEDULE_WARMUP || kind == SCHEDULE_WARMUP_RSQRT;
        return adamod__fail(ADAMOD_ERROR_RANGE, "schedule: %s is %g, expected a finite number",
                            kind == SCHEDULE_MULTISTEP ? "factor"
                            : warmup                   ? "start"
                                                       : "end",
                            number);
    }
    adamod_schedule *s = calloc(1, sizeof *s);
    if (!s) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for a schedule");
    *s = (adamod_schedule){.kind = kind, .number = number, .whole = whole};
    *out = s;
    return ADAMOD_OK;
}

static adamod_status adamod__schedule_steps(adamod_schedule **out, schedule_kind kind, double number, int64_t steps) {
    if (steps >= 1) return adamod__schedule_new(out, kind, number, steps);
    return adamod__fail(ADAMOD_ERROR_RANGE, "schedule: steps is %lld, expected steps >= 1", (long long)steps);
}

adamod_status adamod_schedule_constant(adamod_schedule **out) {
    return adamod__schedule_new(out, SCHEDULE_CONSTANT, 0, 0);
}

adamod_status adamod_schedule_warmup(adamod_schedule **out, double start, int64_t steps) {
    return adamod__schedule_steps(out, SCHEDULE_WARMUP, start, steps);
}

adamod_status adamod_schedule_warmup_rsqrt(adamod_schedule **out, double start, int64_t steps) {
    return adamod__schedule_steps(out, SCHEDULE_WARMUP_RSQRT, start, steps);
}

adamod_status adamod_schedule_constant_rsqrt(adamod_schedule **out, int64_t steps) {
    return adamod__schedule_steps(out, SCHEDULE_CONSTANT_RSQRT, 0, steps);
}

adamod_status adamod_schedule_cosine(adamod_schedule **out, double end, int64_t steps) {
    return adamod__schedule_steps(out, SCHEDULE_COSINE, end, steps);
}

adamod_status adamod_schedule_linear(adamod_schedule **out, double end, int64_t steps) {
    return adamod__schedule_steps(out, SCHEDULE_LINEAR, end, steps);
}

static adamod_status adamod__schedule_list(adamod_schedule *s, const int64_t *list, int64_t n) {
    s->list = calloc((size_t)n + 1, sizeof *s->list);
    if (!s->list)
        return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for a schedule of %lld entries", (long long)n);
    if (n > 0) memcpy(s->list, list, (size_t)n * sizeof *list);
    return ADAMOD_OK;
}

adamod_status adamod_schedule_multistep(adamod_schedule **out, int n, const int64_t *milestones, double factor) {
    if (n < 0) return adamod__refuse("multistep: n is %d, expected 0 or more", n);
    if (n > 0 && !milestones) return adamod__refuse("multistep: milestones is NULL");
    for (int i = 0; i < n; i++) {
        if (milestones[i] > (i ? milestones[i - 1] : 0)) continue;
        return adamod__fail(ADAMOD_ERROR_RANGE, "multistep: milestone %d is %lld, expected ascending numbers from 1",
                            i + 1, (long long)milestones[i]);
    }
    adamod_schedule *s = NULL;
    ADAMOD__TRY(adamod__schedule_new(out ? &s : NULL, SCHEDULE_MULTISTEP, factor, n));
    const adamod_status status = adamod__schedule_list(s, milestones, n);
    if (status) adamod_schedule_free(s);
    else *out = s;
    return status;
}

adamod_schedule *adamod__schedule_copy(const adamod_schedule *from) {
    adamod_schedule *s = NULL;
    if (adamod__schedule_new(&s, from->kind, from->number, from->whole)) return NULL;
    s->depth = from->depth;
    if (from->list && adamod__schedule_list(s, from->list, from->whole)) goto failed;
    if (from->parts) {
        s->parts = calloc((size_t)from->whole, sizeof *s->parts);
        if (!s->parts) goto failed;
        for (int64_t i = 0; i < from->whole; i++) {
            if (!(s->parts[i] = adamod__schedule_copy(from->parts[i]))) goto failed;
        }
    }
    return s;
failed:
    adamod_schedule_free(s);
    adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for a schedule");
    return NULL;
}

adamod_status adamod_schedule_chain(adamod_schedule **out, int n, const adamod_schedule *const *parts,
                                    const int64_t *lengths) {
    if (n < 1) return adamod__refuse("chain: n is %d, expected 1 or more", n);
    if (!out || !parts || (n > 1 && !lengths)) {
        return adamod__refuse("chain: %s is NULL", !out ? "out" : !parts ? "parts" : "lengths");
    }
    int depth = 0;
    for (int i = 0; i < n; i++) {
        if (!parts[i]) return adamod__refuse("chain: part %d is NULL", i + 1);
        if (parts[i]->depth >= ADAMOD_MAX_CHAINS) {
            return adamod__fail(ADAMOD_ERROR_RANGE, "chain: part %d nests %d chains deep, expected fewer than %d",
                                i + 1, parts[i]->depth, ADAMOD_MAX_CHAINS);
        }
        if (parts[i]->depth > depth) depth = parts[i]->depth;
        if (i < n - 1 && lengths[i] < 1) {
            return adamod__fail(ADAMOD_ERROR_RANGE, "chain: length %d is %lld, expected 1 or more", i + 1,
                                (long long)lengths[i]);
        }
    }
    /* Copied as a chain of borrowed parts would be. */
    adamod_schedule view = {.kind = SCHEDULE_CHAIN, .whole = n, .depth = depth + 1};
    adamod_schedule *s = NULL;
    view.parts = calloc((size_t)n, sizeof *view.parts);
    if (view.parts && adamod__schedule_list(&view, lengths, n - 1) == ADAMOD_OK) {
        for (int i = 0; i < n; i++) memcpy(&view.parts[i], &parts[i], sizeof parts[i]);
        s = adamod__schedule_copy(&view);
    }
    free(view.parts);
    free(view.list);
    if (!s) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for a chain of %d schedules", n);
    *out = s;
    return ADAMOD_OK;
}

void adamod_schedule_free(adamod_schedule *s) {
    if (!s) return;
    for (int64_t i = 0; s->parts && i < s->whole; i++) adamod_schedule_free(s->parts[i]);
    free(s->parts);
    free(s->list);
    free(s);
}

double adamod_schedule_value(const adamod_schedule *s, double base, int64_t t) {
    if (!s) return base;
    while (s->kind == SCHEDULE_CHAIN) s = s->parts[adamod__chain_part(s->list, s->whole, &t)];
    const adamod__arithmetic before = adamod__enter_arithmetic();
    const volatile double value = adamod__schedule_simple(s->kind, s->number, s->whole, s->list, base, t);
    adamod__leave_arithmetic(before);
    return value;
}

/* ---- from text ---- */

enum { MAX_ARGUMENTS = 64, MAX_PARTS = 64 };

typedef struct parser {
    const char *text, *at;
} parser;

static adamod_status adamod__syntax(const parser *p, const char *expected) {
    return adamod__refuse("schedule '%.80s': expected %s at character %d", p->text, expected,
                          (int)(p->at - p->text) + 1);
}

static bool adamod__accept(parser *p, char c) {
    while (isspace((unsigned char)*p->at)) p->at++;
    if (*p->at != c) return false;
    p->at++;
    return true;
}

static adamod_status adamod__number_at(parser *p, double *x) {
    char *end;
    *x = adamod__read_number(p->at, &end);
    if (end == p->at || !isfinite(*x)) return adamod__syntax(p, "a number");
    p->at = end;
    return ADAMOD_OK;
}

static adamod_status adamod__whole_at(parser *p, int64_t *x) {
    double number;
    ADAMOD__TRY(adamod__number_at(p, &number));
    if (number != floor(number) || fabs(number) > 9e15) return adamod__syntax(p, "a whole number before this");
    *x = (int64_t)number;
    return ADAMOD_OK;
}

/* 150,225;0.1 */
static adamod_status adamod__parse_multistep(parser *p, adamod_schedule **out) {
    int64_t milestones[MAX_ARGUMENTS];
    int n = 0;
    double factor;
    do {
        if (n == MAX_ARGUMENTS) return adamod__syntax(p, "at most 64 milestones");
        ADAMOD__TRY(adamod__whole_at(p, &milestones[n++]));
    } while (adamod__accept(p, ','));
    if (!adamod__accept(p, ';')) return adamod__syntax(p, "',' or ';' and the factor");
    const adamod_status status = adamod__number_at(p, &factor);
    return status ? status : adamod_schedule_multistep(out, n, milestones, factor);
}

/* Names, what they make, and whether a number comes before the steps. */
static const struct {
    const char *name;
    schedule_kind kind;
    bool number;
} adamod__schedules[] = {
    {"constant", SCHEDULE_CONSTANT, false},
    {"multistep", SCHEDULE_MULTISTEP, false},
    {"warmup", SCHEDULE_WARMUP, true},
    {"warmup_rsqrt", SCHEDULE_WARMUP_RSQRT, true},
    {"constant_rsqrt", SCHEDULE_CONSTANT_RSQRT, false},
    {"cosine", SCHEDULE_COSINE, true},
    {"linear", SCHEDULE_LINEAR, true},
};

static adamod_status adamod__parse_one(parser *p, adamod_schedule **out) {
    while (isspace((unsigned char)*p->at)) p->at++;
    const size_t length = strspn(p->at, "abcdefghijklmnopqrstuvwxyz_");
    size_t i = 0;
    const size_t known = sizeof adamod__schedules / sizeof *adamod__schedules;
    while (i < known &&
           !(strlen(adamod__schedules[i].name) == length && strncmp(p->at, adamod__schedules[i].name, length) == 0)) {
        i++;
    }
    if (i == known) {
        return adamod__syntax(p, "constant, multistep, warmup, warmup_rsqrt, constant_rsqrt, cosine or linear");
    }
    p->at += length;
    const schedule_kind kind = adamod__schedules[i].kind;
    if (kind == SCHEDULE_CONSTANT) return adamod_schedule_constant(out);
    if (!adamod__accept(p, '(')) return adamod__syntax(p, "'('");
    adamod_status status = ADAMOD_OK;
    double number = 0;
    int64_t steps = 0;
    if (kind == SCHEDULE_MULTISTEP) {
        status = adamod__parse_multistep(p, out);
    } else {
        if (adamod__schedules[i].number) {
            ADAMOD__TRY(adamod__number_at(p, &number));
            if (!adamod__accept(p, ',')) return adamod__syntax(p, "',' and the steps");
        }
        ADAMOD__TRY(adamod__whole_at(p, &steps));
        status = adamod__schedule_steps(out, kind, number, steps);
    }
    if (status) return status;
    if (adamod__accept(p, ')')) return ADAMOD_OK;
    adamod_schedule_free(*out);
    return adamod__syntax(p, "')'");
}

/* one ("*" length ">" one)* */
static adamod_status adamod__parse_parts(parser *p, adamod_schedule **parts, int64_t *lengths, int *n) {
    for (;;) {
        ADAMOD__TRY(adamod__parse_one(p, &parts[*n]));
        ++*n;
        if (adamod__accept(p, '\0')) return ADAMOD_OK;
        if (!adamod__accept(p, '*')) return adamod__syntax(p, "the end, or '*' and a length");
        ADAMOD__TRY(adamod__whole_at(p, &lengths[*n - 1]));
        if (!adamod__accept(p, '>')) return adamod__syntax(p, "'>' and the next schedule");
        if (*n == MAX_PARTS) return adamod__syntax(p, "at most 64 parts");
    }
}

adamod_status adamod_schedule_parse(adamod_schedule **out, const char *text) {
    if (!out || !text) return adamod__refuse("schedule: %s is NULL", out ? "the text" : "out");
    parser p = {text, text};
    adamod_schedule *parts[MAX_PARTS] = {NULL}, *result = NULL;
    int64_t lengths[MAX_PARTS];
    int n = 0;
    adamod_status status = adamod__parse_parts(&p, parts, lengths, &n);
    if (status == ADAMOD_OK && n == 1) {
        result = parts[0];
        n = 0;
    } else if (status == ADAMOD_OK) {
        status = adamod_schedule_chain(&result, n, (const adamod_schedule *const *)parts, lengths);
    }
    for (int i = 0; i < n; i++) adamod_schedule_free(parts[i]);
    if (status == ADAMOD_OK) *out = result;
    return status;
}
