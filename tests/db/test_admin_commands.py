"""What the administrators' commands print and do."""

import json
import threading
from pathlib import Path

import pytest

from oar.cli import oar_resources_add, oarnodes, oarnodesetting, oarnotify, oarproperty, oarqueue, oarremoveresource
from oar.cli.common.command import CommandResult
from oar.lib.bus.messages import Effect, Tag, Wake
from oar.lib.jobs.states import JobState
from oar.lib.nodes import state_changes
from oar.lib.nodes.states import ResourceState
from oar.lib.submission.resource_request import parse_request
from oar.lib.submission.sql_new_jobs import NewAlternative
from tests.builders import add_job, add_resources, execute_sql, move_job, state_of
from tests.db.console import EVE, Console
from tests.frontend import add_rules

# -- rights -----------------------------------------------------------------------------------------------------------


def test_users_may_look(console: Console) -> None:
    add_resources(console.database, nodes=1, cores=1, cpu=7)
    assert console.type(oarproperty.main, "-l", user=EVE).out == "cpu\ncpuset\nswitch\n"
    assert console.type(oarqueue.main, user=EVE).exit == 0
    assert console.type(oarnotify.main, "-l", user=EVE).exit == 0
    assert console.nodesetting("--last-property-value", "cpu", user=EVE) == CommandResult(0, "7\n", "")


def test_a_change_is_noted_in_the_log_of_the_server(console: Console) -> None:
    console.nodesetting("-a", "-h", "n1")
    log = Path(console.config.log_file).read_text()
    assert "[admin] user=root command=oarnodesetting add=True hosts=('n1',)" in log


# -- oarnodesetting: add ----------------------------------------------------------------------------------------------


def test_a_resource_is_added_with_its_properties(console: Console, sent: list[Effect]) -> None:
    assert console.nodesetting("-a", "-h", "n1", "-p", "cpu=1", "-p", "cpuset=0") == CommandResult(
        0,
        "New resource added:  n1\n"
        "Set property cpu to '1'... 1 resource(s) updated.\n"
        "Set property cpuset to '0'... 1 resource(s) updated.\n",
        "",
    )
    assert (console.values("network_address"), console.values("state"), console.values("state_num")) == (
        ["n1"],
        ["Alive"],
        [1],
    )
    assert console.history("state") == [("Alive", True)]
    assert console.history("cpu") == [("1", True)]
    assert sent == [Wake(Tag.CHSTATE), Wake(Tag.TERM)]


def test_several_hosts_from_lists_and_files(console: Console, tmp_path: Path) -> None:
    names = tmp_path / "hosts"
    names.write_text("# machines\nn3\n\n  n4  \n")
    console.nodesetting("-a", "-h", "n1,n2", "-f", names, "-p", "switch=sw1", "-s", "Absent")
    assert console.values("network_address") == ["n1", "n2", "n3", "n4"]
    assert set(console.values("switch")) == {"sw1"}
    assert set(console.values("state")) == {"Absent"}
    assert console.nodesetting("-a", "-f", tmp_path / "none") == CommandResult(
        13, "", f"/!\\ Cannot open the file {tmp_path / 'none'}.\n"
    )


def test_something_that_is_on_no_host(console: Console) -> None:
    assert console.nodesetting("-a", "-h", "", "-p", "type=licence").exit == 0
    refused = console.nodesetting("-a", "-h", "")
    assert (refused.exit, refused.err) == (
        9,
        "/!\\ Cannot update property network_address: a compute resource is on a host\n",
    )
    assert console.values("type") == ["licence"]


NO_HOST = "is not the name of a host: write letters, digits and . _ - or an IP address"


