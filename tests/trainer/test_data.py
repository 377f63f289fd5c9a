#!/usr/bin/env python3
"""Data sets: `adamod data` against a server of its own on loopback, which is slow, lies and breaks off, with archives of the
layout of the real ones; and training on what was prepared.

ADAMOD is the program. Needs nothing but Python and openssl, and libcurl and libarchive for the program.

SPDX-License-Identifier: MIT
"""
import base64
import gzip
import hashlib
import http.server
import io
import json
import os
import random
import resource
import signal
import ssl
import struct
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
PROGRAM = os.path.abspath(os.environ.get("ADAMOD", os.path.join(ROOT, "build", "adamod")))


class Failed(Exception):
    pass


def check(condition, *what):
    if not condition:
        raise Failed(" ".join(str(x) for x in what))


# ---- the server ----

FILES = {}  # path on the server: bytes
SEEN = []   # (path, Range) of every request but those of programs that wait while other tests run
CUT = 20000  # bytes of an answer that breaks off


class Handler(http.server.BaseHTTPRequestHandler):
    """The first part of a path says how the rest is served."""
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def answer(self, status, body, headers=(), length=None):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError:
            pass
        if length is not None:
            self.close_connection = True

    def do_GET(self):
        path = self.path[len("http://elsewhere.invalid"):] if self.path.startswith("http://elsewhere") else self.path
        asked = self.headers.get("Range")
        if not path.startswith(WAITING):
            SEEN.append((self.path, asked))
        way, name = path[1:].split("?")[0].split("/", 1)
        if way == "redirect":
            return self.answer(302, b"", [("Location", "/plain/" + name)])
        if way == "down":  # from an encrypted address to one that is not
            return self.answer(302, b"", [("Location", ADDRESS + "/plain/" + name)])
        if way == "secret" and self.headers.get("Authorization") != "Basic " + base64.b64encode(SECRET).decode():
            return self.answer(401, b"who are you?")
        if way == "away":
            return self.answer(302, b"", [("Location", "gopher://%s@elsewhere.invalid/x?token=topsecret" % SECRET.decode())])
        if way == "loop":
            return self.answer(302, b"", [("Location", path)])
        if way == "inside":
            return self.answer(302, b"", [("Location", "file:///etc/passwd")])
        if way == "broken":
            return self.answer(500, b"sorry")
        if way == "portal":  # a network that wants people to log in first
            return self.answer(200, b"<html>log in</html>")
        if way == "huge":
            return self.answer(200, b"<html>", length=10 ** 13)
        if name not in FILES:
            return self.answer(404, b"<html>no such file</html>")
        body = FILES[name]
        if way == "wrong":
            body = bytes([body[0] ^ 1]) + body[1:]
        if way == "longer":
            body += b"more"
        if way in ("endless", "forever", "overrange"):  # no length at all, and more than there should be
            self.send_response(206 if way == "overrange" else 200)
            if way == "overrange":
                self.send_header("Content-Range", "bytes %s%d/%d" % (asked[len("bytes="):], len(body) - 1, len(body)))
            self.end_headers()
            self.close_connection = True
            try:
                self.wfile.write(body + b"more" * 100)
                while way == "forever":
                    self.wfile.write(b"more" * 20000)
            except OSError:
                pass
            return None
        start, status, headers = 0, 200, []
        if asked and way != "norange":
            start = int(asked[len("bytes="):].split("-")[0])
            if start >= len(body):
                return self.answer(416, b"", [("Content-Range", "bytes */%d" % len(body))])
            sent = 0 if way == "otherrange" else start
            headers, status = [("Content-Range", "bytes %d-%d/%d" % (sent, len(body) - 1, len(body)))], 206
        rest = body[start:]
        if way == "cut":
            return self.answer(status, rest[:CUT], headers, len(rest))
        if way == "cutforever" and start > 0:
            return self.answer(status, b"", headers, len(rest))
        if way == "cutforever":
            return self.answer(status, rest[:CUT], headers, len(rest))
        if way in ("slow", "stall"):
            self.send_response(status)
            for header in headers:
                self.send_header(*header)
            self.send_header("Content-Length", str(len(rest)))
            self.end_headers()
            while way == "slow" and not RELEASE.wait(0.1):
                self.wfile.write(b"x")
            self.wfile.write(rest[:1 if start else CUT])  # a byte every time: not nothing, and it would never end
            self.wfile.flush()
            STALLED.set()
            RELEASE.wait(60)
            self.close_connection = True
            return None
        return self.answer(status, rest, headers)


SECRET = b"user:geheim"
WAITING = ("/stall/cifar100/", "/slow/")
STALLED, RELEASE = threading.Event(), threading.Event()
SERVER = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
SERVER.daemon_threads = True
SERVER.handle_error = lambda *arguments: None  # programs that break off are the point
ADDRESS = "http://127.0.0.1:%d" % SERVER.server_address[1]


# ---- archives like the real ones ----

