#!/usr/bin/env bash
# Short runs on a GPU from beginning to end: trained, interrupted, resumed, decoded, and trained by two ranks on one GPU.
# Skipped where there is no GPU.
# SPDX-License-Identifier: MIT
# shellcheck source=/dev/null
. "$(dirname "${BASH_SOURCE[0]}")/../support/shell_checks.sh"
"$ADAMOD" info --json | grep -q '"cuda_training_off": null' || exit 77
# shellcheck source=/dev/null
. "$SOURCE_DIR/tests/support/ranks_checks.sh"

last_loss() { grep '"kind":"train"' "$1/metrics.jsonl" | sed -n '$s/.*"loss":\([^,}]*\).*/\1/p'; }

for task in translation images language gpt; do
    train 1 $task.yaml --out $task --device cuda
    grep -q '"backend":"cuda","device":"cuda:0 (..*","precision":"mixed"' $task/machine.json || fail "$(cat $task/machine.json)"
    steps=$(sed -n 's/^ *steps: //p' $task/recipe.yaml)

    train 1 $task.yaml --out $task.half --device cuda --set train.steps=$((steps / 2))
    train 1 --resume --out $task.half --set train.steps="$steps"
    [ "$(tensors $task)" = "$(tensors $task.half)" ] || fail "$task: a resumed run ends in other bits"
    train 1 $task.yaml --out $task.again --device cuda
    [ "$(numbers $task)" = "$(numbers $task.again)" ] || fail "$task: a repeated run has other numbers"
    "$ADAMOD" evaluate $task --device cuda >out 2>err || fail "$task: evaluate: $(cat err)"

    # Two ranks on one GPU give the bits of one process that takes two batches for an update, except for running
    # statistics of batch norms, and for rounding in LSTMs.
    full=(--device cuda --set train.precision=full --set train.accumulate=2)
    train 1 $task.yaml --out $task.two "${full[@]}"
    train 2 $task.yaml --out $task.ranks "${full[@]}" --set train.comm=mpi
    [ $task != translation ] || [ "$(tensors $task.two)" = "$(tensors $task.ranks)" ] ||
        fail "$task: two ranks end in other bits than one process"
    awk -v a="$(last_loss $task.two)" -v b="$(last_loss $task.ranks)" 'BEGIN { exit !(a > 0 && (a - b) ^ 2 < (1e-5 * a) ^ 2) }' ||
        fail "$task: two ranks have the loss $(last_loss $task.ranks), one process $(last_loss $task.two)"
done

# Values that backward computes again have the same bits in full precision. In mixed precision they are rounded once more than
# those of products that do a gelu or an addition, too.
train 1 gpt.yaml --out gpt.full --device cuda --set train.precision=full
for again in cheap blocks; do
    train 1 gpt.yaml --out gpt.$again --device cuda --set train.precision=full --set model.recompute=$again
    [ "$(tensors gpt.full)" = "$(tensors gpt.$again)" ] || fail "gpt: with model.recompute=$again a run ends in other bits"
    train 1 gpt.yaml --out gpt.mixed.$again --device cuda --set model.recompute=$again
    awk -v a="$(last_loss gpt)" -v b="$(last_loss gpt.mixed.$again)" 'BEGIN { exit !(a > 0 && (a - b) ^ 2 < (1e-2 * a) ^ 2) }' ||
        fail "gpt: in mixed precision with model.recompute=$again the loss is $(last_loss gpt.mixed.$again), else $(last_loss gpt)"
done

# On GPUs whose peak is known, GPT's runs record the share of it.
! "$ADAMOD" info | grep -q 'NVIDIA [HA][12]00' || grep -q '"mfu":[0-9]' gpt/metrics.jsonl || fail "gpt: no mfu in metrics.jsonl"

head -n 3 s.txt | "$ADAMOD" translate translation --device cuda >out 2>err || fail "translate: $(cat err)"
[ "$(wc -l <out)" -eq 3 ] || fail "translate: $(cat out)"

# Each run of a study or a comparison is a process of its own, in which CUDA works.
cat >plan.yaml <<'END'
title: A study on a GPU
experiments:
  shapes: {title: Shapes, recipe: images.yaml, measure: accuracy, minutes: 1, methods: {AdaMod: {}, Adam: {set: [optimizer=adam]}}}
tables:
  table1: {title: Accuracy, rows: [AdaMod, Adam], columns: [shapes]}
END
"$ADAMOD" reproduce --plan plan.yaml --out study --device cuda --seeds 1 >out 2>err || fail "reproduce: $(cat err)"
grep -q '"backend":"cuda"' study/shapes/adam-seed-1/machine.json || fail "reproduce: $(cat out)"
"$ADAMOD" compare images.yaml --vary optimizer=adamod,adam --out compared --device cuda >out 2>err ||
    fail "compare: $(cat err)"

"$ADAMOD" generate gpt --device cuda --prompt '3 4' --tokens 30 --temperature 0 >out 2>err || fail "generate: $(cat err)"
[ "$(wc -w <out)" -eq 32 ] || fail "generate: $(cat out)"
finish
