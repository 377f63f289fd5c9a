#!/usr/bin/env bash
# GPT from the command line: text of bytes and packed tokens, the same numbers when a run is stopped and with more threads,
# text that is written, folders of transformers that are bad, and one clear line for each mistake.
# SPDX-License-Identifier: MIT
# shellcheck source=tests/support/shell_checks.sh
. "$(dirname "${BASH_SOURCE[0]}")/../support/shell_checks.sh"
"$ADAMOD" help train >/dev/null 2>&1 || exit 77 # built without the trainer

yes $'the cat sat on a mat\nthe dog ran, na\xefvely' | head -60 >train.txt || true # not UTF-8; yes is ended by a signal
head -8 train.txt >valid.txt
head -12 train.txt >test.txt
cat >tiny.yaml <<'END_OF_RECIPE'
name: tiny
data: {task: language, set: text, path: ., tokens: bytes, merges: 20, batch: 4, length: 12, valid_batch: 2}
model: {kind: gpt, layers: 2, d: 16, heads: 2}
optimizer: {rule: adamod, lr: 1e-2, beta2: 0.95, weight_decay: 0.1, no_decay: [biases, norms], clip_norm: 1,
            schedule: {lr: 'warmup(0,2)*2>constant*4>linear(0,6)'}}
generate: {samples: 2, tokens: 6, prompt: 50}
train: {steps: 12, accumulate: 2, evaluate_every: 4, checkpoint_every: 3, threads: 1, backend: cpu}
END_OF_RECIPE

train() { "$ADAMOD" train "$@" >said 2>err || fail "train $*: $(cat err)"; }
numbers() { # what must be equal between two runs
    sed -E 's/"(time|tokens_per_second)":[^,}]*,?//g' "$1/metrics.jsonl"
    cat "$1/samples.jsonl" "$1/vocab.json" "$1/merges.txt"
    "$ADAMOD" evaluate "$1" --json | sed -E 's/,"seconds":[^}]*//'
}

train tiny.yaml --out whole
grep -Eq '[0-9]+ tokens to train with, 96 in an update; ' err || fail "an update has 2 batches of 4 windows of 12 tokens, but: $(head -1 err)"
numbers whole >whole.txt
grep -q '"perplexity"' whole.txt || fail "evaluate says $(tail -1 whole.txt)"
[ "$(wc -l <whole/samples.jsonl)" -eq 2 ] || fail "samples are $(cat whole/samples.jsonl)"
train tiny.yaml --out parts --set train.steps=5
train tiny.yaml --out parts --resume --set train.threads=2
numbers parts | grep -v '"kind":"valid","step":5,' | cmp - whole.txt || fail "a run in parts ends elsewhere than one"

# ---- packed tokens ----

"$ADAMOD" text tokens pack --model whole --out train_0.bin train.txt >said 2>err || fail "pack: $(cat err)"
"$ADAMOD" text tokens pack --model whole --out val.bin valid.txt >said 2>err || fail "pack: $(cat err)"
packed=(--set data.set=packed --set 'data.train_file=train_*.bin')
train tiny.yaml --out packed "${packed[@]}" --set data.bpe=whole
cmp packed/vocab.json whole/vocab.json || fail "a run of packed tokens has another vocabulary"
train tiny.yaml --out halves "${packed[@]}" --set data.bpe=whole --set train.steps=7
train tiny.yaml --out halves "${packed[@]}" --set data.bpe=whole --resume
cmp <(numbers packed) <(numbers halves | grep -v '"kind":"valid","step":7,') || fail "a run of packed tokens in parts ends elsewhere"
train tiny.yaml --out ids "${packed[@]}" --set data.words=300
"$ADAMOD" generate ids --prompt '3 4' --tokens 3 >written
grep -Eq '^3 4( [0-9]+){3}$' written || fail "ids without a vocabulary are no numbers"
refused 2 'data.set is packed, which needs data.bpe, a vocabulary, or data.words, the number of ids' "$ADAMOD" train tiny.yaml \
    --out never "${packed[@]}"
