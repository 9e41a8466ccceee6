"""Quotas: the rules that limit what jobs may use at a time, and when they apply."""

from dataclasses import dataclass

from oar.lib.base.times import FOREVER


@dataclass(frozen=True, slots=True)
class QuotaRule:
    """Limits of what a set of jobs may use at a time; -1 = no limit (docs/design/planner.rst, "Quotas").

    Queue, project, type and user select the jobs.  ``*``: one limit for all together.  ``/``: one limit for each queue,
    project or user separately.  Otherwise: a name.
    """

    queue: str
    project: str
    type: str
    user: str
    resources: int = -1
    jobs: int = -1
    seconds: int = -1  #: resource seconds from now to the ends of the jobs


@dataclass(frozen=True, slots=True)
class QuotaPeriod:
    """The rules that apply from a date until the next period begins."""

    begin: int
    rules: int  #: index in ``Quotas.rules``


@dataclass(frozen=True, slots=True)
class Quotas:
    """The quota rules and the periods in which they apply.

    Periods are stored as dates, so a plan does not depend on the time zone.
    """

    rules: tuple[tuple[QuotaRule, ...], ...]
    periods: tuple[QuotaPeriod, ...]  #: in order of time; the first begins at or before ``Snapshot.now``
    latest_start: int = FOREVER  #: no job is planned to start later: which rules are in force then is not known
