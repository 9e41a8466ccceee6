"""oarnodes as a user sees it: every layout letter for letter, on a real database."""

import json
from collections.abc import Iterator

import pytest
import yaml

from oar.cli.common.command import CommandResult, invoke
from oar.cli.oarnodes import main
from oar.lib.access.records import User
from oar.lib.base.times import DATE_FORMS, format_date
from oar.lib.config.files import Config
from oar.lib.db.connections import DatabaseSettings
from oar.lib.db.database import Database
from oar.lib.jobs.states import JobState
from oar.lib.runtime import Runtime
from tests.builders import add_job, add_resources, execute_sql

EVE = User("eve", 1001)
NOW = 1_930_000_000
DATE = format_date(NOW)
NO_NODES = "/!\\ No nodes to display...\n"


class Cluster:
    """A database with resources, and oarnodes as a user calls it."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.ids = add_resources(database, nodes=2, cores=2)

    def oarnodes(self, *arguments: str | int) -> CommandResult:
        """Run oarnodes."""
        return invoke(main, [str(each) for each in arguments], runtime=Runtime(Config(), self.database), user=EVE)

    def shows(self, *arguments: str | int) -> str:
        """Run oarnodes, which must succeed without a word on stderr; return what it prints."""
        result = self.oarnodes(*arguments)
        assert (result.exit, result.err) == (0, "")
        return result.out

    def read(self, *arguments: str | int) -> object:
        """Return what JSON says."""
        return json.loads(self.shows(*arguments, "-J"))

    def job(self, *resources: int, **columns: object) -> int:
        """Add a running job."""
        return add_job(self.database, JobState.RUNNING, on=resources, **columns)  # type: ignore[arg-type]

    def execute(self, statement: str, *parameters: object) -> None:
        """Change something by hand."""
        execute_sql(self.database, statement, *parameters)

    def event(self, kind: str, node: str, job_id: int = 0) -> None:
        """Add an event of a node."""
        with self.database.begin() as tx:
            tx.events.add(kind, job_id, f"{kind} on\n{node}", hosts=[node])


@pytest.fixture
def cluster(settings: DatabaseSettings) -> Iterator[Cluster]:
    """Two nodes of two cores, no job, and a clock that stands still."""
    database = Database(settings, clock=lambda: NOW)
    yield Cluster(database)
    database.close()


PROPERTIES = (
    "properties: available_upto=2147483647, besteffort=YES, cpuset=0, deploy=NO, desktop_computing=NO, drain=NO, "
    "last_available_upto=0, network_address=node-1, type=default\n"
)


def test_a_resource_in_full(cluster: Cluster) -> None:
    job = cluster.job(cluster.ids[0], types=["timesharing"])
    assert cluster.shows("-r", cluster.ids[0]) == (
        f"network_address: node-1\nresource_id: {cluster.ids[0]}\nstate: Alive\njobs: {job}\n{PROPERTIES}\n"
    )
    other = cluster.job(cluster.ids[0], types=["timesharing"])
    assert f"\njobs: {job}, {other}\n" in cluster.shows("-r", cluster.ids[0])


def test_properties_that_an_administrator_added_are_shown_where_they_are_set(cluster: Cluster) -> None:
    cluster.execute("ALTER TABLE resources ADD COLUMN gpu integer")
    cluster.execute("UPDATE resources SET gpu = 3 WHERE resource_id = %s", cluster.ids[1])
    assert "gpu" not in cluster.shows("-r", cluster.ids[0])
    assert ", drain=NO, gpu=3, last_available_upto=0" in cluster.shows("-r", cluster.ids[1])
    assert cluster.shows("--sql", "gpu = '3'").splitlines()[1] == f"resource_id: {cluster.ids[1]}"


def test_resources_come_by_node_and_those_without_one_at_the_end(cluster: Cluster) -> None:
    (licence,) = add_resources(cluster.database, nodes=1, cores=1, network_address="", type="licence")
    (late,) = add_resources(cluster.database, nodes=1, cores=1)
    ids = [line.split()[1] for line in cluster.shows().splitlines() if line.startswith("resource_id")]
    one, two, three, four = cluster.ids
    assert ids == [str(each) for each in (one, two, late, three, four, licence)]


def test_an_absent_resource_that_can_be_woken_is_in_standby(cluster: Cluster) -> None:
    def state(until: int) -> str:
        cluster.execute("UPDATE resources SET state = 'Absent', available_upto = %s", until)
        return cluster.shows("-r", cluster.ids[0]).splitlines()[2]

    assert state(2147483647) == "state: Absent"
    assert state(2147483646) == "state: Absent (standby)"
    assert state(NOW + 1) == "state: Absent (standby)"
    assert state(NOW) == "state: Absent"


def test_jobs_are_shown_only_on_a_resource_that_is_alive(cluster: Cluster) -> None:
    cluster.job(cluster.ids[0])
    cluster.execute("UPDATE resources SET state = 'Suspected'")
    assert "jobs:" not in cluster.shows()


def test_only_the_properties(cluster: Cluster) -> None:
    lines = cluster.shows("-r").splitlines(keepends=True)
    assert lines[0] == PROPERTIES
    assert len(lines) == 4


def test_all_is_what_is_shown_anyway(cluster: Cluster) -> None:
    assert cluster.shows("-a") == cluster.shows() != ""


def test_states(cluster: Cluster) -> None:
    one, two, three, four = cluster.ids
    cluster.execute("UPDATE resources SET state = 'Dead' WHERE resource_id = %s", two)
    assert cluster.shows("-s") == (
        f"node-1:\n    {one}: Alive\n    {two}: Dead\nnode-2:\n    {three}: Alive\n    {four}: Alive\n"
    )
    assert cluster.shows("-s", "node-2") == f"node-2:\n    {three}: Alive\n    {four}: Alive\n"
    assert cluster.shows("-s", "-r", one, "-r", two) == f"{one}: Alive\n{two}: Dead\n"
    assert cluster.shows("-s", "--sql", "state = 'Dead'") == f"{two}: Dead\n"
    assert cluster.read("-s", "node-1") == {"node-1": {str(one): "Alive", str(two): "Dead"}}
    assert cluster.read("-s", "-r", two) == {str(two): "Dead"}
    assert cluster.shows("-s", "-Y", "node-1") == f"---\nnode-1:\n  {one}: Alive\n  {two}: Dead\n"


def test_names(cluster: Cluster) -> None:
    add_resources(cluster.database, nodes=1, cores=1, network_address="")
    assert cluster.shows("-l") == "node-1\nnode-2\n"
    assert cluster.read("-l", "node-2") == ["node-2"]


def test_jobs_on_nodes(cluster: Cluster) -> None:
    one, two, three, _ = cluster.ids
    job = cluster.job(one, two, three, user="eve", name="md", project="bio", types=["idempotent", "besteffort"])
    assert cluster.shows("-j", "node-1") == (
        "node-1:\n"
        f"    {job}:\n"
        f"        assigned_resources: {one}, {two}\n"
        "        name: md\n"
        "        owner: eve\n"
        "        project: bio\n"
        "        queue: default\n"
        "        resources_count: 2\n"
        "        resources_total: 3\n"
        "        state: Running\n"
        "        types: idempotent, besteffort\n"
    )
    document = cluster.read("-j")
    assert isinstance(document, dict)
    assert document["node-1"][str(job)]["projet"] == "bio"
    assert document["node-2"][str(job)]["assigned_resources"] == [three]
    assert document["node-2"][str(job)]["types"] == ["idempotent", "besteffort"]


def test_jobs_are_the_same_whatever_is_asked_beside_them(cluster: Cluster) -> None:
    cluster.job(cluster.ids[0])
    assert cluster.shows("-j", "-s") == cluster.shows("-j")


def test_events_of_nodes(cluster: Cluster) -> None:
    for number in range(25):
        cluster.event(f"HALT_NODE_{number}", "node-1")
    cluster.event("FINAUD_ERROR", "node-2", job_id=7)
    assert cluster.shows("-e", "--", "node-2") == f"{DATE}|node-2|7| FINAUD_ERROR: FINAUD_ERROR on\\nnode-2\n"
    assert len(cluster.shows("-e").splitlines()) == 21
    assert len(cluster.shows("-e", "last").splitlines()) == 21
    assert len(cluster.shows("-e", "last 3").splitlines()) == 4
    assert cluster.shows("-e", "last", "2", "node-1").splitlines() == [
        f"{DATE}|node-1|0| HALT_NODE_{number}: HALT_NODE_{number} on\\nnode-1" for number in (23, 24)
    ]
    assert len(cluster.shows("-e", DATE).splitlines()) == 26
    assert cluster.shows("-e", format_date(NOW + 1)) == ""
    document = cluster.read("-e", "last 1", "node-2")
    assert isinstance(document, dict)
    assert sorted(document["node-2"][0]) == [
        "date", "description", "event_id", "hostname", "job_id", "to_check", "type",
    ]  # fmt: skip


def test_every_column_is_in_the_record(cluster: Cluster) -> None:
    document = cluster.read()
    assert isinstance(document, dict)
    assert list(document) == [str(each) for each in cluster.ids]
    with cluster.database.begin() as tx:
        assert list(document[str(cluster.ids[0])]) == list(tx.resources.columns())
    one, two = cluster.job(cluster.ids[0]), cluster.job(cluster.ids[0])
    record = cluster.read("-r", cluster.ids[0])
    assert isinstance(record, dict)
    assert record[str(cluster.ids[0])]["jobs"] == f"{one}, {two}"


def test_yaml_shows_a_single_job_as_a_number(cluster: Cluster) -> None:
    job = cluster.job(cluster.ids[0])
    text = cluster.shows("-Y")
    assert text.startswith("---\n")
    assert f"\n  jobs: {job}\n" in text
    assert yaml.safe_load(text)[cluster.ids[0]]["jobs"] == job


def test_nothing_to_show(cluster: Cluster) -> None:
    nobody = f"# Warning: node pc does not exist.\n{NO_NODES}"
    assert cluster.oarnodes("pc") == CommandResult(0, "", nobody)
    assert cluster.oarnodes("-s", "pc") == CommandResult(0, "", nobody)
    assert cluster.oarnodes("-l", "pc") == CommandResult(0, "", nobody)
    assert cluster.oarnodes("-e", "--", "pc") == CommandResult(0, "", nobody)
    assert cluster.oarnodes("-J", "pc") == CommandResult(0, "{}\n", NO_NODES)
    assert cluster.oarnodes("--sql", "false") == CommandResult(0, "", "")
    nothing = "# Warning: resource 99999999999 does not exist.\n"
    assert cluster.oarnodes("-r", "99999999999") == CommandResult(0, "", nothing)
    assert cluster.oarnodes("-r", "99999999999", "-J").err == ""
    assert cluster.oarnodes("--sql", "false", "-J") == CommandResult(0, "{}\n", "")
    cluster.execute("DELETE FROM resources")
    assert cluster.oarnodes() == CommandResult(0, "", NO_NODES)


def test_a_name_that_no_node_has_is_told_beside_those_that_are_shown(cluster: Cluster) -> None:
    result = cluster.oarnodes("-l", "node-1", "nod-2", "\x1b[2J")
    assert (result.exit, result.out) == (0, "node-1\n")
    assert result.err == (
        '# Warning: node \\x1b[2J does not exist.\n# Warning: node nod-2 does not exist.\n# Did you mean "node-2"?\n'
    )
    assert cluster.oarnodes("-s", "node-1", "-J", "nod-2").err == ""


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["-r", "1", "node-1"], '# Error: --resource and --sql cannot be combined with node names: "node-1"'),
        (["-r", "x"], '# Error: --resource and --sql cannot be combined with node names: "x"'),
        (["--sql", "true", "-e"], "# Error: --resource and --sql cannot be combined with --events"),
        (["-r", "-j"], "# Error: --resource and --sql cannot be combined with --jobs"),
        (["-r", "-l"], "# Error: --resource and --sql cannot be combined with --list"),
        (["-e", "last x"], "# Error: --events takes a date, last, or last and a number, not 'last x'"),
        (["-e", "node-1"], f'# Error: "node-1" is not a date: use {DATE_FORMS}'),
        (["--sql", "1=1 --"], "# Error: invalid SQL condition: '--' is not allowed at character 5"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(cluster: Cluster, arguments: list[str], text: str) -> None:
    assert cluster.oarnodes(*arguments) == CommandResult(1, "", text + "\n")


def test_no_value_can_forge_a_line(cluster: Cluster) -> None:
    cluster.execute("UPDATE resources SET switch = %s", "x\nstate: Dead")
    assert "switch=x\\nstate: Dead" in cluster.shows()


# ------------------------------------------------------------------------------------------------------------- summary


def test_a_summary_of_what_is_free_used_and_out_of_service(cluster: Cluster) -> None:
    add_resources(cluster.database, nodes=1, cores=3, network_address="node-3")
    cluster.job(cluster.ids[0])
    cluster.execute("UPDATE resources SET state = 'Suspected' WHERE resource_id = %s", cluster.ids[2])
    cluster.execute("UPDATE resources SET drain = 'YES' WHERE network_address = 'node-3'")
    cluster.job(cluster.ids[3] + 1)
    assert cluster.shows("--summary") == (
        "Node       total  reserved      free      used  draining    absent suspected      dead\n"
        "node-1         2         -         1         1         -         -         -         -\n"
        "node-2         2         -         1         -         -         -         1         -\n"
        "node-3         3         -         -         1         2         -         -         -  no new jobs\n"
        "total          7         -         2         2         2         -         1         -\n"
    )
    record = cluster.read("--summary", "node-3")
    conditions = {"free": 0, "used": 1, "draining": 2, "absent": 0, "suspected": 0, "dead": 0}
    assert record == {"node-3": {"total": 3, "reserved": 0, **conditions, "drain": True, "reason": None}}
    assert cluster.shows("--summary", "--sql", "drain = 'NO' AND state = 'Suspected'").splitlines()[1:] == [
        "node-2         1         -         -         -         -         -         1         -"
    ]


def test_what_is_free(cluster: Cluster) -> None:
    one, two, three, four = cluster.ids
    cluster.job(one, two)
    cluster.execute("UPDATE resources SET drain = 'YES' WHERE resource_id = %s", three)
    assert cluster.shows("--free", "-s") == f"node-2:\n    {four}: Alive\n"
    assert cluster.shows("--free", "-l") == "node-2\n"
    assert cluster.read("--free", "-l") == ["node-2"]
    assert list(json.loads(cluster.shows("--free", "-J"))) == [str(four)]
    assert cluster.shows("--free", "--summary").splitlines()[1].split()[:4] == ["node-2", "1", "-", "1"]
    assert cluster.shows("--free", "node-1") == ""


@pytest.mark.parametrize(
    "words", [("--summary", "-s"), ("--summary", "-l"), ("--summary", "-j"), ("--free", "-j"), ("--free", "-e")]
)
def test_what_says_nothing_together(cluster: Cluster, words: tuple[str, str]) -> None:
    result = cluster.oarnodes(*words)
    assert (result.exit, result.out) == (1, "")
    assert "cannot be combined with" in result.err
