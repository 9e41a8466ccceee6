"""Rules about idle jobs, as oar.conf writes them (``IDLE_GPU_RULES``, ``IDLE_CPU_RULES``).

Rules are separated by ``;``. A rule says which jobs it is about, what is idle, and what is done::

    [LEAST] GPU below PERCENT % for DURATION: mail[, then end [after DURATION]]

``LEAST``: the number of GPUs (of cores, in rules about CPUs) from which on a job is meant; without it, each one.
``then end``: the job is ended if it stays idle after the mail, without a duration as long again as before it.
"""

import re
from typing import NamedTuple

from oar.lib.base.errors import BadRequest
from oar.lib.base.times import format_duration, parse_duration

#: Shorter times tell nothing: the first minutes of a job read its data.
SHORTEST, LONGEST = 600, 30 * 86400
_MOST = 10**6
_RULE = re.compile(
    r"(?ai)\s*(?:(?P<least>[0-9]{1,7})\s+)?(?P<kind>GPUs?|CPUs?|cores?)\s+below\s+(?P<percent>[0-9]{1,3}(?:\.[0-9])?)"
    r"\s*%\s+for\s+(?P<idle>[0-9][^:;,]*?(?::[0-9]{1,2}){0,2}?)\s*:\s*mail"
    r"(?P<end>\s*,\s*then\s+end(?:\s+after\s+(?P<grace>[0-9][^;,]*?))?)?\s*"
)


class IdleRule(NamedTuple):
    """What a site does about idle jobs."""

    least: int  #: GPUs or cores from which on a job is meant
    per_mille: int  #: a job that uses less is idle
    seconds: int  #: for so long before the mail
    grace: int | None  #: seconds from the mail to the end; None: the job is not ended

    def text(self, kind: str) -> str:
        """Return the rule as it is written; ``kind``: GPU or CPU."""
        least = f"{self.least} " if self.least > 1 else ""
        percent = f"{self.per_mille / 10:g}"
        end = "" if self.grace is None else f", then end after {format_duration(self.grace)}"
        return f"{least}{kind} below {percent} % for {format_duration(self.seconds)}: mail{end}"

    def sentence(self, kind: str) -> str:
        """Return what the rule does, for users and administrators; ``kind``: GPU or CPU."""
        things = "GPU" if kind == "GPU" else "core"
        with_least = f" with at least {self.least} {things}s" if self.least > 1 else ""
        duration = written_duration(self.seconds)
        subject = f"jobs{with_least} that use less than {self.per_mille / 10:g} % of their {things}s for {duration}"
        if self.grace is None:
            return f"the owners of {subject} get a mail"
        end = written_duration(self.grace)
        return f"the owners of {subject} get a mail, and the jobs are ended after another {end} without more use"


def written_duration(seconds: int) -> str:
    """Return a duration in words, without what is 0.

    >>> written_duration(7200), written_duration(90060)
    ('2 hours', '1 day 1 hour 1 minute')
    """
    minutes, rest = divmod(seconds, 60)
    parts = [(minutes // 1440, "day"), (minutes // 60 % 24, "hour"), (minutes % 60, "minute"), (rest, "second")]
    words = [f"{number} {unit}{'s' * (number != 1)}" for number, unit in parts if number]
    return " ".join(words) or "0 seconds"


def parse_rules(text: str, kind: str) -> tuple[IdleRule, ...]:
    """Return the rules of a text. ``kind``: what they are about, GPU or CPU. Raises ValueError."""
    return tuple(_parse(part, kind) for part in text.split(";")) if text.strip() else ()


def _parse(text: str, kind: str) -> IdleRule:
    match = _RULE.fullmatch(text)
    if match is None or ("GPU" in match["kind"].upper()) != (kind == "GPU"):
        raise ValueError(f'"{text.strip()}" is not a valid rule about idle {kind}s: {_form(kind)}')
    per_mille, seconds = round(float(match["percent"]) * 10), _duration(match["idle"])
    if not 0 < per_mille <= 1000:
        raise ValueError(f'"{match["percent"]} %" in "{text.strip()}" must be above 0 and at most 100')
    least = int(match["least"] or 1)
    if not 0 < least <= _MOST:
        raise ValueError(f'"{match["least"]}" in "{text.strip()}" must be from 1 to {_MOST}')
    grace = None if not match["end"] else _duration(match["grace"]) if match["grace"] else seconds
    return IdleRule(least, per_mille, seconds, grace)


def _form(kind: str) -> str:
    return f'write a rule such as "8 {kind} below 5 % for 2 h: mail, then end after 1 h", and separate rules by ;'


def _duration(text: str) -> int:
    try:
        seconds = parse_duration(re.sub(r"\s+", "", text))
    except BadRequest as error:
        raise ValueError(str(error)) from None
    if not SHORTEST <= seconds <= LONGEST:
        raise ValueError(f'"{text.strip()}" must be from 10 min to 30 days')
    return seconds
