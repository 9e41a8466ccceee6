"""Runs a command that a user has chosen for notifications, enclosed; what it leaves behind is killed.

Action ``run``.  Data: ``argv``, ``account``, ``enclosure`` (see ``node_enclosure``).  The command has the session's
environment with the account's name and home, no input, and its outputs go nowhere.  Exit code: that of the command,
128 + n by signal n; 1 and the reason if it could not be started.  The end of our input, or SIGTERM, ends it.
"""

import json
import os
import pwd
import signal
import sys

import node_base
import node_enclosure
import node_kernel
import oarexec_command
from node_base import NodeError
from node_cgroups import PAYLOAD
from node_protocol import ManagerExit, ProgramAction

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from node_base import Data
    from node_cgroups import Confinement

NOT_STARTED = 1
KILLED = 128 + signal.SIGTERM


def main(action: str, data: "Data") -> int:
    """Carry out one action; return its exit code."""
    try:
        if action != ProgramAction.RUN:
            raise NodeError(ManagerExit.ACTION, "unknown action '%s'" % node_base.escaped(str(action)))
        node_base.require(data, {"argv": list, "account": (str,), "enclosure": dict})
        account = node_base.account_of(data["account"])
        if account is None:
            raise NodeError(NOT_STARTED, node_base.why_no_account(data["account"]))
        return run(data, account)
    except NodeError as error:
        node_base.complain(str(error))
        return error.code


def run(data: "Data", account: pwd.struct_passwd) -> int:
    """Run the command and kill what it leaves; return its exit code."""
    wakeup = oarexec_command.Wakeup()
    number = os.getpid()
    name = "%s_command_%d" % (account.pw_name, number)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # until it is listened to: the enclosure must not stay
    confinement = node_enclosure.enclose(data["enclosure"], name, account.pw_name, number)
    wakeup.listen([signal.SIGCHLD, signal.SIGTERM])
    pid = os.fork()
    if pid == 0:
        execute(data["argv"], account, confinement)
    try:
        return wait(pid, wakeup)
    finally:
        confinement.kill_payload()


def wait(pid: int, wakeup: oarexec_command.Wakeup) -> int:
    """Wait for the end of the command; return its exit code, or that of a command that is to be killed."""
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
        ready = wakeup.wait([0], None)
        if signal.SIGTERM in wakeup.received() or (0 in ready and not os.read(0, 4096)):
            return KILLED
        node_kernel.bury_orphans({pid})


def execute(argv: "list[str]", account: pwd.struct_passwd, confinement: "Confinement") -> "NoReturn":
    """In the child: join the group, become the user, execute the command."""
    stderr = os.dup(2)
    os.set_inheritable(stderr, False)
    try:
        signal.set_wakeup_fd(-1)
        os.setsid()
        confinement.join(PAYLOAD)
        oarexec_command.set_oom_score(oarexec_command.user_oom_score())
        oarexec_command.become(account)
        oarexec_command.redirect_standard("/dev/null")
        oarexec_command.keep_only(stderr)
        oarexec_command.open_signals()
        for variable in ("USER", "LOGNAME"):
            os.environ[variable] = account.pw_name
        os.environ["HOME"] = account.pw_dir
        os.chdir("/")
        words = [node_base.encode(word) for word in argv]
        os.execvpe(words[0], words, os.environb)
    except OSError as error:
        os.write(stderr, node_base.encode("%s: %s\n" % (argv[0], error.strerror)))
    finally:
        os._exit(NOT_STARTED)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], json.load(sys.stdin)))
