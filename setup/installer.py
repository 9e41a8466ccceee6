"""Puts OAR on a machine: the Python package in its own environment, programs, wrappers, configuration, units.

`setup/install server user node` does what `make server-install user-install node-install` do; the test cluster installs
itself the same way. Existing configuration is never overwritten. Everything obeys DESTDIR.
"""

from __future__ import annotations

import argparse
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import manpages

SOURCE = Path(__file__).resolve().parent.parent

#: Commands of users: in BINDIR, through sudo as oar.
USER_COMMANDS = (
    "oarsub",
    "oarstat",
    "oarnodes",
    "oardel",
    "oarhold",
    "oarresume",
    "oarwalltime",
    "oaralter",
    "oarnotify",
    "qrsub",
    "qrstat",
    "qrdel",
    "qralter",
    "oaruserset",
    "oar-token",
)

#: Other names of what users type.
OTHER_NAMES = {"oarconnect": "oarsub -C"}

#: Commands of administrators: in SBINDIR; root becomes oar.
ADMIN_COMMANDS = (
    "oarnodesetting",
    "oarproperty",
    "oarremoveresource",
    "oarqueue",
    "oaraccounting",
    "oaradmissionrules",
    "oar_resources_add",
    "oar_resources_init",
    "oar_phoenix",
    "oar2trace",
    "sentinelle",
)

#: Those of them that show users something; what they may change is for administrators only.
READABLE_COMMANDS = ("oarnodesetting", "oarproperty", "oarqueue")

#: Commands of administrators that need to be root for a part of their work.
ROOT_COMMANDS = ("oar-server", "oar-database", "oar-conf", "oar-keys")

#: Programs that only OAR itself and administrators in need call: in OARDIR.
MODULES = {
    "oar-almighty": "oar.modules.almighty",
    "oar-bipbip": "oar.modules.runner.bipbip",
    "oar-bipbip-commander": "oar.modules.runner.bipbip_commander",
    "oar-finaud": "oar.modules.finaud",
    "oar-greta": "oar.modules.greta",
    "oar-leon": "oar.modules.leon",
    "oar-node-change-state": "oar.modules.node_change_state",
    "oar-sarko": "oar.modules.sarko",
    "kao": "oar.modules.meta_sched",
}

#: The program of the REST API: in OARDIR.
API_PROGRAMS = {"oar-api": "oar.api.server"}

#: Single files for nodes (and frontends); they need python3 >= 3.6 or sh, nothing of the package.
NODE_TOOLS = (
    "node_protocol.py",
    "node_base.py",
    "node_kernel.py",
    "node_cgroups.py",
    "node_devices.py",
    "node_faults.py",
    "oarsh_shell",
    "oarsh_session.py",
    "oarsh",
    "oarcp",
    "oarprint",
    "oarrun",
    "oarnodecheckrun",
    "oarnodecheckquery",
    "oarnodechecklist",
    "pam_oar_adopt",
    "detect_new_resources.sh",
)
#: Those of them that users call.
USER_TOOLS = ("oarsh", "oarcp", "oarprint", "oarrun")

#: sudo passes nothing of the caller on but what is in its list; oarsub wants his defaults, and his environment where
#: --env may ask for it: here, in a script, or in the defaults (oar/cli/oarsub_parts/caller_environment.py).
_OF_CALLER = """\
OAR_SUBMIT_ENV= OAR_SUBMIT_DEFAULTS= asks=
[ ! -r "$HOME/.oarsubrc" ] || OAR_SUBMIT_DEFAULTS=$HOME/.oarsubrc asks=perhaps
for word do case $word in --en* | --s* | -S* | -[!-]*S*) asks=perhaps ;; esac; done
[ ! "$asks" ] || OAR_SUBMIT_ENV=$(env -0 | head -c 96001 | base64 -w 0)
export OAR_SUBMIT_ENV OAR_SUBMIT_DEFAULTS
"""
#: The same for qrsub: the options with which his requests begin.
_OF_REQUESTER = """\
OAR_SUBMIT_DEFAULTS=
for file in "$HOME/.sge_ar_request" "$HOME/.oar_ar_request"; do [ ! -r "$file" ] || OAR_SUBMIT_DEFAULTS=$file; done
export OAR_SUBMIT_DEFAULTS
"""
#: What such commands hand over.
_HANDED_OVER = {"oarsub": _OF_CALLER, "qrsub": _OF_REQUESTER}
#: A command that runs long is a child of a shell of the user, which he can end; oar/cli/common/end_with_caller.py sees
#: that the shell is gone.
_STAYING = """\
stays=
for word do case $word in {patterns}) stays=yes ;; esac; done
if [ "$stays" ]; then
    exec 3<&0
    {command} <&3 3<&- &
    trap 'again=yes' INT QUIT
    while again=; wait $!; code=$?; [ "$again" ]; do :; done
    exit $code
fi
"""
#: Commands that have such options, and words that may be these; where one is not, the shell stays for nothing.
_STAY = {"oarsub": "--wa* | --in* | --co* | --rese* | -[ICr]* | -[vkDXYJ]*[ICr]*", "oarstat": "--wa*", "qrsub": "-*"}

