"""What the cluster could ever give, under how many hands, and with whose rights."""

import os
import pwd
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oar.lib.access.records import User
from oar.lib.base.errors import BadCondition
from oar.lib.base.resource_set import from_positions
from oar.lib.db.connections import DatabaseSettings
from oar.lib.db.database import Database
from oar.lib.db.user_sql import Asker
from oar.lib.jobs.records import Group, Level
from oar.lib.nodes.hierarchy import Hierarchy, Layout, PooledGroup
from oar.lib.submission.feasibility import UnknownProperty, open_cluster
from oar.lib.submission.resource_request import ALL, BEST, BEST_HALF, parse_request
from oar.lib.user_files.files import UserFiles
from tests.builders import add_resources, execute_sql
from tests.frontend import add_rules
from tests.postgres import PostgreSQL

REPOSITORY = Path(__file__).parent.parent.parent
NOBODY = pwd.getpwnam("nobody")


def size(database: Database, request: str, properties: str = "") -> int | None:
    with open_cluster(database, Asker("alice")) as cluster:
        return cluster.size(parse_request(request).groups, properties)


class TestSize:
    @pytest.fixture
    def cluster(self, database: Database) -> Database:
        """Nodes 1 to 4 with two cores each, node-5 with four; node-4 is Dead, node-3 Suspected; a licence."""
        add_resources(database, nodes=4, cores=2)
        add_resources(database, nodes=1, cores=4, network_address="node-5", cpuset="9")
        add_resources(database, nodes=1, cores=3, network_address="", type="licence")
        with database.begin() as tx:
            tx.execute("UPDATE resources SET state = 'Dead' WHERE network_address = 'node-4'")
            tx.execute("UPDATE resources SET state = 'Suspected' WHERE network_address = 'node-3'")
        return database

    @pytest.mark.parametrize(
        ("request_", "expected"),
        [
            ("/resource_id=1", 1),
            ("/resource_id=13", 13),
            ("/resource_id=14", None),
            ("/network_address=4", 10),
            ("/network_address=5", None),
            ("/network_address=1", 4),
            ("/network_address=ALL", 10),
            ("/network_address=BEST", 10),
            ("/network_address=BESTHALF", 6),
            ("/network_address=4/resource_id=2", 8),
            ("/network_address=1/resource_id=3", 3),
            ("/network_address=2/resource_id=3", None),
            ("/network_address=ALL/resource_id=3", None),
            ("/network_address=BEST/resource_id=3", 3),
            ("/network_address=3/cpuset=2", 6),
            ("/cpuset=1/network_address=3", 3),
            ("{type='licence'}/resource_id=3", 3),
            ("{type='licence'}/network_address=1", None),
            ("/network_address=4+{type='licence'}/resource_id=3", 13),
            ("/network_address=4+/network_address=1", None),
            ("/network_address=3+/network_address=1/resource_id=2", 8),
            ("/network_address=3+/network_address=1/resource_id=5", None),
            ("{network_address='node-1'}/network_address=1+{network_address='node-5'}/resource_id=1", 3),
        ],
    )
    def test_requests_on_a_cluster_where_everybody_is_away(
        self, cluster: Database, request_: str, expected: int | None
    ) -> None:
        assert size(cluster, request_) == expected

    def test_conditions_hold_for_all_groups_and_nothing_escapes_them(self, cluster: Database) -> None:
        assert size(cluster, "/resource_id=3", "network_address = 'node-1'") is None
        assert size(cluster, "{true or true}/resource_id=3", "network_address = 'node-1' and true") is None
        assert size(cluster, "/resource_id=1+/resource_id=2", "network_address = 'node-1' or false") is None
        assert size(cluster, "/resource_id=2", "network_address LIKE '%1'") == 2

    def test_what_is_no_property_and_what_is_no_condition(self, cluster: Database) -> None:
        with pytest.raises(UnknownProperty, match='unknown resource property "foo"'):
            size(cluster, "/foo=1")
        with pytest.raises(BadCondition):
            size(cluster, "{foo = 1}/resource_id=1")
        with pytest.raises(BadCondition, match="a number is divided by zero"):
            size(cluster, "{1/(resource_id-resource_id) = 1}/resource_id=1")

    def test_properties_with_strange_names(self, cluster: Database) -> None:
        execute_sql(cluster, 'ALTER TABLE resources ADD COLUMN "odd""%s" integer DEFAULT 1')
        with open_cluster(cluster, Asker("alice")) as opened:
            assert opened.size([Group("", (Level('odd"%s', 1),))], "") == 13


