"""oarsub --completion: what a shell needs to complete the commands of users.

For ``bash``, ``zsh`` and ``fish`` it is a script, made of the same declarations as the commands' own help.  The script
contains options and fixed words; names from the database (queues, properties, jobs, reservations) are requested when
the user presses TAB, by the same option: ``oarsub --completion queues``.
"""

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from oar.cli.common.command import Command, Context
from oar.cli.common.options import OptionalArgument, Stop
from oar.lib.access.records import User
from oar.lib.jobs.states import STATE_LETTERS, Outcome
from oar.lib.reservations.records import AdvanceReservation
from oar.lib.reservations.states import GRANTED
from oar.lib.submission.options import OPTIONS, VERIFICATIONS

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction

#: The commands whose options are words with one dash, as in Grid Engine.
RESERVATION_COMMANDS = ("qrsub", "qrstat", "qralter", "qrdel", "oaruserset")
COMMANDS = (
    *("oarsub", "oarstat", "oarnodes", "oardel", "oarhold", "oarresume", "oarwalltime", "oaralter"),
    *RESERVATION_COMMANDS,
)

#: Types of jobs; those with an argument end in their separator.
TYPES = (
    *("besteffort", "idempotent", "timesharing", "container", "container=", "container_users=", "inner=", "ar=hard"),
    *("deploy", "deploy=standby", "cosystem", "cosystem=standby", "noop", "noop=standby", "desktop_computing"),
    *("placeholder=", "allowed=", "token:", "expire=", "deadline=", "postpone=", "state=permissive", "checkpoint"),
    "walltime=best",
)
#: What the argument of an option is, by the name of its parameter; for some commands another.
_KINDS: Mapping[str, str] = {
    **{name: option.completes for name, option in OPTIONS.items()},
    "arrays": "jobs",
    "color": "auto always never",
    "conflict": "fail skip",
    "connect": "jobs",
    "deleted": "usersets",
    "explain": "jobs",
    "fields": "fields",
    "flex": "yes no",
    "hard": "yes no",
    "hosts": "nodes",
    "jobs": "jobs",
    "layout": "1 2 3 4",
    "mail_options": "b e a n",
    "now": "yes no",
    "owner": "users",
    "owners": "users",
    "queues": "queues",
    "replace": "yes no",
    "shown": "usersets",
    "signal_text": "signals",
    "states": "states",
    "usage": "jobs",
    "users": "users",
    "verify": "e v",
}
#: What the argument is where a command has another one by that name.
_KINDS_OF: Mapping[tuple[str, str], str] = {
    ("oarstat", "advance_reservation"): "",
    ("oarsub", "verify"): " ".join(VERIFICATIONS),
    ("oaruserset", "added"): "users",
    ("oaruserset", "removed"): "users",
    ("qrstat", "states"): "",
    ("qrstat", "wanted"): "reservations",
}
#: What the words are that are no options.
_WORDS = {
    "oarsub": "commands",
    "oarnodes": "nodes",
    "qrsub": "",
    "qrstat": "",
    "qralter": "own-reservations",
    "qrdel": "own-reservations",
    "oaruserset": "usersets",
    "oar-launch": "engines",
}


class CompletedOption(NamedTuple):
    """An option as a shell completes it."""

    names: tuple[str, ...]
    kind: str  #: what its argument is, "" = not known
    takes: bool  #: whether the next word is its argument
    help: str


#: Commands that are no part of this package, and which the scripts know all the same.
_TOOLS: Mapping[str, Sequence[CompletedOption]] = {
    "oar-launch": [
        CompletedOption(("-o", "--output"), "files", True, "Where the engine writes what it does."),
        CompletedOption(("-h", "--help"), "", False, "Show how it is used."),
    ]
}


