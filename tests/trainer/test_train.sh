#!/usr/bin/env bash
# Training from the command line: the same numbers whatever happens to the process and however many threads it has, and
# one clear line when something is wrong.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/support/shell_checks.sh
. "$(dirname "${BASH_SOURCE[0]}")/../support/shell_checks.sh"
"$ADAMOD" help train >/dev/null 2>&1 || exit 77 # built without the trainer

cat >tiny.yaml <<'END'
name: tiny
data:
  task: numbers
  train: 2000
  valid: 40
  test: 40
  sentences: 8
model:
  layers: 1
  d: 16
  ffn: 16
  heads: 2
  dropout: 0.1
optimizer:
  rule: adamod
  lr: 3e-3
train:
  steps: 40
  evaluate_every: 10
  checkpoint_every: 5
  histogram_dense: 3
  average: 3
  progress_every: 0 # what is said of progress has tests of its own
decode:
  beam: 2
  max_length: 20
END

# The numbers that must be equal between two runs: everything but clocks and names.
numbers() {
    sed -E 's/"(time|tokens_per_second)":[^,}]*,?//g' "$1/metrics.jsonl" | grep -v '"kind":"test"'
    cat "$1/histograms.jsonl" "$1/samples.jsonl"
    "$ADAMOD" evaluate "$1" --json | sed -E 's/,"seconds":[^}]*//'
}

"$ADAMOD" train tiny.yaml --out whole --set train.threads=1 >/dev/null
numbers whole >whole.txt
[ "$(grep -c '"kind":"train"' whole.txt)" -eq 40 ] || fail "there are not 40 training lines"
grep -q finished whole/result.json || fail "the run is not marked finished"
for name in last best averaged; do [ -s whole/checkpoints/$name.safetensors ] || fail "no checkpoint $name"; done

grep -qE '"version":"[0-9.]+",("commit":"[0-9a-f]{12}",)?"compiler":' whole/machine.json ||
    fail "the machine is $(cat whole/machine.json)"
grep -q '"matrix_library":"..*","threads":"1"' whole/machine.json || fail "the machine is $(cat whole/machine.json)"
"$ADAMOD" report whole -o whole.html >/dev/null 2>&1
grep -q 'matrix library' whole.html || fail "the report does not name the matrix library"

# A recorded run has the same table, and is not replaced. Its rate, the last column, comes from times of fewer digits.
said=$("$ADAMOD" report whole --record records) && [ "$said" = 'recorded records/whole' ] || fail "report --record says $said"
[ ! -e records/whole/checkpoints ] || fail "a recorded run has checkpoints"
for run in whole records/whole; do "$ADAMOD" report $run -o page.html 2>/dev/null | grep -v page.html; done | sed -E 's/ +[0-9,]+$//' >tables
[ "$(sort tables | uniq -u)" = '' ] || fail "a recorded run has another table: $(cat tables)"
refused 1 'records/whole: is there already' "$ADAMOD" report whole --record records

# --dry-run says what a run would be and take; nothing is written.
mkdir dry
(cd dry && "$ADAMOD" train ../tiny.yaml --dry-run --set optimizer.no_decay=biases,norms >../said 2>../err) || fail "--dry-run: $(cat err)"
for line in 'training set        2000 sentences' 'test set            40 sentences' 'source vocabulary   24 tokens' \
    'model               transformer, 5664 parameters' '  encoder           2080' '  decoder           3584' \
    'batches             250 per epoch, 1 per update' 'updates             40 (0.16 epochs)' \
    'evaluations         every 10 updates; checkpoints every 5 updates'; do
    grep -qxF "$line" said || fail "--dry-run does not say '$line': $(cat said)"
done
grep -q '^memory  *parameters and gradients 0.1 MiB, optimizer 0.1 MiB, values' said || fail "--dry-run: $(cat said)"
grep -q '^  *about [0-9]*s in all' said || fail "--dry-run tells no time: $(cat said)"
[ -z "$(ls dry)" ] || fail "--dry-run writes $(ls dry)"
refused 2 '--dry-run is for a new run' "$ADAMOD" train --resume --out whole --dry-run

# Without a terminal: the first line at once, and one for each evaluation; no others, since it does not take long.
"$ADAMOD" train tiny.yaml --out told --set train.evaluate_every=20 --set train.progress_every=60 >/dev/null 2>err
head -1 err | grep -Eq '^transformer of 5664 parameters, rule adamod, on [^;]+, [0-9]+ threads?; 2000 sentences to train with, about 8 in an update; updates 1 to 40, 0.16 epochs; in told$' ||
    fail "a run begins with $(head -1 err)"
known='batch loss [0-9.]+  validation loss [0-9.]+'
[ "$(tail -n +2 err | grep -Ec "^step (20|40)/40  epoch 0.[01][86]  [0-9]+s left  $known \\(best\\), exact [0-9]+ %, BLEU [0-9.]+\$")" -eq 2 ] &&
    [ "$(wc -l <err)" -le 5 ] || fail "a run says $(cat err)"
# With a loss that rises: what was best, and when.
"$ADAMOD" train --resume --out told --set train.steps=80 --reset options --set optimizer.lr=100 >/dev/null 2>err || fail "$(cat err)"
head -1 err | grep -q '; updates 41 to 80, 0.32 epochs; in told$' || fail "a run that is resumed begins with $(head -1 err)"
grep -Eq "^step 80/80  .*$known \\(best [0-9.]+ at step 40\\), exact" err || fail "of the best so far it says $(cat err)"
# A message appears soon if data take long to read: here they come from a pipe without a writer.
mkfifo never.txt
seq 1 20 >numbers.txt
"$ADAMOD" train tiny.yaml --out waits --set train.progress_every=60 --set data.task=bitext --set data.source=never.txt \
    --set data.target=numbers.txt --set data.valid_source=numbers.txt --set data.valid_target=numbers.txt >/dev/null 2>err &
