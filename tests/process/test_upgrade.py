"""A second installation is an upgrade: what is new comes beside what is there, and is used in one step."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from installer import environments, tables
from installer.target import SOURCE
from room import product

pytestmark = pytest.mark.slow

OARDIR = "opt/oar/lib/oar"
#: What setup/install does, with libraries that are on this computer already.
PROGRAM = """\
import sys
from pathlib import Path

from installer.flavours import install
from installer.target import Target

install(sys.argv[3:], Target(destdir=sys.argv[1], prefix="/opt/oar"), Path(sys.argv[2]))
"""


@pytest.fixture(scope="module")
def libraries() -> Path:
    """An environment with the libraries of OAR."""
    return product.environment()


#: The smallest package of which the flavours server and api have a program each, and the agent is made.
PACKAGE = (
    *("__init__.py", "lib/base/version.py", "modules/meta_sched.py", "api/server.py"),
    *(f"tools/{name}" for name in (tables.AGENT_MAIN, *tables.AGENT_PARTS)),
)


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """Sources that a test may change: all of setup/, little of the package."""
    copy = tmp_path / "sources"
    for name in ("setup", "docs", "etc"):
        shutil.copytree(SOURCE / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copyfile(SOURCE / "pyproject.toml", copy / "pyproject.toml")
    for name in PACKAGE:
        (copy / "oar" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(SOURCE / "oar" / name, copy / "oar" / name)
    return copy


Install = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def install(tmp_path: Path, sources: Path, libraries: Path) -> Install:
    """Install flavours from the changed sources below the directory ``top``."""

    def install(*flavours: str) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-c", PROGRAM, str(tmp_path / "top"), str(libraries), *flavours]
        environment = {"PYTHONPATH": str(sources / "setup"), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
        return subprocess.run(words, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path)

    return install


@pytest.fixture
def oardir(tmp_path: Path) -> Path:
    return tmp_path / "top" / OARDIR


def environment_of(program: Path) -> str:
    """The name of the environment in which a program runs."""
    found = re.match(r"#!/opt/oar/lib/oar/environments/([^/]+)/bin/python", program.read_text())
    assert found, program.read_text()
    return found[1]


def kept(oardir: Path) -> set[str]:
    return {path.name for path in (oardir / "environments").iterdir()}


def has(oardir: Path, environment: str, text: str) -> bool:
    """Whether the package of an environment has a line of the sources as they were changed."""
    (version,) = (oardir / "environments" / environment).glob("lib/python3*/site-packages/oar/lib/base/version.py")
    return text in version.read_text()


def change(sources: Path, text: str) -> None:
    """Make another release of the sources."""
    with (sources / "oar/lib/base/version.py").open("a") as file:
        file.write(f"# {text}\n")


def test_an_upgrade_is_used_at_once_and_the_release_before_stays_for_what_is_running(
    install: Install, sources: Path, oardir: Path
) -> None:
    names = []
    for text in ("first", "second", "third"):
        change(sources, text)
        assert install("server").returncode == 0
        names.append(environment_of(oardir / "kao"))
        assert has(oardir, names[-1], text)
        assert kept(oardir) == set(names[-2:])
        assert (oardir / "venv").resolve().name == names[-1]
    assert not has(oardir, names[1], "third")


def test_programs_that_were_not_upgraded_keep_what_they_need_and_a_machine_its_extras(
    install: Install, sources: Path, oardir: Path
) -> None:
    assert install("api").returncode == 0
    first = environment_of(oardir / "oar-api")
    for text in ("second", "third"):
        change(sources, text)
        assert install("server").returncode == 0
    assert environment_of(oardir / "oar-api") == first
    second = environment_of(oardir / "kao")
    assert has(oardir, second, "third")
    assert first in kept(oardir)
    note = oardir / "environments" / second / "oar-environment.json"
    assert json.loads(note.read_text()) == {"extras": ["api"]}


def test_the_same_is_not_installed_twice_but_what_was_left_unfinished_is(install: Install, oardir: Path) -> None:
    assert install("api").returncode == 0
    (environment,) = kept(oardir)
    place = oardir / "environments" / environment
    made = (place / "bin").stat().st_ino
    assert install("server").returncode == 0
    assert environment_of(oardir / "oar-api") == environment_of(oardir / "kao") == environment
    assert (place / "bin").stat().st_ino == made
    (place / "oar-environment.json").unlink()
    shutil.rmtree(place / "lib")
    assert install("api", "server").returncode == 0
    assert environment_of(oardir / "oar-api") == environment_of(oardir / "kao") == environment
    assert has(oardir, environment, "VERSION")


def test_a_failure_leaves_the_release_that_is_there(install: Install, sources: Path, oardir: Path) -> None:
    assert install("server").returncode == 0
    first = environment_of(oardir / "kao")
    change(sources, "second")
    build = sources / "pyproject.toml"
    build.write_text(build.read_text().replace("setuptools.build_meta", "no_such_builder"))
    assert install("server").returncode != 0
    assert environment_of(oardir / "kao") == first
    assert has(oardir, first, "VERSION")


def test_the_one_environment_of_older_releases_stays_for_what_is_running_in_it(
    install: Install, sources: Path, oardir: Path
) -> None:
    (oardir / "venv/bin").mkdir(parents=True)
    (oardir / "kao").write_text("#!/opt/oar/lib/oar/venv/bin/python -I\n")
    assert install("server").returncode == 0
    assert (oardir / "venv/bin").is_dir()
    assert not (oardir / "venv").is_symlink()
    change(sources, "second")
    assert install("server").returncode == 0
    assert (oardir / "venv").resolve().name == environment_of(oardir / "kao")


def test_what_the_site_wants_beside_oar_makes_another_environment(
    install: Install, tmp_path: Path, oardir: Path
) -> None:
    assert install("server").returncode == 0
    first = environment_of(oardir / "kao")
    (tmp_path / "top/etc/oar/requirements.txt").write_text("# for our policies\n\nsix\n")
    assert install("server").returncode == 0
    assert environment_of(oardir / "kao") != first


def test_without_network_what_is_missing_is_named(tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    words = ["user", "--destdir", str(tmp_path / "top"), "--wheels", str(tmp_path / "wheels")]
    done = subprocess.run([SOURCE / "setup/install", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("install: ")
    assert "setuptools" in done.stderr
    assert not (tmp_path / "top/usr/local/bin").exists()


def test_libraries_of_an_extra_are_those_of_the_project() -> None:
    assert any(each.startswith("starlette") for each in environments.requirements(["api"]))
    assert not any(each.startswith("starlette") for each in environments.requirements())
