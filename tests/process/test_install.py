"""setup/install: what goes where on a machine, seen in a directory of its own."""

import subprocess
import sys
from pathlib import Path

import pytest
from installer import removal
from installer.files import write
from installer.flavours import install
from installer.main import main
from installer.target import SOURCE, Target
from room import product

from tests.documents import links

pytestmark = pytest.mark.slow

INSTALL = Path(__file__).parent.parent.parent / "setup" / "install"


def run_install(*words: str) -> subprocess.CompletedProcess[str]:
    """Run setup/install."""
    return subprocess.run([str(INSTALL), *words], capture_output=True, text=True, timeout=100, check=False)


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A node's files below a directory, with programs in /opt/oar."""
    done = run_install("node", "--destdir", str(tmp_path), "--prefix", "/opt/oar")
    assert done.returncode == 0, done.stderr
    return tmp_path


def test_a_node_gets_programs_and_configuration(node: Path) -> None:
    programs = node / "opt/oar/lib/oar"
    assert {"oarsh_shell", "oarsh", "oarprint"} <= {path.name for path in programs.iterdir()}
    assert (programs / "oarsh_shell").stat().st_mode & 0o777 == 0o755
    assert "Port 6667" in (node / "etc/oar/sshd_config").read_text()
    assert not (programs / "venv").exists()


def test_shipped_files_name_the_places_of_this_installation(node: Path) -> None:
    rules = node / "etc/sudoers.d/oar"
    assert rules.stat().st_mode & 0o777 == 0o440
    assert "/opt/oar/lib/oar/oarsub" in rules.read_text()
    assert "/usr/lib/oar" not in rules.read_text()


def test_users_call_tools_by_their_short_names(node: Path) -> None:
    assert '/opt/oar/lib/oar/oarprint "$@"' in (node / "opt/oar/bin/oarprint").read_text()


def test_configuration_that_is_there_stays(node: Path) -> None:
    (node / "etc/oar/sshd_config").write_text("# mine\n")
    assert run_install("node", "--destdir", str(node), "--prefix", "/opt/oar").returncode == 0
    assert (node / "etc/oar/sshd_config").read_text() == "# mine\n"


def test_documents_are_installed_by_themselves(tmp_path: Path) -> None:
    assert run_install("doc", "--destdir", str(tmp_path)).returncode == 0
    assert (tmp_path / "usr/local/share/doc/oar/README.md").is_file()
    assert (tmp_path / "usr/local/share/doc/oar/docs/design/bus.rst").is_file()
    assert not (tmp_path / "etc").exists()


def test_links_between_installed_documents_lead_somewhere(tmp_path: Path) -> None:
    assert run_install("doc", "--destdir", str(tmp_path), "--docdir", "/doc").returncode == 0
    documents = [path for path in (tmp_path / "doc").rglob("*") if path.suffix in {".md", ".rst"}]
    assert len(documents) > 15
    assert not [(path.name, link) for path in documents for link in links(path) if not (path.parent / link).exists()]


def test_the_manual_is_installed_with_the_documents_and_names_the_places_of_this_installation(tmp_path: Path) -> None:
    done = run_install("doc", "--destdir", str(tmp_path), "--mandir", "/opt/man", "--confdir", "/opt/etc")
    assert done.returncode == 0, done.stderr
    assert "/opt/etc/oar.conf" in (tmp_path / "opt/man/man5/oar.conf.5").read_text()
    assert (tmp_path / "opt/man/man8/oar-server.8").is_file()
    assert (tmp_path / "opt/man/man1/oarconnect.1").read_text() == ".so man1/oarsub.1\n"


def test_the_agent_of_desktop_computers_is_one_file_that_needs_nothing_else(tmp_path: Path) -> None:
    trees = [tmp_path / name for name in ("one", "two")]
    for tree in trees:
        done = run_install("agent", "--destdir", str(tree), "--prefix", "/usr")
        assert done.returncode == 0, done.stderr
    found = sorted(str(path.relative_to(trees[0])) for path in trees[0].rglob("*") if path.is_file())
    unit, name, manual = found
    assert (name, manual) == ("usr/bin/oar-agent", "usr/share/man/man8/oar-agent.8")
    assert "ExecStart=oar-agent $OAR_AGENT_OPTIONS\n" in (trees[0] / unit).read_text()
    program = trees[0] / name
    assert program.read_bytes() == (trees[1] / name).read_bytes()
    shown = subprocess.run([program, "--help"], cwd="/", env={}, capture_output=True, text=True, check=True)
    assert shown.stdout.startswith("Usage: oar-agent [options] URL...\n")


def test_an_unknown_flavour_is_refused(tmp_path: Path) -> None:
    done = run_install("desktop", "--destdir", str(tmp_path))
    assert done.returncode == 2
    assert "desktop" in done.stderr.splitlines()[-1]


CONFIGURATION = "/etc/oar"


@pytest.fixture
def target(tmp_path: Path) -> Target:
    """A place without OAR, where other things are installed, too."""
    target = Target(destdir=str(tmp_path / "top"), prefix="/opt")
    for name in ("/opt/bin/other", "/opt/share/man/man1/other.1", "/etc/logrotate.d/other"):
        write(target.under(name), "", 0o644)
    return target


def files(target: Target) -> set[str]:
    """All that is below the place, directories with a slash behind them."""
    top = Path(target.destdir)
    return {f"{each.relative_to(top)}{'/' if each.is_dir() else ''}" for each in top.rglob("*")}


def test_all_goes_that_came_but_the_configuration(target: Target, capsys: pytest.CaptureFixture[str]) -> None:
    before = files(target)
    install(("server", "user", "node", "api", "agent", "doc"), target, product.environment())
    write(target.under(f"{CONFIGURATION}/mine"), "", 0o644)
    write(target.under(f"{target.programs}/__pycache__/node_base.pyc"), "", 0o644)
    there = files(target)
    assert "opt/bin/oarsub" in there
    capsys.readouterr()  # whoever is the first to install anything is told of libraries
    assert main(["--remove", "--destdir", target.destdir, "--prefix", "/opt"]) == 0
    kept = {each for each in there if each.startswith("etc/oar/") and not each.endswith("/")}
    assert {each for each in files(target) if not each.endswith("/")} == kept | {
        each for each in before if not each.endswith("/")
    }
    assert not {each for each in files(target) if "oar/" in each and each.endswith("/")} - {
        "etc/oar/",
        "etc/oar/check.d/",
    }
    assert "etc/oar/oar.conf" in kept
    assert capsys.readouterr().out.startswith("Removed. Kept: /etc/oar, /var/lib/oar, ")


def test_a_second_removal_finds_nothing_to_do(target: Target) -> None:
    before = files(target)
    removal.remove(target)
    assert files(target) == before


def test_what_packages_installed_is_left_to_them(target: Target, capsys: pytest.CaptureFixture[str]) -> None:
    write(target.under("/var/lib/dpkg/info/oar-common.list"), "/.\n/opt/lib/oar\n/opt/lib/oar/oarsh\n", 0o644)
    write(target.under("/opt/lib/oar/oarsh"), "", 0o755)
    assert main(["--remove", "--destdir", target.destdir, "--prefix", "/opt"]) == 1
    assert capsys.readouterr().err == "install: /opt/lib/oar is of packages: apt-get remove oar-common\n"
    assert "opt/lib/oar/oarsh" in files(target)


@pytest.mark.parametrize("words", [(), ("--remove", "server"), ("--remove", "--collect", "x")])
def test_one_thing_at_a_time(words: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, SOURCE / "setup/install", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "name what to install (server, user, api, node, agent, doc)" in done.stderr
