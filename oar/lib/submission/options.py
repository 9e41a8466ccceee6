"""The options of a job, each declared once as a field of ``JobOptions``.

From a declaration come the option of oarsub with its help, the ``#OAR`` line, the field of the REST API, what a shell
completes, and the name in admission rules.  See CONTRIBUTING.md, "How to add ...".
"""

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from enum import Enum, auto
from typing import Annotated, Any, NamedTuple

from oar.lib.jobs.records import JobSpec
from oar.lib.jobs.states import JobTypeName

#: Whether a job that can never run in its advance reservation is refused, or waits.
VERIFICATIONS = (REFUSE, ACCEPT) = ("e", "n")


class Kind(Enum):
    """The kind of value of an option."""

    FLAG = auto()
    TEXT = auto()
    TEXTS = auto()  #: the option may be repeated
    CONDITION = auto()  #: the option may be repeated: the conditions are joined with AND
    FILE = auto()  #: a path: blanks at its ends belong to it
    NUMBER = auto()
    COUNT = auto()  #: a number that is not negative
    ARRAY = auto()  #: N, N%M or %M
    REPETITIONS = auto()  #: how often the option is given


class Option(NamedTuple):
    """The declaration of an option."""

    spellings: tuple[str, ...]
    help: str
    metavar: str | None = None
    kind: Kind = Kind.TEXT
    choices: tuple[str, ...] = ()
    api: str = ""  #: description of the field of the REST API with the name of the option; '' = job_request.py has it
    may_be_number: bool = False  #: the REST API also accepts numbers
    completes: str = ""  #: what a shell completes: a kind of ``oar/cli/completion.py``
    spec: str = ""  #: field of ``JobSpec``, if it has another name
    in_rules: bool = False  #: admission rules may change it, by the name of the option
    in_scripts: bool = True

    @property
    def long(self) -> str:
        """The long spelling of the option for messages."""
        return next(spelling for spelling in self.spellings if spelling.startswith("--"))


class ArraySize(NamedTuple):
    """The number of jobs of an array, and how many may run at the same time (None: all)."""

    size: int
    limit: int | None = None

    def __str__(self) -> str:
        """Return the size as users type it."""
        return f"{self.size}" if self.limit is None else f"{self.size}%{self.limit}"


Text = str | None
Texts = tuple[str, ...]
DEPENDENCIES = (
    "Each as with `-a`: `12`, `12:any`, `12[*]` (all jobs of array 12), `12[]` (each job of an array: the job of the"
    " same index in array 12; a single job: all jobs of array 12)."
)


