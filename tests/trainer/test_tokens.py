#!/usr/bin/env python3
"""`adamod text tokens` against Hugging Face's tokenizers and tiktoken: merges learned from a text that this program makes, and
ids of odd text in many scripts. The expected ones were computed by these packages (tokenizers 0.23.3, tiktoken 0.14.0; --record
prints them); where they are installed, they are asked again. Also files, documents, and what is wrong with input.

ADAMOD is the program. Needs nothing but Python.

SPDX-License-Identifier: MIT
"""
import hashlib
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
PROGRAM = os.path.abspath(os.environ.get("ADAMOD", os.path.join(ROOT, "build", "adamod")))
PATTERN = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
END = "<|endoftext|>"

# ---- text ----

WORDS = ["the", "then", "there", "other", "low", "lower", "lowest", "newer", "it's", "we'll", "I'd", "they've", "Straße", "naïve",
         "мир", "Привет", "Ελλάδα", "世界", "こんにちは", "한국어", "مرحبا", "שלום", "नमस्ते", "สวัสดี", "ქართული", "አማርኛ", "😀", "👩‍👧",
         "123", "2024", "3.14", "١٢٣", "४५", "½", "--", "...", "!?", "aaaa", "abcabc"]
ODD = ["Hello, world! It's 2024; we'll see, they'VE said: I'd've.", "''s 'S 'll 'lx d'", "  two   three    four", " end  ", "\t\ttabs\t x",
       "no\u00a0break \u00a0\u00a0 \u3000wide\u2028line", "zero\u200bwidth \u200d \ufeffmark", "e\u0301 n\u0303o\u0308 \u0301alone",
       "١٢٣ ४५६ ๑๒ Ⅷ ½ ² ① 𝟙 1,000.00", "Привет, мир! Ελληνικά; 世界、こんにちは。 한국어 مرحبا שלום नमस्ते สวัสดี தமிழ் ქართული አማርኛ",
       "😀😀 👩‍👩‍👧‍👦 🇩🇪 ☕️ 👍🏽", "\x00\x01\x1b[0m \x1c\x1d \x7f \x85x", "x" * 80 + " " * 70 + "=" * 70, "𠀀𝒳 𐐀 𞗰 \U000323af",
       "snake_case camelCase HTTP2 a1b2 #tag @name https://x.org/?q=1&r=%20", "\ufffd <|endoftext|> <|endoftext|", "lowerlowest newerthen"]


def chooser(seed):
    """Numbers below n, the same in every version of Python."""
    numbers = random.Random(seed)
    return lambda n: int(numbers.random() * n)


