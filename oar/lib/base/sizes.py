"""Sizes of memory, in MiB, as users write them and as messages show them."""

import re

from oar.lib.base.errors import BadRequest

#: Said of a text that is no size.
SIZE_FORMS = "a number with K, M, G or T, as in 500M or 8G (1G is 1024M)"
_SIZE = re.compile(r"([0-9]{1,13}(?:\.[0-9]{1,6})?)\s*([KMGT])(?:iB)?\Z", re.ASCII | re.IGNORECASE)
_KIB = {"K": 1, "M": 1 << 10, "G": 1 << 20, "T": 1 << 30}
#: 1 EiB: more than any node has.
LARGEST_MIB = 1 << 40


def parse_memory(text: str) -> int:
    """Return the MiB of a size, rounded up.  Raises BadRequest.

    >>> parse_memory("8G"), parse_memory("1.5GiB"), parse_memory("100K")
    (8192, 1536, 1)
    """
    match = _SIZE.match(text.strip())
    if not match:
        raise BadRequest(f'"{text.strip()[:40]}" is not a size of memory: write {SIZE_FORMS}')
    whole, _, digits = match[1].partition(".")
    units, parts = int(whole + digits) * _KIB[match[2].upper()], 10 ** len(digits) * 1024
    mib: int = -(-units // parts)
    if not 0 < mib <= LARGEST_MIB:
        raise BadRequest(f'"{text.strip()[:40]}" is not a size of memory that a node can have')
    return mib


def mib_of(value: object) -> int:
    """Return a value of MEMORY_PROPERTY; 0 if it is none."""
    text = str(value or "").strip()
    return int(text) if text.isascii() and text.isdecimal() else 0


def write_memory(mib: int) -> str:
    """Return a size as users write it.

    >>> write_memory(8192), write_memory(1536)
    ('8G', '1536M')
    """
    for unit, size in (("T", 1 << 20), ("G", 1 << 10)):
        if mib and mib % size == 0:
            return f"{mib // size}{unit}"
    return f"{mib}M"


def format_memory(mib: int) -> str:
    """Return a size for messages, at most three digits.

    >>> format_memory(8192), format_memory(1500), format_memory(0)
    ('8 GiB', '1.46 GiB', '0 MiB')
    """
    for unit, size in (("TiB", 1 << 20), ("GiB", 1 << 10)):
        if mib >= size:
            return f"{mib / size:.3g} {unit}" if mib < 1000 * size else f"{round(mib / size)} {unit}"
    return f"{mib} MiB"