# One option per paragraph: the formatter would write one argument per line.
# fmt: off
class JobOptions(NamedTuple):
    """The values of the options of a job; an option that is not given has its empty value."""

    interactive: Annotated[bool, Option(("-I", "--interactive"), "Submit an interactive job and open its shell here.",
        kind=Kind.FLAG, in_scripts=False)] = False
    requests: Annotated[Texts, Option(("-l", "--resource"), "Resources and walltime.", "REQUEST", Kind.TEXTS,
        completes="requests")] = ()
    memory: Annotated[Text, Option(("--mem",), "Memory on each node of the job.", "SIZE",
        api="Memory on each node of the job, such as `8G`.")] = None
    memory_per_core: Annotated[Text, Option(("--mem-per-core",), "Memory for each core of the job.", "SIZE",
        api="Memory for each core of the job, such as `2G`.")] = None
    array: Annotated[ArraySize | None, Option(("--array",), "Submit an array of N jobs; at most M run at a time.",
        "N[%M]", Kind.ARRAY)] = None
    parameter_file: Annotated[Text, Option(("--array-param-file",), "Submit one job for each line of FILE.", "FILE",
        Kind.FILE, completes="files")] = None
    queue: Annotated[Text, Option(("-q", "--queue"), "Queue of the job.", "QUEUE", completes="queues",
        api="Queue; default: chosen by the site.")] = None
    properties: Annotated[Text, Option(("-p", "--property"), "Condition on the resources.", "SQL", Kind.CONDITION,
        completes="properties", in_rules=True, api="Condition on resource properties, as with `-p`.")] = None
    nodelist: Annotated[Texts, Option(("--nodelist",), "Use these nodes only.", "NODE[,NODE...]", Kind.TEXTS,
        completes="nodes", api="Nodes to choose from.")] = ()
    exclude: Annotated[Texts, Option(("--exclude",), "Use none of these nodes.", "NODE[,NODE...]", Kind.TEXTS,
        completes="nodes", api="Nodes to exclude.")] = ()
    reservation: Annotated[Text, Option(("-r", "--reservation"), "Start at this date, or reject the job.",
        "START[,END]", api="Reserved start date, as with `-r`.")] = None
    advance_reservation: Annotated[Text, Option(("--ar", "-ar", "--advance-reservation"),
        "Run in this advance reservation.", "ID|NAME", completes="reservations", may_be_number=True,
        api="Advance reservation to run in, as with `--ar`.")] = None
    verify: Annotated[Text, Option(("--verify",),
        "With --ar: reject a job that can never run there (e), or queue it (n).", "e|n", choices=VERIFICATIONS)] = None
    checkpoint: Annotated[int | None, Option(("--checkpoint",),
        "Send a signal to the job SECONDS before its walltime ends.", "SECONDS", Kind.NUMBER, in_rules=True,
        api="Seconds before the end of the walltime at which the job gets the checkpoint signal.")] = None
    signal: Annotated[Text, Option(("--signal",), "Checkpoint signal (number or name).", "SIGNAL", completes="signals",
        may_be_number=True, api="Checkpoint signal.")] = None
    types: Annotated[Texts, Option(("-t", "--type"), "Type of the job.", "TYPE", Kind.TEXTS, completes="types",
        in_rules=True, api="Job types, as with `-t`.")] = ()
    directory: Annotated[Text, Option(("-d", "--directory"), "Directory in which the command runs.", "DIR", Kind.FILE,
        completes="directories", api="Working directory; default: the home directory.")] = None
    project: Annotated[Text, Option(("--project",), "Project of the job.", "TEXT",
        api="Project that the consumption is charged to.")] = None
    name: Annotated[Text, Option(("-n", "--name"), "Name of the job.", "TEXT", in_rules=True, api="Job name.")] = None
    dependencies: Annotated[Texts, Option(("-a", "--anterior", "--after"),
        "Start after job ID, or after all jobs of an array (ID[*]).", "ID", Kind.TEXTS, completes="jobs", in_rules=True,
        may_be_number=True, api=DEPENDENCIES)] = ()
    notify: Annotated[Text, Option(("--notify",), "Send a mail or run a program when the job changes its state.",
        "[TAGS]mail:ADDRESS|exec:COMMAND", in_rules=True, api="Notification, as with `--notify`.")] = None
    max_restarts: Annotated[int | None, Option(("--max-restarts",),
        "Make the job idempotent, and resubmit it at most N times.", "N", Kind.COUNT,
        api="Make the job idempotent and resubmit it at most this many times.")] = None
    use_job_key: Annotated[bool, Option(("-k", "--use-job-key"),
        "Use an SSH key for the job; generate it if none is imported.", kind=Kind.FLAG, in_rules=True,
        api="Create an SSH key for the job.")] = False
    key_file: Annotated[Text, Option(("-i", "--import-job-key-from-file"), "Import the job key from FILE.", "FILE",
        Kind.FILE, completes="files")] = None
    key_inline: Annotated[Text, Option(
        ("--import-job-key-inline", "--import-job-key-inline-priv", "--ssh_private_key", "--ssh-private-key"),
        "Import this private key as the job key.", "KEY")] = None
    public_key: Annotated[Text, Option(("--ssh_public_key", "--ssh-public-key"), "Public key of that private key.",
        "KEY")] = None
    key_export: Annotated[Text, Option(("-e", "--export-job-key-to-file"), "Write the job key to FILE.", "FILE",
        Kind.FILE, completes="files")] = None
    stdout: Annotated[Text, Option(("-O", "--stdout"), "File for the standard output.", "FILE", Kind.FILE,
        completes="files", spec="stdout_file", in_rules=True,
        api="File for standard output; `%jobid%` is the job id.")] = None
    stderr: Annotated[Text, Option(("-E", "--stderr"), "File for the standard error.", "FILE", Kind.FILE,
        completes="files", spec="stderr_file", in_rules=True, api="File for standard error.")] = None
    hold: Annotated[bool, Option(("--hold",), "Do not start the job before oarresume releases it.", kind=Kind.FLAG,
        in_rules=True, api="Hold the job until it is resumed.")] = False
    stagein: Annotated[Text, Option(("-s", "--stagein"), "Input file of a desktop computing job.", "FILE", Kind.FILE,
        completes="files", api="File of the user for a job of type `desktop_computing`.")] = None
    stagein_md5sum: Annotated[Text, Option(("--stagein-md5sum",),
        "MD5 sum of that file, or of a file that is already staged.", "SUM",
        api="MD5 checksum of the file, or of a file that was staged before.")] = None
    cpuset_name: Annotated[Text, Option(("--force_cpuset_name", "--force-cpuset-name"),
        "Name of the cpuset of the job.", "NAME", api="Cpuset name, as with `--force_cpuset_name`.")] = None
    environment: Annotated[Texts, Option(("--env",),
        "Set an environment variable on all nodes of the job; ALL: all your variables.", "NAME[=VALUE]|ALL|NONE",
        Kind.TEXTS)] = ()
    spool: Annotated[bool, Option(("--spool",),
        "With -S: store the script with the job; later edits have no effect.", kind=Kind.FLAG)] = False
    verbosity: Annotated[int, Option(("-v",), "Print more messages.", kind=Kind.REPETITIONS, in_scripts=False)] = 0
