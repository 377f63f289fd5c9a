#!/usr/bin/env bash
# Several processes under mpirun: what they exchange, and that a run by several is the run by one, bit for bit.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/support/shell_checks.sh
. "$(dirname "${BASH_SOURCE[0]}")/../support/shell_checks.sh"
# shellcheck source=tests/support/ranks_checks.sh
. "$SOURCE_DIR/tests/support/ranks_checks.sh"

ranks 3 "$BUILD_DIR/tests/test_comm" >out 2>&1 || fail "3 ranks: $(cat out)"
[ "$(grep -c '7 passed, 0 failed' out)" -eq 3 ] || fail "3 ranks: $(cat out)"
example=$BUILD_DIR/examples/mpi
if [ -e "$example" ]; then # which is one process where there is no mpi.h
    ranks 2 "$example" >out 2>&1 || fail "examples/mpi: $(cat out)"
    grep -q 'loss 0.0000' out || fail "examples/mpi says $(cat out)"
    [ -z "${ADAMOD_REQUIRE_MPI-}" ] || grep -q '^2 ranks' out || fail "examples/mpi has no MPI: $(cat out)"
fi
if ! "$ADAMOD" help train >/dev/null 2>&1; then # built without the trainer
    finish
    exit
fi

ranks 3 "$BUILD_DIR/tests/test_exchange" >out 2>&1 || fail "3 ranks: $(cat out)" # as on GPUs, by NCCL
[ "$(grep -c '5 passed, 0 failed' out)" -eq 3 ] || fail "3 ranks: $(cat out)"

# An update that fails on one rank: all are told, or all end.
ranks 3 "$BUILD_DIR/tests/test_update" told >out 2>&1 || fail "3 ranks: $(cat out)"
[ "$(grep -c '3 passed, 0 failed' out)" -eq 3 ] || fail "3 ranks: $(cat out)"
said 1 'adamod: rank 1: update 1: the device was told to fail' ranks 2 "$BUILD_DIR/tests/test_update" at_a_sum
said 1 'adamod: rank 1: update 1: the device was told to fail' ranks 2 "$BUILD_DIR/tests/test_update" at_an_end

# ---- the same run ----

for recipe in translation language gpt images; do
    for n in 2 4; do
        train 1 $recipe.yaml --out $recipe.one$n --set train.accumulate=$n
        train $n $recipe.yaml --out $recipe.$n
        [ "$(grep -c "^adamod: $n ranks: an update takes $n batches" err)" -eq 1 ] || fail "$n ranks say $(cat err)"
        [ "$(grep -c '12 updates\|6 updates' said)" -eq 1 ] || fail "$n ranks print $(cat said)"
        numbers $recipe.one$n >one.txt
        numbers $recipe.$n | cmp - one.txt || fail "$recipe: $n ranks differ from one"
        cmp $recipe.one$n/recipe.yaml $recipe.$n/recipe.yaml || fail "$n ranks leave another recipe"
    done
done
grep -q '"ranks":"4","comm":"mpi"' translation.4/machine.json || fail "machine.json: $(cat translation.4/machine.json)"
# More batches than ranks, and a last round that has fewer.
train 1 translation.yaml --out five --set train.accumulate=5
train 2 translation.yaml --out five.2 --set train.accumulate=5
numbers five >one.txt
numbers five.2 | cmp - one.txt || fail "5 batches of 2 ranks differ from those of one"
# Several blocks of gradients, summed beside the backward pass; one rank of three has no batch in the last round.
wide='--set model.d=192 --set model.ffn=1024 --set model.layers=2 --set train.steps=2 --set train.average=0 --set train.accumulate=5'
# shellcheck disable=SC2086
train 1 translation.yaml --out wide $wide --set train.evaluate_pairs=0
# shellcheck disable=SC2086
train 3 translation.yaml --out wide.3 $wide --set train.evaluate_pairs=0 --set train.overlap=on
[ "$(tensors wide)" = "$(tensors wide.3)" ] || fail "sums beside the backward pass differ"
# A rank with a core to spare, and one without: neither begins before the pass has ended.
if [ "$(nproc)" -gt 1 ]; then
    # shellcheck disable=SC2086
    mpirun --oversubscribe --bind-to none -n 1 taskset -c 0 "$ADAMOD" train translation.yaml --out wide.2 $wide \
        --set train.evaluate_pairs=0 : -n 1 "$ADAMOD" train translation.yaml --out wide.2 $wide --set train.evaluate_pairs=0 \
        >said 2>err || fail "ranks of one core and of all: $(cat err)"
    [ "$(tensors wide)" = "$(tensors wide.2)" ] || fail "ranks of one core and of all differ"