def tar(members, how="w:gz"):
    """members: name to bytes, or a TarInfo with what is special about it."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=how) as archive:
        for name, content in members.items() if isinstance(members, dict) else members:
            if isinstance(content, tarfile.TarInfo):
                archive.addfile(content)
                continue
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return file.getvalue()


def lines(*texts):
    return "".join(text + "\n" for text in texts).encode()


def xml(*texts):
    segments = ['<seg id="%d"> %s </seg>' % (i + 1, text) for i, text in enumerate(texts)]
    return lines('<?xml version="1.0"?>', "<doc>", *segments, "</doc>")


DE = ["Das ist gut.", "Ein Hund läuft.", "Wir sehen das Haus, ja?", "Am 26. um 11."]
EN = ["This is good.", "A dog runs.", "We see the house, don't we?", "On the 26th at 11."]
# A pair of which one side is more than 1.5 times as long, which is left out.
UNEQUAL = ("Ja.", "Yes, that is what I mean here.")


def training(texts, odd, n):
    out = []
    for i in range(n):
        out.append(texts[i % 4].replace(".", " wort%d." % i) if i % 4 < 3 else texts[3])
    out.insert(5, odd)
    return out


def picture_records(n, labels):
    return b"".join(bytes([i % 10] * labels) + random.Random(i).randbytes(3072) for i in range(n))


def iwslt():
    head = ["<url>http://x</url>", "<talkid>1</talkid>", "<keywords>a, b</keywords>"]
    members = {}
    for language, texts, odd in (("de", DE, UNEQUAL[0]), ("en", EN, UNEQUAL[1])):
        body = training(texts, odd, 50)
        members["de-en/train.tags.de-en." + language] = lines(
            *head, "<title>%s</title>" % body[0], "<description>%s</description>" % body[1], *body[2:])
        for name in ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012"):
            right = "Es geht’s &amp; gut." if language == "de" else "It’s &amp; good."
            members["de-en/IWSLT14.%s.de-en.%s.xml" % (name, language)] = xml(name, right)
    members["de-en/README"] = b"read me"
    return members


WMT = {"training-parallel-europarl-v7.tgz": ("training/europarl-v7.de-en.", 120),
       "training-parallel-commoncrawl.tgz": ("commoncrawl.de-en.", 60),
       "training-parallel-nc-v9.tgz": ("training/news-commentary-v9.de-en.", 30)}


def wmt(file):
    if file == "test-full.tgz":
        return {"test-full/newstest2014-deen-src.en.sgm": xml(*EN), "test-full/newstest2014-deen-ref.de.sgm": xml(*DE)}
    prefix, n = WMT[file]
    members = {prefix + "en": lines(*training(["“" + text + "” well-known, a <url>" for text in EN], UNEQUAL[1], n)),
               prefix + "de": lines(*training(["„" + text + "“ wohl\u200bbekannt <url>" for text in DE], UNEQUAL[0], n))}
    if "europarl" in file:  # a surrogate and a zero byte, as Perl lets them through
        members[prefix + "de"] = members[prefix + "de"].replace(b"Hund", b"Hu\xed\xa0\x80nd\0", 1)
    members["training/europarl-v7.fr-en.fr"] = b"non\n" * 1000
    return members


def tokens(n, header=True, most=50257):
    """A file of n tokens, as llm.c writes it."""
    ids = random.Random(n).choices(range(most), k=n)
    return (struct.pack("<256i", 20240520, 1, n, *[0] * 253) if header else b"") + struct.pack("<%dH" % n, *ids)


SHARDS = ["finewebedu_val_000000.bin", *["finewebedu_train_%06d.bin" % i for i in range(1, 11)]]


def make_files():
    FILES["tinyshakespeare/input.txt"] = lines(*["Speak, speak. %d" % i for i in range(1000)])
    for part in ("train", "valid"):
        FILES["tinystories/TinyStories-%s.txt" % part] = lines("Once upon a time", "there was a %s." % part, "<|endoftext|>")
    for i, name in enumerate(SHARDS):
        FILES["fineweb-edu/" + name] = tokens(1000 + i)
    FILES["cifar10/cifar-10-binary.tar.gz"] = tar({
        **{"cifar-10-batches-bin/data_batch_%d.bin" % i: picture_records(4, 1) for i in range(1, 6)},
        "cifar-10-batches-bin/test_batch.bin": picture_records(10, 1),
        "cifar-10-batches-bin/batches.meta.txt": lines(*"abcdefghij"), "cifar-10-batches-bin/readme.html": b"x"})
    FILES["cifar100/cifar-100-binary.tar.gz"] = tar({
        "cifar-100-binary/train.bin": picture_records(20, 2), "cifar-100-binary/test.bin": picture_records(10, 2),
        "cifar-100-binary/fine_label_names.txt": lines(*["f%d" % i for i in range(100)]),
        "cifar-100-binary/coarse_label_names.txt": lines(*["c%d" % i for i in range(20)])})
    for part in ("train", "valid", "test"):
        FILES["ptb/ptb.%s.txt" % part] = lines(*[" the cat %s on the <unk> N mat " % word for word in ["sat"] * 300])
    for language, texts in (("de", DE), ("en", EN)):
        for part in ("train", "val", "test_2016_flickr"):
            FILES["multi30k-de-en/%s.%s.gz" % (part, language)] = gzip.compress(lines(*texts * 20))
    FILES["iwslt14-de-en/de-en.tgz"] = tar(iwslt())
    for file in (*WMT, "test-full.tgz"):
        FILES["wmt14-en-de/" + file] = tar(wmt(file))


# ---- the program ----

class Place:
    """A cache of its own, and what the program is told of addresses."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(dir=SCRATCH)
        self.mirrors = os.path.join(self.folder, "mirrors")
        self.environment = {**os.environ, "ADAMOD_DATA": os.path.join(self.folder, "cache"), "HOME": self.folder,
                            "no_proxy": "", "http_proxy": ""}
        self.environment.pop("XDG_CONFIG_HOME", None)

    def point(self, way, names=None, size=True, checksum="sha256"):
        """Every file of the table, on the server, served in one way."""
        with open(self.mirrors, "w", encoding="utf-8") as file:
            file.write("# test\n")
            for name, body in FILES.items():
                if names and name not in names:
                    continue
                known = "none" if checksum == "none" else checksum + ":" + hashlib.new(checksum, body).hexdigest()
                file.write("%s %s %s/%s/%s %d %s\n" % (*name.split("/"), ADDRESS, way, name, len(body) if size else 0,
                                                       known))
        return self

    def command(self, *arguments, timeout=30):
        return [PROGRAM, "data", arguments[0], "--mirrors", self.mirrors, "--timeout", str(timeout), *arguments[1:]]

    def run(self, *arguments, **keywords):
        result = subprocess.run(self.command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60,
                                env={**self.environment, **keywords.pop("env", {})}, **keywords)
        return result.returncode, result.stdout.decode(), result.stderr.decode()

    def succeed(self, *arguments, said=0, **keywords):
        status, out, err = self.run(*arguments, **keywords)
        check(status == 0 and err.count("\n") == said, arguments, "gave", status, err)
        return out, err

    def refuse(self, message, *arguments, noted=0, **keywords):
        """One line, behind the notes, that begins with "adamod: " and has the message; nothing on standard output."""
        status, out, err = self.run(*arguments, **keywords)
        check(status == 1 and not out, arguments, "gave", status, out, err)
        check(err.count("\n") == 1 + noted and err.startswith("adamod: data "), arguments, "said", err)
        check(message in err.split("\n")[noted], arguments, "said", err, "without", message)
        return err

    def state(self, name):
        out = subprocess.run([PROGRAM, "data", "list", name], env=self.environment, stdout=subprocess.PIPE, check=True)
        return out.stdout.decode().split("  state       ")[1].split("\n")[0]

    def path(self, *parts):
        return os.path.join(self.folder, "cache", *parts)

    def read(self, *parts):
        with open(self.path(*parts), "rb") as file:
            return file.read()

    def text(self, *parts):
        return self.read(*parts).decode().split("\n")[:-1]


NAME = "iwslt14-de-en/de-en.tgz"
CIFAR = "cifar10/cifar-10-binary.tar.gz"


def one_line_of(err, *parts):
    for part in parts:
        check(part in err, err, "has no", part)


# ---- downloads ----

def test_get():
    place = Place().point("plain")
    out, _ = place.succeed("get", "ptb", "cifar10")
    check(out.split() == [place.path("downloads", "ptb"), place.path("downloads", "cifar10")], out)
    check(place.read("downloads", CIFAR) == FILES[CIFAR], "another file")
    before = len(SEEN)
    place.succeed("get", "ptb")
    check(len(SEEN) == before, "what is there is fetched again")
    out = subprocess.run([PROGRAM, "data", "list", "--json"], env=place.environment, stdout=subprocess.PIPE, check=True).stdout
    states = {s["name"]: s["state"] for s in json.loads(out)}
    check(states["ptb"] == "fetched" and states["cifar100"] == "not here", states)