# fmt: on


#: The declarations by name.
OPTIONS: Mapping[str, Option] = {name: hint.__metadata__[0] for name, hint in JobOptions.__annotations__.items()}
#: Options whose values in a script are added after those of the request, not replaced by them.
_ADDED = ("requests", "types", "dependencies")


def spec_of(options: JobOptions, user: str, command: str) -> JobSpec:
    """Return the specification of a job, without the contents of files and the working directory."""
    array = options.array or ArraySize(1)
    same = {
        field: value
        for name, option in OPTIONS.items()
        if (field := option.spec or name) in JobSpec._fields and (value := getattr(options, name))
    }
    return JobSpec(user, command, **same)._replace(
        types=_types(options), array_size=array.size, array_limit=array.limit, cpuset_name=options.cpuset_name
    )


def _types(options: JobOptions) -> tuple[str, ...]:
    """Return the types of the job; the maximum number of restarts is the value of the type idempotent."""
    if options.max_restarts is None:
        return options.types
    others = (job_type for job_type in options.types if job_type != JobTypeName.IDEMPOTENT)
    return (*others, f"{JobTypeName.IDEMPOTENT}={options.max_restarts}")


def app_of(types: Iterable[str]) -> str:
    """Return the program with web pages that types of a job name, '' for none: it is the command of the job."""
    prefix = f"{JobTypeName.APP}="
    return next((text.removeprefix(prefix) for text in types if text.startswith(prefix)), "")


def add_script_options(
    options: JobOptions,
    given: Container[str],
    script: Mapping[str, Any],
    *,
    replace_requests: bool,
    report_ignored: Callable[[str, Any], object],
) -> JobOptions:
    """Return the options of a request, of which ``given`` have a value, with those of its script.

    ``replace_requests``: the resource requests of the script are not added to those of the request.
    ``report_ignored``: called with the name and the value of each option of the script that the request overrides.
    """
    changes: dict[str, Any] = {}
    for name in (field for field in JobOptions._fields if field in script):
        value, present = script[name], getattr(options, name)
        if name in _ADDED and not (name == "requests" and replace_requests and present):
            changes[name] = (*present, *value)
        elif name == "environment":  # the last value of a variable counts
            changes[name] = (*value, *present)
        elif name not in given:
            changes[name] = value
        elif value is not True:
            report_ignored(name, value)
    return options._replace(**changes)