def training_text():
    """Lines of words, with ties, runs and ends of all kinds."""
    choose = chooser(33)
    out, n = [], len(WORDS)
    for _ in range(3000):
        words = [WORDS[choose(n) * choose(n) // n] + (WORDS[choose(n)] if choose(2) else "") for _ in range(1 + choose(12))]
        indent, between = " " * choose(3) if choose(9) == 0 else "", " " if choose(7) else "  "
        out.append(indent + between.join(words) + ["\n", "\r\n", " \n", "\n\n"][choose(4)])
    return "".join(out)


MERGES = "3853dc8b31ae7a9a85243a2a6f969cbe00238e201b59c8f3b5f112cb85146ef5"
IDS = "3487f81425d20c46cf421a18d3485926837dbfbae4bb2f02769231a83513fc89"
FIRST = [
    "39 68 75 260 11 220 86 78 81 75 67 0 355 83 285 462 26 367 293 220 82 68 68 11 356 6 53 36 220 82 64 72 67 25 355 "
    "288 290 13",
    "438 11 410 0 220 138 322 274 115 138 121 138 117 138 118 138 105 26 431 159 222 223 353 159 222 224 451 446 456 454 "
    "377 374 376 455 368 371 369 220 156 106 97 156 106 106 156 106 123 156 106 112 156 107 235 457 460",
    "87 87 87 87 87 87 87 87 87 87 87 87 87 87 87 87 87 87 87 87 87 87 87 87 87 87 87 87 87 87 87 87 87 87 87 87 87 87 87 "
    "87 87 87 87 87 87 87 87 87 87 87 87 87 87 87 87 87 87 87 87 87 87 87 87 87 87 87 87 87 87 87 87 87 87 87 87 87 87 87 "
    "87 87 220 220 220 220 220 220 220 220 220 220 220 220 220 220 220 220 220 220 220 220 220 220 220 220 220 220 220 "
    "220 220 220 220 220 220 220 220 220 220 220 220 220 220 220 220 220 220 220 220 220 220 220 220 220 220 220 220 220 "
    "220 220 220 220 220 220 220 220 220 220 220 220 220 220 28 28 28 28 28 28 28 28 28 28 28 28 28 28 28 28 28 28 28 28 "
    "28 28 28 28 28 28 28 28 28 28 28 28 28 28 28 28 28 28 28 28 28 28 28 28 28 28 28 28 28 28 28 28 28 28 28 28 28 28 28 "
    "28 28 28 28 28 28 28 28 28 28 28",
]


class Failed(Exception):
    pass


def check(condition, *what):
    if not condition:
        raise Failed(" ".join(str(x) for x in what))


def digest(text):
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def read(path):
    with open(path, "rb") as file:
        return file.read()


def write(path, content):
    with open(path, "wb") as file:
        file.write(content if isinstance(content, bytes) else content.encode("utf-8"))


def run(*arguments, given=b""):
    result = subprocess.run([PROGRAM, "text", "tokens", *arguments], input=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            timeout=60)
    return result.returncode, result.stdout, result.stderr.decode()


def succeed(*arguments, given=b"", said=""):
    status, out, err = run(*arguments, given=given)
    check(status == 0 and (said in err if said else not err), arguments, "gave", status, err)
    return out


def refuse(status, message, *arguments, given=b""):
    found, _, err = run(*arguments, given=given)
    check(found == status and err.count("\n") == 1 and err.startswith("adamod: text tokens "), arguments, "gave", found, err)
    check(message in err, arguments, "said", err, "without", message)


# ---- other packages ----

def of_tokenizers(folder):
    from tokenizers import ByteLevelBPETokenizer
    return ByteLevelBPETokenizer.from_file(folder + "/vocab.json", folder + "/merges.txt")


def of_tiktoken(folder):
    import tiktoken
    with open(folder + "/vocab.json", encoding="utf-8") as file:
        ids = json.load(file)
    bytes_of, n = {}, 0
    for byte in range(256):
        if 33 <= byte <= 126 or 161 <= byte <= 172 or 174 <= byte:
            bytes_of[chr(byte)] = byte
        else:
            bytes_of[chr(256 + n)] = byte
            n += 1
    ranks = {bytes(bytes_of[c] for c in token): i for token, i in ids.items() if token != END}
    return tiktoken.Encoding("test", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={END: ids[END]})


def learn_there(paths, folder):
    from tokenizers import ByteLevelBPETokenizer
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train(files=paths, vocab_size=1000, min_frequency=3, special_tokens=[END], show_progress=False)
    os.makedirs(folder, exist_ok=True)
    tokenizer.save_model(folder)


def lines_of(ids):
    return "".join(" ".join(str(i) for i in line) + "\n" for line in ids)


def odd_lines():
    """The odd lines, and random joins of their words."""
    choose = chooser(34)
    parts = [part for line in ODD for part in (line[:7], line[7:])] + [" ", "  ", "'", "\t"]
    more = ["".join(parts[choose(len(parts))] for _ in range(1 + choose(6))) for _ in range(500)]
    return ODD + [line for line in more if line]


# ---- tests ----

def test_same_as_others():
    write("train.txt", training_text())
    succeed("learn", "--model", "m", "--vocab", "1000", "--min-frequency", "3", "train.txt")
    merges = read("m/merges.txt").decode()
    check(merges.startswith("#version: 0.2\n") and merges.count("\n") == 1000 - 257 + 1, "merges:", merges.count("\n"))
    check(digest(merges) == MERGES, "other merges than Hugging Face's")
    vocab = json.loads(read("m/vocab.json"))
    check(sorted(vocab.values()) == list(range(1000)) and vocab["!"] == 0 and vocab["Ġ"] == 220 and vocab[END] == 999, "other ids")
    lines = odd_lines()
    given = "".join(line + "\n" for line in lines).encode()
    out = succeed("encode", "--model", "m", given=given).decode()
    check([out.split("\n")[i] for i in (0, 9, 12)] == FIRST, "other ids:", out.split("\n")[:13])
    check(digest(out) == IDS, "other ids than tiktoken's")
    check(succeed("decode", "--model", "m", given=out.encode()) == given, "another text")


def test_packages():
    """Asks the packages that are here."""
    lines = odd_lines()
    given = "".join(line + "\n" for line in lines).encode()
    marked = succeed("encode", "--special", "--model", "m", given=given).decode()
    plain = succeed("encode", "--model", "m", given=given).decode()
    asked = []
    try:
        learn_there(["train.txt"], "hf")
        check(read("hf/merges.txt") == read("m/merges.txt"), "other merges than those of tokenizers")
        tokenizer = of_tokenizers("m")
        check(lines_of(tokenizer.encode(line).ids for line in lines) == plain, "other ids than tokenizers")
        tokenizer.add_special_tokens([END])
        check(lines_of(tokenizer.encode(line).ids for line in lines) == marked, "other ids than tokenizers, marked")
        there = of_tokenizers("hf")  # its mark has the id 0
        out = succeed("encode", "--model", "hf", given=given).decode()
        check(lines_of(there.encode(line).ids for line in lines) == out, "other ids from files of tokenizers")
        asked.append("tokenizers")
    except ImportError:
        pass
    try:
        encoding = of_tiktoken("m")
        check(lines_of(encoding.encode_ordinary(line) for line in lines) == plain, "other ids than tiktoken")
        check(lines_of(encoding.encode(line, allowed_special="all") for line in lines) == marked, "other ids than tiktoken, marked")
        asked.append("tiktoken")
    except ImportError:
        pass
    print("  packages asked: %s" % (", ".join(asked) or "none are here"))


def test_any_bytes():
    choose = random.Random(35)
    lines = [choose.randbytes(choose.randrange(60)).replace(b"\n", b"").rstrip(b"\r") for _ in range(2000)]
    given = b"".join(line + b"\n" for line in lines)
    given = given[2:] if given[:2] in (b"\xff\xfe", b"\xfe\xff") else given  # no UTF-16
    ids = succeed("encode", "--model", "m", "--threads", "1", given=given)
    check(succeed("encode", "--model", "m", "--threads", "3", given=given) == ids, "threads matter")
    check(succeed("decode", "--model", "m", given=ids) == given, "another text")
    check(succeed("encode", "--model", "m", given=b"\n\nx") == b"\n\n87\n", "empty lines")


def test_pack():
    write("one.txt", "First words.\r\n\r\nMore\n\n\n\nthe last")
    write("two.txt", b"\xff\x00 and bytes")
    end, e = 999, lambda text: [int(i) for i in succeed("encode", "--model", "m", given=text).split()]
    newline = json.loads(read("m/vocab.json"))["Ċ"]
    out = succeed("pack", "--model", "m", "--out", "t.bin", "one.txt", "two.txt")
    body = read("t.bin")
    ids = list(struct.unpack("<%dH" % ((len(body) - 1024) // 2), body[1024:]))
    check(struct.unpack("<256i", body[:1024]) == (20240520, 1, len(ids)) + (0,) * 253, "another header")
    check(out == b"%d tokens\n" % len(ids), out)
    check(ids[0] == end and ids.count(end) == 2 and ids[ids.index(end, 1) + 1:] == e(b"\xff\x00 and bytes"), "documents:", ids)
    text = succeed("decode", "--model", "m", given=" ".join(str(i) for i in ids).encode())
    check(text == END.encode() + read("one.txt") + END.encode() + read("two.txt") + b"\n", "another text:", text)
    succeed("pack", "--model", "m", "--out", "l.bin", "--document", "line", "one.txt")
    body = read("l.bin")
    ids = list(struct.unpack("<%dH" % ((len(body) - 1024) // 2), body[1024:]))
    check(ids == [end, *e(b"First words."), end, *e(b"More"), end, *e(b"the last")], "lines:", ids)
    succeed("pack", "--model", "m", "--out", "b.bin", "--document", "blank", given=b"a\n\nb\n")
    check(read("b.bin")[1024:] == struct.pack("<7H", end, *e(b"a"), newline, newline, end, *e(b"b"), newline), "paragraphs")
    succeed("pack", "--model", "m", "--out", "s.bin", "--special", given=b"a" + END.encode() + b"b")
    check(read("s.bin")[1024:] == struct.pack("<4H", end, *e(b"a"), end, *e(b"b")), "marks")
    before = read("t.bin")
    refuse(1, "no text to pack", "pack", "--model", "m", "--out", "t.bin", given=b"")
    refuse(1, "nowhere.txt: cannot open", "pack", "--model", "m", "--out", "t.bin", "nowhere.txt")
    check(read("t.bin") == before, "a failure changed the file")
    refuse(2, "--document is 'page', expected", "pack", "--model", "m", "--out", "t.bin", "--document", "page")
    refuse(2, "needs --out FILE", "pack", "--model", "m")


def test_wrong_input():
    for command in ("learn", "encode", "decode", "pack"):
        refuse(2, "needs --model DIR", command)
    refuse(1, "nowhere/vocab.json: ", "encode", "--model", "nowhere")
    refuse(1, "standard input:2: '1000' is no id, expected whole numbers from 0 to 999", "decode", "--model", "m", given=b"1\n5 1000\n")
    for word in ("x", "-1", "1.5", "99999999999999999999", "+1"):
        refuse(1, "'%s' is no id" % word, "decode", "--model", "m", given=word.encode())
    refuse(2, "--vocab is '256', expected a whole number from 257", "learn", "--model", "x", "--vocab", "256")
    succeed("learn", "--model", "few", given=b"ab ab", said="258 tokens: no other pair is seen 2 times")
    os.makedirs("bad", exist_ok=True)
    vocab, merges = read("m/vocab.json"), read("m/merges.txt")
    for name, content, message in (("vocab.json", vocab[:-9], "bad/vocab.json: byte "), ("vocab.json", b"\x1f\x8b", "bad/vocab.json: byte 1"),
                                   ("merges.txt", merges[:-2], "bad/merges.txt:744: "),
                                   ("merges.txt", merges[:merges.rindex(b"\n", 0, -1) + 1], "bad/merges.txt: no merge makes token"),
                                   ("merges.txt", merges + merges.split(b"\n")[1] + b"\n", "bad/merges.txt:745: the merge is already in line 2")):
        write("bad/vocab.json", vocab)
        write("bad/merges.txt", merges)
        write("bad/" + name, content)
        refuse(1, message, "encode", "--model", "bad")
    # more ids than 16 bits can say: tokens that no merge makes are in brackets
    many = json.loads(vocab)
    many.update({"<%d>" % i: i for i in range(len(many), 65537)})
    write("bad/vocab.json", json.dumps(many))
    write("bad/merges.txt", merges)
    check(succeed("encode", "--model", "bad", given=b"the\n") == succeed("encode", "--model", "m", given=b"the\n"), "more tokens")
    refuse(1, "bad: 65537 tokens, expected at most 65536: the file has 16 bits for each", "pack", "--model", "bad", "--out", "x.bin")
    del many[END]
    many = {token: i for i, token in enumerate(list(many)[:2000])}
    write("bad/vocab.json", json.dumps(many))
    refuse(1, "bad/vocab.json: no token <|endoftext|>", "pack", "--model", "bad", "--out", "x.bin")


def record():
    write("train.txt", training_text())
    learn_there(["train.txt"], "hf")
    merges = read("hf/merges.txt").decode()
    succeed("learn", "--model", "m", "--vocab", "1000", "--min-frequency", "3", "train.txt")
    encoding = of_tiktoken("m")
    ids = lines_of(encoding.encode_ordinary(line) for line in odd_lines())
    print(digest(merges), digest(ids), [ids.split("\n")[i] for i in (0, 9, 12)], sep="\n")


def main():
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        if sys.argv[1:] == ["--record"]:
            return record()
        failed = 0
        for test in (test_same_as_others, test_packages, test_any_bytes, test_pack, test_wrong_input):
            try:
                test()
                print("ok %s" % test.__name__)
            except Failed as failure:
                failed += 1
                print("FAILED %s: %s" % (test.__name__, failure))
        os.chdir(ROOT)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