@pytest.mark.parametrize("name", ["bad name;x", "-oProxyCommand=x", "a'b", "n1.", "10.0.0", "n" * 101])
def test_what_is_no_name_of_a_host_becomes_no_node(console: Console, tmp_path: Path, name: str) -> None:
    names = tmp_path / "hosts"
    names.write_text(f"n1\n{name}\n")
    refusal = CommandResult(9, "", f"/!\\ Cannot update property network_address: {name!r} {NO_HOST}\n")
    assert console.nodesetting("-a", "-f", names) == refusal
    assert console.nodesetting("-a", f"-hn1,{name}") == refusal
    assert console.nodesetting("-a", f"-hn1,{name}", "-p", "type=licence") == refusal
    assert console.nodesetting("-a", "-h", "n1", "-p", f"network_address={name}") == refusal
    assert console.values("network_address") == []


def test_a_node_with_a_name_that_is_refused_now_can_still_be_led(console: Console) -> None:
    execute_sql(console.database, "INSERT INTO resources (network_address) VALUES ('bad name;x')")
    assert console.nodesetting("-n", "-h", "bad name;x", "-s", "Dead").out == "bad name;x --> Dead\n"
    assert console.nodesetting("-h", "bad name;x", "-p", "network_address=n1").exit == 0
    assert console.values("network_address") == ["n1"]


def test_machines_have_names_of_hosts(console: Console) -> None:
    for options in (["--host-prefix", "bad name;x"], ["--host-suffix", "'"], ["--host-prefix", "", "--host0", "12"]):
        for way in ([], ["-x"], ["-Y"], ["-R"]):
            refused = console.type(oar_resources_add.main, "-H", 2, *options, *way)
            assert refused.exit == 1
            assert "is not the name of a host" in refused.err.splitlines()[-1]
    assert console.values("network_address") == []


# -- oarnodesetting: properties ---------------------------------------------------------------------------------------


def test_a_property_is_set_and_unset_with_its_history(console: Console, sent: list[Effect]) -> None:
    add_resources(console.database, nodes=1, cores=2)
    assert console.nodesetting("-h", "node-1", "-p", "cpu = 64").out == (
        "Set property cpu to '64'... 2 resource(s) updated.\n"
    )
    assert sent == [Wake(Tag.TERM)]
    assert console.nodesetting("-r", first(console), "-p", "cpu=64").out == (
        "Set property cpu to '64'... 0 resource(s) updated.\n"
    )
    assert console.nodesetting("-h", "node-1", "-p", "cpu!").out == "Unset property cpu... 2 resource(s) updated.\n"
    assert console.values("cpu") == [None, None]
    assert console.history("cpu") == [("64", False), ("64", False), ("<unset>", True), ("<unset>", True)]


def test_a_value_in_quotes_is_shown_with_them(console: Console) -> None:
    add_resources(console.database, nodes=1, cores=1)
    assert console.nodesetting("-h", "node-1", "-p", "switch='sw1'").out == (
        "Set property switch to \"'sw1'\"... 1 resource(s) updated.\n"
    )
    assert console.nodesetting("-h", "node-1", "-p", "cpu='1'").err == (
        "/!\\ Cannot update property cpu: \"'1'\" is not an integer\n"
    )


def first(console: Console) -> int:
    """Return the id of the first resource."""
    with console.database.begin() as tx:
        return tx.resources.all()[0].id


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("xyz", 10, "Bad property syntax: xyz"),
        ("STATE_NUM=1", 8, "Cannot update property state_num because it is a system field."),
        ("cpu=many", 9, "Cannot update property cpu: 'many' is not an integer"),
        ("switch='; DROP TABLE jobs", 0, ""),
    ],
)
def test_what_is_wrong_with_a_property_is_found_before_anything_is_written(
    console: Console, text: str, code: int, message: str
) -> None:
    add_resources(console.database, nodes=1, cores=1)
    result = console.nodesetting("-h", "node-1", "-p", "cpu=5", "-p", text)
    assert (result.exit, result.err) == (code, f"/!\\ {message}\n" if message else "")
    assert console.values("cpu") == [None if code else 5]


