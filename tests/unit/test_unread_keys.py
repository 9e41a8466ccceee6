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


def programs() -> Iterator[Path]:
    """All files in which a key could be read: Python and shell."""
    for path in sorted((ROOT / "oar").rglob("*")):
        if path.is_file() and path.suffix in ("", ".py", ".sh") and path.parent != DECLARATIONS:
            yield path
    yield DECLARATIONS / "keys.py"
    yield from sorted((ROOT / "setup" / "database" / "admission_rules").glob("*.py"))


def read_by(text: str, *, is_declaration: bool = False) -> set[str]:
    """Return the options that a program reads.

    Python reads them as attributes of what is called a config, and by their keys in texts; properties of ``Config`` as
    attributes of themselves; shells by their keys.
    """
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return {name for key, name in NAMES.items() if re.search(rf"\b{key}\b", text)}
    words: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _is_config(node.value, is_declaration=is_declaration):
            words.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and not is_declaration:
            words.add(NAMES.get(node.value, ""))
    return words & OPTIONS


def _is_config(node: ast.expr, *, is_declaration: bool) -> bool:
    text = ast.unparse(node)
    return text == "self" if is_declaration else re.search(r"config\w*(\[\w+\])?(\.replace\(.*\))?$", text) is not None


def test_the_keys_that_nothing_reads_are_known() -> None:
    """A key that is missing on the left is read: take it out of ``UNREAD``; one that is missing on the right is not."""
    read: set[str] = set()
    for path in programs():
        read |= read_by(path.read_text(), is_declaration=path.parent == DECLARATIONS)
    read |= {option.same_as for option in Config.options() if option.name in read}
    fixed = {option.name for option in Config.options() if option.fixed}
    assert sorted(OPTIONS - read - fixed) == sorted(UNREAD)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("print(config.server_port)", {"server_port"}),
        ("self._config.quotas or runtime.config.proxy or configs[0].taktuk_cmd", {"quotas", "proxy", "taktuk_cmd"}),
        ("settings.quotas = job.proxy", set()),
        ("config['SERVER_PORT'], config['LEON_WALLTIME']", {"server_port", "jobdel_walltime"}),
        ("# SERVER_PORT\nx = 1", set()),
        ("#!/bin/sh\n[ -n \"$SERVER_PORT\" ] && echo 'x'", {"server_port"}),
    ],
)
def test_what_reads_a_key(text: str, names: set[str]) -> None:
    assert read_by(text) == names
