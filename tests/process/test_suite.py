"""setup/test: a part may be slow, but not stand still; the verdict names what hung and what was not tested."""

import os
import signal
import sys
import time
from collections import defaultdict
from functools import partial
from itertools import count
from pathlib import Path

import pytest
import suite
import watched
from aside import Work

from tests.process.this_machine import wait_until

pytestmark = pytest.mark.slow

VENV = Path(sys.prefix)
#: Long enough for pytest to start on a busy machine.
BRIEF = 15.0


def run(script: str, silence: float) -> watched.End:
    """Run shell text as a part's program is run."""
    return watched.run(["/bin/sh", "-c", script], Path("/"), dict(os.environ), silence)


def test_a_program_that_prints_a_dot_now_and_then_takes_the_time_it_needs() -> None:
    slow = "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13; do printf .; sleep 0.5; done; echo; echo '=== 6 passed ==='; exit 3"
    assert run(slow, silence=6) == watched.End(3, "6 passed")


def test_a_program_is_not_ended_for_the_silence_of_a_machine_that_stood_still(monkeypatch: pytest.MonkeyPatch) -> None:
    hours = count(0, 3600)
    with monkeypatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: float(next(hours)))
        assert run("sleep 2; echo done", silence=1000) == watched.End(0, "done")


def test_a_program_that_prints_nothing_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    end = run(f"sleep 1000 & echo $! > {tmp_path}/child; echo begun; wait", silence=6)
    assert (end.stood_still, end.last_line) == (True, "begun")
    child = int((tmp_path / "child").read_text())
    wait_until(lambda: not Path(f"/proc/{child}").exists())


def test_a_child_that_stays_behind_delays_nothing(tmp_path: Path) -> None:
    end = run(f"sleep 1000 & echo $! > {tmp_path}/child; echo done", silence=900)
    assert end == watched.End(0, "done")
    os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)


def outcome_of(tests: str, directory: Path, silence: float = 900) -> suite.Outcome:
    """Run a file of tests as a part of the suite."""
    (directory / "test_it.py").write_text(f"import time, pytest\n{tests}")
    options = ("-n", "2", "-c", os.devnull, "-p", "no:cacheprovider", "-p", "tests.journal")
    part = suite.Part("tests", (("pytest", *options, "test_it.py"),), single=("pytest", *options))
    return suite.run_part(part, directory, VENV, silence)


#: Prints until the test that hangs has begun, however long the workers take to start.
PRINTING = """
import threading

begun = threading.Event()

def pytest_configure(config):
    reporter = config.pluginmanager.getplugin("terminalreporter")
    if reporter and not hasattr(config, "workerinput"):
        threading.Thread(target=print_on, args=(reporter,), daemon=True).start()

def print_on(reporter):
    while not begun.wait(0.5):
        reporter.write(".", flush=True)

def pytest_runtest_logstart(nodeid):
    if nodeid.endswith("test_hangs"):
        begun.set()
"""


