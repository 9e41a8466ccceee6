"""What administrators may not do to the resources and queues of advance reservations, unless they force it."""

import pytest

from oar.cli import oaralter, oarproperty, oarqueue, oarremoveresource
from oar.cli.common.command import CommandResult
from oar.lib.jobs.records import Queue
from oar.lib.jobs.states import JobState, QueueState
from oar.lib.reservations.states import ReservationState as S
from tests.builders import add_job, add_resources, execute_sql, state_of
from tests.db.console import Console
from tests.db.reservation_site import ALICE, HOUR, NOW, Site
from tests.frontend import LoginNode, add_rules

FORCE = "  use --force to do it anyway: the reservation is in error then\n"


@pytest.fixture
def ids(site: Site) -> list[int]:
    """Two nodes of two cores; the cores of the first have more memory."""
    ids = add_resources(site.database, nodes=2, cores=2)
    with site.database.begin() as tx:
        tx.nodes.add_property("mem", is_text=False)
        tx.execute("UPDATE resources SET mem = CASE WHEN network_address = 'node-1' THEN 64 ELSE 32 END")
    return ids


@pytest.fixture
def number(site: Site, ids: list[int]) -> int:
    """An advance reservation of the first node, in a queue of its own."""
    execute_sql(site.database, "INSERT INTO queues VALUES ('course', 3, 'default', 'Active')")
    condition = "mem >= 64 AND type = 'default' AND network_address LIKE 'node-_' AND network_address <> 'node-9'"
    made = site.ask(f"{{{condition}}}/network_address=1", NOW + 100, NOW + HOUR)
    with site.database.begin() as tx:
        tx.reservations.update(made, queue_name="course")
    site.round()
    assert site.get(made).resources == tuple(ids[:2])
    return made


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("-s", "Dead"), "denied: host node-1 is reserved by the advance reservation {}"),
        (("-m", "on"), "denied: host node-1 is reserved by the advance reservation {}"),
        (("-p", f"available_upto={NOW + 1000}"), "denied: host node-1 is reserved by the advance reservation {}"),
        (("-p", "mem=32"), "denied: the change of mem would break the advance reservation {}"),
        (("-p", "mem!"), "denied: the change of mem would break the advance reservation {}"),
        (("-p", "type=desktop"), "denied: the change of type would break the advance reservation {}"),
        (
            ("-p", "network_address=node-9"),
            "denied: the change of network_address would break the advance reservation {}",
        ),
    ],
)
def test_settings_of_nodes(site: Site, console: Console, number: int, words: tuple[str, ...], text: str) -> None:
    before = site.get(number)
    result = console.nodesetting("-h", "node-1", "-n", *words)
    assert (result.exit, result.err) == (9, f"{text.format(number)}\n{FORCE}")
    site.round(NOW + 10)
    assert site.get(number) == before
    assert console.nodesetting("-h", "node-2", "-n", *words).exit == 0
    forced = console.nodesetting("-h", "node-1", "-n", "--force", *words)
    assert forced.exit == 0, forced.err
    site.round(NOW + 20)
    assert site.state(number) is S.WARNING


def test_all_that_would_break_are_named_and_what_runs_first(site: Site, console: Console, number: int) -> None:
    running = site.ask("{network_address = 'node-1'}/resource_id=1", NOW, NOW + 50)
    far = site.ask("{mem >= 64}/network_address=1", NOW + 9 * HOUR, NOW + 10 * HOUR)
    site.round()
    site.round(NOW + 1)
    assert [site.state(each) for each in (running, number, far)] == [S.RUNNING, S.WAITING, S.WAITING]
    force = "  use --force to do it anyway: they are in error then\n"
    text = f"denied: host node-1 is reserved by the advance reservations {running}, {number}, {far}\n{force}"
    assert console.nodesetting("-h", "node-1", "-s", "Dead").err == text
    changed = console.type(oarproperty.main, "-d", "mem")
    text = f"denied: the change of mem would break the advance reservations {number}, {far}\n{force}"
    assert (changed.exit, changed.err) == (9, text)


