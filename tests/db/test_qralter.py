"""qralter: attributes at once, windows by the scheduler; a refused change changes nothing."""

import json
import os
import signal
from collections.abc import Sequence
from typing import Any

import pytest

from oar.cli import qrsub
from oar.cli.common.command import CommandResult, invoke
from oar.lib.access.records import User
from oar.lib.base.grid_engine_times import write_date
from oar.lib.bus.messages import Effect
from oar.lib.jobs.states import JobState
from oar.lib.reservations import change_requests
from oar.lib.reservations.change_requests import OtherResources
from oar.lib.reservations.states import ChangeAnswer
from oar.lib.runtime import Runtime
from tests.builders import add_resources
from tests.db.reservation_site import ALICE, BOB, HOUR, NOW, Site, Typed
from tests.frontend import add_rules
from tests.plain import without_way_out

ROOT = User("root", 0)


@pytest.fixture
def number(site: Site) -> int:
    """The number of a reservation of alice's, tomorrow."""
    add_resources(site.database, nodes=1, cores=2)
    reservation_id = site.ask("/resource_id=2", NOW + 100, NOW + HOUR)
    site.round()
    return site.get(reservation_id).number


def test_a_window_is_moved_and_the_frame_follows(site: Site, alter: Typed, number: int) -> None:
    result = alter("-a", "+200", "-d", "600", str(number))
    window = f"now {write_date(NOW + 200)} to {write_date(NOW + 800)}"
    assert result == CommandResult(0, f"Your reservation {number} has been altered\n{window}\n", "")
    with site.database.begin() as tx:
        reservation = tx.reservations.by_numbers([number])[number]
        frame = tx.jobs.get(reservation.frame_id)
        (alternative,) = tx.new_jobs.moldables_of_jobs([frame.id])[frame.id]
    assert (reservation.start, reservation.end, reservation.revision) == (NOW + 200, NOW + 800, 2)
    assert (frame.start_time, alternative.walltime) == (NOW + 200, 600)
    site.round(NOW + 200)
    assert site.job(reservation.frame_id) is JobState.RUNNING
    site.round(NOW + 800)
    assert site.job(reservation.frame_id) is JobState.TERMINATED


def test_three_values_of_a_new_window_must_agree(alter: Typed, number: int) -> None:
    dates = ("-a", "+300", "-e", "+900")
    assert alter(*dates, "-d", "601", str(number)) == CommandResult(
        1, "", "difference between end and start time does not correspond to duration\n"
    )
    assert alter(*dates, "-d", "600", str(number)).exit == 0


@pytest.mark.parametrize("option", ["-p", "-N", "-l"])
def test_a_change_is_as_long_as_a_request_at_most(site: Site, alter: Typed, number: int, option: str) -> None:
    assert alter(option, "x" * 65537, str(number)) == CommandResult(
        1, "", "denied: the request is longer than 65536 characters\n"
    )


def test_now_means_the_date_of_the_answer(site: Site, qralter_alone: Typed, number: int) -> None:
    """The round comes seconds later: what was asked for then is no date of the past."""

    def answer_later(effects: Sequence[Effect]) -> None:
        site.database.deliver = None
        with site.database.begin() as tx:
            date = tx.now + 3
        site.round(date)

    site.database.deliver = answer_later
    begun = qralter_alone("-a", "now", str(number))
    assert begun.out.splitlines()[:2] == [
        f"Your reservation {number} has been altered",
        f"now {write_date(NOW + 3)} to {write_date(NOW + HOUR - 100)}",
    ]
    site.round()
    assert site.get(number).state == "r"
    site.go_to(NOW + 60)
    site.database.deliver = answer_later
    assert qralter_alone("-e", "now", str(number)).exit == 0
    assert (site.get(number).end, site.get(number).state) == (NOW + 63, "x")


