"""Rows of advance reservations that cannot be read: what is theirs ends, and rounds go on with everything else."""

import json

import pytest

from oar.lib.reservations import changes
from oar.lib.reservations.changes import WantedChange
from oar.lib.reservations.states import ChangeAnswer
from oar.lib.reservations.states import ReservationState as S
from tests.builders import add_resources, execute_sql
from tests.db.reservation_site import ALICE, HOUR, NOW, Site

#: What another program has written into the row of a series, and what is said of it.
SERIES = {
    "a zone that is gone": ("time_zone = 'US/Nowhere'", 'this machine has no time zone "US/Nowhere"'),
    "a zone that is a path": ("time_zone = '../../etc/passwd'", 'this machine has no time zone "../../etc/passwd"'),
    "a rule of others": ("rule = 'FREQ=YEARLY'", "FREQ cannot be YEARLY"),
    "a rule without dates": ("rule = ''", "unknown part (empty): use FREQ"),
    "a first start beyond all years": ("first_start = 9000000000000000", "it matches no date"),
    "no JSON": ("template = '{'", "cannot be read"),
    "another JSON": ("template = '[]'", "cannot be read"),
    "a template of a later version": (
        """template = replace(template, '"name":', '"nickname":')""",
        "cannot be read",
    ),
    "a number as name": ("""template = replace(template, '"name": "course"', '"name": 5')""", "cannot be read: name"),
    "a long name": (
        """template = replace(template, '"name": "course"', '"name": "' || repeat('x', 300) || '"')""",
        "cannot be stored: value too long",
    ),
    "no text": (r"""template = replace(template, '"name": "course"', '"name": "\u0000"')""", "cannot be stored"),
    "a long entry": (
        """template = replace(template, '"alice", false', '"' || repeat('x', 300) || '", false')""",
        "cannot be read: access",
    ),
    "a request of others": (
        r"""template = replace(template, '\"alternatives\"', '\"ways\"')""",
        "the request of an advance reservation cannot be read",
    ),
}
#: A request that can be read.
ONE = '{"filters": [""], "alternatives": [{"groups": [[0, [["resource_id", 1]]]], "pe": "mpi", "slots": 1}]}'
#: What another program has written into a request.
REQUESTS = (
    *("{", "[1]", '{"filters": [], "alternatives": [{"groups": [[0, []]]}]}', '"x"', '{"filters": [[]]}'),
    ONE.replace('"slots": 1', f'"slots": {2**40}'),
    ONE.replace('"mpi"', r'"\u0000"'),
    ONE.replace('[""]', r'["\u0000"]'),
)
#: What another program has written into a change.
CHANGES = (
    *("{", "[]", "5", '{"end": "soon"}', '{"access": [1], "end": 1800003600}', '{"colour": "red"}', "null"),
    f'{{"end": {10**30}}}',
    f'{{"end": {2**63 - 1}}}',
    f'{{"name": "{129 * "x"}"}}',
    r'{"account": "\u0000"}',
    '{"mail_options": "beab"}',
    '{"idle_limit": -5}',
    f'{{"access": [["{256 * "y"}", false]]}}',
    '{"access": [["alice", 7]]}',
    json.dumps({"request": ONE}),
    json.dumps({"request": ONE, "asked": {"owner": "eve"}}),
    json.dumps({"request": ONE, "asked": {"pe": 5}}),
    json.dumps({"request": ONE.replace("1]", f"{10**30}]"), "asked": {}}),
    json.dumps({"request": ONE.replace('"slots": 1', f'"slots": {2**40}'), "asked": {}}),
    json.dumps({"request": ONE.replace('"mpi"', r'"\u0000"'), "asked": {}}),
)


@pytest.fixture(autouse=True)
def resources(site: Site) -> list[int]:
    return add_resources(site.database, nodes=2, cores=2)


def execute(site: Site, statement: str, *values: object) -> None:
    execute_sql(site.database, statement, *values)


