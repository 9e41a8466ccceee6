"""What qrdel prints and does."""

import json
import re

import pytest

from oar.cli import qrdel
from oar.cli.common.command import CommandResult, invoke
from oar.lib.access.records import User
from oar.lib.bus.messages import Ask, Effect, JobAction
from oar.lib.jobs import lifecycle
from oar.lib.jobs.states import JobState, KillState
from oar.lib.reservations.states import ReservationState as S
from oar.lib.runtime import Runtime
from oar.modules import leon
from tests.builders import add_resources
from tests.db.reservation_site import ALICE, BOB, HOUR, NOW, Site
from tests.plain import same_in_all_formats

ROOT = User("root", 0)


@pytest.fixture(autouse=True)
def resources(site: Site) -> list[int]:
    return add_resources(site.database, nodes=4, cores=2)


def delete(site: Site, *words: object, user: User = ALICE) -> CommandResult:
    """Run qrdel."""
    return invoke(qrdel.main, [str(word) for word in words], runtime=site.runtime, user=user)


def grant(site: Site, *names: str, owner: str = "alice") -> list[int]:
    """Let reservations be granted for tomorrow, each on one resource; return their ids, which are their numbers."""
    ids = [site.ask("/resource_id=1", NOW + 100, NOW + HOUR, owner=owner, name=name) for name in names]
    site.round()
    assert {site.state(number) for number in ids} == {S.WAITING}
    return ids


def begin_with_job(site: Site) -> tuple[int, int]:
    """Let a reservation begin, and a job run in it."""
    number = site.ask("/network_address=1", NOW, NOW + HOUR)
    site.round()
    job = site.submit_inside(number)
    site.round(NOW + 1)
    with site.database.begin() as tx:
        assert lifecycle.move(tx, job, JobState.LAUNCHING)
        assert lifecycle.move(tx, job, JobState.RUNNING)
    return number, job


def kill_state(site: Site, job: int) -> KillState:
    """Return how far the request to end a job is."""
    with site.database.begin() as tx:
        request = tx.job_requests.find_kill(job)
    assert request is not None
    return request.state


# -- whom the words mean ----------------------------------------------------------------------------------------------


def test_nothing_named_is_the_usage(site: Site) -> None:
    result = delete(site)
    assert (result.exit, result.err) == (1, "")
    assert result.out.startswith("Usage: qrdel")
    said = "qrdel: no advance reservation is given\n  write numbers or names after the options\n"
    assert delete(site, "-f") == CommandResult(1, "", said)


def test_a_reservation_without_jobs_is_gone(site: Site) -> None:
    (number,) = grant(site, "a")
    assert delete(site, number) == CommandResult(0, f"alice has deleted advance_reservation {number}\n", "")
    assert (site.state(number), site.get(number).ended, site.get(number).deleted_by) == (S.DELETED, NOW, "alice")
    again = f'denied: advance_reservation "{number}" does not exist\n'
    assert delete(site, number) == CommandResult(1, "", again)


def test_all_that_is_named_is_tried_in_its_order(site: Site) -> None:
    first, second = grant(site, "a", "b")
    result = delete(site, f"b,999,{first}", "<x\n>")
    deleted = f"alice has deleted advance_reservation {second}\nalice has deleted advance_reservation {first}\n"
    unknown = 'denied: advance_reservation "999" does not exist\ndenied: advance_reservation "<x\\n>" does not exist\n'
    assert result == CommandResult(1, deleted, unknown)


def test_others_do_not_delete_but_operators_and_managers_do(site: Site) -> None:
    first, second, third = grant(site, "a", "b", "c")
    denied = f'denied: "bob" is not allowed to delete advance_reservation {first}\n'
    assert delete(site, first, user=BOB) == CommandResult(1, "", denied)
    assert delete(site, "a", user=BOB) == CommandResult(1, "", denied)
    assert site.state(first) is S.WAITING
    assert delete(site, second, user=ROOT).out == f"root has deleted advance_reservation {second}\n"
    with site.database.begin() as tx:
        tx.access.add_to_userset("aroperators", ["bob"])
    assert delete(site, third, user=BOB).out == f"bob has deleted advance_reservation {third}\n"


def test_a_request_without_answer_does_not_exist(site: Site) -> None:
    number = site.ask("/resource_id=1", NOW + 100, NOW + HOUR, name="asked")
    for word in (number, "asked", "a*"):
        assert delete(site, word).err == f'denied: advance_reservation "{word}" does not exist\n'
    assert site.state(number) is S.ASKED


def test_a_pattern_means_ones_own_and_for_operators_everybodys(site: Site) -> None:
    mine = grant(site, "t1", "t2", "")
    others = grant(site, "t3", owner="bob")
    assert delete(site, "t?").out.count("has deleted") == 2
    assert delete(site, "*").out == f"alice has deleted advance_reservation {mine[2]}\n"
    assert site.state(others[0]) is S.WAITING
    assert delete(site, "*").err == 'denied: advance_reservation "*" does not exist\n'
    assert delete(site, "*", user=ROOT).out == f"root has deleted advance_reservation {others[0]}\n"


