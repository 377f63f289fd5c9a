# For tests of the program in bash, which read this first: where things are, a directory of their own, which they are in, and
# checks that count.
# SPDX-License-Identifier: MIT
set -euo pipefail

# ctest sets these; a test run by hand is of this tree and its build/
export SOURCE_DIR=${SOURCE_DIR:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}
export BUILD_DIR=${BUILD_DIR:-$SOURCE_DIR/build}
export ADAMOD=${ADAMOD:-$BUILD_DIR/adamod}

# in memory, where there is such a place, syncing costs nothing
work=$(mktemp -d -p /dev/shm 2>/dev/null || mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
failures=0
fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# refused STATUS TEXT COMMAND...: it fails with that status and one line that has the text.
refused() {
    local status=0 wanted=$1 text=$2
    shift 2
    "$@" >out 2>err || status=$?
    [ $status -eq "$wanted" ] || fail "$* has status $status, expected $wanted"
    grep -qF -- "$text" err || fail "$* says '$(cat err)', expected '$text'"
    [ "$(wc -l <err)" -eq 1 ] || fail "$* says $(wc -l <err) lines: $(cat err)"
}

# soon COMMAND...: waits until it succeeds; for a minute, as a machine that has much to do may take long.
soon() {
    local _
    for _ in $(seq 1200); do
        ! "$@" || return 0
        sleep 0.05
    done
    return 1
}
# has_lines NUMBER FILE: that many at least.
has_lines() { [ -e "$2" ] && [ "$(wc -l <"$2")" -ge "$1" ]; }

# At the end: what came of it.
finish() {
    echo "$((failures == 0)) passed, $((failures > 0)) failed"
    [ $failures -eq 0 ]
}
