"""What was installed from the sources is taken away, and what people made stays."""

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

pytestmark = pytest.mark.slow

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