def test_settings_that_break_nothing(site: Site, console: Console, number: int) -> None:
    for words in (
        ("-s", "Absent"),
        ("-s", "Suspected"),
        ("-s", "Alive"),
        ("-p", "mem=128"),
        ("-p", f"available_upto={NOW + HOUR}"),
        ("-d", "on"),
        ("-m", "off"),
    ):
        result = console.nodesetting("-h", "node-1", "-n", *words)
        assert result.exit == 0, (words, result.err)
    site.delete(ALICE, number)
    assert console.nodesetting("-h", "node-1", "-n", "-s", "Dead").exit == 0


def test_the_type_and_the_host_of_reserved_resources_are_kept(site: Site, console: Console, ids: list[int]) -> None:
    number = site.ask("/resource_id=1", NOW + 100, NOW + HOUR)
    site.round()
    for words in (("-p", "type=desktop"), ("-p", "network_address=node-9")):
        name = words[1].partition("=")[0]
        refused = console.nodesetting("-r", str(ids[0]), "-n", *words)
        text = f"denied: the change of {name} would break the advance reservation {number}\n{FORCE}"
        assert (refused.exit, refused.err) == (9, text)
        assert console.nodesetting("-r", str(ids[1]), "-n", *words).exit == 0
    same = console.nodesetting("-r", str(ids[0]), "-n", "-p", "type=default", "-p", "network_address=node-1")
    assert same.exit == 0, same.err


def test_the_removal_of_a_resource(site: Site, console: Console, ids: list[int], number: int) -> None:
    execute_sql(site.database, "UPDATE resources SET state = 'Dead', state_num = 4")
    result = console.type(oarremoveresource.main, ids[0])
    text = f"denied: resource {ids[0]} is reserved by the advance reservation {number}\n{FORCE}"
    assert (result.exit, result.err) == (9, text)
    assert console.type(oarremoveresource.main, ids[2]).exit == 0
    assert console.type(oarremoveresource.main, "--force", "--purge-jobs", ids[0]).exit == 0
    site.round(NOW + 10)
    after = site.get(number)
    assert after.state is S.WARNING
    assert f"reserved resource {ids[0]} was removed" in after.message
    assert site.job(after.frame_id) is not None


def test_the_removal_and_the_name_of_a_property(site: Site, console: Console, number: int) -> None:
    text = f"denied: the change of mem would break the advance reservation {number}\n{FORCE}"
    for words in (("-d", "mem"), ("-r", "mem,memory")):
        result = console.type(oarproperty.main, *words)
        assert (result.exit, result.err) == (9, text)
    assert "mem" in console.columns()


@pytest.mark.parametrize("words", [("-d", "mem"), ("-r", "mem,memory")])
def test_what_names_a_property_that_went_by_force_is_in_error(
    site: Site, console: Console, ids: list[int], number: int, words: tuple[str, ...]
) -> None:
    other = site.ask("{type = 'default'}/network_address=1", NOW + 100, NOW + HOUR)
    by_level = site.ask("/mem=1", NOW + 2 * HOUR, NOW + 3 * HOUR)
    site.round()
    assert console.type(oarproperty.main, "--force", *words).exit == 0
    for date, named, unnamed in ((NOW + 10, S.WARNING, S.WAITING), (NOW + 200, S.ERROR, S.RUNNING)):
        site.round(date)
        assert (site.state(number), site.state(other), site.state(by_level)) == (named, unnamed, S.WARNING)
    lines = [f"reserved resource {resource} no longer satisfies the request" for resource in ids[:2]]
    assert site.get(number).message.split("\n") == lines
    refused = site.ask("{mem > 1}/resource_id=1", NOW + 4 * HOUR, NOW + 5 * HOUR)
    site.round(NOW + 210)
    assert site.state(refused) is S.REFUSED


