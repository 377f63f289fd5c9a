# For tests of several ranks in bash, which read this after shell_checks.sh: how they are started, tiny recipes, and what
# must be equal between two runs. Without mpirun the test is skipped.
# SPDX-License-Identifier: MIT
# shellcheck shell=bash
if ! command -v mpirun >/dev/null; then
    [ -z "${ADAMOD_REQUIRE_MPI-}" ] || { echo "there is no mpirun"; exit 1; }
    exit 77
fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 # as a container does
export OMPI_MCA_mpi_yield_when_idle=1 # ranks that wait leave the cores to other tests
# ranks N COMMAND...
ranks() {
    local n=$1
    shift
    mpirun --oversubscribe -n "$n" "$@"
}

seq 1 150 | sed 's/^/wort /' >s.txt
seq 1 150 | sed 's/^/word /' >t.txt
cat >translation.yaml <<'END'
data: {task: bitext, source: s.txt, target: t.txt, valid_source: s.txt, valid_target: t.txt, sentences: 4}
model: {layers: 1, d: 8, ffn: 8, heads: 2, dropout: 0.1}
optimizer: {rule: adamod, lr: 3e-3, clip_norm: 1}
train: {steps: 12, evaluate_every: 4, checkpoint_every: 4, average: 2, histogram_dense: 1, threads: 1, backend: cpu}
decode: {beam: 2, max_length: 8}
END
cat >images.yaml <<'END'
data: {task: images, train: 40, valid: 10, test: 20, batch: 4}
model: {kind: resnet, blocks: "1", widths: "4"}
train: {steps: 6, evaluate_every: 3, checkpoint_every: 3, threads: 1, backend: cpu}
END
cat >language.yaml <<'END'
data: {task: language, set: generated, words: 8, branches: 3, train: 2000, valid: 200, test: 200, batch: 4, length: 10}
model: {kind: lstm, layers: 2, embedding: 8, hidden: 12}
train: {steps: 6, evaluate_every: 3, checkpoint_every: 3, threads: 1, backend: cpu}
END
cat >gpt.yaml <<'END'
data: {task: language, set: generated, words: 8, branches: 3, train: 2000, valid: 200, test: 200, batch: 4, length: 10}
model: {kind: gpt, layers: 2, d: 16, heads: 4, kv_heads: 2, positions: rotary, norm: rms, dropout: 0.1}
train: {steps: 6, evaluate_every: 3, checkpoint_every: 3, threads: 1, backend: cpu}
END

# tensors RUN: what its last checkpoint holds, without what is said of it.
tensors() {
    local header
    header=$(od -An -tu8 -N8 "$1/checkpoints/last.safetensors" | tr -d ' ')
    tail -c +$((header + 9)) "$1/checkpoints/last.safetensors" | cksum
}
# numbers RUN: everything but clocks.
numbers() {
    sed -E 's/"(time|mfu|[a-z]+_per_second)":[^,}]*,?//g' "$1/metrics.jsonl"
    cat "$1/histograms.jsonl"
    [ ! -e "$1/samples.jsonl" ] || cat "$1/samples.jsonl"
    tensors "$1"
}
# train N ARGUMENT...
train() {
    local n=$1
    shift
    if [ "$n" -eq 1 ]; then "$ADAMOD" train "$@" >said 2>err || fail "train $*: $(cat err)"
    else ranks "$n" "$ADAMOD" train "$@" >said 2>err || fail "$n ranks, train $*: $(cat err)"; fi
}
# said STATUS TEXT COMMAND...: one line of ours, whatever mpirun adds. The command runs beside what follows, since mpirun takes
# two seconds to end ranks; said_all waits for all of them and looks.
said_so_far=0
said() {
    said_so_far=$((said_so_far + 1))
    local place=said.$said_so_far
    mkdir "$place"
    printf '%s\n' "$1" "$2" "${*:3}" >"$place/expected"
    { "${@:3}" >"$place/out" 2>"$place/err" </dev/null && echo 0 || echo $?; } >"$place/status" &
}
said_all() {
    local place wanted text command
    wait
    for place in said.*/; do
        { read -r wanted && read -r text && read -r command; } <"$place/expected"
        [ "$(cat "$place/status")" = "$wanted" ] || fail "$command has status $(cat "$place/status"), expected $wanted"
        grep -qF -- "$text" "$place/err" || fail "$command says '$(cat "$place/err")', expected '$text'"
        [ "$(grep -c '^adamod' "$place/err")" -eq 1 ] || fail "$command says '$(cat "$place/err")'"
    done
}
