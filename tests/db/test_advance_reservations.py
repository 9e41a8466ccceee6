"""Advance reservations on the real database: asked, answered, begun, ended, deleted, by rounds with a clock."""

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any, NoReturn

import pytest

from oar.kao.facts.plan import Plan
from oar.kao.rounds.meta_sched import MetaScheduler
from oar.kao.rounds.reading.situation import Situation
from oar.lib.base.clock_watch import ClockWatch
from oar.lib.base.times import format_date
from oar.lib.bus.messages import Effect, ReservationMail
from oar.lib.config.files import Config
from oar.lib.db.transaction import Transaction
from oar.lib.jobs import lifecycle
from oar.lib.jobs.ends import cause_text
from oar.lib.jobs.explanations import explain
from oar.lib.jobs.states import JobState
from oar.lib.reservations import changes
from oar.lib.reservations import lifecycle as reservation_lifecycle
from oar.lib.reservations.changes import WantedChange
from oar.lib.reservations.deletion import Deletion
from oar.lib.reservations.errors import TooManyReservations
from oar.lib.reservations.states import ChangeAnswer, ReservationEvent
from oar.lib.reservations.states import ReservationState as S
from oar.lib.runtime import Runtime
from oar.modules import leon
from tests.builders import add_job, add_resources, execute_sql, for_no_reason
from tests.db.reservation_rows import numbers_begin_again
from tests.db.reservation_site import ALICE, BOB, HOUR, NOW, Site


def test_a_reservation_is_granted_begins_and_ends_at_its_dates(site: Site) -> None:
    ids = add_resources(site.database, nodes=2, cores=2)
    number = site.ask("/network_address=1", NOW + 100, NOW + HOUR)
    assert site.state(number) is S.ASKED
    site.round()
    granted = site.get(number)
    assert (granted.state, granted.resources) == (S.WAITING, tuple(ids[:2]))
    assert site.scheduler.next_start == NOW + 100
    site.round(NOW + 100)
    assert site.state(number) is S.RUNNING
    assert site.job(granted.frame_id) is JobState.RUNNING
    assert site.scheduler.next_start == NOW + HOUR
    site.round(NOW + HOUR)
    ended = site.get(number)
    assert (ended.state, ended.ended) == (S.EXITED, NOW + HOUR)
    assert site.job(granted.frame_id) is JobState.TERMINATED
    assert site.events(number) == ["CREATED", "START TIME REACHED", "END TIME REACHED", "TERMINATED"]


def test_a_clock_that_was_set_ahead_begins_and_ends_none_before_somebody_could_set_it_back(site: Site) -> None:
    add_resources(site.database, nodes=2, cores=2)
    site.scheduler = MetaScheduler(site.runtime, watch=ClockWatch())
    running, coming = (
        site.ask("/network_address=1", NOW + start, NOW + end) for start, end in ((0, 1000), (600, 3 * HOUR))
    )
    site.round()
    site.round()
    job = site.submit_inside(coming)
    site.round(NOW + 2 * HOUR)
    assert (site.state(running), site.state(coming), site.job(job)) == (S.RUNNING, S.WAITING, JobState.WAITING)
    assert site.scheduler.next_start is not None
    assert 590 < site.scheduler.next_start - (NOW + 2 * HOUR) <= 601  # by the clock as it is
    site.round(NOW + 60)
    assert (site.state(running), site.state(coming)) == (S.RUNNING, S.WAITING)
    assert site.events(running) == ["CREATED", "START TIME REACHED"]


def test_a_request_is_not_too_old_by_a_clock_that_was_set_ahead(site: Site) -> None:
    add_resources(site.database, nodes=2, cores=2)
    site.scheduler = MetaScheduler(site.runtime, watch=ClockWatch())
    site.round()
    number = site.ask("/network_address=1", NOW + 3 * HOUR, NOW + 4 * HOUR)
    site.round(NOW + 2 * HOUR)
    assert (site.state(number), site.get(number).message) == (S.WAITING, "")


