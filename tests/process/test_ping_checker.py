"""Nodes that do not answer, told apart from checkers that cannot be used; sentinelle, the built-in one."""

import subprocess
import sys
from pathlib import Path

import pytest

from oar.lib.base.errors import ConfigError
from oar.lib.config.files import Config
from oar.lib.nodes import ping_checker


def use_ping(directory: Path, monkeypatch: pytest.MonkeyPatch, ends: str) -> None:
    """Put a ping in the place of the computer's own: it ends as a shell says that has the host in ``$6``."""
    program = directory / "ping"
    program.write_text(f"#!/bin/sh\n{ends}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(directory), prepend=":")


def test_hosts_that_are_silent_or_not_known_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_ping(tmp_path, monkeypatch, "case $6 in silent) exit 1;; unknown) echo 'not known' >&2; exit 2;; esac")
    assert ping_checker.silent_hosts(Config(), ["n1", "silent", "unknown"]) == ["silent", "unknown"]


def test_nobody_is_silent_where_ping_may_not_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_ping(tmp_path, monkeypatch, "echo 'ping: socket: Operation not permitted' >&2; exit 2")
    with pytest.raises(ConfigError, match="ping cannot be used here: ping: socket: Operation not permitted"):
        ping_checker.silent_hosts(Config(), ["n1", "n2"])


def test_nobody_is_silent_where_there_is_no_ping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="ping cannot be run: No such file"):
        ping_checker.silent_hosts(Config(), ["n1"])


class TestDeliveredCheckers:
    """The checkers of nodes that the files of OAR 2 and 3 configure."""

    @pytest.fixture
    def connector(self, tmp_path: Path) -> str:
        """Return a program that reaches every host but one that is silent, and runs the command there."""
        program = tmp_path / "connector"
        program.write_text('#!/bin/sh\n[ "$1" != silent ] || exit 255\nexec sh -c "$2"\n')
        program.chmod(0o755)
        return str(program)

    @pytest.mark.parametrize(
        "keys",
        [
            {"pingchecker_sentinelle_script_command": "/usr/lib/oar/sentinelle.pl -t 30 -w 20"},
            {"pingchecker_sentinelle_script_command": "/usr/local/lib/oar/sentinelle.pl -t 5 -w 20"},
            {
                "taktuk_cmd": "/no/taktuk -t 30 -s",
                "pingchecker_taktuk_arg_command": "broadcast exec timeout 5 kill 9 [ true ]",
            },
            {"taktuk_cmd": "/no/taktuk", "pingchecker_taktuk_arg_command": "-t 3 broadcast exec [ true ]"},
        ],
    )
    def test_the_built_in_sentinelle_stands_in_for_a_missing_one(self, keys: dict[str, str], connector: str) -> None:
        config = Config(openssh_cmd=connector, **keys)
        assert ping_checker.find_fault(config) == ""
        assert ping_checker.silent_hosts(config, ["n1", "silent"]) == ["silent"]

    def test_arguments_of_taktuk_that_are_not_understood_need_taktuk(self) -> None:
        arguments = "broadcast input file [ /etc/motd ]"
        config = Config(taktuk_cmd="/no/taktuk -s", pingchecker_taktuk_arg_command=arguments)
        assert ping_checker.find_fault(config).startswith("TAKTUK_CMD: /no/taktuk: no such program on this machine")

    def test_an_existing_sentinelle_of_the_site_is_used(self, tmp_path: Path) -> None:
        program = tmp_path / "sentinelle.pl"
        program.write_text("#!/bin/sh\nsed 's/$/ : BAD/' >&2\n")
        program.chmod(0o755)
        config = Config(pingchecker_sentinelle_script_command=str(program))
        assert ping_checker.silent_hosts(config, ["n1"]) == ["n1"]

    def test_a_script_without_its_interpreter_is_a_fault(self, tmp_path: Path) -> None:
        program = tmp_path / "check"
        program.write_text("#!/no/perl -w\n")
        program.chmod(0o755)
        fault = ping_checker.find_fault(Config(pingchecker_generic_command=str(program)))
        assert (
            fault
            == f"PINGCHECKER_GENERIC_COMMAND: {program}: its interpreter /no/perl is not on this machine. Install it."
        )


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