def test_several_different_problems(console: Console) -> None:
    assert console.nodesetting("-h", "n1", "-p", "xyz", "-p", "state=Dead").exit == 15


def test_a_compute_resource_keeps_its_host(console: Console) -> None:
    add_resources(console.database, nodes=1, cores=1)
    assert console.nodesetting("-h", "node-1", "-p", "network_address=").exit == 9
    assert console.values("network_address") == ["node-1"]


# -- oarnodesetting: states -------------------------------------------------------------------------------------------


def test_a_state_is_asked_for_and_never_set(console: Console, sent: list[Effect]) -> None:
    ids = add_resources(console.database, nodes=1, cores=2)
    assert console.nodesetting("-s", "Absent", "-r", f"{ids[0]},{ids[1]}", "-n") == CommandResult(
        0, f"({ids[0]},{ids[1]}) --> Absent\n", ""
    )
    assert console.values("state") == ["Alive", "Alive"]
    assert console.values("next_state") == ["Absent", "Absent"]
    assert sent == [Wake(Tag.CHSTATE)]
    assert console.nodesetting("-s", "Dead", "-h", "node-1", "-n").out == "node-1 --> Dead\n"
    assert console.nodesetting("-s", "Alive", "-r", f"{ids[0]}-{ids[1]}").out == (
        f"({ids[0]},{ids[1]}) --> Alive\nDone\n"
    )
    assert console.nodesetting("-s", "Suspected", "--sql", "network_address = 'node-1'").exit == 0


def test_the_jobs_that_must_end_are_awaited(console: Console) -> None:
    ids = add_resources(console.database, nodes=2, cores=1)
    job_id = add_job(console.database, JobState.RUNNING, on=ids[:1])
    add_job(console.database, JobState.RUNNING, on=ids[:1], types=["noop"])
    late = console.nodesetting("-s", "Dead", "-h", "node-1,node-2", "--wait", "1")
    assert (late.exit, late.err) == (11, "")
    assert late.out == (
        "node-1 --> Dead\nnode-2 --> Dead\n"
        f"Check jobs to delete on node node-1:\n\t{job_id}  Timeout\n"
        "Check jobs to delete on node node-2:\nCheck done\n"
    )


def test_a_job_that_ends_in_time_is_said_to_be_deleted(console: Console) -> None:
    ids = add_resources(console.database, nodes=1, cores=1)
    job_id = add_job(console.database, JobState.FINISHING, on=ids)
    asked = threading.Event()

    def end() -> None:
        assert asked.wait(120)
        move_job(console.database, job_id, JobState.ERROR)

    console.database.deliver = lambda effects: asked.set()
    server = threading.Thread(target=end)
    server.start()
    result = console.nodesetting("-s", "Absent", "-r", ids[0])
    server.join(120)
    assert (result.exit, result.out.splitlines()[-1]) == (0, "Check done")
    assert f"Check jobs to delete on resource {ids[0]}:\n\t{job_id} " in result.out
    assert " Deleted\n" in result.out


