"""Requests to a node and their outcomes: plain values.

A ``NodeRequest`` names one of the node programs of ``oar/tools``, whose first lines describe its data. The node session
runs it. A ``NodeCommand`` is an argument list. The ``Outcome`` of both distinguishes "could not reach the node" from
"ran and failed".
"""

import json
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from oar.lib.config.files import Config


class NodeRequest:
    """One action of a node program. The program is named like its file.

    The same value may be sent to many nodes: its data is encoded once, and does not include the node's name.
    """

    def __init__(self, program: str, action: str, data: Mapping[str, Any]) -> None:
        self.program = program.removesuffix(".py")
        self.action = action
        self.data = data

    @cached_property
    def encoded_data(self) -> str:
        """Return the data as JSON, in ASCII."""
        return json.dumps(self.data)


@dataclass(frozen=True, slots=True)
class NodeCommand:
    """An argument list to run on a node, as ``account`` (None: as the session, which is root)."""

    argv: tuple[str, ...]
    stdin: str = ""
    account: str | None = "oar"
    is_quiet: bool = False  #: its output is thrown away


@dataclass(frozen=True, slots=True)
class CommandRan:
    """The request has run to its end. ``exit`` is 128 + n if signal n has killed it."""

    exit: int
    lines: tuple[str, ...] = ()
    stderr: str = ""


@dataclass(frozen=True, slots=True)
class Unreachable:
    """The node could not be reached, or its connection was lost. ``began``: it had accepted the request."""

    error: str
    began: bool = False


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The request did not end in time. ``began``: the node had accepted it."""

    seconds: float
    began: bool = False
    lines: tuple[str, ...] = ()


Outcome = CommandRan | Unreachable | TimedOut


@dataclass(frozen=True, slots=True)
class RemoteSettings:
    """The settings from oar.conf for connections to nodes, and the home directory with the account's ssh files."""

    openssh_cmd: tuple[str, ...] = ("/usr/bin/ssh", "-p", "6667", "-e", "none")
    transport: str = "auto"
    pool_max: int = 512
    pool_idle: float = 600
    connect_seconds: float = 15.0
    privilege_cmd: tuple[str, ...] = ("sudo", "-n")
    control_directory: str = "/run/oar/ipc"
    home: str = "/var/lib/oar"
    account: str = "oar"

    @classmethod
    def of(cls, config: Config) -> Self:
        """Return the settings from oar.conf."""
        return cls(
            openssh_cmd=tuple(shlex.split(config.openssh_cmd)),
            transport=config.oar_ssh_transport,
            pool_max=config.oar_ssh_pool_max,
            pool_idle=config.oar_ssh_pool_idle,
            privilege_cmd=tuple(shlex.split(config.oar_privilege_cmd)),
            control_directory=f"{config.oar_run_dir}/ipc",
            home=os.path.expanduser("~"),
        )


#: Of the connections of a bipbip, the share for watching what jobs use: launches need the others.
_WATCHING_SHARE = 0.75


def most_watched(connections: int) -> int:
    """Return the number of nodes that a bipbip with this limit of connections (OAR_SSH_POOL_MAX) watches at most."""
    return int(_WATCHING_SHARE * connections)


def needed_connections(nodes: int) -> int:
    """Return the smallest OAR_SSH_POOL_MAX with which a bipbip can watch so many nodes.

    >>> most_watched(needed_connections(500))
    500
    """
    return -int(-nodes // _WATCHING_SHARE)
