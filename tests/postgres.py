"""A private PostgreSQL for one test process: made in a temporary directory, gone with the process."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg2

#: Nothing of it has to survive a crash.
PROFILE = """
fsync = off
synchronous_commit = off
full_page_writes = off
shared_buffers = 64MB
max_connections = 100
logging_collector = off
listen_addresses = ''
"""
#: As a site runs it.
DURABLE = """
shared_buffers = 128MB
max_connections = 100
logging_collector = off
listen_addresses = ''
"""
#: A commit that does not wait for the disk never gets there but with one that does: nothing else writes.
FORGETFUL = """
fsync = off
synchronous_commit = on
full_page_writes = off
wal_level = minimal
max_wal_senders = 0
wal_writer_delay = 10s
wal_buffers = 16MB
wal_writer_flush_after = 0
bgwriter_lru_maxpages = 0
checkpoint_timeout = 1h
autovacuum = off
shared_buffers = 64MB
max_connections = 100
logging_collector = off
listen_addresses = ''
"""
START_SECONDS = 30
CRASH_SECONDS = 120


def find_programs() -> Path:
    """Return the directory of PostgreSQL's programs: ``$OAR_TEST_PG_BIN``, the newest of Debian's, or of ``PATH``."""
    named = os.environ.get("OAR_TEST_PG_BIN")
    if named:
        return Path(named)
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if installed:
        return installed[-1].parent
    found = shutil.which("initdb")
    if found is None:
        raise RuntimeError("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    return Path(found).resolve().parent


class PostgreSQL:
    """A server on a socket of its own, run by the user postgres when the tests run as root."""

    def __init__(self, profile: str = PROFILE) -> None:
        self._profile = profile
        self.programs = find_programs()
        self.directory = Path(tempfile.mkdtemp(prefix="oar-pg-", dir="/tmp"))
        self.socket = str(self.directory)
        self._data = self.directory / "data"
        self.prefix = ["setpriv", "--pdeathsig=QUIT"]
        if os.geteuid() == 0:
            account = pwd.getpwnam("postgres")
            os.chown(self.directory, account.pw_uid, account.pw_gid)
            self.prefix += ["--reuid=postgres", "--regid=postgres", "--init-groups"]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Make the cluster and wait until it takes connections."""
        self._run(
            "initdb",
            *("-D", str(self._data), "-U", "postgres", "-A", "trust"),
            *("--no-sync", "-E", "UTF8", "--locale=C.UTF-8"),
        )
        self._serve()

    def follow(self, primary: "PostgreSQL") -> None:
        """Start as a streaming replica of another server."""
        self._run("pg_basebackup", "-D", str(self._data), "-h", primary.socket, "-U", "postgres", "-R", "--no-sync")
        self._serve()

    def await_commits(self, primary: "PostgreSQL") -> None:
        """Wait until this replica has everything that the primary has committed."""
        position = primary.value("SELECT pg_current_wal_insert_lsn()")
        deadline = time.monotonic() + CRASH_SECONDS
        while not self.value(f"SELECT pg_last_wal_replay_lsn() >= '{position}'"):
            if time.monotonic() > deadline:
                raise TimeoutError
            time.sleep(0.02)

    def promote(self) -> None:
        """Make this replica the primary."""
        self.execute("SELECT pg_promote()")

    def _serve(self) -> None:
        data = self._data
        with (data / "postgresql.conf").open("a") as configuration:
            configuration.write(f"{self._profile}unix_socket_directories = '{self.socket}'\n")
        with (self.directory / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [*self.prefix, str(self.programs / "postgres"), "-D", str(data)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment(),
                cwd="/",
            )
        self._wait()

    def stop(self) -> None:
        """End the server and remove its files."""
        if self.process is not None:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait(timeout=START_SECONDS)
        shutil.rmtree(self.directory, ignore_errors=True)

    def execute(self, statement: str, database: str = "postgres", user: str = "postgres") -> None:
        """Run ``statement`` by itself, as an administrator of PostgreSQL unless ``user`` says otherwise."""
        connection = self.connect(database, user)
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement)
        finally:
            connection.close()

    def value(self, query: str) -> Any:
        """Return the only value of a query."""
        with closing(self.connect("postgres", "postgres")) as connection, connection.cursor() as cursor:
            cursor.execute(query)
            (value,) = cursor.fetchone() or (None,)
            return value

    def connect(self, database: str, user: str) -> "psycopg2.extensions.connection":
        """Open a connection that commits each statement."""
        connection = psycopg2.connect(host=self.socket, dbname=database, user=user)
        connection.autocommit = True
        return connection

    @contextmanager
    def outage(self, database: str, left: int = 0) -> Iterator[None]:
        """Cut off those who are connected to a database, and let so few but administrators reach it for a while."""
        ours = f"backend_type = 'client backend' AND datname = '{database}'"
        self.execute(f"ALTER DATABASE {database} CONNECTION LIMIT {left}")
        try:
            self.execute(f"SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity WHERE {ours}")
            yield
        finally:
            self.execute(f"ALTER DATABASE {database} CONNECTION LIMIT -1")

    def hold_writer(self) -> int:
        """Stop the process that takes commits to the disk later, where it holds no lock; return its id."""
        deadline = time.monotonic() + CRASH_SECONDS
        while time.monotonic() < deadline:
            process, _ = self._writer()
            if process:
                os.kill(process, signal.SIGSTOP)
                if self._writer() == (process, "WalWriterMain"):
                    return process
                os.kill(process, signal.SIGCONT)
            time.sleep(0.02)
        raise TimeoutError

    def crash(self) -> None:
        """Crash, and come back without the commits that were not on the disk; to be called after ``hold_writer``."""
        process, _ = self._writer()
        os.kill(process, signal.SIGKILL)
        deadline = time.monotonic() + CRASH_SECONDS
        while time.monotonic() < deadline:
            with suppress(psycopg2.OperationalError):
                if self._writer()[0] not in (0, process):
                    return
            time.sleep(0.02)
        raise TimeoutError

    def _writer(self) -> tuple[int, str | None]:
        """Return the process that takes commits to the disk, 0 if there is none, and what it waits for."""
        connection = self.connect("postgres", "postgres")
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pid, wait_event FROM pg_stat_activity WHERE backend_type = 'walwriter'")
                return cursor.fetchone() or (0, None)
        finally:
            connection.close()

    def _environment(self) -> dict[str, str]:
        return {"LC_ALL": "C.UTF-8", "PATH": os.environ.get("PATH", "/usr/bin:/bin")}

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [*self.prefix, str(self.programs / program), *arguments],
            check=True,
            capture_output=True,
            env=self._environment(),
            cwd="/",
        )

    def _wait(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                return self.execute("SELECT 1")
            except psycopg2.OperationalError:
                if time.monotonic() > deadline or (self.process is not None and self.process.poll() is not None):
                    raise RuntimeError((self.directory / "log").read_text()) from None
                time.sleep(0.02)


@contextmanager
def running(profile: str = PROFILE) -> Iterator[PostgreSQL]:
    """Have a server that takes connections, and end it."""
    server = PostgreSQL(profile)
    try:
        server.start()
        yield server
    finally:
        server.stop()


@contextmanager
def running_pair() -> Iterator[tuple[PostgreSQL, PostgreSQL]]:
    """Have a primary and its streaming replica, and end both."""
    with running() as primary:
        replica = PostgreSQL()
        try:
            replica.follow(primary)
            yield primary, replica
        finally:
            replica.stop()
