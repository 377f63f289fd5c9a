#!/usr/bin/env bash
# Language models from the command line: text that is written, the same numbers when a run is stopped and with jobs, weights
# of another run, and one clear line when text or a prompt is bad.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/support/shell_checks.sh
. "$(dirname "${BASH_SOURCE[0]}")/../support/shell_checks.sh"
"$ADAMOD" help train >/dev/null 2>&1 || exit 77 # built without the trainer

yes $'the cat sat on a mat\nthe dog ran' | head -16 >train.txt || true # yes is ended by a signal
head -4 train.txt >valid.txt
head -6 train.txt >test.txt
cat >tiny.yaml <<'END_OF_RECIPE'
name: tiny
data: {task: language, set: text, path: ., batch: 4, length: 6, spread: 2, valid_batch: 2, score_length: 7}
model: {layers: 2, embedding: 8, hidden: 10, weight_dropout: 0.2}
optimizer: {rule: adamod, lr: 1e-2}
generate: {samples: 2, tokens: 6}
train: {epochs: 3, evaluate_every: 1 epoch, checkpoint_every: 2, histogram_dense: 1, threads: 1, backend: cpu, best: perplexity}
END_OF_RECIPE

train() { "$ADAMOD" train "$@" >said 2>err || fail "train $*: $(cat err)"; }
numbers() { # what must be equal between two runs
    sed -E 's/"(time|tokens_per_second)":[^,}]*,?//g' "$1/metrics.jsonl"
    cat "$1/histograms.jsonl" "$1/samples.jsonl" "$1/words.vocab"
    "$ADAMOD" evaluate "$1" --json | sed -E 's/,"seconds":[^}]*//'
}

train tiny.yaml --out whole
grep -Eq '[0-9]+ updates.*test perplexity [0-9.]+' said || fail "train says $(cat said)"
numbers whole >whole.txt
grep -q '{"split":"test","checkpoint":"best","tokens":32,"loss":.*,"perplexity":.*,"bits":null' whole.txt ||
    fail "evaluate says $(tail -1 whole.txt)"
[ "$(wc -l <whole/samples.jsonl)" -eq 2 ] || fail "samples are $(cat whole/samples.jsonl)"

# ---- as one run: stopped within an epoch, with more threads, and beside others ----

train tiny.yaml --out parts --set train.epochs=0 --set train.steps=5
train tiny.yaml --out parts --resume --set train.threads=2
numbers parts | grep -v "\"kind\":\"valid\",\"step\":5," | cmp - whole.txt || fail "a run in parts ends elsewhere than one"
"$ADAMOD" compare tiny.yaml --vary train.seed=1,2 --jobs 2 --out both --no-report >said 2>err || fail "compare: $(cat err)"
numbers "$(find both -mindepth 1 -maxdepth 1 -name '*1')" | cmp - whole.txt || fail "a run with another beside it ends elsewhere"
"$ADAMOD" train tiny.yaml --dry-run >said 2>err || fail "dry run: $(cat err)"
grep -q 'vocabulary *10 tokens' said || fail "a dry run says $(cat said)"

# ---- text that is written ----

"$ADAMOD" generate whole --prompt 'the cat' --tokens 30 --seed 3 >first
grep -q '^the cat ' first || fail "the prompt is not in $(cat first)"
for how in '--device ref' '--device cuda' '--set train.threads=2' '--temperature 1' '--top-k 0 --top-p 1'; do
    # shellcheck disable=SC2086
    "$ADAMOD" generate whole --prompt 'the cat' --tokens 30 --seed 3 $how | cmp - first || fail "$how is another text"
done
"$ADAMOD" generate whole --prompt 'the cat' --tokens 30 --seed 4 | cmp -s - first && fail "another seed gives the same text"
[ "$("$ADAMOD" generate whole --prompt the --tokens 7 --temperature 0 | wc -w)" -ge 1 ] || fail "the likeliest words are none"
"$ADAMOD" generate whole --prompt 'the zebra sat' --tokens 2 >out 2>err || fail "an unknown word ends it"
[ "$(cat err)" = "adamod: generate: --prompt: not in the run's vocabulary, and read as <unk>: 'zebra'" ] || fail "it says $(cat err)"
grep -q '^the <unk> sat' out || fail "an unknown word is shown as $(cat out)"
refused 2 "--prompt: nothing of it is in the run's vocabulary: 'zebra', 'Xylophon'" "$ADAMOD" generate whole --prompt 'zebra Xylophon'
refused 2 "vocabulary: 'The', 'Dog'; in lower case, all of it is" "$ADAMOD" generate whole --prompt $'The\nDog'
refused 2 "--temperature is '-1', expected a number from 0" "$ADAMOD" generate whole --temperature -1
refused 2 "--tokens is '0', expected a whole number from 1" "$ADAMOD" generate whole --tokens 0
refused 2 "--top-k is 'x', expected a whole number from 0" "$ADAMOD" generate whole --top-k x
refused 2 "--top-p is '1.5', expected a number from 0 to 1" "$ADAMOD" generate whole --top-p 1.5
refused 2 "--seed is '-1', expected a whole number from 0" "$ADAMOD" generate whole --seed -1
refused 2 '--prompt:1: byte 5 is 0xff, which is not UTF-8 here' "$ADAMOD" generate whole --prompt $'the \xff'
refused 2 'needs a run directory' "$ADAMOD" generate
refused 1 'none: not a run directory' "$ADAMOD" generate none
! "$ADAMOD" generate whole >/dev/full 2>err || fail "a full disk is no failure"
[ "$(wc -l <err)" -eq 1 ] || fail "a full disk says $(cat err)"
"$ADAMOD" train --keys >keys
grep -q 'generate.top_p' keys || fail "--keys does not know generate.top_p"