#: The server that answers users' commands on a login node, and its socket.
COMMAND_SERVER, COMMAND_SOCKET = "oar-commands", "/run/oar-commands/socket"
#: Where it is there it is asked first; its client starts the command again, by sudo, if it does not answer.
_BY_SUDO = "by_sudo=$OAR_BY_SUDO\nunset OAR_BY_SUDO\n"
_ASK = '[ "$by_sudo" ] || [ ! -S {socket} ] || exec {client} {socket} {version} {wrapper} {name} "$@"\n'
#: What stays with the terminal or waits for hours is not for the server.
_NOT_ASKED = "for word do case $word in {patterns}) by_sudo=yes ;; esac; done\n"
_LONG = {"oarsub": "--wa* | --in* | --con* | -[IC]* | -[vkDXYJ]*[IC]*", "oarstat": "--wa*"}

_SHIPPED_OARDIR = "/usr/lib/oar"


class InstallError(Exception):
    """One line for the person who installs."""


@dataclass(frozen=True)
class Target:
    """Where things go. Paths are those of the running system; `under` puts DESTDIR before them."""

    destdir: str = ""
    prefix: str = "/usr/local"
    bindir: str = ""
    sbindir: str = ""
    mandir: str = ""
    docdir: str = ""
    oardir: str = ""
    confdir: str = "/etc/oar"
    homedir: str = "/var/lib/oar"
    user: str = "oar"
    python: str = "/usr/bin/python3"

    @property
    def programs(self) -> str:
        """OARDIR."""
        return self.oardir or f"{self.prefix}/lib/oar"

    @property
    def venv(self) -> str:
        """The package's own environment."""
        return f"{self.programs}/venv"

    def under(self, path: str) -> Path:
        """The place of a path in this installation, its directory made."""
        place = Path(f"{self.destdir}{path}")
        place.parent.mkdir(parents=True, exist_ok=True)
        return place


# -- the Python package --------------------------------------------------------------------------------------------


def make_environment(python: str, venv: Path, requirements: Sequence[str]) -> None:
    """Make a virtual environment that every user can run, with these packages; uv where it is, else pip."""
    if uv := shutil.which("uv"):
        _call([uv, "venv", "--quiet", "--python", python, str(venv)])
    else:
        _call([python, "-m", "venv", str(venv)])
    if requirements:
        install_packages(venv, requirements)


