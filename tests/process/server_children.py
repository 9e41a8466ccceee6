"""Small children for a real Almighty: a module and a Runner that do what files in a directory say.

``<name>.code`` exit code of a pass, ``<name>.next`` seconds until its hint, ``<name>.do`` one of: crash, hang, raise,
mute (does not answer), ``<name>.grow`` MiB that a pass takes and keeps, ``<name>.rest`` slices of work that follow, a
letter each.  What they do is noted, a line each, in ``<name>.log``.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import zmq

from oar.lib.base import processes
from oar.lib.bus import frames, sockets
from oar.lib.remote.protocol import ReportAnswer
from oar.lib.runtime import Runtime
from oar.modules import worker


class Directory:
    """The files of one child."""

    def __init__(self, path: str, name: str) -> None:
        self._path = Path(path)
        self._name = name

    def get(self, what: str) -> str:
        with contextlib.suppress(FileNotFoundError):
            return (self._path / f"{self._name}.{what}").read_text().strip()
        return ""

    def put(self, what: str, text: str) -> None:
        (self._path / f"{self._name}.{what}").write_text(text)

    def note(self, *words: object) -> None:
        with (self._path / f"{self._name}.log").open("a") as file:
            file.write(" ".join(str(word) for word in words) + "\n")


class Rest:
    """Work between the passes: a slice for each letter in a file."""

    def __init__(self, files: Directory) -> None:
        self._files = files

    def due(self) -> float | None:
        return 0.0 if self._files.get("rest") else None

    def go_on(self) -> None:
        rest = self._files.get("rest")
        self._files.note("slice", rest[0])
        self._files.put("rest", rest[1:])


def module(name: str, path: str, endpoint: str) -> int:
    """Be a worker."""
    files = Directory(path, name)
    kept = []

    def run(runtime: Runtime, order: worker.PassOrder) -> worker.RoundResult:
        files.note("pass", os.getpid(), ",".join(order.disable))
        if files.get("at"):
            order.announce(files.get("at").split(","))
        if files.get("grow"):
            kept.append(bytes(1 << 20) * int(float(files.get("grow"))))
        match files.get("do"):
            case "crash":
                sys.stderr.write("its last words\n")
                os.kill(os.getpid(), signal.SIGKILL)
            case "hang":
                signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
                time.sleep(1000)
            case "slow":
                time.sleep(1000)
            case "raise":
                raise RuntimeError("it broke")
            case "wait":
                while files.get("do") == "wait":
                    time.sleep(0.01)
        following = files.get("next")
        record = {"jobs": int(files.get("jobs"))} if files.get("jobs") else {}
        date = int(time.time()) + int(following) if following else None
        return worker.RoundResult(int(files.get("code") or 0), date, record=record)

    files.note("start", os.getpid())
    return worker.serve(name, run, endpoint, Rest(files), files.note)


def runner(path: str, endpoint: str) -> int:
    """Be the Runner: note what comes; answer reports with OK, those of job 404 with GONE, those of job 0 never."""
    files = Directory(path, "runner")
    if files.get("code"):
        return int(files.get("code"))
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    dealer = sockets.Dealer(context, endpoint)
    files.note("start", os.getpid())

    def tell(frame: frames.Frame) -> None:
        dealer.send(frames.encode(frame))

    with processes.signals() as signals:
        parent = processes.watch_parent(os.environ)
        assert parent is not None
        poll = sockets.Poll(dealer, signals, parent)
        tell(frames.Hello("bipbip_commander", os.getpid()))
        tell(frames.Ready())
        tell(frames.Load(3, 4))
        is_over = False
        while not is_over and not signals.stop:
            is_over = parent in poll.wait(None)
            signals.clear()
            for frame in map(frames.decode, dealer.receive()):
                files.note(frame)
                match frame:
                    case frames.Ping():
                        tell(frames.Pong())
                    case frames.StopChild():
                        is_over = True
                    case frames.EndReport(peer, job_id) if job_id:
                        tell(frames.ReportReply(peer, ReportAnswer.GONE if job_id == 404 else ReportAnswer.OK))
        files.note("end", os.getpid())
    dealer.close()
    context.term()
    return 0


def warden(path: str) -> int:
    """Be the warden: ``warden.holder`` names who holds the lock, ``warden.lost`` why it is lost."""
    files = Directory(path, "warden")
    if files.get("code"):
        return int(files.get("code"))

    def tell(frame: frames.Frame) -> None:
        os.write(1, frames.encode(frame) + b"\n")

    with processes.signals() as signals:
        parent = processes.watch_parent(os.environ)
        assert parent is not None
        files.note("start", os.getpid())
        is_active, reported = False, ""
        while not (signals.stop or parent.is_gone()):
            if (holder := files.get("holder")) and not is_active and holder != reported:
                tell(frames.Standby(holder, 0))
                reported = holder
            elif not holder and not is_active:
                tell(frames.Active(7))
                is_active = True
            if is_active and not files.get("silent"):
                tell(frames.Alive(int(time.monotonic() * 1000)))
            if is_active and (said := files.get("lost")):
                tell(frames.Lost(said))
            time.sleep(0.05)
        files.note("end", os.getpid())
    return 0


def main(arguments: Sequence[str]) -> int:
    """Name, directory, --worker, endpoint."""
    name, path, _, endpoint = arguments
    if name == "warden":
        return warden(path)
    return runner(path, endpoint) if name == "bipbip_commander" else module(name, path, endpoint)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
