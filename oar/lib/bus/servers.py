"""The servers of a site: which name of SERVER_HOSTNAME is this host, and what must be equal on all of them."""

import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from oar.lib.base.errors import ConfigError
from oar.lib.config.files import Config
from oar.lib.config.kinds import Target

#: Options that may differ between the servers.
_OF_HOST = frozenset({"server_name", "oar_run_dir", "log_file", "completion_log", "metrics_file"})
_OF_SITE = frozenset({Target.SERVER_FILE, Target.SERVER_DIRECTORY, Target.SERVER_PROGRAM})
_OF_SYSTEM = ("/bin/", "/sbin/", "/usr/bin/", "/usr/sbin/")
#: Bytes of a file that are compared.
_LONGEST_FILE = 1 << 20
#: Seconds for which a failure to determine the own name is remembered: the name server may be slow.
_FAILURE_SECONDS = 5.0
#: By the values of SERVER_HOSTNAME and SERVER_NAME: the problem, and until when it is repeated.
_failures: dict[tuple[tuple[str, ...], str | None], tuple[str, float]] = {}


def own_server(config: Config) -> str:
    """Return the name of SERVER_HOSTNAME that is this host. Raises ConfigError if none or several are.

    A single name is this host. Addresses are compared last: they may need a name server. Therefore a process determines
    the name once for each value of these keys; processes that need it in a transaction do so when they start. A failure
    is repeated for a while without asking again.
    """
    names = config.server_hostnames, config.server_name
    problem, until = _failures.get(names, ("", 0.0))
    if time.monotonic() < until:
        raise ConfigError(problem)
    try:
        return _own_server(*names)
    except ConfigError as error:
        _failures[names] = str(error), time.monotonic() + _FAILURE_SECONDS
        raise


def determine_own_server(config: Config) -> None:
    """Determine the name of this server before a transaction needs it: a name server may be slow."""
    with suppress(ConfigError):
        own_server(config)


@lru_cache(maxsize=8)
def _own_server(names: tuple[str, ...], server_name: str | None) -> str:
    host = os.uname().nodename.lower()
    if server_name is not None:
        if server_name not in names:
            raise ConfigError(f"SERVER_NAME: {server_name} must be one of SERVER_HOSTNAME ({' '.join(names)})")
        return server_name
    if len(names) == 1:
        return names[0]
    candidates = (
        [name for name in names if name.lower() == host],
        [name for name in names if _is_short_form(name.lower(), host)],
        [name for name in names if _has_address(name)],
    )
    own = next((some for some in candidates if some), [])
    if len(own) == 1:
        return own[0]
    problem = f"{' and '.join(own)} are all this host" if own else f"this host ({host}) is none of {' '.join(names)}"
    raise ConfigError(f"SERVER_HOSTNAME: {problem}; add its name, or set SERVER_NAME on this host")


def config_digest(config: Config) -> str:
    """Return a checksum of the options and of the site's files that must be equal on all servers, without secrets."""
    digest = hashlib.sha256()
    for option in config.options():
        value = getattr(config, option.name)
        if option.secret or option.name in _OF_HOST:
            continue
        digest.update(f"{option.key}={option.text(value)}\n".encode())
        if value and isinstance(value, str) and option.kind.target in _OF_SITE and not value.startswith(_OF_SYSTEM):
            for content in _contents(Path(value.partition(" ")[0])):
                digest.update(content)
    return digest.hexdigest()


def _contents(path: Path) -> Iterator[bytes]:
    """Yield the content of a regular file, or of those in a directory. Yield the error if one cannot be read."""
    try:
        if path.is_dir():
            for file in sorted(path.iterdir()):
                if file.is_file():
                    yield from _contents(file)
        elif path.is_file() or not path.exists():
            with path.open("rb") as stream:
                yield stream.read(_LONGEST_FILE)
    except OSError as error:
        yield str(error.strerror).encode()


def _is_short_form(name: str, host: str) -> bool:
    """Return whether one of two names is the first label of the other one."""
    return name == host.partition(".")[0] or host == name.partition(".")[0]


def _has_address(name: str) -> bool:
    """Return whether a name has an address of this host: the kernel uses such an address to reach itself."""
    import ipaddress
    import socket

    try:
        family, kind, _, _, address = socket.getaddrinfo(name, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)
            return ipaddress.ip_address(address[0]).is_loopback or probe.getsockname()[0] == address[0]
    except (OSError, UnicodeError):
        return False
