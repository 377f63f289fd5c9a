#include "data/number_words.h"

#include <string.h>

static const char *const german_small[20] = {
    "null", "ein", "zwei",  "drei",     "vier",     "fünf",     "sechs",    "sieben",   "acht",     "neun",
    "zehn", "elf", "zwölf", "dreizehn", "vierzehn", "fünfzehn", "sechzehn", "siebzehn", "achtzehn", "neunzehn"};
static const char *const german_tens[10] = {"",        "",        "zwanzig", "dreißig", "vierzig",
                                            "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig"};

static const char *const english_small[20] = {
    "zero", "one",    "two",    "three",    "four",     "five",    "six",     "seven",     "eight",    "nine",
    "ten",  "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"};
static const char *const english_tens[10] = {"",      "",      "twenty",  "thirty", "forty",
                                             "fifty", "sixty", "seventy", "eighty", "ninety"};

/* used also counts what does not fit, so that finish can fail. */
typedef struct writer {
    char *out;
    size_t size, used;
} writer;

static void put(writer *w, const char *word) {
    size_t n = strlen(word);
    if (w->used < w->size && n < w->size - w->used) memcpy(w->out + w->used, word, n);
    w->used += n;
}

static int finish(writer *w) {
    if (w->used >= w->size) return -1;
    w->out[w->used] = '\0';
    return (int)w->used;
}

/* one: the word for a final 1, "ein" before tausend and "eins" at the end. */
static void put_german(writer *w, int n, const char *one) {
    if (n >= 100) {
        put(w, german_small[n / 100]);
        put(w, "hundert");
        n %= 100;
    }
    if (n == 1) {
        put(w, one);
    } else if (n && n < 20) {
        put(w, german_small[n]);
    } else if (n) {
        if (n % 10) {
            put(w, german_small[n % 10]);
            put(w, "und");
        }
        put(w, german_tens[n / 10]);
    }
}

int numbers_german(int n, char *out, size_t size) {
    writer w = {out, size, 0};
    if (n < 0 || n >= NUMBERS_LIMIT) return -1;
    if (n == 0) put(&w, german_small[0]);
    if (n >= 1000) {
        put_german(&w, n / 1000, "ein");
        put(&w, "tausend");
    }
    put_german(&w, n % 1000, "eins");
    return finish(&w);
}

static void put_english(writer *w, int n) {
    if (n >= 100) {
        if (w->used) put(w, " ");
        put(w, english_small[n / 100]);
        put(w, " hundred");
        n %= 100;
    }
    if (n && w->used) put(w, " and ");
    if (n && n < 20) {
        put(w, english_small[n]);
    } else if (n) {
        put(w, english_tens[n / 10]);
        if (n % 10) {
            put(w, "-");
            put(w, english_small[n % 10]);
        }
    }
}

int numbers_english(int n, char *out, size_t size) {
    writer w = {out, size, 0};
    if (n < 0 || n >= NUMBERS_LIMIT) return -1;
    if (n == 0) put(&w, english_small[0]);
    if (n >= 1000) {
        put_english(&w, n / 1000);
        put(&w, " thousand");
    }
    put_english(&w, n % 1000);
    return finish(&w);
}
