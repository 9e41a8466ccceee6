"""CHECK: check whether the fault of a node, or of launches on it, still exists.

See docs/design/events.rst, "Faults of several nodes".
"""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from oar.lib.bus.messages import Tag, Wake
from oar.lib.history.event_types import EventType
from oar.lib.jobs import launch_holds
from oar.lib.jobs.launch_holds import Blame, CheckAnswer
from oar.lib.jobs.records import LaunchHold
from oar.lib.logs import of_nodes
from oar.lib.nodes import state_changes
from oar.lib.nodes.state_changes import Suspicion
from oar.lib.nodes.states import NodeCheck, ResourceState
from oar.lib.remote.protocol import NodeAction
from oar.lib.remote.requests import CommandRan, NodeRequest
from oar.modules.runner.actions import job_data
from oar.modules.runner.actions.context import ActionContext, log

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction

SECONDS = 20
#: Number of other nodes that are asked about the fault of a node.
WITNESSES = 3

#: What is checked, and the user whose account or home it is.
Check = tuple[NodeCheck, str]
#: What a node says of checks; None of those that it cannot make now.
Answers = Mapping[Check, CheckAnswer | None]


def check(context: ActionContext, host: str) -> None:
    """Carry out the checks of a node that are due, for its suspicions and for held launches. Store the results."""
    with context.database.begin() as tx:
        heals = not context.config.disable_suspected_nodes_repair
        suspicions = tx.nodes.due_checks().get(host, []) if heals else []
        holds = [
            hold
            for hold in tx.launch_holds.all()
            if hold.fault in launch_holds.CHECKS and hold.node == host and hold.next_try <= tx.now
        ]
        witnesses = tx.resources.alive_nodes(host, WITNESSES) if holds else []
    held = [(launch_holds.CHECKS[hold.fault], hold.user) for hold in holds]
    questions = {host: list(dict.fromkeys([*suspicions, *held])), **dict.fromkeys(witnesses, held)}
    answers = _ask(context, {node: checks for node, checks in questions.items() if checks})
    with context.database.begin() as tx:
        if suspicions:
            _store_suspicions(tx, host, suspicions, answers.get(host, {}))
        for hold, question in zip(holds, held, strict=True):
            _store_hold(tx, hold, question, answers)


def _ask(context: ActionContext, questions: Mapping[str, Collection[Check]]) -> dict[str, Answers]:
    """Return the answers by node, without the nodes that do not answer."""
    requests = {
        node: NodeRequest("node_check", NodeAction.CHECK, job_data.check_data(checks, context.config))
        for node, checks in questions.items()
    }
    outcomes = context.remote.run(requests, SECONDS)
    return {
        node: _read(outcome.lines, questions[node])
        for node, outcome in outcomes.items()
        if isinstance(outcome, CommandRan) and outcome.exit == 0
    }


def _read(lines: Sequence[str], checks: Collection[Check]) -> Answers:
    """Parse one line per check, in their order. A check without a line has failed."""
    answers: list[CheckAnswer | None] = [_answer(line) for line in lines[: len(checks)]]
    answers += [CheckAnswer(False)] * (len(checks) - len(answers))
    return dict(zip(checks, answers, strict=True))


def _answer(line: str) -> CheckAnswer | None:
    """Return the result of a check, None if the node could not carry it out now."""
    try:
        report = json.loads(line)
    except ValueError:
        return CheckAnswer(False)
    if not isinstance(report, dict):
        return CheckAnswer(False)
    error = report.get("error")
    return None if error is None else CheckAnswer(error == "", report.get("is_of_node") is True)


def _store_suspicions(tx: "Transaction", host: str, suspicions: Sequence[Check], answers: Answers) -> None:
    """Request the state Alive for a suspected node if all its checks succeed; the node is swept before.

    A check of a home directory counts only if its fault is in the node: no user can keep a node Suspected.
    """
    failed = [
        f"{kind} {user}".strip()
        for kind, user in suspicions
        if (answer := answers.get((kind, user))) is None
        or not (answer.is_well or (kind is NodeCheck.HOME and not answer.is_of_node))
    ]
    if failed:
        of_nodes(log, host).info("%s stays Suspected: the check fails: %s", host, ", ".join(failed))
        return
    if tx.resources.ask_state_of_node(host, ResourceState.ALIVE, seen=ResourceState.SUSPECTED, decided_by_finaud=True):
        kinds = ", ".join(sorted({kind for kind, _ in suspicions}))
        tx.events.add(
            EventType.FINAUD_RECOVER, 0, f"[Finaud] {host}: {launch_holds.CHECKED}: {kinds} works", hosts=[host]
        )
        tx.outbox.append(Wake(Tag.CHSTATE))


def _store_hold(tx: "Transaction", hold: LaunchHold, question: Check, answers: Mapping[str, Answers]) -> None:
    """Store the cause of the fault of held launches (node, user or none), if they are still held."""
    if hold.id not in {other.id for other in tx.launch_holds.all()}:
        return
    here = answers.get(hold.node, {}).get(question)
    elsewhere = {
        node: answer.is_well for node, of in answers.items() if node != hold.node and (answer := of.get(question))
    }
    blame = launch_holds.judge_check(here and here.is_well, elsewhere.values())
    if here is None and hold.node in answers and blame is Blame.NOBODY:
        blame = Blame.USER  # an earlier check has not ended: the fault may still exist
    elif blame is Blame.NODE:
        if here and here.is_of_node:  # the node is suspected until the check succeeds there
            text = launch_holds.TEXTS[hold.fault].only_here.format(user=hold.user)
            by_finaud = not launch_holds.relapsed_nodes(tx, [hold.node])
            reasons = {hold.node: Suspicion(text, *question)}
            state_changes.suspect(tx, [hold.node], finaud=by_finaud, named=False, reasons=reasons)
        elif any(resource.state is ResourceState.ALIVE for resource in tx.resources.of_nodes([hold.node])):
            blame = Blame.USER
    is_well_there = blame in (Blame.NOBODY, Blame.NODE)
    witnesses = [node for node, is_well in elsewhere.items() if is_well is is_well_there]
    launch_holds.store_check(tx, hold, blame, witnesses)
