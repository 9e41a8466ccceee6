"""What oarqueue and oarnotify print and do."""

import json
import threading
from collections.abc import Iterator

import pytest
import zmq

from oar.cli import oarnotify, oarqueue
from oar.cli.common.command import Command, CommandResult
from oar.lib.base.times import format_date
from oar.lib.bus import frames, sockets
from oar.lib.bus.frames import Frame, Status, StatusQuestion, Waited, WaitForRound
from oar.lib.bus.messages import Effect, Tag, Wake
from oar.lib.jobs.records import Queue
from oar.lib.jobs.states import QueueState
from tests.builders import add_job
from tests.db.console import Console

# -- queues -----------------------------------------------------------------------------------------------------------

LISTED = """\
admin
	priority = 10
	{label} = kamelot
	state = Active
besteffort
	priority = 0
	{label} = kamelot
	state = Active
default
	priority = 2
	{label} = kamelot
	state = Active
"""


def test_the_queues_are_listed(console: Console) -> None:
    assert console.type(oarqueue.main) == CommandResult(0, LISTED.format(label="policy"), "")
    assert console.type(oarnotify.main, "-l") == CommandResult(0, LISTED.format(label="scheduler"), "")


def queue_states(console: Console) -> dict[str, str]:
    """Return the state of each queue."""
    with console.database.begin() as tx:
        return {queue.name: str(queue.state) for queue in tx.queues.all()}


def test_queues_are_switched_added_changed_and_removed(console: Console, sent: list[Effect]) -> None:
    assert console.type(oarqueue.main, "-d", "default") == CommandResult(0, "", "")
    assert queue_states(console)["default"] == "notActive"
    assert sent == [Wake(Tag.TERM)]
    console.type(oarqueue.main, "-D")
    assert set(queue_states(console).values()) == {"notActive"}
    console.type(oarqueue.main, "-E")
    assert set(queue_states(console).values()) == {"Active"}
    console.type(oarqueue.main, "--add", "short,5,oar_sched_gantt_with_timesharing")
    console.type(oarqueue.main, "--change", "short,7")
    with console.database.begin() as tx:
        queue = next(queue for queue in tx.queues.all() if queue.name == "short")
    assert (queue.priority, queue.policy) == (7, "oar_sched_gantt_with_timesharing")
    console.type(oarqueue.main, "--remove", "short")
    assert "short" not in queue_states(console)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["-e", "x"], 1, "Queue 'x' does not exist."),
        (["--change", "x,1"], 1, "Queue 'x' does not exist."),
        (["--remove", "x"], 1, "Queue 'x' does not exist."),
        (["--add", "default,1,kamelot"], 1, "Queue 'default' already exists."),
        (["--add", "q,high,kamelot"], 1, "'high' is not a priority: write a whole number."),
        (["--add", "a b,1,kamelot"], 1, "'a b' is not a valid queue name: letters, digits and _ . - only."),
        (["--add", "q,1,rm -rf /"], 1, "'rm -rf /' is not the name of a scheduler."),
        (["--remove", "default"], 2, "Queue 'default' has 1 unfinished job(s)."),
        (["-d", "default", "-e", "x"], 1, "Queue 'x' does not exist."),
    ],
)
def test_bad_queues(console: Console, arguments: list[str], code: int, message: str) -> None:
    add_job(console.database)
    before = queue_states(console)
    assert console.type(oarqueue.main, *arguments) == CommandResult(code, "", f"{message}\n")
    assert queue_states(console) == before


def test_a_queue_with_jobs_goes_if_it_must(console: Console) -> None:
    add_job(console.database)
    assert console.type(oarqueue.main, "--remove", "default", "--force").exit == 0


# -- oarnotify --------------------------------------------------------------------------------------------------------


