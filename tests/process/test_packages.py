"""Debian packages: what is in them, the same each time, and the environments that they make when they are installed."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest
from installer import environments
from installer.target import SOURCE
from packager import contents, libraries, main
from packaging.requirements import Requirement

pytestmark = pytest.mark.slow

PROGRAM = SOURCE / "setup" / "debian" / "oar-environment"
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
MAINTAINER = "A Site <oar@example.net>"


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheels as ``libraries.fetch`` leaves them, of libraries that are not there."""
    top = tmp_path_factory.mktemp("wheels")
    for part in ("base", "api"):
        for python in ("all", *libraries.PYTHONS):
            (top / part / python).mkdir(parents=True)
            wheel(top / part / python, f"{part}_{python.replace('.', '_')}", f"of {python}")
    return top


def wheel(directory: Path, name: str, text: str) -> None:
    with zipfile.ZipFile(directory / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        for path in (f"{name}/__init__.py", f"{name}-1.0.data/purelib/{name}_too.py", f"{name}-1.0.data/scripts/run"):
            archive.writestr(zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0)), f"TEXT = {text!r}\n")


def build(output: Path, wheels: Path) -> dict[str, Path]:
    """All packages, by their names."""
    output.mkdir()
    what = contents.Build("3.2.0-1", contents.environment_name(), "amd64", wheels, Path(sys.executable), MAINTAINER)
    return {package.name: main.assemble(package, what, output) for package in contents.PACKAGES}


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory, wheels: Path) -> dict[str, Path]:
    return build(tmp_path_factory.mktemp("packages") / "first", wheels)


def files(package: Path) -> dict[str, str]:
    """The modes of the files of a package."""
    listed = subprocess.run(["dpkg-deb", "--contents", package], capture_output=True, text=True, check=True).stdout
    return {line.split()[5].lstrip("."): line.split()[0] for line in listed.splitlines()}


def test_the_same_sources_give_the_same_bytes(packages: dict[str, Path], wheels: Path, tmp_path: Path) -> None:
    again = build(tmp_path / "again", wheels)
    assert {name: path.read_bytes() == packages[name].read_bytes() for name, path in again.items()} == dict.fromkeys(
        packages, True
    )


def test_packages_name_who_built_them(packages: dict[str, Path]) -> None:
    for package in packages.values():
        words = ["dpkg-deb", "--field", str(package), "Maintainer"]
        assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == f"{MAINTAINER}\n"


