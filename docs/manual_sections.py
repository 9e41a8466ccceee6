"""Sections of the manual that the commands do not contain: exit statuses, files and variables of each command.

``docs/generate.py`` writes them into docs/commands.rst, from which ``setup/manpages.py`` makes the manual pages.
"""

from collections.abc import Mapping

from oar.cli.common.command import Command
from oar.lib.submission.checks import Code

#: Texts by what they describe: a number, a path or the name of a variable.
Texts = Mapping[str, str]

_NOT_ADMIN = "The caller is neither oar nor root."
_IMPOSSIBLE = "An argument is not a job, or the state of a job does not permit it."
_SEVERAL = "Several of these errors occurred."
_NO_ANSWER = "There was no answer in time, or the command was interrupted; the request was withdrawn."

_OARSUB: Mapping[Code, str] = {
    Code.OPTION: "An option is invalid.",
    Code.RESUBMIT: "A job cannot be resubmitted.",
    Code.COMMAND: "There is no command, or it is given twice.",
    Code.ARRAY: "The size of the array is invalid.",
    Code.RESERVATION: "The date of the reservation is invalid.",
    Code.REQUEST: "The request for resources, a dependency, a project, a limit or a key is rejected.",
    Code.INTERACTIVE_PARAMETERS: "An interactive job cannot have a parameter file.",
    Code.REFUSED_RESERVATION: "The reservation is refused.",
    Code.NO_SESSION: "The interactive job ended before its session was opened; with --wait: the command was not run.",
    Code.FILE: "A script, a parameter file or an input file cannot be read.",
    Code.NOTIFY_CHARACTERS: "The value of --notify has characters that are not allowed.",
    Code.NOOP: "A job of type noop has no session.",
    Code.SYNTAX: "The condition of -p, or the request of -l, cannot be parsed.",
    Code.CONNECT: "No connection to this job is possible.",
    Code.STDERR: "The file name of -E is invalid.",
    Code.STDOUT: "The file name of -O is invalid.",
    Code.QUEUE: "The queue does not exist, or accepts no jobs.",
    Code.NOTIFY: "The value of --notify cannot be parsed.",
}
_STATUSES: Mapping[str, Texts] = {
    "oarsub": {
        **{str(int(code)): text for code, text in _OARSUB.items()},
        "2": "The database or the server cannot be reached; with -I, -C: the directory does not exist on the node.",
        "19": "The job ended during the session.",
        "21": "The connection of the session broke.",
        "254": "An admission rule rejected the job.",
    },
    "oardel": {
        "1": "A job belongs to another user.",
        "2": "The server cannot be reached.",
        "3": "A node cannot be reached.",
        "4": "An argument is not a job.",
        "5": "A job is not running.",
        "6": "A job is being deleted already.",
        "7": "A job cannot get a signal, or does not exist.",
        "8": _NOT_ADMIN,
        "9": "With -b: a job is not running.",
        "10": "With --force-terminate-finishing-job: a job is not in state Finishing.",
        "11": "With --force-terminate-finishing-job: a job has not been in state Finishing for long enough.",
        "15": _SEVERAL,
    },
    "oarhold": {"1": "A job cannot be held.", "2": _IMPOSSIBLE},
    "oarresume": {"1": "A job cannot be resumed.", "2": _IMPOSSIBLE},
    "oaralter": {"1": "A job cannot be changed as requested.", "2": "An argument is not a job."},
    "oarstat": {"255": "No job is given, where one is necessary."},
    "oarwalltime": {
        "1": "The change is invalid.",
        "2": "There is nothing to show.",
        "3": "The change is forbidden.",
        "4": "The job does not exist, or an argument cannot be parsed.",
        "5": "The state of the job permits no change, or changes are not enabled.",
    },
    "oarnotify": {"2": "The server cannot be reached.", "3": "The server has not answered in time."},
    "oarnodesetting": {
        "1": "An option is invalid, or a resource does not exist.",
        "2": "No resource is selected.",
        "3": "Some resources do not exist.",
        "4": "A node does not exist.",
        "9": "An advance reservation would lose resources: --force makes the change.",
        "11": "Jobs were still on the resources when the waiting time was over.",
        "12": "The condition of --sql selects nothing.",
        "13": "The file cannot be read.",
        "15": _SEVERAL,
    },
    "oarproperty": {
        "2": "The property has another type, or its name is reserved.",
        "3": "Jobs, rules or reservations use the property: --force makes the change.",
    },
    "oarremoveresource": {
        "1": "A resource does not exist.",
        "2": "A resource is not in state Dead.",
        "4": _NOT_ADMIN,
        "5": "Jobs use a resource.",
        "6": "Jobs of a resource are not yet accounted.",
        "9": "An advance reservation would lose resources: --force removes them.",
    },
    "oarqueue": {"2": "A queue does not exist, or cannot be changed as requested.", "8": _NOT_ADMIN},
    "oaradmissionrules": {"2": "The rule does not exist.", "3": "The text of a rule is invalid."},
    "oaraccounting": {
        "1": "The database cannot be reached.",
        "2": "Another oaraccounting is running.",
        "3": "The length of the accounting windows has changed.",
    },
    "oar_phoenix": {"1": "The configuration is invalid, or a command failed."},
    "oar_resources_init": {
        "2": "The question was answered with no.",
        "4": "A file cannot be written.",
        "5": "A host did not answer.",
        "20": "The configuration is invalid.",
    },
    "oar-database": {"1": "The database cannot be used, or the request is rejected.", "2": "Rows are inconsistent."},
    "oar-server": {
        "1": "The action failed; with status --check: a warning.",
        "2": "With status --check: a critical state.",
        "3": "With status and is-active: the server is stopped.",
    },
    "oar-conf": {"1": "The configuration has errors."},
    "oar-keys": {"1": "A host did not get the keys."},
    "sentinelle": {"2": "A host did not answer, or the command failed there."},
    "qrsub": {"25": "The request is refused.", "26": _NO_ANSWER},
    "qralter": {"25": "The change is refused.", "26": _NO_ANSWER},
}

