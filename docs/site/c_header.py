"""The C reference, from the header's own comments.

A comment is of the declarations that follow it without an empty line. `/* ---- 1. Title ----` begins a section. Every
function, type, macro and enumerator has an anchor of its name.

SPDX-License-Identifier: MIT
"""

import html
import re
import textwrap

from comments import inline, to_html
from highlight import highlight

_SECTION = re.compile(r"/\* ---- (\d+\. .*?) -{4,}")


def _section_name(title):
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _comment_text(comment):
    """What a comment says, without its marks."""
    lines = re.sub(r"\s*\*/\s*$", "", comment[2:]).split("\n")
    lines = [lines[0].strip(), *(re.sub(r"^\s*\* ?", "", line) for line in lines[1:])]
    return "\n".join(lines).strip("\n")


def _folded(declaration):
    """A declaration without ADAMOD_API; that of a function in lines that fit the page."""
    code = declaration.replace("ADAMOD_API ", "")
    if code.startswith(("typedef", "#")) or "/*" in code:
        return code
    whole = " ".join(code.split()).replace(" ", "\0").replace(",\0", ", ")  # an argument stays in one line
    return textwrap.fill(whole, 84, subsequent_indent=" " * 8, break_long_words=False).replace("\0", " ")


def _without_comments(code):
    return re.sub(r"/\*.*?\*/", "", code, flags=re.DOTALL)


def _items(text, where):
    """("comment" or "code", text, number of line, whether an empty line is in front) of the header."""
    lines, i, empty = text.split("\n"), 0, True
    while i < len(lines):
        line, start = lines[i], i
        i += 1
        if not line.strip():
            empty = True
            continue
        if re.match(r"#\s*(if|ifdef|ifndef)\b", line) and not line.endswith("_H"):
            while not lines[i].startswith("#endif"):
                i += 1
            i += 1
            continue
        if re.match(r"#\s*(include|endif|ifndef)\b|#define \w+_H$", line):
            continue
        if line.startswith("/*"):
            kind, done = "comment", lambda code: code.endswith("*/")
        elif line.startswith("#define"):
            kind, done = "code", lambda code: not code.endswith("\\")
        else:
            kind = "code"

            def done(code):
                bare = _without_comments(code).rstrip()
                return (
                    code.count("/*") == code.count("*/") and bare.endswith(";") and bare.count("{") == bare.count("}")
                )

        while not done("\n".join(lines[start:i])):
            if i == len(lines):
                raise ValueError(f"{where}:{start + 1}: {line!r} has no end")
            i += 1
        yield kind, "\n".join(lines[start:i]), empty
        empty = False


def _names(code):
    """The functions, types and constants that a declaration declares."""
    bare = _without_comments(code)
    if bare.startswith("#define"):
        return [], [], [re.match(r"#define (\w+)", bare)[1]]
    if bare.startswith("typedef"):
        body = re.search(r"\{(.*)\}", bare, re.DOTALL)
        constants = re.findall(r"(\w+)\s*=", body[1]) if body and " enum " in bare else []
        return [], [re.search(r"(\w+);\s*$", bare)[1]], constants
    return [re.search(r"(\w+)\(", bare)[1]], [], []


class Header:
    def __init__(self, text, where):
        self.text, self.where = text, where
        self.names = set()
        for kind, code, _ in _items(text, where):
            if kind == "code":
                self.names.update(name for names in _names(code) for name in names)

    def version(self):
        return ".".join(re.search(rf"_VERSION_{part} (\d+)", self.text)[1] for part in ("MAJOR", "MINOR", "PATCH"))

    def _link(self, word):
        return f'<a class="name" href="#{word}">{word}</a>' if word in self.names else html.escape(word)

    def _code(self, text):
        return highlight(text, "c", self._link, lambda comment: inline(comment, self._link))

    def _entry(self, comment, declarations):
        """A comment and what it is of, under a heading of the functions, or else types, or else macros in it."""
        kinds = [sum(names, []) for names in zip(*map(_names, declarations))]
        first = next(names for names in kinds if names)
        own = set(sum(kinds, []))
        seen = {first[0]}

        def name(word):
            if word not in own:
                return self._link(word)
            if word in seen:
                return f"<b>{word}</b>" if word == first[0] else html.escape(word)
            seen.add(word)
            return f'<b id="{word}">{word}</b>'

        code = "\n".join(map(_folded, declarations))
        shown = highlight(code, "c", name, lambda text: inline(text, self._link))
        title = ", ".join(first)
        return (
            f'<section class="entry">\n<h3 id="{first[0]}"><code>{title}</code> '
            f'<a class="anchor" href="#{first[0]}" aria-label="link to this entry">#</a></h3>\n'
            f'<pre tabindex="0"><code>{shown}</code></pre>\n{self._prose(comment) if comment else ""}</section>\n'
        )

    def _prose(self, comment):
        return to_html(_comment_text(comment), self._link, self._code)

    def _to_section(self, match):
        """An item of the header's own contents, as a link to the section of its number."""
        section = re.search(rf"^/\* ---- ({match[1]}\. .*?) -{{4,}}", self.text, re.MULTILINE)
        if not section:
            raise ValueError(f"{self.where}: there is no section {match[1]}, which the comment at the beginning lists")
        return f'<dt><a href="#{_section_name(section[1])}">{match[1]}. {match[2]}</a></dt>'

    def to_html(self):
        items = list(_items(self.text, self.where))
        if not items or items[0][0] != "comment":
            raise ValueError(f"{self.where}: expected a comment at the beginning")
        title, _, about = _comment_text(items[0][1]).partition("\n")
        about = about.split("\nSPDX-License")[0]
        out = [
            f'<h1 id="adamodh">{html.escape(title.partition(" - ")[0])}</h1>\n',
            f'<p class="lead">{html.escape(title.partition(" - ")[2])}</p>\n',
            re.sub(r"<dt>(\d+)\. ([^<]*)</dt>", self._to_section, to_html(about, self._link, self._code)),
            '<h2 id="version-and-status">Version and status <a class="anchor" href="#version-and-status">#</a></h2>\n',
        ]
        pending, declarations = None, []

        def flush():
            nonlocal pending, declarations
            if declarations:
                out.append(self._entry(pending, declarations))
            elif pending:
                out.append(self._prose(pending))
            pending, declarations = None, []

        for kind, text, empty in items[1:]:
            if kind == "comment":
                flush()
                section = _SECTION.match(text)
                if section:
                    name = _section_name(section[1])
                    out.append(
                        f'<h2 id="{name}">{html.escape(section[1])} <a class="anchor" href="#{name}">#</a></h2>\n'
                    )
                    rest = text[:2] + text[section.end() :].lstrip("-")
                    if _comment_text(rest):
                        out.append(self._prose(rest))
                else:
                    pending = text
            else:
                if empty:
                    flush()
                declarations.append(text)
        flush()
        return "".join(out)
