#!/usr/bin/env bash
# Resumed runs: with the data it was trained with, from checkpoints that are whole, by the name the user gives, with the
# weights of another. Mistakes are refused in one line, and change nothing.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/support/shell_checks.sh
. "$(dirname "${BASH_SOURCE[0]}")/../support/shell_checks.sh"
"$ADAMOD" help train >/dev/null 2>&1 || exit 77 # built without the trainer

seq 1 40 | sed 's/^/wort /' >s.txt
seq 1 40 | sed 's/^/word /' >t.txt
head -8 s.txt >vs.txt
head -8 t.txt >vt.txt
cat >tiny.yaml <<'END'
data: {task: bitext, source: s.txt, target: t.txt, valid_source: vs.txt, valid_target: vt.txt, sentences: 8}
model: {layers: 1, d: 8, ffn: 8, heads: 2, dropout: 0.1}
optimizer: {rule: adamod, lr: 3e-3}
train: {steps: 12, evaluate_every: 4, checkpoint_every: 4, average: 2, histogram_dense: 1, evaluate_pairs: 4, threads: 1,
        backend: cpu, keep_states: true, progress_every: 0}
decode: {beam: 2, max_length: 8}
END

# unmoved STATUS TEXT COMMAND...: refused, and the run is as it was.
unmoved() {
    local before
    before=$(find . -type f -path './*/*' -exec cksum {} + | sort)
    refused "$@"
    [ "$before" = "$(find . -type f -path './*/*' -exec cksum {} + | sort)" ] || fail "${*:3} changes files"
}
# flip FILE OFFSET: one bit of the byte.
flip() {
    local byte
    byte=$(od -An -tu1 -j"$2" -N1 "$1" | tr -d ' ')
    # shellcheck disable=SC2059
    printf "\\$(printf %03o $((byte ^ 16)))" | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null
}
# The numbers that must be equal between two runs: everything but clocks.
numbers() {
    sed -E 's/"(time|tokens_per_second)":[^,}]*,?//g' "$1/metrics.jsonl"
    cat "$1/histograms.jsonl" "$1/samples.jsonl"
    "$ADAMOD" evaluate "$1" --json | sed -E 's/,"seconds":[^}]*//'
}
train() { "$ADAMOD" train "$@" 2>err >said || fail "train $*: $(cat err)"; }

train tiny.yaml --out whole
numbers whole >whole.txt

# ---- what is said ----

# There is no test set: nothing is called a test.
grep -q 'training loss [0-9.]*, validation loss [0-9.]*, validation exact .*, validation BLEU' said || fail "it says $(cat said)"
! grep -qa '"test\|test/' whole/metrics.jsonl whole/result.json whole/events.* || fail "a validation is called a test"
for file in metrics.jsonl result.json; do grep -q '"final_valid"' whole/$file || fail "$file has no final_valid"; done
train tiny.yaml --out tested --set data.test_source=vs.txt --set data.test_target=vt.txt
grep -q 'validation loss [0-9.]*, test exact .*, test BLEU' said || fail "with a test it says $(cat said)"
grep -q '"test":{"kind":"test"' tested/result.json || fail "with a test: $(cat tested/result.json)"
# The training loss is the same on the terminal and in the file, resumed with nothing to do as well.
loss=$(sed -n 's/.*"training_loss":\([^,}]*\).*/\1/p' whole/result.json)
train --resume --out whole
grep -qF "training loss $(LC_ALL=C printf %.4f "$loss"), " said || fail "training loss $loss in the file, but $(cat said)"
"$ADAMOD" train --resume --out tested --set train.progress_every=60 >/dev/null 2>err
grep -q '; no updates left of 12, 12 are done; in tested$' err || fail "with nothing to do it says $(cat err)"
# machine.json says what was used, not what was left open.
for field in '"backend":"cpu"' '"device":"cpu"' '"precision":"full"' '"threads":"1"'; do
    grep -qF "$field" whole/machine.json || fail "no $field in $(cat whole/machine.json)"
done
train tiny.yaml --out auto --set train.backend=auto --set train.threads=0 --set train.steps=1
! grep -q '"auto"\|"threads":"0"' auto/machine.json || fail "machine.json leaves open what was used: $(cat auto/machine.json)"
grep -q '"backend":"\(cpu\|cuda\)","device":"..*","precision":"\(full\|mixed\)"' auto/machine.json || fail "$(cat auto/machine.json)"
grep -qF '"resumed_from":"last","resumed_at":"12"' whole/machine.2.json || fail "$(cat whole/machine.2.json)"
grep -qF '{"split":"train","key":"data.source","file":"'"$PWD"'/s.txt","fingerprint":"' whole/data.json || fail "$(cat whole/data.json)"