BAD_STATE = "/!\\ Bad state value. Possible values are: Alive | Absent | Dead | Suspected"
EMPTY_CONDITION = "/!\\ Your SQL clause returns nothing and there is no resource specified."


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["-s", "Sleeping", "-r", "1"], 1, f"{BAD_STATE}, not Sleeping"),
        (["-s", "alive", "-r", "1"], 1, f"{BAD_STATE}, not alive"),
        (["-m", "yes", "-r", "1"], 1, "/!\\ Bad maintenance mode value. Possible values are: on | off, not yes"),
        (["-d", "yes", "-r", "1"], 1, "/!\\ Bad drain mode value. Possible values are: on | off, not yes"),
        (["-a", "-r", "1"], 1, "/!\\ You cannot use -r|--resource or --sql and -a|--add options at a same time"),
        (["-s", "Dead", "-r", "999999"], 2, "/!\\ Cannot find resources to set in OAR database."),
        (["-s", "Dead", "-h", "n9"], 4, "/!\\ Node n9 does not exist in OAR database."),
        (["-s", "Dead", "--sql", "type = 'x'"], 12, EMPTY_CONDITION),
        (["-m", "on", "-r", "999999"], 1, "/!\\ The resource 999999 does not exist in OAR database."),
        (["-s", "Dead", "-r", "x"], 1, '/!\\ "x" is not a resource identifier'),
        (["-s", "Dead", "--sql", "1=1) OR (1=1"], 1, None),
    ],
)  # fmt: skip
def test_bad_requests(console: Console, arguments: list[str], code: int, message: str | None) -> None:
    add_resources(console.database, nodes=1, cores=1)
    result = console.nodesetting(*arguments)
    assert (result.exit, result.out) == (code, "")
    assert message is None or result.err == f"{message}\n"
    assert result.err.count("\n") == 1
    assert console.values("next_state") == ["UnChanged"]


def test_what_is_not_there_is_said_and_the_rest_is_done(console: Console) -> None:
    ids = add_resources(console.database, nodes=1, cores=1)
    result = console.nodesetting("-s", "Suspected", "-r", f"{ids[0]},999999")
    assert result == CommandResult(3, f"({ids[0]}) --> Suspected\n", "/!\\  1 resource(s) cannot be updated.\n")
    result = console.nodesetting("-s", "Suspected", "-h", "node-1,n9")
    assert result == CommandResult(4, "node-1 --> Suspected\n", "/!\\ Node n9 does not exist in OAR database.\n")


def test_nothing_to_do_shows_the_usage(console: Console) -> None:
    result = console.nodesetting("-h", "n1")
    assert (result.exit, result.out) == (1, "")
    assert result.err.startswith("Usage: oarnodesetting")
    assert console.nodesetting("--help").exit == 0


def test_maintenance_takes_away_and_brings_back(console: Console) -> None:
    ids = add_resources(console.database, nodes=1, cores=2, available_upto=2147483646)
    result = console.nodesetting("-m", "on", "-h", "node-1", "-n")
    assert result.out == "".join(f'Maintenance mode set to "ON" on resource {one}\n' for one in ids)
    assert set(console.values("next_state")) == {"Absent"}
    assert set(console.values("available_upto")) == {0}
    assert console.history("maintenance") == [("on", True)] * 2
    console.nodesetting("-m", "on", "-h", "node-1", "-n")
    assert console.history("maintenance") == [("on", True)] * 2
    result = console.nodesetting("--care", "off", "-h", "node-1")
    assert result.out == "".join(f'Maintenance mode set to "OFF" on resource {one}\n' for one in ids)
    assert set(console.values("next_state")) == {"Alive"}
    assert set(console.values("available_upto")) == {2147483646}
    console.nodesetting("--care", "off", "-h", "node-1")
    assert console.history("maintenance") == [("on", False)] * 2
    with console.database.snapshot() as tx:
        assert tx.rows(
            "SELECT type, description, hostname FROM event_logs JOIN event_log_hostnames USING (event_id)"
        ) == [
            ("MAINTENANCE_BEGUN", "User root began the maintenance of node-1", "node-1"),
            ("MAINTENANCE_ENDED", "User root ended the maintenance of node-1", "node-1"),
        ]
    assert console.history("available_upto")[-1] == ("2147483646", True)


