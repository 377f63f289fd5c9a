#!/usr/bin/env bash
# `adamod text` against what sacremoses, subword-nmt and sacreBLEU give (tests/trainer/text/record.py), and what is wrong with
# its input in one clear line.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/support/shell_checks.sh
. "$(dirname "${BASH_SOURCE[0]}")/../support/shell_checks.sh"

data=$SOURCE_DIR/tests/trainer/text
text() { "$ADAMOD" text "$@"; }

# same EXPECTED COMMAND...: prints the bytes of the file.
same() {
    local expected=$1
    shift
    "$@" >out 2>err || fail "$*: $(cat err)"
    cmp -s out "$expected" || fail "$*: $(diff out "$expected" | head -4)"
}

# ---- tokens ----

for lang in en de fr; do
    same "$data/$lang.tok" text tokenize --lang $lang "$data/$lang.txt"
    same "$data/$lang.plain" text tokenize --lang $lang --split-hyphens --no-escape "$data/$lang.txt"
    same "$data/$lang.joined" text detokenize --lang $lang "$data/$lang.tok"
    same "$data/$lang.normal" text normalize --lang $lang "$data/$lang.txt"
done
# Standard input, any number of threads, packed text, a mark and either end of lines: the same.
for i in $(seq 1 40); do cat "$data/en.txt"; done >many.txt
text tokenize --threads 1 many.txt >one.txt
for threads in 2 5; do same one.txt text tokenize --threads $threads <many.txt; done
{ printf '\357\273\277' && sed 's/$/\r/' "$data/de.txt"; } >marked.txt
same "$data/de.tok" text tokenize --lang de marked.txt
[ "$(printf 'a.' | text tokenize)" = 'a .' ] || fail "a line without an end: $(printf 'a.' | text tokenize)"
[ "$(printf '\n\n' | text tokenize | tr '\n' '.')" = '..' ] || fail "empty lines do not stay empty"
# A line from a pipe is answered before the next one comes.
mkfifo ask answer
"$ADAMOD" text tokenize <ask >answer &
pid=$!
exec 3>ask 4<answer
for word in one two; do
    echo "$word." >&3
    read -r -t 20 line <&4 || fail "a line from a pipe is not answered at once"
    [ "$line" = "$word ." ] || fail "$word. becomes $line"