LEVELS = ("network_address", "cpuset", "available_upto", "resource_id")
quantities = st.sampled_from([1, 2, 3, ALL, BEST, BEST_HALF])
levels = st.lists(st.sampled_from(LEVELS), min_size=1, max_size=3, unique=True).flatmap(
    lambda names: st.tuples(*(st.builds(Level, st.just(name), quantities) for name in names))
)
rows = st.lists(
    st.tuples(st.sampled_from(["", "a", "b", "c"]), st.sampled_from(["0", "1", "2"]), st.integers(0, 2)),
    min_size=1,
    max_size=9,
)


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(rows=rows, groups=st.lists(levels, min_size=1, max_size=2))
def test_the_database_counts_as_the_planner_does(
    database: Database, rows: Sequence[tuple[str, str, int]], groups: Sequence[tuple[Level, ...]]
) -> None:
    with database.begin() as tx:
        tx.execute("DELETE FROM resources")
        tx.resources.insert(
            [{"network_address": node, "cpuset": cpuset, "available_upto": upto} for node, cpuset, upto in rows]
        )
    columns = {name: [row[place] for row in rows] for place, name in enumerate(LEVELS[:3])}
    everything = from_positions(range(len(rows)))
    planner = Hierarchy(Layout(columns, len(rows)), range(len(rows)))
    taken = planner.request(tuple(PooledGroup(everything, group) for group in groups)).fit(everything)
    with open_cluster(database, Asker("alice")) as cluster:
        counted = cluster.size([Group("", group) for group in groups], "")
    assert (counted is None) == (taken == 0)
    if counted is not None:
        assert counted >= taken.bit_count()  # the planner takes the first that fit, the estimate the largest


