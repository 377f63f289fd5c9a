// Menu, theme, contents and search. The index of the search is a script, so that it also loads from file://.
// SPDX-License-Identifier: MIT
"use strict";
const html = document.documentElement;
const byId = (id) => document.getElementById(id);

// ---- menu and theme ----

const menu = byId("site-menu");
const menuButton = byId("site-menu-button");
menuButton.addEventListener("click", () => {
    menuButton.setAttribute("aria-expanded", menu.classList.toggle("open"));
});
const current = menu.querySelector("[aria-current]");
if (current && menu.scrollHeight > menu.clientHeight) menu.scrollTop = current.offsetTop - menu.clientHeight / 2;

byId("site-theme-button").addEventListener("click", () => {
    const dark = html.dataset.theme ? html.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    html.dataset.theme = dark ? "light" : "dark";
    try { localStorage.setItem("adamod-theme", html.dataset.theme); } catch (e) { /* not kept */ }
});

// ---- contents: the section that is read ----

const entries = new Map();
for (const link of document.querySelectorAll("aside.contents a")) {
    const heading = byId(decodeURIComponent(link.hash.slice(1)));
    if (heading) entries.set(heading, link);
}
let here = null;
function showHere() {
    let found = null;
    for (const [heading, link] of entries) {
        if (heading.getBoundingClientRect().top > 120) break;
        found = link;
    }
    if (found === here) return;
    if (here) here.classList.remove("here");
    here = found;
    if (!here) return;
    here.classList.add("here");
    const box = here.closest("aside");
    const place = here.getBoundingClientRect();
    if (place.top < 80 || place.bottom > innerHeight - 20) box.scrollTop += place.top - innerHeight / 2;
}
if (entries.size) addEventListener("scroll", () => requestAnimationFrame(showHere), { passive: true });

// ---- search ----

const input = byId("site-search");
const results = byId("site-results");
let index = null;
let waiting = null;

function load() {
    waiting = waiting || new Promise((done, fail) => {
        const script = document.createElement("script");
        script.src = html.dataset.root + "search-index.js";
        script.onload = () => {
            index = window.searchIndex;
            for (const section of index.sections) section.push(section[2].toLowerCase(), section[3].toLowerCase());
            done();
        };
        script.onerror = fail;
        document.head.append(script);
    });
    return waiting;
}

// How well a text has a word: 3 as a whole, 2 as a beginning, 1 inside, 0 not at all.
function match(text, word) {
    let best = 0;
    for (let at = text.indexOf(word); at >= 0 && best < 3; at = text.indexOf(word, at + 1)) {
        const begins = at === 0 || !/[\p{L}\p{N}_]/u.test(text[at - 1]);
        const ends = at + word.length === text.length || !/[\p{L}\p{N}_]/u.test(text[at + word.length]);
        best = Math.max(best, begins && ends ? 3 : begins ? 2 : 1);
    }
    return best;
}

// The sections that have all words, best first: a word in a heading counts more than one in the text.
function find(query) {
    const words = query.toLowerCase().split(/\s+/).filter(Boolean);
    const found = [];
    for (const section of index.sections) {
        let score = 0;
        for (const word of words) {
            const heading = match(section[4], word);
            const text = match(section[5], word);
            const title = match(index.pages[section[0]][1].toLowerCase(), word);
            if (!heading && !text && !title) { score = -1; break; }
            if (!heading && !text) score += 1;
            const times = text ? Math.min(section[5].split(word).length - 1, 9) : 0;
            score += 10 * heading + 2 * text + times + (section[4] === word ? 40 : 0);
        }
        // Pages about the past come after all others.
        if (score > 0) found.push([index.pages[section[0]][3] ? score - 1000 : score, section]);
    }
    found.sort((a, b) => b[0] - a[0]);
    return { words, sections: found.map((pair) => pair[1]) };
}

function marked(text, words) {
    const escaped = words.map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
    const span = document.createElement("span");
    text.split(new RegExp("(" + escaped.join("|") + ")", "i")).forEach((part, i) => {
        if (i % 2) span.append(Object.assign(document.createElement("mark"), { textContent: part }));
        else span.append(part);
    });
    return span;
}

function excerpt(section, words) {
    const at = Math.max(0, ...words.slice(0, 1).map((word) => section[5].indexOf(word)));
    const start = at < 60 ? 0 : section[3].indexOf(" ", at - 60) + 1;
    const part = section[3].slice(start, start + 180);
    const whole = start + 180 >= section[3].length;
    return (start ? "… " : "") + (whole ? part : part.replace(/\s\S*$/, " …"));
}

function show() {
    const query = input.value.trim();
    results.hidden = !query;
    if (!query || !index) return;
    const { words, sections } = find(query);
    results.replaceChildren(...sections.slice(0, 30).map((section) => {
        const [path, title, group] = index.pages[section[0]];
        const link = document.createElement("a");
        link.href = html.dataset.root + path + "#" + encodeURIComponent(section[1]);
        const head = document.createElement("b");
        head.append(marked(section[2], words));
        if (section[2] !== title) head.append(Object.assign(document.createElement("small"), { textContent: " · " + group + ": " + title }));
        link.append(head, marked(excerpt(section, words), words));
        return link;
    }));
    if (!sections.length) {
        results.append(Object.assign(document.createElement("p"), { textContent: "No section has all of these words." }));
    }
}

function close() {
    results.hidden = true;
}

input.addEventListener("focus", () => load().then(show));
input.addEventListener("input", () => load().then(show));
document.addEventListener("click", (event) => {
    if (!event.target.closest(".search")) close();
    else if (event.target.closest("#site-results a")) close();
});
document.addEventListener("keydown", (event) => {
    const typing = /^(INPUT|TEXTAREA)$/.test(document.activeElement.tagName);
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
        event.preventDefault();
        input.focus();
        input.select();
    } else if (event.key === "Escape") {
        close();
        input.blur();
        menu.classList.remove("open");
    }
});
input.addEventListener("keydown", (event) => {
    const links = [...results.querySelectorAll("a")];
    const at = links.findIndex((link) => link.classList.contains("chosen"));
    if (event.key === "Enter" && links.length) {
        location.href = links[Math.max(at, 0)].href;
        close();
    } else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && links.length) {
        event.preventDefault();
        if (at >= 0) links[at].classList.remove("chosen");
        const next = (at + (event.key === "ArrowDown" ? 1 : links.length - 1) + (at < 0 && event.key === "ArrowUp" ? 1 : 0)) % links.length;
        links[next].classList.add("chosen");
        links[next].scrollIntoView({ block: "nearest" });
    }
});

// A page with ?q=WORDS begins with a search.
const asked = new URLSearchParams(location.search).get("q");
if (asked) {
    input.value = asked;
    load().then(show);
}