def install_packages(venv: Path, what: Sequence[str]) -> None:
    """Install into an environment, with the bytecode."""
    python = venv / "bin" / "python"
    if uv := shutil.which("uv"):
        _call([uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", str(python), *what])
    else:
        _call([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", *what])


def install_package(venv: Path, *, with_dependencies: bool) -> None:
    """Build and install the package from a copy of its sources: a build must not write among them."""
    with tempfile.TemporaryDirectory(prefix="oar-build-") as copy:
        for name in ("pyproject.toml", "README.md"):
            if (SOURCE / name).exists():
                shutil.copy(SOURCE / name, copy)
            else:
                Path(copy, name).touch()
        shutil.copytree(SOURCE / "oar", Path(copy, "oar"), ignore=shutil.ignore_patterns("__pycache__"))
        install_packages(venv, [*([] if with_dependencies else ["--no-deps"]), copy])


def _call(command: Sequence[str]) -> None:
    environment = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV")
    }
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment, check=False, umask=0o022
    )
    if done.returncode:
        said = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
        raise InstallError(f"{' '.join(command[:4])} ... failed:\n{said}")


def extra_requirements(extra: str) -> list[str]:
    """The libraries of a part of the package that not every machine needs."""
    project = tomllib.loads((SOURCE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    requirements: list[str] = project["optional-dependencies"][extra]
    return requirements


def _install_package(target: Target) -> None:
    venv = target.under(target.venv)
    if not (venv / "bin" / "python").exists():
        make_environment(target.python, venv, [])
    install_package(venv, with_dependencies=not any(venv.glob("lib/python*/site-packages/psycopg2")))


# -- programs ------------------------------------------------------------------------------------------------------


def module_of(command: str) -> str:
    """The Python module of a command."""
    if command == COMMAND_SERVER:
        return "oar.cli.warm.manager"
    return {**MODULES, **API_PROGRAMS}.get(command) or f"oar.cli.{command.replace('-', '_')}"


def is_there(module: str) -> bool:
    """True if the sources contain this module: a flavour without some commands is installed without them."""
    return SOURCE.joinpath(*module.split(".")).with_suffix(".py").exists()


def _program(target: Target, name: str) -> None:
    """OARDIR/<name>: runs its module, deaf to the caller's Python settings, and knows where it is installed."""
    lines = (
        f"#!{target.venv}/bin/python -I",
        "import os",
        "import sys",
        "",
        f'os.environ["OARDIR"] = "{target.programs}"',
        "",
        f"from {module_of(name)} import main",
        "",
        "sys.exit(main())",
        "",
    )
    _write(target.under(f"{target.programs}/{name}"), "\n".join(lines), 0o755)


def _quick_program(target: Target, name: str) -> None:
    """The same for a user's command: it names the packages itself, for Python takes longer to look for them."""
    (packages,) = target.under(target.venv).glob("lib/python*/site-packages")
    lines = (
        f"#!{target.venv}/bin/python -IS",
        "import os",
        "import sys",
        "",
        f'os.environ["OARDIR"] = "{target.programs}"',
        f'sys.path.append("{target.venv}/{packages.relative_to(target.under(target.venv))}")',
        "",
        "from oar.cli.common.start_up import run",
        "",
        f'run("{module_of(name)}")',
        "",
    )
    _write(target.under(f"{target.programs}/{name}"), "\n".join(lines), 0o755)


def _programs(target: Target, names: Iterable[str], make: Callable[[Target, str], None] = _program) -> list[str]:
    there = [name for name in names if is_there(module_of(name))]
    for name in there:
        make(target, name)
    return there


def _user_wrapper(target: Target, name: str) -> None:
    wrapper = f"{_bindir(target)}/{name}"
    command = f'sudo -n -H -u {target.user} {target.programs}/{name} "$@"'
    long = _NOT_ASKED.format(patterns=_LONG[name]) if name in _LONG else ""
    ask = _ASK.format(socket=COMMAND_SOCKET, client=_client(target), version=_version(), wrapper=wrapper, name=name)
    staying = _STAYING.format(command=command, patterns=_STAY[name]) if name in _STAY else ""
    parts = ("#!/bin/sh\n", _BY_SUDO, _HANDED_OVER.get(name, ""), long, ask, staying, f"exec {command}\n")
    _write(target.under(wrapper), "".join(parts), 0o755)


def _client(target: Target) -> str:
    """The command by which the command server is asked; the bytecode of its program spares it the compiler."""
    (packages,) = target.under(target.venv).glob("lib/python*/site-packages")
    directory = packages / "oar" / "cli" / "warm"
    program = next(directory.glob("__pycache__/client.cpython-*[0-9].pyc"), directory / "client.py")
    return f"{target.venv}/bin/python -IS {target.venv}/{program.relative_to(target.under(target.venv))}"


def _version() -> str:
    """The version of the product, which its programs know as well."""
    text = SOURCE.joinpath("oar", "lib", "facts", "version.py").read_text()
    return text.partition('VERSION = "')[2].partition('"')[0]


def _admin_wrapper(target: Target, name: str) -> None:
    program = f"{target.programs}/{name}"
    text = f'#!/bin/sh\n[ "$(id -u)" = 0 ] && exec sudo -n -H -u {target.user} {program} "$@"\nexec {program} "$@"\n'
    if name in READABLE_COMMANDS:
        text = f'#!/bin/sh\nexec sudo -n -H -u {target.user} {program} "$@"\n'
    _write(target.under(f"{_sbindir(target)}/{name}"), text, 0o755)


def _root_wrapper(target: Target, name: str) -> None:
    _write(target.under(f"{_sbindir(target)}/{name}"), f'#!/bin/sh\nexec {target.programs}/{name} "$@"\n', 0o755)


def _completion(target: Target) -> None:
    """What shells need to complete the commands of users."""
    share = f"{target.prefix}/share"
    for shell, place in (
        ("bash", f"{share}/bash-completion/completions/oarsub"),
        ("zsh", f"{share}/zsh/site-functions/_oar"),
        ("fish", f"{share}/fish/vendor_completions.d/oarsub.fish"),
    ):
        program = "from oar.cli.oarsub import main; main()"
        python = target.under(f"{target.venv}/bin/python")
        done = subprocess.run(
            [python, "-I", "-c", program, "--completion", shell], check=False, capture_output=True, text=True
        )
        if done.returncode:
            raise InstallError(f"completion for {shell}: {done.stderr.strip()}")
        _write(target.under(place), done.stdout, 0o644)
    for name in [each for each in USER_COMMANDS if each not in ("oarsub", "oarnotify")]:
        _link(target.under(f"{share}/bash-completion/completions/{name}"), "oarsub")
        _link(target.under(f"{share}/fish/vendor_completions.d/{name}.fish"), "oarsub.fish")


def _link(place: Path, to: str) -> None:
    place.unlink(missing_ok=True)
    place.symlink_to(to)


def _bindir(target: Target) -> str:
    return target.bindir or f"{target.prefix}/bin"


def _sbindir(target: Target) -> str:
    return target.sbindir or f"{target.prefix}/sbin"


def _write(place: Path, text: str, mode: int) -> None:
    place.unlink(missing_ok=True)
    place.write_text(text)
    place.chmod(mode)


# -- files ---------------------------------------------------------------------------------------------------------


def copy_readable(source: Path, target: Path, *left_out: str) -> None:
    """Copy a tree so that everybody can read it, whoever could read the original."""
    ignored = shutil.ignore_patterns("__pycache__", *left_out)
    shutil.copytree(source, target, dirs_exist_ok=True, symlinks=True, ignore=ignored)
    for path in (target, *target.rglob("*")):
        mode = path.lstat().st_mode
        if not path.is_symlink():
            path.chmod((mode | (0o755 if mode & 0o100 else 0o644)) & 0o7777)


def _manual(target: Target, *sections: int) -> None:
    """The pages of these sections, and those of other names of users' commands."""
    texts = (_adapted(target, SOURCE / "docs" / f"{name}.rst") for name in ("commands", "configuration"))
    others = (manpages.alias(name, words.split()[0], 1) for name, words in OTHER_NAMES.items())
    for page in (*manpages.pages(*texts), *others):
        if page.section in sections:
            _write(target.under(f"{target.mandir or f'{target.prefix}/share/man'}/{page.path}"), page.text, 0o644)


def _adapted(target: Target, source: Path) -> str:
    """A shipped file with this installation's paths."""
    text = source.read_text().replace(_SHIPPED_OARDIR, target.programs)
    return text.replace("/etc/oar/", f"{target.confdir}/").replace("/var/lib/oar", target.homedir)


def _shipped(target: Target, source: Path, place: str, mode: int, *, is_configuration: bool = False) -> None:
    """Install one shipped file if it is among the sources; configuration that is there already stays."""
    if not source.is_file():
        return
    path = target.under(place)
    if is_configuration and path.exists():
        return
    _write(path, _adapted(target, source), mode)


def _configuration(target: Target) -> None:
    path = f"{target.confdir}/oar.conf"
    _shipped(target, SOURCE / "etc" / "oar.conf", path, 0o640, is_configuration=True)
    if not target.destdir:
        _give(Path(path), "root", target.user)


def _sudo_rules(target: Target) -> None:
    _shipped(target, SOURCE / "setup" / "nodes" / "sudoers", "/etc/sudoers.d/oar", 0o440)


def _units(target: Target, names: Iterable[str]) -> None:
    for name in names:
        _shipped(target, SOURCE / "setup" / "systemd" / name, f"/lib/systemd/system/{name}", 0o644)


def _tools(target: Target) -> None:
    for name in NODE_TOOLS:
        _shipped(target, SOURCE / "oar" / "tools" / name, f"{target.programs}/{name}", 0o755)
    for name in USER_TOOLS:
        if (SOURCE / "oar" / "tools" / name).is_file():
            _write(target.under(f"{_bindir(target)}/{name}"), f'#!/bin/sh\nexec {target.programs}/{name} "$@"\n', 0o755)


def _account(target: Target) -> None:
    """Make the account of OAR if it is missing; only on a running system, as root."""
    if target.destdir or os.getuid() != 0 or _exists(target.user):
        return
    shell = f"{target.programs}/oarsh_shell"
    _call(
        [
            "useradd",
            "--system",
            "--user-group",
            "--create-home",
            "--home-dir",
            target.homedir,
            "--shell",
            shell,
            "--password",
            "*",  # no password opens it; without one the account would be locked, to keys too
            target.user,
        ]
    )


def _log_file(target: Target) -> None:
    """The log is oar's; rotation must keep it so."""
    log = Path("/var/log/oar.log")
    if target.destdir or log.exists() or os.getuid() != 0:
        return
    log.touch(0o640)
    _give(log, target.user, target.user)


def _exists(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True


def _give(path: Path, owner: str, group: str) -> None:
    if os.getuid() == 0 and path.exists() and _exists(group):
        shutil.chown(path, owner, group)


# -- flavours ------------------------------------------------------------------------------------------------------


def install_server(target: Target) -> None:
    """Modules, administrators' commands, database files, units."""
    _account(target)
    _install_package(target)
    _programs(target, MODULES)
    for name in _programs(target, ADMIN_COMMANDS):
        _admin_wrapper(target, name)
    for name in _programs(target, ROOT_COMMANDS):
        _root_wrapper(target, name)
    database = target.under(f"{target.programs}/setup/database")
    copy_readable(SOURCE / "setup" / "database", database)
    _configuration(target)
    _log_file(target)
    _sudo_rules(target)
    _units(target, ("oar-server.service", "oar-accounting.service", "oar-accounting.timer", "oar.target"))
    _manual(target, 5, 8)


def install_user(target: Target) -> None:
    """What a login node needs."""
    _account(target)
    if not target.under(f"{target.venv}/bin/python").exists():
        _install_package(target)
    for name in _programs(target, USER_COMMANDS, _quick_program):
        _user_wrapper(target, name)
    _programs(target, [COMMAND_SERVER])
    _units(target, ("oar-commands.socket", "oar-commands.service"))
    for name, words in OTHER_NAMES.items():
        bindir = _bindir(target)
        _write(target.under(f"{bindir}/{name}"), f'#!/bin/sh\nexec {bindir}/{words} "$@"\n', 0o755)
    _completion(target)
    _manual(target, 1)
    _tools(target)
    _configuration(target)
    _sudo_rules(target)


def install_node(target: Target) -> None:
    """What a compute node needs: nothing of the package."""
    _account(target)
    _tools(target)
    nodes = SOURCE / "setup" / "nodes"
    for name, mode in (("sshd_config", 0o644), ("oar-node-service", 0o755), ("prologue", 0o755), ("epilogue", 0o755)):
        _shipped(target, nodes / name, f"{target.confdir}/{name}", mode, is_configuration=True)
    target.under(f"{target.confdir}/check.d/x").parent.chmod(0o755)
    _sudo_rules(target)
    _units(target, ("oar-node.service", "oar-node-script.service"))


def install_api(target: Target) -> None:
    """The REST API, beside the server or on a machine of its own: its libraries, its program, its unit."""
    _account(target)
    venv = target.under(target.venv)
    if not (venv / "bin" / "python").exists():
        _install_package(target)
    install_packages(venv, extra_requirements("api"))
    _programs(target, API_PROGRAMS)
    _configuration(target)
    _units(target, ("oar-api.service",))


def install_doc(target: Target) -> None:
    """The manual."""
    docs = target.under(target.docdir or f"{target.prefix}/share/doc/oar")
    for name in ("docs", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE"):
        source = SOURCE / name
        if source.is_dir():
            copy_readable(source, docs / name, "*.py")
        elif source.is_file():
            docs.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, docs / name)
    shutil.copyfile(SOURCE / "setup" / "qrstat.xsd", docs / "qrstat.xsd")
    _manual(target, 1, 5, 8)


FLAVOURS = {
    "server": install_server,
    "user": install_user,
    "node": install_node,
    "api": install_api,
    "doc": install_doc,
}


def install(flavours: Iterable[str], target: Target) -> None:
    """Install these flavours."""
    old = os.umask(0o022)
    try:
        for flavour in flavours:
            FLAVOURS[flavour](target)
    finally:
        os.umask(old)


def main(arguments: Sequence[str] | None = None) -> int:
    """The program setup/install."""
    parser = argparse.ArgumentParser(
        prog="setup/install", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("flavours", nargs="+", choices=sorted(FLAVOURS), metavar="server|user|node|api|doc")
    defaults = Target()
    for name in (
        "destdir",
        "prefix",
        "bindir",
        "sbindir",
        "mandir",
        "docdir",
        "oardir",
        "confdir",
        "homedir",
        "user",
        "python",
    ):
        parser.add_argument(f"--{name}", default=getattr(defaults, name))
    options = vars(parser.parse_args(arguments))
    flavours = options.pop("flavours")
    try:
        install(flavours, Target(**options))
    except (InstallError, OSError) as error:
        print(f"install: {error}", file=sys.stderr)
        return 1
    print(f"Installed: {', '.join(flavours)}.")
    return 0
