"""Runs the parts of the test suite and ends with a verdict, and what tells most of each failure.

Parts: style (ruff), types (mypy), tests (what needs no cluster, on all cores), browser (the pages, by Chromium),
cluster (on four test clusters at once), site (Debian machines with systemd, on which OAR is installed by its chapter).
They run one after another; the last one, which mostly waits for machines, beside all others.

For daily work the part tests leaves out what is marked ``slow``, the parts browser and cluster run a choice of their
tests, the part site none, and properties are tested with few examples. ``--all`` runs everything.
A part takes the time it needs; only one that prints nothing for 15 minutes is ended, and the verdict names the tests
that were running.

A test that fails is run once more, alone, at the end of its part. If it passes then, the last lines list it as UNSTABLE
with its first failure, and the run is green. A test that fails twice, or more than 5 unstable tests, fail the run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import watched
from aside import NoResult, Work
from installer import environments
from installer.files import copy_readable
from installer.target import SOURCE, InstallError
from room import cache, layout

_PYTHON = "/usr/bin/python3"


#: Exit code of pytest when tests have failed.
_TESTS_FAILED = 1
#: So long may a part print nothing; a single test that hangs fails much earlier (pyproject.toml, "timeout").
_SILENCE = 900.0


@dataclass(frozen=True)
class Part:
    """A part of the suite: what is run."""

    name: str
    commands: tuple[tuple[str, ...], ...]
    is_aside: bool = False  #: it waits more than it works: it runs beside the others
    single: tuple[str, ...] = ()  #: runs the tests whose names follow; empty if the part has no tests
    daily: tuple[str, ...] | None = None  #: words for daily work, in place of the last one; None: everything


#: Tests run in random order, so that none depends on another; in continuous integration always in the same order, so
#: that it judges the change and nothing else. A test that is run again gets the same seed.
ORDER = (f"--randomly-seed={1361225378 if os.environ.get('CI') else random.randrange(2**32)}",)
_PYTEST = ("pytest", "-p", "tests.journal", *ORDER)
#: With more failures than this in a run, its tests are not run again: the run fails.
MAX_UNSTABLE = 5
#: The tests of pages and of the whole system for daily work: those that find most of what breaks.
_DAILY_PAGES = ("tests/browser/test_acting.py",)
_DAILY_ACCEPTANCE = tuple(f"tests/acceptance/test_{name}.py" for name in ("jobs", "interactive", "kinds", "steering"))
PARTS = (
    Part("style", (("ruff", "check", "--no-cache", "."), ("ruff", "format", "--no-cache", "--check", "."))),
    Part("types", (("mypy",),)),
    Part(
        "tests",
        (
            (
                *_PYTEST,
                "-n",
                "3",
                "--dist",
                "worksteal",  # neighbours stay together: fixtures of a file are set up by one worker, not by each
                "--ignore",
                "tests/acceptance",
                "--ignore",
                "tests/browser",
                "--ignore",
                "tests/site",
                "tests",
            ),
        ),
        daily=("-m", "not slow", "tests"),
        single=_PYTEST,
    ),
    Part("browser", ((*_PYTEST, "-n", "2", "tests/browser"),), daily=_DAILY_PAGES, single=_PYTEST),
    Part(
        "cluster",
        ((*_PYTEST, "-n", "4", "--durations", "10", "tests/acceptance"),),
        daily=_DAILY_ACCEPTANCE,
        single=_PYTEST,
    ),
    Part("site", ((*_PYTEST, "--durations", "10", "tests/site"),), daily=(), is_aside=True, single=_PYTEST),
)


def daily(parts: Sequence[Part]) -> list[Part]:
    """Return the parts for daily work, with a choice of their tests."""
    chosen = []
    for part in parts:
        if part.daily is None:
            chosen.append(part)
        elif part.daily:
            commands = tuple((*command[:-1], *part.daily) for command in part.commands)
            chosen.append(replace(part, commands=commands))
    return chosen


@dataclass(frozen=True)
class Journal:
    """What tests/journal.py wrote down: tests that have begun and not ended, why some were skipped or failed."""

    running: Sequence[str] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)  #: test files that could not be imported


@dataclass(frozen=True)
class Outcome:
    """How a part ended."""

    part: str
    is_good: bool
    seconds: float
    last_line: str
    skipped: Mapping[str, str] = field(default_factory=dict)
    cpu: float = 0.0  #: seconds of all its processes, those that other programs left behind included
    failed: Mapping[str, str] = field(default_factory=dict)  #: tests and what they found, or the end of the output
    unstable: Mapping[str, str] = field(default_factory=dict)  #: tests that failed first and passed alone

    @property
    def load(self) -> float:
        """How many processors it kept busy."""
        return self.cpu / self.seconds if self.seconds else 0.0


def sources() -> Path:
    """The sources to test: these, or a copy if other users, as whom tests run programs, cannot read them here."""
    here = SOURCE
    files = (here / "oar" / "__init__.py", here / "setup" / "cluster", *here.parents, here)
    if all(path.stat().st_mode & 0o5 >= (0o5 if path.is_dir() else 0o4) for path in files):
        return here
    copy = layout.cache_root() / f"sources-{hashlib.sha256(str(here).encode()).hexdigest()[:16]}"
    print(f"Other users cannot read {here}: testing a copy, {copy}.", flush=True)
    shutil.rmtree(copy, ignore_errors=True)
    copy_readable(here, copy, ".git", ".*_cache", ".hypothesis")
    return copy


def environment(top: Path) -> Path:
    """The virtual environment with everything the suite needs; it finds the package among these sources.

    It is made once per set of requirements and place of the sources.
    """
    wanted = environments.requirements(["api", "dev"])
    digest = hashlib.sha256(f"{sys.version} {wanted} {top}".encode()).hexdigest()[:16]

    def make(place: Path) -> None:
        print("Installing the libraries of the tests ...", flush=True)
        environments.make(_PYTHON, place, wanted)
        packages = next(place.glob("lib/python3*/site-packages"))
        (packages / "oar-sources.pth").write_text(f"{top}\n")

    return cache.kept(f"tests-{digest}", make)


def run_part(part: Part, top: Path, venv: Path, silence: float = _SILENCE) -> Outcome:
    """Run the commands of a part until one fails, then run the tests that failed once more, each alone."""
    print(f"\n==== {part.name} ====", flush=True)
    started, cpu = time.monotonic(), _cpu_of_children()
    end, journal = watched.End(0, ""), Journal()
    for command in part.commands:
        end, journal = _run(command, top, venv, silence)
        if end.code or end.stood_still:
            break
    unstable = _passing_alone(part, journal, top, venv, silence) if end.code == _TESTS_FAILED else {}
    failed = {test: text for test, text in {**journal.failed, **journal.unread}.items() if test not in unstable}
    is_good = not end.stood_still and (end.code == 0 or (bool(unstable) and not failed))
    return Outcome(
        part.name,
        is_good,
        time.monotonic() - started,
        _stood_still(silence, journal.running) if end.stood_still else end.last_line,
        journal.skipped,
        _cpu_of_children() - cpu,
        {} if is_good else failed or {"end of the output": end.tail.rstrip()},
        unstable,
    )


def _passing_alone(part: Part, journal: Journal, top: Path, venv: Path, silence: float) -> Mapping[str, str]:
    """Run each test that failed again, alone. Return the first failures of those that pass now."""
    if not part.single or journal.unread or len(journal.failed) > MAX_UNSTABLE:
        return {}
    return {test: text for test, text in journal.failed.items() if _passes((*part.single, test), top, venv, silence)}


def _run(command: Sequence[str], top: Path, venv: Path, silence: float) -> tuple[watched.End, Journal]:
    name, *arguments = command
    with tempfile.TemporaryDirectory(prefix="oar-suite-") as directory:
        journal = Path(directory, "journal")
        program = [str(venv / "bin" / "python"), "-m", name, *arguments]
        return watched.run(program, top, _environment_of_tests(journal), silence), read_journal(journal)


def _passes(command: Sequence[str], top: Path, venv: Path, silence: float) -> bool:
    """Run a test again; a test that is skipped now has not passed."""
    print(f"\n---- run again, alone: {command[-1]}", flush=True)
    end, journal = _run(command, top, venv, silence)
    return end.code == 0 and not end.stood_still and not journal.skipped


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run_parts(parts: Sequence[Part], top: Path, venv: Path) -> list[Outcome]:
    """Run parts; those that run beside the others are told of behind them."""
    aside = [part for part in parts if part.is_aside]
    with ExitStack() as stack:
        waiting = [stack.enter_context(_begin(part, top, venv, is_aside=True)) for part in aside]
        in_view = [part for part in parts if not part.is_aside]
        outcomes = [_outcome(part, stack.enter_context(_begin(part, top, venv))) for part in in_view]
        return outcomes + [_outcome(part, work) for part, work in zip(aside, waiting, strict=True)]


def _begin(part: Part, top: Path, venv: Path, *, is_aside: bool = False) -> Work[Outcome]:
    return Work(partial(run_part, part, top, venv), is_aside=is_aside)


def _outcome(part: Part, work: Work[Outcome]) -> Outcome:
    try:
        return work.result()
    except NoResult as error:
        return Outcome(part.name, False, 0.0, str(error))


def _environment_of_tests(journal: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH")}
    return {**kept, "OAR_TEST_JOURNAL": str(journal)}


def read_journal(path: Path) -> Journal:
    """Read what tests/journal.py wrote; a part without tests has written nothing."""
    running: dict[str, None] = {}
    texts: dict[str, dict[str, str]] = {"skipped": {}, "failed": {}, "unread": {}}
    for line in path.read_text().splitlines() if path.exists() else []:
        event, test, text = json.loads(line)
        if event == "begun":
            running[test] = None
        elif event == "ended":
            running.pop(test, None)
        else:
            texts[event].setdefault(test, text)
    return Journal(tuple(running), **texts)


def _stood_still(silence: float, running: Sequence[str]) -> str:
    """Say why a part was ended though it was not finished."""
    tests = f"these tests were running: {', '.join(running)}" if running else "no test was running"
    return f"ended, because it printed nothing for {silence:.0f} s; {tests}"


def verdict(outcomes: Sequence[Outcome], seconds: float) -> str:
    """The lines at the end; all took so many seconds."""
    lines = ["", "==== verdict ===="]
    for outcome in outcomes:
        word = "ok    " if outcome.is_good else "FAILED"
        lines.append(f"{word} {outcome.part:<8} {outcome.seconds:6.1f} s  {outcome.load:4.2f} CPU  {outcome.last_line}")
        lines += [f"       NOT TESTED: {test}: {reason}" for test, reason in outcome.skipped.items()]
    skipped = sum(len(outcome.skipped) for outcome in outcomes)
    unstable = sum(len(outcome.unstable) for outcome in outcomes)
    if not all(outcome.is_good for outcome in outcomes):
        lines.append("NOT everything passed.")
    elif unstable > MAX_UNSTABLE:
        lines.append(f"NOT everything passed: {unstable} tests are unstable, more than {MAX_UNSTABLE}.")
    elif skipped:
        lines.append(f"NOT everything was tested: {skipped} skipped, the rest passed.")
    else:
        lines.append(f"Everything passed, in {seconds:.0f} s.")
    return "\n".join(lines)


def failures(outcomes: Sequence[Outcome]) -> str:
    """Return the lines below the verdict: failed and unstable tests. Of a long output often only the end is shown."""
    lines = []
    for outcome in outcomes:
        for what, text in outcome.failed.items():
            lines += ["", f"---- FAILED in {outcome.part}: {what}", text]
    for outcome in outcomes:
        for test, text in outcome.unstable.items():
            lines += ["", f"---- UNSTABLE in {outcome.part}: {test} (failed once, passed when run again alone)", text]
    return "\n".join(lines)


def is_green(outcomes: Sequence[Outcome]) -> bool:
    """Return whether all parts are good and few enough tests are unstable."""
    unstable = sum(len(outcome.unstable) for outcome in outcomes)
    return all(outcome.is_good for outcome in outcomes) and unstable <= MAX_UNSTABLE


def main(arguments: Sequence[str] | None = None) -> int:
    """The second half of setup/test."""
    names = [part.name for part in PARTS]
    parser = argparse.ArgumentParser(prog="setup/test", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(names)}; all when none is given")
    parser.add_argument("--all", action="store_true", help="run all tests, and properties with many examples")
    options = parser.parse_args(arguments)
    chosen = options.parts
    if unknown := [name for name in chosen if name not in names]:
        parser.error(f"no part {unknown[0]!r}: choose from {', '.join(names)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    started = time.monotonic()
    try:
        top = sources()
        venv = environment(top)
        parts = [part for part in PARTS if not chosen or part.name in chosen]
        os.environ.setdefault("OAR_TEST_PROFILE", "deep" if options.all else "fast")
        outcomes = run_parts(parts if options.all else daily(parts), top, venv)
    except (InstallError, OSError) as error:
        print(f"test: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(verdict(outcomes, time.monotonic() - started))
    if told := failures(outcomes):
        print(told)
    return 0 if is_green(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
