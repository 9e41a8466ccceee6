"""Find the hosts that do not answer, with the ping checker of the site. See docs/design/nodes.rst, "Node checks".

A checker gets all hosts at once. If it cannot be run, this is a configuration error and no host is treated as silent:
otherwise the whole cluster would be suspected.
"""

import errno
import logging
import os
import re
import shlex
import socket
import subprocess
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from oar.lib.base import programs
from oar.lib.base.errors import ConfigError, ProgramNotStarted
from oar.lib.base.programs import split_command
from oar.lib.config.files import Config

log = logging.getLogger("finaud")

PINGS_AT_A_TIME = 64
PING_SECONDS = 10
#: Exit codes of ping; another one: an unknown name, or it could not even try.
PING_ANSWERED, PING_SILENT = 0, 1
#: The arguments of taktuk that the files of OAR 2 and 3 propose: run one command on each host, within some seconds.
_ONE_COMMAND = re.compile(
    r"(?:-t\s+\d+\s+)?b(?:roadcast)?\s+e(?:xec)?(?:\s+t(?:imeout)?\s+(?P<seconds>\d+))?(?:\s+k(?:ill)?\s+\d+)?"
    r"\s+\[\s*(?P<command>/\S.*?|true|oarnodecheckquery)\s*\]"
)
#: Commands in them that are not in the PATH of nodes any more.
_MOVED_COMMANDS = {"oarnodecheckquery": "/usr/lib/oar/oarnodecheckquery"}
_SENTINELLE_SECONDS = 300
#: Errors of the start of a program that say nothing about the program.
_TRANSIENT = (errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM)


@dataclass(frozen=True, slots=True)
class CheckerOutput:
    """The output of a checker until its end or its timeout."""

    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True)
class Checker:
    """A program that checks hosts: its command line, and the function that parses its output."""

    key: str  #: of oar.conf, which names the program
    argv: tuple[str, ...]
    stdin: str
    seconds: int
    failed_hosts: Callable[[CheckerOutput], set[str]]


def is_configured(config: Config) -> bool:
    """Return whether the site has configured a checker."""
    return any(
        (
            config.pingchecker_taktuk_arg_command and config.taktuk_cmd,
            config.pingchecker_sentinelle_script_command,
            config.pingchecker_fping_command,
            config.pingchecker_nmap_command,
            config.pingchecker_generic_command,
        )
    )


def find_fault(config: Config) -> str:
    """Return the key whose program cannot be started, and why; return '' if the configured checker can be started."""
    checker = _checker(config, [])
    fault = programs.find_fault(shlex.quote(checker.argv[0]), checker.key, _search_path()) if checker else ""
    return f"{checker.key}: {fault}" if checker and fault else ""


def key_of(config: Config) -> str:
    """Return the key of the configured checker program; return '' if the site has none."""
    checker = _checker(config, [])
    return checker.key if checker else ""


def replaces_taktuk(config: Config) -> bool:
    """Return whether the built-in sentinelle replaces a configured taktuk that is not installed."""
    command = config.taktuk_cmd
    return bool(
        command and programs.find_fault(command, Config.taktuk_cmd.key, _search_path()) and _one_command(config)
    )


def _search_path() -> str:
    return os.environ.get("PATH", programs.DEFAULT_PATH)


def silent_hosts(config: Config, hosts: Collection[str]) -> list[str]:
    """Return the hosts that do not answer, sorted. Raises ConfigError if the checker cannot be run."""
    sorted_hosts = sorted(set(hosts))
    if not sorted_hosts:
        return []
    checker = _checker(config, sorted_hosts)
    if checker is None:
        return _without_ping_answer(sorted_hosts)
    failed = checker.failed_hosts(_run(checker))
    return [host for host in sorted_hosts if host in failed]


def _checker(config: Config, hosts: list[str]) -> Checker | None:
    """Return the first configured checker."""
    host_lines = "".join(f"{host}\n" for host in hosts)
    if config.pingchecker_taktuk_arg_command and config.taktuk_cmd:
        return _taktuk(config, hosts, host_lines)
    if command := config.pingchecker_sentinelle_script_command:
        key = Config.pingchecker_sentinelle_script_command.key
        return _sentinelle(key, split_command(command), config, host_lines)
    if command := config.pingchecker_fping_command:
        argv = (*split_command(command), "-u", *hosts)
        key = Config.pingchecker_fping_command.key
        return Checker(key, argv, "", 15, lambda output: _not_alive(output, hosts))
    if command := config.pingchecker_nmap_command:
        return _nmap(command, hosts)
    if command := config.pingchecker_generic_command:
        argv = (*split_command(command), *hosts)
        key = Config.pingchecker_generic_command.key
        return Checker(key, argv, "", 300, lambda output: _matches(output.stderr, r"^\s*(\S+)\s*$"))
    return None


