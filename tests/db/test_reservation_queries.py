"""Rounds ask the database about all advance reservations at once, never about one after the other."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from oar.lib.db.statements import Statements
from oar.lib.reservations.states import ReservationState as S
from tests.builders import add_resources
from tests.db.reservation_site import HOUR, NOW, Site


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Give the statements that are sent meanwhile."""
    statements: list[str] = []
    with monkeypatch.context() as patch:
        for name in ("rows", "execute"):
            send = getattr(Statements, name)

            def sent(self: Statements, sql: str, *arguments: Any, send: Any = send, **named: Any) -> Any:
                statements.append(sql)
                return send(self, sql, *arguments, **named)

            patch.setattr(Statements, name, sent)
        yield statements


def quiet_round(site: Site, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return how many statements a round takes in which nothing has changed."""
    site.round()
    with counted(monkeypatch) as statements:
        site.round()
    return len(statements)


@pytest.mark.parametrize("start", [NOW + 1000, NOW])
def test_rounds_read_all_reservations_with_a_fixed_number_of_statements(
    site: Site, monkeypatch: pytest.MonkeyPatch, start: int
) -> None:
    add_resources(site.database, nodes=5, cores=4)
    first = site.ask("/resource_id=1", start, NOW + HOUR, idle_limit=HOUR)
    before = quiet_round(site, monkeypatch)
    assert site.state(first) in (S.WAITING, S.RUNNING)
    others = [site.ask("/resource_id=1", start, NOW + HOUR, idle_limit=HOUR) for _ in range(19)]
    for each in (first, *others):
        site.submit_inside(each)
    site.round()
    assert {site.state(each) for each in others} == {site.state(first)}
    assert quiet_round(site, monkeypatch) <= before + 2  # jobs wait now: their types and requests are read


def test_those_that_end_together_leave_with_few_statements_for_each(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_resources(site.database, nodes=5, cores=4)

    def statements_of_end(count: int, end: int) -> int:
        ended = [site.ask("/resource_id=1", end - HOUR, end) for _ in range(count)]
        site.round()
        site.round(end - HOUR)
        site.round()
        assert {site.state(each) for each in ended} == {S.RUNNING}
        site.go_to(end)
        with counted(monkeypatch) as statements:
            site.round()
        assert {(site.state(each), site.get(each).ended) for each in ended} == {(S.EXITED, end)}
        assert [site.events(each)[-1] for each in ended] == ["TERMINATED"] * count
        return len(statements)

    few = statements_of_end(2, NOW + HOUR)
    many = statements_of_end(20, NOW + 3 * HOUR)
    assert many - few <= 18 * 3  # the move, its line, and its date


def test_the_jobs_of_those_that_end_together_are_asked_to_end_in_one_step(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_resources(site.database, nodes=5, cores=4)

    def statements_of_end(count: int, end: int) -> int:
        ended = [site.ask("/resource_id=1", end - HOUR, end) for _ in range(count)]
        site.round()
        jobs = [site.submit_inside(each) for each in ended for _ in range(2)]
        site.round(end - HOUR)
        site.go_to(end)
        with counted(monkeypatch) as statements:
            site.round()
        assert {site.state(each) for each in ended} == {S.EXITED}
        with site.database.snapshot() as tx:
            assert tx.job_requests.jobs_to_kill(jobs) == set(jobs)
        return len(statements)

    few = statements_of_end(2, NOW + HOUR)
    many = statements_of_end(10, NOW + 3 * HOUR)
    assert many - few < 8 * 3  # the move and its line
