#!/usr/bin/env bash
# The single-file library compiles without a warning, with gcc and clang, and gives the bits that the library gives:
# every rule's parameters of every type after 100 steps, also where the compiler may use fused multiply-adds.
# SPDX-License-Identifier: MIT
set -euo pipefail
source_dir=${SOURCE_DIR:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}
build_dir=${BUILD_DIR:-$source_dir/build}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
    echo "FAIL $*"
    exit 1
}

cat >"$work/program.c" <<'END'
/* Prints a hash of what 100 steps make of parameters of every type, for every rule. */
#include "adamod.h"
#include <stdio.h>
#include <string.h>

enum { N = 37 * 29, TYPES = 4, STEPS = 100 };
static unsigned char param[TYPES][8 * N];
static float grad[TYPES][N];

static float noise(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (float)(int32_t)(*state >> 32) * 0x1p-31f;
}

static void set_param(adamod_type type, int i, float x) {
    const double f64 = x;
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint16_t bf16 = (uint16_t)(bits >> 16), f16 = (uint16_t)(0x3800u | (bits >> 8 & 0x3ffu)); /* 0.5 <= f16 < 1 */
    if (type == ADAMOD_F32) memcpy(param[type] + 4 * i, &x, 4);
    if (type == ADAMOD_F64) memcpy(param[type] + 8 * i, &f64, 8);
    if (type == ADAMOD_BF16) memcpy(param[type] + 2 * i, &bf16, 2);
    if (type == ADAMOD_F16) memcpy(param[type] + 2 * i, &f16, 2);
}

static int check(adamod_status status) {
    if (status) fprintf(stderr, "%s\n", adamod_last_error());
    return status != ADAMOD_OK;
}

static int run(const char *rule) {
    adamod_optimizer *opt;
    uint64_t state = 1, hash = 0xcbf29ce484222325u;
    if (check(adamod_create(&opt, rule)) || check(adamod_set(opt, "weight_decay", 0.01)) ||
        check(adamod_set(opt, "threads", 2))) {
        return 1;
    }
    for (int type = 0; type < TYPES; type++) {
        const adamod_tensor tensor = {.param = param[type], .grad = grad[type], .param_type = (adamod_type)type,
                                      .grad_type = ADAMOD_F32, .ndim = 2, .shape = {37, 29}};
        if (check(adamod_add_tensor(opt, 0, &tensor, NULL))) return 1;
        for (int i = 0; i < N; i++) set_param(tensor.param_type, i, noise(&state));
    }
    for (int t = 0; t < STEPS; t++) {
        for (int i = 0; i < TYPES * N; i++) grad[i / N][i % N] = noise(&state) + 0.25f;
        if (check(adamod_step(opt))) return 1;
    }
    adamod_free(opt);
    for (size_t i = 0; i < sizeof param; i++) hash = (hash ^ param[i / (8 * N)][i % (8 * N)]) * 0x100000001b3u;
    printf("%s %016llx\n", rule, (unsigned long long)hash);
    return 0;
}

int main(void) {
    for (int i = 0; adamod_rule_name(i); i++) {
        if (run(adamod_rule_name(i))) return 1;
    }
    return 0;
}
END

"$source_dir/scripts/amalgamate" "$work/single" >/dev/null || fail "scripts/amalgamate"
[ "$(cd "$work/single" && echo *)" = "adamod.c adamod.h" ] || fail "scripts/amalgamate left more than two files"
! grep -n '#line\|#include "[^"]*/' "$work/single/adamod.c" || fail "adamod.c is not one file"

cc -E "$work/single/adamod.c" >"$work/preprocessed" # a pipe to grep -q would break off the compiler
grep -q dlopen "$work/preprocessed" || fail "the single file does not look for libadamod_cuda"
! cc -E -DADAMOD_NO_CUDA "$work/single/adamod.c" | grep dlopen || fail "ADAMOD_NO_CUDA does not leave dlopen out"