pid=$!
soon grep -qx 'reading data' err || fail "a run that reads its data says $(cat err)"
kill -9 $pid
wait $pid 2>/dev/null || true
# With its standard streams closed, it writes what it would say nowhere: not into a file that it opens.
"$ADAMOD" train tiny.yaml --out mute --set train.progress_every=1e-6 <&- >&- 2>&- && fail "with standard output closed it succeeds"
grep -q '"status":"finished"' mute/result.json || fail "with its streams closed: $(cat mute/result.json)"
for file in metrics histograms samples; do
    ! grep -qv '^{.*}$' mute/$file.jsonl || fail "$file.jsonl has $(grep -v '^{.*}$' mute/$file.jsonl | head -3)"
done
# A line every few seconds, also while the test set is translated.
"$ADAMOD" train tiny.yaml --out lines --set train.progress_every=1e-6 >/dev/null 2>err
grep -Eq '^step 11/40  epoch 0.04  [0-9]+s left  batch loss [0-9.]+  validation loss [0-9.]+ \(best\), exact [0-9]+ %, BLEU [0-9.]+  [0-9]+ tokens/s$' err ||
    fail "there are no lines of progress: $(head -30 err)"
grep -q '^step 10/40  epoch 0.04  validation set: scoring batch 1/' err || fail "evaluations tell nothing: $(head -30 err)"
# Some sentences may be done within that time: the last line need not be of the last one.
grep -Eq '^step 40/40  epoch 0.16  test set: translating (3[0-9]|40)/40' err || fail "of the test set: $(tail -3 err)"
"$ADAMOD" train tiny.yaml --out seldom --set train.log_every=15 >/dev/null 2>err
[ ! -s err ] || fail "progress_every=0 says $(cat err)"
steps=$(sed -nE 's/.*"kind":"train","step":([0-9]+).*/\1/p' seldom/metrics.jsonl | tr '\n' ' ')
[ "$steps" = '1 15 30 40 ' ] || fail "log_every=15 logs updates $steps"

"$ADAMOD" train tiny.yaml --out threads --set train.threads=3 >/dev/null
numbers threads | cmp - whole.txt || fail "three threads give other numbers than one"

# Killed again and again, at no particular moment.
kills=60
[ -z "${ADAMOD_TEST_FAST-}" ] || kills=12
for i in $(seq 1 $kills); do
    # before there is a directory there is nothing to resume
    resume=--resume
    [ -e killed ] || resume=
    # shellcheck disable=SC2086
    "$ADAMOD" train tiny.yaml --out killed $resume >/dev/null 2>&1 &
    pid=$!
    sleep "0.$((i * 7 % 10))$((RANDOM % 10))"
    kill -9 $pid 2>/dev/null || true
    wait $pid 2>/dev/null || true
    [ ! -e killed/result.json ] || break
done
[ -e killed/result.json ] || "$ADAMOD" train tiny.yaml --out killed --resume >/dev/null
numbers killed | cmp - whole.txt || fail "a run that was killed ends elsewhere than one that was not"

# A disk that fills up, at any place: one line that names the file, and with room again the run goes on to the same end.
# fills STATUS TEXT: what the run in full said, and how it goes on.
fills() {
    [ "$1" -eq 1 ] || fail "on a full disk the status is $1, expected 1"
    grep -q "full/.*cannot write: $2" err || fail "on a full disk train says '$(cat err)'"
    [ "$(wc -l <err)" -eq 1 ] || fail "on a full disk train says $(wc -l <err) lines"
    local resume=
    [ ! -e full/recipe.yaml ] || resume=--resume
    # shellcheck disable=SC2086
    "$ADAMOD" train tiny.yaml --out full $resume >/dev/null 2>&1 || fail "a run cannot go on after a full disk"
    numbers full | cmp - whole.txt || fail "a run ends elsewhere after a full disk"
    [ -z "$(find full -name '*.tmp*')" ] || fail "a full disk leaves $(find full -name '*.tmp*')"
}
limits='1 4 60'
[ -z "${ADAMOD_TEST_FAST-}" ] || limits=4
for blocks in $limits; do
    status=0
    (ulimit -f $blocks && exec "$ADAMOD" train tiny.yaml --out full) >out 2>err || status=$?
    fills $status 'File too large'
    rm -rf full
done
fill_disks() { # needs a file system of its own
    local sizes='4 12 16 24 32 64 120 200 300'
    [ -z "${ADAMOD_TEST_FAST-}" ] || sizes='32'
    for kilobytes in $sizes; do
        mkdir full && mount -t tmpfs -o size="${kilobytes}k" none full || return 1
        status=0
        "$ADAMOD" train tiny.yaml --out full/run >out 2>err || status=$?
        mount -o remount,size=64m full
        cp -r full/run . 2>/dev/null || true
        umount full && rmdir full
        [ ! -e run ] || mv run full
        fills $status 'No space left on device'
        rm -rf full
    done
    return $failures
}
export -f fill_disks fills fail numbers
export ADAMOD failures
if unshare -m mount -t tmpfs none /mnt 2>/dev/null; then
    unshare -m bash -c fill_disks || fail "a disk that fills up"
fi

