"""Comparison of two commits: ``python -m bench.compare A B [benchmark [words ...]]``.

The benchmark comes from this directory, the code from the commits, each in a separate working tree.  The runs alternate
(A, B, A, B), so that other load affects both; the table shows the medians and the ratio B / A.  The benchmark has to
print figures with limits: ``planner`` (default), ``two_depths``, ``rounds``.  A figure missing in a commit is a dash.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

HERE = Path(__file__).parent
#: Runs per commit.
TURNS = 5
#: A line of ``bench.figures.Figures.add``.
_FIGURE = re.compile(r"(?P<what>\S.{61}) +(?P<value>[0-9.]+) +[0-9.]+ (?P<unit>\S+) +(ok|MISSED)")

Values = Mapping[str, list[float]]


def figures_of(output: str) -> dict[str, float]:
    """Return the figures in the output of a benchmark."""
    found = (_FIGURE.fullmatch(line) for line in output.splitlines())
    return {f"{each['what'].strip()} ({each['unit']})": float(each["value"]) for each in found if each}


@contextmanager
def tree(commit: str, directory: Path) -> Iterator[Path]:
    """Create a working tree of a commit for the duration of the block."""
    path = directory / re.sub(r"\W", "-", commit)
    git = ["git", "-C", str(HERE.parent)]
    subprocess.run([*git, "worktree", "add", "--quiet", "--detach", str(path), commit], check=True)
    try:
        shutil.rmtree(path / "bench")
        shutil.copytree(HERE, path / "bench", ignore=shutil.ignore_patterns("__pycache__"))
        yield path
    finally:
        subprocess.run([*git, "worktree", "remove", "--force", str(path)], check=True)


def ask(path: Path, benchmark: str, words: Sequence[str]) -> dict[str, float]:
    """Run the benchmark in a working tree."""
    arguments = [sys.executable, "-m", f"bench.{benchmark}", *words]
    done = subprocess.run(
        arguments, check=False, cwd=path, env={**os.environ, "PYTHONPATH": str(path)}, stdout=subprocess.PIPE, text=True
    )
    return figures_of(done.stdout)


def table(before: Values, after: Values) -> str:
    """Return the medians of all figures."""
    lines = [f"{'medians':70} {'A':>9} {'B':>9} {'B / A':>6}"]
    for name in dict.fromkeys((*before, *after)):
        a, b = (median(values[name]) if name in values else None for values in (before, after))
        ratio = f"{b / a:6.2f}" if a and b is not None else f"{'-':>6}"
        lines.append(f"{name:70} {_number(a)} {_number(b)} {ratio}")
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return f"{'-':>9}" if value is None else f"{value:9.3f}"


def main(words: Sequence[str]) -> None:
    """Print the table."""
    if len(words) < 2:
        raise SystemExit(__doc__)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the working trees must not stay
    one, other, *rest = words
    benchmark, arguments = (rest[0], rest[1:]) if rest else ("planner", [])
    found: tuple[dict[str, list[float]], dict[str, list[float]]] = {}, {}
    with tempfile.TemporaryDirectory() as temporary:
        directories = [Path(temporary) / name for name in "AB"]
        with tree(one, directories[0]) as first, tree(other, directories[1]) as second:
            for turn in range(TURNS):
                for path, values in zip((first, second), found, strict=True):
                    for name, value in ask(path, benchmark, arguments).items():
                        values.setdefault(name, []).append(value)
                print(f"turn {turn + 1} of {TURNS}", file=sys.stderr, flush=True)
    print(table(*found))


if __name__ == "__main__":
    main(sys.argv[1:])
