#!/usr/bin/env bash
# Pictures from the command line: the same numbers when a run is killed, predictions, and one clear line when something is
# wrong.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/support/shell_checks.sh
. "$(dirname "${BASH_SOURCE[0]}")/../support/shell_checks.sh"
"$ADAMOD" help train >/dev/null 2>&1 || exit 77 # built without the trainer

cat >tiny.yaml <<'END'
name: tiny
data: {task: images, train: 40, valid: 10, test: 20, batch: 16}
model: {kind: resnet, blocks: "1,1", widths: "4,4"}
optimizer: {rule: adamod, lr: 3e-3, schedule: {lr: multistep(2 epochs;0.1)}}
train: {epochs: 5, evaluate_every: 1 epoch, checkpoint_every: 2, threads: 1, backend: cpu}
END

numbers() { # what must be equal between two runs
    sed -E 's/"(time|images_per_second)":[^,}]*,?//g' "$1/metrics.jsonl"
    cat "$1/histograms.jsonl" "$1/classes.json"
    "$ADAMOD" evaluate "$1" --json | sed -E 's/,"seconds":[^}]*//'
}

"$ADAMOD" train tiny.yaml --out whole >said
grep -q '15 updates.*test accuracy [0-9.]* %' said || fail "train says $(cat said)"
numbers whole >whole.txt
[ "$(grep -c '"kind":"train".*"accuracy":' whole.txt)" -eq 15 ] || fail "training lines have no accuracy"
grep -q '{"split":"test","checkpoint":"best","images":20,"loss":' whole.txt || fail "evaluate says $(tail -1 whole.txt)"

"$ADAMOD" train tiny.yaml --out one --set train.steps=1 >said
grep -q 'one: 1 update in' said || fail "train says $(cat said)"

# Before the first update a run reports how far reading is; with progress off it does not.
"$ADAMOD" train tiny.yaml --out told --set train.epochs=1 --set train.progress_every=1e-9 >/dev/null 2>err
grep -q '^generating training pictures 40/40  0s left$' err || fail "a run that makes its data says $(cat err)"
grep -q '^generating test pictures 20/20  0s left$' err || fail "a run that makes its data says $(cat err)"
"$ADAMOD" train tiny.yaml --out quiet --set train.epochs=1 --set train.progress_every=0 >/dev/null 2>err
[ ! -s err ] || fail "a run without progress says $(cat err)"

# Killed at some moments, also between an epoch's batches.
for i in 1 2 3 4 5 6; do
    resume=--resume
    [ -e killed ] || resume=
    # shellcheck disable=SC2086
    "$ADAMOD" train tiny.yaml --out killed --set train.threads=2 $resume >/dev/null 2>&1 &
    pid=$!
    sleep "0.0$((i * 3 % 10))"
    kill -9 $pid 2>/dev/null || true
    wait $pid 2>/dev/null || true
    [ ! -e killed/result.json ] || break
done
resume=--resume
[ -e killed ] || resume=
# shellcheck disable=SC2086
[ -e killed/result.json ] || "$ADAMOD" train tiny.yaml --out killed --set train.threads=2 $resume >/dev/null
numbers killed | cmp - whole.txt || fail "a run that was killed, with two threads, ends elsewhere than one that was not"

grep -q '"limit":"train.evaluate_images"' whole/task.json || fail "reports are not told what limits evaluations"

