#!/usr/bin/env python3
"""Writes the files beside it that tests/trainer/test_text.sh compares with: text of our own, and what sacremoses 0.2.0, subword-nmt
0.3.8 and sacreBLEU 2.6.0 make of it. Run it where these are installed (pip install sacremoses==0.2.0 subword-nmt==0.3.8
sacrebleu==2.6.0) and commit what it writes.

SPDX-License-Identifier: MIT
"""
import os
import random

os.chdir(os.path.dirname(os.path.abspath(__file__)))

SENTENCES = {
    "en": """Mr. Smith, who'd lived in the U.S. for 3.5 years, paid $1,000 (or 5%) for it...
"It's the dogs' house," she said; "we can't go."
See No. 5, pp. 12-14, and Art. 7 of the treaty, i.e. the whole of it.
He left in the 80's. She didn't. They 'll come at 5 p.m. tomorrow.
A list: a/b, c&d, <e>, [f], {g} and h|i @ home #1 *
He said 'no'. He said no.'
What?! Really... yes . . . no
The end of No. The end of pp.
E-mail me at me@example.org, or see http://example.org/a_b?c=d.
Is it 10,000,000 or 10.000,5? 1,a b,2 ,3 4,
""",
    "de": """Am 3. Oktober 1990 sprach Dr. Müller z. B. über Art. 5 Abs. 2, usw.
„Das ist's“, sagte er; ‚so geht es‘ – und zwar 1.000,50 € bzw. 5 %.
Der 99. Tag. Der 100. Tag. Die Nr. 7 ist groß.
Sie kam um 8.30 Uhr, d.h. zu spät... Wir gingen (leider) schon.
»Guten Tag!« Er sagte: "Nein." Dann: "Ja", und ging.
Äpfel, Öl & Übermut; Straße/Weg, ÄÖÜ ẞ
Das sind 12\u00a0000 Stück, 5\u00a0% mehr. Und 3\u00a0cm.
Er schrieb: "Schluss." <br> Und: "Aus".
""",
    "fr": """L'homme d'aujourd'hui n'a pas dit: « C'est l'été! » à 5 % près.
Qu'est-ce que c'est ? Voilà ; fin : M. Dupont, p. 12, etc.
«\u00a0Oui\u00a0», dit-elle… l’an 2000, nº\u00a05, 20\u00a0ºC.
Il a. Il y en a 3,5 ou 1\u00a0000 dans le chap. 4.
""",
}
ATOMS = list("abcDEF019.,,'\"`-()[]{}<>&|;:!?%$€„“”‘’«»…–—/@#*~_\\¿¡") + """... .. z.B. d.h. No. 1,000 3.5 12. U.S. it's l'homme
 don't dogs' 80's 中文 한글 カナ Ж ж. &amp; &lt; &apos; @-@ &#91; '' `` ½ III. usw. Dr. etc. ,a "a ." ", İ Ⅷ ä ß""".split()
ATOMS += ["\t", " ", " ", " ", "\u00a0", "\u200b", "x\x01y", "5\u00a0%", "1\u00a0000", " :", " %", "( ", " )", '." x']


def write(name, lines):
    with open(name, "w", encoding="utf-8", newline="\n") as file:
        file.writelines(line + "\n" for line in lines)


def odd_lines(n):
    """Characters in places where no text has them."""
    return ["".join(random.choice(ATOMS) + " " * (random.random() < 0.35) for _ in range(random.randint(1, 14)))
            for _ in range(n)]


def record_moses():
    from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer
    for language, text in SENTENCES.items():
        lines = text.split("\n")[:-1] + odd_lines(60)
        tokens = [" ".join(MosesTokenizer(language).tokenize(line)) for line in lines]
        plain = [" ".join(MosesTokenizer(language).tokenize(line, aggressive_dash_splits=True, escape=False)) for line in lines]
        write(f"{language}.txt", lines)
        write(f"{language}.tok", tokens)
        write(f"{language}.plain", plain)
        write(f"{language}.joined", [MosesDetokenizer(language).detokenize(line.split()) for line in tokens])
        write(f"{language}.normal", [MosesPunctNormalizer(language).normalize(line) for line in lines])


