#!/usr/bin/env python3
"""The documentation's site (scripts/site): it builds, twice the same; its links, anchors and images lead somewhere, by
a check of this file's own; the faults that scripts/site is to find are found. Where there is a chromium, pages are
opened at the widths of a desktop and a phone, light and dark: nothing is wider than the window, the search finds, the
console stays empty.

ADAMOD_TEST_BROWSER=1 demands the chromium.

SPDX-License-Identifier: MIT
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import test_docs

ROOT = os.environ.get("SOURCE_DIR") or test_docs.ROOT
SKIPPED = 77
PROGRAM = os.environ.get("ADAMOD") or os.path.join(os.environ.get("BUILD_DIR") or os.path.join(ROOT, "build"), "adamod")
LONG = (
    "index",
    "optimizers",
    "c-reference",
    "python-reference",
    "results",
    "performance",
    "architecture",
    "adamod.1",
    "figures",
    "result-pages",
)


def check(condition, message):
    if not condition:
        print(f"FAIL {message}")
        sys.exit(1)


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read()


def write(text, *path):
    os.makedirs(os.path.dirname(os.path.join(*path)), exist_ok=True)
    with open(os.path.join(*path), "w", encoding="utf-8") as file:
        file.write(text)


def build(root, out, *arguments, **environment):
    """The exit status, and what was printed."""
    done = subprocess.run(
        [os.path.join(root, "scripts", "site"), "--out", out, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "PYTHON": sys.executable, **environment},
        check=False,
    )
    return done.returncode, done.stdout.decode()


def contents(folder):
    found = {}
    for at, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(at, name), "rb") as file:
                found[os.path.relpath(os.path.join(at, name), folder)] = file.read()
    return found


# ---- the site of this tree ----


def check_links(files):
    """Every link has its file and anchor; nothing is loaded from elsewhere."""
    pages = {path: data.decode() for path, data in files.items() if path.endswith(".html")}
    ids = {path: set(re.findall(r'\sid="([^"]+)"', text)) for path, text in pages.items()}
    links = anchors = 0
    for path, text in pages.items():
        loaded = re.findall(r'<(?:script|link|img)[^>]* (?:src|href)="([^"]*)"', text)
        check(not any(re.match(r"(https?:)?//", link) for link in loaded), f"{path} loads something from elsewhere")
        for link in re.findall(r'\s(?:href|src)="([^"]*)"', text):
            if re.match(r"(https?|mailto|data):", link):
                continue
            target, _, anchor = link.partition("#")
            target = os.path.normpath(os.path.join(os.path.dirname(path), target)) if target else path
            check(target in files, f"{path}: {link}: there is no {target}")
            check(not anchor or anchor in ids[target], f"{path}: {link}: there is no such anchor")
            links, anchors = links + 1, anchors + bool(anchor)
    print(f"ok {len(pages)} pages, {links} links, {anchors} of them to anchors")
    return ids


def check_names(ids):
    """Headings have the names that GitHub gives them; functions and classes have theirs."""
    groups = json.loads(read(ROOT, "docs", "site", "navigation.json"))["groups"]
    for page in (page for group in groups for page in group["pages"]):
        if page["source"].endswith(".md"):
            path = page.get("page") or os.path.basename(page["source"])[:-3].lower() + ".html"
            missing = test_docs.anchors(os.path.join(ROOT, page["source"])) - ids[path]
            check(not missing, f"{path} has no {missing}")
    functions = re.findall(r"^ADAMOD_API .*?(\w+)\(", read(ROOT, "lib", "include", "adamod.h"), re.MULTILINE)
    check(len(functions) > 60, f"only {len(functions)} functions in adamod.h")
    check(
        set(functions) <= ids["c-reference.html"], f"the C reference lacks {set(functions) - ids['c-reference.html']}"
    )
    classes = []
    for name in ("rules.py", "rivals.py"):
        text = read(ROOT, "python", "libadamod", "torch", name)
        classes += re.findall(r"^class ([A-Z]\w*)\(", text, re.MULTILINE)
    check(len(classes) > 20, f"only {len(classes)} classes in libadamod.torch")
    wanted = {f"libadamod.torch.{name}" for name in classes} | {
        "libadamod.numpy.update",
        "libadamod.torch.Optimizer.step",
    }
    check(wanted <= ids["python-reference.html"], f"the Python reference lacks {wanted - ids['python-reference.html']}")
    print(f"ok names of headings, {len(functions)} functions, {len(classes)} classes")


def check_search_index(files):
    text = files["search-index.js"].decode()
    pages, sections = re.fullmatch(
        r"window\.searchIndex = \{pages: (\[.*?\]), sections: (\[\n.*\n\])\};\n", text, re.DOTALL
    ).groups()
    pages, sections = json.loads(pages), json.loads(sections)
    found = {pages[number][0] for number, _, heading, text in sections if "beta3" in (heading + text).lower()}
    check({"optimizers.html", "pytorch.html", "python-reference.html"} <= found, f"beta3 is only in {found}")
    print(f"ok an index of {len(sections)} sections")


def check_result_pages(files, draws):
    """A page of each folder of recorded runs, and one of the paper, with a figure each; none without the program."""
    pages = {path for path in files if re.fullmatch(r"result-pages/.*\.html", path)}
    folders = [name for name in os.listdir(os.path.join(ROOT, "results")) if not name.endswith(".md")]
    expected = {f"result-pages/{name}.html" for name in folders} | {"result-pages/paper/index.html"} if draws else set()
    check(pages == expected, f"result pages: {sorted(pages)}, expected {sorted(expected)}")
    check(("result-pages.html" in files) == bool(draws), "a gallery of pages that are not there, or none of those that are")
    if draws:
        cards = files["result-pages.html"].decode().count('<a href="result-pages/')
        check(cards == len(expected), f"{cards} cards for {len(expected)} result pages")
    print(f"ok {len(pages)} result pages")


# ---- faults, in a small tree ----

NAVIGATION = {
    "groups": [
        {
            "title": "Start",
            "about": "all",
            "pages": [
                {"source": "README.md", "title": "Home", "page": "index.html"},
                {"source": "docs/one.md", "title": "One"},
            ],
        }
    ]
}
HOME = """# small

