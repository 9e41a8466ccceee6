"""The sources of OAR as the tests of its form see them: modules, their imports, their functions, their texts."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PACKAGE = ROOT / "oar"


@dataclass(frozen=True)
class Module:
    """A source file."""

    name: str
    path: Path

    @cached_property
    def tree(self) -> ast.Module:
        """Its syntax, parsed when it is needed first: each process that runs tests would parse a thousand files."""
        return ast.parse(self.path.read_text(encoding="utf-8"))

    @property
    def is_package(self) -> bool:
        """Whether it is an ``__init__.py``."""
        return self.path.name == "__init__.py"

    @cached_property
    def imports(self) -> tuple[str, ...]:
        """The full name of everything that is imported anywhere in the file, for type checking too."""
        return tuple(imported_in(self.tree))

    def texts(self) -> Iterator[tuple[int, str]]:
        """Give line and value of each string that is not a docstring; an f-string's parts are one text."""
        ignored: set[ast.AST] = set()
        for node in ast.walk(self.tree):  # a node comes before its parts
            if isinstance(node, ast.JoinedStr):
                constants = [part for part in node.values if isinstance(part, ast.Constant)]
                ignored.update(constants)
                yield node.lineno, " ".join(str(part.value) for part in constants)
            elif isinstance(node, ast.Constant):
                if isinstance(node.value, str) and node not in ignored:
                    yield node.lineno, node.value
            elif isinstance(body := getattr(node, "body", None), list) and body and isinstance(body[0], ast.Expr):
                ignored.add(body[0].value)  # a docstring


def imported_in(tree: ast.Module) -> Iterator[str]:
    """Give the full name of everything that is imported anywhere in a program."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@cache
def modules() -> dict[str, Module]:
    """Return all modules of the package by name; the tools, which are no modules, are not among them."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if not name.startswith("oar.tools"):
            found[name] = Module(name, path)
    return found


@cache
def tools() -> dict[str, Module]:
    """Return the programs for nodes, by their file names, except those for the shell."""
    texts = {path: path.read_text(encoding="utf-8") for path in (PACKAGE / "tools").iterdir() if path.is_file()}
    return {
        path.name: Module(path.name, path) for path, text in sorted(texts.items()) if not text.startswith("#!/bin/sh")
    }
