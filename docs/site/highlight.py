"""Code as HTML, with comments, strings, keywords and numbers marked.

SPDX-License-Identifier: MIT
"""

import html
import re

_C_WORDS = """auto break case char const continue default do double else enum extern float for goto if inline int long
register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while bool class
namespace template using new delete public private protected nullptr true false NULL size_t int8_t int16_t int32_t
int64_t uint8_t uint16_t uint32_t uint64_t"""
_PYTHON_WORDS = """and as assert async await break class continue def del elif else except finally for from global if
import in is lambda nonlocal not or pass raise return try while with yield True False None"""
_SH_WORDS = "case do done elif else esac exit export fi for function if in local return set shift then while"
_CMAKE_WORDS = "ON OFF PRIVATE PUBLIC INTERFACE REQUIRED if else elseif endif foreach endforeach function endfunction"

_STRING = r"\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'"
_NUMBER = r"(?<![\w.])(?:0x[0-9a-fA-F]+|\d+(?:\.\d*)?(?:e[-+]?\d+)?)[uUlLfF]*\b"
_WORD = r"[A-Za-z_]\w*"
_HASH = r"(?<!\S)\#[^\n]*"


def _language(comment, string, words, number=_NUMBER, word=_WORD):
    parts = {"comment": comment, "string": string, "number": number, "word": word}
    pattern = "|".join(f"(?P<{name}>{part})" for name, part in parts.items())
    return re.compile(pattern, re.DOTALL | re.MULTILINE), frozenset(words.split())


_LANGUAGES = {
    "c": _language(r"/\*.*?\*/|//[^\n]*", _STRING, _C_WORDS, word=r"\#[ \t]*[a-z]+|" + _WORD),
    "python": _language(r"\#[^\n]*", r'"""(?:\\.|[^\\])*?"""|' + _STRING, _PYTHON_WORDS),
    "sh": _language(_HASH, _STRING, _SH_WORDS, word=r"(?<![\w/.-])[A-Za-z_]\w*(?![\w/.-])"),
    "yaml": _language(_HASH, _STRING, "true false null", word=r"[\w.-]+(?=:(?:\s|$))|" + _WORD),
    "cmake": _language(_HASH, _STRING, _CMAKE_WORDS),
}
_ENDINGS = {
    **dict.fromkeys(("c", "h", "cpp", "cu", "cuh"), "c"),
    **dict.fromkeys(("yaml", "yml"), "yaml"),
    **dict.fromkeys(("cmake", "CMakeLists.txt"), "cmake"),
    **{"py": "python", "sh": "sh"},
}


def language_of(path):
    """The language of a file, by its name; None if there is none here."""
    name = path.rsplit("/", 1)[-1]
    return _ENDINGS.get(name) or _ENDINGS.get(name.rsplit(".", 1)[-1])


def highlight(code, language, name=html.escape, comment=html.escape):
    """HTML of code. name makes that of an identifier, comment that of a comment. Unknown languages stay plain."""
    if language not in _LANGUAGES:
        return html.escape(code)
    pattern, keywords = _LANGUAGES[language]
    out, end = [], 0
    for match in pattern.finditer(code):
        out.append(html.escape(code[end : match.start()]))
        end, kind, text = match.end(), match.lastgroup, match[0]
        if kind == "word" and (
            text in keywords or text[0] == "#" or (language == "yaml" and code[end : end + 1] == ":")
        ):
            out.append(f'<span class="k">{html.escape(text)}</span>')
        elif kind == "word":
            out.append(name(text))
        elif kind == "comment":
            out.append(f'<span class="c">{comment(text)}</span>')
        else:
            out.append(f'<span class="{kind[0]}">{html.escape(text)}</span>')
    out.append(html.escape(code[end:]))
    return "".join(out)