def test_what_the_request_does_not_name_may_change_by_force(site: Site, console: Console, ids: list[int]) -> None:
    plain = site.ask("/resource_id=1", NOW + 100, NOW + HOUR)
    site.round()
    assert site.get(plain).resources == (ids[0],)
    for words in (("-p", "type=desktop"), ("-p", "network_address=node-9"), ("-p", "mem=1")):
        changed = console.nodesetting("-r", str(ids[0]), "-n", "--force", *words)
        assert changed.exit == 0, changed.err
        site.round(NOW + 10)
        assert (site.state(plain), site.get(plain).message) == (S.WAITING, "")


class TestOrphanedQueue:
    def state(self, site: Site, name: str) -> QueueState | None:
        with site.database.begin() as tx:
            return next((queue.state for queue in tx.queues.all() if queue.name == name), None)

    def test_it_goes_with_its_last_reservation(self, site: Site, console: Console, number: int) -> None:
        result = console.type(oarqueue.main, "--remove", "course")
        said = "Queue 'course' is reserved by 1 advance reservation(s): it is orphaned and goes with the last one.\n"
        assert result == CommandResult(0, f"{said}  {number}\n", "")
        assert console.type(oarqueue.main, "-e", "course").exit == 1
        console.type(oarqueue.main, "-D")
        console.type(oarqueue.main, "-E")
        assert self.state(site, "course") is QueueState.ORPHANED
        site.round(NOW + 200)
        assert site.state(number) is S.RUNNING
        site.delete(ALICE, number)
        assert self.state(site, "course") is None

    def test_it_cannot_be_changed(self, site: Site, console: Console, number: int) -> None:
        console.type(oarqueue.main, "--remove", "course")
        said = "Queue 'course' was removed: it goes with the last of its advance reservations.\n"
        way = "  oarqueue --add course,PRIORITY,POLICY brings it back\n"
        for words in (("--change", "course,7"), ("-e", "course"), ("-d", "course")):
            assert console.type(oarqueue.main, *words) == CommandResult(1, "", said + way)
        with site.database.begin() as tx:
            assert [queue.priority for queue in tx.queues.all() if queue.name == "course"] != [7]

    def test_it_is_there_again_when_it_is_added(self, site: Site, console: Console, number: int) -> None:
        add_rules(site.database)
        login = LoginNode(site.database)
        console.type(oarqueue.main, "--remove", "course")
        assert console.type(oarqueue.main, "--add", "course,7,kamelot") == CommandResult(0, "", "")
        with site.database.begin() as tx:
            assert Queue("course", 7, "kamelot", QueueState.ACTIVE) in tx.queues.all()
        assert login.oarsub("-q", "course", "-l", "walltime=0:1", "x").exit == 0
        site.round(NOW + 200)
        site.delete(ALICE, number)
        assert self.state(site, "course") is QueueState.ACTIVE
        assert console.type(oarqueue.main, "--add", "course,7,kamelot").err == "Queue 'course' already exists.\n"

    def test_it_takes_only_jobs_of_its_reservations_and_starts_them(
        self, site: Site, console: Console, number: int
    ) -> None:
        add_rules(site.database)
        login = LoginNode(site.database)
        console.type(oarqueue.main, "--remove", "course")
        result = login.oarsub("-q", "course", "-l", "walltime=0:1", "x")
        assert (result.exit, "takes jobs of its advance reservations only" in result.err) == (248, True)
        assert login.oarsub("--ar", number, "-l", "/resource_id=1,walltime=0:1", "x").exit == 0
        job = login.jobs()[-1]
        assert job.queue == "course"
        site.round(NOW + 100)
        site.round(NOW + 100)
        assert site.job(job.id) == "toLaunch"

    def test_a_job_leaves_its_reservation_with_its_queue(self, site: Site, console: Console, number: int) -> None:
        add_rules(site.database)
        login = LoginNode(site.database)
        console.type(oarqueue.main, "--remove", "course")
        job = login.submit("--ar", number, "-l", "/resource_id=1,walltime=0:1", "x")
        refused = login.type(oaralter.main, "--ar", "none", job.id)
        assert (refused.exit, "name another one (-q)" in refused.err) == (1, True)
        assert login.jobs()[-1].queue == "course"
        assert login.type(oaralter.main, "--ar", "none", "-q", "default", job.id).exit == 0
        assert login.jobs()[-1].queue == "default"
        site.round(NOW + 10)
        assert site.job(job.id) == "toLaunch"

    def test_other_jobs_hold_it(self, site: Site, console: Console, number: int) -> None:
        add_job(site.database, queue="course")
        result = console.type(oarqueue.main, "--remove", "course")
        assert (result.exit, result.err) == (2, "Queue 'course' has 1 unfinished job(s).\n")
        assert self.state(site, "course") is QueueState.ACTIVE

    def test_with_force_other_jobs_are_left_behind(self, site: Site, console: Console, number: int) -> None:
        other = add_job(site.database, queue="course", walltime=60)
        assert console.type(oarqueue.main, "--remove", "course", "--force").exit == 0
        assert self.state(site, "course") is QueueState.ORPHANED
        inside = site.submit_inside(number)
        with site.database.begin() as tx:
            tx.jobs.update(inside, queue_name="course")
        site.round(NOW + 100)
        site.round(NOW + 100)
        assert (site.job(inside), site.job(other)) == ("toLaunch", "Waiting")
        with site.database.begin() as tx:
            assert tx.job_waits.reasons([other])[other].text == "the queue course was removed"