refused 1 'but the vocabulary has 30 ids' "$ADAMOD" train tiny.yaml --out never "${packed[@]}" --set data.words=30
refused 1 'no_*.bin: cannot open' "$ADAMOD" train tiny.yaml --out never --set data.set=packed --set 'data.train_file=no_*.bin' --set data.words=300
refused 2 'data.set is packed, which only model.kind gpt reads, not lstm' "$ADAMOD" train tiny.yaml --out never "${packed[@]}" \
    --set model.kind=lstm
mkfifo pipe_0.bin
refused 1 'pipe_0.bin: not a regular file' timeout 20 "$ADAMOD" train tiny.yaml --out never --set data.set=packed \
    --set data.train_file=pipe_0.bin --set data.words=300
refused 1 'whole: its vocab.json belongs to recipe.yaml: choose another --model' "$ADAMOD" text tokens learn --model whole \
    --vocab 260 train.txt
cmp packed/vocab.json whole/vocab.json || fail "learn replaces the vocabulary of a run"
head -c 1100 train_0.bin >short_0.bin
refused 1 'short_0.bin: cut short' "$ADAMOD" train tiny.yaml --out never --set data.set=packed --set data.train_file=short_0.bin --set data.words=300
printf '\1\0' >one_0.bin
refused 1 'one_0.bin: room for 0 windows of data.length 12 and a next token, expected at least data.batch, 4' "$ADAMOD" train tiny.yaml --out never --set data.set=packed \
    --set data.train_file=one_0.bin --set data.words=300
for i in 1 2 3; do head -c 20 <(tail -c 40 val.bin) >"part_$i.bin"; done
refused 1 'part_*.bin: room for 0 windows of data.score_length 12 and a next token, expected at least 1' "$ADAMOD" train tiny.yaml \
    --out never "${packed[@]}" --set data.bpe=whole --set 'data.valid_file=part_*.bin'

# ---- evaluation on another file ----

mkdir -p elsewhere && cp test.txt elsewhere/words.txt
(cd elsewhere && "$ADAMOD" evaluate ../whole --data words.txt --json) | sed -E 's/,"seconds":[^}]*//' | cmp - <(tail -1 whole.txt) ||
    fail "--data is not a file in the current directory"
"$ADAMOD" evaluate packed --data 'val*.bin' >packed.txt
grep -q '^test set' packed.txt || fail "--data takes no packed tokens"
refused 2 '--split is valid, but --data is in place of the test set' "$ADAMOD" evaluate whole --data test.txt --split valid
refused 1 "$PWD/nowhere.txt: cannot open" "$ADAMOD" evaluate whole --data nowhere.txt
train "$SOURCE_DIR/recipes/gpt-demo.yaml" --out made --set train.steps=1 --set data.train=2000
refused 2 '--data is given, but data.set generated reads no files' "$ADAMOD" evaluate made --data test.txt

# ---- text that is written ----

"$ADAMOD" generate whole --prompt 'the cat' --tokens 30 --seed 3 >first
head -c 7 first | grep -q '^the cat' || fail "the prompt is not in $(cat first)"
"$ADAMOD" generate whole --prompt 'the cat' --tokens 30 --seed 3 --set train.threads=2 | cmp - first || fail "threads change the text"
"$ADAMOD" generate whole --prompt 'the cat' --tokens 5 --ids --seed 3 >numbers
grep -Eq '^[0-9]+( [0-9]+){5,}$' numbers || fail "--ids prints no numbers"
"$ADAMOD" generate whole --prompt $'na\xefve' --tokens 1 >bytes
head -c 5 bytes | cmp - <(printf 'na\xefve') || fail "a prompt is not any bytes"
long=$(printf 'the dog %.0s' {1..20})
refused 1 'tokens, expected at most model.context, 12' "$ADAMOD" generate whole --prompt "$long"

# ---- folders of transformers ----

"$ADAMOD" export whole --out hub || fail "export fails"
"$ADAMOD" generate hub --prompt 'the cat' --tokens 8 --temperature 0 --ids >theirs
"$ADAMOD" generate whole --prompt 'the cat' --tokens 8 --temperature 0 --ids | cmp - theirs || fail "an exported model writes another text"
refused 1 'hub: its vocab.json belongs to config.json: choose another --model' "$ADAMOD" text tokens learn --model hub \
    --vocab 260 train.txt