def test_a_drain_leaves_an_event_and_shows_among_the_states(console: Console) -> None:
    console.nodesetting("-a", "-h", "node-1,node-2")
    first, second = console.ids()
    for switch in ("on", "on", "off"):
        console.nodesetting("-d", switch, "-h", "node-1")
        shown = console.type(oarnodes.main, "-s", user=EVE).out
        assert shown == (
            f"node-1:\n    {first}: Alive{' (draining)' if switch == 'on' else ''}\nnode-2:\n    {second}: Alive\n"
        )
    record = console.type(oarnodes.main, "-s", "--json", user=EVE).out
    assert json.loads(record) == {"node-1": {str(first): "Alive"}, "node-2": {str(second): "Alive"}}
    with console.database.snapshot() as tx:
        assert tx.rows("SELECT type, description FROM event_logs ORDER BY event_id") == [
            ("DRAIN_BEGUN", "User root began the drain of node-1"),
            ("DRAIN_ENDED", "User root ended the drain of node-1"),
        ]


def test_a_node_says_that_it_goes_and_that_it_is_back_and_its_jobs_are_its_own(console: Console) -> None:
    for names in ("node-1", "node-1", "node-2"):
        console.nodesetting("-a", "-h", names)
    job = add_job(console.database, state=JobState.RUNNING, on=console.ids()[:1])
    assert console.nodesetting("--from-node", "-s", "Absent", "-h", "node-1") == CommandResult(
        0, "node-1 --> Absent\n", ""
    )
    assert console.values("next_state") == ["Absent", "Absent", "UnChanged"]
    with console.database.begin() as tx:
        assert state_changes.apply_pending(tx, sweeps=False).doomed == {}
    assert console.values("state") == ["Absent", "Absent", "Alive"]
    assert console.nodesetting("--from-node", "-s", "Absent", "-h", "node-1").out == "node-1 stays as it is\n"
    assert console.nodesetting("--from-node", "-s", "Alive", "-h", "node-1").out == "node-1 --> Alive\n"
    assert console.values("next_state") == ["Alive", "Alive", "UnChanged"]
    assert state_of(console.database, job) is JobState.RUNNING


def test_what_an_administrator_decided_of_a_node_stays_whatever_it_says(console: Console) -> None:
    console.nodesetting("-a", "-h", "node-1,node-2,node-3,node-4")
    console.nodesetting("-m", "on", "-h", "node-1", "-n")
    _, broken, silent, dead = console.ids()
    with console.database.begin() as tx:
        tx.resources.move([broken], ResourceState.SUSPECTED, finaud=False)
        tx.resources.move([silent], ResourceState.SUSPECTED, finaud=True)
        tx.resources.move([dead], ResourceState.DEAD, finaud=False)
        state_changes.apply_pending(tx, sweeps=False)
    said = console.nodesetting("--from-node", "-s", "Alive", "-h", "node-1,node-2,node-3,node-4,node-5")
    assert said.out.splitlines() == [
        "node-1 stays as it is",
        "node-2 stays as it is",
        "node-3 --> Alive",
        "node-4 stays as it is",
    ]
    assert (said.exit, said.err) == (4, "/!\\ Node node-5 does not exist in OAR database.\n")
    assert console.values("next_state") == ["UnChanged", "UnChanged", "Alive", "UnChanged"]


@pytest.mark.parametrize("words", ["-s Dead", "-s Alive -p cpu=1", "-s Alive -r 1", "-s Alive -d on", "-a -s Alive"])
def test_a_node_says_nothing_else(console: Console, words: str) -> None:
    console.nodesetting("-a", "-h", "node-1")
    said = console.nodesetting("--from-node", *words.split())
    assert (said.exit, said.out) == (1, "")
    assert "--from-node requires host names and -s Alive or -s Absent" in said.err


@pytest.mark.parametrize("name", ["nothing", "cpu", "x'; DROP TABLE jobs"])
def test_no_last_value(console: Console, name: str) -> None:
    assert console.nodesetting("--last-property-value", name) == CommandResult(
        0,
        "",
        f"# Warning: Cannot retrieve the last value for {name}. Either no resource or no such property exists (yet).\n",
    )


# -- oarproperty ------------------------------------------------------------------------------------------------------