fi
# The optimizer's states shared out, also by a rule that looks at whole arrays; what is decided of all gradients is the same.
# Some parameters are frozen: all that the first rank would have.
shared='--set optimizer.groups.trunk.match=encoder.* --set optimizer.groups.trunk.freeze=true'
shared+=' --set optimizer.rule=adafactor --set optimizer.clip_norm=0.1 --set train.histogram_dense=0 --set train.histogram_every=0'
# shellcheck disable=SC2086
train 1 translation.yaml --out whole --set train.accumulate=3 $shared
# shellcheck disable=SC2086
train 3 translation.yaml --out shared --set train.accumulate=3 $shared --set train.shard=true
numbers whole >one.txt
numbers shared | cmp - one.txt || fail "states that are shared out give another run"
# Weights to evaluate with, which follow from states, come to all ranks.
free='--set optimizer.groups.trunk.match=encoder.0.* --set optimizer.groups.trunk.freeze=true'
free+=' --set optimizer.groups.out.match=decoder.0.* --set optimizer.groups.out.lr=0.5'
free+=' --set optimizer.rule=schedulefree_sgd --set train.steps=4 --set train.histogram_dense=0 --set train.histogram_every=0'
# shellcheck disable=SC2086
train 1 translation.yaml --out free --set train.accumulate=2 $free
# shellcheck disable=SC2086
train 2 translation.yaml --out free.2 --set train.accumulate=2 $free --set train.shard=true
numbers free >one.txt
numbers free.2 | cmp - one.txt || fail "weights to evaluate with differ where states are shared out"
# With patience all ranks test the best model, which is not the last; with weights that follow from states as well.
patient='--set train.accumulate=2 --set train.average=0 --set train.best=accuracy --set train.patience=2 --set train.evaluate_every=1'
nll_of() { grep "$2" "$1/metrics.jsonl" | sed -n 's/.*"nll":\([^,}]*\).*/\1/p'; }
for rule in adamod schedulefree_sgd; do
    # shellcheck disable=SC2086
    train 1 translation.yaml --out patient $patient --set optimizer.rule=$rule --set optimizer.lr=0.3
    # shellcheck disable=SC2086
    train 2 translation.yaml --out patient.2 $patient --set optimizer.rule=$rule --set optimizer.lr=0.3
    numbers patient >one.txt
    numbers patient.2 | cmp - one.txt || fail "$rule: 2 ranks test another model than one"
    step=$(sed -n 's/.*"kind":"final_valid",.*"model":"best","model_step":\([0-9]*\).*/\1/p' patient.2/metrics.jsonl)
    grep -q "stopped early, .* (best model, update $step)$" said || fail "$rule: of the best model it says $(cat said)"
    [ "$(nll_of patient.2 '"kind":"valid","step":'"$step,")" = "$(nll_of patient.2 '"kind":"final_valid"')" ] ||
        fail "$rule: the model of update $step was not tested: $(grep valid patient.2/metrics.jsonl)"
    rm -rf patient patient.2
done
# Norms of all ranks: as one process with a batch of twice the size, to rounding, which each rank's own are not.
plain='--set data.crop=false --set data.flip=false'
loss() { sed -n 's/.*"training_loss":\([^,}]*\).*/\1/p' "$1/result.json"; }
near() { awk -v a="$(loss "$1")" -v b="$(loss "$2")" 'BEGIN { d = a - b; exit !(d * d < 1e-10) }'; }
# shellcheck disable=SC2086
train 1 images.yaml --out norms $plain --set data.batch=8
# shellcheck disable=SC2086
train 2 images.yaml --out norms.2 $plain --set model.sync_norm=true
near norms norms.2 || fail "norms of two ranks give $(loss norms.2), expected $(loss norms)"
! near norms images.2 || fail "norms of all ranks are no other"
# The fast order: to rounding.
train 2 translation.yaml --out fast --set train.sum=fast
near fast translation.2 || fail "the fast order gives $(loss fast), expected $(loss translation.2)"

