"""Why a job ended: one cause, decided from what is known, and told in words."""

from typing import Any

import pytest

from oar.lib.jobs import end_decision
from oar.lib.jobs.end_decision import END_NOT_RECORDED, EndEvent, EndFacts
from oar.lib.jobs.ends import Cause, EndCode, ExecCode, cause_text
from oar.lib.jobs.records import NodeUsage
from oar.lib.jobs.states import Phase
from oar.lib.remote.protocol import NodeFault, NodeFaultKind

WALLTIME = Cause(EndCode.WALLTIME)
DELETED = Cause(EndCode.DELETED, {"by": "alice"})
LOST = EndEvent("LOST_SESSION", "ssh ended")
STARVED = NodeUsage("node2", 2, 10.0, memory_peak=1 << 30, memory_limit=1 << 30, oom_kills=3)
CROWDED = NodeUsage("node1", 2, forks_denied=7)


def reported(code: int = ExecCode.OK, status: int | None = 0, **more: Any) -> EndFacts:
    """Return what is known of a job whose end its node told."""
    return EndFacts(7, exit_code=status, oarexec_code=code, phase=Phase.CLEANED, head="node1", **more)


def fault(kind: NodeFaultKind, errno: str = "", path: str = "/data/x", **more: str) -> NodeFault:
    return NodeFault(kind, errno, path, **more)


