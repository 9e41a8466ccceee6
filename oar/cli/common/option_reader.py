"""Reads options by GNU's rules, or as words behind one dash, and writes them in the one form that click needs.

See docs/design/formats.rst, "Options".
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import click

from oar.cli.common.options import (
    BLANKS,
    DIGITS,
    BadOption,
    Join,
    OptionalArgument,
    PathOption,
    PlainOption,
    Style,
    canonical_name,
)

#: The argument of an option that takes numbers or jobs only, and may be omitted.
_BEGINNINGS = {"digits": "(?=,*[0-9])[0-9,]+", "jobs": r"(?=,*[0-9])[][0-9,_*-]+"}


class OptionForm(NamedTuple):
    """An option as the parser knows it."""

    spelling: str  #: the name that click is given
    #: "" nothing, "text" and "path" an argument, "pair" two; others one that may be omitted: "optional", "digits",
    #: "jobs", "attached"
    takes: str
    metavar: str = ""  #: what its argument is called
    help: str = ""
    is_list: bool = True  #: each value counts that it is given
    join: Join | None = None  #: how values are joined that are not a list; None: the last one counts


class RepeatedOption(NamedTuple):
    """An option with several different values, of which the last one counts."""

    name: str
    value: str


class OptionReader:
    """Converts the arguments of a user to arguments that click cannot misread."""

    def __init__(
        self, parameters: Iterable[click.Parameter], style: Style, *, signed_operands: bool = False, command: str = ""
    ) -> None:
        """``command``: whose options they are."""
        self._words = style.words
        self._command = command
        self._short: dict[str, OptionForm] = {}
        self._long: dict[str, OptionForm] = {}
        self._underscores = style.underscores
        self._signed_operands = signed_operands
        for parameter in parameters:
            if isinstance(parameter, click.Option):
                join = parameter.join if isinstance(parameter, PlainOption) else None
                is_list = parameter.is_list if isinstance(parameter, OptionalArgument) else parameter.multiple
                form = OptionForm(
                    canonical_name(parameter.opts),
                    _taken_by(parameter),
                    parameter.metavar or "",
                    parameter.help or "",
                    is_list,
                    join,
                )
                for name in parameter.opts:
                    if name.startswith("--") or self._words:
                        self._long[self._plain(name.lstrip("-"))] = form
                    else:
                        self._short[name[1:]] = form
        self.options: list[str] = []
        self.operands: list[str] = []
        self.dashes: int | None = None  #: number of operands before "--", None if there was none
        self.repeated: dict[str, RepeatedOption] = {}
        self._places: dict[str, int] = {}  #: of the options that are no lists, in ``options``
        self._unread: list[str] = []
        self._mistakes: dict[str, None] = {}  #: messages of wrong options

    def read(self, arguments: Sequence[str]) -> list[str]:
        """Return the canonical arguments.  Raises BadOption, with the messages of all wrong options."""
        self._unread = list(reversed(arguments))
        while self._unread:
            argument = self._unread.pop()
            if argument == "--":
                self.dashes = len(self.operands)
                self.operands.extend(reversed(self._unread))
                break
            try:
                self._argument(argument)
            except BadOption as error:
                self._mistakes[str(error)] = None
        if self._mistakes:
            raise BadOption("\n".join(self._mistakes))
        return [*self.options, "--", *self.operands]

    def _argument(self, argument: str) -> None:
        if argument.startswith("--"):
            self._long_option(argument[2:])
        elif self._words and argument.startswith("-") and argument != "-":
            self._long_option(argument[1:])
        elif argument.startswith("-") and argument != "-" and not self._is_signed_operand(argument):
            self._short_options(argument[1:])
        else:
            self.operands.append(argument)

    def _is_signed_operand(self, argument: str) -> bool:
        return self._signed_operands and bool(self.operands) and argument[1] in DIGITS

    def _short_options(self, text: str) -> None:
        """Read what follows one dash: an option of several letters (-ar is not -a with the argument r), or a bundle."""
        name, equals, value = text.partition("=")
        if len(name) > 1 and name in self._short:
            form = self._short[name]
            self._give(form, value if equals else self._next(form, name))
        else:
            self._bundle(text)

    def _plain(self, name: str) -> str:
        return name.replace("_", "-") if self._underscores else name

    def _long_option(self, text: str) -> None:
        written, equals, value = text.partition("=")
        name = self._full_name(written)
        form = self._long[name]
        if not form.takes:
            if equals:
                raise BadOption(f"Option {name} does not take an argument")
            self.options.append(form.spelling)
        elif form.takes == "pair":
            first = value if equals else self._next(form, name)
            self._put(form, first, self._next(form, name))
        elif equals:
            self._give(form, value)
        else:
            self._give(form, self._next(form, name))

    def _full_name(self, written: str) -> str:
        """Return the name of a long option that may be cut short.  Raises BadOption."""
        name = self._plain(written)
        if name in self._long:
            return name
        names = () if self._words else self._long
        fitting = [candidate for candidate in names if name and candidate.startswith(name) and candidate != "debug"]
        shortest = min(fitting, key=len, default="")
        is_clear = all(
            candidate.startswith(shortest) for candidate in fitting
        )  # --stat is --state, though there is --states
        if not is_clear and len({self._long[candidate].spelling for candidate in fitting}) > 1:
            raise BadOption(f"Option {written} is ambiguous ({', '.join(sorted(fitting))})")
        if not fitting:
            raise BadOption(f"Unknown option: {written}{self._way_out(written)}")
        return shortest

    def _way_out(self, written: str) -> str:
        """Return a line that helps who wrote an unknown long option; '' if nothing is like it."""
        from oar.lib.base.texts import did_you_mean

        if here := self._of_command() or way_here(self._command, written):
            return here
        dashes = "-" if self._words else "--"
        known = [f"{dashes}{long_name}" for long_name in self._long if long_name != "debug"]
        guess = did_you_mean(f"{dashes}{written}", known, quote="")
        return guess.replace("# Did", "  did") if self._words else guess

    def _of_command(self) -> str:
        """Return a line about an option that was perhaps meant for the command of a job."""
        if self._command != "oarsub" or self._mistakes or not self.operands or self.operands[0].startswith("-"):
            return ""
        return f"\n# Quote a command that has options: oarsub '{self.operands[0]} ...', or write it after --"

    def _bundle(self, letters: str) -> None:
        """Read flags of one letter, and at the end perhaps an option with its argument."""
        whole = letters
        while letters:
            letter, letters = letters[0], letters[1:]
            form = self._short.get(letter)
            if form is None:
                raise BadOption(
                    f"Unknown option: {letter}{self._of_command() or way_here(self._command, whole, letter)}"
                )
            if not form.takes:
                self.options.append(form.spelling)
            elif form.takes in _BEGINNINGS and letters:
                value = re.match(_BEGINNINGS[form.takes], letters)
                self._give(form, value[0] if value else "")
                letters = letters[value.end() if value else 0 :]
            else:
                self._give(form, letters.lstrip(BLANKS) if letters else self._next(form, letter))
                letters = ""

    def _next(self, form: OptionForm, name: str) -> str:
        """Take the next argument as the option's own, if it is one.  Raises BadOption."""
        following = self._unread[-1] if self._unread else None
        if form.takes in ("text", "path", "pair"):
            if following is None or self._is_option(following):
                wanted = _wanted(form) if self._words else ""
                raise BadOption(f"Option {name} requires an argument{wanted}")
            return self._unread.pop()
        if form.takes == "attached" or following is None or following.startswith("-"):
            return ""
        if form.takes in _BEGINNINGS and not re.fullmatch(_BEGINNINGS[form.takes], following):
            return ""
        if self._words and not following:
            raise BadOption(f"Option {name} has an empty argument{_wanted(form)}")
        return self._unread.pop()

    def _is_option(self, argument: str) -> bool:
        """Whether an argument is the name of an option, where those are words: a forgotten argument swallows none."""
        return self._words and argument.startswith("-") and argument.lstrip("-").partition("=")[0] in self._long

    def _give(self, form: OptionForm, value: str) -> None:
        """Hand a value over; a list of numbers as that many values: -j 26,27 is -j 26 -j 27."""
        numbers = [part for part in value.split(",") if part] if form.takes == "digits" else []
        for item in numbers or [value]:
            self._put(form, item if form.takes == "path" else item.strip(BLANKS))

    def _put(self, form: OptionForm, *values: str) -> None:
        """Add an option with its values; one that is no list is joined with its former value, or replaces it."""
        place = None if form.is_list else self._places.get(form.spelling)
        if place is None:
            self._places[form.spelling] = len(self.options)
            self.options += [form.spelling, *values]
            return
        here = slice(place + 1, place + 1 + len(values))
        former = self.options[here]
        if form.join is not None:
            values = (form.join.join(former[0], values[0]),)
        elif former != list(values):
            shown = form.spelling.removeprefix("-") if re.fullmatch("--.", form.spelling) else form.spelling
            self.repeated[form.spelling] = RepeatedOption(shown, " ".join(values))
        self.options[here] = values