def run(context: Context, what: str) -> None:
    """Print a script, or words of one kind.  Raises Stop."""
    if what in _SCRIPTS:
        template, write_command = _SCRIPTS[what]
        commands = {**{name: options_of(name) for name in COMMANDS}, **_TOOLS}
        written = "".join(write_command(*command) for command in commands.items())
        script = template.format(**_FIXED, asked=_ASKED, names=" ".join(commands), commands=written)
        click.echo(script, nl=False)
    elif what == _FIELDS:
        from oar.cli.oarstat_parts.tables import KEYS

        click.echo("".join(f"{field}\n" for field in sorted(KEYS)), nl=False)
    elif what in _LISTS:
        with context.database.snapshot() as tx:
            words = list(_LISTS[what](tx, context.user))
        click.echo("".join(f"{word}\n" for word in words), nl=False)
    else:
        raise Stop(f"# Error: --completion takes {', '.join(_SCRIPTS)} or {', '.join([*_LISTS, _FIELDS])}, not {what}.")


def options_of(name: str) -> list[CompletedOption]:
    """Return the options of a command."""
    command: Command = importlib.import_module(f"oar.cli.{name}").main
    return [
        _option(name, parameter)
        for parameter in command.params
        if isinstance(parameter, click.Option) and parameter.name not in ("completion", "debug")
    ]


def _option(command: str, parameter: click.Option) -> CompletedOption:
    takes = not (parameter.is_flag or parameter.count)
    attached = isinstance(parameter, OptionalArgument) and parameter.attached
    name = parameter.name or ""
    kind = _KINDS_OF.get((command, name), _KINDS.get(name, "")) if takes else ""
    names = tuple(name for name in parameter.opts if "_" not in name or name.replace("_", "-") not in parameter.opts)
    return CompletedOption(names, kind, takes and not attached, parameter.help or "")


# -- what the database knows ------------------------------------------------------------------------------------------


def _names_of(reservations: Iterable[AdvanceReservation]) -> list[str]:
    """Return numbers and names of the granted reservations."""
    granted = [reservation for reservation in reservations if reservation.state in GRANTED]
    words = [word for reservation in granted for word in (str(reservation.number), reservation.name)]
    return list(dict.fromkeys(filter(None, words)))


def _own_reservations(tx: "Transaction", user: User) -> list[str]:
    """Return numbers and names of the reservations that the user may change."""
    from oar.lib.reservations import permissions

    is_operator = permissions.is_operator(tx, user)
    planned = tx.reservations.planned()
    return _names_of(reservation for reservation in planned if is_operator or reservation.owner == user.name)


_LISTS: Mapping[str, Callable[["Transaction", User], Iterable[str]]] = {
    "queues": lambda tx, _: (queue.name for queue in tx.queues.all()),
    "properties": lambda tx, _: sorted(tx.resources.columns()),
    "nodes": lambda tx, _: tx.resources.nodes(),
    "jobs": lambda tx, user: (str(job.id) for job in tx.jobs.live(user.name)),
    "reservations": lambda tx, _: _names_of(tx.reservations.planned()),
    "own-reservations": _own_reservations,
    "usersets": lambda tx, _: tx.access.userset_names(),
}
#: The list of the columns of oarstat, for which the database is not needed.
_FIELDS = "fields"

# -- scripts ----------------------------------------------------------------------------------------------------------

_FIXED = {
    "types": " ".join(TYPES),
    "states": " ".join([*dict.fromkeys(STATE_LETTERS.values()), *Outcome]),
    "engines": "dask ray spark",
}
#: The kinds read from the database, as a pattern of both shells.
_ASKED = "|".join([*_LISTS, _FIELDS])