class Server(threading.Thread):
    """The sockets of Almighty, and what comes to them."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self.heard: list[object] = []
        self._zmq: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._router = sockets.Router(self._zmq, sockets.control_endpoint(console.config))
        self._bell = sockets.Pull(self._zmq, "127.0.0.1", 0)
        self._endpoint = self._bell.socket.getsockopt_string(zmq.LAST_ENDPOINT)
        port = int(self._endpoint.rpartition(":")[2])
        console.config = console.config.replace(server_hostnames=("127.0.0.1",), appendice_server_port=port)

    def run(self) -> None:
        """Answer until an empty message comes."""
        poll = sockets.Poll(self._router, self._bell)
        messages: list[bytes] = []
        while b"" not in messages:
            poll.wait(None)
            messages = self._bell.receive()
            self.heard += [frames.decode_request(data) for data in messages if data]
            for sender, data in self._router.receive():
                question = frames.decode(data)
                self.heard.append(question)
                self._router.send(sender, frames.encode(self._answer(question)))

    def _answer(self, question: Frame) -> Frame:
        if isinstance(question, StatusQuestion):
            return Status(
                {"automaton": {"sched": "idle", "queue": []}, "runner": 3, "start": 1_930_000_000, "last_start": None}
            )
        return Waited(0)

    def stop(self) -> None:
        """End, after all that was sent before."""
        if self._zmq.closed:
            return
        push = self._zmq.socket(zmq.PUSH)
        push.connect(self._endpoint)
        push.send(b"")
        self.join(120)
        self._router.close()
        self._bell.close()
        self._zmq.destroy(linger=0)


@pytest.fixture
def server(console: Console) -> Iterator[Server]:
    """A server that answers."""
    server = Server(console)
    server.start()
    yield server
    server.stop()


def heard(server: Server) -> list[object]:
    """Stop the server; return what it heard."""
    server.stop()
    return server.heard


@pytest.mark.parametrize(
    ("words", "tag"),
    [([], Tag.TERM), (["TERM"], Tag.TERM), (["Qsub"], Tag.QSUB), (["Qsub -I"], Tag.QSUB_INTERACTIVE)],
)
def test_the_server_is_rung(console: Console, server: Server, words: list[str], tag: Tag) -> None:
    assert console.type(oarnotify.main, *words) == CommandResult(0, "", "")
    assert heard(server) == [Wake(tag)]


def test_a_list_rings_nobody(console: Console, server: Server) -> None:
    console.type(oarnotify.main, "-l")
    assert heard(server) == []


def test_an_unknown_tag_is_refused_before_anything_is_done(console: Console, server: Server) -> None:
    assert console.type(oarnotify.main, "-d", "default", "x") == CommandResult(
        1, "", f"Unknown tag 'x'.\n# Write one of: {', '.join([*Tag, 'TERM'])}\n"
    )
    assert queue_states(console)["default"] == "Active"
    assert heard(server) == []


def test_a_round_is_awaited(console: Console, server: Server) -> None:
    assert console.type(oarnotify.main, "--wait", "Qsub").exit == 0
    assert heard(server) == [StatusQuestion(), WaitForRound("Qsub")]


def test_no_round_of_a_server_that_is_not_there_is_awaited(console: Console) -> None:
    asked = console.type(oarnotify.main, "--wait")
    assert (asked.exit, asked.out) == (2, "")
    assert asked.err.endswith("no answer\n")


def test_the_state_of_the_server_is_shown(console: Console, server: Server) -> None:
    assert console.type(oarnotify.main, "--status") == CommandResult(
        0,
        f"automaton\n\tsched = idle\n\tqueue = \nrunner = 3\nstart = {format_date(1_930_000_000)}\nlast_start = \n",
        "",
    )
    as_json = console.type(oarnotify.main, "--status", "--json")
    assert json.loads(as_json.out)["runner"] == 3


def test_a_policy_that_nobody_knows_is_warned_of(console: Console) -> None:
    warning = "/!\\ No job of queue q1 will start: nonsense must be a program in /usr/lib/oar/schedulers, or one of "
    for words in (("--add", "q1,3,nonsense"), ("--change", "q1,3,nonsense")):
        result = console.type(oarqueue.main, *words)
        assert result.exit == 0
        assert warning in result.err
        assert "kamelot" in result.err
    assert "No job" not in console.type(oarqueue.main, "--add", "q2", "--change", "q1,3,kamelot").err
    assert "No job" in console.type(oarnotify.main, "--add-queue", "q3,1,x").err


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (oarqueue.main, ("-e", "old")),
        (oarqueue.main, ("-E",)),
        (oarqueue.main, ("--change", "old,5")),
        (oarnotify.main, ("-e", "old")),
        (oarnotify.main, ("-E",)),
    ],
)
def test_a_queue_that_is_enabled_is_checked_like_a_new_one(
    console: Console, command: Command, words: tuple[str, ...]
) -> None:
    with console.database.begin() as tx:
        tx.queues.insert(Queue("old", 3, "oar_sched_of_the_site", QueueState.NOT_ACTIVE))
    result = console.type(command, *words)
    assert "/!\\ No job of queue old will start: oar_sched_of_the_site must be a program" in result.err


def test_a_server_that_is_not_there(console: Console) -> None:
    console.config = console.config.replace(server_hostnames=("127.0.0.1",), appendice_server_port=1)
    asked = console.type(oarnotify.main, "Term")
    assert asked == CommandResult(2, "", "[ERROR] Cannot notify the OAR server (127.0.0.1:6666): Connection refused\n")
    unasked = console.type(oarnotify.main, "-d", "default")
    assert unasked == CommandResult(
        0,
        "Disable queue default.\n",
        "/!\\ Cannot contact the OAR server 127.0.0.1:6666, the request is recorded and will be treated later.\n",
    )


def test_queues_in_the_words_of_older_versions(console: Console, server: Server) -> None:
    result = console.type(
        oarnotify.main, "--add_queue", "q1,3,s", "--add-queue", "q2", "--remove_queue", "q2", "-e", "q1", "-D", "-E"
    )
    assert result.out.splitlines() == [
        "Add queue q1 with the priority 3 and the scheduler s.",
        "Add queue q2 with the priority 0 and the scheduler oar_sched_gantt_with_timesharing.",
        "Remove queue q2.",
        "Enable queue q1.",
        "Enable all queues.",
        "Disable all queues.",
    ]
    assert heard(server) == [Wake(Tag.TERM)]
