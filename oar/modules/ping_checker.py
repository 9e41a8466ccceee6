"""Which of many hosts do not answer, by the checker that the site has configured (server.md 5.4).

Each checker gets all hosts at once.  A checker that cannot be run says nothing about any host: that is an error of the
configuration, and suspecting the whole cluster for it would help nobody.
"""

import logging
import re
import shlex
import socket
import subprocess
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from oar.lib.config import Config
from oar.lib.errors import ConfigError

log = logging.getLogger("finaud")

PINGS_AT_A_TIME = 64
PING_SECONDS = 10


@dataclass(frozen=True, slots=True)
class Output:
    """What a checker wrote until it ended or its time was over."""

    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True)
class Checker:
    """How hosts are given to a program, and how its output is read."""

    argv: tuple[str, ...]
    stdin: str
    seconds: int
    bad: Callable[[Output], set[str]]


def is_configured(config: Config) -> bool:
    """Whether the site has a checker of its own."""
    return any(
        (
            config.pingchecker_taktuk_arg_command and config.taktuk_cmd,
            config.pingchecker_sentinelle_script_command,
            config.pingchecker_fping_command,
            config.pingchecker_nmap_command,
            config.pingchecker_generic_command,
        )
    )


def bad_hosts(config: Config, hosts: Collection[str]) -> list[str]:
    """Return the hosts that do not answer, sorted.  Raises ConfigError when the checker cannot be run."""
    asked = sorted(set(hosts))
    if not asked:
        return []
    checker = _checker(config, asked)
    if checker is None:
        return _pinged(asked)
    found = checker.bad(_run(checker))
    return [host for host in asked if host in found]


def _checker(config: Config, hosts: list[str]) -> Checker | None:
    """Return the first checker that is configured."""
    listed = "".join(f"{host}\n" for host in hosts)
    if config.pingchecker_taktuk_arg_command and config.taktuk_cmd:
        return _taktuk(config, hosts, listed)
    if command := config.pingchecker_sentinelle_script_command:
        argv = (*shlex.split(command), "-c", config.openssh_cmd, "-f", "-")
        return Checker(argv, listed, 300, lambda output: _first_words(output.stderr, r"^(\S+) : BAD"))
    if command := config.pingchecker_fping_command:
        return Checker((*shlex.split(command), "-u", *hosts), "", 15, lambda output: _not_alive(output, hosts))
    if command := config.pingchecker_nmap_command:
        return _nmap(command, hosts)
    if command := config.pingchecker_generic_command:
        argv = (*shlex.split(command), *hosts)
        return Checker(argv, "", 300, lambda output: _first_words(output.stderr, r"^\s*(\S+)\s*$"))
    return None


def _taktuk(config: Config, hosts: list[str], listed: str) -> Checker:
    argv = (
        *shlex.split(config.taktuk_cmd or ""),
        *("-c", config.openssh_cmd, "-o", r"""status='"STATUS $host $line\n"'""", "-f", "-"),
        *shlex.split(config.pingchecker_taktuk_arg_command or ""),
    )
    seconds = 2 * config.oar_ssh_connection_timeout
    return Checker(argv, listed, seconds, lambda output: set(hosts) - _first_words(output.stdout, r"^STATUS (\S+) 0$"))


def _nmap(command: str, hosts: list[str]) -> Checker:
    addresses = _addresses(hosts)
    argv = (*shlex.split(command), "-oG", "-", *addresses.values())

    def bad(output: Output) -> set[str]:
        good = _first_words(output.stdout, r"^Host: (\S+) .*\bopen\b")
        return {host for host in hosts if addresses.get(host) not in good}

    return Checker(argv, "", 30, bad)


def _addresses(hosts: list[str]) -> Mapping[str, str]:
    """Return the address of each host that has one."""
    found = {}
    for host in hosts:
        try:
            found[host] = socket.gethostbyname(host)
        except OSError as error:
            log.warning("%s has no address: %s", host, error)
    return found


def _not_alive(output: Output, hosts: list[str]) -> set[str]:
    """Return the hosts that a line of fping names without calling them alive."""
    lines = (output.stdout + "\n" + output.stderr).splitlines()
    named = {line.split()[0]: "alive" in line for line in lines if line.split()}
    return {host for host in hosts if named.get(host) is False}


def _first_words(text: str, pattern: str) -> set[str]:
    return set(re.findall(pattern, text, re.MULTILINE))


def _run(checker: Checker) -> Output:
    try:
        done = subprocess.run(
            checker.argv, input=checker.stdin, capture_output=True, text=True, timeout=checker.seconds, check=False
        )
    except subprocess.TimeoutExpired as late:
        return Output(_text(late.stdout), _text(late.stderr))
    except OSError as error:
        raise ConfigError(f"the ping checker {checker.argv[0]} cannot be run: {error.strerror}") from None
    return Output(done.stdout, done.stderr)


def _text(output: bytes | str | None) -> str:
    return output.decode("utf-8", "replace") if isinstance(output, bytes) else output or ""


def _pinged(hosts: list[str]) -> list[str]:
    with ThreadPoolExecutor(min(PINGS_AT_A_TIME, len(hosts))) as pool:
        answers = dict(zip(hosts, pool.map(_answers_ping, hosts), strict=True))
    return [host for host, answered in answers.items() if not answered]


def _answers_ping(host: str) -> bool:
    try:
        done = subprocess.run(
            ["ping", "-c", "1", "-W", "5", "--", host],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=PING_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    except OSError as error:
        raise ConfigError(f"ping cannot be run: {error.strerror}") from None
    return done.returncode == 0
