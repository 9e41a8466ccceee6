"""oar-launch: what it does when something is missing or fails; the engines themselves run in tests/acceptance.

The nodes are this machine, as in the tests of oarrun; in the place of Dask stands a program that fails when told to.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

from tests.process.test_oarrun import OARSH, is_gone
from tests.process.this_machine import wait_until

pytestmark = pytest.mark.slow

TOOLS = Path(__file__).parents[2] / "oar" / "tools"
#: ``dask scheduler`` listens, ``dask worker`` runs; both say who they are and what they were given, unless told to end.
DASK = """#!/usr/bin/python3
import os, socket, sys, time

part = sys.argv[1]
certificate = os.environ["DASK_DISTRIBUTED__COMM__TLS__CA_FILE"]
print(part, *sys.argv[2:], certificate, flush=True)
if os.environ.get("FAILS") == part:
    sys.exit(3)
if part == "scheduler":
    host, port = (sys.argv[sys.argv.index(option) + 1] for option in ("--host", "--port"))
    listener = socket.create_server((host, int(port)))
assert os.stat(certificate).st_mode & 0o777 == 0o600 and "PRIVATE KEY" in open(certificate).read()
open("%s.%s" % (part, os.environ.get("OAR_TASK_ID", "0")), "w").write("%d\\n" % os.getpid())
time.sleep(600)
"""

#: ``ray start``: a head and a worker that give up as often as a file says, as if they were too slow for themselves.
RAY = """#!/usr/bin/python3
import os, socket, sys, time

assert sys.argv[1:3] == ["start", "--block"]
part = "head" if "--head" in sys.argv else "worker"
print(part, *sys.argv[1:], flush=True)
with open("tries." + part, "a+") as file:
    file.write("x")
    file.seek(0)
    tries = len(file.read())
if part == "head":
    host, port, directory = (sys.argv[sys.argv.index("--" + o) + 1] for o in ("node-ip-address", "port", "temp-dir"))
    listener = socket.create_server((host, int(port)))
    open("directory", "w").write(directory)
if tries <= int(os.environ.get("SLOW_" + part, "0")):
    sys.exit("The current node timed out during startup.")
open(open("directory").read() + "/ray_current_cluster", "w").close()
open(part, "w").write("%d\\n" % os.getpid())
if os.environ.get("LOST") == part:
    sys.exit(4)
time.sleep(600)
"""


class Job:
    """A job on two nodes, with two resources on the first one."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        texts = {name: (TOOLS / name).read_text() for name in ("oar-launch", "oarrun")}
        for name, text in {**texts, "oarsh": OARSH, "dask": DASK, "ray": RAY}.items():
            (directory / name).write_text(text)
            (directory / name).chmod(0o755)
        (directory / "nodes").write_text("localhost\nlocalhost\n127.0.0.1\n")
        self.environment = {
            **os.environ,
            "PATH": f"{directory}:{os.environ['PATH']}",
            "OAR_NODEFILE": str(directory / "nodes"),
            "OAR_JOB_ID": "12",
            "PYTHONPATH": str(directory / "libraries"),
        }
        self.has_ray(self.directory / "libraries")

    @staticmethod
    def has_ray(libraries: Path, part: str = "_private/authentication") -> None:
        """Put a Ray there that knows tokens, or another part instead."""
        shutil.rmtree(libraries, ignore_errors=True)
        (libraries / "ray" / part).mkdir(parents=True)
        (libraries / "ray" / "__init__.py").touch()

    def begin(self, *words: str) -> "subprocess.Popen[str]":
        """Start oar-launch."""
        return subprocess.Popen(
            [self.directory / "oar-launch", *words],
            env=self.environment,
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str) -> tuple[int, str, str]:
        """Return its exit code and what it printed."""
        process = self.begin(*words)
        out, err = process.communicate(timeout=120)
        return process.returncode, out, err

    def log(self) -> str:
        """Return what the engine wrote."""
        path = self.directory / "oar-launch.12.log"
        return path.read_text() if path.exists() else ""

    def processes(self, *names: str) -> list[int]:
        """Return the processes of parts of the engine, once they are there."""
        files = [self.directory / name for name in names]
        wait_until(lambda: all(path.exists() and path.read_text().endswith("\n") for path in files))
        return [int(path.read_text()) for path in files]


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    job = Job(tmp_path)
    yield job
    made = re.findall(r"/tmp/oar-launch-\w+", job.log())
    assert not any(map(os.path.exists, made))


