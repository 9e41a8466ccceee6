"""Programs of an installation: those in OARDIR, which run the package, and the wrappers that users call."""

from __future__ import annotations

import subprocess
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from . import environments, tables
from .files import link, shipped, write
from .target import SOURCE, InstallError, Target

#: sudo passes on only listed variables of the caller; oarsub needs the user's defaults, and the environment if there
#: may be an --env: on the command line, in a script, or in the defaults (oar/cli/oarsub_parts/command_line.py).
_OF_CALLER = """\
OAR_SUBMIT_ENV= OAR_SUBMIT_DEFAULTS= asks=
[ ! -e "$HOME/.oarsubrc" ] || OAR_SUBMIT_DEFAULTS=$HOME/.oarsubrc asks=perhaps
for word do case $word in --en* | --s* | -S* | -[!-]*S*) asks=perhaps ;; esac; done
[ ! "$asks" ] || OAR_SUBMIT_ENV=$(env -0 | head -c 96001 | base64 -w 0)
export OAR_SUBMIT_ENV OAR_SUBMIT_DEFAULTS
"""
#: The same for qrsub: the file with the default options of requests.
_OF_REQUESTER = """\
OAR_SUBMIT_DEFAULTS=
for file in "$HOME/.sge_ar_request" "$HOME/.oar_ar_request"; do [ ! -e "$file" ] || OAR_SUBMIT_DEFAULTS=$file; done
export OAR_SUBMIT_DEFAULTS
"""
#: An alternative name of a command, with a help of its own.
_OTHER_NAME = """\
#!/bin/sh
case $1 in -h | --help) exec cat <<'END'
{help}END
esac
exec {command} "$@"
"""
#: Date of the members of created archives, so that the archives are reproducible.
_OLDEST_DATE = (1980, 1, 1, 0, 0, 0)
#: What such commands hand over.
_HANDED_OVER = {"oarsub": _OF_CALLER, "qrsub": _OF_REQUESTER}
#: A long-running command is a child of a shell of the user, who can kill the shell; oar/cli/common/process.py detects
#: the end of the shell.
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
#: Long-running commands, and patterns that match their options; if a match is no such option, the shell is superfluous.
_STAY = {
    "oarsub": "--wa* | --in* | --co* | --rese* | --ap* | -[ICr]* | -[vkDXYJS]*[ICr]*",
    "oarstat": "--w* | --fol* | --t*",
    "qrsub": "-*",
}

#: On machines with the command service, its client is started first; it restarts the command by sudo if the service
#: does not answer.  Without PERL_BADLANG Perl would warn about missing locales.
#: sudo replaces SUDO_USER; what root passes on counts (oar/lib/access/acting.py).
_PERSON = '[ ! "$SUDO_USER" ] || export OAR_SUDO_USER="$SUDO_USER"\n'
_BY_SUDO = "by_sudo=$OAR_BY_SUDO\nunset OAR_BY_SUDO\n"
_PERL = "/usr/bin/perl"
_ASK = """\
if [ ! "$by_sudo" ] && [ -S {socket} ] && [ -x {perl} ]; then
    export PERL_BADLANG=0
    exec {perl} {client} {socket} {version} {wrapper} {name} "$@"
fi
"""
#: Commands that use the terminal or wait for hours do not go to the service, which refuses them as well: their options
#: are declared with ``lasts``.
_NOT_ASKED = "for word do case $word in {patterns}) by_sudo=yes ;; esac; done\n"
_LONG = {
    "oarsub": "--wa* | --in* | --con* | --ap* | -[IC]* | -[vkDXYJS]*[IC]*",
    "oarstat": "--w* | --fol* | --t*",
}