eighth=$(awk '{print $(NF - 7)}' theirs) # the first token behind the prompt
rm -rf ends && cp -r hub ends && sed -i "s/\"eos_token_id\": [0-9]*/\"eos_token_id\": $eighth/" ends/config.json
"$ADAMOD" generate ends --prompt 'the cat' --tokens 8 --temperature 0 --ids | cmp - <(awk '{NF -= 7; print}' theirs) ||
    fail "a text does not end where eos_token_id says"
"$ADAMOD" generate ends --prompt 'the cat' --tokens 8 --temperature 0 --ids --set generate.end=-1 | cmp - theirs ||
    fail "generate.end=-1 does not write on"
sed -i 's/"eos_token_id": [0-9]*/"eos_token_id": [1, 2]/' ends/config.json
"$ADAMOD" generate ends --prompt 'the cat' --tokens 8 --temperature 0 --ids | cmp - theirs || fail "a list of tokens ends a text"
"$ADAMOD" generate whole --prompt 'the cat' --tokens 8 --temperature 0 --ids --set "generate.end=$eighth" |
    cmp - <(awk '{NF -= 7; print}' theirs) || fail "a run's text does not end with generate.end"
"$ADAMOD" evaluate hub --data test.txt --json | sed -E 's/,"seconds":[^}]*//; s/"checkpoint":"[^"]*",//' >theirs
"$ADAMOD" evaluate whole --json | sed -E 's/,"seconds":[^}]*//; s/"checkpoint":"[^"]*",//' | cmp - theirs ||
    fail "an exported model has another loss"
train tiny.yaml --out tuned --init hub --set data.vocabularies=hub --set optimizer.lr=0
"$ADAMOD" evaluate tuned --json | sed -E 's/,"seconds":[^}]*//; s/"checkpoint":"[^"]*",//' | cmp - theirs ||
    fail "a run does not begin with a folder's weights"
refused 2 '--checkpoint is for runs, but hub is a folder of transformers' "$ADAMOD" generate hub --checkpoint last
refused 1 'val.bin: packed tokens, expected text: data.set packed reads them' "$ADAMOD" evaluate hub --data val.bin
"$ADAMOD" evaluate hub --data val.bin --set data.set=packed --set data.bpe=hub >packed.txt
grep -q '^test set' packed.txt || fail "a folder reads no packed tokens"
cd elsewhere && cp words.txt test.txt && cp words.txt valid.txt
refused 2 '../hub has a model, but no data: needs --data FILE' "$ADAMOD" evaluate ../hub
cd ..
refused 2 'needs --out DIR' "$ADAMOD" export whole
refused 1 'hub/config.json exists: choose another --out' "$ADAMOD" export whole --out hub
refused 1 'packed/recipe.yaml exists: choose another --out' "$ADAMOD" export whole --out packed
train tiny.yaml --out turned --set model.positions=rotary --set train.steps=1
refused 1 "a model of GPT-2's form is expected: model.positions learned" "$ADAMOD" export turned --out other
[ ! -e other ] || fail "a refused export leaves a folder"
refused 1 'wpe.weight is [12, 16], expected [13, 16]' "$ADAMOD" train tiny.yaml --out never --init-from hub --set data.vocabularies=hub \
    --set model.context=13
bad() { # bad MESSAGE SED: of a folder whose config.json is changed
    rm -rf bad && cp -r hub bad && sed -i "$2" bad/config.json
    refused 1 "$1" "$ADAMOD" generate bad
}
bad "model_type is 'llama', expected gpt2" 's/"gpt2"/"llama"/'
bad "activation_function is 'relu', expected gelu_new" 's/gelu_new/relu/'
bad 'layer_norm_epsilon is 0.1, expected 1e-5' 's/"layer_norm_epsilon": [^,]*/"layer_norm_epsilon": 0.1/'
bad 'bad/config.json: n_head is 3, expected a divisor of n_embd, 16' 's/"n_head": 2/"n_head": 3/'
bad 'there is no h.2.' 's/"n_layer": 2/"n_layer": 3/'
bad 'bad/config.json: byte 1: expected' 's/{/[/'
bad "bad/config.json: n_layer is '2.5', expected a whole number" 's/"n_layer": 2/"n_layer": 2.5/'
bad "bad/model.safetensors: the recipe's model has no h.1." 's/"n_layer": 2/"n_layer": 1/'
refused 1 "the recipe's model has no h.1." "$ADAMOD" train tiny.yaml --out never --init-from hub --set data.vocabularies=hub \
    --set model.layers=1
