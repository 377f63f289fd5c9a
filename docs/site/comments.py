"""The text of comments and docstrings as HTML. Their forms:

    Paragraphs, and code that is indented by four.
      name   an item, indented by two, whose text goes on
             in the same column
    name: an item of a docstring, whose text goes on
        indented by four
    Tables that fit neither stay as they are.

SPDX-License-Identifier: MIT
"""

import html
import re
import textwrap

_ITEM = re.compile(r"( {0,3})(\S+(?: \S+)*) {2,}(\S.*)$")
_NAMED = re.compile(r"( *)(\w+(?:, \w+)*): (\S.*)$")
_FAILS = re.compile(r"(Fails |They fail |The setters fail )")


def inline(text, names):
    """HTML of a text: `code`, and links from the names there are."""
    parts = re.split(r"`([^`\n]+)`", text)
    for i, part in enumerate(parts):
        escaped = re.sub(r"[A-Za-z_]\w*", lambda word: names(word[0]), html.escape(part, quote=False))
        parts[i] = f"<code>{escaped}</code>" if i % 2 else escaped
    return "".join(parts)


def _items(lines, pattern, hanging):
    """Names and texts of items, or None if these lines are no such list. hanging: how far texts are indented where they
    go on; None: to their column."""
    found, column = [], None
    for line in lines:
        match = pattern.match(line)
        indent = len(line) - len(line.lstrip())
        if match and (column is None or indent < column) and (not found or indent == found[0][2]):
            if "   " in match[3]:
                return None
            column = match.start(3) if hanging is None else indent + hanging
            found.append([match[2], match[3], indent])
        elif found and indent >= column and (hanging is not None or indent == column):
            found[-1][1] += " " + line.strip()
        else:
            return None
    return found


def _list(items, names):
    rows = [f"<dt>{inline(name, names)}</dt><dd>{inline(text, names)}</dd>" for name, text, _ in items]
    return '<dl class="items">' + "\n".join(rows) + "</dl>\n"


def _block(lines, names, code, docstring):
    """The HTML of lines without an empty one among them."""
    pattern, hanging = (_NAMED, 4) if docstring else (_ITEM, None)
    items = _items(lines, pattern, hanging)
    if items:
        return _list(items, names)
    if all(line.startswith("  ") for line in lines if line):
        text = textwrap.dedent("\n".join(lines))
        shown = code(text) if all(line.startswith("    ") for line in lines if line) else inline(text, names)
        return f'<pre tabindex="0"><code>{shown}</code></pre>\n'
    for i in range(1, len(lines)):  # a paragraph, then another or a list
        if lines[i].startswith(" ") and not lines[i - 1].startswith(" ") or _FAILS.match(lines[i]):
            return _block(lines[:i], names, code, docstring) + _block(lines[i:], names, code, docstring)
        if lines[i - 1].startswith(" ") and not lines[i].startswith(" ") and not _ITEM.match(lines[i]):
            return _block(lines[:i], names, code, docstring) + _block(lines[i:], names, code, docstring)
    return f"<p>{inline(' '.join(line.strip() for line in lines), names)}</p>\n"


def to_html(text, names=html.escape, code=html.escape, docstring=False):
    """names makes the HTML of a word, code that of an example."""
    blocks, lines = [], []
    for line in [*text.strip("\n").splitlines(), ""]:
        if line.strip():
            lines.append(line.rstrip())
        elif lines:
            blocks.append(lines)
            lines = []
    # Code goes on after an empty line.
    joined = []
    for lines in blocks:
        if joined and all(line.startswith("    ") for line in joined[-1] + lines) and not _items(lines, _NAMED, 4):
            joined[-1] += ["", *lines]
        else:
            joined.append(lines)
    return "".join(_block(lines, names, code, docstring) for lines in joined)