def test_the_answer_is_written_before_the_jobs_are_planned(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    add_resources(site.database, nodes=2, cores=2)
    asked = site.ask("/resource_id=3", NOW + 100, NOW + 200)
    begun = site.ask("/resource_id=1", NOW, NOW + 300)

    def killed(*situation: Any) -> NoReturn:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(MetaScheduler, "_plan", killed)
        with pytest.raises(KeyboardInterrupt):
            site.round()
    assert (site.state(asked), site.state(begun)) == (S.WAITING, S.RUNNING)
    with site.database.begin() as tx:
        planned = "SELECT start_time FROM gantt_jobs_predictions p JOIN moldable_job_descriptions m"
        planned += " ON m.moldable_id = p.moldable_job_id WHERE m.moldable_job_id = %s"
        assert tx.column(planned, (site.get(asked).frame_id,)) == [NOW + 100]
    site.round()
    with site.database.begin() as tx:
        assert tx.column(planned, (site.get(asked).frame_id,)) == [NOW + 100]
    site.round(NOW + 200)
    assert site.events(asked)[-2:] == ["END TIME REACHED", "TERMINATED"]


def test_a_lost_node_is_an_error_that_heals(site: Site) -> None:
    ids = add_resources(site.database, nodes=2, cores=1)
    number = site.ask("/resource_id=2", NOW + 100, NOW + HOUR, is_hard=True)
    site.round()
    execute_sql(site.database, "UPDATE resources SET state = 'Absent' WHERE resource_id = %s", ids[1])
    site.round(NOW + 10)
    warned = site.get(number)
    assert (warned.state, warned.missing) == (S.WARNING, (ids[1],))
    assert warned.message == "reserved host node-2 is Absent"
    site.round(NOW + 100)
    inside = site.submit_inside(number)
    site.round(NOW + 101)
    assert (site.state(number), site.job(inside)) == (S.ERROR, JobState.WAITING)
    execute_sql(site.database, "UPDATE resources SET state = 'Alive' WHERE resource_id = %s", ids[1])
    site.round(NOW + 200)
    site.round(NOW + 200)
    assert (site.state(number), site.job(inside)) == (S.RUNNING, JobState.TO_LAUNCH)
    assert site.events(number) == [
        "CREATED",
        "RESOURCES UNSATISFIED",
        "START TIME REACHED",
        "RESOURCES SATISFIED",
    ]


def test_the_owner_deletes_and_its_jobs_go_first(site: Site) -> None:
    add_resources(site.database, nodes=1, cores=2)
    number = site.ask("/resource_id=2", NOW, NOW + HOUR)
    site.round()
    assert site.state(number) is S.RUNNING
    inside = site.submit_inside(number)
    site.round(NOW + 1)
    assert site.delete(BOB, number) is Deletion.DENIED
    assert site.delete(ALICE, number) is Deletion.REGISTERED
    assert site.delete(ALICE, number) is Deletion.ALREADY
    with site.database.begin() as tx:
        assert tx.job_requests.jobs_to_kill([inside]) == {inside}
        lifecycle.move(tx, inside, JobState.ERROR)
    site.round(NOW + 2)
    assert site.get(number).ended == NOW + 2
    assert site.delete(ALICE, number) is Deletion.UNKNOWN


def test_the_bill_tells_what_was_reserved_used_and_unusable(site: Site) -> None:
    ids = add_resources(site.database, nodes=2, cores=1)
    number = site.ask("/resource_id=2", NOW, NOW + 1000)
    site.round()
    execute_sql(site.database, "UPDATE resources SET state = 'Suspected' WHERE resource_id = %s", ids[1])
    site.round(NOW + 100)
    execute_sql(site.database, "UPDATE resources SET state = 'Alive' WHERE resource_id = %s", ids[1])
    site.round(NOW + 300)
    site.round(NOW + 1000)
    with site.database.begin() as tx:
        bill = [tuple(row[1:6]) for row in tx.reservation_logs.select_bills([number])[number]]
    assert bill == [("node-1", 1, 1000, 0, 0), ("node-2", 1, 1000, 0, 200)]


def test_the_limit_of_reservations_counts_live_ones(site: Site) -> None:
    add_resources(site.database)
    site.ask("/resource_id=1", NOW + 100, NOW + HOUR, limit=1)
    with pytest.raises(TooManyReservations, match="only 1 advance reservations are allowed per cluster"):
        site.ask("/resource_id=1", NOW + 100, NOW + HOUR, limit=1)


def test_requests_at_once_never_exceed_the_limit(site: Site) -> None:
    add_resources(site.database)

    def ask(_: int) -> bool:
        try:
            site.ask("/resource_id=1", NOW + 100, NOW + HOUR, limit=3)
        except TooManyReservations:
            return False
        return True

    with ThreadPoolExecutor(10) as pool:
        assert sum(pool.map(ask, range(20))) == 3
    with site.database.begin() as tx:
        assert tx.reservations.count() == 3


def test_numbers_begin_again_and_skip_those_of_live_reservations(site: Site) -> None:
    add_resources(site.database)
    with numbers_begin_again(site.database):
        execute_sql(site.database, "SELECT setval('reservations_reservation_id_seq', 1, false)")
        assert site.get(site.ask("/resource_id=1", NOW + 100, NOW + HOUR)).number == 1
        execute_sql(site.database, "SELECT setval('reservations_reservation_id_seq', 9999998)")
        last, after_it = (site.ask("/resource_id=1", NOW + 100, NOW + HOUR) for _ in range(2))
        assert (site.get(last).number, site.get(after_it).number) == (9999999, 2)


def test_a_frame_is_no_job_of_the_runner_and_has_no_walltime(site: Site) -> None:
    add_resources(site.database, nodes=1, cores=1)
    number = site.ask("/resource_id=1", NOW, NOW + 100)
    site.round()
    frame = site.get(number).frame_id
    site.go_to(NOW + 5000)
    with site.database.begin() as tx:
        assert tx.job_runs.in_hand(probe_before=NOW + 4000) == []
        assert tx.deadlines.time_limits() == []
        tx.execute("DELETE FROM assigned_resources")
        assert tx.invariants.without_resources() == []
    assert site.job(frame) is JobState.RUNNING


def test_the_end_of_a_frame_is_the_deletion_of_its_reservation(site: Site, runtime: Runtime) -> None:
    add_resources(site.database, nodes=1, cores=1)
    numbers = [site.ask("/resource_id=1", start, start + 100) for start in (NOW, NOW + 500)]
    site.round()
    frames = [site.get(number).frame_id for number in numbers]
    with site.database.begin() as tx:
        tx.job_requests.request_kill(for_no_reason(*frames))
    leon.run(runtime)
    assert [site.state(number) for number in numbers] == [S.DELETED, S.DELETED]
    assert [site.job(frame) for frame in frames] == [JobState.TERMINATED, JobState.ERROR]
    assert all(site.get(number).ended for number in numbers)


def test_the_end_of_a_frame_tells_what_became_of_its_reservation(site: Site) -> None:
    add_resources(site.database, nodes=1, cores=1)
    deleted, withdrawn = (site.ask("/resource_id=1", NOW + start, NOW + start + 100) for start in (500, 700))
    with site.database.begin() as tx:
        (asked,) = tx.reservations.lock([withdrawn])
        reservation_lifecycle.refuse(tx, asked, "withdrawn", event=ReservationEvent.WITHDRAWN)
    site.round()
    site.delete(ALICE, deleted)
    refused = site.ask("/resource_id=9", NOW + 500, NOW + 600)
    site.round()
    numbers = {number: site.get(number) for number in (deleted, withdrawn, refused)}
    with site.database.begin() as tx:
        ends = tx.job_runs.end_causes([each.frame_id for each in numbers.values()])
    told = {number: cause_text(ends[each.frame_id], each.frame_id) for number, each in numbers.items()}
    sentence = f"It was the frame of the advance reservation {deleted}, which was deleted by alice."
    assert told[deleted].sentence == sentence
    assert told[withdrawn].sentence.endswith(", which was withdrawn before it was answered.")
    assert (told[deleted].advice, told[withdrawn].advice) == ("", "")
    assert told[refused].sentence.startswith("The scheduler refused it: ")


def test_mails_tell_begin_error_repair_and_end(site: Site, sent: list[Effect]) -> None:
    ids = add_resources(site.database, nodes=2, cores=1)
    site.ask(
        "/resource_id=2", NOW + 10, NOW + 100, name="night", mail_options="abe", mail_list="bob@site.org", is_hard=True
    )
    site.round()

    def lose(state: str, date: int) -> list[tuple[str, tuple[str, ...]]]:
        execute_sql(site.database, "UPDATE resources SET state = %s WHERE resource_id = %s", state, ids[1])
        del sent[:]
        site.round(date)
        return [(mail.topic[:10], mail.recipients) for mail in sent if isinstance(mail, ReservationMail)]

    assert lose("Absent", NOW + 1) == []
    both, named = ("alice", "bob@site.org"), ("bob@site.org",)
    assert lose("Absent", NOW + 10) == [("[AR BEGIN]", named), ("[AR ERROR]", both)]
    assert lose("Alive", NOW + 20) == [("[AR VALID]", both)]
    assert lose("Suspected", NOW + 30) == [("[AR ERROR]", both)]
    (mail,) = [mail for mail in sent if isinstance(mail, ReservationMail)]
    number = mail.topic.partition(": ")[2].partition(" ")[0]
    assert mail.text.startswith(
        f"Advance reservation {number} (night) of alice is in error.\n"
        "reserved host node-2 is Suspected\n"
        "No job of it starts until it is satisfied again (hard error handling).\n"
    )
    shown = [datetime.fromtimestamp(NOW + seconds).astimezone().isoformat(" ") for seconds in (10, 100)]
    start, end = (f"{date[:19]} {date[19:]}" for date in shown)
    assert mail.text.splitlines()[-3:-1] == [f"Start:     {start}", f"End:       {end}"]
    assert lose("Alive", NOW + 100) == [("[AR END]: ", named)]


def test_lost_resources_are_replaced_under_the_jobs_that_go_on(site: Site) -> None:
    ids = add_resources(site.database, nodes=3, cores=1)
    number = site.ask("/resource_id=2", NOW, NOW + HOUR, replaces_lost=True)
    site.round()
    inside = site.submit_inside(number)
    site.round(NOW + 1)
    assert site.job(inside) is JobState.TO_LAUNCH
    execute_sql(site.database, "UPDATE resources SET state = 'Suspected' WHERE resource_id = %s", ids[1])
    site.round(NOW + 10)
    assert (site.state(number), site.get(number).missing) == (S.ERROR, (ids[1],))
    assert site.scheduler.next_start == NOW + 70
    site.round(NOW + 70)
    site.round(NOW + 70)
    replaced = site.get(number)
    assert (replaced.state, replaced.resources, replaced.revision) == (S.RUNNING, (ids[0], ids[2]), 2)
    with site.database.begin() as tx:
        held = tx.jobs.assigned([replaced.frame_id], current=True)[replaced.frame_id]
        assert [each.id for each in held] == [ids[0], ids[2]]
        revisions = tx.reservation_logs.revisions(number)
    assert [each.granted_resources for each in revisions] == [
        "default@node-1=1,default@node-2=1",
        "default@node-1=1,default@node-3=1",
    ]
    assert site.events(number)[-3:] == ["RESOURCES UNSATISFIED", "RESOURCES REPLACED", "RESOURCES SATISFIED"]


def test_a_frame_says_whose_it_is_and_what_it_waits_for(site: Site) -> None:
    add_resources(site.database, nodes=1)
    number = site.ask("/resource_id=1", NOW + HOUR, NOW + 2 * HOUR)
    frame = f"It is the frame of the advance reservation {number}"
    for date, told in ((NOW, f"{frame}, which begins on {format_date(NOW + HOUR)}"), (NOW + HOUR, frame)):
        site.round(date)
        with site.database.snapshot() as tx:
            (explained,) = explain(tx, [tx.jobs.get(site.get(number).frame_id)], Config())
        assert explained.sentence == f"{told}: see qrstat -ar {number}."


def test_a_frame_is_no_job_that_starts_before_others(site: Site) -> None:
    add_resources(site.database, nodes=1, cores=1)
    site.ask("/resource_id=1", NOW + 100, NOW + HOUR)
    site.round()
    first, second = (add_job(site.database, walltime=HOUR) for _ in range(2))
    site.round()
    with site.database.snapshot() as tx:
        told = explain(tx, [tx.jobs.get(first), tx.jobs.get(second)], Config())
    assert [each.start.before for each in told if each.start] == [0, 1]


def test_only_jobs_of_its_reservation_may_go_before_a_job_inside(site: Site) -> None:
    add_resources(site.database, nodes=1, cores=1)
    number = site.ask("/resource_id=1", NOW, NOW + HOUR)
    site.round()
    _, second = site.submit_inside(number), site.submit_inside(number)
    site.round()
    with site.database.begin() as tx:
        (told,) = explain(tx, [tx.jobs.get(second)], Config())
    assert told.start
    assert told.start.because == "jobs of the queue admin in its advance reservation may go before it"


def test_a_job_that_had_the_rest_of_its_reservation_is_told_so(site: Site) -> None:
    add_resources(site.database, nodes=1, cores=1)
    number = site.ask("/resource_id=1", NOW, NOW + 1000)
    site.round()
    job = site.submit_inside(number, walltime=994)
    execute_sql(
        site.database, "UPDATE moldable_job_descriptions SET default_walltime = 7200 WHERE moldable_job_id = %s", job
    )
    site.round(NOW + 10)
    with site.database.begin() as tx:
        (facts,) = tx.job_runs.end_facts([job])
    assert (facts.walltime, facts.is_rest) == (984, True)
    with site.database.begin() as tx:
        tx.reservations.remove_job(job)
        assert [each.is_rest for each in tx.job_runs.end_facts([job])] == [False]


def test_what_was_replaced_comes_back_when_its_replacement_is_lost(site: Site) -> None:
    first, second = add_resources(site.database, nodes=2, cores=1)
    number = site.ask("/resource_id=1", NOW, NOW + HOUR, replaces_lost=True)
    site.round()
    site.round(NOW + 1)
    dates = (NOW + 100, NOW + 200, NOW + 300)
    for date, lost, taken in zip(dates, (first, second, first), (second, first, second), strict=True):
        with site.database.begin() as tx:
            tx.execute("UPDATE resources SET state = 'Alive'")
            tx.execute("UPDATE resources SET state = 'Dead' WHERE resource_id = %s", (lost,))
        site.round(date)
        site.round(date)
        replaced = site.get(number)
        assert (replaced.state, replaced.resources) == (S.RUNNING, (taken,))
        with site.database.begin() as tx:
            held = tx.jobs.assigned([replaced.frame_id], current=True)[replaced.frame_id]
            assert [each.id for each in held] == [taken]
    site.round(NOW + HOUR)
    with site.database.begin() as tx:
        bills = tx.rows("SELECT network_address, reserved FROM reservation_usage ORDER BY network_address")
    assert [tuple(bill) for bill in bills] == [("node-1", 200), ("node-2", HOUR - 200)]


def test_a_job_that_comes_before_the_end_for_idleness_is_written_keeps_its_reservation(site: Site) -> None:
    add_resources(site.database, nodes=1, cores=1)
    number = site.ask("/resource_id=1", NOW, NOW + HOUR, idle_limit=60)
    site.round()
    site.go_to(NOW + 60)
    write = site.scheduler._writer.write_reservations

    def write_behind_a_submission(tx: Transaction, situation: Situation, plan: Plan) -> None:
        jobs.append(site.submit_inside(number))
        write(tx, situation, plan)

    jobs: list[int] = []
    site.scheduler._writer.write_reservations = write_behind_a_submission  # type: ignore[method-assign]
    site.round()
    assert site.state(number) is S.RUNNING
    assert site.events(number) == ["CREATED", "START TIME REACHED"]
    assert site.job(jobs[0]) in (JobState.WAITING, JobState.TO_LAUNCH)


def test_nodes_that_are_only_reserved_are_tested_as_idle_ones_are(site: Site) -> None:
    ids = add_resources(site.database, nodes=2, cores=1)
    number = site.ask("/resource_id=2", NOW, NOW + HOUR)
    site.round()
    assert site.state(number) is S.RUNNING
    with site.database.snapshot() as tx:
        assert tx.resources.busy_nodes() == set()
    site.submit_inside(number)
    site.round(NOW + 1)
    with site.database.snapshot() as tx:
        (node,) = tx.resources.select(ids[:1])
        assert tx.resources.busy_nodes() == {node.network_address}


def test_a_change_has_its_answer_when_the_last_reservation_is_gone(site: Site) -> None:
    add_resources(site.database, nodes=1, cores=1)
    number = site.ask("/resource_id=1", NOW + 100, NOW + HOUR)
    site.round()
    with site.database.begin() as tx:
        change = changes.request_change(tx, ALICE, site.get(number), WantedChange(end=NOW + 2 * HOUR), patience=60)
    assert site.delete(ALICE, number) is Deletion.DELETED
    with site.database.begin() as tx:
        answered = tx.reservations.find_change(change)
    assert answered is not None
    assert (answered.answer, answered.message) == (ChangeAnswer.DROPPED, "the advance reservation has ended")