# Two red pixels.
base64 -d >red.png <<'END'
iVBORw0KGgoAAAANSUhEUgAAAAIAAAABCAIAAAB7QOjdAAAADUlEQVR42mP4z8AARAAI/gH/GcBr
5wAAAABJRU5ErkJggg==
END
if "$ADAMOD" predict whole red.png >out 2>err; then
    grep -Eq '^red.png: [a-z ]+ [0-9.]+ %$' out || fail "predict says $(cat out)"
    "$ADAMOD" predict whole red.png red.png --top 20 --json >out
    [ "$(wc -l <out)" -eq 2 ] || fail "predict --json says $(cat out)"
    [ "$(grep -o '"label"' out | wc -l)" -eq 20 ] || fail "predict --top 20 of 10 classes says $(cat out)"
    grep -q '^{"image":"red.png","classes":\[{"label":"[a-z ]*","probability":0\.[0-9]*},' out || fail "says $(cat out)"
    echo text >text.png
    refused 1 'text.png: neither PNG nor JPEG' "$ADAMOD" predict whole text.png red.png
    grep -q '^red.png: ' out || fail "a bad picture keeps the others from being answered: $(cat out)"
    # Names of files speak neither to the terminal nor in lines of their own.
    cp red.png $'two\nlines\033.png' && cp text.png $'bad\nname.png'
    refused 1 'adamod: predict: bad?name.png: neither' "$ADAMOD" predict whole $'bad\nname.png' $'two\nlines\033.png'
    grep -q '^two?lines?.png: ' out || fail "predict says $(cat -v out)"
    cp red.png $'raw\x9b\xe4\xc3\xa4\xc2\x9b.png' # a control character of eight bits, and an umlaut in two encodings, one of them not UTF-8
    "$ADAMOD" predict whole $'raw\x9b\xe4\xc3\xa4\xc2\x9b.png' >out
    LC_ALL=C grep -aq $'^raw??\xc3\xa4?.png: ' out || fail "predict says $(cat -v out)"
    # Answers to many pictures come portion by portion: the first while the last is still to be written.
    mkfifo late.png
    read -ra many <<<"text.png $(printf 'red.png %.0s' {1..299})"
    "$ADAMOD" predict whole "${many[@]}" late.png >out 2>err &
    soon has_lines 255 out || true
    [ "$(wc -l <out)" -eq 255 ] || fail "predict has $(wc -l <out) answers before the last picture is there, expected 255"
    cat red.png >late.png
    if wait $!; then fail "predict takes text.png for a picture"; fi
    [ "$(wc -l <out)" -eq 300 ] || fail "predict has $(wc -l <out) answers to 300 pictures"
    tail -1 out | grep -q ^late.png: || fail "the last picture's answer is $(tail -1 out)"
    # A directory is all pictures below it, in order; links do not lead in circles, and what is bad is named.
    mkdir -p album/b/deep album/.hidden && ln -s .. album/b/loop && echo notes >album/notes.txt
    for name in album/z.png album/b/deep/two.PNG album/b/one.jpeg album/.hidden/x.png album/a.png; do cp red.png $name; done
    "$ADAMOD" predict whole red.png album/ >out 2>err || fail "a directory: $(cat err)"
    [ "$(sed 's/: .*//' out)" = $'red.png\nalbum/a.png\nalbum/b/deep/two.PNG\nalbum/b/one.jpeg\nalbum/z.png' ] ||
        fail "predict finds $(cat out)"
    cp text.png album/b && ln -s nowhere album/gone.png
    ! "$ADAMOD" predict whole album >out 2>err || fail "bad pictures of a directory are no failure"
    grep -q 'album/b/text.png: neither PNG nor JPEG' err && grep -q 'album/gone.png: cannot open' err &&
        [ "$(wc -l <err)" -eq 2 ] && [ "$(wc -l <out)" -eq 4 ] ||
        fail "of a directory with bad pictures predict says $(cat err out)"
    mkdir -p folder/a folder/b
    cp red.png folder/a && cp red.png folder/b && cp text.png folder/b
    folder=(--set data.set=folder --set data.path=folder --set data.batch=1 --set data.hold_out=40)
    refused 1 'folder/b/text.png: neither PNG nor JPEG' "$ADAMOD" train tiny.yaml --out bad "${folder[@]}"
    cp -r folder tested && rm tested/b/text.png
    "$ADAMOD" train tiny.yaml --out folder-mlp --set model.kind=mlp --set model.layers=0 --set train.steps=1 >/dev/null
    "$ADAMOD" train tiny.yaml --out folder-run "${folder[@]}" --set data.unreadable=skip --set data.test_path=tested \
        >out 2>err || fail "says $(cat err)"
    reason='the first .*folder/b/text.png: neither PNG nor JPEG'
    grep -q "folder: used 2 of 3 pictures; 1 cannot be read, $reason; no picture to train on of 1 of 2 classes$" err ||
        fail "skipping says $(cat err)"
    grep -q '/tested: of 2 test pictures 2 are training pictures too$' err || fail "testing on training data says $(cat err)"
    grep -q '/folder: of 1 validation pictures 1 are training pictures too$' err || fail "says $(cat err)"
    "$ADAMOD" train tiny.yaml --out folder-told "${folder[@]}" --set data.unreadable=skip --set train.progress_every=1e-9 \
        >/dev/null 2>err || fail "says $(cat err)"
    cp red.png folder/lost.png && cp red.png folder/a/red.webp && mkdir folder/a/nested
    "$ADAMOD" train tiny.yaml --out folder-lost "${folder[@]}" --set data.unreadable=skip >/dev/null 2>lost ||
        fail "says $(cat lost)"
    grep -q 'passed over 3 that are not .png, .jpg or .jpeg files of a class, the first a/nested$' lost || fail "says $(cat lost)"
    rm -r folder/lost.png folder/a/red.webp folder/a/nested
    grep -q '^reading training pictures 3/3  0s left$' err || fail "reading a folder says $(cat err)"
    "$ADAMOD" evaluate folder-run --split valid >out 2>err
    if grep "not the .* data" err; then fail "evaluate takes the same data for others"; fi
    # With two classes the five likeliest are no measure.
    if grep -r 'top.\?5"\?:\? *[0-9]' out folder-run/metrics.jsonl; then fail "a top 5 of two classes"; fi
    "$ADAMOD" evaluate whole | grep -q 'top 5 [0-9.]* %' || fail "ten classes have no top 5"
    mv folder away
    refused 1 '/folder: cannot open: No such file or directory' "$ADAMOD" evaluate folder-run --split valid
    "$ADAMOD" evaluate folder-run >out 2>&1 || fail "a test without the validation pictures says $(cat out)"
    mv tested other
    refused 1 '/tested: cannot open: No such file or directory' "$ADAMOD" evaluate folder-run
    refused 1 '/folder: cannot open: No such file or directory' "$ADAMOD" evaluate folder-run --split valid
    mv away folder && mv other tested
    refused 1 '/nowhere: cannot open: No such file' "$ADAMOD" evaluate folder-run --split valid --set data.valid_path="$PWD/nowhere"
    "$ADAMOD" evaluate folder-run --set data.valid_path="$PWD/nowhere" >out 2>&1 ||
        fail "a test without the folder of validation pictures says $(cat out)"
    # Fine-tuning with other classes: the layer of classes begins anew, all else where the other run ended.
    tune=("$ADAMOD" train tiny.yaml "${folder[@]}" --set data.unreadable=skip --set train.steps=1 --init-from whole)
    refused 1 "best.safetensors: made with other classes; --set 'train.init_skip=linear.*' makes a new layer for these" \
        "${tune[@]}" --out never
    refused 1 "train.init_skip: no parameter is called 'linaer.*'; did you mean 'linear.*'?" "${tune[@]}" --out never \
        --set 'train.init_skip=linaer.*'
    refused 1 "train.init_skip: no parameter is called 'fc'; names begin with stem,stages,linear" "${tune[@]}" --out never \
        --set 'train.init_skip=linear.*,fc'
    refused 2 'train.init_skip is given, but train.init_from, whose weights it is about, is not' "$ADAMOD" train tiny.yaml \
        --out never --set 'train.init_skip=linear.*'
    "${tune[@]}" --out tuned --set 'train.init_skip=linear.*' >said 2>err || fail "fine-tuning says $(cat err)"
    refused 1 "made with other classes; --set 'train.init_skip=layers.0.*'" "$ADAMOD" train tiny.yaml --out never \
        "${folder[@]}" --set data.unreadable=skip --set model.kind=mlp --set model.layers=0 --init-from folder-mlp
    # With other pictures, others are held out: some that were trained on.
    cp red.png folder/a/more.png && cp red.png folder/b/more.png
    "$ADAMOD" evaluate folder-run --split valid >out 2>err
    grep -q '/folder: not the validation data that the run had; it may' err || fail "evaluate says $(cat err)"
