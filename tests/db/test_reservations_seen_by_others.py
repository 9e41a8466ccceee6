"""Advance reservations as programs see them that know jobs only: by the tables of jobs and of the plan."""

from pathlib import Path

import pytest

from oar.cli import oarstat
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.jobs.records import Queue
from oar.lib.jobs.states import JobState, QueueState
from oar.lib.reservations.states import ReservationState as S
from oar.lib.runtime import Runtime
from tests.builders import add_job, add_resources
from tests.db.reservation_site import HOUR, NOW, Site
from tests.db.test_external_schedulers import Site as ExternalSite
from tests.frontend import Frontend

#: What Monika asks: who has or will have which node.  DrawGantt: from when to when, of what kind.
HOLDERS = """
    SELECT DISTINCT r.network_address, j.job_user, j.state FROM jobs j
    JOIN assigned_resources a ON a.moldable_job_id = j.assigned_moldable_job
    JOIN resources r ON r.resource_id = a.resource_id
    WHERE a.assigned_resource_index = 'CURRENT' AND j.state = 'Running' ORDER BY 1"""
FORESEEN = """
    SELECT j.job_id, j.state, p.start_time, p.start_time + m.moldable_walltime,
        array_agg(g.resource_id ORDER BY g.resource_id)
    FROM gantt_jobs_predictions_visu p JOIN gantt_jobs_resources_visu g USING (moldable_job_id)
    JOIN moldable_job_descriptions m ON m.moldable_id = p.moldable_job_id JOIN jobs j ON j.job_id = m.moldable_job_id
    GROUP BY 1, 2, 3, 4 ORDER BY 1"""
KINDS = "SELECT type FROM job_types WHERE job_id = %s AND types_index = 'CURRENT' ORDER BY 1"
#: What OAR 2.5's oarstat lists: all jobs that have not ended.
LISTED = """
    SELECT job_id, job_user, state, reservation, start_time FROM jobs
    WHERE state NOT IN ('Terminated', 'Error') ORDER BY 1"""


def test_a_frame_is_a_reservation_job_of_the_type_container(site: Site) -> None:
    ids = add_resources(site.database, nodes=2, cores=2)
    number = site.ask("/network_address=1", NOW + 100, NOW + HOUR)
    site.round()
    frame = site.get(number).frame_id
    with site.database.begin() as tx:
        assert tx.rows(FORESEEN) == [(frame, "Waiting", NOW + 100, NOW + HOUR, ids[:2])]
        assert tx.rows(LISTED) == [(frame, "alice", "Waiting", "Scheduled", NOW + 100)]
        assert "container" in tx.column(KINDS, (frame,))
        assert tx.rows(HOLDERS) == []
    site.round(NOW + 100)
    with site.database.begin() as tx:
        assert tx.rows(HOLDERS) == [("node-1", "alice", "Running")]
        assert tx.rows(FORESEEN) == [(frame, "Running", NOW + 100, NOW + HOUR, ids[:2])]
        assert tx.rows(LISTED) == [(frame, "alice", "Running", "Scheduled", NOW + 100)]
    site.round(NOW + HOUR)
    with site.database.begin() as tx:
        assert tx.rows(HOLDERS) == tx.rows(LISTED) == []


def test_our_own_list_shows_frames_when_it_is_asked_to(site: Site) -> None:
    add_resources(site.database)
    number = site.ask("/resource_id=1", NOW + 100, NOW + HOUR)
    site.round()
    desk, frame = Frontend(site.database, Config()), str(site.get(number).frame_id)
    assert frame not in desk.type(oarstat.main).out.split()
    assert frame in desk.type(oarstat.main, "--frames").out.split()


@pytest.mark.parametrize(("resource", "is_kept"), [(0, True), (2, False)])
def test_an_external_scheduler_sees_what_is_reserved_and_places_jobs_inside(
    database: Database, runtime: Runtime, tmp_path: Path, resource: int, is_kept: bool
) -> None:
    external = ExternalSite(database, runtime, tmp_path)
    site = Site(database, runtime)
    ids = add_resources(database, nodes=2, cores=2)
    with database.begin() as tx:
        tx.queues.insert(Queue("planned", 1, "mine", QueueState.ACTIVE))
    number = site.ask("/network_address=1", NOW, NOW + HOUR)
    site.round()
    assert site.state(number) is S.RUNNING
    inside = add_job(database, queue="planned", types=(f"inner={site.get(number).frame_id}",), walltime=600)
    with database.begin() as tx:
        tx.reservations.add_job(number, [inside])
    external.program(
        f"""
        assert {{row[0] for row in rows("SELECT resource_id FROM gantt_jobs_resources")}} == {set(ids[:2])}
        place(jobs[0][1], now, {ids[resource]})
        """,
        queue="planned",
    )
    external.scheduler().round()
    external.close()
    assert (site.job(inside) is JobState.TO_LAUNCH) is is_kept
