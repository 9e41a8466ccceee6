"""Programs on nodes and the server have the same words and exit codes, although no file has them for both."""

from enum import Enum

import node_base
import node_protocol
import node_session
import oarexec_command
import pytest

from oar.lib.jobs.ends import ExecCode
from oar.lib.remote import bootstrap
from oar.lib.remote import protocol as server
from oar.lib.submission import checks


def members(words: type) -> dict[str, str | int]:
    """Return names and values of an enumeration of the server, or of a class of constants of a node."""
    if issubclass(words, Enum):
        return {member.name: member.value for member in words}
    return {name: value for name, value in vars(words).items() if name.isupper()}


@pytest.mark.parametrize(
    ("on_server", "on_node"),
    [
        (server.SessionOrder, node_session.SessionRequest),
        (server.NodeAction, node_protocol.ProgramAction),
        (server.ExecLine, node_protocol.OarexecLine),
        (server.ExecOrder, node_protocol.ServerOrder),
        (server.ReportAnswer, node_protocol.EndReceipt),
        (server.NodeFaultKind, node_protocol.FaultKind),
    ],
)
def test_both_sides_have_the_same_words(on_server: type, on_node: type) -> None:
    assert members(on_node) == members(on_server)


def test_whose_jobs_are_accepted_is_whom_nodes_take() -> None:
    assert node_base.ACCOUNT.pattern == checks.ACCOUNT


def test_a_node_answers_of_a_job_what_the_server_expects_of_a_node_that_speaks() -> None:
    silent = {"SILENT": "silent"}
    assert members(node_protocol.JobAnswer) | silent == members(server.ProbeAnswer)


def test_a_node_answers_of_a_job_its_phase_or_that_it_has_none() -> None:
    phases = members(node_protocol.OarexecPhase)
    assert members(node_protocol.JobAnswer) == phases | {"NEVER": "never", "DIED": "died"}


def test_oarexec_ends_with_the_codes_that_the_server_explains() -> None:
    before_oarexec = {"TRANSFER": node_session.NO_PROCESS_EXIT, "NO_INTERPRETER": bootstrap.NO_INTERPRETER}
    made_by_the_server = {"STAGING": 45, "NOT_CONFIRMED": 50, "DIED": 60}
    unexplained = {"UNEXPECTED": 70}
    explained = members(ExecCode) | unexplained
    assert members(node_protocol.OarexecExit) | before_oarexec | made_by_the_server == explained


def test_a_wrong_description_is_told_from_other_failures() -> None:
    assert node_protocol.ManagerExit.DESCRIPTION == server.WRONG_DESCRIPTION
    assert list(members(node_protocol.ManagerExit).values()).count(server.WRONG_DESCRIPTION) == 1


def test_failures_of_programs_of_the_site_on_nodes_have_the_same_codes_on_both_sides() -> None:
    manager = node_protocol.ManagerExit
    assert (manager.PROLOGUE, manager.EPILOGUE) == (server.PROLOGUE_FAILED, server.EPILOGUE_FAILED)


def test_oarexec_takes_the_signals_that_the_server_sends() -> None:
    assert set(server.ControlSignal) <= oarexec_command.CONTROL_SIGNALS


def test_the_session_understands_what_programs_say_to_it() -> None:
    said = (node_base.INDEPENDENT.encode(), node_base.DETACHED.encode())
    assert said == (node_session.INDEPENDENT, node_session.DETACHED)
