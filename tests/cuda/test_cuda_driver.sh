#!/usr/bin/env bash
# A driver that is too old for libadamod_cuda is refused in one line, which says what it is and what is needed, and a run
# leaves nothing. The driver is a library in its place that says it is of CUDA 12.8, which is all that the runtime asks of it.
# SPDX-License-Identifier: MIT
set -euo pipefail
source_dir=${SOURCE_DIR:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}
build_dir=${BUILD_DIR:-$source_dir/build}
adamod=${ADAMOD:-$build_dir/adamod}
[ -e "$build_dir/libadamod_cuda.so.0" ] || exit 77

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
    echo "FAIL $*"
    exit 1
}
cat >"$work/driver.c" <<'END'
#include <string.h>
int cuDriverGetVersion(int *version) { return *version = 12080, 0; }
int cuInit(unsigned flags) { return (void)flags, 0; }
static int absent(void) { return 500; }
int cuGetProcAddress_v2(const char *name, void **function, int version, unsigned long flags, int *found) {
    (void)flags;
    *function = strcmp(name, "cuDriverGetVersion") == 0 ? (void *)cuDriverGetVersion
                : strcmp(name, "cuInit") == 0           ? (void *)cuInit
                : strcmp(name, "cuGetProcAddress") == 0 ? (void *)cuGetProcAddress_v2
                : version <= 12080                      ? (void *)absent
                                                        : NULL;
    if (found) *found = 0;
    return *function ? 0 : 500;
}
END
mkdir "$work/lib"
"${CC:-cc}" -shared -fPIC -Wl,-soname,libcuda.so.1 -o "$work/lib/libcuda.so.1" "$work/driver.c"
export LD_LIBRARY_PATH=$work/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

said='the driver is for CUDA 12\.8, expected 1[3-9]\.[0-9]* or later'
! "$adamod" optim bench --device cuda --quick --no-torch >"$work/out" 2>"$work/err" || fail "a driver of CUDA 12.8 is accepted"
if grep -q 'expected 12\.' "$work/err"; then exit 77; fi # built with nvcc 12, for which it may be too old or not
grep -qx "adamod: optim bench: cuda: $said" "$work/err" || fail "optim bench: $(cat "$work/err")"
[ "$(wc -l <"$work/err")" -eq 1 ] || fail "more than a line: $(cat "$work/err")"
"$adamod" info >"$work/out"
grep -q "^CUDA  *off: .*$said" "$work/out" || fail "info: $(grep ^CUDA "$work/out")"
if "$adamod" help train >/dev/null 2>&1; then
    ! "$adamod" train "$source_dir/recipes/demo.yaml" --device cuda --out "$work/run" >"$work/out" 2>"$work/err" || fail "it trains"
    [[ $(cat "$work/err") == *'CUDA 12.8'* && $(wc -l <"$work/err") -eq 1 ]] || fail "train: $(cat "$work/err")"
    [ ! -e "$work/run" ] || fail "a run is begun"
fi
echo "ok a driver that is too old"