def test_the_verdict_names_the_tests_that_hang(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(PRINTING)
    outcome = outcome_of("def test_good(): pass\ndef test_hangs(): time.sleep(1000)\n", tmp_path, BRIEF)
    assert not outcome.is_good
    assert outcome.last_line == (
        "ended, because it printed nothing for 15 s; these tests were running: test_it.py::test_hangs"
    )
    assert suite.verdict([outcome], 1).endswith("NOT everything passed.")


def test_the_verdict_names_the_tests_that_were_skipped(tmp_path: Path) -> None:
    outcome = outcome_of("def test_good(): pass\ndef test_not_here(): pytest.skip('no such kernel')\n", tmp_path)
    assert outcome.is_good
    lines = suite.verdict([outcome], 1).splitlines()
    assert lines[-2:] == [
        "       NOT TESTED: test_it.py::test_not_here: no such kernel",
        "NOT everything was tested: 1 skipped, the rest passed.",
    ]


@pytest.mark.parametrize(("body", "is_good"), [("pass", True), ("assert 0", False)])
def test_a_part_is_as_good_as_its_tests(tmp_path: Path, body: str, *, is_good: bool) -> None:
    outcome = outcome_of(f"def test_one(): {body}\n", tmp_path)
    assert outcome.is_good is is_good
    assert outcome.load > 0  # pytest and its workers have worked


def test_what_failed_is_told_behind_the_verdict(tmp_path: Path) -> None:
    """Of a long output often the end alone is shown."""
    lines = "\n    ".join(f"print({number})" for number in range(100))
    outcome = outcome_of(f"def test_one():\n    {lines}\n    assert {{1: 2}} == {{1: 3}}\n", tmp_path)
    assert suite.failures([outcome]).splitlines()[:4] == [
        "",
        "---- FAILED in tests: test_it.py::test_one",
        ">       assert {1: 2} == {1: 3}",
        "E       assert {1: 2} == {1: 3}",
    ]
    assert "99" not in suite.failures([outcome])


def test_a_file_that_cannot_be_read_is_told_behind_the_verdict(tmp_path: Path) -> None:
    outcome = outcome_of("import no_such_module\n", tmp_path)
    assert "E   ModuleNotFoundError: No module named 'no_such_module'" in suite.failures([outcome]).splitlines()


def test_of_a_part_without_tests_the_end_is_told_behind_the_verdict(tmp_path: Path) -> None:
    outcome = suite.run_part(
        part_of("checker", "print('much is wrong')\nraise SystemExit(1)\n", tmp_path), tmp_path, VENV
    )
    assert suite.failures([outcome]) == "\n---- FAILED in checker: end of the output\nmuch is wrong"


# -- unstable tests ---------------------------------------------------------------------------------------------------

#: Fails where it is called for the first time.
FAILS_ONCE = """
from pathlib import Path

def fail_once(name):
    if not Path(name).exists():
        Path(name).touch()
        assert name == "another"
"""


def test_a_test_that_passes_when_run_again_is_listed_as_unstable(tmp_path: Path) -> None:
    outcome = outcome_of(f"{FAILS_ONCE}\ndef test_good(): pass\ndef test_shaky(): fail_once('seen')\n", tmp_path)
    assert suite.is_green([outcome])
    assert suite.verdict([outcome], 1).endswith("Everything passed, in 1 s.")
    lines = suite.failures([outcome]).splitlines()
    assert lines[1] == "---- UNSTABLE in tests: test_it.py::test_shaky (failed once, passed when run again alone)"
    assert "E           AssertionError: assert 'seen' == 'another'" in lines


def test_a_fixture_that_fails_once_makes_its_test_unstable(tmp_path: Path) -> None:
    fixture = "@pytest.fixture\ndef site():\n    yield\n    fail_once('closed')\n"
    outcome = outcome_of(f"{FAILS_ONCE}\n{fixture}\ndef test_it(site): pass\n", tmp_path)
    assert (outcome.is_good, list(outcome.unstable)) == (True, ["test_it.py::test_it"])


def test_a_test_that_fails_twice_fails_the_run(tmp_path: Path) -> None:
    tests = "def test_shaky(): fail_once('seen')\ndef test_bad(): assert 0\n"
    outcome = outcome_of(FAILS_ONCE + tests, tmp_path)
    assert not suite.is_green([outcome])
    assert (list(outcome.failed), list(outcome.unstable)) == (["test_it.py::test_bad"], ["test_it.py::test_shaky"])


def test_a_test_that_is_skipped_when_run_again_has_failed(tmp_path: Path) -> None:
    skipping = "def test_shaky():\n    if Path('seen').exists(): pytest.skip('not here')\n    fail_once('seen')\n"
    assert not outcome_of(FAILS_ONCE + skipping, tmp_path).is_good


def test_with_many_failures_no_test_is_run_again(tmp_path: Path) -> None:
    shaky = "@pytest.mark.parametrize('number', range(6))\ndef test_shaky(number): fail_once(f'seen{number}')\n"
    outcome = outcome_of(FAILS_ONCE + shaky, tmp_path)
    assert (outcome.is_good, len(outcome.failed), outcome.unstable) == (False, 6, {})


def test_many_unstable_tests_in_all_parts_together_fail_the_run() -> None:
    outcomes = [suite.Outcome(name, True, 1.0, "", unstable=dict.fromkeys("abc", "")) for name in ("tests", "cluster")]
    assert not suite.is_green(outcomes)
    assert suite.verdict(outcomes, 1).endswith("NOT everything passed: 6 tests are unstable, more than 5.")
    assert suite.is_green(outcomes[:1])


# -- parts beside each other ------------------------------------------------------------------------------------------


def part_of(name: str, script: str, directory: Path, *, is_aside: bool = False) -> suite.Part:
    """Return a part whose program is this text of Python."""
    (directory / f"{name}.py").write_text(f"import os, signal, time\nfrom pathlib import Path\n{script}")
    return suite.Part(name, ((name,),), is_aside)


AWAITED = "while not Path('{}').exists(): time.sleep(0.02)\nPath('{}').touch()\nprint('{} is done')\n"


def test_a_part_aside_runs_beside_the_others_and_is_told_of_behind_them(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each of two parts waits for the other."""
    (tmp_path / "begun").touch()
    aside = part_of("aside_part", AWAITED.format("begun", "first", "aside"), tmp_path, is_aside=True)
    in_view = part_of("part_in_view", AWAITED.format("first", "second", "view"), tmp_path)
    outcomes = suite.run_parts([aside, in_view], tmp_path, VENV)
    assert [(outcome.part, outcome.last_line) for outcome in outcomes] == [
        ("part_in_view", "view is done"),
        ("aside_part", "aside is done"),
    ]
    lines = [line for line in capfd.readouterr().out.splitlines() if line]
    assert lines == ["==== part_in_view ====", "view is done", "==== aside_part ====", "aside is done"]


def test_daily_work_runs_a_choice_of_the_tests_that_need_most_time() -> None:
    parts = {part.name: part for part in suite.daily(suite.PARTS)}
    whole = {part.name: part for part in suite.PARTS}
    assert {*whole} - {*parts} == {"site"}
    for name in ("style", "types"):
        assert parts[name] == whole[name]
    ((*words, marked, last),) = parts["tests"].commands
    assert ((*words[:-1], last), words[-1], marked) == (whole["tests"].commands[0], "-m", "not slow")
    for name in ("browser", "cluster"):
        (command,) = parts[name].commands
        files = [word for word in command if word.endswith(".py")]
        assert files
        assert all(Path(file).is_file() for file in files)


def test_a_part_whose_process_is_lost_has_failed(tmp_path: Path) -> None:
    lost = part_of("lost", "os.kill(os.getppid(), signal.SIGKILL)\n", tmp_path)
    (outcome,) = suite.run_parts([lost], tmp_path, VENV)
    assert (outcome.is_good, outcome.last_line) == (False, "its process ended, with -9")


def test_parts_end_with_the_suite(tmp_path: Path) -> None:
    """As when somebody interrupts it: a part that runs beside the others leaves nothing behind."""
    script = "Path('pid').write_text(str(os.getpid()))\nPath('pid').rename('is-there')\ntime.sleep(1000)\n"
    work = Work(partial(suite.run_part, part_of("endless", script, tmp_path), tmp_path, VENV), is_aside=True)
    with work:
        wait_until((tmp_path / "is-there").exists)
    pid = int((tmp_path / "is-there").read_text())
    wait_until(lambda: not Path(f"/proc/{pid}").exists())


# -- rooms that tests share -------------------------------------------------------------------------------------------

#: Each test notes its worker in a file; the tests of the first file share something that is made once.
SHARING = """
import pytest

@pytest.fixture(scope="module")
def shared(): pass

@pytest.mark.parametrize("number", range(12))
def test_it(shared, number, worker_id): note("shared", worker_id)
"""
ALONE = """
import pytest

@pytest.mark.parametrize("number", range(12))
def test_it(number, worker_id): note("alone", worker_id)
"""
NOTE = """
def note(name, worker):
    with open({!r}, "a") as file:
        file.write(f"{{name}} {{worker}}\\n")
"""


def test_tests_that_share_a_room_are_run_by_one_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each worker would make this room."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # a worker begins sooner without what is not needed here
    notes, tests = tmp_path / "notes", tmp_path / "acceptance"
    tests.mkdir()
    (tests / "conftest.py").write_text("from tests.acceptance.sharing import pytest_xdist_make_scheduler\n")
    (tests / "test_sharing.py").write_text(SHARING + NOTE.format(str(notes)))
    (tests / "test_alone.py").write_text(ALONE + NOTE.format(str(notes)))
    (command,) = next(part.commands for part in suite.PARTS if part.name == "cluster")
    plugins = ("-p", "xdist.plugin", "-p", "no:cacheprovider", "-c", os.devnull)
    words = [word for word in command[:-1] if word not in suite.ORDER]  # whose plugin is not needed here, either
    part = suite.Part("cluster", ((*words, *plugins, "acceptance"),))
    assert suite.run_part(part, tmp_path, VENV).is_good
    workers = defaultdict(list)
    for line in notes.read_text().splitlines():
        name, worker = line.split()
        workers[name].append(worker)
    assert len(workers["shared"]) == len(workers["alone"]) == 12
    assert len(set(workers["shared"])) == 1
    assert len(set(workers["alone"])) > 1