def _sentinelle(key: str, command: tuple[str, ...], config: Config, host_lines: str) -> Checker:
    argv = (*command, "-c", config.openssh_cmd, "-f", "-")
    return Checker(key, argv, host_lines, _SENTINELLE_SECONDS, lambda output: _matches(output.stderr, r"^(\S+) : BAD"))


def _one_command(config: Config) -> tuple[str, ...]:
    """Return the built-in sentinelle command that replaces the configured taktuk command; return () if none does."""
    match = _ONE_COMMAND.fullmatch((config.pingchecker_taktuk_arg_command or "").strip())
    if match is None:
        return ()
    command = _MOVED_COMMANDS.get(match["command"], match["command"])
    return (*split_command("sentinelle.pl"), "-t", match["seconds"] or "30", "-w", "20", "-p", command)


def _taktuk(config: Config, hosts: list[str], host_lines: str) -> Checker:
    if replaces_taktuk(config):
        return _sentinelle(Config.taktuk_cmd.key, _one_command(config), config, host_lines)
    argv = (
        *split_command(config.taktuk_cmd or ""),
        *("-c", config.openssh_cmd, "-o", r"""status='"STATUS $host $line\n"'""", "-f", "-"),
        *shlex.split(config.pingchecker_taktuk_arg_command or ""),
    )
    seconds = 2 * config.oar_ssh_connection_timeout
    return Checker(
        Config.taktuk_cmd.key,
        argv,
        host_lines,
        seconds,
        lambda output: set(hosts) - _matches(output.stdout, r"^STATUS (\S+) 0$"),
    )


def _nmap(command: str, hosts: list[str]) -> Checker:
    addresses = {}
    for host in hosts:
        try:
            addresses[host] = socket.gethostbyname(host)
        except OSError as error:
            log.warning("%s has no address: %s", host, error)
    argv = (*split_command(command), "-oG", "-", *addresses.values())

    def failed_hosts(output: CheckerOutput) -> set[str]:
        open_addresses = _matches(output.stdout, r"^Host: (\S+) .*\bopen\b")
        return {host for host in hosts if addresses.get(host) not in open_addresses}

    return Checker(Config.pingchecker_nmap_command.key, argv, "", 30, failed_hosts)


def _not_alive(output: CheckerOutput, hosts: list[str]) -> set[str]:
    """Return the hosts that fping lists without "alive"."""
    lines = (output.stdout + "\n" + output.stderr).splitlines()
    answers = {line.split()[0]: "alive" in line for line in lines if line.split()}
    return {host for host in hosts if answers.get(host) is False}


def _matches(text: str, pattern: str) -> set[str]:
    return set(re.findall(pattern, text, re.MULTILINE))


def _run(checker: Checker) -> CheckerOutput:
    try:
        process = subprocess.run(
            checker.argv, input=checker.stdin, capture_output=True, text=True, timeout=checker.seconds, check=False
        )
    except subprocess.TimeoutExpired as late:
        return CheckerOutput(_text(late.stdout), _text(late.stderr))
    except OSError as error:
        raise _start_error(f"the ping checker {checker.argv[0]}", error) from None
    return CheckerOutput(process.stdout, process.stderr)


def _text(output: bytes | str | None) -> str:
    return output.decode("utf-8", "replace") if isinstance(output, bytes) else output or ""


def _without_ping_answer(hosts: list[str]) -> list[str]:
    with ThreadPoolExecutor(min(PINGS_AT_A_TIME, len(hosts))) as pool:
        answers = dict(zip(hosts, pool.map(_run_ping, hosts), strict=True))
    if any(answer.returncode not in (PING_ANSWERED, PING_SILENT) for answer in answers.values()):
        _require_ping()
    return [host for host, answer in answers.items() if answer.returncode != PING_ANSWERED]


def _require_ping() -> None:
    """Check that ping works for this machine, because ping exits with the same code for an unknown host name.

    On Debian 13, users may run ping only with a kernel setting that some machines do not have.
    Raises ConfigError.
    """
    tried = _run_ping("127.0.0.1")
    if tried.returncode not in (PING_ANSWERED, PING_SILENT):
        message = tried.stderr.strip().partition("\n")[0] or f"it ended with {tried.returncode}"
        raise ConfigError(
            f"ping cannot be used here: {message} (sysctl net.ipv4.ping_group_range, or a checker, PINGCHECKER_*)"
        )


def _run_ping(host: str) -> "subprocess.CompletedProcess[str]":
    words = ["ping", "-c", "1", "-W", "5", "--", host]
    try:
        return subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PING_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(words, PING_SILENT, "", "")
    except OSError as error:
        raise _start_error("ping", error) from None


def _start_error(program: str, error: OSError) -> ConfigError:
    kind = ProgramNotStarted if error.errno in _TRANSIENT else ConfigError
    return kind(f"{program} cannot be run: {error.strerror}")