else
    grep -q 'this build reads no PNG' err || fail "predict says $(cat err)"
fi
refused 1 'none.png: cannot open: No such file or directory' "$ADAMOD" predict whole none.png
refused 2 'needs a picture or a directory after the run directory' "$ADAMOD" predict whole
mkdir -p nothing/deeper && echo text >nothing/notes.txt
refused 1 'nothing: no picture in this directory, expected .png, .jpg or .jpeg' "$ADAMOD" predict whole nothing
refused 2 "--top is '0', expected a whole number from 1" "$ADAMOD" predict whole none.png --top 0
refused 2 '--beam is for translation, but the run is of data.task images' "$ADAMOD" evaluate whole --beam 3
refused 1 'data.task images does not translate' "$ADAMOD" translate whole </dev/null
refused 1 'shapes: data.batch is 41, but there are 40 training pictures' "$ADAMOD" train tiny.yaml --out never \
    --set data.batch=41
refused 1 'cifar/data_batch_1.bin: cannot open' "$ADAMOD" train tiny.yaml --out never --set data.set=cifar10 \
    --set data.path=cifar
# A signal does not wait for data.
mkdir cifar && mkfifo cifar/data_batch_1.bin
"$ADAMOD" train tiny.yaml --out never --set data.set=cifar10 --set data.path=cifar --set data.any_size=true >out 2>err &
pid=$!
exec 3>cifar/data_batch_1.bin # which it now reads
kill -INT $pid
for _ in $(seq 600); do
    kill -0 $pid 2>/dev/null || break
    sleep 0.1
done
kill -9 $pid 2>/dev/null && fail "Ctrl-C does not end a run that reads its data"
status=0 && wait $pid || status=$?
[ $status -eq 130 ] || fail "a run that reads its data ends with status $status after Ctrl-C: $(cat err)"
exec 3>&-
rm whole/classes.txt
refused 1 'whole/classes.txt: cannot open' "$ADAMOD" evaluate whole
[ ! -e never ] || fail "a run that was refused left a directory"

finish
