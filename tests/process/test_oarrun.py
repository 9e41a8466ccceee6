"""oarrun: tasks on the nodes of a job, what they print, how they end.

The nodes are this machine: in the place of oarsh stands a shell, which is reached as fast and as safely.
"""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "oar" / "tools" / "oarrun"
#: In the place of oarsh: ``bad`` cannot be reached, ``dying`` breaks off when it was asked something.
OARSH = (
    '#!/bin/sh\ncase $1 in bad) exit 255 ;; dying) read line; exit 3 ;; esac\nshift\nunset SSH_TTY\nexec sh -c "$1"\n'
)


class Job:
    """A job on two nodes, with two resources on the first one."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.tool = directory / "oarrun"
        self.tool.write_bytes(TOOL.read_bytes())
        (directory / "oarsh").write_text(OARSH)
        for name in ("oarrun", "oarsh"):
            (directory / name).chmod(0o755)
        self.environment = {**os.environ, "OAR_NODEFILE": str(directory / "nodes"), "OAR_JOB_ID": "12"}
        self.has("one", "one", "two")

    def has(self, *nodes: str) -> None:
        """Change the nodes of the resources."""
        (self.directory / "nodes").write_text("".join(f"{node}\n" for node in nodes))

    def begin(self, *words: str) -> "subprocess.Popen[str]":
        """Start oarrun."""
        return subprocess.Popen(
            [self.tool, *words],
            env=self.environment,
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str) -> tuple[int, list[str], str]:
        """Return its exit status, the lines that it printed in order, and its complaints."""
        process = self.begin(*words)
        out, err = process.communicate(timeout=120)
        return process.returncode, sorted(out.splitlines()), err

    def wait_for(self, name: str, count: int = 1) -> list[int]:
        """Return the processes whose numbers stand in files of that name, once there are so many."""
        limit = time.monotonic() + 120
        while time.monotonic() < limit:
            numbers = [path.read_text() for path in self.directory.glob(f"{name}.*")]
            if len(numbers) == count and all(each.endswith("\n") for each in numbers):
                return [int(each) for each in numbers]
            time.sleep(0.02)
        raise AssertionError(f"there are no {count} files {name}")


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def is_gone(process: int) -> bool:
    """Whether a process has ended, within half a minute."""
    limit = time.monotonic() + 120
    while time.monotonic() < limit:
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False


def test_there_is_a_task_for_each_resource_that_knows_its_number(job: Job) -> None:
    said = "echo $OAR_TASK_ID of $OAR_TASK_COUNT, $OAR_TASK_LOCAL_ID here, job $OAR_JOB_ID"
    assert job.run(said) == (0, [f"{n} of 3, {local} here, job 12" for n, local in ((0, 0), (1, 1), (2, 0))], "")


def test_several_words_reach_the_command_as_they_are(job: Job) -> None:
    assert job.run("-n", "1", "printf", "%s|", "two  words", "$HOME", "-n") == (0, ["two  words|$HOME|-n|"], "")


@pytest.mark.parametrize(
    ("options", "tasks"),
    [
        (["-n", "2"], ["0: 0/2 0", "1: 1/2 1"]),
        (["-m", "1"], ["0: 0/2 0", "1: 1/2 0"]),
        (["-N", "1"], ["0: 0/2 0", "1: 1/2 1"]),
        (["-w", "two"], ["0: 0/1 0"]),
        (["--nodelist", "two, one", "-m1"], ["0: 0/2 0", "1: 1/2 0"]),
        (["-O", "-n", "4"], ["0: 0/4 0", "1: 1/4 1", "2: 2/4 2", "3: 3/4 0"]),
        (["--overcommit", "-m", "2", "--tasks=3"], ["0: 0/3 0", "1: 1/3 1", "2: 2/3 0"]),
    ],
)
def test_tasks_are_chosen(job: Job, options: list[str], tasks: list[str]) -> None:
    assert job.run("-l", *options, "echo $OAR_TASK_ID/$OAR_TASK_COUNT $OAR_TASK_LOCAL_ID") == (0, tasks, "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "a command is needed, see oarrun --help"),
        (["-n", "4", "true"], "4 tasks asked, there are 3 resources; --overcommit starts more"),
        (["-m", "2", "true"], "2 tasks asked, on two are 1 resources; --overcommit starts more"),
        (["-N", "3", "true"], "3 nodes asked, there are 2"),
        (["-w", "three", "true"], "three is no node of this job: one, two"),
        (["-n", "0", "true"], "--tasks needs a number from 1 on, not '0'"),
        (["-x", "a b", "true"], "'a b' is not NAME or NAME=VALUE"),
        (["-x", "NOWHERE_SET", "true"], "the variable NOWHERE_SET is not set here"),
        (["--nothing", "true"], "option --nothing not recognized"),
    ],
)
def test_what_cannot_be_is_named(job: Job, words: list[str], said: str) -> None:
    assert job.run(*words) == (1, [], f"oarrun: {said}\n")


def test_outside_a_job_it_says_so(job: Job) -> None:
    del job.environment["OAR_NODEFILE"]
    assert job.run("true") == (1, [], "oarrun: OAR_NODEFILE is not set: this works inside a job\n")
    job.environment["OAR_NODEFILE"] = "/no/file"
    assert job.run("true") == (1, [], "oarrun: /no/file: No such file or directory\n")


def test_it_tells_how_it_is_used(job: Job) -> None:
    assert "Usage: oarrun [options] <command> [arguments]" in job.run("--help")[1]


def test_both_streams_are_labelled_line_by_line(job: Job) -> None:
    code, out, err = job.run("-l", 'printf "a $OAR_TASK_ID\\nno end"; echo "e $OAR_TASK_ID" >&2')
    assert (code, out) == (0, ["0: a 0", "0: no end", "1: a 1", "1: no end", "2: a 2", "2: no end"])
    assert sorted(err.splitlines()) == ["0: e 0", "1: e 1", "2: e 2"]


def test_nothing_that_is_printed_is_lost(job: Job) -> None:
    process = subprocess.Popen(
        [job.tool, "seq 100000; exit 1"], env=job.environment, stdout=subprocess.PIPE, cwd=job.directory
    )
    out, _ = process.communicate(timeout=120)
    assert (process.returncode, len(out)) == (1, 3 * len("".join(f"{n}\n" for n in range(1, 100001))))


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (["exit $OAR_TASK_ID"], 2),
        (["kill -9 $$"], 137),
        (["/no/program"], 127),
        (["/no/program", "x"], 127),
        (["/etc/passwd", "x"], 126),
        (["-d", "/no/directory", "true"], 2),
    ],
)
def test_it_ends_with_the_worst_status(job: Job, command: list[str], status: int) -> None:
    assert job.run(*command)[0] == status


def test_a_lost_node_is_named(job: Job) -> None:
    job.has("one", "bad")
    said = "oarrun: the connection to bad was lost (oarsh ended with 255)\n"
    assert job.run("-l", "echo x") == (255, ["0: x"], said)
    job.has("one", "dying")
    assert job.run("exit 1") == (3, [], "oarrun: the connection to dying was lost (oarsh ended with 3)\n")


def test_tasks_have_the_variables_and_the_directory_of_the_caller(job: Job) -> None:
    job.environment.update(MINE="two words", SSH_TTY="/dev/pts/9")
    show = 'echo "$MINE,$YOURS,$SSH_TTY"; pwd'
    assert job.run("-n1", "-x", "YOURS=é $x", show) == (0, sorted(["two words,é $x,", str(job.directory)]), "")
    assert job.run("-n1", "-d", "/", "pwd") == (0, ["/"], "")


def test_numbers_of_gpus_are_each_node_s_own_unless_they_are_given(job: Job) -> None:
    names = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")
    session = f'#!/bin/sh\nshift\nexport {" ".join(f"{name}=7" for name in names)}\nexec sh -c "$1"\n'
    (job.directory / "oarsh").write_text(session)
    job.environment.update(dict.fromkeys(names, "3"))
    show = f"echo {' '.join('$' + name for name in names)}"
    assert job.run("-n1", show)[1] == ["7 7 7"]
    assert job.run("-n1", "-x", "CUDA_VISIBLE_DEVICES=1", show)[1] == ["1 7 7"]


def test_a_fresh_environment_has_only_what_is_named(job: Job) -> None:
    """The session on the node has what this machine gives it, here the same: so look at what is sent."""
    (job.directory / "oarsh").write_text('#!/bin/sh\nshift\nunset MINE OTHER\nexec sh -c "$1"\n')
    job.environment.update(MINE="1", OTHER="2")
    assert job.run("-n1", "-f", "-x", "MINE", 'echo "$MINE,$OTHER"')[1] == ["1,"]
    assert job.run("-n1", 'echo "$MINE,$OTHER"')[1] == ["1,2"]


def test_what_fails_ends_the_others_where_that_is_wanted(job: Job) -> None:
    begin = time.monotonic()
    assert job.run("-k", 'test "$OAR_TASK_ID" = 1 && exit 7; exec sleep 600')[0] == 7
    assert time.monotonic() - begin < 300


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_all_tasks(job: Job, number: signal.Signals) -> None:
    process = job.begin("echo $$ > task.$OAR_TASK_ID; exec sleep 600")
    tasks = job.wait_for("task", 3)
    process.send_signal(number)
    process.communicate(timeout=120)
    assert process.returncode == 128 + number
    assert all(map(is_gone, tasks))


def test_tasks_end_with_one_that_is_killed(job: Job) -> None:
    process = job.begin("trap '' TERM; echo $$ > task.$OAR_TASK_ID; while :; do sleep 0.1; done")
    tasks = job.wait_for("task", 3)
    process.kill()
    process.communicate()
    assert all(map(is_gone, tasks))


def test_what_a_task_leaves_in_the_background_is_not_waited_for(job: Job) -> None:
    begin = time.monotonic()
    assert job.run("-n1", "sleep 600 & echo $! > left.0; echo done") == (0, ["done"], "")
    assert time.monotonic() - begin < 300
    os.kill(job.wait_for("left")[0], signal.SIGKILL)


def test_who_reads_no_further_ends_it(job: Job) -> None:
    all_begun = "until ls task.0 task.1 task.2; do sleep 0.01; done >/dev/null 2>&1"
    line = f'"$0" "echo \\$\\$ > task.\\$OAR_TASK_ID; {all_begun}; exec yes" | head -n 1; echo ${{PIPESTATUS[0]}}'
    done = subprocess.run(
        ["bash", "-c", line, job.tool],
        env=job.environment,
        cwd=job.directory,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stdout == "y\n141\n"
    assert all(map(is_gone, job.wait_for("task", 3)))
