"""Results of jobs of desktop computers: unpacked as their users, removed when they are old.

See docs/design/desktop.rst, "Results".
"""

import pwd
import subprocess
import sys
from pathlib import Path

import oar
from oar.lib.desktop import stageouts
from oar.lib.desktop.orders import UNPACKED_TIMES
from oar.lib.facts.records import User
from oar.lib.io.logs import of_job
from oar.lib.submission import staging
from oar.lib.user_files import UserFiles
from oar.modules.runner.actions.context import ActionContext, log
from oar.modules.runner.actions.job_data import JobData

#: Seconds after which an unpacking is given up; the program itself has a limit of processor time below.
SECONDS = 300.0
#: Where the program is whose text goes to the user's process: the user may not read our files.
_PROGRAM = Path(oar.__file__).parent / "tools" / "agent_archives.py"
#: Exit code of the program: there is no such directory here.
_NO_DIRECTORY = 3
#: Bytes of what the program says.
_LONGEST_TEXT = 500


def deliver(context: ActionContext, data: JobData) -> str:
    """Unpack the results of a job, if there are any, into its launching directory, if that is on this machine.

    Return why they are not all there, '' if they are; what is not there can be fetched.
    """
    path = stageouts.path_of(context.config, data.job.id)
    try:
        account = pwd.getpwnam(data.job.user)
        with open(path, "rb") as archive:
            code, text = _unpack(context, data, User(account.pw_name, account.pw_uid), archive.fileno())
    except FileNotFoundError:
        return ""
    except KeyError:
        return ""  # the user has no account here: the results are fetched
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"the results were not unpacked: {error}"
    if code == 0:
        stageouts.remove(context.config, data.job.id)
        return ""
    of_job(log, data.job.id).info("results: %s", text)
    return "" if code == _NO_DIRECTORY else f"the results were not all unpacked: {text or f'exit code {code}'}"


def _unpack(context: ActionContext, data: JobData, user: User, archive: int) -> tuple[int, str]:
    """Unpack an archive as the user; return the exit code of the program and what it says."""
    most = context.config.api_max_upload * UNPACKED_TIMES
    program = [sys.executable, "-I", "-S", "-c", _PROGRAM.read_text(), data.job.launching_directory, str(most)]
    words, identity = UserFiles(user, context.config.oar_privilege_cmd).running(program)
    done = subprocess.run(
        words,
        stdin=archive,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=SECONDS,
        cwd="/",
        env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"},
        check=False,
        **identity,
    )
    text = done.stdout.decode(errors="replace").strip().splitlines()
    return done.returncode, text[-1][:_LONGEST_TEXT] if text else ""


def remove_old(context: ActionContext) -> None:
    """Remove the files of desktop computing that nobody needs any more."""
    count = stageouts.remove_old(context.database, context.config)
    if count:
        log.info("%d old files of results are removed", count)
    staging.remove_unused(context.database, context.config)