def log_of(site: Site, reservation_id: int) -> list[tuple[str, str]]:
    with site.database.begin() as tx:
        return [(row.event, row.message) for row in tx.reservation_logs.logs([reservation_id])]


@pytest.mark.parametrize("way", ["ends", "refused"])
@pytest.mark.parametrize("fault", SERIES)
def test_a_series_that_cannot_be_read_ends_and_says_why(site: Site, fault: str, way: str) -> None:
    series = site.ask_series("/resource_id=1", NOW + 60, 600, depth=1, name="course")
    alone = site.ask("/resource_id=1", NOW + 60, NOW + HOUR)
    site.round()
    first = site.occurrences(series)[0].id
    if way == "refused":
        blocker = site.ask("/resource_id=4", NOW + HOUR, NOW + 4 * HOUR)
        site.round()
        assert site.state(blocker) is S.WAITING
        site.delete(ALICE, first)
        first = site.occurrences(series)[1].id
    column, text = SERIES[fault]
    execute(site, f"UPDATE reservation_series SET {column} WHERE series_id = %s", series)
    site.round(NOW + 60)
    site.round(NOW + 660)
    assert site.state(alone) is S.RUNNING
    event, message = log_of(site, first)[-1]
    assert (event, site.series(series).ended > 0) == ("SKIPPED", True)
    assert message.startswith(f"series {series} ends: ")
    assert text in message


@pytest.mark.parametrize("request_", REQUESTS)
def test_a_request_that_cannot_be_read_is_refused_and_others_are_answered(site: Site, request_: str) -> None:
    broken, sound = (site.ask("/resource_id=1", NOW + 60, NOW + HOUR) for _ in range(2))
    execute(site, "UPDATE reservations SET request = %s WHERE reservation_id = %s", request_, broken)
    site.round()
    assert (site.state(broken), site.state(sound)) == (S.REFUSED, S.WAITING)
    assert site.get(broken).message == "its request cannot be evaluated"


@pytest.mark.parametrize("request_", REQUESTS)
def test_a_granted_one_whose_request_cannot_be_read_any_more_goes_on(site: Site, request_: str) -> None:
    broken = site.ask("/resource_id=1", NOW + 60, NOW + HOUR)
    site.round()
    execute(site, "UPDATE reservations SET request = %s, revision = revision + 1", request_)
    execute(site, "DELETE FROM reservation_revisions")
    site.scheduler._forget()
    site.round(NOW + 60)
    assert site.state(broken) is S.RUNNING
    execute(site, "UPDATE jobs SET state = 'Terminated' WHERE job_id = %s", site.get(broken).frame_id)
    site.round(NOW + 70)
    assert site.state(broken) is S.RUNNING
    site.round(NOW + HOUR)
    assert site.get(broken).ended == NOW + HOUR


@pytest.mark.parametrize("number", [-5, 7])
def test_a_granted_one_that_has_no_such_alternative_goes_on(site: Site, number: int) -> None:
    broken = site.ask("/resource_id=1", NOW + 60, NOW + HOUR)
    site.round()
    execute(site, "UPDATE reservations SET alternative = %s, revision = revision + 1", number)
    site.round(NOW + 60)
    assert site.state(broken) is S.RUNNING


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_cannot_be_read_is_refused_and_others_are_answered(site: Site, change: str) -> None:
    broken, sound = (site.ask("/resource_id=1", NOW + 60, NOW + HOUR) for _ in range(2))
    site.round()
    with site.database.begin() as tx:
        wish = WantedChange(end=NOW + 2 * HOUR)
        asked = [
            changes.request_change(tx, ALICE, each, wish, patience=60)
            for each in tx.reservations.select([broken, sound])
        ]
        tx.execute("UPDATE reservation_changes SET change = %s WHERE change_id = %s", (change, asked[0]))
    site.round()
    with site.database.begin() as tx:
        answers = [tx.reservations.find_change(each) for each in asked]
    assert [each and each.answer for each in answers] == [ChangeAnswer.REFUSED, ChangeAnswer.GRANTED]
    assert answers[0]
    assert answers[0].message == "what it asks for cannot be read"
