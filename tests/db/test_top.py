"""What oarstat --top reads: the cluster, the queues, and the first jobs."""

import pytest

from oar.cli.oarstat_parts import top
from oar.cli.oarstat_parts.top_view import Board, TopQueue
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.jobs.privacy import privacy_for
from oar.lib.jobs.states import JobState
from tests.builders import add_job, add_resources, execute_sql
from tests.frontend import ALICE


def board(database: Database, user: str | None, *, is_private: bool = False) -> Board:
    with database.snapshot() as tx:
        return top.read_board(tx, user, privacy_for(Config(oarstat_private=is_private), ALICE))


def test_commands_of_others_are_hidden_where_oarstat_hides_them(database: Database) -> None:
    for user in ("alice", "bob"):
        job = add_job(database, user=user)
        execute_sql(database, "UPDATE jobs SET job_name = NULL, command = %s WHERE job_id = %s", f"/x/{user}.sh", job)
    assert [job.name for job in board(database, None).jobs] == ["alice.sh", "bob.sh"]
    assert [job.name for job in board(database, None, is_private=True).jobs] == ["alice.sh", ""]
    assert [job.name for job in board(database, "bob", is_private=True).jobs] == [""]


def test_the_numbers_are_of_all_jobs_and_the_list_is_bounded(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(top, "MOST_JOBS", 2)
    resources = add_resources(database, nodes=3, cores=2)
    execute_sql(database, "UPDATE resources SET state = 'Dead' WHERE resource_id = %s", resources[5])
    first, *_ = (add_job(database, user="alice") for _ in range(3))
    running = add_job(database, JobState.RUNNING, on=resources[:1], user="alice", walltime=3600)
    add_job(database, user="bob")
    found = board(database, "alice")
    assert [job.id for job in found.jobs] == [running, first]
    assert (found.jobs[0].note, found.hidden) == ("node-1", 2)
    assert TopQueue("default", "Active", 1, 4) in found.queues
    assert found.nodes == {"free": 1, "not free": 2, "not alive": 0}
    assert {name: number for name, number in found.resources.items() if number} == {"free": 4, "used": 1, "dead": 1}
    assert board(database, None).hidden == 3
