"""Runs the parts of the test suite one after another, each with a time limit, and ends with a verdict.

Parts: style (ruff), types (mypy), tests (what needs no cluster, on all cores), cluster (acceptance tests in two rooms).
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import installer
from room import kernel, layout

_PYTHON = "/usr/bin/python3"


@dataclass(frozen=True)
class Part:
    """A part of the suite: what is run, and for how long at most."""

    name: str
    seconds: int
    commands: tuple[tuple[str, ...], ...]


PARTS = (
    Part("style", 120, (("ruff", "check", "--no-cache", "."), ("ruff", "format", "--no-cache", "--check", "."))),
    Part("types", 300, (("mypy",),)),
    Part(
        "tests",
        1200,
        (("pytest", "-n", "2", "-o", "faulthandler_timeout=100", "--ignore", "tests/acceptance", "tests"),),
    ),
    Part("cluster", 1200, (("pytest", "-n", "2", "--dist", "loadgroup", "--durations", "10", "tests/acceptance"),)),
)


@dataclass(frozen=True)
class Outcome:
    """How a part ended."""

    part: str
    is_good: bool
    seconds: float
    last_line: str


def sources() -> Path:
    """The sources to test: these, or a copy if other users, as whom tests run programs, cannot read them here."""
    here = installer.SOURCE
    files = (here / "oar" / "__init__.py", here / "setup" / "cluster", *here.parents, here)
    if all(path.stat().st_mode & 0o5 >= (0o5 if path.is_dir() else 0o4) for path in files):
        return here
    copy = layout.cache_root() / f"sources-{hashlib.sha256(str(here).encode()).hexdigest()[:16]}"
    print(f"Other users cannot read {here}: testing a copy, {copy}.", flush=True)
    shutil.rmtree(copy, ignore_errors=True)
    installer.copy_readable(here, copy, ".git", ".*_cache", ".hypothesis")
    return copy


def environment(top: Path) -> Path:
    """The virtual environment with everything the suite needs; it finds the package among these sources.

    It is made once per set of requirements and place of the sources.
    """
    project = tomllib.loads((installer.SOURCE / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    digest = hashlib.sha256(f"{sys.version} {wanted} {top}".encode()).hexdigest()[:16]
    place = layout.cache_root() / f"tests-{digest}"
    if not place.exists():
        print("Installing the libraries of the tests ...", flush=True)
        unfinished = place.with_suffix(f".{os.getpid()}")
        unfinished.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        installer.make_environment(_PYTHON, unfinished, wanted)
        packages = next(unfinished.glob("lib/python3*/site-packages"))
        (packages / "oar-sources.pth").write_text(f"{top}\n")
        shutil.rmtree(place, ignore_errors=True)
        unfinished.rename(place)
    return place


def run_part(part: Part, top: Path, venv: Path) -> Outcome:
    """Run the commands of a part; the first that fails ends it."""
    print(f"\n==== {part.name} ====", flush=True)
    started = time.monotonic()
    last = ""
    for name, *arguments in part.commands:
        program = [str(venv / "bin" / "python"), "-m", name, *arguments]
        code, last = _stream(program, top, part.seconds - (time.monotonic() - started))
        if code:
            return Outcome(part.name, False, time.monotonic() - started, last)
    return Outcome(part.name, True, time.monotonic() - started, last)


def _stream(program: Sequence[str], top: Path, seconds: float) -> tuple[int, str]:
    """Run a program, pass on what it prints; its exit code and its last line that says something."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH")}
    process = subprocess.Popen(
        program,
        cwd=top,
        env=kept,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    assert process.stdout is not None
    signal.signal(signal.SIGCHLD, lambda *_: _bury_orphans(process.pid))
    over_time = threading.Timer(max(seconds, 1), _end_group, [process.pid])
    over_time.start()
    last = ""
    try:
        for line in process.stdout:
            print(line, end="", flush=True)
            last = line.strip() or last
        code = process.wait()
    except BaseException:
        _end_group(process.pid)
        raise
    finally:
        over_time.cancel()
    if over_time.finished.is_set() and code < 0:
        last = f"ended by signal {-code}: the time limit of {seconds:.0f} s, or another hand"
    return code, re.sub(r"^=+ | =+$", "", last)


def _bury_orphans(own: int) -> None:
    """Reap what tests leave behind, as the first process of a machine does (in containers often nobody does)."""
    with contextlib.suppress(ChildProcessError):
        while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if ended.si_pid == own:
                return
            os.waitpid(ended.si_pid, os.WNOHANG)


def _end_group(pid: int) -> None:
    """End a program and all that it started in its session."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(pid, number)
        except ProcessLookupError:
            return
        time.sleep(5 if number == signal.SIGTERM else 0)


def verdict(outcomes: Sequence[Outcome]) -> str:
    """The lines at the end."""
    lines = ["", "==== verdict ===="]
    for outcome in outcomes:
        word = "ok    " if outcome.is_good else "FAILED"
        lines.append(f"{word} {outcome.part:<8} {outcome.seconds:6.1f} s  {outcome.last_line}")
    good = all(outcome.is_good for outcome in outcomes)
    lines.append("Everything passed." if good else "NOT everything passed.")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """The second half of setup/test."""
    names = [part.name for part in PARTS]
    parser = argparse.ArgumentParser(prog="setup/test", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(names)}; all when none is given")
    chosen = parser.parse_args(arguments).parts
    if unknown := [name for name in chosen if name not in names]:
        parser.error(f"no part {unknown[0]!r}: choose from {', '.join(names)}")
    kernel.adopt_orphans()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        top = sources()
        venv = environment(top)
        outcomes = [run_part(part, top, venv) for part in PARTS if not chosen or part.name in chosen]
    except (installer.InstallError, OSError) as error:
        print(f"test: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(verdict(outcomes))
    return 0 if all(outcome.is_good for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
