"""Makes the documentation's site: HTML from the pages that navigation.json lists, and from what they link to.

usage: build.py ROOT OUT [ADAMOD]      ROOT: the tree; OUT: the folder to write; ADAMOD: the program, for result pages

Every link, anchor and image of the site is checked before anything is written. Two runs write the same bytes.
scripts/site is the command for users.

SPDX-License-Identifier: MIT
"""

import html
import json
import os
import posixpath
import re
import shutil
import subprocess
import sys
import tempfile
from urllib.parse import unquote

import markdown_page
from c_header import Header
from facts import Facts
from highlight import highlight, language_of
from python_modules import Reference

HERE = os.path.dirname(os.path.abspath(__file__))
NAVIGATION = "docs/site/navigation.json"
IMAGES = (".svg", ".png", ".jpg", ".jpeg")
MARKER = ".adamod-site"  # in a folder that this program wrote, and may replace
PARTS = ("style.css", "site.js")


class Fault(Exception):
    """One line about what is wrong, where, and what was expected."""


class Page:
    def __init__(self, source, path, label="", group=None, past=0):
        self.source, self.path, self.label, self.group, self.past = source, path, label, group, past
        self.title, self.body, self.figures = "", "", []


class Site:
    def __init__(self, root, program=None):
        self.root, self.program = root, program
        self.faults = []
        self.files = {}  # path in the site -> bytes
        self.sources = {}  # of the tree -> page that shows it
        self.groups, self.pages = [], []
        self._read_navigation()
        self.by_source = {page.source: page for page in self.pages}
        for page in self.pages:
            if page.source.endswith(".md"):
                title = re.search(r"^# +(.*)$", self.read(page.source), re.MULTILINE)
                if not title:
                    self.faults.append(f"{page.source}: no title, expected a line that begins with #")
                page.title = title[1] if title else page.source
        header = next((page for page in self.pages if page.source.endswith(".h")), None)
        self.header_page = header
        self.header = Header(self.read(header.source), header.source) if header else None
        self.version = self.header.version() if header else ""

    # ---- the tree ----

    def at(self, path):
        return os.path.join(self.root, *path.split("/"))

    def read(self, path):
        with open(self.at(path), encoding="utf-8") as file:
            return file.read()

    def _read_navigation(self):
        with open(self.at(NAVIGATION), encoding="utf-8") as file:
            data = json.load(file)
        for group in data["groups"]:
            pages = []
            for entry in group["pages"]:
                source = entry["source"]
                if entry.get("program") and not self.program:
                    continue
                path = entry.get("page") or posixpath.splitext(posixpath.basename(source))[0].lower() + ".html"
                pages.append(Page(source, path, entry["title"], group["title"], int(entry.get("past", False))))
                if not os.path.exists(self.at(source)):
                    self.faults.append(f"{NAVIGATION}: {source} is not there, expected a file or folder of the tree")
            self.groups.append((group["title"], group["about"], pages))
            self.pages += pages
        for kind in ("source", "path"):
            all_of = [getattr(page, kind) for page in self.pages]
            for name in sorted({name for name in all_of if all_of.count(name) > 1}):
                self.faults.append(f"{NAVIGATION}: {name} is there twice, expected every page once")
        known = {page.source for page in self.pages}
        for name in sorted(os.listdir(self.at("docs"))):
            if re.search(r"\.(md|[1-9])$", name) and f"docs/{name}" not in known:
                self.faults.append(f"docs/{name}: not in the navigation, expected it in a group of {NAVIGATION}")
        if self.faults:
            raise Fault("\n".join(self.faults))

    # ---- links ----

    def _relative(self, page, path):
        return posixpath.relpath(path, posixpath.dirname(page.path) or ".")

    def _target(self, page, href):
        """The path in the tree that a link of a page names."""
        return posixpath.normpath(posixpath.join(posixpath.dirname(page.source), unquote(href)))

    def label(self, page, href, text):
        """A link's text: a path in the tree becomes the title of the page there."""
        found = self.by_source.get(self._target(page, href.partition("#")[0]))
        return found.title if found and found.title and text in (found.source, href) else text

    def link(self, page, href, line):
        """The link in the site for one in the tree."""
        if re.match(r"[a-z][a-z0-9+.-]*:", href):
            return href
        path, sharp, anchor = href.partition("#")
        if not path:
            return href
        target = self._target(page, path)
        where = f"{page.source}:{line}: link to {href}"
        if target.startswith("..") or not os.path.exists(self.at(target)):
            self.faults.append(f"{where}: {target} is not there, expected a file or folder of the tree")
            return "#"
        found = self.by_source.get(posixpath.join(target, "README.md")) or self.by_source.get(target)
        if found:
            return self._relative(page, found.path) + sharp + anchor
        if target.endswith(".md"):
            self.faults.append(f"{where}: {target} has no page, expected it in a group of {NAVIGATION}")
            return "#"
        if target.endswith(IMAGES):
            return self.image(page, path, line)[0]
        return self._relative(page, self.source_page(target).path) + sharp + anchor

    def image(self, page, href, line):
        """Copies an image; its place in the site, and its size where that is known."""
        target = self._target(page, href)
        if not os.path.isfile(self.at(target)):
            self.faults.append(
                f"{page.source}:{line}: image {href}: {target} is not there, expected a file of the tree"
            )
            return "", 0, 0
        path = re.sub(r"^docs/", "", target)
        if path not in self.files:
            with open(self.at(target), "rb") as file:
                self.files[path] = file.read()
        box = (
            re.search(rb'<svg[^>]* viewBox="0 0 ([\d.]+) ([\d.]+)"', self.files[path])
            if path.endswith(".svg")
            else None
        )
        size = (round(float(box[1])), round(float(box[2]))) if box else (0, 0)
        return (self._relative(page, path), *size)

    def c_name(self, text, page):
        """Where the C reference has a name; None if it does not."""
        name = re.sub(r"\(.*\)$", "", text)
        if not self.header or name not in self.header.names:
            return None
        return f"{self._relative(page, self.header_page.path)}#{name}"

    # ---- what is not in the navigation: sources and folders that pages link to ----

    def source_page(self, target):
        if target not in self.sources:
            ending = "/index.html" if os.path.isdir(self.at(target)) else ".html"
            page = self.sources[target] = Page(target, f"source/{target}{ending}")
            page.title = target
        return self.sources[target]

    def _make_source(self, page):
        title = f'<h1 id="source"><code>{html.escape(page.source)}</code></h1>\n'
        if os.path.isdir(self.at(page.source)):
            names = [name for name in sorted(os.listdir(self.at(page.source))) if not re.match(r"\.|__pycache__", name)]
            rows = []
            for name in names:
                path = f"{page.source}/{name}"
                if os.path.isdir(self.at(path)):
                    rows.append(f"<li>{html.escape(name)}/</li>")
                else:
                    # Links of a page count from the folder of its source, which is the one around this.
                    link = self.link(page, f"{posixpath.basename(page.source)}/{name}", 1)
                    rows.append(f'<li><a href="{html.escape(link)}">{html.escape(name)}</a></li>')
            page.body = f'{title}<ul class="files">\n' + "\n".join(rows) + "\n</ul>\n"
            return
        if page.source.endswith(".ipynb"):
            cells = self._notebook(page)
            page.body = cells if "<h1" in cells else title + cells
            return
        try:
            text = self.read(page.source)
        except UnicodeDecodeError:
            raise Fault(f"{page.source}: pages link to it, expected text or an image") from None
        code = highlight(text, language_of(page.source))
        page.body = f'{title}<pre class="source" tabindex="0"><code>{code}</code></pre>\n'

    def _notebook(self, page):
        """The cells of a notebook, and what they printed."""
        out = []
        for number, cell in enumerate(json.loads(self.read(page.source))["cells"], 1):
            text = "".join(cell["source"])
            if cell["cell_type"] == "markdown":
                made = markdown_page.convert(text, page, self)
                out.append(
                    re.sub(r'( id="|class="anchor" href="#)', rf"\1cell-{number}-", made)
                )  # names count within a cell
            elif cell["cell_type"] == "code":
                out.append(f'<pre tabindex="0"><code>{highlight(text, "python")}</code></pre>\n')
                out += [self._output(output, number) for output in cell.get("outputs", [])]
        return "".join(out)

    @staticmethod
    def _output(output, number):
        data = output.get("data", {})
        if "image/png" in data:
            image = "".join("".join(data["image/png"]).split())
            return f'<p><img alt="output of cell {number}" src="data:image/png;base64,{image}"></p>\n'
        text = "".join(output.get("text") or data.get("text/plain") or [])
        return f'<pre class="output" tabindex="0"><code>{html.escape(text)}</code></pre>\n' if text else ""

    # ---- pages ----

    def _manual(self, page):
        """A manual page, by mandoc."""
        command = ["mandoc", "-T", "html", "-O", "fragment", self.at(page.source)]
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        except FileNotFoundError:
            raise Fault("there is no mandoc, which makes the manual page: apt-get install mandoc") from None
        text = done.stdout.decode("utf-8")
        inner = re.search(r'<div class="manual-text">.*</div>', text, re.DOTALL)
        if done.returncode > 4 or not inner:
            raise Fault(f"mandoc: {page.source}: {done.stderr.decode().strip()}")
        text = re.sub(r"<(/?)h2\b", r"<\1h3", inner[0])
        text = re.sub(r"<(/?)h1\b", r"<\1h2", text).replace("<br/>\n", "").replace('<p class="Pp"></p>\n', "")
        name = posixpath.basename(page.source)
        page.title = f"{name.rpartition('.')[0]}({name.rpartition('.')[2]})"
        return f'<h1 id="site-title">{html.escape(page.title)}</h1>\n{text}\n'

    def _gallery(self, page):
        """All figures of the other pages, each with its section."""
        page.title = "Figures"
        out = [
            '<h1 id="site-title">Figures</h1>\n<p>Every figure of these pages, small. Each leads to its section.</p>\n'
        ]
        for other in sorted(self.pages, key=lambda other: other.group != page.group):  # those of its own group first
            if not other.figures:
                continue
            name = posixpath.splitext(other.path)[0]
            out.append(f'<h2 id="{name}">{html.escape(other.title)}</h2>\n<div class="gallery">\n')
            for source, text, anchor, heading in other.figures:
                out.append(
                    f'<a href="{other.path}#{html.escape(anchor)}"><img src="{html.escape(source)}" loading="lazy" '
                    f'alt="{html.escape(text)}"><b>{html.escape(heading)}</b><span>{html.escape(text)}</span></a>\n'
                )
            out.append("</div>\n")
        return "".join(out)

    def _result_pages(self, page):
        """A page of 'adamod report' for each folder of recorded runs, and the paper's tables from all of them."""
        page.title = "Result pages"
        with tempfile.TemporaryDirectory() as work:
            out, cards = os.path.join(work, "result-pages"), []
            os.mkdir(out)
            for name in sorted(os.listdir(self.at(page.source))):
                folder = self.at(f"{page.source}/{name}")
                if os.path.isdir(folder):
                    self._run_program("report", folder, "-o", os.path.join(out, f"{name}.html"))
                    cards.append((name, f"{name}.html", f"{name}-figures"))
            self._run_program("reproduce", "--from", self.at(page.source), "--out", os.path.join(out, "paper"))
            cards.insert(0, ("The paper's tables and figures", "paper/index.html", "paper/figures"))
            made = [self._result_card(out, *card) for card in cards]
        return (
            '<h1 id="site-title">Result pages</h1>\n<p>What <code>adamod report</code> and <code>adamod reproduce</code> '
            "make of the recorded runs. Runs of your own get the same pages.</p>\n"
            f'<div class="gallery">\n{"".join(made)}</div>\n'
        )

    def _run_program(self, *arguments):
        done = subprocess.run([self.program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        if done.returncode:
            raise Fault(f"{self.program} {arguments[0]}: {done.stdout.decode(errors='replace').strip()}")

    def _result_card(self, out, title, path, figures):
        """Takes a page and the files that it links to; what leads there."""
        with open(os.path.join(out, path), encoding="utf-8") as file:
            text = file.read()
        self.files[f"result-pages/{path}"] = text.encode("utf-8")
        pictures = sorted(name for name in os.listdir(os.path.join(out, figures)) if name.endswith(".svg"))
        if not pictures:
            raise Fault(f"{path}: no figures, expected gnuplot to draw them: apt-get install gnuplot-nox")
        shown = next((name for name in pictures if name.startswith("valid-")), pictures[0])
        names = [html.unescape(href) for href in re.findall(r'href="([^"#:]+)"', text)]
        linked = {posixpath.join(posixpath.dirname(path), name) for name in names} | {f"{figures}/{shown}"}
        for name in linked:
            with open(os.path.join(out, name), "rb") as file:  # gnuplot's PDF has the time in it
                data = re.sub(rb"/CreationDate \(D:\d{14}Z\)", b"/CreationDate (D:19700101000000Z)", file.read())
            self.files[f"result-pages/{name}"] = data
        about = re.search(r"<h1>(.*?)</h1>\s*<p[^>]*>(.*?)</p>", text, re.DOTALL)
        about = re.sub(r"<[^>]*>", "", f"{about[1]}. {about[2]}") if about else ""
        return (
            f'<a href="result-pages/{path}"><img src="result-pages/{figures}/{shown}" loading="lazy" alt="">'
            f"<b>{html.escape(title)}</b><span>{about}</span></a>\n"
        )

    def _home(self, page):
        """The README, with a way into each group after what comes first."""
        cards = "".join(
            f'<a href="{pages[0].path}"><b>{html.escape(title)}</b><span>{html.escape(about)}</span></a>\n'
            for title, about, pages in self.groups
            if page not in pages
        )
        page.body = page.body.replace("</p>\n", f'</p>\n<div class="cards">\n{cards}</div>\n', 1).replace(
            "<p>", '<p class="lead">', 1
        )

    def make(self):
        for page in self.pages:
            if page.source.endswith(".md"):
                page.body = markdown_page.convert(self.read(page.source), page, self)
            elif page.source.endswith(".h"):
                page.title, page.body = posixpath.basename(page.source), self.header.to_html()
            elif re.search(r"\.[1-9]$", page.source):
                page.body = self._manual(page)
            elif os.path.exists(self.at(f"{page.source}/__init__.py")):
                page.title, page.body = "Python reference", Reference(self.at(page.source)).to_html()
            elif not os.path.isdir(self.at(page.source)):
                kinds = "Markdown, a header, a manual page, a package, or a folder of images or runs"
                raise Fault(f"{NAVIGATION}: {page.source}: expected {kinds}")
        for page in self.pages:
            if not page.body and os.path.exists(self.at(f"{page.source}/README.md")):
                page.body = self._result_pages(page)
        for page in self.pages:
            if not page.body:
                page.body = self._gallery(page)
            if page.path == "index.html":
                self._home(page)
        made = 0
        while made < len(self.sources):  # a folder leads to its files
            for page in list(self.sources.values())[made:]:
                self._make_source(page)
                made += 1

    # ---- files ----

    def _menu(self, page):
        out = []
        for title, _, pages in self.groups:
            out.append(f"<h2>{html.escape(title)}</h2>\n<ul>\n")
            for other in pages:
                current = ' aria-current="page"' if other is page else ""
                out.append(
                    f'<li><a href="{self._relative(page, other.path)}"{current}>{html.escape(other.label)}</a></li>\n'
                )
            out.append("</ul>\n")
        return "".join(out)

    def _contents(self, facts):
        entries = [entry for entry in facts.headings if entry[0] in (2, 3)]
        if len(entries) < 2:
            return ""
        rows = []
        for level, name, text in entries:
            label = html.escape(text).replace("_", "_<wbr>")
            rows.append(f'<li class="level{level}"><a href="#{html.escape(name)}">{label}</a></li>')
        return "<ul>\n" + "\n".join(rows) + "\n</ul>"

    def _neighbours(self, page):
        if page not in self.pages:
            return ""
        i, out = self.pages.index(page), []
        for step, name in ((-1, "prev"), (1, "next")):
            if 0 <= i + step < len(self.pages):
                other = self.pages[i + step]
                label = other.label if other.group == page.group else f"{other.group}: {other.label}"
                word = "Previous" if step < 0 else "Next"
                out.append(
                    f'<a rel="{name}" class="{name}" href="{other.path}"><small>{word}</small> {html.escape(label)}</a>'
                )
        return "\n".join(out)

    def finish(self):
        """All files of the site, and its faults."""
        with open(os.path.join(HERE, "template.html"), encoding="utf-8") as file:
            template = file.read()
        index = []
        pages = self.pages + list(self.sources.values())
        for page in pages:
            contents = ""
            if page in self.pages:
                facts = Facts(page.body)
                index += [[self.pages.index(page), *section] for section in facts.sections]
                contents = self._contents(facts)
            root = self._relative(page, "index.html")[: -len("index.html")]
            values = {
                "title": html.escape("adamod" if page.path == "index.html" else f"{page.title} · adamod"),
                "root": root,
                "version": html.escape(self.version),
                "menu": self._menu(page),
                "contents": contents,
                "contents_class": "" if contents else " hidden",
                "group": html.escape(page.group or "Source"),
                "source": html.escape(page.source),
                "body": page.body,
                "neighbours": self._neighbours(page),
            }
            text = re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], template)
            self.files[page.path] = text.encode("utf-8")
        lines = [json.dumps(entry, ensure_ascii=False, separators=(",", ":")) for entry in index]
        titles = json.dumps([[page.path, page.title, page.group, page.past] for page in self.pages], ensure_ascii=False)
        self.files["search-index.js"] = (
            f"window.searchIndex = {{pages: {titles}, sections: [\n" + ",\n".join(lines) + "\n]};\n"
        ).encode("utf-8")
        for name in PARTS:
            with open(os.path.join(HERE, name), "rb") as file:
                self.files[name] = file.read()
        self._check({page.path: page.source for page in pages})

    def _check(self, sources):
        """That every link, anchor and image of the files leads somewhere; keeps links to elsewhere as a file."""
        facts = {path: Facts(self.files[path].decode("utf-8")) for path in sources}
        outside = set()
        for path, found in facts.items():
            for name in found.twice:
                self.faults.append(f"{sources[path]}: {path} has the anchor {name} twice, expected once")
            for href in found.links + found.images:
                what = f"{sources[path]}: {'image' if href in found.images else 'link to'} {href}"
                if href.startswith(("https:", "http:", "mailto:")):
                    outside.add((href, sources[path]))
                    if href in found.images:
                        self.faults.append(f"{what}: expected an image of the tree")
                    continue
                if href.startswith("data:"):
                    continue
                if re.match(r"[a-z]+:", href) or href.startswith("/"):
                    self.faults.append(f"{what}: expected https:, or a path from this page")
                    continue
                name, _, anchor = href.partition("#")
                target = posixpath.normpath(posixpath.join(posixpath.dirname(path), unquote(name))) if name else path
                if target not in self.files:
                    self.faults.append(f"{what}: {target} is not there, expected a file of the site")
                elif anchor and target not in facts:
                    self.faults.append(f"{what}: {target} has no anchors, expected a page")
                elif anchor and unquote(anchor) not in facts[target].ids:
                    self.faults.append(f"{what}: {sources[target]} has no heading or name #{anchor}")
        self.files["external-links.txt"] = "".join(f"{href}\t{source}\n" for href, source in sorted(outside)).encode(
            "utf-8"
        )
        self.external = len({href for href, _ in outside})

    def write(self, out):
        """Writes beside the folder, then takes its place."""
        if os.path.exists(out) and not os.path.exists(os.path.join(out, MARKER)):
            if not os.path.isdir(out) or os.listdir(out):
                raise Fault(f"{out} exists and is not a site: choose another --out")
        temporary = f"{out}.{os.getpid()}.tmp"
        try:
            for path, data in {**self.files, MARKER: b""}.items():
                file_name = os.path.join(temporary, *path.split("/"))
                os.makedirs(os.path.dirname(file_name), exist_ok=True)
                with open(file_name, "wb") as file:
                    file.write(data)
            if os.path.exists(out):
                shutil.rmtree(out)
            os.rename(temporary, out)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def main(root, out, program=None):
    try:
        site = Site(root, program)
        site.make()
        site.finish()
        if site.faults:
            raise Fault("\n".join(sorted(set(site.faults))))
        site.write(os.path.abspath(out))
    except (Fault, ValueError, OSError) as error:
        for line in str(error).splitlines():
            print(f"site: {line}", file=sys.stderr)
        return 1
    size = sum(map(len, site.files.values())) / 1e6
    print(
        f"{os.path.join(out, 'index.html')}: {len(site.pages)} pages, {len(site.sources)} sources, {size:.1f} MB; "
        f"{site.external} external links were not followed"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]))