@pytest.mark.parametrize(
    ("facts", "code", "data"),
    [
        (reported(), "SUCCESS", {}),
        (reported(status=3 << 8), "EXIT_STATUS", {"status": 3}),
        (reported(status=126 << 8), "NOT_EXECUTABLE", {"status": 126}),
        (reported(status=127 << 8), "NOT_FOUND", {"status": 127}),
        (reported(status=11), "SIGNAL", {"signal": 11}),
        (reported(status=139), "SIGNAL", {"signal": 11}),
        (reported(ExecCode.CHECKPOINTED), "CHECKPOINT", {}),
        (reported(ExecCode.CHECKPOINTED, 256), "EXIT_STATUS", {"status": 1}),
        (reported(ExecCode.SIGNALLED, 10), "SIGNAL", {"signal": 10}),
        (
            reported(ExecCode.SIGNALLED, 15, signals={10: "no", 15: "User bob requested it"}),
            *("SIGNAL_SENT", {"signal": 15, "text": "User bob requested it"}),
        ),
        (reported(ExecCode.OK, 15, signals={15: "it came too late"}), "SIGNAL", {"signal": 15}),
        (reported(ExecCode.SIGNALLED, 11, signals={15: ""}), "SIGNAL", {"signal": 11}),
        (reported(ExecCode.CHECKPOINTED, 12, checkpoint_signal=12), "CHECKPOINT_SIGNAL", {"signal": 12}),
        (reported(ExecCode.CHECKPOINTED_EPILOGUE, 140, checkpoint_signal=12), "CHECKPOINT_SIGNAL", {"signal": 12}),
        (reported(ExecCode.CHECKPOINTED, 9, checkpoint_signal=12, signals={9: "x"}), "SIGNAL_SENT", None),
        (reported(ExecCode.SIGNALLED, 12, checkpoint_signal=12), "SIGNAL", {"signal": 12}),
        (reported(ExecCode.EPILOGUE), "EPILOGUE", {"node": "node1"}),
        (reported(ExecCode.EPILOGUE, 256), "EXIT_STATUS", {"status": 1}),
        (reported(ExecCode.PROLOGUE, None), "PROLOGUE", {"node": "node1"}),
        (reported(ExecCode.SESSION, None), "SESSION_OVER", {}),
        (reported(ExecCode.SESSION, None, fault=fault(NodeFaultKind.SESSION)), "SESSION_LOST", {"node": "node1"}),
        (
            reported(
                ExecCode.SESSION, None, events=[LOST], fault=fault(NodeFaultKind.SHELL, "ENOENT", path="/bin/gone")
            ),
            *("SHELL_MISSING", {"node": "node1", "path": "/bin/gone", "errno": "ENOENT"}),
        ),
        (
            reported(ExecCode.SESSION, None, fault=fault(NodeFaultKind.DIRECTORY, "EACCES", path="/root")),
            *("DIRECTORY_DENIED", {"node": "node1", "path": "/root", "errno": "EACCES"}),
        ),
        (reported(ExecCode.SESSION, None, events=[LOST]), "SESSION_LOST", {"node": "node1", "text": "ssh ended"}),
        (reported(ExecCode.KILLED, None, kill=DELETED, events=[LOST]), "SESSION_LOST", {"text": "ssh ended"}),
        (reported(ExecCode.KILLED, None, kill=DELETED), "DELETED", {"by": "alice"}),
        (reported(ExecCode.KILLED, None), "STOPPED", {}),
        (
            reported(ExecCode.KILLED_EPILOGUE, None, kill=WALLTIME, walltime=60, ran=61),
            "WALLTIME",
            {"walltime": 60, "ran": 61},
        ),
        (reported(status=256, kill=DELETED), "EXIT_STATUS", {"status": 1}),
        (reported(ExecCode.USER_SHELL, None), "ACCOUNT_UNKNOWN", {"node": "node1"}),
        (reported(ExecCode.NO_INTERPRETER, None, detail="no python\n"), "NODE_SETUP", None),
        (reported(ExecCode.NOT_CONFIRMED, None), "LAUNCH_UNKNOWN", {"node": "node1"}),
        (reported(ExecCode.DIED, None), "OAREXEC_LOST", {"node": "node1"}),
        (reported(ExecCode.DIED, None, detail=END_NOT_RECORDED), "RESTORED", {"node": "node1"}),
        (
            reported(ExecCode.DIED, None, events=[EndEvent("EXIT_VALUE_OAREXEC", "", ("node1",))]),
            "NODE_LOST",
            {"nodes": ["node1"]},
        ),
        (
            reported(ExecCode.DIED, None, events=[EndEvent("NODE_LOST", "", ("node1",))]),
            "NODE_LOST",
            {"nodes": ["node1"]},
        ),
        (
            reported(ExecCode.DIED, None, events=[EndEvent("NODE_REBOOTED", "", ("node1",))]),
            "NODE_REBOOTED",
            {"nodes": ["node1"]},
        ),
        (reported(ExecCode.SHUTDOWN, 15), "NODE_SHUTDOWN", {"nodes": ["node1"]}),
        (reported(ExecCode.SHUTDOWN, None, kill=DELETED), "DELETED", {"by": "alice"}),
        (
            EndFacts(7, phase=Phase.FAILED, events=[EndEvent("NODE_SHUTDOWN", "x", ("node1",))]),
            *("NODE_SHUTDOWN", {"text": "x", "nodes": ["node1"]}),
        ),
        (reported(events=[EndEvent("SERVER_EPILOGUE_ERROR", "no file")]), "SERVER_EPILOGUE", {"text": "no file"}),
        (reported(status=256, events=[EndEvent("SERVER_EPILOGUE_ERROR", "")]), "EXIT_STATUS", {"status": 1}),
        (EndFacts(7, kill=DELETED), "DELETED", {"by": "alice"}),
        (EndFacts(7, kill=WALLTIME, phase=Phase.EXTERMINATE), "WALLTIME", None),
        (EndFacts(7, phase=Phase.FAILED, events=[EndEvent("CPUSET_ERROR", "x", ("node2",))]), "NODE_SETUP", None),
        (
            EndFacts(7, phase=Phase.FAILED, events=[EndEvent("PING_CHECKER_NODE_SUSPECTED", "", ("b", "a"))]),
            "NODE_LOST",
            {"text": "", "nodes": ["a", "b"]},
        ),
        (
            EndFacts(7, phase=Phase.FAILED, events=[EndEvent("SERVER_PROLOGUE_ERROR", "")]),
            "SERVER_PROLOGUE",
            None,
        ),
        (
            EndFacts(7, phase=Phase.STARTED, events=[EndEvent("FORCE_TERMINATE_FINISHING_JOB", "asked by root")]),
            "FORCED",
            {"text": "asked by root"},
        ),
        (EndFacts(7, message="killed by hand"), "UNKNOWN", {"text": "killed by hand"}),
        (EndFacts(7, exit_code=512), "EXIT_STATUS", {"status": 2}),
    ],
)
def test_the_cause_of_an_end(facts: EndFacts, code: str, data: dict[str, Any] | None) -> None:
    cause = end_decision.decide(facts)
    assert cause.code == code
    assert data is None or cause.data == data


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (fault(NodeFaultKind.DIRECTORY, "ENOENT"), "DIRECTORY_MISSING"),
        (fault(NodeFaultKind.DIRECTORY, "EACCES"), "DIRECTORY_DENIED"),
        (fault(NodeFaultKind.DIRECTORY, "ENOENT", home="/home/alice"), "HOME_MISSING"),
        (fault(NodeFaultKind.DIRECTORY, "EIO"), "DIRECTORY_FAILED"),
        (None, "DIRECTORY_FAILED"),
    ],
)
def test_each_trouble_with_the_working_directory_is_a_cause_of_its_own(found: NodeFault | None, code: str) -> None:
    assert end_decision.decide(reported(ExecCode.DIRECTORY, None, fault=found)).code == code


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (fault(NodeFaultKind.OUTPUT, "ENOENT"), "OUTPUT_MISSING"),
        (fault(NodeFaultKind.OUTPUT, "EACCES"), "OUTPUT_DENIED"),
        (fault(NodeFaultKind.OUTPUT, "EROFS"), "OUTPUT_DENIED"),
        (fault(NodeFaultKind.OUTPUT, "ENOSPC"), "OUTPUT_FULL"),
        (fault(NodeFaultKind.OUTPUT, "EDQUOT"), "OUTPUT_FULL"),
        (fault(NodeFaultKind.OUTPUT, "ENXIO"), "OUTPUT_PIPE"),
        (fault(NodeFaultKind.OUTPUT, "ELOOP"), "OUTPUT_LINK"),
        (fault(NodeFaultKind.OUTPUT, "EACCES", link="/etc/passwd"), "OUTPUT_LINK"),
        (fault(NodeFaultKind.OUTPUT, "EISDIR"), "OUTPUT_FAILED"),
        (None, "OUTPUT_FAILED"),
    ],
)
def test_each_trouble_with_an_output_file_is_a_cause_of_its_own(found: NodeFault | None, code: str) -> None:
    assert end_decision.decide(reported(ExecCode.OUTPUT_EPILOGUE, None, fault=found)).code == code


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"usage": [STARVED]}, "OUT_OF_MEMORY"),
        ({"usage": [CROWDED]}, "PROCESS_LIMIT"),
        ({"fault": fault(NodeFaultKind.PROCESSES)}, "PROCESS_LIMIT"),
        ({"fault": fault(NodeFaultKind.FULL)}, "DISK_FULL"),
        ({"fault": fault(NodeFaultKind.HOOK)}, "PROLOGUE"),
        ({"fault": fault(NodeFaultKind.SHELL, "ENOENT")}, "SHELL_MISSING"),
        ({"fault": fault(NodeFaultKind.SHELL, "EACCES")}, "SHELL_FAILED"),
    ],
)
def test_what_the_nodes_saw_explains_a_bad_status_and_nothing_else(more: dict[str, Any], code: str) -> None:
    assert end_decision.decide(reported(status=127 << 8, **more)).code == code
    assert end_decision.decide(reported(status=0, **more)).code is EndCode.SUCCESS