def test_properties_are_added_renamed_and_removed(console: Console, sent: list[Effect]) -> None:
    assert console.type(oarproperty.main, "-a", "gpu", "-a", "Core") == CommandResult(
        0, "Added property: gpu\nAdded property: core\n", ""
    )
    assert sent == [Wake(Tag.TERM)]
    assert console.type(oarproperty.main, "-c", "-a", "model").exit == 0
    assert (console.columns()["gpu"], console.columns()["model"]) == ("integer", "character varying")
    console.nodesetting("-a", "-h", "n1", "-p", "gpu=3")
    assert console.type(oarproperty.main, "-r", "gpu,card").out == "Rename property gpu into card\n"
    assert console.history("card") == [("3", True)]
    head, first = console.type(oarproperty.main, "-l", "--full").out.splitlines()[:2]
    assert (head, first) == ("property\ttype\tvalues\tresources without", "card\tinteger\t1\t0")
    assert console.type(oarproperty.main, "-d", "card").out == "Removed property: card\n"
    assert "card" not in console.columns()


def test_a_property_that_is_there(console: Console) -> None:
    assert console.type(oarproperty.main, "-a", "cpu") == CommandResult(0, "Property 'cpu' already exists.\n", "")
    assert console.type(oarproperty.main, "-c", "-a", "cpu") == CommandResult(
        2, "", "Property 'cpu' already exists with type integer.\n"
    )
    assert console.type(oarproperty.main, "-q", "-a", "cpu") == CommandResult(0, "", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-a", "state"], "Error: 'state' is a OAR system property and may not be altered"),
        (["-a", "type"], "Error: 'type' is a OAR system property and may not be altered"),
        (["-d", "cpuset"], "Error: 'cpuset' is a OAR system property and may not be altered"),
        (["-a", "9x"], "Error: '9x' is not a valid property name"),
        (["-a", 'x"; DROP TABLE jobs; --'], "Error: 'x\"; drop table jobs; --' is not a valid property name"),
        (["-a", "user"], "Error: 'user' is a reserved SQL word"),
        (["-d", "gpu"], "Error: unknown property 'gpu'"),
        (["-r", "gpu,card"], "Error: unknown property 'gpu'"),
        (["-r", "cpu,switch"], "Error: property 'switch' already exists"),
        (["-r", "cpu,state"], "Error: 'state' is a OAR system property and may not be altered"),
        (["-a", "good", "-a", "9x"], "Error: '9x' is not a valid property name"),
    ],
)
def test_bad_properties(console: Console, arguments: list[str], message: str) -> None:
    before = console.columns()
    assert console.type(oarproperty.main, *arguments) == CommandResult(1, "", f"{message}\n")
    assert console.columns() == before


def test_a_property_in_use_is_neither_removed_nor_renamed(console: Console) -> None:
    console.type(oarproperty.main, "-a", "gpu")
    by_filter = add_job(console.database, properties="gpu = 2")
    by_level = add_job(console.database, alternatives=[NewAlternative(60, parse_request("/gpu=1").groups)])
    before = console.columns()
    users = f"job {by_filter}, job {by_level}"
    text = f"/!\\ property 'gpu' is used by 2 job(s)/rule(s): {users}\nTo do it anyway, add --force.\n"
    for words in (("-d", "gpu"), ("-r", "gpu,card")):
        assert console.type(oarproperty.main, *words) == CommandResult(3, "", text)
        assert console.columns() == before
    renamed = console.type(oarproperty.main, "-r", "gpu,card", "--force")
    assert (renamed.exit, renamed.err) == (0, f"/!\\ filters of live jobs still contain 'gpu': {by_filter}\n")
    assert console.type(oarproperty.main, "-d", "card", "--force").exit == 0


