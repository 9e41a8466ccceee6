"""The small programs of nodes, run as they are run there."""

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from oar.lib.remote.bootstrap import TOOLS
from tests.process.node_box import NODE, NodeBox

# -- oarprint ----------------------------------------------------------------------------------------------------------

PROPERTIES = """\
 core = '2' , label = 'it\\'s' , network_address = 'n3' , type = 'default'
 core = '1' , label = 'a\\\\b' , network_address = 'n3' , type = 'default'
 core = '10' , label = '' , network_address = 'n20' , type = 'default'
"""


def oarprint(*words: str, text: str = PROPERTIES) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [TOOLS / "oarprint", *words, "-f", "-"], input=text, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (["host"], ["n20", "n3"]),
        (["core"], ["1", "2", "10"]),
        (["host", "-P", "host,core", "-F", "% has cores %", "-C", "+"], ["n20 has cores 10", "n3 has cores 1+2"]),
        (["core", "-P", "core,label"], ["1 a\\b", "2 it's", "10 "]),
        (["host", "-P", "host,core", "-F", "NODE=#", "-T", "#"], ["NODE=n20 10", "NODE=n3 1,2"]),
        (["host", "-F", "% %"], ["n20 ", "n3 "]),
        (["host", "-l"], ["List of properties:", "core, label, network_address, type"]),
    ],
)
def test_oarprint_shows_what_is_asked(words: list[str], lines: list[str]) -> None:
    assert oarprint(*words).stdout.splitlines() == lines


@pytest.mark.parametrize(
    ("words", "text", "message"),
    [
        (["host"], "", "oarprint: no input data available\n"),
        (["foo"], PROPERTIES, "oarprint: Unknown property 'foo'\n"),
        ([], PROPERTIES, "oarprint: Need a property name\n"),
        (["hots"], PROPERTIES, "oarprint: Unknown property 'hots'\n# Did you mean 'host'?\n"),
        (["host", "-P", "lable"], PROPERTIES, "oarprint: Unknown property 'lable'\n# Did you mean 'label'?\n"),
        (["--foo"], PROPERTIES, "oarprint: option --foo not recognized\n"),
    ],
)
def test_oarprint_names_what_is_wrong(words: list[str], text: str, message: str) -> None:
    done = oarprint(*words, text=text)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", message)


