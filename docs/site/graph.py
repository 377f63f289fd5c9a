"""A graph in the words of mermaid, as far as the pages use them, drawn from top to bottom as SVG.

    graph TD
    subgraph the title of a frame
    a["name: what it is"] --> b & c
    end

SPDX-License-Identifier: MIT
"""

import html
import re
import textwrap

BOX, GAP, LINE, RANK = 190, 16, 17, 42  # width of a box, space beside it, height of a line, space between ranks
_NODE = re.compile(r'(\w+)(?:\["([^"]*)"\])?$')


def _read(text, where):
    """Labels of nodes, edges, and the nodes of each frame."""
    labels, edges, frames, inside = {}, [], {}, None
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if number == 1 and re.match(r"graph (TD|LR)$", line):
            continue
        if line.startswith("subgraph "):
            inside = frames.setdefault(line[9:], [])
            continue
        if line == "end":
            inside = None
            continue
        ends = []
        for side in line.split("-->"):
            nodes = [_NODE.match(node.strip()) for node in side.split("&")]
            if not all(nodes):
                raise ValueError(f"{where}: line {number} of a graph is {line!r}, expected nodes, -->, subgraph or end")
            for name, label in (node.groups() for node in nodes):
                if label is not None:
                    labels[name] = label
                    if inside is not None:
                        inside.append(name)
            ends.append([node[1] for node in nodes])
        edges += [(a, b) for before, after in zip(ends, ends[1:]) for a in before for b in after]
    missing = sorted({name for edge in edges for name in edge} - set(labels))
    if missing:
        raise ValueError(f"{where}: a graph has no label for {missing[0]}")
    return labels, edges, frames


def _ranked(labels, edges):
    """Nodes in ranks, each below all that lead to it. An edge across ranks has a point in each: (a, b, rank)."""
    rank = dict.fromkeys(labels, 0)
    for _ in labels:
        for a, b in edges:
            rank[b] = max(rank[b], rank[a] + 1)
    ranks = [[name for name in labels if rank[name] == r] for r in range(max(rank.values()) + 1)]
    chains = []
    for a, b in edges:
        points = [(a, b, r) for r in range(rank[a] + 1, rank[b])]
        for point in points:
            ranks[point[2]].append(point)
        chains.append([a, *points, b])
    links = [pair for chain in chains for pair in zip(chain, chain[1:])]
    for sweep in range(8):  # each node to the middle of its neighbours, downwards and upwards in turns
        here = {node: (i + 0.5) / len(nodes) for nodes in ranks for i, node in enumerate(nodes)}
        for nodes in ranks[1:] if sweep % 2 == 0 else ranks[-2::-1]:
            near = {
                node: [here[a] for a, b in links if b == node]
                if sweep % 2 == 0
                else [here[b] for a, b in links if a == node]
                for node in nodes
            }
            nodes.sort(key=lambda node: sum(near[node]) / len(near[node]) if near[node] else here[node])
            here.update({node: (i + 0.5) / len(nodes) for i, node in enumerate(nodes)})
    return ranks, chains


def graph(text, where):
    """The SVG of a graph; where is for messages."""
    labels, edges, frames = _read(text, where)
    ranks, chains = _ranked(labels, edges)
    lines = {
        name: [label.partition(": ")[0], *textwrap.wrap(label.partition(": ")[2], 27)] for name, label in labels.items()
    }
    width_of = {node: BOX if node in labels else GAP for nodes in ranks for node in nodes}
    total = [sum(width_of[node] for node in nodes) + GAP * (len(nodes) - 1) for nodes in ranks]
    width, y, place = max(total) + 2 * GAP, GAP + (LINE if frames else 0), {}
    for nodes, taken in zip(ranks, total):
        height = max(len(lines[node]) for node in nodes if node in labels) * LINE + 14
        x = (width - taken) / 2
        for node in nodes:
            place[node] = x, y, width_of[node], height
            x += width_of[node] + GAP
        y += height + RANK
    height = y - RANK + GAP

    out = []
    for title, nodes in frames.items():
        top, bottom = min(place[n][1] for n in nodes) - LINE - 5, max(place[n][1] + place[n][3] for n in nodes) + 8
        out.append(f'<rect class="frame" x="1" y="{top:g}" width="{width - 2:g}" height="{bottom - top:g}" rx="6"/>')
        out.append(f'<text class="title" x="10" y="{top + 15:g}">{html.escape(title)}</text>')
    for chain in chains:
        x, y, w, h = place[chain[0]]
        x, y = x + w / 2, y + h
        path = [f"M{x:g} {y:g}"]
        for node in chain[1:]:
            nx, ny, w, h = place[node]
            nx, bend = nx + w / 2, (ny - y) / 2
            path.append(f"C{x:g} {y + bend:g} {nx:g} {ny - bend:g} {nx:g} {ny:g}")
            if node not in labels:
                path.append(f"V{ny + h:g}")
            x, y = nx, ny + h
        out.append(f'<path d="{" ".join(path)}"/>')
        x, y = place[chain[-1]][0] + place[chain[-1]][2] / 2, place[chain[-1]][1]
        out.append(f'<path class="tip" d="M{x - 4:g} {y - 7:g}L{x:g} {y:g}L{x + 4:g} {y - 7:g}z"/>')
    for name in labels:
        x, y, w, h = place[name]
        out.append(f'<rect x="{x:g}" y="{y:g}" width="{w}" height="{h}" rx="4"/>')
        top = y + (h - LINE * len(lines[name])) / 2 + 12
        for i, line in enumerate(lines[name]):
            weight = ' class="name"' if i == 0 else ""
            out.append(f'<text{weight} x="{x + w / 2:g}" y="{top + i * LINE:g}">{html.escape(line)}</text>')
    words = "; ".join(f"{a} leads to {b}" for a, b in edges)
    return (
        f'<div class="graph" tabindex="0"><svg viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}"'
        f' role="img" aria-label="{html.escape(words)}">\n' + "\n".join(out) + "\n</svg></div>\n"
    )