# Mixed precision is said, and a run has the same numbers with another number of threads, stopped and resumed.
wide=(--set model.d=64 --set model.ffn=128 --set data.sentences=40 --set train.precision=mixed)
train tiny.yaml --out mixed "${wide[@]}" --set train.progress_every=60
grep -q ', on cpu in mixed precision (' err || fail "mixed precision: $(cat err)"
grep -q '"precision":"mixed","matrix_library":"..*, ..*"' mixed/machine.json || fail "$(cat mixed/machine.json)"
train tiny.yaml --out parts "${wide[@]}" --set train.threads=2 --set train.steps=8
train --resume --out parts --set train.threads=2 --set train.steps=12
[ "$(numbers mixed)" = "$(numbers parts)" ] || fail "in mixed precision a resumed run of two threads has other numbers"
train tiny.yaml --out wide "${wide[@]}" --set train.precision=full
[ "$(numbers mixed)" != "$(numbers wide)" ] || fail "mixed precision computes what full precision does"
ADAMOD_ISA=plain "$ADAMOD" train tiny.yaml --out plain "${wide[@]}" --set train.steps=1 >said 2>&1 || fail "$(cat said)"
grep -q 'precision is mixed, but this processor has no instructions for bf16' said || fail "without instructions: $(cat said)"
rm -rf mixed parts wide plain

# A loss that is not finite is a failure, and nothing is printed.
cp -r whole ruined
file=ruined/checkpoints/last.safetensors
header=$(od -An -tu8 -N8 $file | tr -d ' ')
begin=$(head -c $((8 + header)) $file | LC_ALL=C sed 's/.*"encoder.embedding.weight":{[^[]*\[[^[]*\[\([0-9]*\).*/\1/')
for ((i = 0; i < 18 * 8; i++)); do printf '\377\377\377\177'; done | # not a number, in each place
    dd of=$file bs=1 seek=$((8 + header + begin)) conv=notrunc 2>/dev/null
LC_ALL=C sed -i '1s/"crc32\(.data\)\{0,1\}"/"xxxxx\1"/g' $file # without its checksums, which it would not pass
for how in '' --json; do
    # shellcheck disable=SC2086
    unmoved 1 'ruined: the loss of the last checkpoint is not finite' "$ADAMOD" evaluate ruined --checkpoint last $how
    [ ! -s out ] || fail "evaluate $how of a model that is not finite prints $(cat out)"
done

# ---- a new directory ----

# Three begin a run there at once: one does. The others say so, and take nothing from it.
for round in 1 2 3; do
    rm -rf crowd
    pids=()
    for i in 1 2 3; do
        "$ADAMOD" train tiny.yaml --out crowd --set train.steps=100000 >said.$i 2>&1 &
        pids+=($!)
    done
    wait -n || true
    wait -n || true
    kill -TERM "${pids[@]}" 2>/dev/null
    wait
    [ "$(cat said.? | grep -c '^adamod: train: crowd is in use by another process$')" -eq 2 ] || fail "round $round: $(cat said.?)"
    [ "$(cat said.? | grep -c '^crowd: interrupted after update')" -eq 1 ] || fail "round $round: $(cat said.?)"
    made=$(sed -n 's/.*"step":\([0-9]*\).*/\1/p' crowd/result.json)
    train --resume --out crowd --set train.steps=$((made + 1))
done
# A run killed before its first checkpoint is begun again, with the recipe that is given now.
for resume in '' --resume; do
    rm -rf dead
    "$ADAMOD" train tiny.yaml --out dead --set train.steps=100000 --set train.checkpoint_every=0 --set train.average=0 \
        --set train.evaluate_every=0 >said 2>&1 &
    pid=$!
    for _ in {1..400}; do [ ! -s dead/metrics.jsonl ] || break; sleep 0.02; done
    kill -KILL $pid
    wait $pid 2>/dev/null || true
    # shellcheck disable=SC2086
    "$ADAMOD" train tiny.yaml --out dead $resume >said 2>err || fail "train $resume after a kill: $(cat err)"
    [ "$(cat err)" = 'adamod: dead: there is no checkpoint yet: training begins anew' ] || fail "after a kill it says $(cat err)"
    numbers dead | cmp - whole.txt || fail "a run that is begun again ends elsewhere"
