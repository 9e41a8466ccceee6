"""Job types that say less than their user thinks: dates that are none or are over, types without the one they need.

The admission rules decide which types there are; this tells what they leave.
"""

from collections.abc import Iterable, Iterator

from oar.lib.errors import BadRequest
from oar.lib.request import JobTypes
from oar.lib.times import parse_date

#: Types whose value is a date.
DATED = ("postpone", "deadline", "expire")
_EXCLUDE_TIMESHARING = ("container", "placeholder")


def check_dates(types: Iterable[str]) -> None:
    """Refuse a date that no calendar has.  Raises BadRequest."""
    for each in JobTypes(types):
        if each.name in DATED:
            try:
                parse_date(each.value or "")
            except BadRequest as error:
                raise BadRequest(f"the type {each.name} needs a date: {error}") from None


def warnings(
    types: Iterable[str], walltime: int, now: int, *, is_reservation: bool, has_command: bool
) -> Iterator[str]:
    """Tell which types do nothing, or end the job at once; ``walltime``: the shortest one of the job."""
    asked = JobTypes(types)
    if "noop" in asked and has_command:
        yield "a noop job runs nothing: its command is ignored."
    yield from _date_warnings(asked, walltime, now)
    if "ar" in asked and not is_reservation:
        yield "the type ar=hard is for reservations (-r): it has no effect."
    if "container_users" in asked and "container" not in asked:
        yield "the type container_users is for containers (-t container): it has no effect."
    for other in _EXCLUDE_TIMESHARING:
        if "timesharing" in asked and other in asked:
            yield f"the type timesharing has no effect beside {other}."


def _date_warnings(asked: JobTypes, walltime: int, now: int) -> Iterator[str]:
    for each in asked:
        if each.name not in DATED:
            continue
        date, shown = parse_date(each.value or ""), f"{each.name}={each.value}"
        if each.name == "postpone" and date <= now:
            yield f"the date of the type {shown} is over: it has no effect."
        elif each.name == "expire" and date <= now:
            yield f"the date of the type {shown} is over: the job will go to Error."
        elif each.name == "deadline" and date < now + walltime:
            yield f"the job cannot end before the date of the type {shown}: it will go to Error."