def test_oarprint_names_a_file_that_is_not_there() -> None:
    done = subprocess.run(
        [TOOLS / "oarprint", "host", "-f", "/nonexistent"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (1, "oarprint: /nonexistent: No such file or directory\n")


def test_oarprint_prints_bytes_that_are_no_text_as_they_are() -> None:
    for locale in ("C.UTF-8", "C", "POSIX"):
        done = subprocess.run(
            [TOOLS / "oarprint", "a", "-f", "-"],
            input=b"a = '\xff\xe9'\na = '\xc3\xa9'\n",
            capture_output=True,
            env={"LC_ALL": locale},
            check=True,
        )
        assert done.stdout == b"\xc3\xa9\n\xff\xe9\n"


def test_oarprint_ends_quietly_when_nobody_reads_on(tmp_path: Path) -> None:
    (tmp_path / "properties").write_text("".join(f"a = '{number}'\n" for number in range(50000)))
    done = subprocess.run(
        ["bash", "-c", '"$0" a -f properties | head -1; exit ${PIPESTATUS[0]}', TOOLS / "oarprint"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGPIPE, "0\n", "")


def test_oarprint_says_that_it_cannot_print() -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(
            [TOOLS / "oarprint", "host", "-f", "-"],
            input=PROPERTIES,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, "oarprint: cannot print: No space left on device\n")


def test_oarprint_tells_how_it_is_used() -> None:
    for option in ("-h", "--help"):
        assert oarprint(option).stdout.startswith("Usage: oarprint [options] <key property>\n")


def test_the_property_file_of_a_job_is_read_by_oarprint(box: NodeBox) -> None:
    resources = [{"type": "default", "network_address": NODE, "x": "it's \\ 'that'", "n": 1}]
    box.jrm("init", box.init_data(1, resources=resources))
    assert box.sh(f"{box.oardir}/oarprint x -f {box.runtime}/1_resources") == "it's \\ 'that'\n"


# -- checks of a node's health -----------------------------------------------------------------------------------------


class Checks:
    """A node's directories for checks."""

    def __init__(self, directory: Path) -> None:
        self.scripts, self.home = directory / "check.d", directory / "home"
        for path in (self.scripts, self.home, self.home / "checklogs"):
            path.mkdir()

    def add(self, name: str, text: str) -> None:
        path = self.scripts / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        environment = {**os.environ, "OARNODECHECK_CHECKS": str(self.scripts), "OARNODECHECK_HOME": str(self.home)}
        program, *rest = words
        return subprocess.run([TOOLS / program, *rest], env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def checks(tmp_path: Path) -> Checks:
    return Checks(tmp_path)


def test_a_check_that_finds_a_problem_makes_the_node_bad_until_its_file_is_removed(checks: Checks) -> None:
    checks.add("10_good", "exit 1")
    assert checks.run("oarnodecheckquery").returncode == 0
    assert checks.run("oarnodechecklist").stdout == f"Checklogs list in {checks.home}/checklogs:\n  <empty>\n"
    checks.add("20_bad", 'echo "disk" >"$CHECKLOGFILE"')
    assert checks.run("oarnodecheckrun").returncode == 0
    assert checks.run("oarnodecheckquery").returncode == 2
    listed = checks.run("oarnodechecklist").stdout.splitlines()
    assert listed[1].startswith("  20_bad.")
    (checks.home / "checklogs" / listed[1].strip()).unlink()
    assert checks.run("oarnodecheckquery").returncode == 0


def test_checks_do_not_run_while_a_job_is_here_unless_forced(checks: Checks) -> None:
    checks.add("bad", 'touch "$CHECKLOGFILE"')
    (checks.home / "alice_12.env").touch()
    assert checks.run("oarnodecheckrun").returncode == 0
    assert not list((checks.home / "checklogs").iterdir())
    assert checks.run("oarnodecheckrun", "-f").returncode == 0
    assert list((checks.home / "checklogs").iterdir())


def test_checks_that_cannot_run_are_told(checks: Checks) -> None:
    (checks.home / "checklogs").rmdir()
    assert checks.run("oarnodecheckrun").returncode == 1
    assert checks.run("oarnodecheckquery").returncode == 1
    assert checks.run("oarnodecheckquery", "-t", "soon").returncode == 1


# -- this computer's resources, plain ssh ------------------------------------------------------------------------------


def test_a_computer_declares_one_resource_per_core() -> None:
    done = subprocess.run([TOOLS / "detect_new_resources.sh"], capture_output=True, text=True, check=True)
    host = os.uname().nodename
    lines = [line for line in done.stdout.splitlines() if " -a -h " in line]
    assert all(line.startswith(f"oarnodesetting -a -h '{host}' -p host='{host}' -p cpu=") for line in lines)
    named = [word for line in lines for word in line.split(" -p cpuset=")[1].split()[0].split(",")]
    assert sorted(map(int, named)) == sorted(os.sched_getaffinity(0))


def test_what_a_computer_declares_goes_on_behind_the_processors_and_cores_that_are_there() -> None:
    lines = subprocess.run([TOOLS / "detect_new_resources.sh"], capture_output=True, text=True, check=True).stdout
    there = 'oarproperty() { :; }; oarnodesetting() { case $1 in --last*) echo 41 ;; *) echo "$@" ;; esac; }\n'
    done = subprocess.run(["sh", "-eu", "-c", there + lines], capture_output=True, text=True, check=True)
    declared = done.stdout.splitlines()
    assert [re.findall(r" core=(\d+)", line) for line in declared] == [[str(42 + n)] for n in range(len(declared))]
    assert declared[0].split()[6] == "cpu=42"
    nothing = 'oarproperty() { :; }; oarnodesetting() { case $1 in --last*) ;; *) echo "$@" ;; esac; }\n'
    done = subprocess.run(["sh", "-c", nothing + lines], capture_output=True, text=True, check=True)
    assert " cpu=1 -p core=1 " in done.stdout.splitlines()[0]


def adopt(box: NodeBox, phase: str, user: str = "alice", **environment: str) -> "subprocess.CompletedProcess[str]":
    given = {"PAM_SERVICE": "sshd", "PAM_USER": user, "PAM_TYPE": "open_session", **environment}
    script = f"{box.oardir}/pam_oar_adopt {phase}; code=$?; grep freezer /proc/self/cgroup; exit $code"
    return box.run_as("root", script, **given)


def test_plain_ssh_on_a_shared_node_goes_into_the_latest_job(box: NodeBox) -> None:
    box.sh("touch /etc/oar/pam_oar_adopt_enabled")
    jobs = [box.job_data(number, command="sleep 1000") for number in (6, 5)]
    for job in jobs:
        box.start(job)
        assert adopt(box, "-a").returncode == 0
        session = adopt(box, "-s")
        assert (session.returncode, f"/alice_{job['job_id']}/payload" in session.stdout) == (0, True), session
        assert f"OAR_JOB_ID={job['job_id']}\n" in (box.runtime / "pam.5002.env").read_text()
    box.clean(jobs[1])
    assert "/alice_6/payload" in adopt(box, "-s").stdout
    box.clean(jobs[0])
    assert adopt(box, "-a").returncode == 1


def test_plain_ssh_is_for_who_has_the_whole_node_in_one_job_where_the_site_refuses_others(box: NodeBox) -> None:
    box.sh("touch /etc/oar/pam_oar_adopt_enabled; echo SHARED_NODES=refuse >/etc/oar/pam_oar_adopt.conf")
    assert adopt(box, "-a").stdout.startswith("Forbidden: no running job found for alice on this node.\n")
    part = box.job_data(2, command="sleep 1000")
    box.start(part)
    refused = adopt(box, "-a")
    assert (refused.returncode, "use oarsh" in refused.stdout) == (1, True)
    box.clean(part)
    whole = box.job_data(3, command="sleep 1000")
    whole["init"]["nodes"] = {NODE: ["0-" + str((os.cpu_count() or 1) - 1)]}
    box.start(whole)
    assert adopt(box, "-a").returncode == 0
    session = adopt(box, "-s")
    assert (session.returncode, f"{box.cpuset_path}/alice_3/payload" in session.stdout) == (0, True), session
    assert "OAR_JOB_ID=3\n" in (box.runtime / "pam.5002.env").read_text()
    another = box.job_data(4, command="sleep 1000")
    box.start(another)
    assert "several jobs" in adopt(box, "-a").stdout
    for job in (whole, another):
        box.clean(job)
    assert not (box.runtime / "pam.5002.env").exists()
    box.sh("rm /etc/oar/pam_oar_adopt.conf")
    box.sh(f"echo MODE=disabled >{box.home('alice')}/conf")
    assert adopt(box, "-a", PAM_OAR_ADOPT_CONF=f"{box.home('alice')}/conf").returncode == 1


@pytest.mark.parametrize("login", ["al@site.org", ".al", "SITE\\al"])
def test_plain_ssh_is_for_nobody_whose_login_can_have_no_job(box: NodeBox, login: str) -> None:
    accounts = box.base / "etc/passwd"
    former = accounts.read_text()
    accounts.write_text(f"{former}{login}:x:5009:5009::/:/bin/sh\n")
    try:
        box.sh("touch /etc/oar/pam_oar_adopt_enabled")
        for phase in ("-a", "-s"):
            refused = adopt(box, phase, login)
            assert (refused.returncode, "no running job found for" in refused.stdout) == (1, True)
        assert adopt(box, "-a", "root").returncode == 0
    finally:
        accounts.write_text(former)


def test_plain_ssh_is_only_warned_about_where_the_site_does_not_enforce_it(box: NodeBox) -> None:
    box.sh("rm -f /etc/oar/pam_oar_adopt_enabled")
    warned = adopt(box, "-a")
    assert warned.returncode == 0
    assert warned.stdout.startswith("[pam_oar_adopt is disabled, warn only] Forbidden: no running job found for alice")
    assert adopt(box, "-a", "root").stdout.count("Forbidden") == 0
    assert adopt(box, "-a", PAM_SERVICE="login").stdout.count("Forbidden") == 0
