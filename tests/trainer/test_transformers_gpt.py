#!/usr/bin/env python3
"""GPT-2 of Hugging Face's transformers, in and out: the text and the loss of a random model that it saved, one that goes on
from its weights, and the loss that it finds in a model that was exported.

ADAMOD is the program. Without transformers the test is skipped (77).

SPDX-License-Identifier: MIT
"""
import json
import os
import subprocess
import sys
import tempfile

try:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, GPT2TokenizerFast
except ImportError as error:
    print(f"skip: {error}")
    sys.exit(77)

SOURCE = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
ADAMOD = os.environ.get("ADAMOD", os.path.join(SOURCE, "build", "adamod"))
TEXT = "".join(f"Line {i}: the quick brown fox jumps over {i * i} lazy dogs, naïvely – 你好.\n" for i in range(150))
CONTEXT = 48
RECIPE = f"""
name: tuned
data: {{task: language, set: text, path: ., tokens: bytes, vocabularies: hub, train_file: text.txt, valid_file: text.txt,
       test_file: text.txt, batch: 4, length: 40}}
model: {{kind: gpt, layers: 3, d: 32, heads: 4, context: {CONTEXT}}}
optimizer: {{rule: adam, lr: 1e-3}}
generate: {{samples: 0}}
train: {{steps: 5, evaluate_every: 0, checkpoint_every: 0, threads: 1, backend: cpu}}
"""


def run(*words):
    return subprocess.run([ADAMOD, *words], check=True, stdout=subprocess.PIPE, encoding="utf-8", errors="replace").stdout


def make_hub():
    """A random model whose tokens are likely or not."""
    run("text", "tokens", "learn", "--model", "hub", "--vocab", "400", "text.txt")
    torch.manual_seed(1)
    words = len(json.load(open("hub/vocab.json", encoding="utf-8")))
    config = GPT2Config(n_layer=3, n_embd=32, n_head=4, n_positions=CONTEXT, vocab_size=words, initializer_range=0.3,
                        bos_token_id=words - 1, eos_token_id=words - 1)
    model = GPT2LMHeadModel(config).eval()
    for name, x in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(x, 0, 0.1)
    model.save_pretrained("hub")
    return model


def tokenizer():
    return GPT2TokenizerFast("hub/vocab.json", "hub/merges.txt")


@torch.no_grad()
def loss(model, ids, length):
    """The loss of all tokens but the first, in windows of `length`."""
    total = 0.
    for at in range(0, len(ids) - 1, length):
        x, y = ids[at:at + length], ids[at + 1:at + length + 1]
        logits = model(torch.tensor([x[:len(y)]])).logits[0].double()
        total += torch.nn.functional.cross_entropy(logits, torch.tensor(y), reduction="sum").item()
    return total / (len(ids) - 1)


@torch.no_grad()
def greedy(model, ids, n):
    ids = list(ids)
    for _ in range(n):
        ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    return ids


def until_end(model, ids, end, n):
    """As transformers itself goes on, to its eos_token_id."""
    model.generation_config.eos_token_id = end
    ids = torch.tensor([ids])
    return model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=n, do_sample=False,
                          pad_token_id=end)[0].tolist()


def set_end(folder, end):
    with open(f"{folder}/config.json", encoding="utf-8") as file:
        config = json.load(file)
    with open(f"{folder}/config.json", "w", encoding="utf-8") as file:
        json.dump({**config, "eos_token_id": end}, file)


def same(what, ours, theirs, bound):
    print(f"{what}: {ours:.8f} here, {theirs:.8f} in transformers")
    return abs(ours - theirs) <= bound * abs(theirs)


def evaluated(*words):
    return json.loads(run("evaluate", *words, "--json"))["loss"]


def main():
    good = True
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        open("text.txt", "w", encoding="utf-8").write(TEXT)
        open("r.yaml", "w").write(RECIPE)
        model, tokens = make_hub(), tokenizer()
        ids = tokens(TEXT)["input_ids"]
        prompt = "the quick naïve 你好"
        wanted = greedy(model, tokens(prompt)["input_ids"], 24)
        found = run("generate", "hub", "--prompt", prompt, "--tokens", "24", "--temperature", "0", "--ids")
        good &= [int(x) for x in found.split()] == wanted
        print(f"ids: {found}wanted: {wanted}")
        written = run("generate", "hub", "--prompt", prompt, "--tokens", "24", "--temperature", "0")
        good &= written.rstrip("\n") == tokens.decode(wanted, clean_up_tokenization_spaces=False).rstrip("\n")

        prompted = tokens(prompt)["input_ids"]
        end = wanted[len(prompted) + 3]
        for value in (end, None):
            set_end("hub", value)
            expected = until_end(model, prompted, end, 24) if value is not None else wanted
            found = [int(x) for x in run("generate", "hub", "--prompt", prompt, "--tokens", "24", "--temperature", "0",
                                         "--ids").split()]
            good &= found == expected
            print(f"eos_token_id {value}: {len(found)} ids, {len(expected)} in transformers")
        good &= same("loss of a folder", evaluated("hub", "--data", "text.txt"), loss(model, ids, CONTEXT), 2e-6)

        run("train", "r.yaml", "--out", "tuned", "--init-from", "hub")
        run("export", "tuned", "--out", "exported")
        after = GPT2LMHeadModel.from_pretrained("exported").eval()
        good &= same("loss of a run that began with it", evaluated("tuned"), loss(after, ids, 40), 2e-6)
        good &= loss(after, ids, 40) < loss(model, ids, 40)
        good &= same("loss of what was exported", evaluated("exported", "--data", "text.txt"),
                     loss(after, ids, CONTEXT), 2e-6)
    print("good" if good else "NOT as transformers")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