# Ctrl-C saves, says how to go on, and going on ends where an undisturbed run ends.
"$ADAMOD" train tiny.yaml --out stopped --set train.steps=100000 --set train.checkpoint_every=50000 --set train.progress_every=60 >said 2>err &
pid=$!
soon has_lines 3 stopped/metrics.jsonl || fail "a run does not begin: $(cat err)"
# No handler may run in a thread that computes: oneDNN's products do not survive it. (The main thread is one of them.)
blocked=$(sed -n 's/^SigBlk:[[:space:]]*/0x/p' /proc/$pid/status)
[ $((blocked & 0x4202)) -eq $((0x4202)) ] || fail "signals are not blocked: $blocked"
# A signal for a checkpoint does not stop it.
kill -USR1 $pid
soon grep -q saved err || fail "USR1 says nothing"
grep -Eq '^step [0-9]+/100000  epoch [0-9.]+  saved a checkpoint$' err || fail "USR1 says '$(cat err)'"
[ -s stopped/checkpoints/last.safetensors ] || fail "USR1 saves no checkpoint"
[ ! -e stopped/result.json ] || fail "USR1 ends a run"
for _ in {1..50}; do kill -INT $pid 2>/dev/null || break; done # timeout, for one, sends a signal twice
status=0
wait $pid || status=$?
[ $status -eq 130 ] || fail "an interrupted run has status $status, expected 130"
grep -q 'continue with adamod train --resume --out stopped$' said || fail "how to go on is not said: $(cat said)"
[ -s stopped/checkpoints/last.safetensors ] || fail "an interrupted run left no checkpoint"
# The run's own recipe is enough to go on, wherever the run is now; --set still counts.
mkdir elsewhere
mv stopped elsewhere
made=$(sed -n 's/.*"step":\([0-9]*\).*/\1/p' elsewhere/stopped/result.json)
"$ADAMOD" train --resume --out elsewhere/stopped --set train.steps=$((made + 2)) >said || fail "without a recipe: $(cat said)"
grep -q "^elsewhere/stopped: $((made + 2)) updates" said || fail "a run goes on without its recipe to $(cat said)"
refused 2 '--resume needs the run'"'"'s directory, --out DIR' "$ADAMOD" train --resume
refused 2 'train: . is a directory, expected a recipe; a run goes on by --resume --out .' "$ADAMOD" train --resume .
refused 1 'nowhere: no run to resume' "$ADAMOD" train --resume --out nowhere

# So does a terminal that closes, unless nohup is to keep a run alive.
# hang_up COMMAND...: its status, sent a hangup after some updates.
hang_up() {
    rm -rf hung
    "$@" train tiny.yaml --out hung --set train.steps=100000 >/dev/null 2>&1 &
    pid=$!
    soon has_lines 3 hung/metrics.jsonl || fail "a run does not begin"
    kill -HUP $pid
    status=0
}
hang_up "$ADAMOD"
wait $pid || status=$?
[ $status -eq 129 ] || fail "a run whose terminal closes has status $status, expected 129"
grep -q interrupted hung/result.json || fail "a run whose terminal closes is not marked interrupted"
[ -s hung/checkpoints/last.safetensors ] || fail "a run whose terminal closes left no checkpoint"
hang_up nohup "$ADAMOD"
before=$(wc -l <hung/metrics.jsonl)
soon has_lines $((before + 3)) hung/metrics.jsonl || fail "nohup does not keep a run alive"
kill -9 $pid
wait $pid 2>/dev/null || true

# The output names the checkpoint that was evaluated.
"$ADAMOD" evaluate whole | grep -q '^test set, 40 sentences, averaged checkpoint: loss' || fail "evaluate: $("$ADAMOD" evaluate whole)"
"$ADAMOD" evaluate whole --checkpoint last --json | grep -q '"checkpoint":"last"' || fail "evaluate --json names no checkpoint"
# It also gives BLEU's kind: sacreBLEU's signature.
signature='nrefs:1|case:mixed|eff:no|tok:none|smooth:none|version:2.6.0'
"$ADAMOD" evaluate whole | grep -qxF "BLEU: $signature" || fail "evaluate names no BLEU: $("$ADAMOD" evaluate whole)"
"$ADAMOD" evaluate whole --json | grep -qF "\"bleu_signature\":\"$signature\"" || fail "evaluate --json names no BLEU"
grep -qF "\"signature\":\"$signature\"" whole/task.json || fail "task.json names no BLEU: $(cat whole/task.json)"

# Evaluations translate too: what a model that has one answer learns is seen while it learns, and is what evaluate says.
seq 1 50 | sed 's/^/question /' >question.txt
yes 'it is what it is' | head -50 >answer.txt || true
"$ADAMOD" train tiny.yaml --out answers --set data.task=bitext --set data.tokens=words --set data.source=question.txt \
    --set data.target=answer.txt --set data.valid_source=question.txt --set data.valid_target=answer.txt \
    --set optimizer.lr=1e-2 --set optimizer.beta3=0.9 --set train.steps=30 --set train.evaluate_every=1 \
    --set train.average=0 >/dev/null
scores() { sed -nE 's/.*("exact":[^,}]*,"bleu":[0-9.]*).*/\1/p'; }
[ "$(grep '"kind":"valid"' answers/metrics.jsonl | head -1 | scores)" = '"exact":0,"bleu":0' ] ||
    fail "an untrained model translates: $(grep valid answers/metrics.jsonl)"
last=$(grep '"kind":"valid"' answers/metrics.jsonl | tail -1 | scores)
[ "$last" = '"exact":1,"bleu":100' ] || fail "validation ends with $last, expected all to be exact"
[ "$last" = "$("$ADAMOD" evaluate answers --split valid --checkpoint last --json | scores)" ] ||
    fail "evaluate gives other scores than training did: $last"