def parameters_of(text: str) -> tuple[str, ...]:
    """Return the lines of a parameter file, without comments and empty lines."""
    lines = (line.partition("#")[0].strip() for line in text.split("\n"))
    return tuple(line for line in lines if line)


# -- the command line that is stored with a job ------------------------------------------------------------------------

#: Options that the command line of a request to the REST API does not show: files that were read, and secrets.
UNRECORDED = frozenset({"parameter_file", "use_job_key", "key_file", "key_inline", "public_key", "key_export", "spool"})
#: How the options begin whose argument is a private key.
_KEY_OPTIONS = ("--import-job-key-i", "--ssh_pr", "--ssh-pr")
_HIDDEN_KEY = "[HIDDEN INLINE JOB KEY]"
_HIDDEN_VALUE = "[HIDDEN]"
_KEY_LINE = rf"(?s)((?:{'|'.join(_KEY_OPTIONS)})[\w-]*(?:\s+|=)).*"
_VARIABLE_LINE = r"(?s)(--env?(?:\s+|=)\s*[\"']?\w+=).*"
_TYPE = r"(?s)--t(?:y(?:p(?:e)?)?)?(?:=(?P<value>.*))?\Z"


def words_of(options: JobOptions) -> Iterator[str]:
    """Iterate over the equivalent options of oarsub.

    >>> list(words_of(JobOptions(requests=("nodes=2",), hold=True)))
    ['-l', 'nodes=2', '--hold']
    """
    staged = ("stagein", "stagein_md5sum")
    for name in (*(field for field in OPTIONS if field not in UNRECORDED.union(staged)), *staged):
        value = getattr(options, name)
        spelling = OPTIONS[name].long if name in staged else OPTIONS[name].spellings[0]
        if value is True:
            yield spelling
        elif isinstance(value, tuple) and not isinstance(value, ArraySize):
            for text in value:
                yield from (spelling, str(text))
        elif value not in (None, False):
            yield from (spelling, str(value))


def initial_request(arguments: Iterable[str]) -> str:
    """Return the command line to store, without keys and without the values of variables.

    Types are written as ``-t <type>``, because other programs search for this form.
    """
    words: list[str] = ["oarsub"]
    secret = ""  #: what the next argument holds: a key, a variable, or nothing that is secret
    for argument in arguments:
        name, equals, value = argument.partition("=")
        type_option = re.match(_TYPE, argument) if argument.startswith("--t") else None
        announced = _secret_of(name) if argument.startswith("--") and not secret else ""
        if secret:
            words.append(_hidden(secret, argument))
        elif announced and equals:
            words.append(f"{name}={_hidden(announced, value)}")
        elif type_option:
            words += ["-t", *([type_option["value"]] if type_option["value"] is not None else [])]
        elif argument.startswith("-t") and len(argument) > 2:
            words += ["-t", argument[2:]]
        else:
            words.append(argument)
        secret = announced if announced and not equals else ""
    return " ".join(words)


def stored_script_line(line: str) -> str:
    """Return an ``#OAR`` line of a script in the form that is stored."""
    line = re.sub(_VARIABLE_LINE, lambda match: match[1] + _HIDDEN_VALUE, line)
    return re.sub(_KEY_LINE, lambda match: match[1] + _HIDDEN_KEY, line)


def _secret_of(option: str) -> str:
    if option.startswith(_KEY_OPTIONS):
        return "key"
    return "variable" if len(option) > len("--e") and "--env".startswith(option) else ""


def _hidden(secret: str, text: str) -> str:
    if secret == "key":
        return _HIDDEN_KEY
    name, equals, _ = text.partition("=")
    return f"{name}={_HIDDEN_VALUE}" if equals else name