class TestFilesOfUsers:
    """Nobody's rights are those that count, whoever runs the command."""

    @pytest.fixture
    def files(self) -> UserFiles:
        if os.geteuid() != 0:
            pytest.skip("only root can be somebody else")
        return UserFiles(User(NOBODY.pw_name, NOBODY.pw_uid), "sudo -n")

    @pytest.fixture
    def home(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(dir="/tmp") as name:
            path = Path(name)
            path.chmod(0o755)
            os.chown(path, NOBODY.pw_uid, NOBODY.pw_gid)
            yield path

    def test_a_file_that_only_root_may_read_is_not_read(self, files: UserFiles, home: Path) -> None:
        secret = home / "secret"
        secret.write_text("secret")
        secret.chmod(0o600)
        with pytest.raises(OSError, match="cannot read"):
            files.read(str(secret))
        (home / "link").symlink_to(secret)
        with pytest.raises(OSError, match="cannot read"):
            files.read(str(home / "link"))

    def test_a_pipe_is_not_waited_for(self, files: UserFiles, home: Path) -> None:
        os.mkfifo(home / "pipe", 0o666)
        with pytest.raises(OSError, match="cannot read"):
            files.read(str(home / "pipe"))
        with pytest.raises(OSError, match="cannot read"):
            UserFiles(User("root", os.geteuid()), "").read(str(home / "pipe"))

    def test_a_file_of_his_own_is_read(self, files: UserFiles, home: Path) -> None:
        path = home / "it's; $(touch no)"
        path.write_bytes(b"\xff\n")
        path.chmod(0o600)
        os.chown(path, NOBODY.pw_uid, NOBODY.pw_gid)
        read = files.read(str(path))
        assert (read.data, read.is_executable) == (b"\xff\n", False)
        path.chmod(0o700)
        assert files.read(str(path)).is_executable

    def test_a_secret_is_his_and_nobody_elses(self, files: UserFiles, home: Path) -> None:
        path = home / "key"
        path.write_text("before")
        os.chown(path, NOBODY.pw_uid, NOBODY.pw_gid)
        path.chmod(0o644)
        files.write_secret(str(path), "key")
        status = path.stat()
        assert (path.read_text(), stat.S_IMODE(status.st_mode), status.st_uid) == ("key", 0o600, NOBODY.pw_uid)
        with pytest.raises(OSError, match="cannot write"):
            files.write_secret("/etc/oar-test-key", "key")


#: Submits four jobs, each in a process of its own; the first argument is the name of the client.
FOUR_TIMES = """
import os
client = sys.argv[1]
for number in range(4):
    sys.argv[1:] = ["-n", f"{client}.{number}", "true"]
    child = os.fork()
    if not child:
        main()
    if os.waitpid(child, 0)[1]:
        sys.exit(1)
"""


class TestManyHands:
    """Commands as programs, each in a process of its own."""

    @pytest.fixture
    def command(self, database: Database, settings: DatabaseSettings) -> Sequence[str]:
        """The words before oarsub's own: run as nobody, since root may not submit."""
        add_resources(database, nodes=2, cores=2)
        add_rules(database)
        Path(settings.host).chmod(0o755)
        conf = Path(settings.host) / "oar.conf"
        conf.write_text(
            f'DB_HOSTNAME="{settings.host}"\nDB_BASE_NAME="{settings.name}"\nDB_BASE_LOGIN="{settings.user}"\n'
            f'DB_BASE_LOGIN_RO="{settings.ro_user}"\nSERVER_HOSTNAME="127.0.0.1"\nAPPENDICE_SERVER_PORT="1"\n'
        )
        conf.chmod(0o644)
        program = f"import sys; sys.path.insert(0, {str(REPOSITORY)!r}); from oar.cli.oarsub import main; main()"
        return [sys.executable, "-I", "-c", program]

    def run(
        self, command: Sequence[str], settings: DatabaseSettings, *words: str
    ) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*command, *words],
            env={"OARCONFFILE": f"{settings.host}/oar.conf"},
            capture_output=True,
            text=True,
            check=False,
            user="nobody" if os.geteuid() == 0 else None,
            cwd="/",
        )

    def test_two_hundred_by_fifty_clients_are_all_there_exactly_once_though_few_may_connect(
        self, command: Sequence[str], settings: DatabaseSettings, database: Database, postgres: PostgreSQL
    ) -> None:
        many = [*command[:-1], command[-1].replace("main()", FOUR_TIMES)]
        postgres.execute(f"ALTER DATABASE {settings.name} CONNECTION LIMIT 16")
        try:
            with ThreadPoolExecutor(50) as pool:
                clients = list(pool.map(lambda number: self.run(many, settings, str(number)), range(50)))
        finally:
            postgres.execute(f"ALTER DATABASE {settings.name} CONNECTION LIMIT -1")
        assert [client.returncode for client in clients] == [0] * 50
        with database.snapshot() as tx:
            named = tx.column("SELECT job_name FROM jobs ORDER BY job_id")
            stored = tx.column("SELECT job_id FROM jobs ORDER BY job_id")
        assert sorted(named) == sorted(f"{client}.{number}" for client in range(50) for number in range(4))
        lines = [line for client in clients for line in client.stdout.splitlines()]
        assert sorted(int(line[len("OAR_JOB_ID=") :]) for line in lines if line.startswith("OAR_JOB_ID=")) == stored

    @pytest.mark.parametrize(
        ("number", "says"),
        [
            (signal.SIGINT, "# Caught Interrupt (^C), Deleting the job {}...\nJob(s) deleted.\n"),
            (signal.SIGTERM, ""),
            (signal.SIGHUP, ""),
        ],
    )
    def test_who_stops_waiting_for_his_reservation_does_not_want_it(
        self, command: Sequence[str], settings: DatabaseSettings, database: Database, number: int, says: str
    ) -> None:
        with subprocess.Popen(
            [*command, "-r", "2031-03-04 10:00:00", "true"],
            env={"OARCONFFILE": f"{settings.host}/oar.conf"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            user="nobody" if os.geteuid() == 0 else None,
            cwd="/",
        ) as process:
            assert process.stdout is not None
            lines = iter(process.stdout.readline, "# Advance reservation request: waiting for validation...\n")
            (job_id,) = (int(line[len("OAR_JOB_ID=") :]) for line in lines if line.startswith("OAR_JOB_ID="))
            process.send_signal(number)
            err = process.communicate(timeout=60)[1]
        assert process.returncode == 1
        assert [line for line in err.splitlines(keepends=True) if "cannot contact" not in line] == says.format(
            job_id
        ).splitlines(keepends=True)
        with database.begin() as tx:
            assert tx.job_requests.find_kill(job_id) is not None

    def test_a_server_that_is_away_is_a_warning(self, command: Sequence[str], settings: DatabaseSettings) -> None:
        result = self.run(command, settings, "true")
        assert result.returncode == 0
        assert result.stderr == (
            "# Warning: cannot contact the OAR server 127.0.0.1:6666,"
            " the request is recorded and will be treated later.\n"
        )

    def test_a_database_that_is_away_is_one_line(self, command: Sequence[str], settings: DatabaseSettings) -> None:
        conf = Path(settings.host) / "oar.conf"
        conf.write_text('DB_HOSTNAME="/no/where"\nMAX_DB_CONNECTION_TIMEOUT="1"\n')
        result = self.run(command, settings, "true")
        assert (result.returncode, result.stdout) == (2, "")
        assert result.stderr == (
            "# Error: cannot reach the OAR database: oar at /no/where:5432: no server listens at this socket,"
            " tried for 1 s. Try again later, or inform an administrator.\n"
        )

    def test_bytes_that_are_not_utf_8_are_refused_in_one_line(
        self, command: Sequence[str], settings: DatabaseSettings, database: Database
    ) -> None:
        result = self.run(command, settings, os.fsdecode(b"echo \xff"))
        assert (result.returncode, result.stderr) == (5, "# Error: the command is not UTF-8 text.\n")
        result = self.run(command, settings, "-d", os.fsdecode(b"/tmp/\xff"), "true")
        assert result.returncode == 8
        assert result.stderr.splitlines()[:2] == [
            "# Warning: -d /tmp/\\xff: this directory does not exist here, the job fails where it does not.",
            "# Error: the working directory is not UTF-8 text.",
        ]
        with database.snapshot() as tx:
            assert tx.value("SELECT count(*) FROM jobs") == 0