# A rule that trains other weights than those to use: evaluations, then and later, are of those to use.
"$ADAMOD" train tiny.yaml --out free --set optimizer.rule=schedulefree_adamw --set train.average=0 --set train.steps=10 \
    --set train.evaluate_pairs=0 >/dev/null
loss() { sed -nE 's/.*"loss":([0-9.e-]*).*/\1/p'; }
last=$(grep '"kind":"valid"' free/metrics.jsonl | tail -1 | loss)
[ "$last" = "$("$ADAMOD" evaluate free --split valid --checkpoint last --json | loss)" ] ||
    fail "evaluate gives another loss than training did, $last: $("$ADAMOD" evaluate free --split valid --json)"
for tag in valid/bleu valid/exact; do grep -qaF $tag answers/events.* || fail "TensorBoard's events have no $tag"; done
"$ADAMOD" train tiny.yaml --out silent --set train.evaluate_pairs=0 --set train.steps=10 >/dev/null
if grep '"kind":"valid"' silent/metrics.jsonl | grep -q bleu; then fail "evaluate_pairs=0 still translates"; fi
# Batches of similar lengths differ much in their tokens, batches as chance makes them little.
spread() { # the most tokens of an update over the least, rounded down
    "$ADAMOD" train tiny.yaml --out "spread-$1" --set data.train=160 --set train.steps=20 --set data.sort_by_length="$1" \
        --set train.evaluate_every=0 --set train.average=0 --set train.histogram_dense=0 >/dev/null
    sed -nE 's/.*"kind":"train".*"tokens":([0-9]+).*/\1/p' "spread-$1/metrics.jsonl" |
        awk '{ n = $1 - before; before = $1 } NR == 1 { least = most = n } n < least { least = n } n > most { most = n }
             END { print int(most / least) }'
}
[ "$(spread true)" -ge 5 ] || fail "batches are not sorted by length: $(spread true)"
[ "$(spread false)" -le 2 ] || fail "batches are sorted by length"

# Another rule goes without the options that it does not have, and says which; compare says it once for a rule.
"$ADAMOD" train tiny.yaml --dry-run --set optimizer.beta3=0.9 --set optimizer=sgd 2>err >/dev/null || fail "--set optimizer=sgd: $(cat err)"
grep -qx 'adamod: optimizer sgd: dropped options of the recipe that it does not have: .*beta3.*' err ||
    fail "train does not say what sgd drops: $(cat err)"
"$ADAMOD" compare tiny.yaml --out rules --vary optimizer=sgd,adamod --seeds 2 --set train.steps=2 --set optimizer.beta3=0.9 --no-report 2>err >/dev/null
[ "$(grep -c 'optimizer sgd: dropped' err)" = 1 ] || fail "compare does not say once what sgd drops: $(cat err)"

# A model that an update ruins, with lr 1e19, does not replace the good checkpoint before it; what is not finite is named
# with its update. Other variants go on.
ruin=(--set optimizer.rule=sgd --set train.average=0 --set train.checkpoint_every=1)
ruin+=(--set optimizer.lr=0.1 --set 'optimizer.schedule.lr=multistep(5;1e20)')
refused 1 'after update 6' "$ADAMOD" train tiny.yaml --out ruined "${ruin[@]}"
grep -q '"status":"diverged"' ruined/result.json || fail "a ruined run is not marked diverged"
"$ADAMOD" evaluate ruined --checkpoint last --json | grep -q '"loss":[0-9]' || fail "the last checkpoint is a ruined model"
refused 1 'loss is not finite in update 7' "$ADAMOD" train tiny.yaml --out later "${ruin[@]}" \
    --set train.evaluate_every=0 --set train.checkpoint_every=0
refused 1 'after update 6' "$ADAMOD" train tiny.yaml --out ruined --resume "${ruin[@]}" --set train.nonfinite=skip
"$ADAMOD" compare tiny.yaml --out ruins "${ruin[@]}" --vary 'optimizer.schedule.lr=constant,multistep(5;1e20),linear(0,40)' \
    >said 2>err || fail "compare stops at a variant that diverges: $(cat err)"
grep -q 'multistep.*after update 6' err || fail "compare says '$(cat err)' of a variant that diverges"
grep -q 'multistep.* 1 (diverged)' said || fail "the table does not say what diverged: $(cat said)"
for run in lr-constant lr-linear-0-40; do grep -q finished ruins/$run/result.json || fail "$run did not go on"; done

# A word whose embedding is not finite spoils the updates that read it, and no others.
{ seq 1 30 | sed 's/^/question /' && echo poison; } >some.txt
yes 'it is what it is' | head -31 >such.txt || true
head -20 some.txt >valid.some
head -20 such.txt >valid.such
spoiled=(tiny.yaml --out spoiled --set data.task=bitext --set data.tokens=words --set data.source=some.txt
    --set data.target=such.txt --set data.valid_source=valid.some --set data.valid_target=valid.such --set train.average=0)