#: A program that waits for both workers.
BOTH = "until [ -s worker.0 ] && [ -s worker.1 ]; do sleep 0.02; done; "


def test_the_program_finds_the_engine_and_its_exit_code_counts(job: Job) -> None:
    code, out, err = job.run("dask", "sh", "-c", BOTH + 'echo "$DASK_SCHEDULER_ADDRESS"; exit 7')
    assert (code, out[:16]) == (7, "tls://127.0.0.1:")
    assert err == f"oar-launch: {out.strip()} on 2 node(s); what it does is in oar-launch.12.log\n"
    assert all(map(is_gone, job.processes("scheduler.0", "worker.0", "worker.1")))
    assert f"scheduler --protocol tls --host 127.0.0.1 --port {out.strip().rpartition(':')[2]} " in job.log()


def test_the_secret_stands_in_no_command_line_and_its_carrier_is_not_passed_on(job: Job) -> None:
    show = BOTH + 'tr "\\0" "\\n" </proc/$(cat worker.0)/environ | grep -c OAR_LAUNCH_FILE; cat /proc/*/cmdline'
    code, out, _ = job.run("dask", "sh", "-c", show + " 2>/dev/null | tr '\\0' ' '; exit 0")
    assert code == 0
    assert out.startswith("0\n")
    assert "BEGIN PRIVATE KEY" not in out


@pytest.mark.parametrize(("words", "status"), [(["/no/program"], 127), (["/etc/passwd"], 126), (["kill"], 1)])
def test_a_program_that_does_not_start_is_named(job: Job, words: list[str], status: int) -> None:
    code, _, err = job.run("dask", *words)
    assert code == status
    assert words == ["kill"] or f"oar-launch: {words[0]}: " in err


@pytest.mark.parametrize(("part", "said"), [("scheduler", "the head"), ("worker", "the workers")])
def test_a_part_that_ends_ends_the_program(job: Job, part: str, said: str) -> None:
    job.environment["FAILS"] = part
    code, out, err = job.run("dask", "sh", "-c", "echo $$; exec sleep 600")
    assert code == 1
    assert f"oar-launch: {said} of tls://127.0.0.1:" in err
    assert err.endswith(" ended, see oar-launch.12.log\n")
    assert not out or is_gone(int(out))


def test_parts_of_ray_that_were_too_slow_for_themselves_are_started_again(job: Job) -> None:
    job.environment.update(SLOW_head="2", SLOW_worker="3", RAY_worker_register_timeout_seconds="7")
    wait = 'until [ -s worker ]; do sleep 0.02; done; echo "$RAY_ADDRESS $RAY_worker_register_timeout_seconds"'
    code, out, err = job.run("ray", "sh", "-c", wait)
    *failed, last = err.splitlines()
    assert (code, len(failed)) == (0, 2)
    for line in failed:
        assert line.startswith("oar-launch: the head of 127.0.0.1:")
        assert line.endswith(" ended, see oar-launch.12.log; it is started once more")
    address, limit = out.split()
    assert last == f"oar-launch: {address} on 2 node(s); what it does is in oar-launch.12.log"
    assert limit == "7"
    assert job.log().count("The current node timed out during startup.") == 5
    assert re.findall(r"the worker has not started \((\d) of 5\)", job.log()) == ["1", "2", "3"]
    assert all(map(is_gone, job.processes("head", "worker")))


