"""sentinelle: a command on many hosts, and what checkers of nodes and people read of it."""

import subprocess
import sys
from pathlib import Path

import pytest

from oar.lib.config.files import Config
from oar.lib.nodes import ping_checker

PROGRAM = (sys.executable, "-c", "from oar.cli.sentinelle import main; main()")
#: Reaches no host, but runs the command as the host would: one is silent, one kills what it is asked to run.
CONNECTOR = """#!/bin/sh
export host="$1"
[ "$host" != silent ] || exec sleep 60
[ "$host" != deadly ] || kill -9 $$
exec sh -c "$2"
"""


@pytest.fixture
def connector(tmp_path: Path) -> str:
    path = tmp_path / "connector"
    path.write_text(CONNECTOR)
    path.chmod(0o755)
    return str(path)


def sentinelle(*words: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*PROGRAM, *words], input=stdin, capture_output=True, text=True, timeout=60, check=False)


def test_what_hosts_print_goes_on_and_how_they_fared_is_told_apart(connector: str) -> None:
    done = sentinelle(
        "-c", connector, "-f", "-", "-m", "n3", "-p", "echo $host; exit 0", stdin="n1\n# none\nn2 # two\n"
    )
    assert (done.returncode, done.stdout) == (0, "n3\nn1\nn2\n")
    assert done.stderr.splitlines() == ["n3 : GOOD (0,0,0)", "n1 : GOOD (0,0,0)", "n2 : GOOD (0,0,0)"]


def test_a_host_that_fails_is_bad(connector: str) -> None:
    done = sentinelle("-c", connector, "-t", "1", "-m", "n1", "-m", "silent", "-m", "deadly", "-p", "exit 3")
    assert done.returncode == 2
    assert done.stderr.splitlines() == ["n1 : BAD (3,0,0)", "silent : BAD (0,9,0)", "deadly : BAD (0,9,0)"]


def test_it_checks_nodes(connector: str, tmp_path: Path) -> None:
    program = tmp_path / "sentinelle"
    program.write_text(f"#!{sys.executable}\nfrom oar.cli.sentinelle import main\nmain()\n")
    program.chmod(0o755)
    config = Config(pingchecker_sentinelle_script_command=f"{program} -t 1", openssh_cmd=connector)
    assert ping_checker.silent_hosts(config, ["n1", "silent", "deadly"]) == ["deadly", "silent"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("-m", "-oProxyCommand=x"), "Error: '-oProxyCommand=x' is not the name of a host\n"),
        (("-m", "n1", "-c", "'"), "Error: --connector ': write a command line: a quote is not closed\n"),
        (("-m", "n1", "-c", "/no/where"), "Error: cannot start /no/where: No such file or directory\n"),
        (("-f", "/no/where"), "Error: cannot open the file /no/where: No such file or directory\n"),
        (("-m", "n1", "-w", "0", "-c", "x"), "Error: --window and --timeout must be at least 1\n"),
    ],
)
def test_what_cannot_be_asked(words: tuple[str, ...], text: str) -> None:
    done = sentinelle(*words)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", text)


def test_without_hosts_the_usage_is_shown() -> None:
    assert sentinelle("-p", "x").returncode == 1