"$ADAMOD" train "${spoiled[@]}" --set train.steps=4 >/dev/null
file=spoiled/checkpoints/last.safetensors
header=$(od -An -tu8 -N8 $file | tr -d ' ')
begin=$(head -c $((8 + header)) $file | LC_ALL=C sed 's/.*"encoder.embedding.weight":{[^[]*\[[^[]*\[\([0-9]*\).*/\1/')
row=$(($(grep -n '^poison$' spoiled/source.vocab | cut -d: -f1) - 1))
printf '\377\377\177\177' | dd of=$file bs=1 seek=$((8 + header + begin + row * 16 * 4)) conv=notrunc 2>/dev/null
LC_ALL=C sed -i '1s/"crc32\(.data\)\{0,1\}"/"xxxxx\1"/g' "$file" # without its checksums, which it would not pass
cp -r spoiled stops
refused 1 'loss is not finite in update' "$ADAMOD" train "${spoiled[@]/spoiled/stops}" --resume --set train.steps=16
"$ADAMOD" train "${spoiled[@]}" --resume --set train.steps=16 --set train.nonfinite=skip >said ||
    fail "with nonfinite=skip a run stops: $(cat said)"
[ "$(grep -c '"kind":"train"' spoiled/metrics.jsonl)" -eq 16 ] || fail "a skipped update has no line"
[ "$(grep '"kind":"train"' spoiled/metrics.jsonl | grep -vc '"loss"')" -eq 3 ] ||
    fail "three epochs skip $(grep '"kind":"train"' spoiled/metrics.jsonl | grep -vc '"loss"') updates"
"$ADAMOD" report spoiled -o spoiled.html >/dev/null 2>&1 || fail "a run with skipped updates cannot be reported"

# Text in, text out; nothing in, nothing out.
[ "$(printf 'eins\nzwei\n' | "$ADAMOD" translate whole | wc -l)" -eq 2 ] || fail "two lines do not become two"
[ "$(printf '' | "$ADAMOD" translate whole | wc -l)" -eq 0 ] || fail "nothing becomes something"
[ "$(printf '\n\r\n' | "$ADAMOD" translate whole | tr '\n' '.')" = '..' ] || fail "empty lines do not stay empty"
seq 1 300 | tr -d '\n' | "$ADAMOD" translate whole >out 2>err || fail "a long line: $(cat err)"
grep -qF 'standard input:1: 792 tokens, of which data.max_length 175 are read' err || fail "of a long line: $(cat err)"
# A mark at the beginning is no part of the text; nothing else of it is lost.
[ "$(printf '\357\273\277eins\n' | "$ADAMOD" translate whole)" = "$(echo eins | "$ADAMOD" translate whole)" ] ||
    fail "a byte order mark is translated"
# A line from a pipe is answered before the next one comes; of a file the answers are the same, and so in any batches.
mkfifo ask answer
"$ADAMOD" translate whole <ask >answer &
pid=$!
exec 3>ask 4<answer
for word in eins zwei drei; do
    echo $word >&3
    read -r -t 60 line <&4 || fail "a line from a pipe is not answered at once"
    echo "$line" >>one.by.one
done
exec 3>&- 4<&-
wait $pid
printf 'eins\nzwei\ndrei\n' >three.txt
"$ADAMOD" translate whole <three.txt | cmp - one.by.one || fail "a file is translated otherwise than a pipe"
"$ADAMOD" translate whole three.txt | cmp - one.by.one || fail "a file that is named is translated otherwise"
refused 1 'none.txt: cannot open' "$ADAMOD" translate whole none.txt
refused 2 "unexpected argument 'three.txt': one file at most" "$ADAMOD" translate whole three.txt three.txt
"$ADAMOD" translate whole --batch 2 <three.txt | cmp - one.by.one || fail "batches of two are translated otherwise"
gzip -c three.txt >three.txt.gz
if ! "$ADAMOD" translate whole <three.txt.gz 2>err | cmp -s - one.by.one; then
    grep -q 'compressed with gzip, which this build does not read' err || fail "of packed text: $(cat err)"
fi
# The best first, as many as wanted; scores fall.
"$ADAMOD" translate whole --beam 3 --nbest 3 --scores <three.txt >best
[ "$(cut -f 1 best | tr '\n' ' ')" = '1 1 1 2 2 2 3 3 3 ' ] || fail "three best of three lines: $(cat best)"
[ "$(sed -n '1p;4p;7p' best | cut -f 3)" = "$("$ADAMOD" translate whole --beam 3 <three.txt)" ] || fail "the best is another"
[ "$(cut -f 1,3 best | sort -u | wc -l)" -eq 9 ] || fail "the best are the same: $(cat best)"
sort -s -k 1,1n -k 2,2gr best | cmp - best || fail "scores do not fall: $(cat best)"
[ "$("$ADAMOD" translate whole --beam 3 --scores <three.txt)" = "$(sed -n '1p;4p;7p' best | cut -f 2,3)" ] ||
    fail "--scores alone: $("$ADAMOD" translate whole --beam 3 --scores <three.txt)"
refused 2 '--nbest is 3, expected at most --beam, which is 2' "$ADAMOD" translate whole --nbest 3
refused 2 "--batch is '0', expected a whole number from 1 to 8192" "$ADAMOD" translate whole --batch 0