_BASH = """\
# Completion of the commands of OAR for bash: written by oarsub --completion bash.

_oar_fill() {{ # kind, what is typed
    case $1 in
    {asked}) COMPREPLY=($(compgen -W "$(oarsub --completion "$1" 2>/dev/null)" -- "$2")) ;;
    requests)
        local last=${{2##*[/+,\\}}]}} names="walltime $(oarsub --completion properties 2>/dev/null)"
        COMPREPLY=($(compgen -P "${{2%"$last"}}" -S = -W "$names" -- "$last"))
        compopt -o nospace ;;
    types)
        COMPREPLY=($(compgen -W "{types}" -- "$2"))
        [[ ${{COMPREPLY[0]}} != *[=:] ]] || compopt -o nospace ;;
    states) COMPREPLY=($(compgen -W "{states}" -- "$2")) ;;
    signals) COMPREPLY=($(compgen -A signal -- "$2")) ;;
    users) COMPREPLY=($(compgen -u -- "$2")) ;;
    files) compopt -o filenames; COMPREPLY=($(compgen -f -- "$2")) ;;
    directories) compopt -o filenames; COMPREPLY=($(compgen -d -- "$2")) ;;
    commands) compopt -o filenames; COMPREPLY=($(compgen -c -f -- "$2")) ;;
    engines)
        COMPREPLY=($(compgen -W "{engines}" -- "$2"))
        ((COMP_CWORD == 1)) || {{ compopt -o filenames; COMPREPLY=($(compgen -c -f -- "$2")); }} ;;
    *) COMPREPLY=($(compgen -W "$1" -- "$2")) ;;
    esac
}}

_oar() {{
    local IFS=$' \\t\\n' current=${{COMP_WORDS[COMP_CWORD]}} place=$COMP_CWORD
    COMPREPLY=()
    # The shell has cut the word at each =: find where it begins.
    while ((place > 1)); do
        if [[ ${{COMP_WORDS[place]}} == = ]]; then
            place=$((place - 1))
        elif [[ ${{COMP_WORDS[place-1]}} == = ]]; then
            place=$((place - 2))
        else
            break
        fi
    done
    [[ $current != = ]] || current=
    local before=${{COMP_WORDS[place-1]}} options= kind
    if ((place < COMP_CWORD)) && [[ ${{COMP_WORDS[place]}} == --* ]]; then
        before=${{COMP_WORDS[place]}}
    fi
    case ${{COMP_WORDS[0]##*/}} in
{commands}    esac
    if [[ $current == -* ]]; then
        COMPREPLY=($(compgen -W "$options" -- "$current"))
    else
        _oar_fill "$kind" "$current"
    fi
}}

complete -F _oar {names}
"""


def _arguments(name: str, options: Sequence[CompletedOption], fill: str) -> list[str]:
    """Return the beginning of a command's case in both shells: what completes the argument of each of its options."""
    lines = [f"    {name})", "        case $before in"]
    for option in options:
        if option.takes:
            act = fill.format(option.kind) if option.kind else ""
            lines.append(f"        {'|'.join(option.names)}) {act}return ;;")
    return [*lines, "        esac"]


def _bash_command(name: str, options: Sequence[CompletedOption]) -> str:
    lines = _arguments(name, options, '_oar_fill "{}" "$current"; ')
    first = "-" if name in RESERVATION_COMMANDS else "--"
    names = " ".join(spelling for option in options for spelling in option.names if spelling.startswith(first))
    lines.append(f'        options="{names}"')
    lines.append(f"        kind={_WORDS.get(name, 'jobs')} ;;")
    return "\n".join(lines) + "\n"