def test_attributes_are_changed_at_once(site: Site, alter: Typed, number: int) -> None:
    result = alter("-N", "night", "-A", "acct", "-he", "yes", "-m", "ab", "-replace", "no", "-idle", "5m", str(number))
    assert result.out == f"Your reservation {number} has been altered\n"
    with site.database.begin() as tx:
        changed = tx.reservations.by_numbers([number])[number]
        revisions = tx.reservation_logs.revisions(changed.id)
    assert (changed.name, changed.account, changed.is_hard, changed.mail_options) == ("night", "acct", True, "ab")
    assert (changed.replaces_lost, changed.idle_limit) == (False, 300)
    assert [each.name for each in revisions] == ["", "night"]


def test_the_log_tells_what_was_changed_and_no_value_that_only_the_owner_sees(
    site: Site, alter: Typed, number: int
) -> None:
    alter("-N", "night", "-A", "secret", "-u", "root", "-he", "yes", str(number))
    alter("-e", "+900", "-M", "root@secret.org", str(number))
    with site.database.begin() as tx:
        reservation_id = tx.reservations.by_numbers([number])[number].id
        told = [row.message for row in tx.reservation_logs.logs([reservation_id]) if row.event == "ALTERED"]
    assert told == [
        "name night, error_handling hard, account, acl_list",
        f"end {write_date(NOW + 900)}, mail_list",
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-N", "x", "999"], 'denied: advance_reservation "999" does not exist\n'),
        (["-N", "x", "none"], 'denied: advance_reservation "none" does not exist\n'),
        (["-N", "x", "{}", "bob"], 'denied: "bob" is not allowed to alter advance_reservation {}\n'),
        (["-N", "1bad", "{}"], 'denied: "1bad" is not a valid object name (cannot start with a digit)\n'),
        (["-e", "x", "{}"], 'qralter: Wrong date/time format "x" specified to -e option\n'),
        (["-e", "+4000d", "{}"], "the reservation would end more than 10 years from now\n"),
        (["-d", "1000000000", "{}"], "the reservation would end more than 10 years from now\n"),
        (["-u", "nosuch", "{}"], "error: nosuch is not known as a user\n"),
        (["-d", "600"], "qralter: no advance reservation is given\n"),
        (["-m", "", "{}"], 'qralter: Wrong mail options list format "" specified to -m option\n'),
        (["-q", "", "{}"], 'qralter: -q "" has no value\n'),
        (["-l", "", "{}"], 'denied: -l "" has no value\n'),
    ],
)
def test_rejected_changes_change_nothing(
    site: Site, alter: Typed, number: int, arguments: list[str], said: str
) -> None:
    with site.database.begin() as tx:
        before = tx.reservations.by_numbers([number])
    user = BOB if arguments[-1] == "bob" else ALICE
    given = [word.format(number) for word in arguments if word != "bob"]
    result = alter(*given, user=user)
    assert (result.exit, result.out, without_way_out(result.err)) == (1, "", said.format(number))
    with site.database.begin() as tx:
        assert tx.reservations.by_numbers([number]) == before


def test_one_change_at_a_time(site: Site, alter: Typed, number: int) -> None:
    with site.database.begin() as tx:
        reservation_id = tx.reservations.by_numbers([number])[number].id
        tx.reservations.request_change(reservation_id, "oar", "{}", 0)
    assert alter("-e", "+900", str(number)).err == f"denied: a change of advance_reservation {number} is pending\n"


def test_an_option_that_took_the_number_is_named(site: Site, alter: Typed, number: int) -> None:
    hint = f"-u used {number} as its value: is a variable empty?  write -u VALUE {number}"
    assert alter("-u", str(number)).err == f"qralter: no advance reservation is given\n  {hint}\n"


# -- other resources --------------------------------------------------------------------------------------------------


