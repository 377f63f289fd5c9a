"""The Python reference, from signatures and docstrings, read without importing anything.

SPDX-License-Identifier: MIT
"""

import ast
import functools
import html
import inspect
import os
import re

from comments import to_html
from highlight import highlight


class _Module:
    def __init__(self, path, name):
        self.path, self.name = path, name
        with open(path, encoding="utf-8") as file:
            self.text = file.read()
        self.lines = self.text.encode("utf-8").split(b"\n")
        self.tree = ast.parse(self.text, path)
        self.folder = os.path.dirname(path)
        self.all = self._all()

    def segment(self, node):
        """The source of a node. Columns count bytes. ast.get_source_segment splits the whole text each time."""
        lines = self.lines[node.lineno - 1 : node.end_lineno]
        lines[-1] = lines[-1][: node.end_col_offset]
        lines[0] = lines[0][node.col_offset :]
        return b"\n".join(lines).decode("utf-8")

    def _imported(self, level, module):
        """The module that `from .module import` names; None if it is not of this package."""
        if level == 0:
            return None
        folder = self.folder
        for _ in range(level - 1):
            folder = os.path.dirname(folder)
        path = os.path.join(folder, *(module or "__init__").split("."))
        for file in (path + ".py", os.path.join(path, "__init__.py")):
            if os.path.exists(file):
                return _module(file, self.name)
        return None

    def _all(self):
        """__all__, with what `__all__ += other.__all__` adds."""
        found = []
        for node in self.tree.body:
            target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
            if not isinstance(target, ast.Name) or target.id != "__all__":
                continue
            if isinstance(node.value, ast.Attribute):
                found += self._imported(1, node.value.value.id).all
            else:
                found += ast.literal_eval(node.value)
        return found

    def find(self, name):
        """The module that defines a name, or imports it from another package, and its node there."""
        statements = list(_statements(self.tree.body))
        for node in statements:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name == name:
                return self, node
            if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
                return self, node
        for node in statements:
            if isinstance(node, ast.ImportFrom) and any(
                (alias.asname or alias.name) in (name, "*") for alias in node.names
            ):
                module = self._imported(node.level, node.module)
                found = module.find(name) if module else (self, node)
                if found:
                    return found
        return None


def _statements(body):
    """Those of a module, also where they depend on what is installed."""
    for node in body:
        yield node
        if isinstance(node, (ast.If, ast.Try)):
            parts = [node.body, node.orelse, *(handler.body for handler in getattr(node, "handlers", []))]
            for part in parts:
                yield from _statements(part)


@functools.lru_cache(maxsize=None)
def _module(path, name):
    return _Module(path, name)


def _docstring(node):
    text = ast.get_docstring(node) or ""
    return inspect.cleandoc(text).split("\nSPDX-License")[0]


def _is_overload(node):
    return any(isinstance(d, ast.Name) and d.id == "overload" for d in node.decorator_list)


def _signature(module, name, function, of_class=False):
    """As in a call: NAME(a: type = default, ...) -> type; an argument a line where it is long."""
    a = function.args
    positional = [*getattr(a, "posonlyargs", []), *a.args]
    defaults = [None] * (len(positional) - len(a.defaults)) + list(a.defaults)

    def argument(arg, default, star=""):
        text = star + arg.arg + (f": {module.segment(arg.annotation)}" if arg.annotation else "")
        equals = " = " if arg.annotation else "="
        return text + (equals + module.segment(default) if default is not None else "")

    shown = [argument(*pair) for pair in zip(positional, defaults)]
    if of_class and shown:
        del shown[0]  # self
    if a.vararg:
        shown.append(argument(a.vararg, None, "*"))
    elif a.kwonlyargs:
        shown.append("*")
    shown += [argument(*pair) for pair in zip(a.kwonlyargs, a.kw_defaults)]
    if a.kwarg:
        shown.append(argument(a.kwarg, None, "**"))
    returns = f" -> {module.segment(function.returns)}" if function.returns and function.name != "__init__" else ""
    line = f"{name}({', '.join(shown)}){returns}"
    return line if len(line) <= 88 else f"{name}(\n    " + ",\n    ".join(shown) + f",\n){returns}"