# ---- runs that are compared ----

"$ADAMOD" compare tiny.yaml --vary data.max_vocab=0,5 --out vocabularies >said 2>err || fail "compare: $(cat err)"
for what in 'Training loss' 'Validation loss' 'Test perplexity'; do
    grep -q "$what: not ranked, because the runs differ in vocabulary" vocabularies/report.html || fail "$what is ranked"
done
"$ADAMOD" compare tiny.yaml --vary optimizer.lr=1e-2,1e-3 --out rates >said 2>err || fail "compare: $(cat err)"
! grep -q 'not ranked' rates/report.html || fail "runs that differ in a learning rate alone are not ranked"
grep -q 'goes on from some prompts of the test data' rates/report.html || fail "the report has no text"
grep -q 'lstm, layers 2, embedding 8, hidden 10, tokens words, batch 4, length 6' rates/report.html ||
    fail "the report does not say what was trained"

# ---- another run's weights and vocabulary ----

sed 's/dog/bird/' train.txt >other.txt
refused 1 "made with another vocabulary; --set data.vocabularies=$PWD/whole takes that of the run" \
    "$ADAMOD" train tiny.yaml --out never --init-from whole --set data.train_file=other.txt
train tiny.yaml --out tuned --init-from whole --set data.train_file=other.txt --set data.vocabularies=whole
cmp tuned/words.vocab whole/words.vocab || fail "data.vocabularies gives another vocabulary"
train tiny.yaml --out tuned-old --init-from whole --set data.train_file=other.txt --set data.vocabulary=whole # as it was called
grep -q "vocabularies: $PWD/whole" tuned-old/recipe.yaml ||
    fail "data.vocabulary is not data.vocabularies: $(cat tuned-old/recipe.yaml)"
sed -i s/cat/cow/ train.txt
refused 1 'train.txt: data.train_file is not what the run has been trained with' "$ADAMOD" train tiny.yaml --out parts \
    --resume --set train.epochs=4
sed -i s/cow/cat/ train.txt
sed -i s/mat/hat/ parts/words.vocab
"$ADAMOD" evaluate whole --set data.test_batch=3 >out 2>err || fail "a run cannot be tested in other columns: $(cat err)"
"$ADAMOD" evaluate whole --set data.valid_file="$PWD/nowhere" >out 2>&1 || fail "a test without validation text says $(cat out)"
refused 1 '/nowhere: cannot open' "$ADAMOD" evaluate whole --split valid --set data.valid_file="$PWD/nowhere"
refused 1 '/nowhere: cannot open' "$ADAMOD" evaluate whole --set data.test_file="$PWD/nowhere"
for command in evaluate generate; do refused 1 'vocabular' "$ADAMOD" "$command" parts; done
refused 1 'data.task language does not translate' "$ADAMOD" translate whole </dev/null
refused 1 'data.task language has no pictures' "$ADAMOD" predict whole x.png

# ---- text that is bad: nothing is made ----

bad() { # bad TEXT: of a training file that has what standard input gives
    cat >bad.txt
    refused 1 "$1" "$ADAMOD" train tiny.yaml --out never --set data.train_file=bad.txt "${@:2}"
}
bad 'bad.txt: the file has no text' </dev/null
printf '\n\n\n' | bad 'bad.txt: the file has no text'
echo one | bad 'bad.txt: the training text has 2 tokens, expected at least 8: two for each of data.batch 4 columns'
printf 'fine\n\xff\n' | bad 'bad.txt:2: byte 1 is 0xff, which is not UTF-8 here'
printf 'fine\0line\n' | bad 'bad.txt:1: '
echo 'a b c' | bad 'bad.txt: the vocabulary is empty: no token is seen data.min_count 2 times' --set data.min_count=2
bad 'none/codes: cannot open' --set data.tokens=subwords --set data.bpe=none/codes <train.txt
bad 'none/words.vocab: cannot open' --set data.vocabularies=none <train.txt
refused 2 'data.bpe is given, but data.tokens is words, expected subwords' "$ADAMOD" train tiny.yaml --out never --set data.bpe=x
[ ! -e never ] || fail "a run that was refused left a directory"

# One line is enough, where it is long enough: of characters and of subwords.
for tokens in characters subwords; do
    echo 'a line that is long enough for all columns' >one.txt
    train tiny.yaml --out "$tokens" --set data.tokens=$tokens --set data.train_file=one.txt --set data.valid_file=one.txt \
        --set data.test_file= --set data.merges=5 --set train.epochs=1
    "$ADAMOD" generate "$tokens" --prompt 'a line' --tokens 5 | grep -q '^a line' || fail "$tokens are not written"
done
# Codes that have changed are called so.
cp subwords/bpe.codes own.codes
codes=(--set data.tokens=subwords --set data.bpe=own.codes --set data.train_file=one.txt --set data.valid_file=one.txt)
train tiny.yaml --out coded "${codes[@]}" --set data.test_file= --set train.epochs=1
echo 'i n' >>own.codes
refused 1 '/own.codes: data.bpe is not what the run has been trained with' "$ADAMOD" train --resume --out coded

finish