@pytest.mark.parametrize(
    "text", ["", "oar@example.org", "A Site", "A\nDepends: x <a@b>", "A <a@b> B <c@d>", "A <a b@c>"]
)
def test_who_is_no_person_with_an_address_builds_nothing(
    text: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main.main(["--maintainer", text, "--output", str(tmp_path / "packages")])
    assert "is not a name and an address: write 'NAME <ADDRESS>'" in capsys.readouterr().err
    assert not (tmp_path / "packages").exists()


def test_lintian_finds_no_error(packages: dict[str, Path]) -> None:
    assert shutil.which("lintian"), "lintian is missing: setup/test installs it"
    words = ["lintian", "--tag-display-limit", "0", "--fail-on", "error", *map(str, packages.values())]
    with tempfile.TemporaryDirectory() as aside:  # some of its files would stay in /tmp
        environment = {**os.environ, "TMPDIR": aside}
        done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    errors = [line for line in done.stdout.splitlines() if line.startswith("E:")]
    assert (errors, done.returncode) == ([], 0), done.stderr


def test_no_file_is_in_two_packages(packages: dict[str, Path]) -> None:
    seen: dict[str, str] = {}
    for name, package in packages.items():
        for path in files(package):
            if not path.endswith("/"):
                assert path not in seen, f"{path} is in {name} and {seen[path]}"
                seen[path] = name


def test_packages_have_what_users_shells_readers_and_services_look_for(packages: dict[str, Path]) -> None:
    user, server, node = files(packages["oar-user"]), files(packages["oar-server"]), files(packages["oar-node"])
    assert user["/usr/bin/oarsub"] == user["/usr/bin/oaradmissionrules"] == user["/usr/bin/oar-conf"] == "-rwxr-xr-x"
    for path in (
        *("/usr/share/bash-completion/completions/oarsub", "/usr/share/zsh/vendor-completions/_oar"),
        *("/usr/share/fish/vendor_completions.d/oarsub.fish", "/usr/share/man/man1/oarsub.1.gz"),
    ):
        assert path in user
    for path in (
        "/etc/logrotate.d/oar",
        "/usr/lib/systemd/system/oar-purge.timer",
        "/usr/share/man/man8/oar-conf.8.gz",
    ):
        assert path in server
    assert "/usr/lib/systemd/system/oar-node.service" in node
    assert files(packages["oar-common"])["/etc/sudoers.d/oar"] == "-r--r-----"
    assert node["/etc/sudoers.d/oar-node"] == "-r--r-----"
    assert not any(path.startswith("/etc/sudoers.d/oar") for path in (*user, *server))


def test_scripts_of_packages_are_scripts(packages: dict[str, Path], tmp_path: Path) -> None:
    for name, package in packages.items():
        subprocess.run(["dpkg-deb", "--control", package, tmp_path / name], check=True)
        for script in (path for path in (tmp_path / name).iterdir() if path.name.startswith(("post", "pre"))):
            assert not re.search(r"@[A-Z_]+@|#UNITS#", script.read_text())
            subprocess.run(["sh", "-n", script], check=True)


def test_the_list_of_libraries_has_what_the_project_asks_for() -> None:
    base, api = libraries.listed()
    versions = {line.split("==")[0]: line.split("==")[1].split()[0] for line in [*base, *api]}
    for text in environments.requirements(["api"]):
        wanted = Requirement(text)
        assert wanted.name.lower().replace("_", "-") in versions, f"{text}: setup/package --renew-libraries"
        assert wanted.specifier.contains(versions[wanted.name.lower().replace("_", "-")]), text


# -- environments ------------------------------------------------------------------------------------------------------


@pytest.fixture
def base(wheels: Path, tmp_path: Path) -> Path:
    """The libraries of the package oar-python."""
    shutil.copytree(wheels / "base", tmp_path / "base")
    contents.write_wheel(tmp_path / "base" / "all")
    return tmp_path / "base"


def environment(top: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "OARDIR": str(top), "OAR_REQUIREMENTS": str(top / "requirements.txt")}
    return subprocess.run([PROGRAM, *words], capture_output=True, text=True, check=False, env=variables)


def test_an_environment_has_the_libraries_for_the_python_of_the_machine(base: Path, tmp_path: Path) -> None:
    assert environment(tmp_path, "make", "3-a", base).returncode == 0
    place = tmp_path / "environments" / "3-a"
    found = {path.name for path in (place / "packages").iterdir()}
    assert {"base_all", f"base_{PYTHON.replace('.', '_')}", "base_all_too.py", "oar"} <= found
    assert len([name for name in found if name.startswith("base_3")]) == 2
    program = "from oar.lib.base.version import VERSION; print(VERSION)"
    said = subprocess.run([place / "bin/python", "-I", "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == environments.version()
    assert (place / environments.PACKAGES / environments.CLIENT).is_file()


def test_an_environment_that_is_there_stays_and_one_of_another_python_is_made_anew(base: Path, tmp_path: Path) -> None:
    environment(tmp_path, "make", "3-a", base)
    note = tmp_path / "environments" / "3-a" / "oar-environment.json"
    made = note.stat().st_ino
    assert environment(tmp_path, "make", "3-a", base).returncode == 0
    assert environment(tmp_path, "renew").returncode == 0
    assert note.stat().st_ino == made
    note.write_text(json.dumps({**json.loads(note.read_text()), "python": "3.9"}))
    assert environment(tmp_path, "renew").returncode == 0
    assert json.loads(note.read_text())["python"] == PYTHON
    assert {path.name for path in (tmp_path / "environments").iterdir()} == {"3-a"}


def test_what_programs_name_is_kept_and_the_rest_forgotten(base: Path, tmp_path: Path) -> None:
    for name in ("1-a", "2-b", "2-b-api", "3-c", "3-c-api"):
        environment(tmp_path, "make", name, base)
    (tmp_path / "kao").write_text(f"#!{tmp_path}/environments/2-b/bin/python -I\n")
    assert environment(tmp_path, "forget", "3-c").returncode == 0
    assert {path.name for path in (tmp_path / "environments").iterdir()} == {"2-b", "3-c", "3-c-api"}
    assert environment(tmp_path, "remove", "-api").returncode == 0
    assert {path.name for path in (tmp_path / "environments").iterdir()} == {"2-b", "3-c"}
    assert environment(tmp_path, "remove").returncode == 0
    assert not (tmp_path / "environments").exists()


def test_a_python_for_which_there_are_no_libraries_is_named_and_nothing_changes(base: Path, tmp_path: Path) -> None:
    shutil.rmtree(base / PYTHON)
    done = environment(tmp_path, "make", "3-a", base)
    others = ", ".join(python for python in libraries.PYTHONS if python != PYTHON)
    said = f"oar-environment: {base} has libraries for Python {others}, and this machine has Python {PYTHON}\n"
    assert (done.returncode, done.stderr) == (1, said)
    assert environment(tmp_path, "dance").returncode == 2