def test_a_reservation_gets_more_and_fewer_resources_and_keeps_what_it_has(site: Site, alter: Typed) -> None:
    add_resources(site.database, nodes=3, cores=2)
    other = site.ask("/resource_id=1", NOW + 100, NOW + HOUR)
    reservation = site.ask("/resource_id=2", NOW + 100, NOW + HOUR)
    site.round()
    number, had = site.get(reservation).number, site.get(reservation).resources
    window = f"now {write_date(NOW + 100)} to {write_date(NOW + HOUR)}"
    more = alter("-l", "/resource_id=4", str(number))
    granted = "granted_slots:              default@node-1=1,default@node-2=2,default@node-3=1"
    assert more == CommandResult(0, f"Your reservation {number} has been altered\n{window}\n{granted}\n", "")
    got = site.get(reservation)
    assert len(got.resources) == 4
    assert set(had) < set(got.resources)
    assert not set(site.get(other).resources) & set(got.resources)
    assert alter("-l", "/resource_id=1", str(number)).exit == 0
    assert site.get(reservation).resources == had[:1]
    assert _frame_asks_for(site, reservation) == [1]
    site.round(NOW + 100)
    assert alter("-alloc", "$fill_up", "3", str(number)).exit == 0
    grown = site.get(reservation)
    assert (len(grown.resources), grown.granted_slots, grown.pe, grown.pe_range) == (3, 3, "$fill_up", "3")
    assert set(_held(site, grown.frame_id)) == set(grown.resources)


