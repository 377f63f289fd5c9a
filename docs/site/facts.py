"""What a page of HTML has: names that links can lead to, links, images, headings, and the text of each section.

SPDX-License-Identifier: MIT
"""

import re
from html.parser import HTMLParser

_HEADINGS = ("h1", "h2", "h3", "h4")
_BREAKS = ("p", "li", "td", "th", "pre", "dt", "dd", "div", "br", "tr")


class Facts(HTMLParser):
    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.ids, self.twice, self.links, self.images = set(), [], [], []
        self.headings = []  # (level, id, text)
        self.sections = []  # [id, heading, text]
        self._heading, self._skip = None, 0
        self.feed(text)
        self.close()
        for section in self.sections:
            section[2] = re.sub(r"\s+", " ", "".join(section[2])).strip()

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        name = found.get("id")
        if name is not None:
            if name in self.ids:
                self.twice.append(name)
            self.ids.add(name)
        for key in ("href", "src"):
            if found.get(key) is not None:
                (self.images if tag == "img" else self.links).append(found[key])
        if tag in ("svg", "script", "style") or found.get("class") == "anchor":
            self._skip += 1
        if tag in _HEADINGS and name:
            self._heading = [int(tag[1]), name, ""]
        if tag in _BREAKS:
            self.handle_data(" ")

    def handle_endtag(self, tag):
        if self._skip and tag in ("svg", "script", "style", "a"):
            self._skip -= 1
        if tag in _HEADINGS and self._heading:
            level, name, text = self._heading
            self._heading, text = None, re.sub(r"\s+", " ", text).strip()
            self.headings.append((level, name, text))
            self.sections.append([name, text, []])

    def handle_data(self, data):
        if self._skip:
            return
        if self._heading:
            self._heading[2] += data
        elif self.sections:
            self.sections[-1][2].append(data)
