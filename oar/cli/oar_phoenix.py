"""oar_phoenix: reboots broken nodes."""

import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from oar.cli.common.command import Context, oar_command
from oar.cli.common.options import ADMIN, Stop, option
from oar.lib.base.errors import BadCondition, ConfigError, DatabaseUnavailable
from oar.lib.bus.messages import Mail
from oar.lib.config.files import Config
from oar.lib.db.lock_keys import PHOENIX_LOCK
from oar.lib.db.system import ServerState
from oar.lib.db.user_sql import SITE, Subject, evaluate
from oar.lib.jobs import retention
from oar.lib.monitoring.records import ServerTask
from oar.lib.nodes import phoenix
from oar.lib.nodes.phoenix import RebootCommand, RebootPlan, RebootPolicy, Step, Tried, known_by, plan

if TYPE_CHECKING:
    from oar.lib.base.processes import CommandOutcome

EXIT_CONFIGURATION, EXIT_DATABASE = 1, 2
_KEYS = {Step.SOFT: "PHOENIX_SOFT_REBOOTCMD", Step.HARD: "PHOENIX_HARD_REBOOTCMD"}


@oar_command(
    "oar_phoenix",
    summary="Reboot broken nodes: soft reboot, then hard reboot, then mail to the administrator.",
    examples={
        "oar_phoenix --dry-run": "Print which nodes would be rebooted.",
    },
    style=ADMIN,
    admins_only=True,
    exit_codes={
        DatabaseUnavailable: EXIT_DATABASE,
        ConfigError: EXIT_CONFIGURATION,
        BadCondition: EXIT_CONFIGURATION,
    },
)
@option("-n", "--dry-run", "only_tell", is_flag=True, help="Print the actions without executing them.")
def main(context: Context, *, only_tell: bool) -> None:
    """Do the next step for each broken node."""
    config = context.runtime.config
    commands = _commands(config)
    if not commands:
        click.echo(f"# Nothing is done: neither {' nor '.join(_KEYS.values())} is set in oar.conf.")
        return
    with context.database.hold_lock(PHOENIX_LOCK) as lock:
        if lock is None:
            click.echo("# Nothing is done: another oar_phoenix is running.")
            return
        set_ahead = retention.seconds_set_ahead(context.database)
        broken, now = _broken(context), int(time.time()) - set_ahead
        with context.database.snapshot() as tx:
            stored = phoenix.parse_tried(tx.system.read_state(ServerState.PHOENIX))
        tried = {node: last for node, last in known_by(stored, now).items() if node in broken}
        policy = RebootPolicy(
            Step.SOFT in commands,
            Step.HARD in commands,
            config.phoenix_soft_timeout,
            config.phoenix_hard_timeout,
            config.phoenix_max_reboots,
        )
        decided = plan(broken, tried, policy, now)
        _tell(decided, only_tell=only_tell)
        if not only_tell:
            with context.database.begin() as tx:
                tx.system.store_state(ServerState.PHOENIX, phoenix.format_tried({**tried, **_steps(decided, now)}))
            _report_given_up(context, decided.given_up)
            _carry_out(config, commands, decided)
            with context.database.begin() as tx:
                tx.figures.record_success(ServerTask.PHOENIX)


def _commands(config: Config) -> dict[Step, RebootCommand]:
    """Return the commands that are set.  Raises ConfigError."""
    texts = {Step.SOFT: config.phoenix_soft_rebootcmd, Step.HARD: config.phoenix_hard_rebootcmd}
    return {step: RebootCommand(_KEYS[step], text) for step, text in texts.items() if text}


def _broken(context: Context) -> set[str]:
    """Return the broken nodes without jobs and without maintenance.  Raises Stop, BadCondition, ConfigError."""
    ids = evaluate(context.database, Subject.RESOURCES, context.runtime.config.phoenix_broken_nodes, SITE)
    with context.database.snapshot() as tx:
        nodes = {resource.network_address for resource in tx.resources.select(ids) if resource.network_address}
        resources = tx.resources.of_nodes(nodes)
        maintained = tx.resources.in_maintenance([resource.id for resource in resources])
        kept = {
            resource.network_address for resource in resources if resource.id in maintained
        } | tx.resources.busy_nodes()
    odd = sorted(node for node in nodes - kept if not phoenix.can_be_named(node))
    if odd:
        context.warn(
            f"nodes are not rebooted: {', '.join(odd)}: a reboot command cannot contain these names. Rename the nodes."
        )
    return nodes - kept - set(odd)


def _steps(decided: RebootPlan, now: int) -> dict[str, Tried]:
    kinds = ((Step.SOFT, decided.soft), (Step.HARD, decided.hard), (Step.GIVEN_UP, decided.given_up))
    return {node: Tried(step, now) for step, nodes in kinds for node in nodes}


def _tell(decided: RebootPlan, *, only_tell: bool) -> None:
    """Print a line for each kind of step that is done for some node."""
    would = "would be " if only_tell else ""
    for outcome, nodes in (
        (f"{would}rebooted", decided.soft),
        (f"{would}rebooted the hard way", decided.hard),
        (f"{would}given up after all reboots", decided.given_up),
    ):
        if nodes:
            click.echo(f"{outcome}: {', '.join(nodes)}")
    if decided.postponed:
        click.echo(f"postponed to the next call (PHOENIX_MAX_REBOOTS): {decided.postponed} nodes")


def _carry_out(config: Config, commands: Mapping[Step, RebootCommand], decided: RebootPlan) -> None:
    """Run the commands and append their output to the log.  Raises Stop if one failed."""
    failed = []
    for step, nodes in ((Step.HARD, decided.hard), (Step.SOFT, decided.soft)):
        if nodes:
            outcomes = phoenix.reboot(commands[step], nodes, config.phoenix_cmd_timeout)
            _log(Path(config.phoenix_logdir), step, outcomes)
            failed += [node for node, outcome in outcomes.items() if not outcome.succeeded]
    if failed:
        where = Path(config.phoenix_logdir) / phoenix.LOG_NAME
        raise Stop(f"[ERROR] The command failed for {', '.join(failed)}: see {where}.", EXIT_CONFIGURATION)


def _log(directory: Path, step: Step, outcomes: "Mapping[str, CommandOutcome]") -> None:
    directory.mkdir(mode=0o750, parents=True, exist_ok=True)
    date = time.strftime("%Y-%m-%dT%H:%M:%S")
    with (directory / phoenix.LOG_NAME).open("a", encoding="utf-8") as log:
        for node, outcome in outcomes.items():
            end = "timeout" if outcome.timed_out else f"exit code {outcome.code}"
            log.write(f"{date} {step} {node}: {end}\n")
            log.writelines(f"    {line}\n" for line in outcome.output.splitlines())


def _report_given_up(context: Context, nodes: Collection[str]) -> None:
    """Mail the administrators the nodes that no reboot has helped."""
    if nodes:
        text = f"{', '.join(nodes)}: still broken after all reboots.\noar_phoenix ignores them until they are Alive."
        with context.database.begin() as tx:
            tx.outbox.append(Mail("Nodes that are broken after all reboots", text))
