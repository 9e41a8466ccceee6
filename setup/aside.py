"""Runs a function in a separate process, in the foreground or aside: then its output is shown with its result."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Generic, TypeVar

from room import kernel

_FORKING = multiprocessing.get_context("fork")
_Result = TypeVar("_Result")


class NoResult(Exception):
    """The process ended without a result."""


class Work(Generic[_Result]):
    """A function that runs in a process, which reaps orphaned descendants.

    As a context manager it kills the process and its descendants if nobody has waited for the result.
    """

    def __init__(self, function: Callable[[], _Result], *, is_aside: bool) -> None:
        self._receiver, self._sender = _FORKING.Pipe(duplex=False)
        self._output = os.memfd_create("output") if is_aside else None
        self._process = _FORKING.Process(target=_run, args=(function, self._output, self._sender))

    def __enter__(self) -> Work[_Result]:
        sys.stdout.flush()
        self._process.start()
        self._sender.close()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.join()
        self._receiver.close()
        if self._output is not None:
            os.close(self._output)

    def result(self) -> _Result:
        """Wait for the result, and show the output that was kept aside.  Raises NoResult."""
        try:
            found: _Result = self._receiver.recv()
        except EOFError:
            self._process.join()
            raise NoResult(f"its process ended, with {self._process.exitcode}") from None
        finally:
            self._show()
        return found

    def _show(self) -> None:
        if self._output is not None:
            os.lseek(self._output, 0, os.SEEK_SET)
            with open(self._output, "rb", closefd=False) as output:
                shutil.copyfileobj(output, sys.stdout.buffer)
            sys.stdout.buffer.flush()


def _run(function: Callable[[], _Result], output: int | None, sender: multiprocessing.connection.Connection) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    kernel.adopt_orphans()
    with contextlib.nullcontext() if output is None else _printing_to(output):
        result = function()
    sender.send(result)


@contextlib.contextmanager
def _printing_to(output: int) -> Iterator[None]:
    """Redirect the output of this process and its children to a file."""
    os.dup2(output, 1)
    os.dup2(output, 2)
    with open(1, "w", closefd=False) as stream, contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
        yield
