"""An oar.conf of an older version on a site that works, and one that names a program that is missing."""

from __future__ import annotations

import pytest

from tests.acceptance.harness import Cluster, configured, wait_until

#: The checkers of nodes that OAR 2 and 3 configure, and their job resource managers.
OLD_LINES = [
    (
        'PINGCHECKER_SENTINELLE_SCRIPT_COMMAND="/usr/local/lib/oar/sentinelle.pl -t 30 -w 20"',
        'JOB_RESOURCE_MANAGER_FILE="/etc/oar/job_resource_manager_systemd.pl"',
    ),
    (
        'TAKTUK_CMD="/usr/bin/taktuk -t 30 -s"',
        'PINGCHECKER_TAKTUK_ARG_COMMAND="broadcast exec timeout 5 kill 9 [ true ]"',
        'JOB_RESOURCE_MANAGER_FILE="/etc/oar/job_resource_manager_cgroups.pl"',
    ),
]


@pytest.mark.parametrize("lines", OLD_LINES, ids=["sentinelle", "taktuk"])
def test_a_job_runs_with_the_programs_that_an_old_file_names(cluster: Cluster, lines: tuple[str, ...]) -> None:
    with configured(cluster, *lines):
        check = cluster.as_user("root").attempt("oar-conf --check")
        assert "[ERROR]" not in check.err
        job = cluster.as_user("alice").submit("-l nodes=2 true")
        cluster.wait_for_state(job, "Terminated")


def test_a_missing_program_holds_jobs_until_it_is_there(cluster: Cluster) -> None:
    alice, root = cluster.as_user("alice"), cluster.as_user("root")
    with configured(cluster, "SERVER_PROLOGUE_EXEC_FILE=/etc/oar/no_prologue"):
        check = root.attempt("oar-conf --check")
        assert (check.code, "no such program on this machine" in check.err) == (1, True)
        job = alice.submit("true")
        wait_until(lambda: "No job is started until" in alice.run(f"oarstat --explain -j {job}"))
        assert cluster.state(job) == "Waiting"
        held = "SELECT count(*) FROM launch_holds WHERE fault = 'CONFIGURATION'"
        assert cluster.sql(held) == [["1"]]
    cluster.wait_for_state(job, "Terminated")
    assert cluster.sql(held) == [["0"]]