# ---- evaluations are shared out ----

"$ADAMOD" evaluate images.2 --json | sed -E 's/,"seconds":[^}]*//' >one.txt
ranks 3 "$ADAMOD" evaluate images.2 --json >out 2>err || fail "evaluate on 3 ranks: $(cat err)"
sed -E 's/,"seconds":[^}]*//' out | cmp - one.txt || fail "3 ranks evaluate to $(cat out), one to $(cat one.txt)"

# ---- going on with another number of ranks ----

# Some of them with the optimizer's states shared out.
train 4 translation.yaml --out moved --set train.steps=4 --set train.shard=true
for n in 2 1 3; do # 3: one rank has no batch of its own in half of the rounds
    train $n --resume --out moved --set train.steps=$((6 + 2 * (n == 1) + 6 * (n == 3))) \
        --set train.shard="$([ $n -eq 3 ] && echo true || echo false)"
done
numbers translation.4 | grep '"kind":"train"' >one.txt
numbers moved | grep '"kind":"train"' | cmp - one.txt || fail "a run that moved differs"
[ "$(tensors moved)" = "$(tensors translation.4)" ] || fail "a run that moved ends elsewhere"

# ---- what is wrong is said once ----

said 2 'no such key' ranks 2 "$ADAMOD" train translation.yaml --out bad --set train.stepz=1
said 2 "unknown command 'trian'; did you mean 'train'?" ranks 2 "$ADAMOD" trian translation.yaml
said 2 "report: mpirun started 2 processes, but this command runs as one: start one" ranks 2 "$ADAMOD" report language.2
# Variables of a launcher that has nothing to do with it: there is no rank 0 to speak.
left='env OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_LOCAL_RANK=1'
# shellcheck disable=SC2086
said 1 'or unset OMPI_COMM_WORLD_SIZE to run alone' $left "$ADAMOD" train translation.yaml --out bad
# shellcheck disable=SC2086
said 2 'report: mpirun started 4 processes, but this command runs as one: start one, or unset OMPI_COMM_WORLD_SIZE' $left "$ADAMOD" report x
# shellcheck disable=SC2086
said 2 "unknown command 'trian'; did you mean 'train'?" $left "$ADAMOD" trian translation.yaml
said 1 'train: rank 2: no MPI library: nothing.so: ' env PMI_SIZE=4 PMI_RANK=2 MPI_LOCALRANKID=2 PMI_FD=999 \
    ADAMOD_MPI_LIBRARY=nothing.so "$ADAMOD" train translation.yaml --out bad
said 1 'looks at all parameters together' ranks 2 "$ADAMOD" train translation.yaml --out bad --set train.accumulate=2 \
    --set train.shard=true --set optimizer.rule=prodigy
# Ranks that are told to do different things do not wait for each other.
said 2 'its command is not that of rank 0' ranks 1 "$ADAMOD" train images.yaml --out bad : -n 1 "$ADAMOD" evaluate images.2
said 2 'its flags are not those of rank 0' ranks 1 "$ADAMOD" train images.yaml --out bad : -n 1 "$ADAMOD" train images.yaml --dry-run
said 2 'its flags are not those of rank 0' ranks 1 "$ADAMOD" train images.yaml --out bad : -n 1 "$ADAMOD" train --help
said 2 'its flags are not those of rank 0' ranks 1 "$ADAMOD" evaluate images.2 : -n 1 "$ADAMOD" evaluate images.2 --split valid
said 1 'not empty' ranks 2 "$ADAMOD" train translation.yaml --out translation.2 --set train.accumulate=2
# shellcheck disable=SC2016
own='exec "$0" train translation.yaml --out bad --set train.accumulate=2 --set train.seed=$OMPI_COMM_WORLD_RANK'
said 1 "its recipe is not that of rank 0" ranks 2 bash -c "$own" "$ADAMOD"
head -n 2 s.txt >few.txt
said 1 '3 ranks, but only 2 sentences to train with' ranks 3 "$ADAMOD" train translation.yaml --out bad --set train.accumulate=3 \
    --set data.source=few.txt --set data.target=few.txt
