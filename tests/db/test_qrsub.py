"""What qrsub prints, and what it leaves in the database."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from oar.cli import qrdel, qrstat
from oar.cli.common.command import CommandResult, Context
from oar.kao.rounds.meta_sched import MetaScheduler
from oar.lib.bus.messages import Effect
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.jobs.records import Queue
from oar.lib.jobs.states import JobState, QueueState
from oar.lib.reservations import lifecycle, requests
from oar.lib.reservations.records import AdvanceReservation, decode
from oar.lib.reservations.states import ReservationState
from oar.lib.runtime import Runtime
from oar.lib.submission.resource_request import parse_request
from oar.lib.submission.sql_new_jobs import NewAlternative
from tests.builders import add_job
from tests.db.reservation_desk import EVE, HOUR, NOW, ROOT, Desk
from tests.frontend import add_rules
from tests.plain import without_way_out


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Where the files of the site are."""
    return tmp_path


@pytest.fixture
def site(silent_desk: Desk) -> Desk:
    """Nobody answers."""
    return silent_desk


# -- granted ----------------------------------------------------------------------------------------------------------


def test_a_request_is_granted(desk: Desk) -> None:
    result = desk.qrsub("-a", "202701150900", "-d", "1:0:0")
    granted = desk.last()
    assert result == CommandResult(0, f"Your reservation {granted.number} has been granted\n", "")
    assert (granted.start, granted.end, granted.owner, granted.state) == (NOW + HOUR, NOW + 2 * HOUR, "alice", "w")
    assert (granted.queue, granted.project, granted.time_offset, len(granted.resources)) == ("default", "default", 6, 1)
    assert desk.number_of_rounds == 1