class Reference:
    def __init__(self, root):
        """root: the folder of the package."""
        package = os.path.basename(root)
        files = {package: os.path.join(root, "__init__.py")}
        # Those that are folders first: they are the larger ones.
        for name in sorted(os.listdir(root), key=lambda name: (name.endswith(".py"), name)):
            path = os.path.join(root, name)
            if name.endswith(".py") and not name.startswith("_"):
                files[f"{package}.{name[:-3]}"] = path
            elif os.path.exists(os.path.join(path, "__init__.py")):
                files[f"{package}.{name}"] = os.path.join(path, "__init__.py")
        self.modules = [_Module(path, name) for name, path in files.items()]
        self.anchors = {}  # of names, the first that has it
        self.current = None  # the entry that is made
        for module in self.modules:
            module.all = [name for name in module.all if not name.startswith("_")]
            for name in module.all:
                self.anchors.setdefault(name, f"{module.name}.{name}")

    def _link(self, word):
        anchor = self.anchors.get(word)
        # Words such as "options" and "update" are also words of English.
        if not anchor or anchor == self.current or not re.search(r"[A-Z_]", word):
            return html.escape(word)
        return f'<a class="name" href="#{anchor}">{word}</a>'

    def _doc(self, node):
        return to_html(_docstring(node), self._link, lambda text: highlight(text, "python"), docstring=True)

    def _entry(self, level, anchor, title, code, text):
        shown = highlight(code, "python", self._link) if code else ""
        return (
            f'<section class="entry">\n<h{level} id="{anchor}"><code>{html.escape(title)}</code> '
            f'<a class="anchor" href="#{anchor}" aria-label="link to this entry">#</a></h{level}>\n'
            + (f'<pre tabindex="0"><code>{shown}</code></pre>\n' if code else "")
            + f"{text}</section>\n"
        )

    def _class(self, module, node, anchor):
        functions = [f for f in node.body if isinstance(f, ast.FunctionDef) and not _is_overload(f)]
        init = next((f for f in functions if f.name == "__init__"), None)
        fields = [
            (f.target.id, module.segment(f.annotation), f)
            for f in node.body
            if isinstance(f, ast.AnnAssign) and not f.target.id.startswith("_")
        ]
        bases = ", ".join(filter(None, map(module.segment, node.bases)))
        code = _signature(module, node.name, init, True) if init else f"class {node.name}({bases})"
        if not init and fields:
            code += ":\n" + "\n".join(f"    {name}: {kind}" for name, kind, _ in fields)
        out = self._entry(3, anchor, node.name, code, self._doc(node))
        for function in functions:
            if not function.name.startswith("_") and ast.get_docstring(function):
                name = f"{node.name}.{function.name}"
                static = any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in function.decorator_list)
                code = _signature(module, function.name, function, not static)
                out += self._entry(4, f"{anchor}.{function.name}", name, code, self._doc(function))
        return out

    def _name(self, module, name):
        found = module.find(name)
        if not found:
            raise ValueError(f"{module.path}: __all__ has {name}, expected a definition of it in the package")
        there, node = found
        anchor = self.current = f"{module.name}.{name}"
        if isinstance(node, ast.ClassDef):
            return self._class(there, node, anchor)
        if isinstance(node, ast.FunctionDef):
            return self._entry(3, anchor, name, _signature(there, name, node), self._doc(node))
        before = there.text.split("\n")[node.lineno - 2]
        about = f"<p>{html.escape(before[2:])}</p>\n" if before.startswith("# ") else ""
        return self._entry(3, anchor, name, "" if about else there.segment(node), about)

    def to_html(self):
        out = ['<h1 id="python-reference">Python reference</h1>\n']
        for module in self.modules:
            out.append(f'<h2 id="{module.name}">{module.name} <a class="anchor" href="#{module.name}">#</a></h2>\n')
            self.current = None
            out.append(self._doc(module.tree))
            out += [self._name(module, name) for name in module.all]
        return "".join(out)
