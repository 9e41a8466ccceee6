"""The programs of OAR: their users and their modules."""

from __future__ import annotations

from .target import SOURCE

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
    "oarproject",
    "oaruserset",
    "oar-token",
)

#: Alternative names of commands, and the help of each name.
OTHER_NAMES = {"oarconnect": "oarsub -C"}
HELP_OF_NAMES = {
    "oarconnect": """\
Usage: oarconnect [OPTIONS] [JOB_ID]

  Open a shell in your running job JOB_ID, or in your only running job.

Options:
  --propagate-exit  Exit with the status of the shell.
  -h, --help        Show this message and exit.

Examples:
  oarconnect 118    Open a shell on the first node of job 118.

oarconnect is oarsub -C: see oarsub(1).
""",
}

#: Commands of administrators: in SBINDIR; root becomes oar.
ADMIN_COMMANDS = (
    "oarremoveresource",
    "oar-audit",
    "oaraccounting",
    "oar_resources_add",
    "oar_resources_init",
    "oar_phoenix",
    "oar2trace",
    "sentinelle",
)

#: Other commands that also show data to users; therefore they are in BINDIR of login nodes, too.
READABLE_COMMANDS = ("oarnodesetting", "oarproperty", "oarqueue", "oaradmissionrules")

#: Commands of administrators that need root for a part of their work.
ROOT_COMMANDS = ("oar-server", "oar-database", "oar-conf", "oar-keys")

#: Administrators' commands that are also installed on login nodes, in BINDIR.
FRONTEND_COMMANDS = ("oar-conf",)

#: Programs for OAR itself and for administrators in emergencies: in OARDIR.
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

#: The programs of the REST API: in OARDIR.
API_PROGRAMS = {"oar-api": "oar.api.server", "oar-password-check": "oar.api.password_check"}

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
    "oar-launch",
    "oarnodecheckrun",
    "oarnodecheckquery",
    "oarnodechecklist",
    "pam_oar_adopt",
    "detect_new_resources.sh",
)
#: Single files that users call.
USER_TOOLS = ("oarsh", "oarcp", "oarprint", "oarrun", "oar-launch")

#: The agent of desktop computers: one file, built from its main program and the imported modules.
AGENT, AGENT_MAIN = "oar-agent", "oar_agent.py"
AGENT_PARTS = ("agent_archives.py", "agent_jobs.py", "agent_server.py")

#: The command service of a login node, and its socket.
COMMAND_SERVER, COMMAND_SOCKET = "oar-commands", "/run/oar-commands/socket"


def module_of(command: str) -> str:
    """Return the Python module of a command."""
    if command == COMMAND_SERVER:
        return "oar.cli.command_server.manager"
    return {**MODULES, **API_PROGRAMS}.get(command) or f"oar.cli.{command.replace('-', '_')}"


def is_there(module: str) -> bool:
    """Return whether the sources contain a module; missing commands are not installed."""
    return SOURCE.joinpath(*module.split(".")).with_suffix(".py").exists()
