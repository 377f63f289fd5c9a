#!/usr/bin/env bash
# Ranks that are killed, interrupted or cannot write: all stop, the last checkpoint is whole, and the run goes on from it with
# any number of ranks to the end that it would have come to.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/shell_checks.sh
. "$SOURCE_DIR/tests/shell_checks.sh"
# shellcheck source=tests/ranks_checks.sh
. "$SOURCE_DIR/tests/ranks_checks.sh"
"$ADAMOD" help train >/dev/null 2>&1 || exit 77 # built without the trainer

# started N RUN ARGUMENT...: a run in the background, once it has trained a little; pid is mpirun's.
started() {
    local n=$1 run=$2 _
    shift 2
    mpirun --oversubscribe -n "$n" "$ADAMOD" train translation.yaml --out "$run" "$@" >said 2>err &
    pid=$!
    for _ in $(seq 500); do
        [ ! -s "$run/metrics.jsonl" ] || return 0
        sleep 0.02
    done
    fail "$n ranks do not begin: $(cat err)"
}
# ended SECONDS: mpirun and all ranks are gone within that time.
ended() {
    local begin=$SECONDS
    wait $pid && status=0 || status=$?
    [ $((SECONDS - begin)) -le "$1" ] || fail "it takes $((SECONDS - begin)) s to stop"
}
rank_of() { { pgrep -P "$pid" || true; } | sed -n "$1p"; }

# ---- signals ----

# A long run that stops after the same update on all ranks, and says so once.
long='--set train.average=0 --set train.steps=100000 --set train.evaluate_every=0'
# shellcheck disable=SC2086
started 2 slow $long --set train.checkpoint_every=0
kill -TERM "$(rank_of 2)"
ended 10
[ "$status" -ne 0 ] || fail "after SIGTERM to a rank the status is 0"
[ "$(grep -c 'slow: interrupted after update' said)" -eq 1 ] || fail "after SIGTERM to a rank it says $(cat said err)"
grep -q '"status":"interrupted"' slow/result.json || fail "after SIGTERM: $(cat slow/result.json)"
train 1 --resume --out slow --set train.steps=1 # reads the checkpoint
# What Ctrl-C does: mpirun ends the ranks itself after a second, which may be before they have saved.
rm -rf slow
# shellcheck disable=SC2086
started 2 slow $long --set train.checkpoint_every=3
kill -INT "$pid"
ended 10
[ "$status" -ne 0 ] || fail "after SIGINT to mpirun the status is 0"
train 1 --resume --out slow --set train.steps=1

# ---- ranks that are killed ----

train 1 translation.yaml --out whole --set train.accumulate=4 --set train.steps=40 --set train.checkpoint_every=2
numbers whole >whole.txt
export OMPI_MCA_odls_base_sigkill_timeout=0 # what mpirun gives the others
for _ in 1 2; do
    n=$((RANDOM % 3 + 2)) resume=--resume
    [ -e killed/recipe.yaml ] || { rm -rf killed && resume=; }
    # shellcheck disable=SC2086
    started $n killed --set train.accumulate=4 --set train.steps=40 --set train.checkpoint_every=2 $resume
    sleep "0.0$((RANDOM % 10))"
    victim=$(rank_of $((RANDOM % n + 1)))
    [ -z "$victim" ] || kill -9 "$victim" || true
    ended 10
    ! pgrep -P $pid >/dev/null || fail "ranks are left over"
    ! grep -q '"finished"' killed/result.json 2>/dev/null || break
done
train 3 --resume --out killed --set train.steps=40
numbers killed | cmp - whole.txt || fail "a run whose ranks were killed ends elsewhere"

# ---- a full disk, a loss that is not finite ----

# shellcheck disable=SC2016
full='[ "$OMPI_COMM_WORLD_RANK" -ne 0 ] || ulimit -f 16; exec "$0" train translation.yaml --out full --set train.accumulate=2'
said 1 'full/checkpoints/best.safetensors: cannot write: File too large' ranks 2 bash -c "$full" "$ADAMOD"
grep -q 'rank 0: full' err || fail "the rank is not named: $(cat err)"
[ -z "$(ls full/checkpoints)" ] || fail "a checkpoint that could not be written leaves $(ls full/checkpoints)"
said 1 'stopped: ' ranks 2 "$ADAMOD" train translation.yaml --out nan --set train.accumulate=2 --set optimizer.lr=1e15
grep -q '"status":"diverged"' nan/result.json || fail "it did not diverge: $(cat nan/result.json)"

finish