done

# ---- data ----

# Equal content elsewhere is the same data, and the end is the same.
train tiny.yaml --out moved --set train.steps=4
mkdir elsewhere
sed 's/$/\r/' s.txt >elsewhere/s.txt
train tiny.yaml --out moved --resume --set "data.source=$PWD/elsewhere/s.txt"
numbers moved | cmp - whole.txt || fail "a run whose data moved ends elsewhere"
# Other content is not, in whichever file: the file is named, with what to do.
for file in s t vs vt; do
    cp $file.txt kept
    sed -i '3s/3$/4/' $file.txt
    unmoved 1 "$PWD/$file.txt: data." "$ADAMOD" train tiny.yaml --out whole --resume --set train.steps=16
    grep -q 'content has changed; restore it, or go on with what is there by --reset data' err || fail "of data: $(cat err)"
    mv kept $file.txt
done
cp s.txt kept
sed -i '3s/3$/4/' s.txt
cp -r whole other
train tiny.yaml --out other --resume --reset data --set train.steps=16
grep -q '"reset":"data"' other/machine.3.json || fail "a reset is not noted: $(cat other/machine.*)"
train tiny.yaml --out other --resume --set train.steps=17 # from now on these are its data
mv kept s.txt
unmoved 1 's.txt: data.source is not' "$ADAMOD" train tiny.yaml --out other --resume --set train.steps=18
# Other characters are another vocabulary, unless the run's own is taken.
cp s.txt kept
sed -i '3s/3/ß/' s.txt
unmoved 1 'data.source is not' "$ADAMOD" train tiny.yaml --out whole --resume
unmoved 1 'last.safetensors: made with another vocabulary' "$ADAMOD" train tiny.yaml --out whole --resume --reset data
cp -r whole foreign
train tiny.yaml --out foreign --resume --reset data --set data.vocabularies=whole --set train.steps=13
cp -r whole self # which is moved then
train --resume --out self --reset data --set data.vocabularies=self --set train.steps=13
mv self moved-self
train --resume --out moved-self --set train.steps=14
mv kept s.txt