def test_a_drain_is_always_allowed_and_breaks_no_reservation(site: Site, console: Console, ids: list[int]) -> None:
    number = site.ask("{(mem >= 64) AND (drain='NO')}/network_address=1", NOW + 100, NOW + HOUR)
    site.round()
    result = console.nodesetting("-h", "node-1", "-d", "on", "--reason", "a fan")
    assert (result.exit, result.err) == (0, "")
    site.round(NOW + 10)
    assert site.state(number) is S.WAITING
    assert console.nodesetting("-h", "node-1", "-d", "off", "-p", "mem=32").exit == 9


def for_nobody(site: Site, number: int) -> None:
    """Let nobody use a reservation."""
    execute_sql(site.database, "UPDATE reservation_acl SET entry = 'NONE' WHERE reservation_id = %s", number)


@pytest.mark.parametrize("words", [("-s", "Dead"), ("-m", "on"), ("-s", "Absent"), ("-p", "mem=32")])
def test_a_reservation_for_nobody_is_broken_by_nothing(
    site: Site, console: Console, number: int, words: tuple[str, ...]
) -> None:
    for_nobody(site, number)
    assert console.nodesetting("-h", "node-1", "-n", *words).exit == 0
    site.round(NOW + 10)
    assert site.state(number) is S.WAITING


@pytest.mark.parametrize("start", [NOW + 100, NOW])
def test_a_maintenance_of_all_nodes_covers_those_that_are_added_later(site: Site, ids: list[int], start: int) -> None:
    number = site.ask("{drain='NO'}/network_address=ALL", start, NOW + HOUR)
    for_nobody(site, number)
    site.round()
    site.round(NOW + 1)
    assert site.get(number).resources == tuple(ids)
    with site.database.begin() as tx:
        new = tx.resources.insert([{"network_address": "node-3", "cpuset": "0", "state_num": 1}])
        tx.resources.log(new, "state", "Alive")
    long_job = add_job(site.database, walltime=3 * 24 * HOUR)
    site.round(NOW + 2)
    assert state_of(site.database, long_job) is JobState.WAITING
    assert site.get(number).resources == (*ids, *new)
    site.round(NOW + 3)
    assert state_of(site.database, long_job) is JobState.WAITING


def test_a_reservation_of_all_nodes_for_somebody_stays_as_it_was_granted(site: Site, ids: list[int]) -> None:
    number = site.ask("/network_address=ALL", NOW + 100, NOW + HOUR)
    site.round()
    with site.database.begin() as tx:
        tx.resources.insert([{"network_address": "node-3", "cpuset": "0", "state_num": 1}])
    site.round(NOW + 1)
    assert site.get(number).resources == tuple(ids)
