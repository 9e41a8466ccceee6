"""Records (snapshots and plans) as JSON, and snapshots in files, to plan a round again elsewhere.

The types of the fields control the conversion.  Only the owner can read the files: they contain user names.
"""

import json
import logging
import os
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from oar.kao.facts.snapshot import Snapshot
from oar.lib.base.resource_set import ResourceSet, format_ranges, parse_ranges

T = TypeVar("T")


def to_json(record: object) -> str:
    """Return a snapshot or a plan as JSON text; equal values give equal texts."""
    return json.dumps(_plain(record, type(record)), sort_keys=True, separators=(",", ":"))


def from_json(kind: type[T], text: str) -> T:
    """Return the record that ``to_json`` serialized."""
    record: T = _record(kind, json.loads(text))
    return record


@cache
def _hints(kind: type) -> dict[str, Any]:
    hints = typing.get_type_hints(kind, include_extras=True)
    return {name: hint for name, hint in hints.items() if not name.startswith("_")}


def _is_record(kind: Any) -> bool:
    return isinstance(kind, type) and (is_dataclass(kind) or hasattr(kind, "_fields"))


def _plain(value: Any, hint: Any) -> Any:
    if hint == ResourceSet:
        return format_ranges(value)
    kind: Any = type(value)
    if _is_record(kind):
        return {name: _plain(getattr(value, name), each) for name, each in _hints(kind).items()}
    if isinstance(value, Mapping):
        return {str(key): _plain(each, None) for key, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(each, None) for each in value]
    return value.value if isinstance(value, Enum) else value


def _record(hint: Any, value: Any) -> Any:
    if hint == ResourceSet:
        return parse_ranges(value)
    if _is_record(hint):
        hints = _hints(hint)
        return hint(**{name: _record(hints[name], each) for name, each in value.items()})
    return hint(value) if isinstance(hint, type) and issubclass(hint, Enum) else _compound(hint, value)


def _compound(hint: Any, value: Any) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        return tuple(_record(arguments[0], each) for each in value)
    if origin is Mapping:
        return {arguments[0](key): _record(arguments[1], each) for key, each in value.items()}
    if origin in (types.UnionType, typing.Union):
        return None if value is None else _record(next((each for each in arguments if _is_record(each)), None), value)
    return value


log = logging.getLogger(__name__)


def save(snapshot: Snapshot, path: Path) -> None:
    """Write a snapshot; do not follow a symbolic link at the path.  Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(to_json(snapshot))


def save_latest(snapshot: Snapshot, directory: Path, prefix: str, count: int) -> Path | None:
    """Write ``<prefix>-<date>.json``, keep the latest ``count`` files; return its path, or None after an error."""
    path = directory / f"{prefix}-{snapshot.now}.json"
    try:
        save(snapshot, path)
        for old in sorted(directory.glob(f"{prefix}-*.json"))[:-count]:
            old.unlink(missing_ok=True)
    except OSError as error:
        log.error("cannot save the round %s: %s", path, error.strerror)
        return None
    return path
