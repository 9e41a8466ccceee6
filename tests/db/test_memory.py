"""Memory that jobs ask for: from the command line to the plan and to the nodes."""

import json
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace

import pytest

from oar.cli import oaralter, oarstat, oarsub
from oar.cli.common.command import CommandResult
from oar.kao.rounds.meta_sched import MetaScheduler
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.jobs.records import Job, Memory
from oar.lib.jobs.states import JobState
from oar.lib.runtime import Runtime
from oar.modules.runner.actions import job_data
from tests.builders import add_resources, execute_sql
from tests.db.test_meta_sched import NOW, at
from tests.frontend import Frontend, add_rules

NO_KEY = "this site does not count memory (MEMORY_PROPERTY is not set)"


class Site(Frontend):
    """Two nodes of four cores, with 16 and 8 GiB, where time stands still."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.scheduler = MetaScheduler(Runtime(self.config, self.database))

    def oarsub(self, *words: str) -> CommandResult:
        return self.type(oarsub.main, *words)

    def submit(self, *words: str) -> Job:
        assert self.oarsub(*words, "true").exit == 0
        return self.jobs()[-1]

    def asked(self, job: Job) -> Sequence[Memory | None]:
        """Return the memory of each alternative, as it is stored."""
        with self.database.begin() as tx:
            return [each.memory for each in tx.new_jobs.moldables_of_jobs([job.id])[job.id]]

    def wanted(self, job: Job) -> str:
        """Return the requests as oarstat shows them."""
        record = json.loads(self.type(oarstat.main, "-J", "-j", str(job.id)).out)
        return str(next(iter(record.values()))["wanted_resources"])

    def started(self) -> Sequence[int]:
        self.scheduler.round()
        return [job.id for job in self.jobs() if job.state is JobState.TO_LAUNCH]

    def limits(self, job: Job) -> object:
        """Return what the nodes of a job are told of its memory."""
        with self.database.begin() as tx:
            data = job_data.read(tx, job.id)
        assert data is not None
        return job_data.manager_data(data, self.config).get("memory_limits")


Made = Callable[..., Site]


@pytest.fixture
def make(database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[Made]:
    monkeypatch.setattr(oarsub, "time", SimpleNamespace(time=lambda: NOW))
    add_resources(database, nodes=2, cores=4)
    add_rules(database)
    execute_sql(database, "ALTER TABLE resources ADD COLUMN memory integer")
    execute_sql(database, "UPDATE resources SET memory = 16384 / (1 + (network_address = 'node-2')::int)")
    made: list[Site] = []

    def make(**keys: object) -> Site:
        values = {"job_resource_manager_property_db_field": "cpuset", "memory_property": "memory", **keys}
        made.append(Site(at(database, NOW), Config(**values)))
        return made[-1]

    yield make
    for site in made:
        site.scheduler.close()


@pytest.fixture
def site(make: Made) -> Site:
    return make()


@pytest.mark.parametrize(
    ("words", "memory"),
    [
        (("-l", "nodes=1/resource_id=2,mem=8G"), Memory(8192)),
        (("-l", "nodes=1,walltime=1,mem_per_core=500M"), Memory(500, is_per_core=True)),
        (("--mem", "8G"), Memory(8192)),
        (("--mem-per-core", "2G"), Memory(2048, is_per_core=True)),
        (("--mem", "8G", "-l", "nodes=1,mem=1G"), Memory(1024)),
        ((), None),
    ],
)
def test_memory_is_stored_with_the_job(site: Site, words: Sequence[str], memory: Memory | None) -> None:
    assert site.asked(site.submit(*words)) == [memory]


def test_each_alternative_has_its_own_and_oarstat_shows_it(site: Site) -> None:
    job = site.submit("-l", "nodes=1,walltime=1,mem=6G", "-l", "resource_id=2,walltime=2", "--mem-per-core", "1G")
    assert site.asked(job) == [Memory(6144), Memory(1024, is_per_core=True)]
    first, second = site.wanted(job).split(" -l ")
    assert first.endswith('/network_address=1,mem=6G,walltime=1:0:0"')
    assert second.endswith('/resource_id=2,mem_per_core=1G,walltime=2:0:0" ')


def test_a_script_names_it(site: Site, tmp_path: object) -> None:
    with open(f"{tmp_path}/job.sh", "w") as file:
        file.write("#!/bin/sh\n#OAR --mem 4G\ntrue\n")
    assert site.oarsub("-S", f"{tmp_path}/job.sh").exit == 0
    assert site.asked(site.jobs()[-1]) == [Memory(4096)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--mem", "8"), '"8" is not a size of memory: write a number with K, M, G or T, as in 500M or 8G'),
        (("--mem", "8G", "--mem-per-core", "1G"), "--mem and --mem-per-core cannot be used together."),
        (("-l", "nodes=1,mem=lots"), '"lots" is not a size of memory'),
        (("-l", "nodes=1,mem=900G"), "too few nodes have 900 GiB of memory: ask for less memory"),
        (("-l", "nodes=2", "--mem", "9G"), "too few nodes have 9 GiB of memory: ask for less memory"),
        (("-l", "nodes=1", "--mem-per-core", "5G"), "too few nodes have 5 GiB of memory per core: ask for less memory"),
        (("-l", "nodes=2", "--mem-per-core", "3G"), "too few nodes have 3 GiB of memory per core: ask for less memory"),
        (("-l", "nodes=2/resource_id=3", "--mem-per-core", "3G"), "too few nodes have 3 GiB of memory per core"),
        (("-l", "nodes=1+{network_address='node-2'}/nodes=1", "--mem-per-core", "3G"), "too few nodes have 3 GiB"),
        (("-t", "container", "--mem", "1G"), "a container reserves no memory: its inner jobs ask for it."),
    ],
)
def test_what_is_refused(site: Site, words: Sequence[str], said: str) -> None:
    result = site.oarsub(*words, "true")
    assert result.exit != 0
    assert said in result.err + result.out
    assert site.jobs() == []


@pytest.mark.parametrize("words", [("--mem", "8G"), ("--mem-per-core", "1G"), ("-l", "nodes=1,mem=8G")])
def test_without_the_key_there_is_no_memory(make: Made, words: Sequence[str]) -> None:
    site = make(memory_property=None)
    result = site.oarsub(*words, "true")
    assert result.exit != 0
    assert NO_KEY in result.err + result.out
    assert site.jobs() == []


def test_jobs_start_where_there_is_memory_and_nodes_get_their_limit(site: Site) -> None:
    first, second = site.submit("-l", "resource_id=1,mem=10G"), site.submit("-l", "resource_id=2,mem=3G")
    third = site.submit("-l", "resource_id=1", "--mem", "4G")
    waiting = site.submit("-l", "resource_id=1", "--mem", "6G")
    plain = site.submit("-l", "resource_id=1")
    assert site.started() == [first.id, second.id, third.id, plain.id]
    assert site.limits(first) == {"node-1": 10240}
    assert site.limits(plain) is None
    explained = site.type(oarstat.main, "--explain", "-j", str(waiting.id)).out
    assert "It asks for 6 GiB of memory per node, which is not free before" in explained


def test_memory_for_each_core_is_the_limit_of_a_node_with_all_its_cores(site: Site) -> None:
    job = site.submit("-l", "nodes=1/resource_id=3", "--mem-per-core", "1G")
    assert site.started() == [job.id]
    assert site.limits(job) == {"node-1": 3072}


def test_a_default_counts_jobs_that_name_none_but_no_containers(make: Made) -> None:
    site = make(memory_default_per_core=2000)
    assert site.asked(site.submit()) == [Memory(2000, is_per_core=True, is_default=True)]
    assert site.asked(site.submit("--mem", "1G")) == [Memory(1024)]
    assert site.asked(site.submit("-t", "container")) == [None]


def test_oaralter_changes_it_and_keeps_it(site: Site) -> None:
    job = site.submit("-l", "resource_id=1,walltime=1,mem=4G")
    assert site.type(oaralter.main, str(job.id), "-l", "walltime=2").exit == 0
    assert site.asked(job) == [Memory(4096)]
    assert site.type(oaralter.main, str(job.id), "-l", "mem=2G").exit == 0
    assert site.asked(job) == [Memory(2048)]
    assert site.wanted(job).endswith('/resource_id=1,mem=2G,walltime=2:0:0" ')


def test_an_estimate_knows_it(site: Site) -> None:
    site.submit("-l", "nodes=1/resource_id=1,walltime=1,mem=16G")
    site.submit("-l", "nodes=1/resource_id=1,walltime=1,mem=8G")
    site.started()
    record = json.loads(site.oarsub("--estimate", "-J", "--mem", "1G", "true").out)
    assert record != json.loads(site.oarsub("--estimate", "-J", "true").out)


def test_a_copy_of_a_job_asks_for_the_same(site: Site) -> None:
    job = site.submit("-l", "resource_id=1,mem=4G")
    execute_sql(site.database, f"UPDATE jobs SET state = 'Terminated' WHERE job_id = {job.id}")
    assert site.oarsub("--resubmit", str(job.id)).exit == 0
    assert site.asked(site.jobs()[-1]) == [Memory(4096)]


@pytest.mark.parametrize(
    "words",
    [
        ("-l", "nodes=1", "--mem-per-core", "4G"),
        ("-l", "nodes=2/resource_id=2", "--mem-per-core", "4G"),
        ("-l", "resource_id=6", "--mem-per-core", "4G"),
        ("-l", "{cpuset < '2'}/nodes=1", "--mem-per-core", "8G"),
        ("-l", "nodes=1+{network_address='node-2'}/nodes=1/resource_id=2", "--mem-per-core", "4G"),
    ],
)
def test_a_request_is_admitted_if_the_nodes_have_the_memory_of_its_cores(site: Site, words: Sequence[str]) -> None:
    assert site.started() == []
    job = site.submit(*words)
    assert site.started() == [job.id]


def add_licences(database: Database) -> None:
    execute_sql(database, "ALTER TABLE resources ADD COLUMN IF NOT EXISTS licence text")
    execute_sql(
        database,
        "INSERT INTO resources (type, network_address, state, licence) VALUES ('licence', '', 'Alive', 'matlab-1')",
    )


@pytest.mark.parametrize("words", [("--mem", "4G"), ("--mem-per-core", "4G"), ()])
def test_resources_without_a_node_need_no_memory(make: Made, words: Sequence[str]) -> None:
    site = make(memory_default_per_core=4096)
    add_licences(site.database)
    job = site.submit("-l", "{type='licence'}/licence=1+{type='default'}/nodes=1", *words)
    only = site.submit("-l", "{type='licence'}/licence=1,walltime=1", *words)
    assert site.started() == [job.id]
    assert [each.id for each in site.jobs()] == [job.id, only.id]


def test_the_default_makes_no_node_too_small_and_is_the_share_of_each_core(make: Made) -> None:
    site = make(memory_default_per_core=8192)
    small = site.submit("-l", "{network_address='node-2'}/nodes=1")
    part = site.submit("-l", "{network_address='node-1'}/nodes=1/resource_id=3")
    rest = site.submit("-l", "{network_address='node-1'}/nodes=1/resource_id=1")
    assert site.started() == [small.id, part.id, rest.id]
    limits = [site.limits(job) for job in (small, part, rest)]
    assert limits == [{"node-2": 8192}, {"node-1": 12288}, {"node-1": 4096}]


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("ALTER TABLE resources ALTER COLUMN memory TYPE text", "property memory has the type text: name a property"),
        ("ALTER TABLE resources DROP COLUMN memory", "resources have no property memory: oarproperty --add memory"),
    ],
)
def test_a_property_that_holds_no_memory_is_named_and_stops_no_other_job(
    make: Made, statement: str, reason: str
) -> None:
    site = make(memory_default_per_core=1000)
    execute_sql(site.database, statement)
    result = site.oarsub("--mem", "1G", "true")
    assert result.exit != 0
    assert f"MEMORY_PROPERTY: {reason}" in result.err + result.out
    assert "inform an administrator" in result.err + result.out
    assert site.asked(site.submit()) == [None]


TWO = ("-l", "nodes=2,walltime=1,mem=2G", "-l", "nodes=1,walltime=2,mem=6G")


@pytest.mark.parametrize(
    ("rule", "memories"),
    [
        ("resource_request.pop(0)", [6144]),
        ("resource_request.reverse()", [6144, 2048]),
        ("resource_request[:] = [each for each in resource_request if each[1] == 3600]", [2048]),
        ("for groups, _ in resource_request:\n    groups[0]['property'] = 'resource_id > 0'", [2048, 6144]),
        ("import copy; resource_request = copy.deepcopy(resource_request)[1:]", [6144]),
    ],
)
def test_alternatives_keep_their_memory_if_a_rule_changes_the_list(
    site: Site, rule: str, memories: Sequence[int]
) -> None:
    add_rules(site.database, rule, defaults=False)
    assert site.asked(site.submit(*TWO)) == [Memory(mib) for mib in memories]


def test_a_rule_that_replaces_alternatives_of_different_memory_is_refused(site: Site) -> None:
    add_rules(
        site.database,
        "resource_request = [[groups, walltime] for groups, walltime in resource_request]",
        defaults=False,
    )
    result = site.oarsub(*TWO, "true")
    assert result.exit != 0
    assert "a rule replaced alternatives (-l) that request different amounts of memory" in result.err + result.out
    same = site.submit("-l", "nodes=1", "-l", "resource_id=3", "--mem", "2G")
    assert site.asked(same) == [Memory(2048)] * 2
