"""What options of Slurm, PBS and Grid Engine are called here; read when an option is not known."""

from collections.abc import Mapping

_CORES = "-l core=NUMBER"
_DEPENDENCY = "-a JOB_ID (start when it has ended well)"
_MAIL = "--notify mail:ADDRESS"
_NODES = "-l nodes=NUMBER"
_PROPERTY = "-p CONDITION (the properties of nodes: oarnodes)"
_WALLTIME = "-l walltime=HOURS:MINUTES"
_BY_NUMBER = "the numbers of jobs, without an option"

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
    **dict.fromkeys(("mem", "mem-per-cpu", "constraint", "licenses"), _PROPERTY),
    **dict.fromkeys(("account", "A"), "--project NAME"),
    **dict.fromkeys(("dependency", "depend", "W", "hold_jid"), _DEPENDENCY),
    **dict.fromkeys(("output", "o"), "-O FILE"),
    "error": "-E FILE",
    "begin": "-r DATE (start then, or refuse)",
    **dict.fromkeys(("mail-user", "mail-type", "m", "M"), _MAIL),
    "exclusive": f"{_NODES} (whole nodes)",
    **dict.fromkeys(("chdir", "workdir", "cwd"), "-d DIRECTORY (as a rule the one where you submit)"),
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
        "me": "-u",
        "n": "-j JOB_ID",
        **dict.fromkeys(("partition", "q"), "--queue QUEUE"),
        **dict.fromkeys(("o", "O", "Format", "outputformat"), "--fields NAME,NAME"),
        **dict.fromkeys(("l", "long"), "-f"),
        **dict.fromkeys(("x", "H"), "--since DATE (ended ones, too)"),
    },
    "oarnodes": {
        **dict.fromkeys(("N", "Node"), "--summary"),
        **dict.fromkeys(("p", "partition"), "--sql CONDITION"),
        **dict.fromkeys(("t", "states"), "-s, --free, or --summary"),
        **dict.fromkeys(("n", "nodes"), "the names of nodes, without an option"),
        **dict.fromkeys(("o", "format"), "-J, or --summary"),
    },
}


def way_here(command: str, *options: str) -> str:
    r"""Return the line that tells what the first of these options that we know is called here; '' if we know none.

    >>> way_here("oarsub", "time")
    '\\n# Here: -l walltime=HOURS:MINUTES'
    """
    ways = _WAYS.get(command, {})
    return next((f"\n# Here: {ways[option]}" for option in options if option in ways), "")
