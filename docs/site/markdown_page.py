"""Markdown pages as HTML, as GitHub shows them: CommonMark with tables, and the same names of headings.

SPDX-License-Identifier: MIT
"""

import html
import re

from markdown_it import MarkdownIt

from graph import graph
from highlight import highlight


def slug(text, seen):
    """GitHub's name of a heading. seen counts those that the page has already: the second of a name gets a number."""
    name = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
    number = seen[name] = seen.get(name, -1) + 1
    return f"{name}-{number}" if number else name


def plain(inline):
    """The text of a token without its marks."""
    return "".join(child.content for child in inline.children if child.type in ("text", "code_inline", "image"))


def _fence(self, tokens, index, options, env):
    token = tokens[index]
    language = token.info.split()[0] if token.info.strip() else ""
    if language == "mermaid":
        return graph(token.content, f"{env['page'].source}:{token.map[0] + 1}")
    return f'<pre tabindex="0"><code>{highlight(token.content, language)}</code></pre>\n'


def _code_block(self, tokens, index, options, env):
    return f'<pre tabindex="0"><code>{html.escape(tokens[index].content)}</code></pre>\n'


def _code_inline(self, tokens, index, options, env):
    token = tokens[index]
    code = f"<code>{html.escape(token.content)}</code>"
    link = None if token.meta.get("linked") else env["site"].c_name(token.content, env["page"])
    return f'<a class="name" href="{link}">{code}</a>' if link else code


def _text(self, tokens, index, options, env):
    text = html.escape(tokens[index].content, quote=False)
    # A long path would make its column of a table as wide.
    return re.sub(r"[^\s<>]{25,}", lambda word: re.sub(r"(?<=[/_])", "<wbr>", word[0]), text)


def _table_open(self, tokens, index, options, env):
    return '<div class="table" tabindex="0"><table>\n'


def _table_close(self, tokens, index, options, env):
    return "</table></div>\n"


_markdown = MarkdownIt("commonmark").enable(["table", "strikethrough"])
for _rule in (_text, _fence, _code_block, _code_inline, _table_open, _table_close):
    _markdown.add_render_rule(_rule.__name__[1:], _rule)


def _without_empty_heads(tokens):
    """A table whose head has no text, as `| | |` begins one, has no head."""
    out, start = [], None
    for token in tokens:
        out.append(token)
        if token.type == "thead_open":
            start = len(out) - 1
        elif token.type == "thead_close" and not any(t.type == "inline" and t.content for t in out[start:]):
            del out[start:]
    return out


def _anchor(name):
    return f' <a class="anchor" href="#{html.escape(name)}" aria-label="link to this section">#</a>'


def convert(text, page, site):
    """The HTML of a page. site finds what links lead to; page.figures are set."""
    env = {"site": site, "page": page}
    tokens = _without_empty_heads(_markdown.parse(text, env))
    seen, heading, linked = {}, ("", ""), False
    for i, token in enumerate(tokens):
        if token.type == "heading_close":
            tokens[i].type, tokens[i].content = "html_block", f"{_anchor(heading[0])}</{token.tag}>\n"
        if token.type != "inline":
            continue
        line = token.map[0] + 1
        before = tokens[i - 1]
        if before.type == "heading_open":
            heading = slug(plain(token), seen), plain(token)
            before.attrSet("id", heading[0])
        for child, after in zip(token.children, [*token.children[1:], None]):
            if child.type in ("link_open", "link_close"):
                linked = child.type == "link_open"
            if child.type == "link_open":
                href = child.attrGet("href")
                if after.type == "text":
                    after.content = site.label(page, href, after.content)
                child.attrSet("href", site.link(page, href, line))
            elif child.type == "image":
                source, width, height = site.image(page, child.attrGet("src"), line)
                child.attrSet("src", source)
                if width:
                    child.attrSet("width", str(width))
                    child.attrSet("height", str(height))
                child.attrSet("loading", "lazy")
                page.figures.append((source, child.content, *heading))
            elif child.type == "code_inline":
                child.meta["linked"] = linked or before.type == "heading_open"
    return _markdown.renderer.render(tokens, _markdown.options, env)
