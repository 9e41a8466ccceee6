"""Two servers and two databases: a promotion during a take-over, and the chaos command.

The command chooses random faults of servers, databases and nodes under load, in an order that its seed determines.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from random import Random

import psycopg2
import pytest
from room import fault_log, layout, services
from room.harm import Harm

from tests.acceptance.conftest import SETTINGS, own_room
from tests.acceptance.harness import Cluster, checked, tool, wait_until
from tests.acceptance.load import Load
from tests.acceptance.servers import SLACK, Servers

pytestmark = pytest.mark.slow

_OPTIONS = ("--nodes", "2", "--cores", "4", "--servers", "2", "--databases", "2", "--fast-db")
#: Seconds after a promotion in which jobs must be accepted and started again.
_SERVICE_SECONDS = 15
#: The warden that holds the lock and waits for the row of the generation.
_IN_TAKE_OVER = """
SELECT 1 FROM pg_stat_activity
WHERE application_name LIKE 'oar:warden%' AND wait_event_type = 'Lock' AND query LIKE '%UPDATE server_generation%'"""


@pytest.fixture(scope="module")
def pairs(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Two servers, two PostgreSQL servers and two nodes."""
    settings = [word for line in SETTINGS for word in ("--set", line)]
    with own_room(request, "chaos", *_OPTIONS, *settings) as cluster:
        yield cluster


@contextlib.contextmanager
def generation_held(cluster: Cluster, primary: str) -> Iterator[None]:
    """Hold the row of the generation: a take-over waits for it, and ends this session after a second."""
    top = f"/proc/{cluster.status()['machines']['server']['pid']}/root"
    socket = f"{top}/run/postgresql{primary.removeprefix(layout.DATABASE)}"
    connection = psycopg2.connect(host=socket, dbname="oar", user="oar", password=services.PASSWORD)
    try:
        connection.cursor().execute("SELECT generation FROM server_generation FOR UPDATE")
        yield
    finally:
        connection.close()


def test_a_promotion_during_a_take_over_loses_nothing(pairs: Cluster) -> None:
    servers = Servers(pairs)
    pairs.sql(fault_log.FORGET + fault_log.RECORD)
    active = wait_until(servers.active, "a server is active")
    wait_until(servers.are_ready, "the other one waits for the lock")
    primary, replica = Harm(servers.room, Random(0)).databases()
    with Load(pairs, host=servers.other(active)) as load:
        load.wait_for_jobs(10)
        begin = servers.now()
        with generation_held(pairs, primary):
            servers.do(active, "kill-all")
            wait_until(lambda: pairs.sql(_IN_TAKE_OVER), "the take-over has begun")
            pairs.database_on(primary).do("kill")
        pairs.database_on(replica).do("promote")
        load.wait_for_service(within=SLACK * _SERVICE_SECONDS)
        servers.print_take_over("promotion during a take-over", begin)
        servers.cure(active, "kill-all")
        pairs.database_on(primary).do("follow")
        load.wait_for_jobs(5)
        load.stop()
    load.assert_nothing_lost()
    servers.assert_sound()
    pairs.calm()


def test_jobs_survive_a_minute_of_faults(pairs: Cluster) -> None:
    printed = checked(tool("chaos", "--seed", "28", "--minutes", "1", room=pairs.room)).out
    assert printed.startswith("seed 28\n")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--minutes", "-1"), "--minutes: -1 must be between 0 and 10000"),
        (("--count", "0"), "--count: 0 must be between 1 and 10000"),
        (("--clients", "0"), "--clients: 0 must be between 1 and 10000"),
    ],
)
def test_a_number_that_is_none_is_refused(pairs: Cluster, words: tuple[str, ...], text: str) -> None:
    refused = tool("chaos", *words, room=pairs.room)
    assert (refused.code, refused.err) == (1, f"cluster: {text}\n")