@pytest.mark.parametrize(("part", "said"), [("head", "the head"), ("worker", "the workers")])
def test_parts_of_ray_that_never_start_are_given_up(job: Job, part: str, said: str) -> None:
    job.environment[f"SLOW_{part}"] = "99"
    code, _, err = job.run("ray", "sleep", "600")
    assert code == 1
    assert err.splitlines()[-1].startswith(f"oar-launch: {said} of 127.0.0.1:")
    assert err.endswith(" ended, see oar-launch.12.log\n")
    assert (job.directory / f"tries.{part}").read_text() == "xxxxx"


@pytest.mark.parametrize(("part", "said"), [("head", "the head"), ("worker", "the workers")])
def test_parts_of_ray_that_ran_are_not_started_again(job: Job, part: str, said: str) -> None:
    job.environment["LOST"] = part
    code, _, err = job.run("ray", "sleep", "600")
    assert code == 1
    assert f"oar-launch: {said} of 127.0.0.1:" in err
    assert (job.directory / f"tries.{part}").read_text() == "x"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_passed_on_to_the_program(job: Job, number: signal.Signals) -> None:
    process = job.begin("dask", "sh", "-c", "trap 'exit 9' TERM HUP; touch begun; while :; do sleep 0.02; done")
    wait_until((job.directory / "begun").exists)
    process.send_signal(number)
    process.communicate(timeout=120)
    assert process.returncode == 9
    assert all(map(is_gone, job.processes("scheduler.0")))