def test_a_property_that_a_rule_names_is_not_renamed(console: Console) -> None:
    console.type(oarproperty.main, "-a", "gpu")
    add_rules(console.database, "if 'gpu' in properties:\n    reject('no')", defaults=False)
    result = console.type(oarproperty.main, "-r", "gpu,card")
    with console.database.snapshot() as tx:
        (number,) = [rule.id for rule in tx.admission_rules.all(enabled=True) if "gpu" in rule.text]
    text = f"/!\\ property 'gpu' is used by 1 job(s)/rule(s): rule {number}\nTo do it anyway, add --force.\n"
    assert (result.exit, result.err) == (3, text)


def test_a_table_that_others_work_on(console: Console) -> None:
    with console.database.begin() as tx:
        tx.execute("SELECT pg_advisory_xact_lock(%s, 4)", (0x4F4153,))
        assert console.type(oarproperty.main, "-a", "gpu") == CommandResult(
            5, "", "[ERROR] the table is busy, try again\n"
        )


# -- oarremoveresource ------------------------------------------------------------------------------------------------


def bury(console: Console, ids: list[int]) -> None:
    """Let resources be Dead."""
    with console.database.begin() as tx:
        tx.resources.move(ids, ResourceState.DEAD, finaud=False)


def test_a_dead_resource_is_removed_and_the_jobs_that_ran_there_stay(console: Console) -> None:
    ids = add_resources(console.database, nodes=1, cores=2)
    job_id = add_job(console.database, JobState.TERMINATED, on=ids)
    bury(console, ids[:1])
    assert console.type(oarremoveresource.main, ids[0]) == CommandResult(
        0, f"Resource to remove: {ids[0]}\nResource {ids[0]} removed.\n", ""
    )
    with console.database.begin() as tx:
        assert [resource.id for resource in tx.resources.all()] == ids[1:]
        assert tx.jobs.find(job_id) is not None
        assert tx.value("SELECT count(*) FROM resource_logs WHERE resource_id = %s", (ids[0],)) == 0


def test_why_a_resource_is_not_removed(console: Console) -> None:
    ids = add_resources(console.database, nodes=1, cores=2)
    job_id = add_job(console.database, JobState.RUNNING, on=ids[:1])
    bury(console, ids[:1])
    for word, code, message in [
        (999999, 1, "The resource 999999 does not exist in OAR database."),
        ("x", 1, "The resource x does not exist in OAR database."),
        (ids[1], 2, f"The state of the resource {ids[1]} must be set to Dead before."),
        (ids[0], 5, f"The resource {ids[0]} is used by job {job_id}."),
    ]:
        result = console.type(oarremoveresource.main, word)
        assert result == CommandResult(code, f"Resource to remove: {word}\n", f"/!\\ {message}\n")
    assert console.type(oarremoveresource.main).exit == 1


def test_with_the_jobs_that_ran_there(console: Console) -> None:
    ids = add_resources(console.database, nodes=1, cores=1)
    job_id = add_job(console.database, JobState.TERMINATED, on=ids)
    bury(console, ids)
    refused = console.type(oarremoveresource.main, "--purge-jobs", ids[0])
    assert (refused.exit, refused.err) == (6, "/!\\ 1 job(s) not yet accounted: run oaraccounting first.\n")
    with console.database.begin() as tx:
        tx.jobs.update(job_id, accounted="YES")
    result = console.type(oarremoveresource.main, "--purge-jobs", "--sql", "state = 'Dead'")
    assert result.out == (
        f"Resource to remove: {ids[0]}\n\tRemove the job {job_id}, it was run on the resource {ids[0]}\n"
        f"Resource {ids[0]} removed.\n"
    )
    with console.database.begin() as tx:
        for table in ("jobs", "job_state_logs", "moldable_job_descriptions", "job_resource_groups", "challenges"):
            assert tx.value(f"SELECT count(*) FROM {table}") == 0, table


# -- oar_resources_add ------------------------------------------------------------------------------------------------


