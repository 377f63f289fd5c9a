#!/usr/bin/env bash
# Several processes under mpirun: what they exchange.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/shell_checks.sh
. "$SOURCE_DIR/tests/shell_checks.sh"
if ! command -v mpirun >/dev/null; then
    [ -z "${ADAMOD_REQUIRE_MPI-}" ] || { echo "there is no mpirun"; exit 1; }
    exit 77
fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 # as a container does
# ranks N COMMAND...
ranks() {
    local n=$1
    shift
    mpirun --oversubscribe -n "$n" "$@"
}

for n in 2 3; do
    ranks $n "$BUILD_DIR/tests/test_comm" >out 2>&1 || fail "$n ranks: $(cat out)"
    [ "$(grep -c '7 passed, 0 failed' out)" -eq $n ] || fail "$n ranks: $(cat out)"
done

finish