_FILES: Mapping[str, Texts] = {
    "oarsub": {"~/.oarsubrc": "Options of each submission, one on each line."},
    "qrsub": {
        "~/.oar_ar_request": "Options of each request, one on each line.",
        "~/.sge_ar_request": "The same, where the first file does not exist.",
    },
    "oar-keys": {"~oar/.ssh": "The keys of the server, and the keys of the hosts that it knows."},
    "oar-database": {"/etc/oar/oar.conf": "The address of the database and its passwords (DB_*), see oar.conf(5)."},
}

_VARIABLES: Texts = {"OAR_DEBUG": "With the value 1: print a stack trace on errors, as --debug does."}
_ADMIN_VARIABLES: Texts = {"OARCONFFILE": "The configuration file, in place of /etc/oar/oar.conf."}
_VARIABLES: Mapping[str, Texts] = {
    "oarsub": {"OAR_JOB_KEY_FILE": "With -k: the file of the job key, if -i does not name one."},
    "oarstat": {
        "OAR_JOB_ID": "The job of the options that need one, where none is given.",
        "OAR_OARSTAT_OUTPUT_FORMAT": "The layout of the text, as --format.",
        "NO_COLOR": "Print no colors, except with --color always.",
    },
    "oaradmissionrules": {"EDITOR": "The editor that --edit starts."},
}


#: What all commands have in common, by section.
COMMON: Mapping[str, Texts] = {
    "Exit status": {
        "0": "Success.",
        "1": "An option is invalid, or the request is rejected.",
        "2": "The database or the server cannot be reached.",
        "3": "An internal error.",
        "77": _NOT_ADMIN,
        "129": "The terminal was closed.",
        "130": "The command was interrupted (Control-C).",
    },
    "Environment": {
        "OARCONFFILE": "The configuration file of administrators, in place of /etc/oar/oar.conf.",
        "OAR_DEBUG": "With the value 1: print a stack trace on errors, as --debug does.",
    },
    "Files": {"/etc/oar/oar.conf": "The configuration, see oar.conf(5)."},
}
#: What commands have in addition, by section and name of the command.
BY_COMMAND = {"Exit status": _STATUSES, "Environment": _VARIABLES, "Files": _FILES}


def sections(command: Command) -> Mapping[str, Texts]:
    """Return what a command has in addition to ``COMMON``, or with another meaning."""
    return {title: texts[command.name] for title, texts in BY_COMMAND.items() if command.name in texts}