link() { # link OUTPUT INCLUDEDIR LIBRARY
    cc -O2 -ffp-contract=off -Wall -Wextra -Werror -I"$2" -o "$1" "$work/program.c" "$3" -lm -pthread
}
link "$work/library" "$source_dir/lib/include" "$build_dir/libadamod.a"
"$work/library" >"$work/expected" || fail "the program with the library"
grep -q '^adamod ' "$work/expected" || fail "the program says nothing about adamod"

compile() { # compile NAME COMPILER FLAG...
    local name=$1 compiler=$2
    shift 2
    "$compiler" "$@" -Wall -Wextra -Werror -c -o "$work/$name.o" "$work/single/adamod.c" >"$work/$name.log" 2>&1 &&
        link "$work/$name" "$work/single" "$work/$name.o"
}
names=() pids=()
start() {
    if command -v "$2" >/dev/null; then
        compile "$@" &
        names+=("$1")
        pids+=($!)
    fi
}
finish() {
    local i
    for i in "${!names[@]}"; do
        wait "${pids[i]}" || { cat "$work/${names[i]}.log" && fail "${names[i]}: does not compile"; }
        "$work/${names[i]}" >"$work/found" || fail "${names[i]}: the program with the single file"
        diff "$work/expected" "$work/found" || fail "${names[i]}: < the library, > the single file"
        echo "ok ${names[i]}"
    done
    names=() pids=()
}
# The library it is compared with was compiled with -O3. Here the compiler has fused multiply-adds, and must not use them:
# gcc does with -fexpensive-optimizations, one of -O2's, clang even without optimization. gcc's kernels need more than -O1,
# and must ask for it.
fused=()
if grep -qsw fma /proc/cpuinfo; then fused=(-mfma); fi
start gcc-fused gcc -O1 -fexpensive-optimizations "${fused[@]}" # three quarters of the time of -O2
start clang-fused clang -O0 "${fused[@]}" # half of the time of -O1

# ---- meanwhile, what needs no code ----

# A C++ compiler would find thousands of errors; it is told the one that matters.
if command -v c++ >/dev/null; then
    ! c++ -x c++ -c -o /dev/null "$work/single/adamod.c" 2>"$work/log" || fail "adamod.c compiles as C++"
    grep -q 'error.*compile it with a C compiler' "$work/log" || { cat "$work/log" && fail "no word about C++"; }
    [ "$(grep -c 'error' "$work/log")" -le 2 ] || { cat "$work/log" && fail "more than one error as C++"; }
    echo "ok c++ is refused"
fi
# Flags that would give other bits are refused in one line.
refused() { # refused WORDS COMPILER FLAG...
    local words=$1
    shift
    command -v "$1" >/dev/null || return 0
    ! "$@" -fsyntax-only "$work/single/adamod.c" >/dev/null 2>"$work/log" || fail "$*: compiles"
    grep -q "error.*$words" "$work/log" || { cat "$work/log" && fail "$*: no word about $words"; }
    [ "$(grep -c 'error:' "$work/log")" = 1 ] || { cat "$work/log" && fail "$*: more than one error"; }
    echo "ok $* is refused"
}
for compiler in gcc clang; do
    refused 'IEEE arithmetic' "$compiler" -ffast-math
    # All others are seen by the preprocessor, in a tenth of the time.
    refused 'IEEE arithmetic' "$compiler" -Ofast -E
    refused 'IEEE arithmetic' "$compiler" -ffinite-math-only -E
    refused 'big-endian' "$compiler" -U__BYTE_ORDER__ -D__BYTE_ORDER__=__ORDER_BIG_ENDIAN__ -E
done
refused 'big-endian' s390x-linux-gnu-gcc -E
refused '-mfpmath=sse' i686-linux-gnu-gcc -E
[ "$(uname -m)" != x86_64 ] || refused '-mfpmath=sse' gcc -mfpmath=387 -E
finish