_ZSH = """\
#compdef {names}
# Completion of the commands of OAR for zsh: written by oarsub --completion zsh.

_oar_fill() {{ # kind
    local -a found
    case $1 in
    {asked}) found=(${{(f)"$(oarsub --completion $1 2>/dev/null)"}}); compadd -a found ;;
    requests)
        compset -P '*[/+,}}]'
        found=(walltime ${{(f)"$(oarsub --completion properties 2>/dev/null)"}})
        compadd -S = -a found ;;
    types) found=({types}); compadd -S '' -a found ;;
    states) found=({states}); compadd -a found ;;
    signals) _signals -p ;;
    users) _users ;;
    files) _files ;;
    directories) _files -/ ;;
    commands) _alternative 'commands:command:_command_names -e' 'files:file:_files' ;;
    engines)
        if ((CURRENT == 2)); then
            found=({engines}); compadd -a found
        else
            _alternative 'commands:command:_command_names -e' 'files:file:_files'
        fi ;;
    *) found=(${{=1}}); compadd -a found ;;
    esac
}}

_oar() {{
    local before=${{words[CURRENT-1]}} kind
    local -a options
    if [[ ${{words[CURRENT]}} == --*=* ]]; then
        before=${{words[CURRENT]%%=*}}
        compset -P '--*='
    fi
    case ${{words[1]:t}} in
{commands}    esac
    if [[ ${{words[CURRENT]}} == -* ]]; then
        _describe -o option options
    else
        _oar_fill $kind
    fi
}}

_oar "$@"
"""


def _zsh_command(name: str, options: Sequence[CompletedOption]) -> str:
    lines = _arguments(name, options, "_oar_fill '{}'; ")
    lines.append("        options=(")
    for option in options:
        text = option.help.replace("'", "").replace(":", "\\:")
        lines += [f"            '{spelling}:{text}'" for spelling in option.names]
    lines.append("        )")
    lines.append(f"        kind={_WORDS.get(name, 'jobs')} ;;")
    return "\n".join(lines) + "\n"


_FISH = """\
# Completion of the commands of OAR for fish: written by oarsub --completion fish.

function __oar_words # kind
    oarsub --completion $argv[1] 2>/dev/null
end

function __oar_requests
    set -l typed (commandline -ct | string replace -r -- '^--[^=]*=' '')
    set -l before (string replace -r -- '[^/+,}}]*$' '' $typed)
    for name in walltime (__oar_words properties)
        echo "$before$name="
    end
end
{commands}"""

#: fish's code for the kind of an argument.
_FISH_KINDS = {
    "commands": "-f -a '(__fish_complete_command)'",
    "directories": "-f -a '(__fish_complete_directories)'",
    "engines": "-n '__fish_is_first_arg' -f -a 'dask ray spark'",
    "files": "-F",
    "requests": "-f -a '(__oar_requests)'",
    "signals": "-f -a '(kill -l | string split \" \")'",
    "users": "-f -a '(__fish_complete_users)'",
}


def _fish_command(name: str, options: Sequence[CompletedOption]) -> str:
    lines = ["", f"complete -c {name} -e", f"complete -c {name} {_fish_kind(_WORDS.get(name, 'jobs'))}"]
    for option in options:
        names = " ".join(_fish_name(name, spelling) for spelling in option.names)
        kind = f" -r {_fish_kind(option.kind)}" if option.takes else ""
        help = option.help.replace("\\", "\\\\").replace("'", "\\'")
        lines.append(f"complete -c {name} {names}{kind} -d '{help}'")
    return "\n".join(lines) + "\n"


def _fish_name(command: str, name: str) -> str:
    """Return fish's declaration of an option; options that are words are not bundled."""
    if name.startswith("--"):
        return f"-l {name[2:]}"
    is_letter = len(name) == 2 and command not in RESERVATION_COMMANDS
    return f"-s {name[1:]}" if is_letter else f"-o {name[1:]}"


def _fish_kind(kind: str) -> str:
    if not kind:
        return "-f"
    words = f"(__oar_words {kind})" if kind in _LISTS or kind == _FIELDS else _FIXED.get(kind, kind)
    return _FISH_KINDS.get(kind) or f"-f -a '{words}'"


#: The template of each script, and the function that writes the part of a command.
_SCRIPTS: Mapping[str, tuple[str, Callable[[str, Sequence[CompletedOption]], str]]] = {
    "bash": (_BASH, _bash_command),
    "zsh": (_ZSH, _zsh_command),
    "fish": (_FISH, _fish_command),
}