def program(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return oar-launch as a module."""
    loader = SourceFileLoader("oar_launch", str(TOOLS / "oar-launch"))
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    launch = module_from_spec(spec_from_loader("oar_launch", loader))  # type: ignore[arg-type]
    loader.exec_module(launch)
    return launch


def test_a_signal_in_the_middle_of_the_start_of_the_program_reaches_it(monkeypatch: pytest.MonkeyPatch) -> None:
    launch = program(monkeypatch)
    run = launch.EngineRun(launch.dask, launch.Place("127.0.0.1", 1, "/tmp"), [], subprocess.DEVNULL, "")
    started = subprocess.Popen

    def start(words: list[str], **rest: object) -> "subprocess.Popen[bytes]":
        process = started(words, **rest)  # type: ignore[call-overload]
        signal.raise_signal(signal.SIGTERM)
        return process  # type: ignore[no-any-return]

    before = signal.signal(signal.SIGTERM, run.heard)
    try:
        monkeypatch.setattr(launch.subprocess, "Popen", start)
        assert run.run_program(["sleep", "600"]) == 128 + signal.SIGTERM
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_signal_before_the_program_runs_ends_it(job: Job) -> None:
    (job.directory / "dask").write_text("#!/bin/sh\necho $$ >silent\nexec sleep 600\n")
    process = job.begin("dask", "true")
    processes = job.processes("silent")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGTERM
    assert all(map(is_gone, processes))


OPEN = "oar-launch: this Ray knows no tokens, so anybody could use it: install 2.52 or later\n"


@pytest.mark.parametrize("part", ["", "_private/authentication"])
def test_a_ray_that_anybody_could_use_is_refused(job: Job, part: str) -> None:
    job.has_ray(job.directory / "libraries", part)
    code, _, err = job.run("ray", "true")
    assert (code, err == OPEN) == ((0, False) if part else (1, True))


@pytest.mark.parametrize("is_linked", [False, True])
def test_the_python_of_ray_is_found_beside_it_and_beside_what_it_links_to(job: Job, is_linked: bool) -> None:
    job.has_ray(job.directory / "libraries", "")
    place = job.directory / "environment" if is_linked else job.directory
    place.mkdir(exist_ok=True)
    (place / "python3").symlink_to(sys.executable)
    (job.directory / "ray").unlink()
    (place / "ray").write_text("#!/bin/sh\n")
    (place / "ray").chmod(0o755)
    if is_linked:
        (job.directory / "ray").symlink_to(place / "ray")
    assert job.run("ray", "true") == (1, "", OPEN)


def test_a_ray_whose_python_is_not_found_is_refused(job: Job) -> None:
    (job.directory / "ray").write_text("#!/bin/sh\n")
    code, _, err = job.run("ray", "true")
    assert code == 1
    assert f"the Python of {job.directory}/ray is not found: put the directory with both first in the PATH\n" in err


def test_the_jars_of_a_spark_in_the_home_of_its_user_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "libraries" / "pyspark" / "jars").mkdir(parents=True)
    (tmp_path / "libraries" / "pyspark" / "__init__.py").touch()
    (tmp_path / "libraries" / "pyspark" / "jars" / "jjwt-impl-0.13.0.jar").touch()
    for name, line in (("spark-class", "#!/usr/bin/env bash\n"), ("find_spark_home.py", f"#!{sys.executable}\n")):
        (tmp_path / name).write_text(line)
        (tmp_path / name).chmod(0o755)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "libraries"))
    assert "spark.ui.filters" in program(monkeypatch).closed_doors()
    assert not capsys.readouterr().err


@pytest.mark.parametrize("jars", [["jjwt-impl-0.13.0.jar"], []])
def test_the_doors_of_spark_that_ask_for_no_secret_are_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], jars: list[str]
) -> None:
    (tmp_path / "jars").mkdir()
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("spark.master.rest.enabled true\nspark.mine 1")
    for name in jars:
        (tmp_path / "jars" / name).touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    engine = program(monkeypatch).spark(program(monkeypatch).Place("127.0.0.1", 1, "/tmp"))
    settings = dict(line.split() for line in engine.file.splitlines() if line)  # the last one counts, as for Spark
    assert settings["spark.mine"] == "1"
    assert settings["spark.master.rest.enabled"] == settings["spark.ui.enabled"] == "false"
    assert settings.get("spark.ui.filters") == ("org.apache.spark.ui.JWSFilter" if jars else None)
    keys = [value for name, value in settings.items() if name.endswith((".secretKey", ".secret"))]
    assert [len(key) >= 64 for key in keys] == [True] * (1 + len(jars))
    assert ("everybody sees the pages of this Spark" in capsys.readouterr().err) == (not jars)


def test_engines_whose_program_is_not_there_are_named(job: Job) -> None:
    job.environment["PATH"] = "/usr/bin:/bin"
    for engine, command in (("dask", "dask"), ("ray", "ray"), ("spark", "spark-class")):
        said = f"oar-launch: {command} is not in the PATH: enter the environment that has it first\n"
        assert job.run(engine, "true") == (1, "", said)


@pytest.mark.parametrize("words", [[], ["dask"], ["mpi", "true"]])
def test_what_is_missing_is_said(job: Job, words: list[str]) -> None:
    said = "oar-launch: needed are dask, ray or spark, and a program, see oar-launch --help\n"
    assert job.run(*words) == (1, "", said)


def test_it_needs_a_job_its_first_node_and_a_file_to_write(job: Job) -> None:
    assert job.run("-o", "/no/log", "dask", "true") == (1, "", "oar-launch: /no/log: No such file or directory\n")
    (job.directory / "nodes").write_text("192.0.2.1\n127.0.0.1\n")
    said = "oar-launch: no address of 192.0.2.1, the first node of the job, is on this machine: "
    assert job.run("dask", "true")[2].startswith(said)
    del job.environment["OAR_NODEFILE"]
    assert job.run("dask", "true")[2] == "oar-launch: OAR_NODEFILE is not set: this works inside a job\n"


def test_it_tells_how_it_is_used(job: Job) -> None:
    assert job.run("--help")[1].startswith("Usage: oar-launch [options] dask|ray|spark <program> [arguments]\n")
    assert job.run("-x")[2] == "oar-launch: option -x not recognized\n"
