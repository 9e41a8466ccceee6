"""Admission rules: Python code of the administrator that may change or reject a submission.

Each rule is compiled separately.  All rules run in one namespace with documented names.  Functions and comprehensions
of a rule see its variables, and later rules see the variables of earlier rules.  Any failure of a rule rejects the
submission: rules fail closed.
"""

import os
import re
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from functools import lru_cache
from io import StringIO
from types import CodeType
from typing import Any, NamedTuple, NoReturn

from oar.lib.base.errors import ConfigError, Refused
from oar.lib.config.files import Config, option_of
from oar.lib.submission.sql_admission import AdmissionRule

#: Address space that rules may take beyond what the process has when they begin.
MEMORY = 1 << 30

#: Characters of a line of a rule that a message shows.
_LONGEST_LINE = 80
#: Names of the files that hold a rule; other files of the directory are ignored.
_RULE_FILE = re.compile(r"(OFF_)?(\d{1,9})_.*", re.ASCII | re.DOTALL)

#: Variables that the wrapper of oarsub sets: they may hold secrets, so that rules do not see them.
_OF_CALLER = "OAR_SUBMIT_"
#: The search path of rules.
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class RuleRefused(Refused):
    """A rule rejected the submission; the message comes from the rule."""

    def __init__(self, text: str, output: "RuleOutput") -> None:
        super().__init__(text)
        self.output = output


class RuleFailed(Refused):
    """A rule failed; the message is for the user, ``trace`` for the administrator."""

    def __init__(self, rule: int, trace: str, output: "RuleOutput") -> None:
        super().__init__(f"# Error: an admission rule failed, please tell your administrator (rule {rule}).")
        self.trace = trace
        self.output = output


class Rejection(Exception):
    """The exception that ``reject(message)`` raises inside a rule."""


class _TimeIsUp(BaseException):
    """The rules exceeded their time limit; not an Exception, so that no rule catches it."""


class RuleOutput(NamedTuple):
    """The texts that rules printed on stdout and stderr."""

    out: str = ""
    err: str = ""
    by_rule: tuple[tuple[int, str], ...] = ()  #: id of each rule that printed, and its text


class RuleSet(NamedTuple):
    """The rules to run, and their time limit."""

    rules: tuple[AdmissionRule, ...]
    timeout: int  #: seconds, for all rules together


@lru_cache(maxsize=1024)
def compile_rule(rule_id: int, text: str) -> CodeType:
    """Return the code of a rule.  Raises SyntaxError or ValueError if the text is not Python."""
    return compile(text, f"<admission rule #{rule_id}>", "exec", dont_inherit=True)


def explain_bad_text(rule_id: int, text: str) -> str | None:
    """Return the faulty line and the compiler's message for a text that is not Python; None if it compiles."""
    try:
        compile_rule(rule_id, text)
    except SyntaxError as error:
        number = error.lineno or 1
        line = next(iter(text.split("\n")[number - 1 : number]), "").strip()[:_LONGEST_LINE]
        return f'line {number}: {line} (the compiler reports: "{error.msg}")'
    except ValueError:
        number = text.partition("\0")[0].count("\n") + 1
        return f"line {number}: it has the character NUL"
    return None


def read_rules(directory: str) -> list[AdmissionRule]:
    """Return the rules in the files of a directory, in the order of execution; a file's number is its id and priority.

    Raises ConfigError if users other than oar and root can write to the directory.
    """
    try:
        status = os.stat(directory)
        names = sorted(os.listdir(directory))
        if status.st_uid not in (0, os.geteuid()) or status.st_mode & 0o022:
            raise ConfigError(
                f"cannot use the admission rules of {directory}: others than root and oar can write there. Run:"
                f" chown root {directory}; chmod go-w {directory}"
            )
        rules = [_read_rule(directory, match) for name in names if (match := _RULE_FILE.fullmatch(name))]
    except OSError as error:
        raise ConfigError(f"cannot read the admission rules of {directory}: {error.strerror}") from None
    return sorted(rules, key=lambda rule: rule.priority)


def _read_rule(directory: str, match: re.Match[str]) -> AdmissionRule:
    number = int(match[2])
    with open(os.path.join(directory, match[0]), encoding="utf-8", errors="replace") as file:
        return AdmissionRule(number, number, match[1] is None, file.read())


#: A condition with this word needs parentheses when it is joined to another condition.
_OR = re.compile(r"\bor\b", re.IGNORECASE)


class Namespace(dict[str, Any]):
    """The globals of all rules.  An expensive value is created when a rule first uses its name."""

    def __init__(self, names: Mapping[str, Any], makers: Mapping[str, Callable[[], Any]]) -> None:
        super().__init__(names)
        self._makers = makers

    def __missing__(self, name: str) -> Any:
        value = self[name] = self._makers[name]()
        return value

    def add_property(self, condition: str) -> None:
        """Add a condition on the resources."""
        former = self.get("properties")
        added = f"({condition})" if former and _OR.search(condition) else condition
        self["properties"] = f"({former}) AND {added}" if former else condition


def run(
    rules: RuleSet, names: Mapping[str, Any], makers: Mapping[str, Callable[[], Any]]
) -> tuple[Namespace, RuleOutput]:
    """Run the rules; return the final names and the texts that the rules printed.

    ``makers``: the functions that create expensive values, by name.
    Raises RuleRefused, RuleFailed.
    """
    namespace = Namespace({**_helpers(), **names}, makers)
    namespace["add_property"] = namespace.add_property
    recorder = _Recorder()
    with (
        redirect_stdout(recorder.out),
        redirect_stderr(recorder.err),
        _clean_surroundings(),
        _memory_limit(),
        _time_limit(rules.timeout),
    ):
        for rule in rules.rules:
            _run_rule(rule, namespace, recorder)
    return namespace, recorder.output()


