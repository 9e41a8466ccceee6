"""Which keys of oar.conf nothing reads: found in the sources, so that what ``oar-conf --check`` names is true."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from oar.lib.config.keys import UNREAD, Config
from tests.unit.sources import ROOT

OPTIONS = {option.name for option in Config.options()}
#: Options by their keys, also by older ones.
NAMES = {key: option.name for option in Config.options() for key in (option.key, *option.aliases)}
DECLARATIONS = ROOT / "oar" / "lib" / "config"


#: The two ways to wake a node.
WAKING = ("energy_saving_node_manager_wake_up_cmd", "scheduler_node_manager_wake_up_cmd")


def programs() -> Iterator[Path]:
    """All files in which a key could be read: Python and shell."""
    for path in sorted((ROOT / "oar").rglob("*")):
        if path.is_file() and path.suffix in ("", ".py", ".sh") and path.parent != DECLARATIONS:
            yield path
    yield from sorted((ROOT / "setup" / "database" / "admission_rules").glob("*.py"))


def _properties() -> dict[str, set[str]]:
    """Return what each property of ``Config`` reads of it."""
    tree = ast.parse((DECLARATIONS / "keys.py").read_text())
    (config,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == Config.__name__)
    return {
        function.name: {node.attr for node in ast.walk(function) if isinstance(node, ast.Attribute)}
        for function in config.body
        if isinstance(function, ast.FunctionDef)
    }


PROPERTIES = _properties()


def read_by(text: str) -> set[str]:
    """Return the options that a program reads.

    Python reads them as attributes of what is called a config, and by their keys in texts; also through properties of
    ``Config``.  Shells read them by their keys.
    """
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return {name for key, name in NAMES.items() if re.search(rf"\b{key}\b", text)}
    words: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            options = _options_of(node.attr) & OPTIONS
            if options and _is_config(node.value):
                words |= options
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            words.add(NAMES.get(node.value, ""))
    return words & OPTIONS


def _is_config(node: ast.expr) -> bool:
    return re.search(r"config\w*(\[\w+\])?(\.replace\(.*\))?$", ast.unparse(node)) is not None


def _options_of(name: str) -> set[str]:
    """Return the options behind an attribute of ``Config``: itself, or what the property of this name reads."""
    return {name}.union(*(_options_of(each) for each in PROPERTIES.get(name, ())))


def test_the_keys_that_nothing_reads_are_known() -> None:
    """A key that is missing on the left is read: take it out of ``UNREAD``; one that is missing on the right is not."""
    read: set[str] = set()
    for path in programs():
        read |= read_by(path.read_text())
    read |= {option.same_as for option in Config.options() if option.name in read}
    fixed = {option.name for option in Config.options() if option.fixed}
    assert sorted(OPTIONS - read - fixed) == sorted(UNREAD)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("print(config.server_port)", {"server_port"}),
        ("self._config.quotas or runtime.config.proxy or configs[0].taktuk_cmd", {"quotas", "proxy", "taktuk_cmd"}),
        ("settings.quotas = job.proxy", set()),
        ("config.wake_command", {"energy_saving_internal", *WAKING}),
        ("config['SERVER_PORT'], config['LEON_WALLTIME']", {"server_port", "jobdel_walltime"}),
        ("# SERVER_PORT\nx = 1", set()),
        ("#!/bin/sh\n[ -n \"$SERVER_PORT\" ] && echo 'x'", {"server_port"}),
    ],
)
def test_what_reads_a_key(text: str, names: set[str]) -> None:
    assert read_by(text) == names