A page: [one](docs/one.md), [its part](docs/one.md#a-part-of-it), [a file](run.sh), [cells](x.ipynb),
[a folder](docs/images).
"""
NOTEBOOK = {
    "cells": [
        {"cell_type": "markdown", "source": ["# Cells\n", "\n", "[one](docs/one.md)"]},
        {"cell_type": "code", "source": ["print(1 < 2)"], "outputs": [{"output_type": "stream", "text": ["True\n"]}]},
    ]
}
ONE = "# One\n\n## A part of it\n\n![a line](images/line.svg)\n"


def check_faults(work):
    tree, out = os.path.join(work, "tree"), os.path.join(work, "small")
    shutil.copytree(os.path.join(ROOT, "docs", "site"), os.path.join(tree, "docs", "site"))
    os.mkdir(os.path.join(tree, "scripts"))
    shutil.copy(os.path.join(ROOT, "scripts", "site"), os.path.join(tree, "scripts"))

    def fill(home=HOME, one=ONE, navigation=NAVIGATION, image='<svg xmlns="http://www.w3.org/2000/svg"/>'):
        write(home, tree, "README.md")
        write(one, tree, "docs", "one.md")
        write("echo\n", tree, "run.sh")
        write(json.dumps(NOTEBOOK), tree, "x.ipynb")
        write(json.dumps(navigation), tree, "docs", "site", "navigation.json")
        write(image, tree, "docs", "images", "line.svg")

    fill()
    status, said = build(tree, out)
    check(status == 0, f"the small tree does not build: {said}")
    before = contents(out)
    check(
        {"index.html", "one.html", "images/line.svg", "source/run.sh.html"} <= set(before),
        f"the small site has {sorted(before)}",
    )
    cells = before["source/x.ipynb.html"].decode()
    for part in (
        '<h1 id="cell-1-cells">',
        '<a href="../one.html">one</a>',
        "&lt;",
        '<pre class="output" tabindex="0"><code>True',
    ):
        check(part in cells, f"the notebook has no {part}")

    def fails(what, message, **changed):
        fill(**changed)
        status, said = build(tree, out)
        check(status == 1 and message in said, f"{what}: status {status}, {said!r}, expected {message!r}")
        check(contents(out) == before, f"{what}: the site was written")

    fails(
        "a broken link",
        "README.md:6: link to docs/two.md: docs/two.md is not there",
        home=HOME + "\n[two](docs/two.md)\n",
    )
    fails(
        "a broken anchor",
        "README.md: link to one.html#no-part: docs/one.md has no heading or name #no-part",
        home=HOME + "\n[no part](docs/one.md#no-part)\n",
    )
    fails(
        "a broken anchor of its own",
        "docs/one.md: link to #gone: docs/one.md has no heading or name #gone",
        one=ONE + "\n[x](#gone)\n",
    )
    fails(
        "a missing image",
        "docs/one.md:5: image images/no.svg: docs/images/no.svg is not there",
        one=ONE.replace("line", "no"),
    )
    fails(
        "an image of elsewhere", "expected an image of the tree", one=ONE + '\n<img src="https://example.org/a.png">\n'
    )
    fails("a page without a title", "docs/one.md: no title", one="## A part of it\n")
    gone = json.loads(json.dumps(NAVIGATION).replace("docs/one.md", "docs/none.md"))
    fails("a page that is not there", "docs/none.md is not there", navigation=gone)
    write("# Two\n", tree, "docs", "two.md")
    fails("a page that the navigation lacks", "docs/two.md: not in the navigation")
    os.remove(os.path.join(tree, "docs", "two.md"))

    fill()
    other = os.path.join(work, "other")
    write("mine\n", other, "file")
    status, said = build(tree, other)
    check(
        status == 1 and "is not a site" in said and set(contents(other)) == {"file"},
        f"a folder of others: {status}, {said}",
    )
    usage = subprocess.run([os.path.join(tree, "scripts", "site"), "--no-such"], stderr=subprocess.PIPE, check=False)
    check(usage.returncode == 2 and usage.stderr.startswith(b"usage: scripts/site"), "a flag that there is not")
    print("ok faults")


# ---- in a browser ----

# Opens each page in frames of two widths, one after the other, and tells what it saw.
HARNESS = """<!DOCTYPE html><body><script>
const seen = [];
const color = (view, element) => view.getComputedStyle(element).backgroundColor;
async function look(page, width) {
    const frame = document.createElement("iframe");
    frame.width = width;
    frame.height = 800;
    frame.src = page + ".html";
    document.body.append(frame);
    await new Promise((done) => { frame.onload = done; });
    const view = frame.contentWindow, root = frame.contentDocument.documentElement;
    const one = {page, width, inner: view.innerWidth, scroll: root.scrollWidth};
    one.back = color(view, frame.contentDocument.body);
    frame.contentDocument.getElementById("site-theme-button").click();
    one.switched = color(view, frame.contentDocument.body);
    one.dark_scroll = root.scrollWidth;
    frame.contentDocument.getElementById("site-theme-button").click();
    if (width < 600) {
        frame.contentDocument.getElementById("site-menu-button").click();
        one.menu = frame.contentDocument.getElementById("site-menu").getBoundingClientRect().height;
        one.menu_scroll = root.scrollWidth;
    }
    view.localStorage.clear();  // the next one has the system's again
    seen.push(one);
    frame.remove();
}
(async () => {
    for (const page of PAGES) for (const width of [1280, 390]) await look(page, width);
    const out = document.createElement("pre");
    out.id = "seen";
    out.textContent = JSON.stringify(seen);
    document.body.append(out);
})();
</script></body>
"""


def browse(browser, work, url, *flags):
    """The page as the browser has it in the end. Nothing may be said on its console."""
    done = subprocess.run(
        [
            browser,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--enable-logging=stderr",
            f"--user-data-dir={tempfile.mkdtemp(dir=work)}",
            "--window-size=1280,900",
            "--virtual-time-budget=60000",
            *flags,
            "--dump-dom",
            url,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        check=False,
        timeout=240,
    )
    said = [line for line in done.stderr.decode().splitlines() if "CONSOLE" in line]
    check(not said, f"{url}: the console says: {said[:3]}")
    check(done.returncode == 0, f"{url}: {browser} ends with {done.returncode}: {done.stderr.decode()[-500:]}")
    return done.stdout.decode()


def is_dark(color):
    return sum(map(int, re.findall(r"\d+", color)[:3])) < 3 * 128


def check_in_browser(site, work):
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if not browser:
        check(os.environ.get("ADAMOD_TEST_BROWSER") != "1", "ADAMOD_TEST_BROWSER is 1, and there is no chromium")
        print("skipped: pages in a browser; there is no chromium")
        return
    # As a user has it: a file, and no flag that lets a page read others.
    found = browse(browser, work, f"file://{site}/index.html?q=beta3")
    results = found.partition('id="site-results">')[2].partition("</header>")[0]
    check(
        results.count("<a ") > 5 and "<mark>beta3</mark>" in results and "optimizers.html#" in results,
        f"the search: {results[:500]}",
    )
    found = browse(browser, work, f"file://{site}/optimizers.html?q=nosuchword")
    check("No section has all of these words." in found, "a search for what is nowhere")
    pages = [page for page in LONG if os.path.exists(os.path.join(site, f"{page}.html"))]
    check(len(pages) >= len(LONG) - 1, f"only {pages} are there")
    write(HARNESS.replace("PAGES", json.dumps(pages)), site, "harness.html")
    for dark in (False, True):
        flags = ["--allow-file-access-from-files"] + (["--blink-settings=preferredColorScheme=0"] if dark else [])
        page = browse(browser, work, f"file://{site}/harness.html", *flags)
        match = re.search(r'<pre id="seen">(.*?)</pre>', page)
        check(match, "the pages did not open")
        seen = json.loads(match[1].replace("&amp;", "&"))
        check(len(seen) == 2 * len(pages), f"{len(seen)} pages were seen")
        for one in seen:
            where = f"{one['page']}.html at {one['width']} px"
            check(one["inner"] == one["width"], f"{where}: the frame is {one['inner']} wide")
            for key in ("scroll", "dark_scroll", "menu_scroll"):
                check(one.get(key, 0) <= one["inner"], f"{where}: it is {one.get(key)} wide ({key})")
            check(
                is_dark(one["back"]) == dark,
                f"{where}: its background is {one['back']} where the system is {'dark' if dark else 'light'}",
            )
            check(is_dark(one["switched"]) != dark, f"{where}: the switch leaves it {one['switched']}")
            check(one.get("menu", 800) > 400, f"{where}: the menu does not open")
    os.remove(os.path.join(site, "harness.html"))
    print(f"ok in {os.path.basename(browser)}: {len(pages)} pages, 2 widths, light and dark; search")


def main():
    needed = [
        module
        for module in ("markdown_it",)
        if subprocess.run([sys.executable, "-c", f"import {module}"], stderr=subprocess.DEVNULL).returncode
    ]
    needed += [] if shutil.which("mandoc") else ["mandoc"]
    if needed:
        print(f"skipped: there is no {' and no '.join(needed)}: apt-get install python3-markdown-it mandoc")
        return SKIPPED
    draws = os.path.exists(PROGRAM) and shutil.which("gnuplot")
    work = os.path.realpath(tempfile.mkdtemp())
    try:
        first, second = os.path.join(work, "first"), os.path.join(work, "second")
        for out, seed in ((first, "1"), (second, "2")):
            status, said = build(ROOT, out, *(["--program", PROGRAM] if draws else []), PYTHONHASHSEED=seed)
            check(status == 0, said)
        files = contents(first)
        check(files == contents(second), "two builds differ")
        print(f"ok two builds are the same: {len(files)} files, {sum(map(len, files.values())) / 1e6:.1f} MB")
        check_names(check_links(files))
        check_search_index(files)
        check_result_pages(files, draws)
        check_faults(work)
        check_in_browser(first, work)
    finally:
        shutil.rmtree(work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