def test_a_mistyped_time_zone_is_told(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Pariss")
    result = desk.qrsub("-a", "+1h", "-d", "60")
    assert (result.exit, result.err) == (0, 'warning: TZ="Europe/Pariss" is not a time zone: dates are in UTC.\n')


def test_another_window_than_the_asked_one_is_told(desk: Desk) -> None:
    desk.granted("-a", "+1h", "-d", "1h", "-pe", "slots", "4")
    result = desk.qrsub("-a", "+1h", "-d", "30m", "-window", "2h")
    assert result.out.split("\n")[1:] == ["It starts at 01/15/2027 10:00:00 and ends at 01/15/2027 10:30:00.", ""]
    assert desk.granted("-a", "+1h", "-d", "30m", "-earliest", "-pe", "slots", "4").start == NOW + 9000


def test_a_job_that_is_killed_at_the_last_moment_is_gone_at_the_end(desk: Desk) -> None:
    for kill_grace, chosen, offset in ((30, -1, 31), (30, 10, 10), (30, 0, 1)):
        desk.config = desk.config.replace(job_kill_grace=kill_grace, reservation_duration_offset=chosen)
        assert desk.granted("-a", "+1h", "-d", "60").time_offset == offset
    desk.config = desk.config.replace(job_kill_grace=30, reservation_duration_offset=-1)
    assert desk.qrsub("-a", "+1h", "-d", "31").err.startswith("the duration must be longer than 31 seconds\n")


def test_the_seconds_until_the_answer_are_no_other_window(desk: Desk) -> None:
    assert desk.server
    desk.server._clock = lambda: NOW + 1
    assert desk.qrsub("-d", "60").out.count("\n") == 1


def test_what_was_granted_is_told_in_full_as_a_number_or_as_a_record(desk: Desk) -> None:
    told = desk.qrsub("-a", "+1h", "-d", "60", "-pe", "slots", "3", "-verbose").out.split("\n")
    assert told[1:] == [
        "It starts at 01/15/2027 09:00:00 and ends at 01/15/2027 09:01:00.",
        "granted_slots:              default@node-1=2,default@node-2=1",
        "",
    ]
    number = int(desk.qrsub("-a", "+2h", "-d", "60", "-terse").out)
    record = json.loads(desk.qrsub("-a", "+3h", "-d", "60", "-J").out)[str(number + 1)]
    assert (record["start_time"], record["state"]) == (NOW + 3 * HOUR, "w")


def test_the_record_of_what_was_granted_is_that_of_qrstat_in_each_format(desk: Desk) -> None:
    for letter in "JYXD":
        told = desk.qrsub("-a", "+1h", "-d", "60", "-pe", "slots", "1-2", f"-{letter}")
        number = desk.last().number
        assert (told.exit, told.err) == (0, "")
        assert told == desk.type(qrstat.main, "-ar", number, f"-{letter}")
        assert desk.type(qrdel.main, number).exit == 0


def test_all_of_a_request_is_stored(desk: Desk) -> None:
    words = ("-a", "+1h", "-e", "202701151000", "-N", "course.1", "-A", "acct 1", "-u", "root,!daemon", "-u", "@team")
    more = ("-he", "y", "-m", "eb", "-M", "a@b.c,root", "-replace", "n", "-idle", "10m", "-project", "p1")
    desk.ask(lambda tx: (tx.access.create_userset("team"), tx.access.add_to_userset("team", ["alice"])))
    row = desk.granted(*words, *more, "-flex", "yes", "-l", "h=node-*,cpuset=0|1", "-pe", "m*", "1-2")
    assert (row.name, row.account, row.is_hard, row.mail_options, row.mail_list) == (
        *("course.1", "acct 1", True, "be", "a@b.c,root"),
    )
    assert (row.replaces_lost, row.idle_limit, row.project, row.pe, row.pe_range) == (False, 600, "p1", "m*", "1-2")
    assert row.is_flexible
    assert (row.granted_pe, row.granted_slots) == ("mpi", 2)
    assert json.loads(row.resource_list) == [["h", "node-*"], ["cpuset", "0|1"]]
    with desk.database.snapshot() as tx:
        entries = tx.reservations.access([row.id])[row.id]
    assert [(each.text, each.denied) for each in entries] == [("root", False), ("daemon", True), ("@team", False)]


def test_an_administrator_asks_for_somebody_and_over_jobs(desk: Desk) -> None:
    with desk.database.snapshot() as tx:
        everything = [row.id for row in tx.resources.all()]
    add_job(desk.database, JobState.RUNNING, on=everything, walltime=7200, start_time=NOW)
    refused = desk.qrsub("-d", "60", "-pe", "slots", "4")
    assert refused.err.startswith("denied: Reservation can't be granted\n  only 0 of 4 suitable slots are free until ")
    row = desk.granted("-d", "60", "-pe", "slots", "4", "-ignore_jobs", "-owner", "daemon", user=ROOT)
    with desk.database.snapshot() as tx:
        assert [each.text for each in tx.reservations.access([row.id])[row.id]] == ["daemon"]
    assert (row.owner, row.owner_group, row.ignores_jobs) == ("daemon", "daemon", True)


# -- refused ----------------------------------------------------------------------------------------------------------


def test_who_types_nothing_is_told_the_usage_and_who_asks_for_nothing_that(site: Desk) -> None:
    assert "\n  -d 0 leaves it no time: write" in site.qrsub("-d", "0").err
    usage = "ERROR! no option argument\nUsage: qrsub [OPTIONS]\n  qrsub -help prints the options\n"
    assert site.qrsub() == CommandResult(1, "", usage)
    assert site.qrsub("-help").exit == 0


def test_only_members_of_a_userset_may_ask(site: Desk) -> None:
    before = site.counts()
    whom_to_ask = "  ask an administrator for: oaruserset -a eve arusers\n"
    denied = CommandResult(1, "", f'denied: "eve" must be manager or in userset "arusers"\n{whom_to_ask}')
    assert site.qrsub("-d", "60", user=EVE) == denied
    assert site.counts() == before


def test_everybody_may_ask_where_the_site_says_so(desk: Desk) -> None:
    desk.config = desk.config.replace(reservation_open=True)
    assert desk.qrsub("-d", "60", user=EVE).exit == 0


def test_no_place_is_refused_with_the_earliest_start(desk: Desk) -> None:
    first = desk.granted("-a", "+1h", "-d", "1h", "-pe", "slots", "2")
    result = desk.qrsub("-a", "+90m", "-d", "1h", "-pe", "slots", "3")
    assert result == CommandResult(
        1,
        "",
        "denied: Reservation can't be granted\n"
        f"  only 2 of 4 suitable slots are free until 01/15/2027 10:30:00 (advance reservation {first.number})\n"
        "  the earliest possible start is 01/15/2027 10:00:00 (-a 202701151000.00)\n",
    )
    assert desk.last().state is ReservationState.REFUSED
    assert desk.granted("-a", "202701151000.00", "-d", "1h", "-pe", "slots", "3").start == NOW + 2 * HOUR


def test_the_limit_is_told_with_its_own_code(desk: Desk) -> None:
    desk.config = desk.config.replace(max_advance_reservations=1)
    row = desk.granted("-d", "60")
    before = desk.counts()
    rejected = CommandResult(25, "", "rejected: only 1 advance reservations are allowed per cluster\n")
    assert desk.qrsub("-d", "60") == rejected
    assert desk.counts() == before
    desk.type(qrdel.main, row.number)
    assert desk.qrsub("-d", "60").exit == 0


def test_a_long_request_is_refused(site: Desk) -> None:
    result = site.qrsub("-d", "60", "-p", "x" * 70000)
    assert result == CommandResult(1, "", "denied: the request is longer than 65536 characters\n")


# -- rules of the site ------------------------------------------------------------------------------------------------


def test_only_what_all_listed_users_may_use_is_reserved(desk: Desk) -> None:
    add_rules(desk.database, "if user == 'daemon':\n    add_property(\"network_address = 'node-2'\")", defaults=False)
    assert desk.hosts(desk.granted("-d", "60", "-u", "alice,daemon")) == ["node-2"]
    refused = desk.qrsub("-d", "60", "-u", "alice,daemon", "-pe", "slots", "3")
    assert refused.exit == 1
    assert refused.err.startswith("Error: No queue instances to reserve\n  daemon: ")


def test_nobody_who_is_denied_by_a_pattern_must_be_able_to_use_it(desk: Desk) -> None:
    add_rules(desk.database, "if user == 'daemon':\n    add_property(\"network_address = 'node-9'\")", defaults=False)
    assert desk.qrsub("-d", "60", "-u", "alice,daemon").exit == 1
    assert desk.granted("-d", "60", "-u", "alice,daemon,!dae*")


def test_nobody_who_is_denied_with_a_group_must_be_able_to_use_it(desk: Desk) -> None:
    add_rules(desk.database, "if user == 'daemon':\n    reject('not he')", defaults=False)
    with desk.database.begin() as tx:
        tx.access.create_userset("team")
        tx.access.add_to_userset("team", ["daemon"])
    for users in ("alice,!@team", "!@team", "daemon,alice,!@team"):
        assert desk.qrsub("-d", "60", "-u", users).exit == 0
    refused = desk.qrsub("-d", "60", "-u", "@team")
    assert refused == CommandResult(1, "", "Error: No queue instances to reserve\n  daemon: not he\n")


def test_a_rule_that_refuses_is_quoted_with_the_user(site: Desk) -> None:
    add_rules(site.database, "if user == 'daemon' and is_advance_reservation:\n    reject('not he')", defaults=False)
    refused = site.qrsub("-d", "60", "-u", "alice,daemon")
    assert refused == CommandResult(1, "", "Error: No queue instances to reserve\n  daemon: not he\n")
    assert site.count("reservations") == 0


# -- resources --------------------------------------------------------------------------------------------------------


def test_slots_lie_as_the_rule_says(desk: Desk) -> None:
    def hosts(*words: object) -> list[str]:
        row = desk.granted("-d", "60", *words)
        desk.type(qrdel.main, row.number)
        return desk.hosts(row)

    assert hosts("-pe", "mpi", "2") == ["node-1", "node-1"]
    assert hosts("-alloc", "$round_robin", "2") == ["node-1", "node-2"]
    assert hosts("-pe", "round_robin", "3") == ["node-1", "node-1", "node-2"]
    assert hosts("-alloc", "1", "2") == ["node-1", "node-2"]
    assert hosts("-alloc", "$pe_slots", "1-8") == ["node-1", "node-1"]
    assert hosts("-alloc", "2", "1-") == ["node-1", "node-1", "node-2", "node-2"]
    assert hosts("-l", "/network_address=2/resource_id=1") == ["node-1", "node-2"]
    assert hosts("-l", "nodes=2/resource_id=1") == ["node-1", "node-2"]
    assert hosts("-l", "nodes=1") == ["node-1", "node-1"]
    assert hosts("-l", "{cpuset = '1'}/resource_id=1", "-l", "{cpuset = '0'}/resource_id=1") == ["node-1", "node-1"]
    assert hosts("-q", "default@node-2") == ["node-2"]
    assert hosts("-q", "*@node-2", "-pe", "slots", "2") == ["node-2", "node-2"]
    assert hosts("-q", "all.q", "-l", "h=node-2|other") == ["node-2"]
    assert hosts("-h", "*-2") == ["node-2"]
    assert hosts("-p", "network_address = 'node-2'") == ["node-2"]
    assert hosts("-masterq", "*@node-2", "-pe", "slots", "2") == ["node-1", "node-2"]
    assert hosts("-masterq", "*@node-2", "-pe", "smp", "2") == ["node-2", "node-2"]
    assert hosts("-masterq", "*@node-1", "-alloc", "1", "2") == ["node-1", "node-2"]
    assert hosts("-masterq", "*@node-1", "-pe", "round_robin", "2") == ["node-1", "node-2"]
    assert hosts("-masterq", "*@node-2", "-pe", "round_robin", "4") == ["node-1", "node-1", "node-2", "node-2"]
    assert hosts("-masterq", "*@node-[12]", "-alloc", "1", "2") == ["node-1", "node-2"]
    assert hosts("-masterq", "default", "-alloc", "1", "2") == ["node-1", "node-2"]


def test_waiting_jobs_are_in_the_way_where_the_site_wants_it(desk: Desk) -> None:
    everything = add_job(desk.database, alternatives=[NewAlternative(7200, parse_request("/resource_id=4").groups)])
    words = ("-a", "+30m", "-d", "60")
    assert desk.qrsub(*words, "-w", "v").exit == 0
    desk.config = desk.config.replace(reservation_precedence="jobs")
    assert desk.scheduler
    assert desk.server
    desk.scheduler.close()
    desk.serve(desk.server)
    for result in (desk.qrsub(*words, "-w", "v"), desk.qrsub(*words)):
        assert (result.exit, f"(job {everything})" in result.err) == (1, True)


def test_the_duration_may_stand_among_the_resources(desk: Desk) -> None:
    assert desk.granted("-l", "h_rt=0:5:0").duration == 300
    assert desk.granted("-l", "h_rt=0:5:0", "-d", "60").duration == 60


@pytest.mark.parametrize("item", ["h=", "host= ", "licence=", "h_rt="])
def test_a_value_that_is_empty_is_none(desk: Desk, item: str) -> None:
    """As in a script whose variable is empty."""
    name = item.partition("=")[0]
    assert desk.qrsub("-d", "60", "-l", item) == CommandResult(
        1, "", f'denied: "{name}=" has no value\n  write a value for {name}, or leave it out\n'
    )


def test_resources_of_other_types_are_counted_for_each_slot(desk: Desk) -> None:
    with desk.database.begin() as tx:
        licences = tx.resources.insert([{"network_address": "", "type": "licence", "state_num": 1}] * 4)
        tx.resources.log(licences, "state", "Alive")
    row = desk.granted("-d", "60", "-alloc", "1", "2", "-l", "licence=1/2", "-q", "default@node-*")
    assert len(set(row.resources) & set(licences)) == 1
    assert json.loads(row.resource_list) == [["licence", "1/2"]]
    row = desk.granted("-d", "60", "-pe", "smp", "2", "-l", "licence=1", "-h", "node-2", "-a", "+1h")
    assert len(set(row.resources) & set(licences)) == 2


def test_the_names_of_the_site_are_known(desk: Desk, files: Path) -> None:
    (files / "reservations.yaml").write_text(
        "parallel_environments:\n"
        "  wide: {rule: 1}\n"
        "  second: {rule: $fill_up, condition: \"network_address = 'node-2'\"}\n"
        "checkpointing_environments: {dmtcp: \"cpuset = '1'\"}\n"
        "hostgroups: {new: \"network_address = 'node-2'\"}\n"
        "interactive: \"network_address = 'node-2'\"\n"
        "queue_aliases: {short.q: default}\n"
    )
    assert desk.hosts(desk.granted("-d", "60", "-pe", "wide", "2")) == ["node-1", "node-2"]
    assert desk.hosts(desk.granted("-a", "+1h", "-d", "60", "-pe", "sec*", "2")) == ["node-2", "node-2"]
    assert desk.hosts(desk.granted("-a", "+2h", "-d", "60", "-q", "short.q@@n*")) == ["node-2"]
    row = desk.granted("-a", "+3h", "-d", "60", "-now", "-ckpt", "dmtcp")
    assert (row.is_interactive, row.checkpoint_name, desk.hosts(row)) == (True, "dmtcp", ["node-2"])
    assert not desk.granted("-a", "+4h", "-now", "n", "-d", "60").is_interactive


@pytest.mark.parametrize("text", ["[1]", "nosuch: 1", "interactive: [1]", "parallel_environments: {x: {rule: y}}", "{"])
def test_a_wrong_file_of_names_is_told(site: Desk, files: Path, text: str) -> None:
    (files / "reservations.yaml").write_text(text)
    result = site.qrsub("-d", "60")
    assert result.exit == 1
    assert result.err.startswith(f"error: {files}/reservations.yaml: ")


def test_a_list_of_queues_is_tried_from_the_highest_priority_on(desk: Desk) -> None:
    with desk.database.begin() as tx:
        for name, priority, state in (
            ("first", 9, QueueState.ACTIVE),
            ("second", 8, QueueState.NOT_ACTIVE),
            ("third", 7, QueueState.ACTIVE),
            ("gone", 20, QueueState.ORPHANED),
        ):
            tx.queues.insert(Queue(name, priority, "kamelot", state))
    add_rules(desk.database, "if queue == 'first':\n    reject('not here')", defaults=False)
    assert desk.granted("-d", "60", "-q", "*ir*,second@node-2,default").queue == "second"
    row = desk.granted("-d", "60", "-a", "+1h", "-q", "third@node-1,third@node-2,first", "-pe", "slots", "4")
    assert (row.queue, row.queue_list) == ("third", "third@node-1,third@node-2,first")
    assert desk.qrsub("-d", "60", "-q", "first").err.endswith("alice: not here\n")


def test_the_queue_of_a_removed_one_is_unknown(site: Desk) -> None:
    with site.database.begin() as tx:
        tx.queues.insert(Queue("gone", 9, "kamelot", QueueState.ORPHANED))
    refused = site.qrsub("-d", "60", "-q", "gone").err
    assert without_way_out(refused) == 'Job was rejected because job requests unknown queue "gone"\n'
    assert "gone," not in refused


# -- verification -----------------------------------------------------------------------------------------------------


def test_a_request_is_verified_on_the_present_situation_and_nothing_is_stored(desk: Desk) -> None:
    desk.granted("-a", "+1h", "-d", "1h", "-pe", "slots", "2")
    before, rounds = desk.counts(), desk.number_of_rounds
    assert desk.qrsub("-a", "+1h", "-d", "1h", "-pe", "slots", "1-4", "-w", "v") == CommandResult(
        0,
        "verification: found suitable queue(s)\n"
        "granted_slots:              default@node-2=2\n"
        "start_time:                 Fri Jan 15 09:00:00 2027\n",
        "",
    )
    refused = desk.qrsub("-a", "+1h", "-d", "1h", "-pe", "slots", "3", "-w", "v")
    assert refused.exit == 1
    lines = refused.err.split("\n")
    assert lines[0] == "verification: no suitable queues"
    assert lines[1].startswith("  only 2 of 4 suitable slots are free until 01/15/2027 10:00:00 (advance reservation ")
    assert lines[2] == "  the earliest possible start is 01/15/2027 10:00:00 (-a 202701151000.00)"
    told = json.loads(desk.qrsub("-a", "+1h", "-d", "1h", "-w", "v", "-J").out)
    assert told["granted_slots"] == [{"queue": "default", "host": "node-2", "slots": 1}]
    assert (desk.counts(), desk.number_of_rounds) == (before, rounds)


def test_a_verification_tells_what_would_be_missing(desk: Desk) -> None:
    desk.ask(lambda tx: tx.execute("UPDATE resources SET state = 'Suspected' WHERE network_address = 'node-1'"))
    words = ("-a", "+1h", "-d", "1h", "-l", "/network_address=2", "-w", "v")
    assert desk.qrsub(*words).out.splitlines()[3:] == [
        "state:                      W",
        "message:                    reserved host node-1 is Suspected",
    ]
    told = json.loads(desk.qrsub(*words, "-J").out)
    assert (told["state"], told["reasons"]) == ("W", ["reserved host node-1 is Suspected"])


def test_what_a_rule_writes_in_a_verification_is_rolled_back(site: Desk) -> None:
    assert site.qrsub("-d", "60", "-w", "v").exit == 0
    assert site.count("reservations") == 0


# -- no answer --------------------------------------------------------------------------------------------------------


def test_a_request_without_an_answer_is_withdrawn(site: Desk) -> None:
    result = site.qrsub("-d", "60")
    assert result == CommandResult(26, "", "no answer from the scheduler in 1 s, the request was withdrawn\n")
    row = site.last()
    assert row.state is ReservationState.REFUSED
    assert [job.state for job in site.jobs()] == [JobState.ERROR]
    with site.database.snapshot() as tx:
        assert [(log.event, log.author) for log in tx.reservation_logs.logs([row.id])] == [("WITHDRAWN", "alice")]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_who_leaves_withdraws_his_request(site: Desk, number: signal.Signals) -> None:
    site.config = site.config.replace(reservation_answer_timeout=60)
    site.database.deliver = lambda effects: os.kill(os.getpid(), number) if not _is_withdrawn(site) else None
    assert site.qrsub("-d", "60") == CommandResult(26, "", "the request was withdrawn\n")
    assert site.last().state is ReservationState.REFUSED


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGHUP])
def test_who_types_it_again_does_not_keep_his_request_from_being_withdrawn(
    site: Desk, monkeypatch: pytest.MonkeyPatch, first: signal.Signals
) -> None:
    site.config = site.config.replace(reservation_answer_timeout=60)
    site.database.deliver = lambda effects: os.kill(os.getpid(), first) if not _is_withdrawn(site) else None
    withdraw = lifecycle.cancel

    def interrupted(*arguments: Any) -> Any:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGINT):
            os.kill(os.getpid(), number)
        return withdraw(*arguments)

    monkeypatch.setattr(lifecycle, "cancel", interrupted)
    assert site.qrsub("-d", "60") == CommandResult(26, "", "the request was withdrawn\n")
    assert site.last().state is ReservationState.REFUSED


