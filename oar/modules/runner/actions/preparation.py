"""The part of a launch before oarexec: prepare the nodes of the job, and run the server prologue.

Nodes that fail are removed from an advance reservation that has other nodes. For any other job, the launch fails.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from oar.lib.base.host_names import describe_host_failures
from oar.lib.bus.messages import OarsubLine, Tag, Wake
from oar.lib.config.files import Config
from oar.lib.history.event_consequences import consequence_of
from oar.lib.history.event_types import EventType
from oar.lib.jobs.records import JobRun
from oar.lib.jobs.states import Phase
from oar.lib.nodes import ping_checker
from oar.lib.remote.protocol import NodeAction
from oar.modules.runner.actions import job_data, nodes
from oar.modules.runner.actions.context import ActionContext
from oar.modules.runner.actions.job_data import JobData
from oar.modules.runner.actions.server_scripts import ScriptFailure, SiteScript, run_script

#: Events of nodes that could not be prepared; the first that applies ends the launch of a job that is no reservation.
_MANAGER_EVENTS = (
    EventType.PROLOGUE_ERROR,
    EventType.CPUSET_PROPERTY_ERROR,
    EventType.CPUSET_ERROR,
    EventType.PING_CHECKER_NODE_SUSPECTED,
)


class LaunchFailed(Exception):
    """The launch must be given up."""

    def __init__(
        self, event: EventType, text: str, hosts: Collection[str] = (), line: OarsubLine = OarsubLine.BAD_HEAD
    ) -> None:
        super().__init__(text)
        self.event = event
        self.hosts = tuple(hosts)
        self.line = line  #: what a waiting oarsub is told


@dataclass(slots=True)
class Launch:
    """A launch in progress."""

    context: ActionContext
    data: JobData
    run: JobRun
    prepared: set[str] = field(default_factory=set)  #: hosts on which the job resource manager has done its work

    @property
    def id(self) -> int:
        return self.data.job.id

    @property
    def head(self) -> str:
        """Return the host on which the command of the job runs."""
        return self.data.exec_host(self.context.config)


def prepare(launch: Launch) -> None:
    """Prepare the nodes, then run the server prologue. Raises LaunchFailed, ConfigError.

    The session of oarexec prepares the head, which saves a connection, unless the head must be ready for the prologue.
    Without a ping checker of the site, ``init`` or oarexec detect dead nodes.
    """
    prepare_hosts(launch, _hosts_before_oarexec(launch.data, launch.context.config))
    if ping_checker.is_configured(launch.context.config) and not launch.data.is_fetched:
        silent = nodes.unreachable(launch.context, launch.data.hosts)
        if silent:
            drop_hosts(launch, EventType.PING_CHECKER_NODE_SUSPECTED, silent)
            prepare_hosts(launch, launch.prepared - set(silent))
    run_prologue(launch)


def is_ready_at_once(data: JobData, config: Config) -> bool:
    """Return whether oarexec can be sent without any preparation."""
    return not (
        data.is_noop
        or config.server_prologue_exec_file
        or (ping_checker.is_configured(config) and not data.is_fetched)
        or _hosts_before_oarexec(data, config)
    )


def _hosts_before_oarexec(data: JobData, config: Config) -> set[str]:
    """Return the hosts that the job resource manager must prepare before oarexec is sent."""
    hosts = set(data.processors(config))
    # oarexec prepares the head, but cannot do it for a prologue, or run the site's own manager
    has_prologue = config.server_prologue_exec_file or config.node_prologue_file
    if not has_prologue and nodes.site_manager(config) is None:
        hosts.discard(data.exec_host(config))
    return hosts


def prepare_hosts(launch: Launch, hosts: set[str]) -> None:
    """Run the job resource manager on hosts to prepare them. Raises LaunchFailed.

    If a reservation loses some of them, the others are prepared again with the shorter list of nodes.
    """
    config = launch.context.config
    launch.prepared = set()
    while hosts:
        data, seconds = job_data.manager_data(launch.data, config), nodes.manager_seconds(config)
        answers = nodes.manage(launch.context, NodeAction.INIT, hosts, data, seconds)
        failures = {host: answer for host, answer in answers.items() if not answer.succeeded}
        launch.prepared = hosts = hosts - set(failures)
        if not failures:
            return
        events = {host: nodes.failure_event(config, answer) for host, answer in failures.items()}
        for event in _MANAGER_EVENTS:
            errors = {host: answer.error for host, answer in failures.items() if events[host] is event}
            if errors:
                drop_hosts(launch, event, errors)


def drop_hosts(launch: Launch, event: EventType, failures: Mapping[str, str]) -> None:
    """Remove failed hosts from a reservation that has other hosts. ``failures``: the error text of each host.

    Raises LaunchFailed for any other job, and for an event that also ends reservations.
    """
    description = f"[bipbip {launch.id}] {describe_host_failures(failures)}"
    remaining_hosts = [host for host in launch.data.hosts if host not in failures]
    if not (launch.data.is_reservation and remaining_hosts and consequence_of(event).spares_reservations):
        has_no_node = launch.data.is_reservation and event is EventType.PING_CHECKER_NODE_SUSPECTED
        event = EventType.RESERVATION_NO_NODE if has_no_node else event
        raise LaunchFailed(event, description, failures, OarsubLine.BAD_NODES)
    with launch.context.database.begin() as tx:
        tx.events.add(event, launch.id, description, to_check=True, hosts=failures)
        tx.jobs.update(launch.id, message=f"One or several nodes are not responding correctly({event})")
        tx.jobs.release_resources(launch.id, failures)
        data = job_data.read(tx, launch.id)
        tx.outbox.append(Wake(Tag.CHSTATE))
    if data is not None:
        launch.data = data


def run_prologue(launch: Launch) -> None:
    """Run the server prologue at least once: it may run again after a crash. Raises LaunchFailed."""
    config = launch.context.config
    if not config.server_prologue_exec_file or launch.run.phase is Phase.PROLOGUE_OK:
        return
    try:
        run_script(config, SiteScript.PROLOGUE, launch.data, launch.run.attempt)
    except ScriptFailure as failure:
        is_late = failure.event is EventType.SERVER_PROLOGUE_TIMEOUT
        line = OarsubLine.LONG_PROLOGUE if is_late else OarsubLine.BAD_PROLOGUE
        raise LaunchFailed(failure.event, f"[bipbip {launch.id}] {failure}", (), line) from None
    with launch.context.database.begin() as tx:
        tx.job_runs.update(launch.id, phase=Phase.PROLOGUE_OK)