def words(n):
    """A text of words that share parts, some of them frequent."""
    stems, ends = ["low", "new", "wid", "haus", "schön", "lauf", "ab", "aba", "中文"], ["", "er", "est", "en", "heit", "bar", "ab"]
    vocabulary = [random.choice(stems) + random.choice(ends) + random.choice(ends) for _ in range(90)]
    return [" ".join(vocabulary[int(random.paretovariate(0.6)) % 90] for _ in range(random.randint(0, 9))) for _ in range(n)]


def record_bpe():
    import io
    from subword_nmt.apply_bpe import BPE, read_vocabulary
    from subword_nmt.get_vocab import get_vocab
    from subword_nmt.learn_bpe import learn_bpe
    lines = words(120)
    text, codes, counts = "\n".join(lines) + "\n", io.StringIO(), io.StringIO()
    learn_bpe(io.StringIO(text), codes, 60, 3)
    other = words(40) + ["  unseen wordsabaer  low", "aba中文x a ä"]
    write("words.txt", lines)
    write("words.other", other)
    write("words.codes", codes.getvalue().split("\n")[:-1])
    apply = lambda bpe, dropout=0: [bpe.process_line(line, dropout) for line in other]
    write("words.bpe", apply(BPE(codes)))
    write("words.bpe-0.1", apply(BPE(io.StringIO(codes.getvalue().split("\n", 1)[1]), 30, "~")))
    get_vocab(io.StringIO("\n".join(BPE(codes).process_line(line) for line in lines) + "\n"), counts)
    write("words.vocab", counts.getvalue().split("\n")[:-1])
    write("words.restricted", apply(BPE(codes, vocab=read_vocabulary(io.StringIO(counts.getvalue()), 20))))
    random.seed(7)
    write("words.dropout", apply(BPE(codes), 0.2))


def noisy(line, p):
    """A translation with mistakes."""
    parts = line.split(" ")
    return " ".join(random.choice(parts) if random.random() < p else part for part in parts if random.random() > p / 3)


def record_scores():
    from sacrebleu.metrics import BLEU, CHRF
    from sacrebleu.significance import PairedTest
    refs = [line for text in SENTENCES.values() for line in text.split("\n")[:-1]] + words(30) + odd_lines(20)
    refs = [line.rstrip() for line in refs]
    systems = [[noisy(line, p).rstrip() for line in refs] for p in (0.3, 0.4)]
    write("score.ref", refs)
    write("score.one", systems[0])
    write("score.two", systems[1])
    lines = []
    for tokenize in ("13a", "none", "char"):
        for options in ({}, {"lowercase": True, "smooth_method": "none"}):
            metric = BLEU(tokenize=tokenize, force=True, **options)
            score = metric.corpus_score(systems[0], [refs])
            lines.append(score.format(8, signature=str(metric.get_signature())))
    for order in (0, 2):
        metric = CHRF(word_order=order)
        score = metric.corpus_score(systems[0], [refs])
        lines.append(score.format(8, signature=str(metric.get_signature())))
    for metric in (BLEU(force=True), CHRF()):
        score = metric.corpus_score(systems[0], [refs], n_bootstrap=1000)
        lines.append(score.format(4, signature=str(metric.get_signature())))
    paired = PairedTest([("a", systems[0]), ("b", systems[1])], {"BLEU": BLEU(force=True), "CHRF": CHRF()}, [refs], "bs")
    for name, results in paired()[1].items():
        if name != "System":
            lines.append(f"{name} {results[1].score:.4f} {results[1].mean:.4f} {results[1].ci:.4f} {results[1].p_value:.4f}")
    write("score.said", lines)


if __name__ == "__main__":
    random.seed(1)
    record_moses()
    record_bpe()
    record_scores()