@dataclass(frozen=True)
class Programs:
    """Programs of an installation that run the package in a Python environment."""

    target: Target
    environment: str

    def modules(self) -> None:
        """Install the programs of the server."""
        self._all(tables.MODULES, self._program)

    def of_both(self) -> None:
        """Install the programs of commands for administrators and users."""
        self._all(tables.READABLE_COMMANDS, self._program)

    def of_users(self) -> None:
        """Install the commands of users, and the command service."""
        for name in self._all(tables.USER_COMMANDS, self._quick_program):
            self._user_wrapper(name)
        for name in tables.READABLE_COMMANDS:
            self._readable_wrapper(self.target.bin, name)
        self._all(tables.FRONTEND_COMMANDS, lambda name: self._program(name, self.target.bin))
        self._program(tables.COMMAND_SERVER)
        for name, words in tables.OTHER_NAMES.items():
            text = _OTHER_NAME.format(help=tables.HELP_OF_NAMES[name], command=f"{self.target.bin}/{words}")
            write(self.target.under(f"{self.target.bin}/{name}"), text, 0o755)

    def of_administrators(self) -> None:
        """Install the commands of administrators."""
        for name in self._all(tables.ADMIN_COMMANDS, self._program):
            self._admin_wrapper(name)
        for name in tables.READABLE_COMMANDS:
            self._readable_wrapper(self.target.sbin, name)
        for name in self._all(tables.ROOT_COMMANDS, self._program):
            text = f'#!/bin/sh\nexec {self.target.programs}/{name} "$@"\n'
            write(self.target.under(f"{self.target.sbin}/{name}"), text, 0o755)

    def of_api(self) -> None:
        """Install the program of the REST API."""
        self._all(tables.API_PROGRAMS, self._program)

    def completion(self, text_of: Callable[[str], str]) -> None:
        """Install the completion of the users' commands.  ``text_of``: returns the script for a shell."""
        share = f"{self.target.prefix}/share"
        for shell, place in (
            ("bash", f"{share}/bash-completion/completions/oarsub"),
            ("zsh", f"{self.target.zsh}/_oar"),
            ("fish", f"{share}/fish/vendor_completions.d/oarsub.fish"),
        ):
            write(self.target.under(place), text_of(shell), 0o644)
        for name in [each for each in tables.USER_COMMANDS if each not in ("oarsub", "oarnotify")]:
            link(self.target.under(f"{share}/bash-completion/completions/{name}"), "oarsub")
            link(self.target.under(f"{share}/fish/vendor_completions.d/{name}.fish"), "oarsub.fish")

    def _all(self, names: Iterable[str], make: Callable[[str], None]) -> list[str]:
        there = [name for name in names if tables.is_there(tables.module_of(name))]
        for name in there:
            make(name)
        return there

    def _program(self, name: str, place: str = "") -> None:
        """Write OARDIR/<name>: it runs its module, ignores the caller's Python settings, and knows its installation.

        ``place``: another directory for it.
        """
        lines = (
            f"#!{self.environment}/bin/python -I",
            "import os",
            "import sys",
            "",
            f'os.environ["OARDIR"] = "{self.target.programs}"',
            "",
            f"from {tables.module_of(name)} import main",
            "",
            "sys.exit(main())",
            "",
        )
        write(self.target.under(f"{place or self.target.programs}/{name}"), "\n".join(lines), 0o755)

    def _quick_program(self, name: str) -> None:
        """Write the program of a user's command: it names the package directory, because a search takes longer."""
        lines = (
            f"#!{self.environment}/bin/python -IS",
            "import os",
            "import sys",
            "",
            f'os.environ["OARDIR"] = "{self.target.programs}"',
            f'sys.path.append("{self.environment}/{environments.PACKAGES}")',
            "",
            "from oar.cli.common.start_up import run",
            "",
            f'run("{tables.module_of(name)}")',
            "",
        )
        write(self.target.under(f"{self.target.programs}/{name}"), "\n".join(lines), 0o755)

    def _user_wrapper(self, name: str) -> None:
        wrapper = f"{self.target.bin}/{name}"
        command = f'sudo -n -H -u {self.target.user} {self.target.programs}/{name} "$@"'
        long = _NOT_ASKED.format(patterns=_LONG[name]) if name in _LONG else ""
        client = f"{self.environment}/{environments.PACKAGES}/{environments.CLIENT}"
        ask = _ASK.format(
            socket=tables.COMMAND_SOCKET, perl=_PERL, client=client, version=_version(), wrapper=wrapper, name=name
        )
        staying = _STAYING.format(command=command, patterns=_STAY[name]) if name in _STAY else ""
        parts = ("#!/bin/sh\n", _PERSON, _BY_SUDO, _HANDED_OVER.get(name, ""), long, ask, staying, f"exec {command}\n")
        write(self.target.under(wrapper), "".join(parts), 0o755)

    def _admin_wrapper(self, name: str) -> None:
        program, user = f"{self.target.programs}/{name}", self.target.user
        of_root = f'[ "$(id -u)" = 0 ] && exec sudo -n -H -u {user} {program} "$@"\n'
        text = f'#!/bin/sh\n{_PERSON}{of_root}exec {program} "$@"\n'
        write(self.target.under(f"{self.target.sbin}/{name}"), text, 0o755)

    def _readable_wrapper(self, place: str, name: str) -> None:
        text = f'#!/bin/sh\n{_PERSON}exec sudo -n -H -u {self.target.user} {self.target.programs}/{name} "$@"\n'
        write(self.target.under(f"{place}/{name}"), text, 0o755)


def tools(target: Target) -> None:
    """Install the standalone tools of nodes and login nodes, which use nothing of the package."""
    for name in tables.NODE_TOOLS:
        shipped(target, f"oar/tools/{name}", f"{target.programs}/{name}", 0o755)
    for name in tables.USER_TOOLS:
        if (SOURCE / "oar" / "tools" / name).is_file():
            text = f'#!/bin/sh\nexec {target.programs}/{name} "$@"\n'
            write(target.under(f"{target.bin}/{name}"), text, 0o755)


def agent(path: Path) -> None:
    """Create the agent of desktop computers: a reproducible archive that Python executes."""
    sources = SOURCE / "oar" / "tools"
    names = {"__main__.py": tables.AGENT_MAIN, **{name: name for name in tables.AGENT_PARTS}}
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(b"#!/usr/bin/python3 -I\n")
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, source in names.items():
                info = zipfile.ZipInfo(name, _OLDEST_DATE)
                archive.writestr(info, (sources / source).read_bytes(), zipfile.ZIP_DEFLATED)
    path.chmod(0o755)


def completion_of(shell: str, python: Path) -> str:
    """Return the completion script for a shell.  ``python``: Python with the package.  Raises InstallError."""
    program = "from oar.cli.oarsub import main; main()"
    words = [str(python), "-I", "-c", program, "--completion", shell]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    if done.returncode:
        raise InstallError(f"completion for {shell}: {done.stderr.strip()}")
    return done.stdout


def _version() -> str:
    """Return the version of the product from its sources."""
    text = SOURCE.joinpath("oar", "lib", "base", "version.py").read_text()
    return text.partition('VERSION = "')[2].partition('"')[0]