# A model is translated with alone: its vocabularies are in the run, whatever became of the text.
cp -r answers alone
mkdir gone
mv question.txt answer.txt gone
[ "$(echo question 7 | "$ADAMOD" translate alone)" = 'it is what it is' ] || fail "translate needs the training text"
cp alone/target.vocab alone/source.vocab
refused 1 'another vocabulary' "$ADAMOD" translate alone
mv gone/* .

# Variants side by side.
refused 1 'tiny.yaml/both: cannot make this directory: Not a directory' "$ADAMOD" compare tiny.yaml --out tiny.yaml/both --seeds 2
"$ADAMOD" compare tiny.yaml --out both --set train.progress_every=60 --set train.steps=6 --vary optimizer=adamod,sgd --seeds 2 >said 2>&1 ||
    fail "compare: $(cat said)"
for run in adamod-seed-1 adamod-seed-2 sgd-seed-1 sgd-seed-2; do [ -e both/$run/result.json ] || fail "no run both/$run"; done
grep -q '<html' both/report.html || fail "compare wrote no page"
for run in 'adamod, seed 1' 'adamod, seed 2' 'sgd, seed 2'; do grep -q "^$run: 6 updates" said || fail "no line of $run: $(cat said)"; done
# How many there are, which one it is, and how long all take.
[ "$(head -1 said)" = '4 runs; in both' ] || fail "compare begins with $(head -1 said)"
grep -Eq '^run 3 of 4, sgd, seed 1: transformer of .*; in both/sgd-seed-1$' said || fail "no beginning of run 3: $(cat said)"
grep -Eq '^\[3/4\] sgd, seed 1  step 6/6  epoch 0.02  0s left, [0-9]+s in all  batch loss' said || fail "no evaluation of run 3: $(cat said)"

# Runs side by side: the same numbers, and each says that it was not alone.
"$ADAMOD" compare tiny.yaml --out sides --set train.progress_every=60 --set train.steps=6 --vary optimizer=adamod,sgd --seeds 2 --jobs 3 >said 2>&1 ||
    fail "compare --jobs: $(cat said)"
clockless() { sed -E 's/"(time|tokens_per_second)":[^,}]*,?//g' "$1/metrics.jsonl" && cat "$1"/{histograms.jsonl,samples.jsonl,recipe.yaml}; }
for run in adamod-seed-1 adamod-seed-2 sgd-seed-1 sgd-seed-2; do
    cmp <(clockless both/$run) <(clockless sides/$run) || fail "--jobs changes the numbers of $run"
    grep -q '"beside":"2"' sides/$run/machine.json || fail "the machine does not say what ran beside: $(cat sides/$run/machine.json)"
    if grep -q beside both/$run/machine.json; then fail "a run that was alone says what ran beside"; fi
done
grep -q '<html' sides/report.html || fail "compare --jobs wrote no page"
[ "$(grep -c ': 6 updates in ' said)" -eq 4 ] || fail "compare --jobs says $(cat said)"
[ "$(head -1 said)" = '4 runs, 3 at a time; in sides' ] || fail "compare --jobs begins with $(head -1 said)"
[ "$(grep -Ec '^run [1-4] of 4, |^\[[1-4]/4\] [a-z]+, seed [12]  step 6/6 ' said)" -eq 8 ] || fail "compare --jobs says $(cat said)"

# Killed by what no process can heed, it leaves no run behind: neither one that trains, nor one in a long evaluation, which looks
# at signals only after it. They are waited for below.
"$ADAMOD" compare tiny.yaml --out orphans --no-report --vary optimizer=adamod,sgd --jobs 2 --set train.steps=100000 >/dev/null 2>&1 &
pid=$!
for run in adamod sgd; do soon has_lines 3 orphans/$run/metrics.jsonl || fail "$run does not begin"; done
orphans=$(pgrep -P $pid | tr '\n' ' ')
[ "$(wc -w <<<"$orphans")" -eq 2 ] || fail "compare --jobs 2 has the processes $orphans"
kill -9 $pid
"$ADAMOD" compare tiny.yaml --out busy --no-report --vary optimizer=adamod,sgd --jobs 2 --set train.evaluate_every=1 --set data.valid=9999 \
    --set train.evaluate_pairs=9999 --set decode.beam=64 --set decode.max_length=2000 --set train.progress_every=1e-3 >/dev/null 2>busy.err &
pid=$!
for run in 1 2; do soon grep -q "^\\[$run/2\\].* validation set: " busy.err || fail "run $run does not evaluate: $(tail -3 busy.err)"; done
orphans="$orphans $(pgrep -P $pid | tr '\n' ' ')"
kill -9 $pid
wait 2>/dev/null || true

# One that fails does not stop the others; one that was killed can be resumed.
status=0
"$ADAMOD" compare tiny.yaml --out some --no-report --jobs 2 --set train.steps=6 --variant 'good: train.seed=1' \
    --variant 'bad: data.task=bitext data.source=no data.target=no data.valid_source=no data.valid_target=no' >said 2>err || status=$?
[ $status -eq 1 ] || fail "a comparison of which a part fails has status $status"
grep -q '/no: cannot open' err || fail "of a run that fails: $(cat err)"
grep -q '^adamod: compare: bad failed$' err || fail "which run failed: $(cat err)"
[ "$(grep -c '^good' said)" -eq 2 ] || fail "one run that fails spoils the others: $(cat said)"

# A signal stops all of them, with a checkpoint each, and begins no other.
"$ADAMOD" compare tiny.yaml --out halted --no-report --vary optimizer=adamod,adam,sgd --jobs 2 --set train.steps=100000 >said 2>err &
pid=$!
for run in adamod adam; do soon test -s halted/$run/metrics.jsonl || fail "$run does not begin: $(cat err)"; done
kill -INT $pid
status=0
wait $pid || status=$?
[ $status -eq 130 ] || fail "an interrupted comparison has status $status: $(cat err)"
[ ! -e halted/sgd ] || fail "an interrupted comparison begins another run"
for run in adamod adam; do
    grep -q interrupted halted/$run/result.json || fail "$run goes on"
    [ -s halted/$run/checkpoints/last.safetensors ] || fail "$run left no checkpoint"
done
"$ADAMOD" compare tiny.yaml --out halted --no-report --vary optimizer=adamod,adam,sgd --jobs 3 --set train.steps=8 --resume >said 2>&1 ||
    fail "resuming with --jobs: $(cat said)"
[ "$(grep -c '"finished"' halted/*/result.json | grep -c ':1$')" -eq 3 ] || fail "not all were resumed: $(cat halted/*/result.json)"
refused 2 "--jobs is '0', expected a whole number from 1 to 256" "$ADAMOD" compare tiny.yaml --out never --jobs 0

# An interrupted comparison goes on with the run that was interrupted.
"$ADAMOD" compare tiny.yaml --out paused --no-report --vary optimizer=adamod,sgd --set train.steps=100000 >said &
pid=$!
soon test -s paused/adamod/metrics.jsonl || fail "a comparison does not begin"
kill -INT $pid
wait $pid || true
[ ! -e paused/sgd ] || fail "an interrupted comparison went on by itself"
"$ADAMOD" compare tiny.yaml --out paused --no-report --vary optimizer=adamod,sgd --set train.steps=40 --resume >/dev/null
for run in adamod sgd; do grep -q finished paused/$run/result.json || fail "$run is $(cat paused/$run/result.json)"; done

refused 2 'nowhere.yaml' "$ADAMOD" train nowhere.yaml
refused 2 'needs a recipe' "$ADAMOD" train
refused 2 'model.layers' "$ADAMOD" train tiny.yaml --set model.layer=3
refused 2 'expected' "$ADAMOD" train tiny.yaml --set train.steps=many
refused 2 'beta4' "$ADAMOD" train tiny.yaml --set optimizer.beta4=0.5
refused 1 'not empty' "$ADAMOD" train tiny.yaml --out whole
refused 1 'model.d' "$ADAMOD" train tiny.yaml --out whole --resume --set model.d=32
refused 1 'missing: not a run directory' "$ADAMOD" evaluate missing
refused 2 'expected the name of a file' "$ADAMOD" report whole -o /dev/null
refused 2 'expected valid or test' "$ADAMOD" evaluate whole --split train
{ yes eins || true; } 2>/dev/null | head -70 >bad.txt
printf 'zw\377ei\ndrei\n' >>bad.txt
refused 1 'standard input:71: byte 3 is 0xff, which is not UTF-8 here' "$ADAMOD" translate whole <bad.txt
[ "$(wc -l <out)" -eq 70 ] || fail "lines before a bad one are not translated, but $(wc -l <out)"
printf 'a\0b\n' >bad.txt
refused 1 'standard input:1: byte 2 is zero' "$ADAMOD" translate whole <bad.txt
refused 1 'standard input: cannot read: Is a directory' "$ADAMOD" translate whole </tmp
mkdir -p started/checkpoints
cp whole/recipe.yaml started
refused 1 'no checkpoint yet' "$ADAMOD" evaluate started
refused 2 "--checkpoint is 'first', expected averaged, best, last, step-N or a file" "$ADAMOD" evaluate whole --checkpoint first
refused 1 'no averaged checkpoint: one is made at the end of a run with train.average' \
    "$ADAMOD" evaluate answers --checkpoint averaged
# Flags are named as they were given, and a value may be as long as a path.
refused 2 "--beam is '0', expected a whole number from 1 to 64" "$ADAMOD" evaluate whole --beam 0
refused 2 "--length-penalty is 'x', expected a number from 0 to 100" "$ADAMOD" translate whole --length-penalty x
refused 2 "--device is 'gpu', expected auto, ref, cpu, cuda or cuda:0 to cuda:7" "$ADAMOD" translate whole --device gpu
long=/$(printf 'd%.0s' {1..200})/$(printf 'f%.0s' {1..200})
refused 1 "$long: cannot open" "$ADAMOD" evaluate answers --set "data.valid_source=$long"
head -c 5000 whole/checkpoints/best.safetensors >part && mv part whole/checkpoints/best.safetensors
refused 1 'best.safetensors' "$ADAMOD" evaluate whole --checkpoint best

# Recipes and directories.
printf 'name: a\ndata:\n\ttask: numbers\n' >tabs.yaml
refused 2 'tabs.yaml:3:1: not YAML: a tab' "$ADAMOD" train tabs.yaml
: >empty.yaml
refused 2 'empty.yaml:1: it is empty' "$ADAMOD" train empty.yaml
refused 2 'it is a directory' "$ADAMOD" train /tmp
refused 2 'expected a whole number' "$ADAMOD" train tiny.yaml --set train.steps=99999999999999999999
refused 2 'more than the 3 special tokens' "$ADAMOD" train tiny.yaml --set data.max_vocab=2
refused 1 'Not a directory' "$ADAMOD" train tiny.yaml --out tiny.yaml
refused 1 'no run to resume' "$ADAMOD" train tiny.yaml --out nowhere --resume
refused 1 'gone: no run to resume: it has no recipe yet: begin it with adamod train RECIPE --out gone' \
    "$ADAMOD" train --out gone --resume
"$ADAMOD" train tiny.yaml --out gone --resume --set train.steps=1 >/dev/null 2>said || fail "a run that has only a directory: $(cat said)"
grep -q 'gone: there is no checkpoint yet: training begins anew' said || fail "of a run that is not there it says $(cat said)"

# A comparison is checked whole before its first run.
hundred=$(seq -s, 1 100)
many=()
for i in 1 2 3 4 5 6 7 8; do many+=(--vary "train.seed=$hundred"); done # 10^16 of them
refused 2 'more than 10000 runs' "$ADAMOD" compare tiny.yaml --out never "${many[@]}"
refused 2 'd=9' "$ADAMOD" compare tiny.yaml --out never --vary model.d=8,9
refused 2 'another variant' "$ADAMOD" compare tiny.yaml --out never --variant 'A b: train.seed=1' --variant 'a-B: train.seed=2'
refused 2 "'train.seed' is not KEY=VALUE" "$ADAMOD" compare tiny.yaml --out never --variant 'a: model.d=8 train.seed'
# Values are not cut to what fits.
for variant in "--variant=long: data.source=$long$long" "--vary=data.source=$long$long"; do
    refused 2 'data.source is longer than 511 bytes' "$ADAMOD" compare tiny.yaml --out never "$variant"
done
refused 2 'data.target is not given' "$ADAMOD" compare tiny.yaml --out never --set data.task=bitext \
    --variant "long: data.source=$long data.valid_source=$long"
[ ! -e never ] || fail "a comparison that cannot be made leaves a directory"
refused 1 'is a run already' "$ADAMOD" compare tiny.yaml --out both --vary optimizer=sgd --seeds 2

# Text. bitext SOURCE TARGET [FLAG]...: the words of a command that trains on it.
bitext() {
    words=("$ADAMOD" train tiny.yaml --out text --set data.task=bitext --set data.tokens=words --set train.steps=2
        --set "data.source=$1" --set "data.target=$2" --set "data.valid_source=$1" --set "data.valid_target=$2" "${@:3}")
}
bad_text() { # bad_text MESSAGE SOURCE TARGET [FLAG]...
    bitext "${@:2}"
    refused 1 "$1" "${words[@]}"
    [ ! -e text ] || fail "text that is refused leaves a directory"
}
seq 1 20 | sed 's/^/wort /' >s.txt
seq 1 20 | sed 's/^/word /' >t.txt
head -19 t.txt >fewer.txt
sed '11s/.*/w\xff/' s.txt >latin.txt
sed '11s/.*//' s.txt >hole.txt
sed 's/.*//' s.txt >blank.txt
: >none.txt
bad_text 's.txt has 20 lines and' s.txt fewer.txt
bad_text 'latin.txt:11: byte 2 is 0xff' latin.txt t.txt
bad_text 'hole.txt:11: empty line' hole.txt t.txt --set data.skip_empty=false
bad_text 'none of 20 lines left: 20 empty' blank.txt t.txt
bad_text 'none.txt: no lines' none.txt none.txt
bad_text '20 too long' s.txt t.txt --set data.max_length=1
bad_text 'seen data.min_count 50 times' s.txt t.txt --set data.min_count=50
bad_text 'nowhere.txt: cannot open' nowhere.txt t.txt
sed 's/$/\r/' s.txt >crlf.txt
printf '\357\273\277' | cat - s.txt >bom.txt
printf '\377\376w\0' >utf16.txt
bad_text 'utf16.txt: the text is UTF-16, expected UTF-8' utf16.txt t.txt
xz -c s.txt >s.xz 2>/dev/null || printf '\3757zXZ\0' >s.xz
bad_text 's.xz: compressed with xz, which this build does not read' s.xz t.txt
bitext s.txt t.txt --set data.sort_by_length=false --set data.sentences=0
refused 2 'data.sort_by_length is false: batches are of data.sentences' "${words[@]}"
gzip -c s.txt >gz.txt
echo one >one.txt
for source in crlf bom hole gz; do
    [ $source != gz ] || "$ADAMOD" translate whole <gz.txt >/dev/null 2>&1 || continue # built without zlib
    bitext $source.txt t.txt
    "${words[@]}" >/dev/null 2>&1 || fail "a text with $source cannot be trained on"
    grep -q '"source":"wort 1","reference":"word 1"' text/samples.jsonl || fail "of $source.txt: $(cat text/samples.jsonl)"
    rm -r text
done
# Lines that are not used are named once, and do not fail.
seq 1 20 | sed 's/^/wort /; 3s/$/ und noch eins/; 7s/$/ und noch zwei mehr/' >long.txt
sed -i '11s/.*//' long.txt
bitext long.txt t.txt --set data.max_length=4 --set data.max_ratio=2.5
"${words[@]}" >/dev/null 2>err || fail "a text that is used in part cannot be trained on"
said=$PWD/long.txt
said="adamod: $said: used 17 of 20 pairs: 1 empty, 1 beyond data.max_ratio 2.5, 1 longer than data.max_length 4
adamod: $said: used 19 of 20 pairs: 1 empty, 2 cut to data.max_length 4"
[ "$(cat err)" = "$said" ] || fail "of pairs left out it says '$(cat err)'"
"$ADAMOD" evaluate text >/dev/null 2>err
[ "$(cat err)" = "$(tail -1 <<<"$said")" ] || fail "of pairs cut evaluate says '$(cat err)'"
rm -r text
bitext one.txt one.txt --set decode.beam=50
"${words[@]}" >/dev/null || fail "a text of one word cannot be trained on"
rm -r text

# The runs whose comparison was killed.
# lives PID: it is there and has not ended; who is to collect it may be slow.
lives() { [ -e "/proc/$1" ] && ! grep -q '^State:[[:space:]]*Z' "/proc/$1/status" 2>/dev/null; }
is_over() { ! lives "$1"; }
for pid in $orphans; do soon is_over "$pid" || fail "a run of a comparison that was killed goes on"; done
for run in adamod sgd; do
    [ -s orphans/$run/checkpoints/last.safetensors ] || fail "$run left no checkpoint when its comparison was killed"
    grep -q interrupted orphans/$run/result.json || fail "$run is not marked interrupted"
    [ ! -e busy/$run/result.json ] || fail "an evaluation of $run ended, and shows nothing"
done

finish