def test_redirect_and_range():
    place = Place().point("redirect", [CIFAR], checksum="md5")
    place.succeed("get", "cifar10")
    check(place.read("downloads", CIFAR) == FILES[CIFAR], "another file")
    # begun before: only the rest is asked for
    place = Place().point("redirect", [CIFAR])
    os.makedirs(place.path("downloads", "cifar10"))
    with open(place.path("downloads", CIFAR + ".part"), "wb") as file:
        file.write(FILES[CIFAR][:700])
    place.succeed("get", "cifar10")
    check(SEEN[-1] == ("/plain/" + CIFAR, "bytes=700-"), SEEN[-1])
    check(place.read("downloads", CIFAR) == FILES[CIFAR], "another file")
    # a server that cannot do that sends all
    place = Place().point("norange", [CIFAR])
    os.makedirs(place.path("downloads", "cifar10"))
    with open(place.path("downloads", CIFAR + ".part"), "wb") as file:
        file.write(b"x" * 700)
    place.succeed("get", "cifar10")
    check(place.read("downloads", CIFAR) == FILES[CIFAR], "another file")


def test_answers_that_are_not_the_file():
    """Files fetched before stay."""
    for way, size, message in (("portal", True, "the server has 19 bytes, expected %d" % len(FILES[CIFAR])),
                               ("huge", False, "the server has 10000000000000 bytes, expected at most")):
        place = Place().point(way, [CIFAR], size=size)
        os.makedirs(place.path("downloads", "cifar10"))
        with open(place.path("downloads", CIFAR + ".part"), "wb") as file:
            file.write(FILES[CIFAR][:700])
        place.refuse(message, "get", "cifar10")
        check(place.read("downloads", CIFAR + ".part") == FILES[CIFAR][:700], "lost by", way)


def test_parts_that_do_not_fit():
    place = Place().point("plain", [CIFAR])
    os.makedirs(place.path("downloads", "cifar10"))
    with open(place.path("downloads", CIFAR + ".part"), "wb") as file:
        file.write(b"x" * 700)
    _, err = place.succeed("get", "cifar10", said=1)
    one_line_of(err, "do not fit")
    check(place.read("downloads", CIFAR) == FILES[CIFAR], "another file")
    # a part that is longer than the file, of which the size is not known
    place = Place().point("plain", [CIFAR], size=False)
    os.makedirs(place.path("downloads", "cifar10"))
    with open(place.path("downloads", CIFAR + ".part"), "wb") as file:
        file.write(b"x" * (len(FILES[CIFAR]) + 5))
    place.succeed("get", "cifar10")
    # and one that is all of it
    place = Place().point("plain", [CIFAR], size=False)
    os.makedirs(place.path("downloads", "cifar10"))
    with open(place.path("downloads", CIFAR + ".part"), "wb") as file:
        file.write(FILES[CIFAR])
    place.succeed("get", "cifar10")
    check(place.read("downloads", CIFAR) == FILES[CIFAR], "another file")
    place = Place().point("otherrange", [CIFAR])
    os.makedirs(place.path("downloads", "cifar10"))
    with open(place.path("downloads", CIFAR + ".part"), "wb") as file:
        file.write(b"x" * 700)
    place.refuse("bytes from 0 on, asked for those from 700", "get", "cifar10")


