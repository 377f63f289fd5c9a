#!/usr/bin/env bash
# Ranks that are killed, interrupted or cannot write: all stop, the last checkpoint is whole, and the run goes on from it with
# any number of ranks to the end that it would have come to.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/support/shell_checks.sh
. "$(dirname "${BASH_SOURCE[0]}")/../support/shell_checks.sh"
# shellcheck source=tests/support/ranks_checks.sh
. "$SOURCE_DIR/tests/support/ranks_checks.sh"
"$ADAMOD" help train >/dev/null 2>&1 || exit 77 # built without the trainer

# started N RECIPE RUN ARGUMENT...: a run in the background, once it has trained a little; pid is mpirun's.
started() {
    local n=$1 recipe=$2 run=$3
    shift 3
    mpirun --oversubscribe -n "$n" "$ADAMOD" train "$recipe" --out "$run" "$@" >said 2>err &
    pid=$!
    soon test -s "$run/metrics.jsonl" || fail "$n ranks do not begin: $(cat err)"
}
# mpirun and all ranks are gone within a minute; two seconds, where there is nothing else to do.
ended() {
    local begin=$SECONDS
    wait $pid && status=0 || status=$?
    [ $((SECONDS - begin)) -le 60 ] || fail "it takes $((SECONDS - begin)) s to stop"
}
rank_of() { { pgrep -P "$pid" || true; } | sed -n "$1p"; }

# ---- signals ----

# A long run that stops after the same update on all ranks, and says so once.
long='--set train.average=0 --set train.steps=100000 --set train.evaluate_every=0'
# shellcheck disable=SC2086
started 2 translation.yaml slow $long --set train.checkpoint_every=0
kill -TERM "$(rank_of 2)"
ended
[ "$status" -ne 0 ] || fail "after SIGTERM to a rank the status is 0"
[ "$(grep -c 'slow: interrupted after update' said)" -eq 1 ] || fail "after SIGTERM to a rank it says $(cat said err)"
grep -q '"status":"interrupted"' slow/result.json || fail "after SIGTERM: $(cat slow/result.json)"
train 1 --resume --out slow --set train.steps=1 # reads the checkpoint
# Ctrl-C: mpirun ends the ranks itself after a second, which may be before they have saved.
rm -rf slow
# shellcheck disable=SC2086
started 2 translation.yaml slow $long --set train.checkpoint_every=3
kill -INT "$pid"
ended
[ "$status" -ne 0 ] || fail "after SIGINT to mpirun the status is 0"
train 1 --resume --out slow --set train.steps=1

# ---- ranks that are killed ----

export OMPI_MCA_odls_base_sigkill_timeout=0 # what mpirun gives the others
# kill_one N RECIPE RUN ARGUMENT...: begins or goes on, until a rank is killed.
kill_one() {
    local n=$1 run=$3 resume=--resume victim
    [ -e "$run" ] || resume=
    # shellcheck disable=SC2086
    started "$@" $resume
    sleep "0.0$((RANDOM % 10))"
    victim=$(rank_of $((RANDOM % n + 1)))
    [ -z "$victim" ] || kill -9 "$victim" || true
    ended
    ! pgrep -P $pid >/dev/null || fail "ranks are left over"
}
for recipe in translation language; do # with any number of ranks
    how="--set train.accumulate=4 --set train.steps=40 --set train.checkpoint_every=2"
    # shellcheck disable=SC2086
    train 1 $recipe.yaml --out $recipe.whole $how
    # shellcheck disable=SC2086
    for _ in $([ $recipe = language ] || echo 1) 2; do kill_one $((RANDOM % 3 + 2)) $recipe.yaml $recipe.killed $how; done
    train 3 --resume --out $recipe.killed --set train.steps=40
    numbers $recipe.whole >whole.txt
    numbers $recipe.killed | cmp - whole.txt || fail "$recipe: a run whose ranks were killed ends elsewhere"
done
# With running statistics of norms; and states are shared out.
how="--set train.shard=true --set train.accumulate=3 --set train.steps=10 --set train.checkpoint_every=2 --set train.evaluate_every=0 \
    --set train.histogram_dense=0 --set train.histogram_every=0"
# shellcheck disable=SC2086
train 1 images.yaml --out images.whole $how
# shellcheck disable=SC2086
kill_one 3 images.yaml images.killed $how
train 2 --resume --out images.killed --set train.steps=10
numbers images.whole >whole.txt
numbers images.killed | cmp - whole.txt || fail "images: a run whose ranks were killed ends elsewhere"

# ---- a full disk, a loss that is not finite ----

# On the way: files that MPI makes as it starts may be large.
# shellcheck disable=SC2086
started 2 translation.yaml full $long --set train.accumulate=2 --set train.checkpoint_every=4
for rank in $(pgrep -P "$pid"); do
    ! grep -qz 'OMPI_COMM_WORLD_RANK=0' "/proc/$rank/environ" || prlimit --fsize=16384 --pid "$rank"
done
ended
[ "$status" -eq 1 ] || fail "a full disk has status $status"
# Whichever file is first to be longer than that: lines may have come to more before the limit did.
[ "$(grep -c '^adamod' err)" -eq 1 ] &&
    grep -q 'rank 0: full/[^ ]*: cannot write: File too large' err ||
    fail "a full disk: $(cat err)"
[ -z "$(find full/checkpoints ! -name '*.safetensors' -type f)" ] || fail "a full disk leaves $(ls full/checkpoints)"
[ ! -e full/checkpoints/last.safetensors ] || train 1 --resume --out full --set train.steps=1
said 1 'stopped: ' ranks 2 "$ADAMOD" train translation.yaml --out nan --set train.accumulate=2 --set optimizer.lr=1e15
said_all
grep -q '"status":"diverged"' nan/result.json || fail "it did not diverge: $(cat nan/result.json)"

finish