def test_a_name_that_several_have_means_ones_own(site: Site) -> None:
    (foreign,) = grant(site, "test", owner="bob")
    (own,) = grant(site, "test")
    assert delete(site, "test") == CommandResult(0, f"alice has deleted advance_reservation {own}\n", "")
    assert site.state(foreign) is S.WAITING


def test_all_of_some_users(site: Site) -> None:
    mine = grant(site, "a", "b")
    (foreign,) = grant(site, "c", owner="bob")
    for users in ("bob", "$user,bob", "*"):
        denied = 'denied: "alice" must be manager to modify all advance reservations\n'
        assert delete(site, "-u", users) == CommandResult(1, "", denied)
    assert delete(site, "-u", "$user").out == "".join(f"alice has deleted advance_reservation {n}\n" for n in mine)
    nothing = "There is no advance_reservation registered for the following users: alice\n"
    assert delete(site, "-u", "alice") == CommandResult(1, "", nothing)
    assert delete(site, "-u", "b*", user=ROOT).out == f"root has deleted advance_reservation {foreign}\n"


def test_those_of_the_list_that_belong_to_some_users(site: Site) -> None:
    first, second = grant(site, "a", "b")
    (foreign,) = grant(site, "a", owner="bob")
    result = delete(site, "-u", "alice", "a", foreign, user=ROOT)
    assert result == CommandResult(0, f"root has deleted advance_reservation {first}\n", "")
    assert [site.state(number) for number in (second, foreign)] == [S.WAITING, S.WAITING]


def test_answers_are_one_document_in_each_format(site: Site) -> None:
    (foreign,) = grant(site, "x", owner="bob")
    names = grant(site, "a", "b", "c", "d")
    told = [delete(site, number, 999, foreign, f"-{letter}") for number, letter in zip(names, "JYXD", strict=True)]
    assert {each.exit for each in told} == {1}
    documents = (re.sub(rf"\b{number}\b", "N", each.out) for each, number in zip(told, names, strict=True))
    unknown = 'denied: advance_reservation "999" does not exist'
    denied = f'denied: "alice" is not allowed to delete advance_reservation {foreign}'
    assert same_in_all_formats(*documents) == {
        "N": {"ok": True, "message": "alice has deleted advance_reservation N", "reason": None, "proposal": None},
        "999": {"ok": False, "message": unknown, "reason": None, "proposal": None},
        str(foreign): {"ok": False, "message": denied, "reason": None, "proposal": None},
    }
    assert told[0].err == f"{unknown}\n{denied}\n"
    refused = delete(site, "-u", "bob", "-J")
    whole = {"ok": False, "message": refused.err.rstrip("\n"), "reason": None, "proposal": None}
    assert (refused.exit, json.loads(refused.out)) == (1, whole)


@pytest.mark.parametrize("words", [("",), (",",), ("-u", ""), ("-series", " , "), ("12", "")])
def test_an_empty_word_is_refused_and_means_neither_all_nor_nothing(site: Site, words: tuple[str, ...]) -> None:
    (number,) = grant(site, "")
    result = delete(site, *words)
    assert (result.exit, result.out) == (1, "")
    assert "has no value\n" in result.err
    assert site.state(number) is S.WAITING


# -- jobs -------------------------------------------------------------------------------------------------------------


def test_with_jobs_it_is_registered_and_goes_with_the_last(site: Site) -> None:
    number, job = begin_with_job(site)
    text = f"alice has registered the advance_reservation {number} for deletion\n"
    assert delete(site, number) == CommandResult(0, text, "")
    assert (site.state(number), site.get(number).ended, kill_state(site, job)) == (S.DELETED, 0, KillState.LEON)
    again = f"advance_reservation {number} is already registered for deletion\n"
    assert delete(site, number) == CommandResult(0, again, "")
    with site.database.begin() as tx:
        lifecycle.move(tx, job, JobState.FINISHING)
        lifecycle.move(tx, job, JobState.ERROR)
    site.round(NOW + 2)
    assert site.get(number).ended == NOW + 2


def test_force_exterminates_its_jobs(site: Site, runtime: Runtime) -> None:
    number, job = begin_with_job(site)
    assert delete(site, "-f", number).out == f"alice has registered the advance_reservation {number} for deletion\n"
    assert kill_state(site, job) is KillState.LEON_EXTERMINATE
    sent: list[Effect] = []
    site.database.deliver = sent.extend
    leon.run(runtime)
    assert Ask(JobAction.EXTERMINATE, job) in sent
    assert site.job(job) is JobState.FINISHING


def test_force_helps_what_is_being_deleted_already(site: Site, runtime: Runtime) -> None:
    number, job = begin_with_job(site)
    waiting = site.submit_inside(number)
    delete(site, number)
    leon.run(runtime)
    assert (kill_state(site, job), site.job(waiting)) == (KillState.TIMER_ARMED, JobState.ERROR)
    assert delete(site, "-f", number).out == f"advance_reservation {number} is already registered for deletion\n"
    assert kill_state(site, job) is KillState.LEON_EXTERMINATE