done
exec 3>&- 4<&-
wait $pid
# Languages without rules of their own are said.
[ "$(echo "x'y z." | text tokenize --lang xx 2>err)" = 'x &apos; y z .' ] || fail "general rules: $(cat err)"
grep -q "no abbreviations of 'xx': those of English are used" err || fail "of a language without rules: $(cat err)"
refused 2 "--lang is 'German', expected a code" text tokenize --lang German
printf 'good.\nb\377d\n' >bad.txt
refused 1 'bad.txt:2: byte 2 is 0xff, which is not UTF-8 here' text tokenize bad.txt
[ "$(cat out)" = 'good .' ] || fail "lines before a bad one: $(cat out)"
refused 1 'nowhere.txt: cannot open' text detokenize nowhere.txt
refused 1 'cannot write to standard output' bash -c '"$ADAMOD" text normalize many.txt >/dev/full'

[ "$(echo 'ÄÖÜ ÉÑ ΑΣ İ ẞ Ж 𐐀 Ⅷ ABC' | text lowercase)" = 'äöü éñ ασ i̇ ß ж 𐐨 ⅷ abc' ] || fail "lower case: $(echo 'İ' | text lowercase)"

# ---- subwords ----

same "$data/words.codes" text bpe learn --merges 60 --min-frequency 3 "$data/words.txt"
head -50 "$data/words.txt" >first.txt
tail -n +51 "$data/words.txt" | gzip >rest.txt.gz
if text bpe vocab rest.txt.gz >/dev/null 2>&1; then # several files are one text; packed ones where the build has zlib
    same "$data/words.codes" text bpe learn --merges 60 --min-frequency 3 first.txt rest.txt.gz
fi
same "$data/words.bpe" text bpe apply --codes "$data/words.codes" "$data/words.other"
tail -n +2 "$data/words.codes" >old.codes
same "$data/words.bpe-0.1" text bpe apply --codes old.codes --merges 30 --separator '~' "$data/words.other"
text bpe apply --codes "$data/words.codes" "$data/words.txt" >words.bpe
same "$data/words.vocab" text bpe vocab words.bpe
same "$data/words.restricted" text bpe apply --codes "$data/words.codes" --vocabulary "$data/words.vocab" --threshold 20 \
    "$data/words.other"
same "$data/words.dropout" text bpe apply --codes "$data/words.codes" --dropout 0.2 --seed 7 --threads 4 "$data/words.other"
for i in $(seq 1 300); do cat "$data/words.other"; done >many.txt
text bpe apply --codes "$data/words.codes" --threads 1 many.txt >one.txt
same one.txt text bpe apply --codes "$data/words.codes" --threads 3 many.txt
text bpe learn --merges 100000 --out more.codes "$data/words.txt" 2>err
grep -q 'merges: no other pair is seen 2 times' err || fail "of too many merges: $(cat err)"
: >empty.codes
text bpe learn --out no.codes </dev/null 2>/dev/null
[ "$(cat no.codes)" = '#version: 0.2' ] || fail "nothing is learned from nothing"
[ "$(echo ab | text bpe apply --codes no.codes 2>err)" = 'a@@ b' ] || fail "codes without merges"
grep -qx 'adamod: text bpe apply: no.codes: no merges: words are split into characters' err || fail "no merges: $(cat err)"
text bpe apply --codes "$data/words.codes" --vocabulary "$data/words.vocab" --threshold 1000000 "$data/words.other" 2>err |
    cmp - "$data/words.bpe" || fail "a vocabulary without frequent words"
grep -q 'words.vocab: no subword is in it 1000000 times: none is split again' err || fail "such a vocabulary: $(cat err)"
refused 1 'empty.codes: empty, expected codes of subwords' text bpe apply --codes empty.codes words.bpe
echo '#version: 0.3' >new.codes
refused 1 "new.codes:1: codes of version '0.3', expected 0.1 or 0.2" text bpe apply --codes new.codes words.bpe
printf '#version: 0.2\na b\na b c\n' >bad.codes
refused 1 'bad.codes:3: expected two symbols with a space between' text bpe apply --codes bad.codes words.bpe
refused 1 'bad.codes:1: expected a word and how often it was seen' \
    text bpe apply --codes "$data/words.codes" --vocabulary bad.codes words.bpe
refused 2 'needs --codes' text bpe apply words.bpe
refused 2 '--threshold is given without --vocabulary' text bpe apply --codes old.codes --threshold 2 words.bpe
refused 2 "--dropout is '2', expected a number from 0 to 1" text bpe apply --codes bad.codes --dropout 2
refused 1 'nowhere.txt: cannot open' text bpe learn nowhere.txt
for flag in 'bpe learn --merges' 'bpe apply --threshold' 'clean --max' 'normalize --threads' 'score --width' 'tokenize --threads'; do
    # shellcheck disable=SC2086 # words of a command
    refused 2 "adamod: text ${flag% *}: --${flag##*--} is '-1', expected a whole number from" text $flag -1
done

# ---- scores ----

{
    for tokens in 13a none char; do
        text score --width 8 --tokenize $tokens "$data/score.ref" "$data/score.one"
        text score --width 8 --tokenize $tokens --lowercase --smooth none "$data/score.ref" "$data/score.one"
    done
    text score --width 8 --metric chrf,chrf++ "$data/score.ref" <"$data/score.one"
    text score --width 4 --metric bleu,chrf --confidence "$data/score.ref" "$data/score.one"
    text score --width 4 --metric bleu,chrf "$data/score.ref" "$data/score.one" "$data/score.two" | grep score.two: |
        sed -E 's/^[^ ]* ([^|]*)[^ ]* = ([0-9.]*) \(μ = ([0-9.]*) ± ([0-9.]*)\).* \(p = ([0-9.]*)\)$/\1 \2 \3 \4 \5/'
} >said
cmp -s said "$data/score.said" || fail "scores: $(diff said "$data/score.said")"
echo other >other.txt && echo word >word.txt
text score --confidence other.txt word.txt | grep -q '= 0.00 0.0/' || fail "an interval of zeros, which sacreBLEU does not print"
text score --json --metric bleu,chrf "$data/score.ref" "$data/score.one" "$data/score.two" >scores.json
/usr/bin/env python3 -c 'import json; s = json.load(open("scores.json"))["scores"]; assert len(s) == 4 and s[3]["p"] > 0' ||
    fail "scores as JSON: $(cat scores.json)"
[ "$(text score "$data/score.ref" "$data/score.ref" | sed 's/.* = \([0-9.]*\) .*BP.*/\1/')" = 100.00 ] || fail "a perfect score"
# A text is no better than itself, and capitals are what Python's lower() makes of them: with final sigmas.
cp "$data/score.one" again
text score "$data/score.ref" "$data/score.one" again | grep -qF 'again: BLEU' || fail "the same system again"
text score "$data/score.ref" "$data/score.one" again | grep -q '(p = 1.0000)$' || fail "a system differs from itself"
echo "ΟΔΟΣ ΣΑΣ' Σ 2Σ" | sed 's/$/ ΑΣ.Β ΑΣ́/' >greek
echo "οδος σας' σ 2σ ασ.β ας́" >greek.lower
text score --lowercase --tokenize none greek.lower greek | grep -q ' = 100.00 ' || fail "final sigmas"
head -5 "$data/score.one" >few
refused 1 'few has 5 lines and' text score "$data/score.ref" few
: >none.txt
refused 1 'none.txt: no lines, expected sentences' text score none.txt none.txt
refused 2 "--metric is 'ter', expected one of bleu, chrf, chrf++" text score --metric bleu,ter "$data/score.ref"
refused 2 'needs a file of reference translations' text score

# ---- clean ----

printf 'a\n\nb c d e\n f  g\th \na b\nx\n' >s
printf 'x\ny\nz\nu v\na b c\nx y z\n' >t
text clean --max 3 --ratio 2 s t s.clean t.clean 2>err
[ "$(tr '\n' '|' <s.clean) $(tr '\n' '|' <t.clean)" = 'a|f g h|a b| x|u v|a b c|' ] || fail "clean: $(cat s.clean t.clean)"
grep -q 'kept 3 of 6 pairs' err || fail "clean says $(cat err)"
head -3 t >short
refused 1 'short has 3 lines and s has more, expected the same number' text clean s short s.new t.new
[ ! -e s.new ] && [ ! -e t.new ] || fail "a failed clean leaves files"
refused 2 'needs four files: SOURCE TARGET CLEAN-SOURCE CLEAN-TARGET' text clean s t u
echo mine >one
ln -s one link
for other in one ./one link; do
    refused 1 "both sides would be written to $other, expected two files" text clean s t one $other
done
[ "$(cat one)" = mine ] || fail "one file for both sides was written"
refused 2 'standard input is named for both sides' text clean - - u v
refused 2 "'-' is named for a side to write, expected a file" text clean s t u -
refused 2 "--ratio is '0.5', expected a number from 1" text clean --ratio 0.5 s t u v

finish
