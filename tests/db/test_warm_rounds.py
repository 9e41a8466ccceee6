"""A warm scheduler reads, plans and writes what has changed, and comes to the same as a cold one."""

from dataclasses import replace

from oar.kao.meta_sched import MetaScheduler
from oar.kao.platform import TRUST, Platform
from oar.lib import control
from oar.lib.db.engine import Database
from oar.lib.model import Dependency
from oar.lib.runtime import Runtime
from oar.lib.states import JobState
from tests.builders import add_resources, for_no_reason
from tests.db.test_meta_sched import NOW, at, clocked, submit  # noqa: F401 - a fixture


def test_what_is_read_warm_follows_every_change(clocked: Database, runtime: Runtime) -> None:  # noqa: F811
    add_resources(clocked, nodes=4, cores=2)
    first, second, third = (submit(clocked, "/network_address=1") for _ in range(3))
    warm = Platform(clocked, runtime.config)
    MetaScheduler(runtime).round()
    waiting = submit(clocked, "/network_address=4", user="bob")

    def is_followed() -> bool:
        read = warm.read()
        cold = Platform(clocked, runtime.config).read()
        return read == cold

    assert is_followed()
    with clocked.begin() as tx:
        tx.execute("INSERT INTO job_dependencies (job_id, job_id_required) VALUES (%s, %s)", (waiting, first))
    assert is_followed()
    with clocked.begin() as tx:
        tx.execute("UPDATE moldable_job_descriptions SET moldable_walltime = 7 WHERE moldable_job_id = %s", (second,))
        tx.jobs.insert_types({third: ("besteffort",)})
    assert is_followed()
    with clocked.begin() as tx:
        control.ask_end(tx, for_no_reason(waiting))
    assert is_followed()
    with clocked.begin() as tx:
        tx.jobs.move([first], JobState.LAUNCHING, list(JobState))
        tx.execute("UPDATE jobs SET job_name = 'other' WHERE job_id = %s", (waiting,))
    assert is_followed()


def test_jobs_that_have_not_changed_are_the_same_objects_until_everything_is_read_anew(
    clocked: Database,  # noqa: F811
    runtime: Runtime,
) -> None:
    add_resources(clocked)
    submit(clocked)
    warm = Platform(clocked, runtime.config)
    (before,) = warm.read().snapshot.waiting
    submit(clocked, "{cpuset = '0'}/resource_id=1")
    assert warm.read().snapshot.waiting[0] is before
    at(clocked, NOW + TRUST)
    anew = warm.read().snapshot.waiting[0]
    assert anew is not before
    assert replace(anew) == before


def test_what_a_job_requires_is_read_whatever_became_of_it(clocked: Database, runtime: Runtime) -> None:  # noqa: F811
    add_resources(clocked)
    first, second = submit(clocked), submit(clocked)
    with clocked.begin() as tx:
        tx.execute("INSERT INTO job_dependencies (job_id, job_id_required) VALUES (%s, %s)", (second, first))
        for state in (JobState.TO_ERROR, JobState.ERROR):
            tx.jobs.move([first], state, list(JobState))
    snapshot = Platform(clocked, runtime.config).read().snapshot
    assert [(each.id, each.state) for each in snapshot.required] == [(first, JobState.ERROR)]
    assert snapshot.waiting[0].dependencies == (Dependency(second, first),)