def test_truncated():
    place = Place().point("cut", [CIFAR])
    before = len(SEEN)
    place.succeed("get", "cifar10")
    check(place.read("downloads", CIFAR) == FILES[CIFAR], "another file")
    check(len(SEEN) - before == -(-len(FILES[CIFAR]) // CUT), "requests:", len(SEEN) - before)
    place = Place().point("cutforever", [CIFAR])
    place.refuse("repeat the command to continue the download", "get", "cifar10")
    check(place.read("downloads", CIFAR + ".part") == FILES[CIFAR][:CUT], "not kept")
    place.point("plain", [CIFAR]).succeed("get", "cifar10")
    check(SEEN[-1][1] == "bytes=%d-" % CUT, SEEN[-1])


def test_liars():
    place = Place()
    for way, message in (("longer", "the server has %d bytes, expected %d" % (len(FILES[CIFAR]) + 4, len(FILES[CIFAR]))),
                         ("endless", "more than the %d bytes" % len(FILES[CIFAR])), ("missing-way/x", "status 404"),
                         ("broken", "status 500"), ("loop", "redirects"), ("inside", "another address, which is neither http nor https")):
        place = Place().point(way, [CIFAR])
        err = place.refuse(message, "get", "cifar10")
        check("passwd" not in err, err)
        check(not os.path.exists(place.path("downloads", CIFAR)), way, "left a file")
    place = Place().point("wrong", [CIFAR])
    err = place.refuse("its SHA-256 is ", "get", "cifar10")
    one_line_of(err, hashlib.sha256(FILES[CIFAR]).hexdigest(), "kept as cifar-10-binary.tar.gz.bad")
    check(sorted(os.listdir(place.path("downloads", "cifar10"))) == ["cifar-10-binary.tar.gz.bad"], "other files")
    Place().point("wrong", [CIFAR], checksum="md5").refuse("its MD5 is ", "get", "cifar10")


NOT_ENCRYPTED = "is not encrypted: whoever is on the way there can change the file"


def unknown(way, names=(NAME,)):
    """A place where no checksum of a file is known."""
    return Place().point(way, names, size=False, checksum="none")


def test_first_download():
    """Its checksum counts from then on, but only if the set could be prepared from it."""
    place = unknown("portal")
    err = place.refuse("what came is no archive but a web page; kept as de-en.tgz.bad", "get", "iwslt14-de-en", noted=1)
    one_line_of(err, NOT_ENCRYPTED)
    check(os.listdir(place.path("downloads", "iwslt14-de-en")) == ["de-en.tgz.bad"], "a page of the network is recorded")
    texts = ["ptb/ptb.%s.txt" % part for part in ("train", "valid", "test")]
    unknown("plain", texts).succeed("get", "ptb", said=3)  # which are no archives
    real = FILES[NAME]
    faulty = iwslt()
    del faulty["de-en/IWSLT14.TED.tst2012.de-en.en.xml"]
    try:
        place = unknown("plain")
        for bad, message in ((real[:len(real) // 2], "truncated"), (tar(faulty), "has no 'de-en/IWSLT14.TED.tst2012.de-en.en.xml'")):
            FILES[NAME] = bad
            place.refuse(message, "prepare", "iwslt14-de-en", noted=1)
            check(os.listdir(place.path("downloads", "iwslt14-de-en")) == ["de-en.tgz.bad"], message, "is kept")
        FILES[NAME] = tar({**iwslt(), "de-en/train.tags.de-en.de": b"eins\n"})
        place.refuse("differ in their numbers of lines", "prepare", "iwslt14-de-en", noted=1)
        check(not os.path.exists(place.path("downloads", NAME + ".sha256")), "what cannot be prepared is recorded")
        os.remove(place.path("downloads", NAME))
    finally:
        FILES[NAME] = real
    _, err = place.succeed("prepare", "iwslt14-de-en", said=2)
    one_line_of(err, "no checksum is published; its SHA-256 is recorded", NOT_ENCRYPTED)
    digest = hashlib.sha256(FILES[NAME]).hexdigest()
    check(place.text("downloads", NAME + ".sha256") == [digest + "  de-en.tgz"], "another record")
    place.succeed("get", "iwslt14-de-en")
    # what has changed here is set apart and fetched again; what has changed there is refused
    with open(place.path("downloads", NAME), "ab") as file:
        file.write(b"x")
    _, err = place.succeed("get", "iwslt14-de-en", said=1)
    one_line_of(err, "that of an earlier download", "kept as de-en.tgz.bad")
    os.remove(place.path("downloads", NAME))
    place.point("wrong", [NAME], size=False, checksum="none")
    place.refuse("that of an earlier download, as %s says; delete that record if the new file is right" %
                 place.path("downloads", NAME + ".sha256"), "get", "iwslt14-de-en")
    # and taken when that is done
    os.remove(place.path("downloads", NAME + ".sha256"))
    place.point("plain", [NAME], size=False, checksum="none").succeed("prepare", "--again", "iwslt14-de-en", said=2)


def put(place, name, body):
    os.makedirs(os.path.dirname(place.path("downloads", name)), exist_ok=True)
    with open(place.path("downloads", name), "wb") as file:
        file.write(body)


def test_packed_anew():
    """Files that people have put here themselves: test_data_sets.c has those that are taken."""
    for name, message in ((NAME, "de-en/train.tags.de-en.de: 51 lines, the published set has 174443; no checksum says that"),
                          (CIFAR, "data_batch_1.bin: 12292 bytes, the published set has 30730000; no checksum says that")):
        place = unknown("plain", ["none of them"])
        put(place, name, FILES[name])
        one_line_of(place.refuse(message, "prepare", name.split("/")[0], noted=name == CIFAR),
                    "delete what is not, to download it")
        check(sorted(os.listdir(os.path.dirname(place.path("downloads", name)))) == [name.split("/")[1]], "moved or recorded")
        check(os.listdir(place.path("prepared")) == [], "left", os.listdir(place.path("prepared")))


def test_limits_of_servers():
    """One that never stops ends at the size that it has announced, or at one that the file cannot have."""
    name = "multi30k-de-en/train.de.gz"
    unknown("forever", [name]).refuse("sends more than the 6370440 bytes expected", "get", "multi30k-de-en", noted=1)
    place = unknown("overrange", [CIFAR])
    put(place, CIFAR + ".part", FILES[CIFAR][:700])
    place.refuse("sends more than the %d bytes expected" % len(FILES[CIFAR]), "get", "cifar10", noted=1)


def test_passwords():
    """Neither they nor tokens are printed, whatever fails; and they are sent."""
    body, secret = FILES[CIFAR], SECRET.decode()
    place = Place()

    def point(address, known="sha256:" + hashlib.sha256(body).hexdigest()):
        with open(place.mirrors, "w", encoding="utf-8") as file:
            file.write("cifar10 cifar-10-binary.tar.gz %s?token=topsecret %d %s\n" % (address, len(body), known))

    def check_hidden(*arguments, **keywords):
        status, _, err = place.run("get", *arguments, "cifar10", **keywords)
        check(status and err.count("\n") == 1, status, err)
        for word in ("geheim", "heim", "topsecret", "user"):
            check(word not in err, err, "has", word)
        return err

    host = "127.0.0.1:%d" % SERVER.server_address[1]
    for way in ("broken", "missing-way/x", "cutforever", "wrong", "loop", "inside", "away", "portal", "longer"):
        point("http://%s@%s/%s/%s" % (secret, host, way, CIFAR))
        check_hidden()
        if os.path.exists(place.path("downloads", CIFAR + ".part")):
            os.remove(place.path("downloads", CIFAR + ".part"))
    one_line_of(check_hidden(), "http://***@%s/longer/%s?***: " % (host, CIFAR))
    for address in ("http://%s@elsewhere.invalid/x" % secret, "http://%s@127.0.0.1:1/x" % secret,
                    "http://user:ge/heim@127.0.0.1:1/x", "http://user:g@eheim@127.0.0.1:1/x", "https://%s@%s/x" % (secret, host)):
        point(address)
        check_hidden()
    point("http://%s/plain/%s" % (host, CIFAR))
    check_hidden(env={"http_proxy": "odd://%s@127.0.0.1:1" % secret})
    status, _, err = place.run("get", "--mirror", "ftp://%s@host/?topsecret" % secret, "cifar10")
    check(status == 2 and "ftp://***@host/?***" in err and "geheim" not in err and "topsecret" not in err, err)
    point("http://%s@%s/secret/%s" % (secret, host, CIFAR), "none")
    _, err = place.succeed("get", "cifar10", said=1)
    check(NOT_ENCRYPTED in err and "geheim" not in err and "topsecret" not in err, err)
    check(place.read("downloads", CIFAR) == body, "another file")


def test_encrypted():
    """No server leads from an encrypted address to one that is not, and none is believed without a certificate."""
    certificate, key = os.path.join(SCRATCH, "certificate"), os.path.join(SCRATCH, "key")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                    "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
                   check=True, stderr=subprocess.DEVNULL)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *arguments: None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    trusted = {"SSL_CERT_FILE": certificate, "CURL_CA_BUNDLE": ""}
    place = Place()

    def point(way):
        with open(place.mirrors, "w", encoding="utf-8") as file:
            file.write("cifar10 cifar-10-binary.tar.gz https://127.0.0.1:%d/%s/%s %d sha256:%s\n" % (
                server.server_address[1], way, CIFAR, len(FILES[CIFAR]), hashlib.sha256(FILES[CIFAR]).hexdigest()))

    try:
        point("plain")
        place.refuse("ertificate", "get", "cifar10", env={"SSL_CERT_FILE": "", "CURL_CA_BUNDLE": ""})
        point("down")
        before = len(SEEN)
        place.refuse("the server leads to another address, which is not https", "get", "cifar10", env=trusted)
        check([path for path, _ in SEEN[before:]] == ["/down/" + CIFAR], "asked for", SEEN[before:])
        check(not os.path.exists(place.path("downloads", CIFAR)), "a file came without encryption")
        point("redirect")
        place.succeed("get", "cifar10", env=trusted)
        check(place.read("downloads", CIFAR) == FILES[CIFAR], "another file")
    finally:
        server.shutdown()
        server.server_close()


def test_stalled_and_killed():
    place = Place().point("stall", [CIFAR])
    STALLED.clear()
    program = subprocess.Popen(place.command("get", "cifar10"), env=place.environment, stderr=subprocess.DEVNULL)
    STALLED.wait(60)
    part = place.path("downloads", CIFAR + ".part")
    for _ in range(6000):
        if os.path.exists(part) and os.path.getsize(part) == CUT:
            break
        time.sleep(0.01)
    place.refuse("in use by another process", "get", "cifar10")
    program.send_signal(signal.SIGKILL)
    program.wait()
    check(os.path.getsize(part) == CUT, "not kept")
    before = len(SEEN)
    place.point("plain", [CIFAR]).succeed("get", "cifar10")
    check(SEEN[before:] == [("/plain/" + CIFAR, "bytes=%d-" % CUT)], SEEN[before:])


SLOW = "multi30k-de-en/train.de.gz"


def start_waiting():
    """Servers that say next to nothing, or that slowly: the program waits a second, twice, while other tests run."""
    started = []
    for way, name in (("stall", "cifar100/cifar-100-binary.tar.gz"), ("slow", SLOW)):
        place = Place().point(way, [name])
        started.append((place, subprocess.Popen(place.command("get", name.split("/")[0], timeout=1), env=place.environment,
                                                stderr=subprocess.PIPE)))
    return started


def test_waiting(started):
    for place, program in started:
        err = program.communicate(timeout=60)[1].decode()
        check(program.returncode == 1 and err.count("\n") == 1, program.returncode, err)
        one_line_of(err, "repeat the command to continue the download")
        if SLOW in err:
            one_line_of(err, "fewer than 1000 bytes a second came for 1 seconds")
            continue
        check("no data came for 1 seconds" in err or "fewer than 1000 bytes a second" in err, err)
        part = place.read("downloads", "cifar100/cifar-100-binary.tar.gz.part")
        check(part == FILES["cifar100/cifar-100-binary.tar.gz"][:CUT + 1], "not kept", len(part))
    RELEASE.set()


def test_mirrors():
    place = Place().point("broken", [CIFAR])
    status, _, err = place.run("get", "--mirror", ADDRESS + "/nowhere/at-all/", "--mirror", ADDRESS + "/plain", "cifar10")
    check(status == 0 and err.count("\n") == 1 and "status 404" in err, err)
    # a folder of this machine is a mirror, too: another cache's downloads
    other = Place().point("broken", [CIFAR])
    other.succeed("get", "--mirror", "file://" + place.path("downloads"), "cifar10")
    check(other.read("downloads", CIFAR) == FILES[CIFAR], "another file")
    # the usual file
    usual = Place()
    os.makedirs(os.path.join(usual.folder, ".config", "adamod"))
    place.point("plain", [CIFAR])
    os.rename(place.mirrors, os.path.join(usual.folder, ".config", "adamod", "mirrors"))
    subprocess.run([PROGRAM, "data", "get", "cifar10"], env=usual.environment, check=True, stdout=subprocess.DEVNULL)
    bad = Place()
    for line, message in (("cifar10", "expected: mirror URL"), ("mirror ftp://x", "expected http://"), ("mirror https://", "expected http://HOST"),
                          ("cifar11 x http://x", "no data set"), ("cifar10 x http://x", "no file"),
                          ("cifar10 cifar-10-binary.tar.gz http://x many", "number of bytes"),
                          ("cifar10 cifar-10-binary.tar.gz http://x 5 sha256:12", "sha256:")):
        with open(bad.mirrors, "w", encoding="utf-8") as file:
            file.write("\n%s\n" % line)
        bad.refuse("mirrors:2: ", "get", "cifar10")
        bad.refuse(message, "get", "cifar10")


def test_proxy_and_no_network():
    place = Place()
    with open(place.mirrors, "w", encoding="utf-8") as file:
        file.write("cifar10 cifar-10-binary.tar.gz http://elsewhere.invalid/plain/%s %d sha256:%s\n" % (
            CIFAR, len(FILES[CIFAR]), hashlib.sha256(FILES[CIFAR]).hexdigest()))
    place.refuse("esolve", "get", "cifar10")
    place.succeed("get", "cifar10", env={"http_proxy": ADDRESS})
    check(SEEN[-1][0].startswith("http://elsewhere.invalid/"), SEEN[-1])
    place = Place().point("plain", [CIFAR])
    place.refuse("downloads need libcurl", "get", "cifar10", env={"ADAMOD_CURL_LIBRARY": "/nowhere.so"})
    place.refuse("unpacking needs libarchive", "prepare", "cifar10", env={"ADAMOD_ARCHIVE_LIBRARY": "/nowhere.so"})
    check(place.read("downloads", CIFAR) == FILES[CIFAR], "what was fetched is gone")
    check(not os.path.exists(place.path("prepared", "cifar10")), "prepared")
    place.refuse("expected an absolute path", "get", "cifar10", env={"ADAMOD_DATA": "here"})
    if os.path.isdir("/sys/kernel"):  # no directory can be made there: the message gives the reason
        reason = subprocess.run(["mkdir", "/sys/adamod"], env={"LC_ALL": "C"}, capture_output=True, check=False).stderr
        place.refuse("cannot make this directory: " + reason.decode().strip().split(": ")[-1], "get", "cifar10",
                     env={"ADAMOD_DATA": "/sys/adamod/data"})


def limit_files(size):
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    return {"preexec_fn": limit, "restore_signals": False}


def test_full_disk():
    place = Place().point("plain", [CIFAR])
    err = place.refuse("cannot write: ", "get", "cifar10", **limit_files(15000))
    one_line_of(err, "bytes are kept", ".part")
    check(0 < os.path.getsize(place.path("downloads", CIFAR + ".part")) <= 15000, "not kept")
    place.succeed("get", "cifar10")
    check(SEEN[-1][1] is not None, "from the beginning")
    place.refuse("cannot write", "prepare", "cifar10", **limit_files(8000))
    check(os.listdir(place.path("prepared")) == [], os.listdir(place.path("prepared")))
    place.succeed("prepare", "cifar10")
    with open(place.mirrors, "a", encoding="utf-8") as file:
        file.write("ptb ptb.train.txt %s/plain/ptb/ptb.train.txt 900000000000000 none\n" % ADDRESS)
    place.refuse("MB are free", "get", "ptb", noted=1)


# ---- archives ----

def special(name, kind, target=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def test_archives():
    good = {"cifar-10-batches-bin/data_batch_%d.bin" % i: b"x" for i in range(1, 6)}
    good.update({"cifar-10-batches-bin/test_batch.bin": b"x", "cifar-10-batches-bin/batches.meta.txt": b"x"})
    first = "cifar-10-batches-bin/data_batch_1.bin"
    some = [item for item in good.items() if item[0] != first]
    bomb = b"\0" * 20_000_000
    whole = tar(good)
    cases = [
        (tar([("../up", b"x"), *good.items()]), "leads out"),
        (tar([("a/../../up", b"x"), *good.items()]), "leads out"),
        (tar([("/tmp/up", b"x"), *good.items()]), "absolute"),
        (tar([(first, special(first, tarfile.SYMTYPE, "/etc/passwd")), *some]), "symbolic link"),
        (tar([("cifar-10-batches-bin", special("cifar-10-batches-bin", tarfile.SYMTYPE, "/tmp")), *good.items()]),
         "symbolic link"),
        (tar([(first, special(first, tarfile.LNKTYPE, "/etc/passwd")), *some]), "hard link"),
        (tar([("d", special("d", tarfile.CHRTYPE)), *good.items()]), "neither a file nor a folder"),
        (tar([("d", special("d", tarfile.FIFOTYPE)), *good.items()]), "neither a file nor a folder"),
        (tar(some), "has no '" + first),
        (tar([*good.items(), (first, b"y")]), "twice"),
        (tar([("zero", bomb), *good.items()]), "times its size"),
        (tar([(first, bomb), *some]), "times its size"),
        (gzip.compress(whole), "compressed more than once"),
        (whole[:len(whole) // 2], "not an archive"),
        (b"hello, I am no archive" * 30, "not an archive"),
        (b"", "ended after 0 bytes"),
        (tar({name: b"" for name in good}), "'%s' in it is empty" % first),
        (tar({**good, "cifar-10-batches-bin/test_batch.bin": b""}), "test_batch.bin' in it is empty"),
    ]
    huge = tarfile.TarInfo(first)
    huge.size = 10 ** 15
    cases.append((gzip.compress(huge.tobuf(tarfile.GNU_FORMAT) + b"x" * 512), "more than the 200000000 bytes"))
    real = FILES[CIFAR]
    try:
        for body, message in cases:
            FILES[CIFAR] = body
            place = Place().point("plain", [CIFAR])
            place.refuse(message, "prepare", "cifar10")
            left = os.listdir(place.path("prepared")) if os.path.exists(place.path("prepared")) else []
            check(left == [], message, "left", left)
    finally:
        FILES[CIFAR] = real
    check(not os.path.exists("/tmp/up"), "written outside")


def test_files():
    """Files that are packed one by one may be bombs as well, and languages that do not fit each other."""
    name = "multi30k-de-en/val.de.gz"
    cases = [(gzip.compress(b""), "val.de.gz: empty, expected text"),
             (gzip.compress(b"a\n" * 10_000_000), "unpacks to more than the 16777216 bytes"),
             (gzip.compress(lines(*DE)), "val.de.gz has 4 lines and val.en.gz has 80, expected the same number")]
    real = FILES[name]
    try:
        for body, message in cases:
            FILES[name] = body
            place = Place().point("plain")
            place.refuse(message, "prepare", "multi30k-de-en")
            check(os.listdir(place.path("prepared")) == [], message, "left", os.listdir(place.path("prepared")))
    finally:
        FILES[name] = real


def test_link():
    """A part of a download that is a link to something else, which stays as it is."""
    place = Place().point("plain", [CIFAR])
    other, part = os.path.join(place.folder, "precious"), place.path("downloads", CIFAR + ".part")
    os.makedirs(os.path.dirname(part))
    with open(other, "w", encoding="utf-8") as file:
        file.write("mine")
    os.symlink(other, part)
    place.refuse("it is a symbolic link, expected a file", "get", "cifar10")
    with open(other, encoding="utf-8") as file:
        check(file.read() == "mine", "written through a link")


# ---- what is prepared ----

def test_prepare_files(place):
    out, _ = place.succeed("prepare", "cifar10", "cifar100", "ptb", "multi30k-de-en")
    check(len(out.split()) == 4, out)
    check(sorted(os.listdir(place.path("prepared"))) == ["cifar10", "cifar100", "multi30k-de-en", "ptb"], "other folders")
    check(place.read("prepared", "cifar10", "cifar-10-batches-bin", "test_batch.bin") == picture_records(10, 1), "cifar10")
    check(not os.path.exists(place.path("prepared", "cifar10", "cifar-10-batches-bin", "readme.html")), "readme")
    check(place.read("prepared", "ptb", "ptb.valid.txt") == FILES["ptb/ptb.valid.txt"], "ptb")
    check(place.text("prepared", "multi30k-de-en", "valid.de") == DE * 20, "multi30k")
    before = os.stat(place.path("prepared", "ptb")).st_ino
    place.succeed("prepare", "ptb")
    check(os.stat(place.path("prepared", "ptb")).st_ino == before, "prepared again")
    place.succeed("prepare", "--again", "ptb")
    check(os.stat(place.path("prepared", "ptb")).st_ino != before, "not prepared again")
    # Deleted files are made again.
    for name, file in ("ptb", "ptb.test.txt"), ("multi30k-de-en", "test.en"), ("cifar100", "cifar-100-binary/train.bin"):
        whole = place.read("prepared", name, file)
        os.remove(place.path("prepared", name, file))
        check(place.state(name) == "partly deleted", "list does not miss", file)
        place.succeed("prepare", name)
        check(place.read("prepared", name, file) == whole, name, "is not made whole")
        check(place.state(name) == "prepared", name, "is not whole")


def listed(place, name):
    """The state of a set in the table of data list, what the set's own list says of own files, and what JSON says."""
    out = [subprocess.run([PROGRAM, "data", "list", *more], env=place.environment, stdout=subprocess.PIPE,
                          check=True).stdout.decode() for more in ([], [name], ["--json", name])]
    row = next(line for line in out[0].split("\n") if line.startswith(name + " "))
    of = json.loads(out[2])[0]
    why = out[1].split("  own files   ")[1].split("\n")[0] if "  own files   " in out[1] else None
    check(of["state"] == "prepared" and of.get("why") == why, of, out[1])
    return row[29:43].strip(), why, of["published"]


def test_origin(place):
    """The record of a prepared set, and what is said where it lacks or does not fit."""
    record = json.loads(place.text("prepared", "cifar100", "origin.json")[0])
    check(record["sources"] == [{"file": "cifar-100-binary.tar.gz", "proof": "own",
                                 "sha256": hashlib.sha256(FILES["cifar100/cifar-100-binary.tar.gz"]).hexdigest()}], record)
    check(record["files"][0]["sha256"] == hashlib.sha256(place.read("prepared", "cifar100", record["files"][0]["file"])).hexdigest(),
          record)
    check(listed(place, "cifar100") == (
        "own files", "prepared from a cifar-100-binary.tar.gz that is not shown to be the published one", False), listed(place, "cifar100"))
    other = Place().point("plain")
    other.succeed("prepare", "cifar100")
    text = other.read("prepared", "cifar100", "origin.json")
    path = other.path("prepared", "cifar100", "origin.json")
    with open(path, "wb") as file:  # as if the checksum were the published one
        file.write(text.replace(b'"own"', b'"checksum"'))
    check(listed(other, "cifar100") == ("prepared", None, True), listed(other, "cifar100"))
    runs = {}

    def run(name):
        status, _, err = train(other, name, IMAGES % "cifar100")
        check(status == 0, name, err)
        with open(os.path.join(other.folder, name, "data.json"), encoding="utf-8") as file:
            runs[name] = json.load(file)
        return [runs[name].get(key) for key in ("set", "published", "why")]

    check(run("published") == ["cifar100", True, None], runs)
    pictures = other.path("prepared", "cifar100", "cifar-100-binary", "train.bin")
    with open(pictures, "rb") as file:
        whole = file.read()
    with open(pictures, "wb") as file:
        file.write(whole[:-1] + bytes([whole[-1] ^ 1]))
    changed = "cifar-100-binary/train.bin is not as it was prepared"
    check(listed(other, "cifar100") == ("changed", changed, False), listed(other, "cifar100"))
    check(run("changed") == ["cifar100", False, changed], runs)
    os.remove(path)  # as earlier versions left it, or as people put files there
    check(listed(other, "cifar100") == ("no record", "no record of how it was prepared", False), listed(other, "cifar100"))
    check(run("unrecorded") == ["cifar100", False, "no record of how it was prepared"], runs)
    _, err = other.succeed("prepare", "cifar100", said=1)
    one_line_of(err, 'cifar100: no record of how it was prepared, so tables call these "own files"', "prepare --again cifar100")
    check(not os.path.exists(path), "a record of what nobody knows")
    status, _, err = train(other, "path", IMAGES % "cifar100", "--set", "data.path=cache/prepared/cifar100/cifar-100-binary")
    check(status == 0, err)
    with open(os.path.join(other.folder, "path", "data.json"), encoding="utf-8") as file:
        check("published" not in json.load(file), "a run with data.path says of which set it is")
    # the report names what each run was trained on
    status, out, err = adamod(other, "report", "published", "changed", "unrecorded")
    check(status == 0 and "data set cifar100 not as published: " + changed in out, out, err)
    with open(os.path.join(other.folder, "report-tables", "results.md"), encoding="utf-8") as file:
        table = file.read()
    check("; own files<sup>" in table and changed in table and "no record of how it was prepared" in table, table)
    other.succeed("prepare", "--again", "cifar100")
    check(os.path.exists(path), "no record")
    check(other.read("prepared", "cifar100", "cifar-100-binary", "train.bin") == whole, "not prepared again")


def test_prepare_tokens(place):
    place.succeed("prepare", "tinyshakespeare", "tinystories", "fineweb-edu")
    whole = FILES["tinyshakespeare/input.txt"]
    parts = [place.read("prepared", "tinyshakespeare", part + ".txt") for part in ("train", "valid")]
    check(b"".join(parts) == whole and len(parts[0]) == len(whole) * 9 // 10, "not nine tenths:", [len(part) for part in parts])
    for part in ("train", "valid"):
        check(place.read("prepared", "tinystories", part + ".txt") == FILES["tinystories/TinyStories-%s.txt" % part], part)
    check(sorted(os.listdir(place.path("prepared", "fineweb-edu"))) == sorted([*SHARDS, "origin.json"]), "other files")
    for name in SHARDS:
        check(place.read("prepared", "fineweb-edu", name) == FILES["fineweb-edu/" + name], name)
        one, other = (os.stat(place.path(what, "fineweb-edu", name)) for what in ("downloads", "prepared"))
        check(one.st_ino == other.st_ino, name, "takes up its space twice")
    # files that are none of GPT-2's tokens
    name = SHARDS[3]
    right = FILES["fineweb-edu/" + name]
    for wrong, message in ((right[:-1], "cut short: 1002 tokens, its header says 1003"), (right[:900], "cut short: 900 bytes"),
                           (right[:-2] + b"\xff\xff", "token 1002 is 65535, but the vocabulary has 50257 ids"),
                           (b"<html>log in</html>", "19 bytes, an odd number")):
        FILES["fineweb-edu/" + name] = wrong
        other = Place().point("plain")
        other.refuse(message, "prepare", "fineweb-edu")
        check(not os.path.exists(other.path("prepared", "fineweb-edu")), "prepared from wrong files")
    FILES["fineweb-edu/" + name] = right


def united(texts):
    return [text.replace("@@ ", "") for text in texts]


def test_prepare_iwslt(place):
    place.succeed("prepare", "iwslt14-de-en")
    folder = ("prepared", "iwslt14-de-en")
    check(sorted(os.listdir(place.path(*folder))) == sorted(
        ["codes", "origin.json", *["%s.%s" % (part, l) for part in ("train", "valid", "test", "test.raw") for l in ("de", "en")]]),
        os.listdir(place.path(*folder)))
    # as by hand: 51 pairs, one left out, of the rest each 23rd for validation
    kept = ["das ist gut wort# .", "ein hund läuft wort# .", "wir sehen das haus , ja ?", "am 26. um 11 ."]
    german = [kept[i % 4].replace("#", str(i)) for i in range(50)]
    check(united(place.text(*folder, "train.de")) == [s for i, s in enumerate(german) if i % 23 != 22], "train.de")
    check(united(place.text(*folder, "valid.de")) == [german[22], german[45]], "valid.de")
    check("we see the house , don &apos;t we ?" in united(place.text(*folder, "train.en")), "train.en")
    check(united(place.text(*folder, "test.en"))[:2] == ["ted.dev2010", "it &apos;s &amp; amp ; good ."],
          place.text(*folder, "test.en")[:2])
    check(place.text(*folder, "test.raw.en")[1] == "It’s & good.", place.text(*folder, "test.raw.en"))
    names = [s for s in united(place.text(*folder, "test.de")) if "." in s and " " not in s]
    check(names == ["ted.dev2010", "tedx.dev2012", "ted.tst2010", "ted.tst2011", "ted.tst2012"], names)
    check(place.text(*folder, "codes")[0] == "#version: 0.2", "codes")
    check(place.state("iwslt14-de-en") == "prepared", "iwslt14-de-en is", place.state("iwslt14-de-en"))
    def content():  # the record has times
        return {name: place.read(*folder, name) for name in os.listdir(place.path(*folder)) if name != "origin.json"}

    first = content()
    place.succeed("prepare", "--again", "--threads", "1", "iwslt14-de-en")
    check(first == content(), "threads matter")


def test_prepare_wmt(place):
    _, err = place.succeed("prepare", "wmt14-en-de", said=1)
    one_line_of(err, "wmt14-en-de: 1 lines (de) have bytes that are not UTF-8, which became spaces")
    folder = ("prepared", "wmt14-en-de")
    english, german = united(place.text(*folder, "train.en")), united(place.text(*folder, "train.de"))
    # 213 pairs; every 100th for validation, then the unequal ones left out
    check(len(english) == len(german) == 213 - 2 - 3, len(english))
    check(english[0] == "&quot; This is good wort0 . &quot; well @-@ known , a &lt; url &gt;", english[0])
    check(german[0] == "&quot; Das ist gut wort0 &quot; . wohl bekannt &lt; url &gt;", german[0])  # U+200B is not printed
    check("Ein Hu nd läuft wort1" in german[1], german[1])
    check(len(place.text(*folder, "valid.en")) == 2, "valid.en")
    check(place.text(*folder, "test.raw.de") == DE, "test.raw.de")
    check(place.state("wmt14-en-de") == "prepared", "wmt14-en-de is", place.state("wmt14-en-de"))
    check(not [name for name in os.listdir(place.path(*folder)) if name.startswith(("tok", "bpe", "in"))], "left")


def test_uneven():
    members = iwslt()
    members["de-en/train.tags.de-en.de"] += b"Noch eine.\n"
    real, FILES[NAME] = FILES[NAME], tar(members)
    try:
        place = Place().point("plain", [NAME])
        place.refuse("differ in their numbers of lines", "prepare", "iwslt14-de-en")
        members["de-en/train.tags.de-en.de"] = b"\xff\xfe\n"
        FILES[NAME] = tar(members)
        Place().point("plain", [NAME]).refuse("train.tags.de-en.de", "prepare", "iwslt14-de-en")
    finally:
        FILES[NAME] = real


# ---- recipes ----

SMALL = """
name: small
data: {task: bitext, set: %s, tokens: words, raw: %s, joint: true, source_lang: de, target_lang: en, sentences: 8, merges: 60}
model: {kind: transformer, layers: 1, d: 8, ffn: 8, heads: 1, share_all: true}
optimizer: {rule: adamod, lr: 1e-3}
train: {epochs: 1, threads: 1, backend: cpu, checkpoint_every: 1 epoch, average: 2}
decode: {beam: 2, max_length: 20, samples: 3}
"""


def adamod(place, *arguments, **keywords):
    result = subprocess.run([PROGRAM, *arguments], env=place.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            timeout=100, cwd=place.folder, **keywords)
    return result.returncode, result.stdout.decode(), result.stderr.decode()


def train(place, name, text, *more):
    with open(os.path.join(place.folder, name + ".yaml"), "w", encoding="utf-8") as file:
        file.write(text)
    return adamod(place, "train", name + ".yaml", "--out", name, *more)


def test_train(place):
    for name, raw in (("iwslt14-de-en", "false"), ("multi30k-de-en", "true"), ("wmt14-en-de", "false")):
        status, _, err = train(place, name, SMALL % (name, raw))
        check(status == 0, name, err)
        status, out, err = adamod(place, "translate", name, input="Das ist gut.\n\nEin Hund läuft.\n".encode())
        check(status == 0 and out.count("\n") == 3 and "@@" not in out, status, out, err)
        status, out, err = adamod(place, "evaluate", name)
        check(status == 0 and "BLEU" in out, status, out, err)
        check(("BLEU 13a" in out) == (name != "iwslt14-de-en"), name, out)  # lower case is not what people write
        if name == "wmt14-en-de":  # the score of evaluate is that of the pipe
            status, hypotheses, err = adamod(place, "translate", name, input=place.read("prepared", name, "test.raw.en"))
            check(status == 0 and hypotheses.count("\n") == len(EN), hypotheses, err)
    with open(os.path.join(place.folder, "iwslt14-de-en", "recipe.yaml"), encoding="utf-8") as file:
        check("cache" not in file.read(), "the recipe of a run names the cache")
    # a run whose data set is gone still translates
    os.rename(place.path("prepared", "iwslt14-de-en"), place.path("gone"))
    status, out, err = adamod(place, "translate", "iwslt14-de-en", input=b"Das ist gut.\n")
    check(status == 0, err)
    status, _, err = train(place, "again", SMALL % ("iwslt14-de-en", "false"))
    check(status == 1 and err.count("\n") == 1 and "adamod data prepare iwslt14-de-en" in err, status, err)
    os.rename(place.path("gone"), place.path("prepared", "iwslt14-de-en"))
    for change, message in (("data.raw=true", "in subwords"), ("data.source=x", "files of its own"),
                            ("data.tokens=characters", "expected words")):
        status, _, err = train(place, "wrong", SMALL % ("iwslt14-de-en", "false"), "--set", change)
        check(status == 2 and message in err, change, status, err)


IMAGES = "data: {task: images, set: %s, any_size: true, batch: 4, hold_out: 0}\nmodel: {kind: mlp}\n" \
         "train: {steps: 2, backend: cpu, threads: 1}\n"


def test_train_others(place):
    images = IMAGES
    language = "data: {task: language, set: ptb, batch: 4, length: 10}\n" \
               "model: {kind: lstm, layers: 1, embedding: 8}\ntrain: {steps: 2, backend: cpu, threads: 1}\n"
    for name, text in (("cifar10", images % "cifar10"), ("cifar100", images % "cifar100"), ("ptb", language)):
        status, _, err = train(place, name, text)
        check(status == 0, name, err)
    # some of a set was deleted: what makes it again is named
    for name, text, file in (("cifar100", images % "cifar100", "cifar-100-binary/test.bin"), ("ptb", language, "ptb.train.txt"),
                             ("ptb", language, "ptb.valid.txt"), ("multi30k-de-en", SMALL % ("multi30k-de-en", "true"), "test.en"),
                             ("iwslt14-de-en", SMALL % ("iwslt14-de-en", "false"), "codes")):
        os.rename(place.path("prepared", name, file), place.path("gone"))
        status, _, err = train(place, "partly", text)
        check(status == 1 and err.endswith("deleted: adamod data prepare %s makes it again\n" % name), name, status, err)
        os.rename(place.path("gone"), place.path("prepared", name, file))
    status, _, err = train(place, "named", language, "--set", "data.train_file=mine.txt")
    check(status == 2 and "data.set ptb reads ptb.train.txt" in err, status, err)


def test_command_line():
    place = Place().point("plain")
    for arguments, message in ((["get"], "needs the name"), (["get", "iwslt14-de-em"], "did you mean 'iwslt14-de-en'"),
                               (["get", "multi30k"], "did you mean 'multi30k-de-en'"),
                               (["get", "--mirror", "nowhere", "ptb"], "expected http://"),
                               (["get", "--timeout", "0", "ptb"], "--timeout"),
                               (["prepare", "--threads", "-1", "ptb"], "--threads")):
        status, out, err = place.run(*arguments)
        check(status == 2 and not out and err.count("\n") == 1 and message in err, arguments, status, err)


def main():
    global SCRATCH
    make_files()
    threading.Thread(target=SERVER.serve_forever, daemon=True).start()
    failed = 0
    chosen = sys.argv[1] if len(sys.argv) > 1 else ""
    with tempfile.TemporaryDirectory() as SCRATCH:
        place = Place().point("plain")
        started = start_waiting() if chosen in "test_waiting" else None
        tests = [test_get, test_redirect_and_range, test_answers_that_are_not_the_file, test_parts_that_do_not_fit,
                 test_truncated, test_liars, test_first_download, test_packed_anew, test_limits_of_servers,
                 test_passwords, test_encrypted, test_stalled_and_killed, test_mirrors, test_proxy_and_no_network,
                 test_full_disk, test_archives, test_files, test_link, test_prepare_files, test_origin, test_prepare_tokens,
                 test_prepare_iwslt,
                 test_prepare_wmt, test_uneven, test_train, test_train_others, test_command_line, test_waiting]
        for test in tests:
            if chosen not in test.__name__:
                continue
            start = time.time()
            try:
                test(started if test is test_waiting else place) if test.__code__.co_argcount else test()
                print("ok %s (%.1f s)" % (test.__name__, time.time() - start))
            except Failed as failure:
                failed += 1
                print("FAILED %s: %s" % (test.__name__, failure))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
