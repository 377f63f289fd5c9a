#!/usr/bin/env bash
# Raw text in, raw text out: data.raw.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/support/shell_checks.sh
. "$(dirname "${BASH_SOURCE[0]}")/../support/shell_checks.sh"
"$ADAMOD" help train >/dev/null 2>&1 || exit 77 # built without the trainer

seq 1 50 | sed 's/.*/Frage Nr. &: „Was ist das?“/' >question.txt
answer="It's (what it is), isn't it?"
for i in $(seq 1 50); do echo "$answer"; done >answer.txt
cp question.txt held.txt # an empty line in what is held out
echo >>held.txt
{ cat answer.txt && echo nothing; } >held.answer.txt
cat >raw.yaml <<'END'
name: raw
data: {task: bitext, raw: true, tokens: words, source_lang: de, target_lang: en, merges: 40, source: question.txt,
  target: answer.txt, valid_source: held.txt, valid_target: held.answer.txt, joint: true}
model: {layers: 1, d: 16, ffn: 16, heads: 2, dropout: 0}
optimizer: {rule: adam, lr: 1e-2}
train: {steps: 100, evaluate_every: 50, threads: 1}
decode: {beam: 2, max_length: 30}
END
"$ADAMOD" train raw.yaml --out run >said 2>err || fail "train: $(cat err)"
# The codes are those of the tokenized text of both sides, and what is trained on is in them.
for side in 'de question' 'en answer'; do
    "$ADAMOD" text tokenize --no-escape --lang ${side% *} ${side#* }.txt >${side#* }.tok
done
"$ADAMOD" text bpe learn --merges 40 question.tok answer.tok 2>/dev/null | cmp - run/bpe.codes || fail "other codes"
"$ADAMOD" text bpe apply --codes run/bpe.codes answer.tok | head -1 | tr ' ' '\n' | while read -r token; do
    grep -qxF -- "$token" run/target.vocab || echo "$token"
done >missing
[ ! -s missing ] || fail "not in the vocabulary: $(cat missing)"
# Translations are raw text, and BLEU is that of raw text too; the old number keeps its name.
[ "$(echo 'Frage Nr. 7: „Was ist das?“' | "$ADAMOD" translate run)" = "$answer" ] ||
    fail "a translation: $(echo 'Frage Nr. 7: „Was ist das?“' | "$ADAMOD" translate run)"
[ "$(printf ' \n' | "$ADAMOD" translate run)" = '' ] || fail "an empty line does not stay empty"
"$ADAMOD" translate run --nbest 2 --scores <question.txt >best.txt
head -1 best.txt | grep -q "^1.-.*.$answer\$" || fail "n-best of raw text"
"$ADAMOD" evaluate run >said 2>err
grep -q '50 sentences.*BLEU 100.00, BLEU 13a 100.00' said || fail "evaluate: $(cat said)"
grep -qxF 'BLEU 13a: nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0' said || fail "no signature: $(cat said)"
grep -q 'held.txt: used 50 of 51 pairs: 1 empty' err || fail "of an empty pair: $(cat err)"
grep -q '"bleu_13a"' run/task.json || fail "task.json has no BLEU of raw text"
grep -qF '"reference":"It'"'"'s (what it is), isn'"'"'t it?"' run/samples.jsonl || fail "samples are not raw: $(head -1 run/samples.jsonl)"
# The test set's score is that of `text score`.
sed 's/isn/is/' answer.txt >other.txt
"$ADAMOD" evaluate run --set data.test_source="$PWD/question.txt" --set data.test_target="$PWD/other.txt" --json >said
"$ADAMOD" translate run <question.txt >translated.txt
wanted=$("$ADAMOD" text score --width 9 other.txt translated.txt | sed 's/.*2.6.0 = \([0-9.]*\) .*/\1/')
grep -qF "\"bleu_13a\":${wanted:0:8}" said || fail "evaluate says $(cat said), text score $wanted"
# Files that are not asked for may have gone.
mv held.txt away.txt
test=(--set data.test_source="$PWD/question.txt" --set data.test_target="$PWD/other.txt")
"$ADAMOD" evaluate run "${test[@]}" --json 2>&1 | sed 's/,"seconds.*//' | cmp - <(sed 's/,"seconds.*//' said) ||
    fail "a test without the validation text"
refused 1 '/held.txt: cannot open' "$ADAMOD" evaluate run
refused 1 '/held.txt: cannot open' "$ADAMOD" evaluate run --split valid "${test[@]}"
mv away.txt held.txt
refused 1 '/nowhere: cannot open' "$ADAMOD" evaluate run --set data.test_source="$PWD/nowhere" --set data.test_target="$PWD/other.txt"
# Runs with other subwords of the same text compare in BLEU of the text, and in nothing that counts subwords.
"$ADAMOD" compare raw.yaml --vary data.merges=5,40 --set train.steps=2 --out both >said 2>&1 || fail "compare: $(cat said)"
for what in exact\ % BLEU; do
    grep -q "Validation $what: not ranked, because the runs differ in the tokens of their text\." both/report.html ||
        fail "$what of other subwords is ranked"
done
! grep -q 'Validation BLEU 13a: not ranked' both/report.html || fail "BLEU of the same text is not ranked"
if grep -q 'differ in.* data' both/report.html; then fail "the same text is called another"; fi
# Codes that are given are used, and stay with the run. A run without raw text measures no BLEU of it.
"$ADAMOD" train raw.yaml --out given --set data.bpe="$PWD/run/bpe.codes" --set train.steps=2 >/dev/null
cmp given/bpe.codes run/bpe.codes || fail "given codes are not kept"
"$ADAMOD" compare raw.yaml --vary data.bpe="$PWD/run/bpe.codes" --set train.steps=1 --no-report --out paths >/dev/null 2>err ||
    fail "a path is varied: $(cat err)"
[ -d paths/bpe-bpe.codes ] || fail "runs of paths are called $(ls paths)"
cp run/bpe.codes gone.codes
"$ADAMOD" train raw.yaml --out gone --set data.bpe="$PWD/gone.codes" --set train.steps=2 >/dev/null
# Other codes are called so, and what helps is named.
sed -i '$d' gone.codes
refused 1 "$PWD/gone.codes: data.bpe is not what the run has been trained with" "$ADAMOD" train --resume --out gone
refused 1 "another vocabulary than these data give: --set data.vocabularies=gone keeps the run's own" \
    "$ADAMOD" train --resume --out gone --reset data --set train.steps=3 --set train.progress_every=0
cp -r gone kept
"$ADAMOD" train --resume --out kept --reset data --set train.steps=3 --set data.vocabularies=kept >/dev/null ||
    fail "a run does not go on with its own vocabularies"
rm gone.codes
"$ADAMOD" train --resume --out gone --set train.steps=3 >/dev/null || fail "a run does not resume with the codes that it kept"
cmp given/target.vocab run/target.vocab || fail "given codes give another vocabulary"
"$ADAMOD" train raw.yaml --out plain --set data.raw=false --set train.steps=2 >/dev/null 2>&1
if grep -q bleu_13a plain/task.json; then fail "text that is not raw is scored as if it were"; fi
refused 2 'data.raw is true: data.tokens is characters, expected words' \
    "$ADAMOD" train raw.yaml --out no --set data.tokens=characters
refused 2 "data.source_lang is 'German', expected a code" "$ADAMOD" train raw.yaml --out no --set data.source_lang=German
"$ADAMOD" train raw.yaml --dry-run --set data.target_lang=xx >said 2>&1 || fail "a dry run: $(cat said)"
grep -q 'xx, whose abbreviations are not known: English ones' said || fail "of a language without rules: $(cat said)"
"$ADAMOD" train raw.yaml --out other --set data.source_lang=yy --set data.target_lang=xx --set train.steps=1 >said 2>err
grep -qx 'adamod: no abbreviations of yy and xx: those of English are used' err ||
    fail "training on languages without rules: $(cat err)"
refused 2 'data.bpe is given, but data.raw is false' \
    "$ADAMOD" train raw.yaml --out no --set data.raw=false --set data.bpe="$PWD/run/bpe.codes"
printf '\n%.0s' {1..50} >blank.txt
refused 1 'blank.txt: none of 50 lines left: all are empty here or in' \
    "$ADAMOD" train raw.yaml --out no --set data.valid_source=blank.txt --set data.valid_target=answer.txt
refused 1 'nowhere: cannot open' "$ADAMOD" train raw.yaml --out no --set data.bpe="$PWD/nowhere"
rm given/bpe.codes
refused 1 'given/bpe.codes: cannot open' "$ADAMOD" translate given
sed -i '3d' run/bpe.codes
refused 1 'another vocabulary' "$ADAMOD" translate run

finish