def _wanted(form: OptionForm) -> str:
    """Return the argument of an option, and a hint about quotes if a shell would expand it."""
    dollars = [word.strip(",;:.()") for word in form.help.split() if "$" in word]
    quoted = f"\n  in a shell {dollars[0]} needs quotes: '{dollars[0]}'" if dollars else ""
    return f": {form.metavar}{quoted}" if form.metavar else quoted


def _taken_by(option: click.Option) -> str:
    if option.is_flag or option.count:
        return ""
    if option.nargs == 2:
        return "pair"
    if isinstance(option, OptionalArgument):
        return "attached" if option.attached else "digits" if option.numeric else "jobs" if option.jobs else "optional"
    return "path" if isinstance(option, PathOption) else "text"


_CORES = "-l core=NUMBER"
_DEPENDENCY = "-a JOB_ID (start when it has ended well)"
_MAIL = "--notify mail:ADDRESS"
_NODES = "-l nodes=NUMBER"
_PROPERTY = "-p CONDITION (the properties of nodes: oarnodes)"
_WALLTIME = "-l walltime=HOURS:MINUTES"
_BY_NUMBER = "job ids, without an option"

_SUBMISSION = {
    "N": f"{_NODES}; -n NAME",
    "nodes": _NODES,
    **dict.fromkeys(("ntasks", "np", "c", "cpus-per-task"), _CORES),
    **dict.fromkeys(
        ("ntasks-per-node", "tasks-per-node", "ppn"), "-l nodes=2/core=4 (four cores on each of two nodes)"
    ),
    **dict.fromkeys(("time", "walltime"), _WALLTIME),
    **dict.fromkeys(("partition", "qos"), "-q QUEUE"),
    **dict.fromkeys(("job-name", "jobname"), "-n NAME"),
    **dict.fromkeys(("gres", "gpus", "gpus-per-node", "G"), "-l gpu=NUMBER"),
    **dict.fromkeys(("constraint", "licenses"), _PROPERTY),
    "mem-per-cpu": "--mem-per-core SIZE",
    **dict.fromkeys(("account", "A"), "--project NAME"),
    **dict.fromkeys(("dependency", "depend", "W", "hold_jid"), _DEPENDENCY),
    **dict.fromkeys(("output", "o"), "-O FILE"),
    "error": "-E FILE",
    "begin": "-r DATE (start then, or refuse)",
    **dict.fromkeys(("mail-user", "mail-type", "m", "M"), _MAIL),
    "exclusive": f"{_NODES} (whole nodes)",
    **dict.fromkeys(("chdir", "workdir", "cwd"), "-d DIRECTORY (default: the current directory)"),
    "requeue": "-t idempotent, or --max-restarts NUMBER",
    "pty": "-I",
    "sync": "--wait",
    "w": "--nodelist NODE,NODE",
    "x": "--exclude NODE,NODE",
    "export": "--env NAME=VALUE, or --env ALL",
    "j": "-O FILE -E FILE (the same file twice)",
    "b": "a command is one word: oarsub 'sleep 60'",
}
_SELECTION = {
    "j": _BY_NUMBER,
    "job": _BY_NUMBER,
    "n": "--name NAME",
    "jobname": "--name NAME",
    "a": "--all",
    "me": "-u",
    "t": "--state STATES",
    **dict.fromkeys(
        ("9", "15", "KILL", "TERM", "INT", "HUP", "USR1", "USR2", "STOP", "CONT"), "oardel -s SIGNAL JOB_ID"
    ),
}
_WAYS: Mapping[str, Mapping[str, str]] = {
    "oarsub": _SUBMISSION,
    **dict.fromkeys(("oardel", "oarhold", "oarresume"), _SELECTION),
    "oarwalltime": {"j": "oarwalltime JOB_ID", "l": "oarwalltime JOB_ID +HOURS:MINUTES"},
    "oarstat": {
        **dict.fromkeys(("why", "reason"), "--explain -j JOB_ID"),
        **dict.fromkeys(("start-time", "start-times", "estimate"), "--start"),
        **dict.fromkeys(("from", "starttime", "history"), "--since DATE"),
        **dict.fromkeys(("to", "endtime"), "--gantt DATE,DATE"),
        "n": "-j JOB_ID",
        **dict.fromkeys(("partition", "q"), "--queue QUEUE"),
        **dict.fromkeys(("o", "O", "Format", "outputformat"), "--fields NAME,NAME"),
        **dict.fromkeys(("l", "long"), "-f"),
        **dict.fromkeys(("x", "H"), "--since DATE (also ended jobs)"),
    },
    "oarnodes": {
        **dict.fromkeys(("N", "Node"), "--summary"),
        **dict.fromkeys(("p", "partition"), "--sql CONDITION"),
        **dict.fromkeys(("t", "states"), "-s, --free, or --summary"),
        **dict.fromkeys(("n", "nodes"), "node names, without an option"),
        **dict.fromkeys(("o", "format"), "-J, or --summary"),
    },
}


def way_here(command: str, *options: str) -> str:
    r"""Return a line with our name of the first known option of another scheduler; '' without a known one.

    >>> way_here("oarsub", "time")
    '\\n# Here: -l walltime=HOURS:MINUTES'
    """
    ways = _WAYS.get(command, {})
    return next((f"\n# Here: {ways[option]}" for option in options if option in ways), "")