def test_lines_that_create_the_resources(console: Console) -> None:
    result = console.type(oar_resources_add.main, "-H", 1, "-C", 1, "-c", 2, "-A", "-p mem=4")
    assert result.out.splitlines() == [
        "oarproperty -c -a host",
        "oarproperty -a core",
        "oarnodesetting -a -h node-1 -p host=node-1 -p cpu=1 -p core=1 -p cpuset=0 -p mem=4",
        "oarnodesetting -a -h node-1 -p host=node-1 -p cpu=1 -p core=2 -p cpuset=1 -p mem=4",
    ]
    assert console.values("type") == []


def test_lines_that_repair(console: Console) -> None:
    result = console.type(oar_resources_add.main, "-R", "-p", "-H", 1, "-C", 1, "-c", 1, "-t", 2)
    assert result.out == (
        "oarnodesetting --sql \"network_address = 'node-1' and cpuset = '0,1'\" -p host=node-1 -p cpu=1 -p core=1\n"
    )


def test_the_lines_do_what_execute_does(console: Console) -> None:
    options = ["-H", 2, "-C", 1, "-c", 2, "-g", 2, "-T", "-t", 2]
    lines = console.type(oar_resources_add.main, *options).out.splitlines()
    commands = {"oarproperty": oarproperty.main, "oarnodesetting": oarnodesetting.main}
    for line in lines:
        command, *arguments = line.split()
        assert console.type(commands[command], *arguments).exit == 0
    names = ["network_address", "host", "cpu", "core", "thread", "gpu", "gpudevice", "cpuset", "state"]
    by_lines = [console.values(name) for name in names]
    with console.database.begin() as tx:
        tx.execute("DELETE FROM resources")
        tx.execute("DELETE FROM resource_logs")
    assert console.type(oar_resources_add.main, "-x", *options) == CommandResult(0, "8 resource(s) added.\n", "")
    assert [console.values(name) for name in names] == by_lines
    assert len(console.history("gpudevice")) == 8


def test_numbers_go_on_behind_the_last_ones(console: Console) -> None:
    console.type(oar_resources_add.main, "-x", "-H", 11, "-C", 1, "-c", 1)
    result = console.type(oar_resources_add.main, "-a", "-H", 1, "-C", 1, "-c", 1)
    assert result.out == "oarnodesetting -a -h node-12 -p host=node-12 -p cpu=12 -p core=12 -p cpuset=0\n"


def test_a_repair_of_what_is_there(console: Console) -> None:
    console.type(oar_resources_add.main, "-x", "-H", 1, "-C", 1, "-c", 2)
    console.nodesetting("-h", "node-1", "-p", "core!")
    assert console.type(oar_resources_add.main, "-R", "-x", "-H", 1, "-C", 1, "-c", 2).exit == 0
    assert console.values("core") == [1, 2]
    refused = console.type(oar_resources_add.main, "-R", "-x", "-H", 2, "-C", 1, "-c", 2)
    assert (refused.exit, refused.err) == (4, "/!\\ There is no resource of node-2 with the cpuset 0.\n")


def test_nothing_is_created_if_anything_is_wrong(console: Console) -> None:
    before = console.columns()
    refused = console.type(oar_resources_add.main, "-x", "-H", 1, "-A", "-p mem=4")
    assert refused.exit == 9
    assert "Cannot update property mem" in refused.err
    assert (console.columns(), console.values("type")) == (before, [])
    assert console.type(oar_resources_add.main, "-C", 2).err.endswith("Error: Syntax error, need a # of host.\n")
    assert "Bad definition of CPU topology" in console.type(oar_resources_add.main, "-H", 1, "--cputopo", "0,1").err


def test_a_file_and_yaml(console: Console, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    assert console.type(oar_resources_add.main, "-H", 1, "-o", lines) == CommandResult(0, "", "")
    assert lines.read_text().count("\n") == 2 + 8
    text = console.type(oar_resources_add.main, "-H", 1, "-C", 1, "-c", 1, "-Y").out
    assert "network_address: node-1" in text
    assert "core: 1" in text
