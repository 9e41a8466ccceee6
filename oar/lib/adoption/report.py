"""The report for the administrator when the database of an older OAR is adopted."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from oar.lib.adoption.rules import AdoptedRule, Fate, title


class TableCount(NamedTuple):
    """The number of rows in a table of the old database, and how many are copied."""

    table: str
    there: int
    taken: int
    why_not: str = ""  #: what the others are


class AdoptedQueue(NamedTuple):
    """A queue in the new database."""

    name: str
    priority: int
    policy: str
    state: str
    former_policy: str = ""  #: as the old database has it
    is_known: bool = True  #: the policy is one of this scheduler


class AdoptionReport(NamedTuple):
    """What is adopted and what is not."""

    origin: str  #: the old database
    version: str
    counts: Sequence[TableCount]
    properties: Sequence[str]  #: columns that are added to the resources
    queues: Sequence[AdoptedQueue]
    new_queues: Sequence[str]  #: queues that the old database does not have
    rules: Sequence[AdoptedRule]
    lost: Sequence[str]  #: tables and columns that have no place here
    live: str = ""  #: why it cannot be done now, '' if it can


_FATES = {
    Fate.SHIPPED: "the standard rule {name}",
    Fate.TRANSLATED: "the standard rule {name}, with the changes of the site",
    Fate.PYTHON: "Python, kept as it is",
    Fate.KEPT: "kept as a text, disabled",
    Fate.ADDED: "added: {name}, which the old database does not have",
}


def lines(report: AdoptionReport) -> Iterator[str]:
    yield f"From {report.origin}, the schema of OAR {report.version}:"
    yield ""
    yield f"{'table':30} {'there':>12} {'taken':>12}"
    for count in report.counts:
        reason = f"  {count.why_not}" if count.there != count.taken else ""
        yield f"{count.table:30} {count.there:12} {count.taken:12}{reason}"
    yield from _section("Properties of resources", report.properties)
    queues = [
        f"{queue.name}: priority {queue.priority}, {queue.policy or 'kamelot'}, {queue.state}"
        for queue in report.queues
    ]
    yield from _section("Queues", [*queues, *(f"{name}: new here" for name in report.new_queues)])
    yield from _section("Admission rules", [_rule(adopted) for adopted in report.rules])
    yield from _section("Not migrated: this release has no place for it", report.lost)
    yield from _section("To decide", list(_decisions(report)))


def _section(heading: str, entries: Sequence[str]) -> Iterator[str]:
    if entries:
        yield ""
        yield f"{heading}:"
        yield from (f"  {entry}" for entry in entries)


def _rule(adopted: AdoptedRule) -> str:
    state = "" if adopted.rule.enabled or adopted.fate is Fate.KEPT else ", disabled"
    adoption = _FATES[adopted.fate].format(name=adopted.name)
    return f"{adopted.rule.id}: {adoption}{state}" + (
        f" ({title(adopted.rule.text)})" if adopted.fate in (Fate.KEPT, Fate.PYTHON) else ""
    )


def _decisions(report: AdoptionReport) -> Iterator[str]:
    for queue in report.queues:
        if not queue.is_known:
            yield (
                f"The queue {queue.name} has the policy {queue.former_policy}, which this scheduler does not have: the"
                f" queue is not active. Choose one (oarqueue --change {queue.name},{queue.priority},kamelot), then"
                f" enable the queue (oarqueue -e {queue.name})."
            )
    for entry in report.rules:
        if entry.fate is Fate.KEPT and entry.was_enabled:
            yield (
                f"Rule {entry.rule.id} is Perl, and none of the standard ones: write it anew in Python"
                f' (oaradmissionrules -m {entry.rule.id}; docs/adoption.rst, "Rules in Perl"), or remove it'
                f" (oaradmissionrules -d {entry.rule.id})."
            )
        elif entry.fate is Fate.PYTHON and entry.rule.enabled:
            yield f"Rule {entry.rule.id} is Python of the site: try it (oaradmissionrules --test -- -l nodes=1 date)."
    deleted = [entry for entry in report.rules if entry.fate is Fate.ADDED and entry.was_enabled > entry.rule.enabled]
    if deleted:
        named = ", ".join(f"{entry.rule.id} ({entry.name})" for entry in deleted)
        yield (
            f"The old database does not have the standard rules {named}: they are disabled. Enable those that the site"
            f" needs (oaradmissionrules -m {deleted[0].rule.id} -Y)."
        )
    if report.live:
        yield report.live