def test_a_shutdown_of_the_node_is_told_in_a_sentence() -> None:
    told = cause_text(end_decision.decide(reported(ExecCode.SHUTDOWN, None)), 7)
    assert told.sentence == "node1 was shut down, or rebooted in order, while the job was there."
    assert told.advice == "The job itself is correct. Submit it again: oarsub --resubmit 7"


def test_the_end_of_a_job_of_many_nodes_is_told_shortly_and_its_data_names_them_all() -> None:
    names = tuple(f"node-{number}" for number in range(1, 101))
    cause = end_decision.decide(EndFacts(7, phase=Phase.FAILED, events=[EndEvent("NODE_SHUTDOWN", "", names)]))
    assert cause.data["nodes"] == sorted(names)
    told = cause_text(cause, 7)
    assert told.sentence == "node-[1-100] were shut down, or rebooted in order, while the job was there."
    starved = [STARVED._replace(node=name) for name in names]
    out_of_memory = cause_text(end_decision.decide(reported(status=256, usage=starved)), 7).sentence
    assert out_of_memory.count("peak 1.0 GiB") == 3
    assert "; also on node-[" in out_of_memory


def test_a_job_that_ran_out_of_memory_is_told_where_and_how_much() -> None:
    cause = end_decision.decide(reported(status=137 << 8, usage=[CROWDED, STARVED]))
    told = cause_text(cause, 7, "OAR.7.stderr")
    assert told.sentence == (
        "The kernel killed some of its processes because there was not enough memory: node2 (peak 1.0 GiB, limit"
        " 1.0 GiB). Its command ended"
        " with exit status 137."
    )
    assert "oarsub -l /nodes=N" in told.advice
    assert told.advice.endswith("Its error output: OAR.7.stderr")