refused 1 "hub/config.json: n_head is 2, but the recipe's model.heads is 4" "$ADAMOD" train tiny.yaml --out never --init-from hub \
    --set data.vocabularies=hub --set model.heads=4
rm -rf bad && cp -r hub bad && sed -i 's/gelu_new/relu/' bad/config.json
refused 1 "bad/config.json: activation_function is 'relu'" "$ADAMOD" train tiny.yaml --out never --init-from bad/model.safetensors \
    --set data.vocabularies=hub
rm -rf bad && cp -r hub bad && rm bad/vocab.json
refused 1 'bad/vocab.json: cannot open' "$ADAMOD" generate bad
touch bad/tokenizer.json
refused 1 'bad/vocab.json: no such file, only tokenizer.json: in Python, ' "$ADAMOD" generate bad
cp hub/vocab.json bad && rm bad/model.safetensors
refused 1 'bad/model.safetensors: cannot open' "$ADAMOD" generate bad
rm -rf bad && cp -r hub bad && head -c 900 hub/model.safetensors >bad/model.safetensors
refused 1 'bad/model.safetensors: ' "$ADAMOD" generate bad

# Weights of 16 bits, with a causal mask, as old versions of transformers saved it: the loss of the same numbers in 32 bits.
python3 - <<'END_OF_PROGRAM'
import json, os, shutil, struct

data = open("hub/model.safetensors", "rb").read()
n = struct.unpack("<Q", data[:8])[0]
header, body = json.loads(data[8:8 + n]), data[8 + n:]
tensors = {name: (t["shape"], struct.unpack(f"<{(t['data_offsets'][1] - t['data_offsets'][0]) // 4}f", body[slice(*t["data_offsets"])]))
           for name, t in header.items() if name != "__metadata__"}
tensors["transformer.h.0.attn.bias"] = ([1, 1, 2, 2], (1, 0, 1, 1))


def save(folder, dtype, pack):
    shutil.copytree("hub", folder)
    entries, out = {}, b""
    for name, (shape, numbers) in tensors.items():
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(out)]}
        out += b"".join(map(pack, numbers))
        entries[name]["data_offsets"].append(len(out))
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    open(os.path.join(folder, "model.safetensors"), "wb").write(struct.pack("<Q", len(text)) + text + out)


save("f16", "F16", lambda x: struct.pack("<e", x))
save("f16-wide", "F32", lambda x: struct.pack("<f", *struct.unpack("<e", struct.pack("<e", x))))
save("nan", "F32", lambda x: struct.pack("<f", float("nan")))
save("bf16", "BF16", lambda x: struct.pack("<f", x)[2:])
save("bf16-wide", "F32", lambda x: b"\0\0" + struct.pack("<f", x)[2:])
END_OF_PROGRAM
for kind in f16 bf16; do
    "$ADAMOD" evaluate "$kind-wide" --data test.txt --json | sed -E 's/,"seconds":[^}]*//' >theirs
    "$ADAMOD" evaluate "$kind" --data test.txt --json | sed -E 's/,"seconds":[^}]*//' | cmp - theirs || fail "$kind weights have another loss"
done
cmp -s <("$ADAMOD" evaluate f16 --data test.txt) <("$ADAMOD" evaluate bf16 --data test.txt) && fail "all weights have one loss"
refused 1 "the model's scores are not finite" "$ADAMOD" generate nan
refused 1 'nan: the loss of the model.safetensors checkpoint is not finite' "$ADAMOD" evaluate nan --data test.txt

finish
