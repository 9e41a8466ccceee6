"""A process that answers: everything is loaded, the database is connected, and it waits for a request.

It answers one request at a time, of any user, until it runs code that was not loaded at its start: an admission rule or
a plug-in of the site.  From then on it answers only the user of that request.  It ends if a request has changed it in
any other way (``surroundings.state``).
"""

import gc
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from oar.cli.common.command import EXIT_BROKEN_PIPE, EXIT_HUNG_UP, EXIT_INTERRUPTED, CallersPlace, Command, Context
from oar.cli.common.options import USER
from oar.cli.common.process import Hangup, limited_lookups, prepare_process
from oar.cli.common.start_up import load
from oar.cli.warm import surroundings
from oar.cli.warm.caller import CommandCaller, close_all, longest_time
from oar.cli.warm.request import BadRequestError, CommandRequest, module_of
from oar.lib.access import name_service
from oar.lib.access.records import User
from oar.lib.runtime import Runtime, open_runtime

#: Number of requests after which a process is replaced.
MOST_REQUESTS = 200
#: What a process sends to the manager: it can answer anybody, or only the user of its last request.
READY, OWNED = b"ready", b"owned"
#: Added to the nice value of the manager: the server of OAR launches and schedules before commands are answered.
NICE = 5
#: Exit code of Python if it cannot write to stderr.
EXIT_SILENT = 120
_LONGEST_WORD = 64


class Worker:
    """A worker process; ``channel``: connection to the manager."""

    def __init__(self, channel: socket.socket, conf_file: str) -> None:
        self._channel = channel
        self._conf_file = conf_file
        self._runtime: Runtime | None = None
        self._owner: int | None = None  #: the user whom alone it answers; None: anybody
        self._has_run_other_code = False
        self._is_idle = True
        self._is_ending = False

    def run(self) -> NoReturn:
        """Answer until the manager sends nothing more."""
        journal = os.dup(2)
        try:
            surroundings.quiet()
            os.nice(NICE)
            signal.signal(signal.SIGTERM, self._end)
            sys.addaudithook(self._notice)
            self._answer_all()
        except (KeyboardInterrupt, Hangup):  # of a caller who sent several, and has had his answer
            pass
        except BaseException:  # noqa: BLE001 - what nobody has foreseen ends this process, and is told
            os.write(journal, traceback.format_exc().encode("utf-8", "replace"))
        finally:
            os._exit(0)

    def _notice(self, event: str, arguments: tuple[object, ...]) -> None:
        """Note that code runs that was not loaded at the start; the interpreter reports all of it."""
        if event == "exec":
            self._has_run_other_code = True

    def _end(self, number: int, frame: object) -> None:
        """End; a request that has begun is finished first."""
        self._is_ending = True
        if self._is_idle:
            os._exit(0)

    def _answer_all(self) -> None:
        self._runtime = open_runtime("commands", self._conf_file, is_of_user=True)
        self._runtime.database.pool.connect_ahead()
        gc.collect()
        former, self._has_run_other_code = surroundings.state(), False
        for _ in range(MOST_REQUESTS):
            if not self._next():
                return
            gc.collect()  # it is disabled while a command runs
            if self._owner is None and surroundings.state() != former:
                return

    def _next(self) -> bool:
        """Answer one request; return whether another may follow."""
        try:
            self._channel.send(READY if self._owner is None else OWNED)
            word, descriptors, _, _ = socket.recv_fds(self._channel, _LONGEST_WORD, 1, socket.MSG_CMSG_CLOEXEC)
        except ConnectionError:  # the manager is gone, or another program now, and has not read our last word
            return False
        if not descriptors:
            return False
        uid = int(word)
        self._is_idle = False
        with socket.socket(fileno=descriptors[0]) as connection:
            if self._owner not in (None, uid):
                return False
            goes_on = self._answer(CommandCaller(connection), uid)
        if self._has_run_other_code:
            self._owner = uid
        self._is_idle = True
        return goes_on and not self._is_ending

    def _answer(self, caller: CommandCaller, uid: int) -> bool:
        """Answer a user's request; return whether the process is as before."""
        try:
            request, streams = caller.request()
        except (BadRequestError, OSError):
            caller.refuse()
            return True
        try:
            with name_service.watched(limited_lookups(lambda text: _say(streams, USER.warning + text))):
                user = User(name_service.account(uid).pw_name, uid)
        except KeyError:
            close_all(streams)
            caller.refuse()
            return True
        except name_service.NameServiceSilent as error:
            _say(streams, f"{USER.error}{error}")
            close_all(streams)
            caller.end(error.exit_code)
            return False
        if not surroundings.leaves_room(request.limits):
            close_all(streams)
            caller.refuse()
            return True
        code, is_clean = self._carried_out(caller, request, user, streams)
        try:
            caller.end(code)
        except (KeyboardInterrupt, Hangup):  # one more signal, which came when the command had ended
            caller.end(code)
            return False
        return is_clean and threading.active_count() == 1

    def _carried_out(
        self, caller: CommandCaller, request: CommandRequest, user: User, streams: list[int]
    ) -> tuple[int, bool]:
        """Run a command; return its exit code, and whether the process is as before."""
        assert self._runtime
        command = load(module_of(request.command))
        longest = longest_time(self._runtime.config.reservation_answer_timeout)
        try:
            with surroundings.taken(request, user, streams):
                prepare_process()
                with caller.listening(longest):
                    code, is_written = self._run(caller, request, command, user)
                surroundings.quiet()
        except KeyboardInterrupt:  # when the command was about to begin, or had just ended
            return command.exit_codes.get(KeyboardInterrupt, EXIT_INTERRUPTED), False
        except Hangup:
            return command.exit_codes.get(Hangup, EXIT_HUNG_UP), False
        return code, is_written and not caller.has_raised

    def _run(self, caller: CommandCaller, request: CommandRequest, command: Command, user: User) -> tuple[int, bool]:
        """Run a command; return its exit code, and whether all that it printed is written."""
        assert self._runtime
        context = Context(command, os.environ, user, None, CallersPlace(request.directory, caller.start))
        context.speak_for(self._runtime)
        try:
            code = command.run(request.arguments, context)
        except OSError:  # it cannot even say what is wrong
            return EXIT_SILENT, False
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except OSError:
            return code, False
        return code, code != EXIT_BROKEN_PIPE


def _say(streams: Sequence[int], text: str) -> None:
    """Print a line for a user whose command has not begun."""
    with suppress(OSError):
        os.write(streams[2], f"{text}\n".encode())
