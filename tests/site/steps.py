"""What people do on a site, and what they wait for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from machines.site import Machine, Site, wait_until

from tests.documents import SOURCE, named_blocks
from tests.mpi import MPI_SUM

_GUIDE = SOURCE / "docs" / "administrator-guide.rst"
_INSTALLATION = SOURCE / "docs" / "installation.rst"
_USER_GUIDE = SOURCE / "docs" / "user-guide.rst"
_CONF = "/etc/oar/oar.conf"


def _frontend(site: Site) -> Machine:
    """Where users log in: on the server, where there is no frontend."""
    return site.machines.get("frontend") or site["server"]


def submit(site: Site, arguments: str) -> str:
    """Submit as alice on the frontend; return the number of the job."""
    printed = _frontend(site).run(f"oarsub {arguments}", user="alice")
    return printed.rpartition("OAR_JOB_ID=")[2].strip()


def state(site: Site, job: str) -> str:
    """The state of a job, as alice sees it."""
    return _frontend(site).run(f"oarstat -s -j {job}", user="alice").split()[-1]


def wait_for(site: Site, job: str, *wanted: str) -> None:
    """Wait until a job is in one of these states; one that ends in another fails the test with its story."""

    def is_there() -> bool:
        found = state(site, job)
        if found in ("Terminated", "Error") and found not in wanted:
            story = _frontend(site).run(f"oarstat --explain {job}; oarstat -e -j {job}", user="alice")
            raise AssertionError(f"job {job} ended in {found}, wanted {' or '.join(wanted)}\n{story}")
        return found in wanted

    wait_until(is_there)


def all_alive(frontend: Machine) -> bool:
    """Whether users see all nodes Alive."""
    states = [line.split()[-1] for line in frontend.run("oarnodes -s", user="alice").splitlines() if line[0] == " "]
    return set(states) == {"Alive"}


def begun(site: Site, where: str = "") -> str:
    """Submit a job that runs until somebody removes ``~/go``, and writes a line when it begins; wait until it runs.

    ``where``: further options of oarsub.
    """
    _frontend(site).run("touch go", user="alice")
    job = submit(site, f"{where} -l core=1,walltime=0:30 'echo begun; while [ -e go ]; do sleep 0.2; done'")
    wait_for(site, job, "Running")
    wait_until(lambda: _frontend(site).attempt(f"cat OAR.{job}.stdout", user="alice").out == "begun\n")
    return job


def ends_well(site: Site, job: str) -> None:
    """Let such a job end; it has run once."""
    _frontend(site).run("rm -f go", user="alice")
    wait_for(site, job, "Terminated")
    assert _frontend(site).run(f"cat OAR.{job}.stdout", user="alice") == "begun\n"


def mpi_begun(site: Site) -> str:
    """Submit a program of MPI on all cores of both nodes that ends when ``~/go`` is removed; wait until it runs."""
    frontend = _frontend(site)
    frontend.run("cat > sum && chmod 755 sum && touch go", user="alice", stdin=MPI_SUM)
    job = submit(site, "-l nodes=2,walltime=0:30 'mpirun ~/sum go'")
    wait_for(site, job, "Running")
    wait_until(lambda: all(site[node].attempt("pgrep -u alice -f /sum").code == 0 for node in ("node-1", "node-2")))
    return job


def mpi_ends_well(site: Site, job: str) -> None:
    """Let such a job end: its processes, which are on both nodes, know their sum."""
    frontend = _frontend(site)
    frontend.run("rm -f go", user="alice")
    wait_for(site, job, "Terminated", "Error")
    told = [line.split() for line in frontend.run(f"cat OAR.{job}.stdout", user="alice").splitlines()]
    assert {host for host, _, _ in told} == {"node-1", "node-2"}, frontend.run(f"cat OAR.{job}.stderr", user="alice")
    ranks = sorted(int(rank) for _, rank, _ in told)
    assert ranks == list(range(len(told)))
    assert {int(total) for _, _, total in told} == {sum(ranks)}


def back_up(site: Site) -> None:
    """Make a dump of the database, as the administrator's guide tells it."""
    follow(site, "a dump")


def restore(site: Site, *, without: str = "") -> None:
    """Go back to the last dump, as the administrator's guide tells it; ``without`` lines with this word."""
    follow(site, "back to a dump", without)


def follow_chapter(machine: Machine, name: str, **places: str) -> None:
    """Type a block of the installation chapter on a machine; ``places``: where a directory of it is here."""
    for line in named_blocks(_INSTALLATION)[name].splitlines():
        command = line.strip().partition("# ")[2]
        for directory, place in places.items():
            command = command.replace(f"./{directory}/", f"{place}/")
        if command:
            machine.run(command.replace("apt-get install", "DEBIAN_FRONTEND=noninteractive apt-get -y install"))


def block(name: str) -> str:
    """What the administrator's guide shows under a name."""
    return named_blocks(_GUIDE)[name]


def runs_a_container(site: Site) -> None:
    """Run a job in an image that has nothing but a shell, as the user's guide tells it."""
    desk = _frontend(site)
    places = " ".join(f"image/{name}" for name in ("bin", "dev", "etc", "home", "proc", "sys", "tmp"))
    desk.run(f"mkdir -p {places} && cp /bin/busybox image/bin", user="alice")
    desk.run("cd image/bin && ln -s busybox sh && ln -s busybox cat && ln -s busybox ls", user="alice")
    desk.run("cd image/etc && touch group hosts passwd resolv.conf", user="alice")
    (line,) = named_blocks(_USER_GUIDE)["a container"].splitlines()
    job = submit(site, line.removeprefix("$ oarsub "))
    wait_for(site, job, "Terminated", "Error")
    told = desk.run("cat box", user="alice").split()
    assert any(word.endswith(f"/oar/alice_{job}") or f"/alice_{job}/" in word for word in told)
    assert "bin" in told
    assert "srv" not in told  # it sees the files of its image


def follow(site: Site, name: str, without: str = "") -> None:
    """Type a block of the guide on the server, but for lines with a word."""
    for line in block(name).splitlines():
        if not without or without not in line:
            site["server"].run(line.strip().removeprefix("server# "))


@contextmanager
def kept(machine: Machine, *paths: str) -> Iterator[None]:
    """Let files of a machine be changed for a while."""
    for path in paths:
        machine.run(f"cp -a {path} {path}.kept")
    try:
        yield
    finally:
        for path in paths:
            machine.run(f"mv {path}.kept {path}")


@contextmanager
def reconfigured(server: Machine, lines: str) -> Iterator[None]:
    """Have more lines in oar.conf for a while; the server is told to read the old file afterwards, not the new one."""
    try:
        with kept(server, _CONF):
            server.run(f"cat >> {_CONF}", stdin=lines)
            yield
    finally:
        server.run("systemctl reload oar-server.service")
