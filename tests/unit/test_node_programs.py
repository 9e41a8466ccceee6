"""The programs for nodes run where nothing is newer than Python 3.6, and are checked as everything else is."""

import ast
import subprocess
import sys
import tomllib
import types
from collections.abc import Iterator, Mapping
from pathlib import Path

import node_base
import pytest
from parso.grammar import load_grammar

from oar.lib.remote.bootstrap import PROGRAMS, SESSION
from tests.unit.sources import ROOT, imported_in, tools

OLDEST = "3.6"


def is_for_types(node: ast.AST) -> bool:
    """Return whether a statement is below ``if TYPE_CHECKING``, which no interpreter ever executes."""
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def executed(text: str) -> str:
    """Return a program without what only mypy reads; the lines keep their numbers."""
    lines = text.splitlines()
    for node in ast.parse(text).body:
        if isinstance(node, ast.If) and is_for_types(node):
            first, last = node.body[0].lineno, node.end_lineno or 0
            lines[first - 1 : last] = ["    pass", *[""] * (last - first)]
    return "\n".join(lines) + "\n"


def annotations(tree: ast.AST) -> Iterator[ast.expr]:
    """Give every annotation of a program."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            arguments += [argument for argument in (node.args.vararg, node.args.kwarg) if argument]
            yield from (argument.annotation for argument in arguments if argument.annotation)
            if node.returns:
                yield node.returns
        elif isinstance(node, ast.AnnAssign):
            yield node.annotation


def is_harmless(annotation: ast.expr) -> bool:
    """Return whether an old interpreter can evaluate an annotation: a text, or a name with dots."""
    while isinstance(annotation, ast.Attribute):
        annotation = annotation.value
    return isinstance(annotation, ast.Constant | ast.Name)


def too_new(programs: Mapping[str, str], directory: Path) -> list[str]:
    """Return what of these programs, name -> text, Python 3.6 does not understand or does not have."""
    grammar = load_grammar(version=OLDEST)
    faults = []
    for name, text in programs.items():
        source = executed(text)
        (directory / name).write_text(source)
        for issue in grammar.iter_errors(grammar.parse(source)):
            faults.append(f"{name}:{issue.start_pos[0]}: {issue.message}")
        for annotation in annotations(ast.parse(source)):
            if not is_harmless(annotation):
                faults.append(f"{name}:{annotation.lineno}: the annotation {ast.unparse(annotation)}")
    options = ["--no-config-file", "--quiet", "--violations", "--eval-annotations", f"--target={OLDEST}-"]
    vermin = [
        sys.executable,
        "-c",
        "import vermin; vermin.main()",
        *options,
        *(str(directory / name) for name in programs),
    ]
    report = subprocess.run(vermin, capture_output=True, text=True, check=False)
    return [*faults, report.stdout + report.stderr] if report.returncode else faults


def test_programs_for_nodes_are_python_3_6(tmp_path: Path) -> None:
    programs = {name: tool.path.read_text(encoding="utf-8") for name, tool in tools().items()}
    assert not too_new(programs, tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "if (n := 3): pass",
        "def f(a, /): pass",
        "print(f'{a=}')",
        "def f(*a): return 1, *a",
        "with (open('a') as a, open('b') as b): pass",
        "@a[0].b\ndef f(): pass",
        "while True:\n  try: pass\n  finally: continue",
        "from __future__ import annotations",
        "import dataclasses",
        "import shlex; shlex.join([])",
        "import subprocess; subprocess.run([], capture_output=True)",
        "import subprocess; subprocess.Popen([], text=True)",
        "import time; time.monotonic_ns()",
        "'a'.removeprefix('b')",
        "a = dict(b=1) | {}",
        "A = dict[str, int]",
        "def f(a: int | None): pass",
        "def f(a: list[int]): pass",
        "def f() -> dict[str, int]: pass",
        "class A:\n  a: list[int] = []",
    ],
)
def test_what_python_3_6_does_not_have_is_found(text: str, tmp_path: Path) -> None:
    assert too_new({"program.py": text}, tmp_path)


def test_what_only_mypy_reads_may_be_newer(tmp_path: Path) -> None:
    text = """TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    Data = dict[str, int | None]

def f(a: "Data | None") -> "list[int]":
    b: "set[int]" = set()
    return sorted(b)
"""
    assert not too_new({"program.py": text}, tmp_path)


def test_no_program_for_nodes_imports_typing_when_it_runs() -> None:
    """It would be the slowest import of a session: see the text of node_base."""
    assert not [
        name
        for name, tool in tools().items()
        for module in imported_in(ast.parse(executed(tool.path.read_text(encoding="utf-8"))))
        if module.partition(".")[0] == "typing"
    ]


def test_tools_without_a_suffix_are_named_where_mypy_and_ruff_look_for_files() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    without_suffix = {f"oar/tools/{name}" for name in tools() if not name.endswith(".py")}
    assert without_suffix <= set(project["mypy"]["files"])
    assert without_suffix <= set(project["ruff"]["extend-include"])


def test_programs_are_sent_after_those_that_they_import() -> None:
    sent: list[str] = []
    for name in PROGRAMS:
        needed = {module.partition(".")[0] for module in tools()[name].imports}
        assert not [other for other in PROGRAMS if other.removesuffix(".py") in needed and other not in sent]
        sent.append(name)
    assert SESSION not in sent


def test_only_what_a_power_cut_must_not_take_waits_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes before the start of the command is on the way of each job, and is worth nothing after a power cut."""
    oarexec = types.ModuleType("oarexec")
    exec(compile((ROOT / "oar" / "tools" / "oarexec").read_text(), "oarexec", "exec"), oarexec.__dict__)
    waited: list[int] = []
    monkeypatch.setattr(node_base, "write_file", lambda path, content, mode, safety: waited.append(safety))
    run = oarexec.Oarexec({"tmp_directory": str(tmp_path), "job_id": 1, "mode": "PASSIVE"})
    run.state = {"times": {}}
    phases = ("init", "ready", "started", "running", "ended", "aborted")
    for phase in phases:
        run.enter(phase)
    assert dict(zip(phases, waited, strict=True)) == {
        "init": node_base.UNSAFE,
        "ready": node_base.UNSAFE,
        "started": node_base.DURABLE,
        "running": node_base.WHOLE,
        "ended": node_base.WHOLE,
        "aborted": node_base.DURABLE,
    }