said 1 'rank 1 ('"$(hostname)"') is to compute on a GPU, but rank 0' ranks 1 "$ADAMOD" train images.yaml --out bad --device cpu : \
    -n 1 "$ADAMOD" train images.yaml --out bad --device cuda:0 --set train.comm=mpi
cp "$ADAMOD" other && echo >>other
said 1 'its program is not that of rank 0' \
    ranks 1 "$ADAMOD" train translation.yaml --out bad : -n 1 ./other train translation.yaml --out bad
# One machine has no MPI, which its first rank says.
said 1 'train: rank 1: no MPI library: nothing.so: ' ranks 1 "$ADAMOD" train translation.yaml --out bad : \
    -n 1 env OMPI_COMM_WORLD_LOCAL_RANK=0 ADAMOD_MPI_LIBRARY=nothing.so "$ADAMOD" train translation.yaml --out bad
said 1 'train: no MPI library: nothing.so: ' ranks 2 env ADAMOD_MPI_LIBRARY=nothing.so "$ADAMOD" train translation.yaml --out bad
mkdir host0 host1
cp s.txt host0
sed 's/40/41/' s.txt >host1/s.txt
# shellcheck disable=SC2016
own='cd "host$OMPI_COMM_WORLD_RANK" && exec "$0" train "$1" --out ../bad --set train.accumulate=2 \
     --set data.source=/proc/self/cwd/s.txt'
said 1 "its data.source is not that of rank 0" ranks 2 bash -c "$own" "$ADAMOD" "$work/translation.yaml"
# Hosts that do not see the same directory: each rank has its own. Nothing stays of a new one, all of one that was there. A host's
# own of that name is not rank 0's; nor is another model the same, to begin with or to evaluate.
# shellcheck disable=SC2016
own='cd "host$OMPI_COMM_WORLD_RANK" && exec "$0" "$@"'
cp -r images.2 host0/old
cp -r images.2 host0/model
cp -r images.2 host1/stale
cp -r images.one4 host1/model
cp images.2/recipe.yaml host1/model
said 1 'rank 1: bad: cannot see what rank 0 has there' ranks 2 bash -c "$own" "$ADAMOD" train ../images.yaml --out bad
said 1 'rank 1: stale: cannot see what rank 0 has there' ranks 2 bash -c "$own" "$ADAMOD" train ../images.yaml --out stale
said 1 'rank 1: old: no run to resume' ranks 2 bash -c "$own" "$ADAMOD" train --resume --out old
said 1 'its model is not that of rank 0' ranks 2 bash -c "$own" "$ADAMOD" evaluate model
said 1 'its model is not that of rank 0' ranks 2 bash -c "$own" "$ADAMOD" train ../images.yaml --out ../bad \
    --set train.init_from=/proc/self/cwd/model/checkpoints/last.safetensors
said 1 "nowhere: not a run directory" ranks 2 "$ADAMOD" evaluate nowhere
said_all
[ ! -e host0/bad ] && [ ! -e host0/stale ] || fail "a run that another host cannot see leaves $(ls host0)"
diff -r images.2 host0/old || fail "a run that another host cannot see changes"
diff -r images.2 host1/stale || fail "a run of another host's changes"
[ ! -e bad ] || fail "a run that was refused leaves a directory"
ranks 2 "$ADAMOD" train images.yaml --dry-run --set train.accumulate=4 >out 2>err || fail "--dry-run: $(cat err)"
grep -q '^ranks  *2$' out && grep -q '^  *sums of gradients 6.0 MiB$' out || fail "--dry-run of two ranks: $(cat out)"
ranks 2 "$ADAMOD" bench comm --mib 1 --repeat 2 --json >out 2>err || fail "bench comm: $(cat err)"
grep -q '^{"ranks": 2, "sums": \[{"bytes": 65536, "ordered_seconds": .*"bytes": 1048576.*}\]}$' out || fail "bench comm: $(cat out)"
refused 2 'needs ranks' "$ADAMOD" bench comm
refused 1 'train.comm is nccl, which sums on GPUs' "$ADAMOD" train images.yaml --out bad --set train.comm=nccl

finish
