#!/usr/bin/env bash
# Under limits that are too small the program says so in one line, whichever part of it is the one that finds no memory, and
# does not end by a signal: a small training run, from its first allocation to the final test.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/support/shell_checks.sh
. "$(dirname "${BASH_SOURCE[0]}")/../support/shell_checks.sh"
"$ADAMOD" help train >/dev/null 2>&1 || exit 77 # built without the trainer
(ulimit -v 4000000 && "$ADAMOD" --version) >/dev/null 2>&1 || exit 77 # a sanitizer takes more than that

cat >tiny.yaml <<'END_OF_RECIPE'
name: tiny
data: {task: numbers, train: 200, valid: 10, test: 10, tokens: characters, sentences: 8}
model: {kind: transformer, layers: 1, d: 16, ffn: 16, heads: 2}
optimizer: {rule: adamod, lr: 1e-3}
train: {steps: 4, evaluate_every: 2, checkpoint_every: 2, threads: 2, backend: cpu}
decode: {samples: 1, max_length: 20}
END_OF_RECIPE
limited() { # limited LETTER KIBIBYTES: the status, and what is said in err
    local status=0
    rm -rf run
    (ulimit -"$1" "$2" && exec "$ADAMOD" train tiny.yaml --out run --device cpu) >out 2>err || status=$?
    echo $status
}
one_line() { [ "$(wc -l <err)" -eq 1 ] || fail "$* says $(wc -l <err) lines: $(cat err)"; }

# ---- memory ----

[ "$(limited v 1000000)" -eq 0 ] || fail "with 1 GB: $(cat err)"
enough=0
too_little=0
for ((size = 64000; size < 142000; size += 3001)); do
    status=$(limited v "$size")
    case $status in
        0) enough=$((enough + 1)) ;;
        1 | 2) one_line "with $size KiB of memory, it" && too_little=$((too_little + 1)) ;;
        127) ;; # the loader found none
        *) fail "with $size KiB of memory, its status is $status: $(cat err)" ;;
    esac
done
echo "of the limits, $enough were large enough, and $too_little too small"
[ $too_little -ge 3 ] || fail "hardly any limit was too small"

# ---- the stack ----

for size in 64 128 512; do
    [ "$(limited s "$size")" -eq 1 ] || fail "with $size KiB of stack: $(cat err)"
    grep -qF "the stack is limited to $size KiB, expected at least 1024 (ulimit -s)" err ||
        fail "with $size KiB of stack, it says $(cat err)"
    one_line "with $size KiB of stack, it"
done
[ "$(limited s 1024)" -eq 0 ] || fail "with 1024 KiB of stack: $(cat err)"
status=0
(ulimit -S -s 128 && "$ADAMOD" optim list adamod) >out 2>err || status=$? # it raises a limit that it may raise
[ $status -eq 0 ] || fail "with a soft limit of 128 KiB of stack: $(cat err)"

# ---- files: a write past the limit is a failed one, in one line, and leaves nothing ----

writes_nothing() { # writes_nothing MESSAGE NAME COMMAND...
    local message=$1 name=$2 status=0 said
    shift 2
    said=$(ulimit -f 0 && exec "$ADAMOD" "$@" 2>&1 >/dev/null) || status=$?
    if [ $status -ne 1 ] || [[ $said != *"$message: File too large" || $said == *$'\n'* ]]; then fail "$*: status $status: $said"; fi
    [ ! -e "$name" ] || fail "$* leaves $name"
}
seq 1 400 >text.txt
writes_nothing 'model/vocab.json: cannot write' model text tokens learn --model model --vocab 300 text.txt
writes_nothing 'page-figures/style.gp: cannot write' page-figures report run -o page.html

finish