# A run of an earlier version, whose checkpoints know neither their data nor what was saved before them, goes on.
cp -r whole elder
for file in elder/checkpoints/*; do
    LC_ALL=C sed -i '1s/"crc32\(.data\)\{0,1\}"/"xxxxx\1"/g; 1s/"last_step"/"xxxx_step"/; 1s/"data":"data/"xxxx":"data/' "$file"
done
train --resume --out elder --set train.steps=16
train --resume --out elder --set train.steps=20
"$ADAMOD" evaluate elder --checkpoint step-16 >/dev/null || fail "what came of an earlier version's cannot be read"

# ---- checkpoints that are not whole, or not there ----

cp -r whole broken
last=broken/checkpoints/last.safetensors
size=$(stat -c %s $last)
offset=5
while [ $offset -lt "$size" ]; do # in all parts: metadata, parameters, the optimizer's states
    flip $last $offset
    unmoved 1 "adamod: train: $last: " "$ADAMOD" train --resume --out broken
    grep -q 'whole: best (update [0-9]*), step-12 (update 12), step-8 (update 8): choose one with --resume-from NAME$' err ||
        fail "byte $offset: $(cat err)"
    unmoved 1 "adamod: evaluate: $last: " "$ADAMOD" evaluate broken --checkpoint last
    grep -q 'whole: best (update [0-9]*), averaged (update 12), step-12 .*: choose one with --checkpoint NAME$' err ||
        fail "byte $offset: $(cat err)"
    unmoved 1 "adamod: translate: $last: " "$ADAMOD" translate broken --checkpoint last </dev/null
    flip $last $offset
    offset=$((offset * 4 + 1))
done
head -c $((size / 2)) $last >part && mv part $last
unmoved 1 'whole: best' "$ADAMOD" train --resume --out broken
rm $last
unmoved 1 "$last: No such file or directory; whole: best" "$ADAMOD" train --resume --out broken
# A checkpoint that cannot be opened is named, instead of another being used in its place.
ln -sf averaged.safetensors broken/checkpoints/averaged.safetensors
unmoved 1 'broken/checkpoints/averaged.safetensors: Too many levels of symbolic links' "$ADAMOD" evaluate broken
rm broken/checkpoints/* # not even with none left does it begin anew in silence
unmoved 1 'No such file or directory; no other checkpoint of the run is whole' "$ADAMOD" train --resume --out broken

# ---- another checkpoint than the last ----

cp -r whole back
train --out back --resume-from step-8
numbers back | cmp - whole.txt || fail "a run that goes back to step-8 ends elsewhere"
cp whole/checkpoints/step-8.safetensors saved.safetensors
train --out back --resume-from saved.safetensors --set train.steps=10
grep -q '"step":10,' back/result.json || fail "from a file it goes on to $(cat back/result.json)"
[ ! -e back/checkpoints/step-12.safetensors ] || fail "a checkpoint of a future that is gone is still there"
grep -q '"resumed_from":"saved.safetensors","resumed_at":"8"' back/machine.4.json || fail "from a file: $(cat back/machine.*)"
cp -r whole best
train --out best --resume-from best
numbers best | cmp - whole.txt || fail "a run that goes back to its best ends elsewhere"
unmoved 2 "--resume-from is 'first', expected best, last, step-N or a file" "$ADAMOD" train --out back --resume-from first
unmoved 1 'step-7.safetensors: No such file or directory; whole: last' "$ADAMOD" train --out back --resume-from step-7
unmoved 1 'it has only parameters, no optimizer state' "$ADAMOD" train --out whole --resume-from averaged
"$ADAMOD" evaluate whole --checkpoint step-8 --json | grep -q '"checkpoint":"step-8"' || fail "evaluate --checkpoint step-8"
"$ADAMOD" evaluate whole --checkpoint saved.safetensors >said || fail "evaluate --checkpoint FILE"
grep -q 'saved.safetensors checkpoint' said || fail "evaluate: $(cat said)"
echo wort | "$ADAMOD" translate whole --checkpoint step-12 >said || fail "translate --checkpoint step-12"

# ---- what may begin anew ----

unmoved 1 'optimizer.lr is 0.01, but was 0.003' "$ADAMOD" train --resume --out whole --set optimizer.lr=1e-2
unmoved 2 "--reset is 'lr', expected optimizer, options or data" "$ADAMOD" train --resume --out whole --reset lr
unmoved 2 '--reset is for a run that is resumed' "$ADAMOD" train tiny.yaml --out new --reset optimizer
for what in options optimizer; do
    cp -r whole $what
    train --resume --out $what --reset $what --set optimizer.lr=1e-2 --set train.steps=14
    grep '"step":13,' $what/metrics.jsonl | grep -q '"lr":0.01,' || fail "--reset $what: $(tail -4 $what/metrics.jsonl)"
    train --resume --out $what --set train.steps=16 # the new learning rate is the run's own now
    grep '"step":16,' $what/metrics.jsonl | grep -q '"lr":0.01,' || fail "after --reset $what: $(tail -4 $what/metrics.jsonl)"
done
# An update from states that are kept leads elsewhere than the first from none.
of_14() { grep '"kind":"train","step":14,' "$1/metrics.jsonl" | grep -o '"loss":[^,]*'; }
[ "$(of_14 options)" != "$(of_14 optimizer)" ] || fail "--reset optimizer keeps its states"
unmoved 1 'optimizer.rule is sgd, but was adamod' "$ADAMOD" train --resume --out options --reset options --set optimizer.rule=sgd
train --resume --out optimizer --reset optimizer --set optimizer.rule=sgd --set train.steps=18

# On a GPU, where the library reports updates by their number, which then is its own.
if "$ADAMOD" train tiny.yaml --out gpu --device cuda >/dev/null 2>&1; then
    for what in options optimizer; do
        train --resume --out gpu --reset $what --set optimizer.lr=1e-2 --set train.steps=$((14 + ${#what}))
        grep "\"step\":$((14 + ${#what}))," gpu/metrics.jsonl | grep -q '"lr":0.01,.*"grad_norm"' ||
            fail "--reset $what on a GPU: $(tail -4 gpu/metrics.jsonl)"
    done
    grep -q '"backend":"cuda","device":"cuda:0 (..*","precision":"mixed"' gpu/machine.json || fail "$(cat gpu/machine.json)"
fi

# ---- weights of another run ----

train tiny.yaml --out tuned --init-from whole --set train.steps=1
of_1() { grep '"kind":"train","step":1,' "$1/metrics.jsonl" | grep -o '"loss":[^,]*'; }
[ "$(of_1 tuned)" != "$(of_1 whole)" ] || fail "--init-from begins where a new run begins"
grep -qF "init_from: $PWD/whole/checkpoints/averaged.safetensors" tuned/recipe.yaml || fail "$(cat tuned/recipe.yaml)"
train tiny.yaml --out file --init-from whole/checkpoints/averaged.safetensors --set train.steps=1
[ "$(of_1 tuned)" = "$(of_1 file)" ] || fail "a run and its file are other weights"
unmoved 1 "from another model: 'encoder.embedding.weight' has shape" "$ADAMOD" train tiny.yaml --out new --init-from whole --set model.d=16
unmoved 1 'from another model: it has no parameter' "$ADAMOD" train tiny.yaml --out new --init-from whole --set model.layers=2
unmoved 1 'nowhere: cannot open: No such file' "$ADAMOD" train tiny.yaml --out new --init-from nowhere
unmoved 1 'elsewhere: neither a run directory with a checkpoint nor a safetensors file' "$ADAMOD" train tiny.yaml --out new --init-from elsewhere
unmoved 1 'nowhere: cannot open: No such file' "$ADAMOD" train tiny.yaml --dry-run --init-from nowhere
unmoved 2 '--init-from is empty' "$ADAMOD" train tiny.yaml --out new --init-from ''
sed 's/wort/Wort/' s.txt >big.txt
unmoved 1 'averaged.safetensors: made with another vocabulary' "$ADAMOD" train tiny.yaml --out new --init-from whole --set data.source=big.txt
unmoved 1 'elsewhere/source.vocab: ' "$ADAMOD" train tiny.yaml --out new --set data.vocabularies=elsewhere
[ ! -e new ] || fail "what is refused leaves a directory"
train tiny.yaml --out tuned-on --init-from whole --set data.source=big.txt --set data.vocabularies=whole --set train.steps=1
cmp whole/source.vocab tuned-on/source.vocab || fail "data.vocabularies=RUN are not those of the run"

# ---- checkpoints without the optimizer's states ----

size_of() { stat -c %s "$1/checkpoints/$2.safetensors"; }
inode_of() { stat -c %i "$1/checkpoints/$2.safetensors"; }
# By itself a run keeps states in its last one only. It is the same run.
train tiny.yaml --out light --set train.keep_states=false
numbers light | cmp - whole.txt || fail "without states in every checkpoint a run ends elsewhere"
for name in best step-8 step-12; do
    [ $((2 * $(size_of light $name))) -lt "$(size_of light last)" ] || fail "$name has states: $(ls -l light/checkpoints)"
    [ "$(size_of whole $name)" -gt $((3 * $(size_of light $name))) ] || fail "keep_states: $name has none"
done
# Equal checkpoints are one file.
[ "$(inode_of whole step-12)" = "$(inode_of whole last)" ] || fail "step-12 and last are two files"
[ "$(inode_of whole step-8)" != "$(inode_of whole last)" ] || fail "step-8 and last are one file"
best=$("$ADAMOD" evaluate light --checkpoint best --json | sed 's/"seconds":[^}]*//')
[ "$best" = "$("$ADAMOD" evaluate whole --checkpoint best --json | sed 's/"seconds":[^}]*//;s/"whole"/"light"/')" ] ||
    fail "a model without states is another: $best"
