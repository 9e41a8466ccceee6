"""oarsub --completion: what a shell needs to complete the commands of users.

For ``bash``, ``zsh`` and ``fish`` it is a script, made of the same declarations as the commands' own help.  The script
contains options and fixed words; names from the database (queues, properties, jobs, reservations) are requested when
the user presses TAB, by the same option: ``oarsub --completion queues``.
"""

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import click

from oar.cli.common.command import Command, Context
from oar.cli.common.options import OptionalArgument, Stop
from oar.lib.jobs.states import STATE_LETTERS
from oar.lib.reservations.records import AdvanceReservation
from oar.lib.reservations.states import GRANTED
from oar.lib.submission.options import OPTIONS, VERIFICATIONS

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
    **{name: option.words for name, option in OPTIONS.items()},
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
        commands = {name: options_of(name) for name in COMMANDS}
        click.echo(_SCRIPTS[what]({**commands, **_TOOLS}), nl=False)
    elif what in _LISTS:
        click.echo("".join(f"{word}\n" for word in _LISTS[what](context)), nl=False)
    else:
        raise Stop(f"# Error: --completion takes {', '.join(_SCRIPTS)} or {', '.join(_LISTS)}, not {what}.")


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


def _queues(context: Context) -> list[str]:
    with context.database.snapshot() as tx:
        return [queue.name for queue in tx.queues.all()]


def _properties(context: Context) -> list[str]:
    with context.database.snapshot() as tx:
        return sorted(tx.resources.columns())


def _nodes(context: Context) -> list[str]:

    with context.database.snapshot() as tx:
        return tx.resources.nodes()


def _jobs(context: Context) -> list[str]:
    with context.database.snapshot() as tx:
        return [str(job.id) for job in tx.jobs.live(context.user.name)]


def _reservations(context: Context) -> list[str]:
    """Return numbers and names of the reservations that jobs can be submitted into."""
    with context.database.snapshot() as tx:
        return _words_for(reservation for reservation in tx.reservations.planned() if reservation.state in GRANTED)


def _own_reservations(context: Context) -> list[str]:
    """Return numbers and names of the reservations that the user may change."""
    from oar.lib.reservations import rights

    with context.database.snapshot() as tx:
        is_operator = rights.is_operator(tx, context.user)
        granted = [reservation for reservation in tx.reservations.planned() if reservation.state in GRANTED]
    return _words_for(reservation for reservation in granted if is_operator or reservation.owner == context.user.name)


def _words_for(reservations: Iterable[AdvanceReservation]) -> list[str]:
    return list(
        dict.fromkeys(
            word for reservation in reservations for word in (str(reservation.number), reservation.name) if word
        )
    )


def _usersets(context: Context) -> list[str]:
    with context.database.snapshot() as tx:
        return tx.access.userset_names()


def _fields(context: Context) -> list[str]:
    from oar.cli.oarstat_parts.tables import KEYS

    return sorted(KEYS)


_LISTS: Mapping[str, Callable[[Context], Sequence[str]]] = {
    "queues": _queues,
    "properties": _properties,
    "nodes": _nodes,
    "jobs": _jobs,
    "reservations": _reservations,
    "own-reservations": _own_reservations,
    "usersets": _usersets,
    "fields": _fields,
}

# -- scripts ----------------------------------------------------------------------------------------------------------

_FIXED = {
    "types": " ".join(TYPES),
    "states": " ".join(dict.fromkeys(STATE_LETTERS.values())),
    "engines": "dask ray spark",
}
#: The kinds read from the database, as a pattern of both shells.
_ASKED = "|".join(_LISTS)

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


def _bash(commands: Mapping[str, Sequence[CompletedOption]]) -> str:
    return _script(_BASH, commands, _bash_command)


def _script(
    template: str,
    commands: Mapping[str, Sequence[CompletedOption]],
    write: Callable[[str, Sequence[CompletedOption]], str],
) -> str:
    written = "".join(write(*command) for command in commands.items())
    return template.format(**_FIXED, asked=_ASKED, names=" ".join(commands), commands=written)


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


def _zsh(commands: Mapping[str, Sequence[CompletedOption]]) -> str:
    return _script(_ZSH, commands, _zsh_command)


def _zsh_command(name: str, options: Sequence[CompletedOption]) -> str:
    lines = _arguments(name, options, "_oar_fill '{}'; ")
    lines.append("        options=(")
    lines += [f"            {described}" for option in options for described in _described(option)]
    lines.append("        )")
    lines.append(f"        kind={_WORDS.get(name, 'jobs')} ;;")
    return "\n".join(lines) + "\n"


def _described(option: CompletedOption) -> Iterator[str]:
    text = option.help.replace("'", "").replace(":", "\\:")
    for name in option.names:
        yield f"'{name}:{text}'"


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


def _fish(commands: Mapping[str, Sequence[CompletedOption]]) -> str:
    return _FISH.format(commands="\n".join(_fish_command(*command) for command in commands.items()))


def _fish_command(name: str, options: Sequence[CompletedOption]) -> str:
    lines = [f"complete -c {name} -e", f"complete -c {name} {_fish_kind(_WORDS.get(name, 'jobs'))}"]
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
    words = f"(__oar_words {kind})" if kind in _LISTS else _FIXED.get(kind, kind)
    return _FISH_KINDS.get(kind) or f"-f -a '{words}'"


_SCRIPTS: Mapping[str, Callable[[Mapping[str, Sequence[CompletedOption]]], str]] = {
    "bash": _bash,
    "zsh": _zsh,
    "fish": _fish,
}
