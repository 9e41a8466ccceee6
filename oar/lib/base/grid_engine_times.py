"""Print dates in the formats of Grid Engine; ``oar.lib.base.times`` parses them."""

import time

from oar.lib.base.times import parse_date


def write_date(date: int) -> str:
    """Return a date as ``12/14/2006 14:47:23``."""
    return time.strftime("%m/%d/%Y %H:%M:%S", time.localtime(date))


def write_option_date(date: int) -> str:
    """Return a date in the format of option ``-a``: ``200612141447.23``.

    Return ``@<epoch>`` for the second occurrence of a local time that occurs twice.
    """
    text = time.strftime("%Y%m%d%H%M.%S", time.localtime(date))
    return text if parse_date(text, date) == date else f"@{date}"


def write_long_date(date: int) -> str:
    """Return a date as ``Mon Nov 27 17:11:34 2006``."""
    return time.ctime(date)