unmoved 1 'best.safetensors: it has only parameters, no optimizer state to resume from: only --reset optimizer goes on from it' \
    "$ADAMOD" train --out light --resume-from best
cp -r light anew
train --out anew --resume-from best --reset optimizer
grep -q '"step":12,' anew/result.json || fail "--resume-from best --reset optimizer: $(cat anew/result.json)"
flip light/checkpoints/last.safetensors 500
unmoved 1 "light/checkpoints/last.safetensors: " "$ADAMOD" train --resume --out light
grep -q "; whole, without the optimizer's states: best (update [0-9]*), averaged (update 12), step-12 (update 12), step-8 (update 8): choose one with --resume-from NAME --reset optimizer$" err ||
    fail "of checkpoints without states: $(cat err)"

# ---- checkpoints that stay ----

train tiny.yaml --out kept --set train.keep_every=3 --set train.average=1 --set train.keep_states=false
[ "$(inode_of kept step-12)" = "$(inode_of kept last)" ] || fail "a kept step-12 and last are two files"
cp -r kept back-kept
train --out back-kept --resume-from step-6
found=$(find kept/checkpoints -name 'step-*' -printf '%f\n' | sort -V | tr '\n' ' ')
[ "$found" = 'step-3.safetensors step-6.safetensors step-9.safetensors step-12.safetensors ' ] || fail "kept: $found"

finish