def test_rounds_do_not_wait_for_the_rules_of_the_site(
    site: Site, alter: Typed, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    admit, unlocked = change_requests.other_resources, list[int]()

    def admit_beside_a_round(*arguments: Any, **names: Any) -> OtherResources:
        with site.database.begin() as tx:
            unlocked.extend(tx.column("SELECT reservation_id FROM reservations FOR UPDATE NOWAIT"))
        return admit(*arguments, **names)

    monkeypatch.setattr(change_requests, "other_resources", admit_beside_a_round)
    add_rules(site.database)
    assert alter("-l", "/resource_id=1", str(number)).exit == 0
    assert unlocked == [number]


def test_a_condition_narrows_what_a_reservation_has(site: Site, alter: Typed, number: int) -> None:
    added = add_resources(site.database, nodes=1, cores=2)
    with site.database.snapshot() as tx:
        reservation_id = tx.reservations.by_numbers([number])[number].id
    assert alter("-p", f"resource_id >= {added[0]}", str(number)).exit == 0
    assert list(site.get(reservation_id).resources) == added
    refused = alter("-q", "nosuch", str(number)).err
    assert without_way_out(refused) == 'Job was rejected because job requests unknown queue "nosuch"\n'


def test_answers_are_one_document(site: Site, alter: Typed, number: int) -> None:
    site.ask("/resource_id=1", NOW + HOUR, NOW + 2 * HOUR)
    site.round()
    done = alter("-N", "night", str(number), "-J")
    altered = {"ok": True, "message": f"Your reservation {number} has been altered", "reason": None, "proposal": None}
    assert (done.exit, done.err, json.loads(done.out)) == (0, "", {str(number): altered})
    refused = alter("-a", "+200", "-d", "7000", str(number), "none", "-J")
    document = json.loads(refused.out)
    lines = refused.err.splitlines()
    assert (refused.exit, list(document)) == (1, [str(number), "none"])
    assert document[str(number)]["message"].splitlines() == lines[:3]
    assert document[str(number)]["reason"] == lines[1].strip()
    assert document[str(number)]["proposal"] == NOW + 2 * HOUR
    assert document["none"]["message"] == 'denied: advance_reservation "none" does not exist'


def test_options_that_are_not_given_stay(site: Site, alter: Typed, runtime: Runtime) -> None:
    add_resources(site.database, nodes=4, cores=2)
    words = ("-a", "+1h", "-d", "60", "-h", "node-2,node-3", "-p", "cpuset = '1'\nOR cpuset = '0'", "-pe", "mpi", "1")
    number = int(invoke(qrsub.main, [*words, "-terse"], runtime=runtime, user=ROOT).out)

    def asked() -> tuple[set[str], int, str, str, str]:
        with site.database.begin() as tx:
            row = tx.reservations.by_numbers([number])[number]
            hosts = {each.network_address for each in tx.resources.select(row.resources)}
        return hosts, len(row.resources), row.host_list, row.pe, row.properties

    condition = "cpuset = '1' OR cpuset = '0'"
    assert asked() == ({"node-2"}, 1, "node-2,node-3", "mpi", condition)
    assert alter("-pe", "slots", "4", str(number), user=ROOT).exit == 0
    assert asked() == ({"node-2", "node-3"}, 4, "node-2,node-3", "slots", condition)
    assert alter("-l", "nodes=1", str(number), user=ROOT).exit == 0
    hosts, slots, *told = asked()
    assert (hosts <= {"node-2", "node-3"}, slots, *told) == (True, 2, "node-2,node-3", "", condition)
    assert alter("-l", "h=node-4", str(number), user=ROOT).exit == 0
    assert asked() == ({"node-4"}, 1, "", "", condition)
    assert alter("-p", "cpuset = '1'", str(number), user=ROOT).exit == 0
    assert asked()[4] == f"({condition}) AND (cpuset = '1')"


def test_a_verification_prints_the_result_and_changes_nothing(site: Site, alter: Typed, number: int) -> None:
    add_resources(site.database, nodes=1, cores=1)
    with site.database.snapshot() as tx:
        before = tx.reservations.by_numbers([number])
    large = site.submit_inside(before[number].id, cores=2)
    window = f"then {write_date(NOW + 100)} to {write_date(NOW + 900)}"
    assert alter("-w", "v", "-l", "/resource_id=1", "-e", "+900", "-N", "x", str(number)) == CommandResult(
        0,
        f"verification: reservation {number} can be altered\n{window}\n"
        f"job {large} would be deleted: it would not fit any more\n",
        "",
    )
    site.ask("/resource_id=1", NOW + 200, NOW + 300)
    site.round()
    refused = alter("-w", "v", "-l", "/resource_id=3", str(number))
    assert (refused.exit, refused.err.splitlines()[0]) == (1, f"denied: Reservation {number} can't be altered")
    assert without_way_out(alter("-w", "x", str(number)).err) == 'qralter: invalid option argument "-w x"\n'
    with site.database.snapshot() as tx:
        assert tx.reservations.by_numbers([number]) == before
    assert _answers(site) == []


def _held(site: Site, job: int) -> list[int]:
    """The resources that a job holds now."""
    with site.database.snapshot() as tx:
        return [row.id for row in tx.jobs.assigned([job], current=True)[job]]


def _frame_asks_for(site: Site, reservation_id: int) -> list[int]:
    with site.database.snapshot() as tx:
        return tx.column(
            "SELECT res_job_value FROM moldable_job_descriptions JOIN job_resource_groups"
            " ON res_group_moldable_id = moldable_id JOIN job_resource_descriptions ON res_job_group_id = res_group_id"
            f" WHERE moldable_job_id = {site.get(reservation_id).frame_id}"
        )


# -- no answer --------------------------------------------------------------------------------------------------------


def test_a_change_without_an_answer_is_withdrawn(site: Site, qralter_alone: Typed, number: int) -> None:
    result = qralter_alone("-e", "+900", str(number))
    assert result == CommandResult(26, "", "no answer from the scheduler in 1 s, the change was withdrawn\n")
    assert _answers(site) == ["dropped"]
    site.round()
    assert site.get(number).end == NOW + HOUR


@pytest.mark.parametrize("departure", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_withdraws_the_change_and_skips_the_others(
    site: Site, qralter_alone: Typed, number: int, departure: signal.Signals
) -> None:
    def leave(effects: Sequence[Effect]) -> None:
        if _answers(site) == [str(ChangeAnswer.NONE)]:
            os.kill(os.getpid(), departure)

    site.database.deliver = leave
    assert qralter_alone("-e", "+900", str(number), "999") == CommandResult(26, "", "the change was withdrawn\n")
    assert _answers(site) == ["dropped"]


def test_an_answer_before_the_signal_is_printed(site: Site, qralter_alone: Typed, number: int) -> None:
    def answer_and_leave(effects: Sequence[Effect]) -> None:
        site.answer()
        os.kill(os.getpid(), signal.SIGTERM)

    site.database.deliver = answer_and_leave
    result = qralter_alone("-e", "+900", str(number), "8", "9")
    window = f"now {write_date(NOW + 100)} to {write_date(NOW + 900)}"
    assert result == CommandResult(26, f"Your reservation {number} has been altered\n{window}\n", "not changed: 8, 9\n")


def _answers(site: Site) -> list[str]:
    with site.database.snapshot() as tx:
        return tx.column("SELECT answer FROM reservation_changes ORDER BY change_id")
