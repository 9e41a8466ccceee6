"""oar_resources_init: machines are asked what is in them."""

import io
import subprocess
from pathlib import Path

import pytest

from oar.cli import oar_resources_init
from oar.cli.common.command import CommandResult
from oar.lib.access.records import User
from tests.builders import add_resources, execute_sql
from tests.db.console import ROOT, Console

#: Reaches no host, but answers as some would: one fails, one talks nonsense.
CONNECTOR = """#!/bin/sh
cat > /dev/null
case $1 in
    broken) exit 255 ;;
    odd) echo hello ;;
    *) printf 'memory 4000000\\nthread 0 0 0\\nthread 0 0 2\\nthread 0 1 1\\n' ;;
esac
"""


class Desk:
    """Where an administrator has a file of hosts."""

    def __init__(self, console: Console, directory: Path) -> None:
        self.console = console
        self.directory = directory
        (directory / "ssh").write_text(CONNECTOR)
        (directory / "ssh").chmod(0o755)

    def init(self, *words: object, hosts: str = "n1\nn2 # the second\n", user: User = ROOT) -> CommandResult:
        """Type the command, without questions."""
        (self.directory / "hosts").write_text(hosts)
        command = ("-y", "-e", self.directory / "ssh", *words, self.directory / "hosts")
        return self.console.type(oar_resources_init.main, *command, user=user)


@pytest.fixture
def desk(console: Console, tmp_path: Path) -> Desk:
    return Desk(console, tmp_path)


def test_lines_create_what_was_found(desk: Desk) -> None:
    result = desk.init("-v")
    assert (result.exit, result.err) == (0, "")
    assert result.out.splitlines() == [
        "#   Checking n1 ... OK",
        "#   Checking n2 ... OK",
        "oarproperty -c -a host",
        "oarproperty -a core",
        "oarproperty -a mem",
        "oarnodesetting -a -h n1 -p host=n1 -p cpu=1 -p core=1 -p cpuset=0,2 -p mem=4",
        "oarnodesetting -a -h n1 -p host=n1 -p cpu=1 -p core=2 -p cpuset=1 -p mem=4",
        "oarnodesetting -a -h n2 -p host=n2 -p cpu=2 -p core=3 -p cpuset=0,2 -p mem=4",
        "oarnodesetting -a -h n2 -p host=n2 -p cpu=2 -p core=4 -p cpuset=1 -p mem=4",
    ]
    assert desk.console.ids() == []


def test_executed_they_are_there_and_numbers_go_on(desk: Desk) -> None:
    assert desk.init("-x", "-T").out.splitlines()[-1] == "6 resource(s) created or repaired."
    assert desk.init("-x", "-T", hosts="n3\n").exit == 0
    values = {name: desk.console.values(name) for name in ("host", "cpu", "core", "thread", "cpuset", "mem")}
    assert values["host"] == ["n1"] * 3 + ["n2"] * 3 + ["n3"] * 3
    assert values["cpu"] == [1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert values["core"] == [1, 1, 2, 3, 3, 4, 5, 5, 6]
    assert values["thread"] == [*range(1, 10)]
    assert values["cpuset"] == ["0", "2", "1"] * 3
    assert values["mem"] == [4] * 9


def test_known_hosts_are_left_alone_unless_they_are_updated(desk: Desk) -> None:
    desk.init("-x", hosts="n1\n")
    execute_sql(desk.console.database, "UPDATE resources SET mem = 1")
    again = desk.init("-x", hosts="n1\n")
    assert "n1: it already has resources, which stay unchanged. To update their properties, use --update" in again.err
    assert desk.console.values("mem") == [1, 1]
    assert desk.init("-x", "--update", hosts="n1\n").exit == 0
    assert desk.console.values("mem") == [4, 4]
    assert len(desk.console.ids()) == 2


def test_a_host_that_fails_stops_no_other(desk: Desk) -> None:
    result = desk.init("-x", hosts="broken\nn1\nodd\n")
    assert result.exit == 5
    assert result.out.splitlines() == [
        "#   Checking broken ... KO (exit code 255)",
        "#   Checking n1 ... OK",
        "#   Checking odd ... KO (it must report its processors and its memory)",
        "2 resource(s) created or repaired.",
    ]


def test_a_file_is_written_that_a_shell_understands(desk: Desk) -> None:
    path = desk.directory / "lines.sh"
    result = desk.init("-o", path, "-n", "echo set", "-p", "echo property")
    assert result.out.splitlines()[-1] == f"# Look at {path}, then: sh {path}"
    done = subprocess.run(["sh", path], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[:2] == ["property -c -a host", "property -a core"]
    assert desk.init("-o", desk.directory / "none" / "lines").exit == 4


def test_questions_are_asked_and_no_means_no(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    (desk.directory / "hosts").write_text("n1\n")
    words = ("-e", desk.directory / "ssh", desk.directory / "hosts")
    monkeypatch.setattr("sys.stdin", io.StringIO("no\n"))
    result = desk.console.type(oar_resources_init.main, *words)
    assert (result.exit, "Is the OAR SSH key configured on all hosts?" in result.out) == (2, True)


@pytest.mark.parametrize(("hosts", "said"), [("a b\n", "'a b' is not the name of a host"), ("# none\n", "no host")])
def test_what_is_no_list_of_hosts(desk: Desk, hosts: str, said: str) -> None:
    result = desk.init(hosts=hosts)
    assert (result.exit, said in result.err) == (1, True)


def test_what_needs_a_file_of_hosts_or_an_empty_cluster(desk: Desk) -> None:
    assert desk.console.type(oar_resources_init.main, "-").exit == 1
    assert desk.console.type(oar_resources_init.main, "-y", "/no/such").exit == 1
    add_resources(desk.console.database)
    assert desk.console.type(oar_resources_init.main).exit == 1
