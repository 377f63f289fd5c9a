#!/usr/bin/env python3
"""Tokens a second of `adamod generate` and of transformers' generate on the CPU: GPT-2 with 124 million random weights, the same
prompt, always the likeliest token.

    python3 bench/generate.py [--adamod PROGRAM] [--tokens N] [--threads N] [--rounds N]

The programs take turns. A token's time is that of N tokens less that of one, the least of the rounds each; so loading and the
prompt do not count. They are shown too: for adamod the whole run of one token, for transformers the call alone. The exit status
is 1 if the texts differ. Needs torch and transformers.

SPDX-License-Identifier: MIT
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

import torch
import transformers

WORDS = "the model of a language writes text and reads words which come before it in order to say what may follow".split()


def byte_letters():
    """The letters that stand for bytes in GPT-2's vocabularies."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return [chr(b) for b in plain] + [chr(256 + i) for i in range(256 - len(plain))]


def save_model(folder):
    """GPT-2 with larger weights than it begins with, so that its text does not repeat one token; all its words but the bytes
    are pairs of bytes."""
    torch.manual_seed(1)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config())
    for name, x in model.named_parameters():
        if x.ndim == 2 and "wte" not in name:
            x.data.mul_(3)
    model.save_pretrained(folder)
    letters = byte_letters()
    pairs = [(a, b) for a in letters for b in letters][:50000]
    words = letters + [a + b for a, b in pairs] + ["<|endoftext|>"]
    with open(os.path.join(folder, "vocab.json"), "w", encoding="utf-8") as file:
        json.dump({word: i for i, word in enumerate(words)}, file)
    with open(os.path.join(folder, "merges.txt"), "w", encoding="utf-8") as file:
        file.write("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in pairs))
    return model.eval()


def adamod(arguments, folder, tokens):
    """Seconds, and the ids of prompt and text."""
    command = [arguments.adamod, "generate", folder, "--device", "cpu", "--set", f"train.threads={arguments.threads}", "--prompt",
               " ".join(WORDS * 2), "--tokens", str(tokens), "--temperature", "0", "--ids"]
    start = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return time.perf_counter() - start, [int(x) for x in done.stdout.split()]


def peer(model, ids, tokens):
    x = torch.tensor([ids])
    start = time.perf_counter()
    with torch.no_grad():
        y = model.generate(x, attention_mask=torch.ones_like(x), do_sample=False, max_new_tokens=tokens, min_new_tokens=tokens,
                           pad_token_id=50256)
    return time.perf_counter() - start, y[0].tolist()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--adamod", default="build/adamod")
    parser.add_argument("--tokens", type=int, default=257)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(arguments.threads)
    counts, best = (1, arguments.tokens), {}
    with tempfile.TemporaryDirectory() as folder:
        model = save_model(folder)
        prompt = adamod(arguments, folder, 1)[1][:-1]
        peer(model, prompt, 1)
        for _ in range(arguments.rounds):
            for n in counts:
                runs = {"adamod": adamod(arguments, folder, n), "transformers": peer(model, prompt, n)}
                for name, (seconds, ids) in runs.items():
                    best[name, n] = min(best.get((name, n), seconds), seconds)
                if runs["adamod"][1] != runs["transformers"][1]:
                    sys.exit("the texts differ")
    print(f"prompt of {len(prompt)} tokens, {arguments.threads} threads, torch {torch.__version__}, "
          f"transformers {transformers.__version__}")
    for name in ("adamod", "transformers"):
        each = (best[name, counts[1]] - best[name, 1]) / (counts[1] - 1)
        print(f"{name:14}{1e3 * each:8.2f} ms a token{1 / each:8.1f} tokens/s{1e3 * best[name, 1]:10.0f} ms for the first")


if __name__ == "__main__":
    main()
