/* Numbers for the tests: see values.h. */
#include "values.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool fast(void) {
    const char *text = getenv("ADAMOD_TEST_FAST");
    return text && *text && *text != '0';
}

int threads_now(void) {
    DIR *dir = opendir("/proc/self/task");
    int n = 0;
    for (struct dirent *entry; dir && (entry = readdir(dir));) n += entry->d_name[0] != '.';
    return dir ? closedir(dir), n : -1;
}

/* ---- random numbers ---- */

uint64_t rng_state;

static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint64_t rng(void) { return mix(rng_state += 0x9e3779b97f4a7c15u); }

double uniform(void) { return (double)(rng() >> 11) * 0x1p-53; }

double noise(uint64_t i) { return (double)(mix((i + 1) * 0x9e3779b97f4a7c15u) >> 11) * 0x1p-52 - 1; }

/* ---- types ---- */

size_t type_size(adamod_type type) { return type == ADAMOD_F64 ? 8 : type == ADAMOD_F32 ? 4 : 2; }

unsigned infinity16(adamod_type type) { return type == ADAMOD_BF16 ? 0x7f80u : 0x7c00u; }

double decode16(adamod_type type, unsigned bits) {
    static double tables[2][0x8000]; /* of bf16 and f16; past infinity: unused */
    double *values = tables[type == ADAMOD_F16];
    if (values[1] == 0) {
        const int fraction_bits = type == ADAMOD_BF16 ? 7 : 10, bias = type == ADAMOD_BF16 ? 127 : 15;
        const unsigned one = 1u << fraction_bits;
        for (unsigned i = 0; i <= infinity16(type); i++) {
            const int exponent = (int)(i >> fraction_bits);
            const unsigned fraction = i & (one - 1);
            values[i] = ldexp(exponent ? one + fraction : fraction, (exponent ? exponent : 1) - bias - fraction_bits);
        }
    }
    return values[bits];
}

unsigned below16(adamod_type type, double x) {
    unsigned low = 0, high = infinity16(type);
    if (fabs(x) >= decode16(type, high)) return high;
    while (high - low > 1) {
        const unsigned middle = (low + high) / 2;
        if (decode16(type, middle) <= fabs(x)) low = middle;
        else high = middle;
    }
    return low;
}

uint16_t nearest16(adamod_type type, double x) {
    unsigned bits = below16(type, x);
    if (bits < infinity16(type)) {
        const double below = fabs(x) - decode16(type, bits), above = decode16(type, bits + 1) - fabs(x);
        if (above < below || (above == below && bits % 2)) bits++;
    }
    return (uint16_t)(bits | (signbit(x) ? 0x8000u : 0));
}

uint16_t to_bf16(double x) {
    const float f = (float)x;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return (uint16_t)(bits >> 16);
}

double get16(adamod_type type, uint16_t bits) {
    const unsigned magnitude = bits & 0x7fffu;
    const double x = magnitude > infinity16(type) ? NAN : decode16(type, magnitude);
    return bits & 0x8000u ? -x : x;
}

uint16_t put16(adamod_type type, double x) { return isnan(x) ? 0x7fffu : nearest16(type, x); }

/* ---- states ---- */

const char *state_name(int i) {
    static const char *names[256];
    static int n;
    static bool known;
    adamod_rule info;
    for (int r = 0; !known && adamod_rule_name(r); r++) {
        if (adamod_rule_info(adamod_rule_name(r), &info, sizeof info)) abort();
        for (int s = 0; s < info.n_states; s++) {
            int same = 0;
            while (same < n && strcmp(names[same], info.states[s].name) != 0) same++;
            if (same == n) names[n++] = info.states[s].name;
        }
    }
    known = true;
    return i < n ? names[i] : i == n ? "master" : NULL;
}

/* ---- options ---- */

bool next_option(char **rest, char **name, char **value) {
    *name = strtok_r(*rest, " ", rest);
    if (!*name) return false;
    *value = strchr(*name, '=');
    *(*value)++ = '\0';
    return true;
}