def test_a_kill_remembers_what_the_kernel_had_killed_before() -> None:
    cause = end_decision.decide(reported(ExecCode.KILLED, None, kill=WALLTIME, walltime=60, ran=60, usage=[STARVED]))
    assert cause.code is EndCode.WALLTIME
    assert "there was not enough memory: node2 (peak 1.0 GiB, limit 1.0 GiB)." in cause_text(cause, 7).sentence


def test_a_job_whose_time_was_over_is_told_the_command_for_more() -> None:
    told = cause_text(Cause(EndCode.WALLTIME, {"walltime": 5400, "ran": 5402, "unanswered": True}), 7)
    assert told.sentence == (
        "It reached its walltime: it had requested 1:30:0 and ran for 1:30:2. It did not react to the kill, and"
        " OAR gave it up."
    )
    assert "walltime=3:0:0; or, while it runs: oarwalltime 7" in told.advice


def test_a_job_that_had_what_was_left_of_its_advance_reservation_is_told_so() -> None:
    cause = end_decision.decide(reported(ExecCode.KILLED, None, kill=WALLTIME, walltime=600, ran=601, is_rest=True))
    told = cause_text(cause, 7)
    assert told.sentence == (
        "It reached its walltime: it had requested none, had the 0:10:0 left of its advance reservation, and ran for"
        " 0:10:1."
    )
    assert told.advice.startswith("Submit it sooner in its advance reservation; or make that longer: qralter -e; or")


def test_a_command_that_a_signal_of_oar_has_ended_is_told_who_asked_and_how_to_catch_it() -> None:
    data = {"signal": 15, "text": "User bob requested the signal 15 for the job 7"}
    told = cause_text(Cause(EndCode.SIGNAL_SENT, data), 7)
    assert told.sentence == (
        "Its command was ended by signal SIGTERM, which OAR sent on request: User bob requested the signal 15 for the"
        " job 7."
    )
    assert "trap 'COMMAND' TERM" in told.advice
    told = cause_text(Cause(EndCode.CHECKPOINT_SIGNAL, {"signal": 12}), 7)
    assert told.sentence == (
        "Its command was ended by signal SIGUSR2, with which OAR requested a checkpoint: the command did not catch it."
    )
    assert "trap 'COMMAND' USR2" in told.advice
    assert "oarsub --checkpoint SECONDS --signal SIGNAL" in told.advice


def test_a_status_above_128_is_told_as_the_signal_that_shells_mean() -> None:
    assert "signal SIGKILL" in cause_text(Cause(EndCode.EXIT_STATUS, {"status": 137}), 7).sentence
    assert "signal" not in cause_text(Cause(EndCode.EXIT_STATUS, {"status": 255}), 7).sentence


@pytest.mark.parametrize("code", list(EndCode))
def test_every_cause_has_its_words_whatever_is_known_of_it(code: EndCode) -> None:
    told = cause_text(Cause(code), 7)
    assert told.sentence.endswith(".")
    assert "{" not in told.sentence + told.advice


@pytest.mark.parametrize("said", [None, 3, [], {}, {"kind": "other"}, {"kind": ["full"]}])
def test_a_node_may_say_anything_for_a_fault(said: object) -> None:
    assert end_decision.read_fault(said) is None


def test_the_texts_of_a_fault_are_bounded_and_can_be_stored() -> None:
    found = end_decision.read_fault({"kind": "output", "errno": 5, "path": "\udc80" + "x" * 10_000})
    assert found is not None
    assert (found.errno, found.path[:2], len(found.path)) == ("", "?x", 4096)


def test_a_detail_that_is_a_sentence_leaves_one_sentence() -> None:
    told = cause_text(Cause(EndCode.EXPIRED, {"text": "Its deadline is over."}), 7)
    assert told.sentence == "It could not start in the time that was set for it: Its deadline is over."
    assert cause_text(Cause(EndCode.EXPIRED), 7).sentence == "It could not start in the time that was set for it."