def _is_withdrawn(site: Desk) -> bool:
    return site.last().state is ReservationState.REFUSED


def test_who_cannot_reach_the_server_is_told_how_long_his_request_waits(
    site: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is promised that is not kept: the request is withdrawn when nobody waits any more."""
    site.config = site.config.replace(server_hostnames=("127.0.0.1",), appendice_server_port=1)
    prepare = Context.__init__

    def speak(self: Context, *arguments: Any) -> None:
        prepare(self, *arguments)
        self.speak_for(self.runtime)

    monkeypatch.setattr(Context, "__init__", speak)
    warning = "cannot contact the OAR server 127.0.0.1:6666, the request waits 1 s for it, and is withdrawn then."
    left = "no answer from the scheduler in 1 s, the request was withdrawn"
    assert site.qrsub("-d", "60") == CommandResult(26, "", f"warning: {warning}\n{left}\n")
    assert site.last().state is ReservationState.REFUSED


def test_an_answer_that_was_first_is_printed(desk: Desk) -> None:
    answer: Callable[[Sequence[Effect]], None] = desk._round

    def answer_and_leave(effects: Sequence[Effect]) -> None:
        answer(effects)
        os.kill(os.getpid(), signal.SIGTERM)

    desk.database.deliver = answer_and_leave
    result = desk.qrsub("-d", "60")
    assert result == CommandResult(0, f"Your reservation {desk.last().number} has been granted\n", "")


def test_who_waits_is_told_at_once(site: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "LONGEST_PAUSE", 3600.0)
    site.config = site.config.replace(reservation_answer_timeout=120)
    server = Database(site.database.settings, application="oar:test-server")
    server._clock = lambda: NOW
    scheduler = MetaScheduler(Runtime(site.config, server))
    answered: list[float] = []

    def answer_later() -> None:
        while not _listens(server):
            time.sleep(0.01)
        scheduler.round()
        answered.append(time.monotonic())

    thread = threading.Thread(target=answer_later)
    thread.start()
    result = site.qrsub("-d", "60")
    told = time.monotonic()
    thread.join()
    scheduler.close()
    server.close()
    assert result.exit == 0
    assert told - answered[0] < 60  # who is not told looks when his patience is over


def _listens(database: Database) -> bool:
    with database.snapshot() as tx:
        return bool(tx.value("SELECT count(*) FROM pg_stat_activity WHERE query = 'LISTEN oar_event'"))


# -- default requests -------------------------------------------------------------------------------------------------


def test_requests_begin_with_the_options_of_the_site_and_of_the_user(desk: Desk, files: Path) -> None:
    (files / "ar_request").write_text("# of the site\n-d 600 -A 'site account' -l cpuset=0\n-pe slots 1-2\n-m b\n")
    own = files / "own"
    own.write_text("-N mine -d 120\n-l h=node-2\n")
    environment = {"OAR_SUBMIT_DEFAULTS": str(own)}
    row = desk.granted("-alloc", "1", "1", "-N", "typed", environment=environment)
    assert (row.name, row.account, row.duration, row.mail_options) == ("typed", "site account", 120, "b")
    assert json.loads(row.resource_list) == [["cpuset", "0"], ["h", "node-2"]]
    assert (row.pe, row.pe_range) == ("1", "1")
    desk.type(qrdel.main, row.number)
    alone = desk.granted(environment=environment)
    assert (alone.name, alone.duration) == ("mine", 120)


def test_the_file_of_the_site_is_refused_if_others_may_write_it(site: Desk, files: Path) -> None:
    path = files / "ar_request"
    path.write_text("-d 600\n")
    path.chmod(0o666)
    refused = f"error: {path}: others than root and oar can write it. Run: chown root {path}; chmod go-w {path}\n"
    assert site.qrsub("-d", "60") == CommandResult(1, "", refused)


@pytest.mark.parametrize("text", ["-nosuch x", "-d", "-N 'open", "-J"])
def test_a_file_that_is_not_understood_is_told(site: Desk, files: Path, text: str) -> None:
    (files / "ar_request").write_text(text)
    result = site.qrsub("-d", "60")
    assert result.exit == 1
    assert result.err.startswith(f"error: {files}/ar_request: ")


def test_the_largest_number_of_a_long_range_that_ever_fits_is_asked_first(desk: Desk) -> None:
    row = desk.granted("-d", "60", "-pe", "slots", "1-1000000")
    assert [each.slots for each in decode(row.request)] == [4, 3, 2, 1]


# -- series -----------------------------------------------------------------------------------------------------------


def series_of(desk: Desk, number: int) -> list[AdvanceReservation]:
    with desk.database.snapshot() as tx:
        return tx.reservations.of_series([desk.reservation(number).series_id])


def test_a_series_is_granted(desk: Desk) -> None:
    words = ("-a", "+1h", "-d", "30m", "-N", "course", "-rrule", "FREQ=DAILY;COUNT=3", "-depth", "2")
    result = desk.qrsub(*words)
    last = desk.last()
    numbers = f"{last.number - 1}-{last.number}"
    text = f"Your reservations {numbers} have been granted (series {last.series_id})\n"
    assert result == CommandResult(0, text, "")
    assert desk.number_of_rounds == 1
    shown = [
        (each.start, each.duration, each.name, each.series_index, each.state) for each in series_of(desk, last.number)
    ]
    day = 24 * HOUR
    assert shown == [(NOW + HOUR + index * day, 1800, "course", index + 1, "w") for index in (0, 1)]
    with desk.database.snapshot() as tx:
        series = tx.reservations.select_series([last.series_id])[last.series_id]
    assert (series.owner, series.time_zone, series.occurrences) == ("alice", "UTC", 3)
    assert (series.next_index, series.next_start, series.depth) == (3, NOW + HOUR + 2 * day, 2)


def test_numbers_and_records_of_a_series(desk: Desk) -> None:
    words = ("-a", "+1h", "-d", "30m", "-rrule", "FREQ=DAILY")
    numbers = desk.qrsub(*words, "-terse").out.split()
    assert len(numbers) == Config().reservation_series_depth
    records = json.loads(desk.qrsub("-a", "+1h", "-d", "30m", "-rrule", "FREQ=DAILY;COUNT=1", "-J").out)
    assert [(each["series_index"], each["duration"]) for each in records.values()] == [(1, 1800)]
    told = desk.qrsub(*words, "-depth", 1, "-verbose").out.split("\n")
    assert told[1].endswith("starts at 01/15/2027 09:00:00 and ends at 01/15/2027 09:30:00.")


def test_a_series_that_is_refused_leaves_no_reservation(desk: Desk) -> None:
    desk.granted("-a", "+25h", "-d", "1h", "-pe", "slots", 4)
    words = ("-a", "+1h", "-d", "30m", "-rrule", "FREQ=DAILY", "-depth", 3)
    refused = desk.qrsub(*words)
    assert (refused.exit, refused.out) == (1, "")
    start = "denied: Reservation can't be granted\n  occurrence 2, 01/16/2027 09:00:00: only 0 of 4 suitable slots"
    assert refused.err.startswith(start)
    assert refused.err.splitlines()[2:] == [
        "  the earliest possible start of the whole series is 01/15/2027 10:00:00 (-a 202701151000.00)"
    ]
    assert {each.state for each in series_of(desk, desk.last().number)} == {ReservationState.REFUSED}
    verified = desk.qrsub(*words, "-w", "v")
    assert verified.err.startswith("verification: no suitable queues\n  occurrence 2, 01/16/2027 09:00:00: only 0 of 4")


def test_a_series_that_skips_its_conflicts_names_them(desk: Desk) -> None:
    desk.granted("-a", "+25h", "-d", "1h", "-pe", "slots", 4)
    words = ("-a", "+1h", "-d", "30m", "-rrule", "FREQ=DAILY", "-depth", 3, "-conflict", "skip")
    assert desk.qrsub(*words, "-w", "v").out.count("start_time:") == 2
    first, second, third = desk.qrsub(*words).out.rstrip("\n").split("\n")
    numbers = [each.number for each in series_of(desk, desk.last().number)]
    assert first.startswith(f"Your reservations {numbers[0]},{numbers[2]} have been granted")
    assert second.startswith("occurrence 2, 01/16/2027 09:00:00, is skipped: only 0 of 4 suitable slots")
    assert third == "occurrence 4 is requested instead: qrstat shows it when granted"


def test_a_series_of_which_one_is_granted_says_so(desk: Desk) -> None:
    told = desk.qrsub("-a", "+1h", "-d", "30m", "-rrule", "FREQ=DAILY", "-depth", 1)
    (only,) = series_of(desk, desk.last().number)
    assert told.out == f"Your reservation {only.number} has been granted (series {only.series_id})\n"


def test_nobody_waits_for_a_series_and_it_is_withdrawn(site: Desk) -> None:
    result = site.qrsub("-a", "+1h", "-d", "30m", "-rrule", "FREQ=DAILY", "-depth", 3)
    assert (result.exit, result.err) == (26, "no answer from the scheduler in 1 s, the request was withdrawn\n")
    assert [each.state for each in series_of(site, site.last().number)] == [ReservationState.REFUSED] * 3
    with site.database.snapshot() as tx:
        assert tx.reservations.all_series() == []


def test_the_limit_counts_the_reservations_of_a_series(site: Desk) -> None:
    site.config = site.config.replace(max_advance_reservations=2)
    before = site.counts()
    result = site.qrsub("-a", "+1h", "-d", "30m", "-rrule", "FREQ=DAILY", "-depth", 3)
    assert (result.exit, site.counts()) == (25, before)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("-rrule", "FREQ=NEVER"), 'qrsub: Wrong rule "FREQ=NEVER" specified to -rrule option: FREQ cannot be NEVER'),
        (("-rrule", "FREQ=DAILY;UNTIL=20200101"), 'denied: the rule "FREQ=DAILY;UNTIL=20200101" gives no date from'),
        (("-rrule", "FREQ=DAILY", "-depth", "0"), 'qrsub: invalid option argument "-depth 0"'),
        (("-rrule", "FREQ=DAILY", "-depth", "1001"), 'qrsub: invalid option argument "-depth 1001"'),
        (("-rrule", "FREQ=DAILY", "-conflict", "x"), 'qrsub: invalid option argument "-conflict x"'),
        (("-rrule", "FREQ=DAILY", "-earliest"), "qrsub: the options -earliest and -rrule exclude each other"),
        (("-depth", "2"), "qrsub: option -depth is about a series, and needs -rrule"),
        (("-conflict", "skip"), "qrsub: option -conflict is about a series, and needs -rrule"),
    ],
)
def test_a_series_that_makes_no_sense_is_refused(site: Desk, words: tuple[str, ...], text: str) -> None:
    before = site.counts()
    result = site.qrsub("-a", "+1h", "-d", "30m", *words)
    assert (result.exit, result.out, site.counts()) == (1, "", before)
    assert result.err.startswith(text)


def test_rules_of_the_site_see_the_series(site: Desk) -> None:
    add_rules(site.database, "if ar and ar['series'] and ar['end'] - ar['start'] > 60:\n    reject(ar['series'])")
    result = site.qrsub("-a", "+1h", "-d", "30m", "-rrule", "FREQ=DAILY")
    assert result.err == "Error: No queue instances to reserve\n  alice: FREQ=DAILY\n"