class _Recorder:
    """Record the printed texts by rule."""

    def __init__(self) -> None:
        self.out = StringIO()
        self.err = StringIO()
        self._by_rule: list[tuple[int, str]] = []
        self._seen = 0, 0

    def end_of(self, rule: AdmissionRule) -> None:
        """Assign the text printed since the end of the previous rule to this rule."""
        text = self.out.getvalue()[self._seen[0] :] + self.err.getvalue()[self._seen[1] :]
        self._seen = len(self.out.getvalue()), len(self.err.getvalue())
        if text:
            self._by_rule.append((rule.id, text))

    def output(self) -> RuleOutput:
        return RuleOutput(self.out.getvalue(), self.err.getvalue(), tuple(self._by_rule))


def _run_rule(rule: AdmissionRule, namespace: Namespace, recorder: _Recorder) -> None:
    try:
        exec(compile_rule(rule.id, rule.text), namespace)
    except SystemExit as error:
        text = error.code if isinstance(error.code, str) else f"[ADMISSION RULE] Refused by rule {rule.id}."
        recorder.end_of(rule)
        raise RuleRefused(text, recorder.output()) from None
    except (Exception, _TimeIsUp) as error:  # noqa: BLE001 - rules fail closed
        recorder.end_of(rule)
        if type(error) in (Exception, Rejection):
            raise RuleRefused(str(error), recorder.output()) from None
        raise RuleFailed(rule.id, _trace(rule, error), recorder.output()) from None
    recorder.end_of(rule)


def _trace(rule: AdmissionRule, error: BaseException) -> str:
    """Return the error and the lines of the rule that caused it."""
    import traceback

    if isinstance(error, _TimeIsUp):
        error = TimeoutError("the rules took longer than ADMISSION_RULES_TIMEOUT")
    steps = traceback.extract_tb(error.__traceback__)[1:]
    lines = rule.text.splitlines()
    where = [
        f"  {step.filename} line {step.lineno}: {lines[step.lineno - 1].strip()}"
        for step in steps
        if step.filename == f"<admission rule #{rule.id}>" and step.lineno and step.lineno <= len(lines)
    ]
    message = "".join(traceback.format_exception_only(error)).strip()
    return "\n".join([f"admission rule #{rule.id}: {message}", *where])


@contextmanager
def _time_limit(seconds: int) -> Iterator[None]:
    def stop(number: int, frame: object) -> NoReturn:
        raise _TimeIsUp

    former = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)


@contextmanager
def _memory_limit() -> Iterator[None]:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm", encoding="utf-8") as statm:
        pages = int(statm.read().split()[0])
    limits = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_AS, (min([pages * resource.getpagesize() + MEMORY, *limits]), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@contextmanager
def _clean_surroundings() -> Iterator[None]:
    """Replace the environment and the working directory of the user with fixed ones."""
    import pwd

    former = dict(os.environ)
    try:
        directory = os.getcwd()
    except FileNotFoundError:
        directory = "/"
    environment = {
        name: value
        for name, value in former.items()
        if (name.startswith("OAR") and not name.startswith(_OF_CALLER)) or name == "LANG"
    }
    os.environ.clear()
    os.environ.update(environment, PATH=_PATH, HOME=pwd.getpwuid(os.geteuid()).pw_dir)
    os.chdir("/")
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(former)
        os.chdir("/")
        with suppress(OSError):
            os.chdir(directory)


# -- names for rules --------------------------------------------------------------------------------------------------


class ConfigView(Mapping[str, Any]):
    """The settings of oar.conf for rules: values by key, without passwords."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def __getitem__(self, key: str) -> Any:
        option = option_of(key)
        if option is None or option.secret:
            raise KeyError(key)
        return getattr(self._config, option.name)

    def __iter__(self) -> Iterator[str]:
        return (option.key for option in Config.options() if not option.secret)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _helpers() -> dict[str, Any]:
    import time

    from oar.lib.base.times import parse_date, parse_duration

    return {
        "__name__": "admission_rules",
        "re": re,
        "os": os,
        "time": time,
        "sql_to_duration": parse_duration,
        "duration_to_sql": _duration_to_sql,
        "sql_to_local": parse_date,
        "local_to_sql": _local_to_sql,
        "in_group": in_group,
        "user_groups": user_groups,
        "reject": _reject,
        "warn": _warn,
    }


def _reject(message: str) -> NoReturn:
    raise Rejection(message)


def _warn(message: str) -> None:
    import sys

    sys.stderr.write(f"{message}\n")


def _duration_to_sql(seconds: int) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"


def _local_to_sql(date: int) -> str:
    import time

    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(date))


def user_groups(user: str) -> list[str]:
    """Return the groups of a user on this machine, primary group first."""
    from oar.lib.access import name_service

    try:
        primary = name_service.account(user).pw_gid
    except KeyError:
        return []
    names = []
    for group in name_service.groups_of(user, primary):
        try:
            names.append(name_service.group(group).gr_name)
        except KeyError:  # a group id without a name
            continue
    return names


def in_group(user: str, group: str) -> bool:
    """Return whether a user is in a group."""
    return group in user_groups(user)
