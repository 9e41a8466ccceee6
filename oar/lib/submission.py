"""Check, admit, insert: what makes a job of what somebody asks for, for oarsub and the API alike.

``prepare`` finds what can be found without the database; ``submit`` runs the admission rules, asks whether the cluster
could ever satisfy the request, and inserts the jobs in one transaction, in their first real state.  A submission that
is refused leaves no row.
"""

import os
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from oar.lib import admission, job_environment, job_keys, submission_checks
from oar.lib.config import Config
from oar.lib.db import new_jobs
from oar.lib.db.new_jobs import Alternative, IndexedDependency, NewJob, NewJobs
from oar.lib.db.queues import Rule
from oar.lib.errors import BadRequest, BadSql
from oar.lib.feasibility import Cluster, UnknownProperty, open_cluster
from oar.lib.job_keys import KeyPair
from oar.lib.messages import Tag, Wake
from oar.lib.model import Dependency, Group, JobKeys
from oar.lib.proposal import Proposal, amend, makers, names_of
from oar.lib.request import GROWING, JobTypes, Request, format_job_message
from oar.lib.states import EventType, JobState, JobType, Reservation
from oar.lib.submission_checks import BadSubmission, Code, Modes, Window

if TYPE_CHECKING:
    from oar.lib.db.engine import Database, Transaction

#: How many random bytes a challenge is made of.
_CHALLENGE_BYTES = 20
#: A reservation for a date so long ago was not meant for now.
LATE_SECONDS = 60


class KeyWish(NamedTuple):
    """A job key that is asked for: imported if a private key is given, else made."""

    private: str | None = None
    public: str | None = None

    def __repr__(self) -> str:
        """Tell nothing: the key is secret."""
        return "KeyWish()"


class Submission(NamedTuple):
    """What somebody asks for, as it was given."""

    user: str
    command: str = ""
    is_interactive: bool = False
    requests: tuple[str, ...] = ()  #: each -l
    array_size: int = 1
    array_limit: int | None = None  #: so many of its jobs may run at a time
    parameters: tuple[str, ...] | None = None  #: lines of a parameter file
    queue: str | None = None
    properties: str | None = None
    nodes: tuple[str, ...] = ()  #: no others
    excluded: tuple[str, ...] = ()  #: none of these nodes
    reservation: str | None = None  #: ``start[,end]``
    checkpoint: int = 0
    signal: str | None = None
    types: tuple[str, ...] = ()
    directory: str = "/"
    project: str | None = None
    name: str | None = None
    dependencies: tuple[str, ...] = ()
    notify: str | None = None
    stdout: str | None = None
    stderr: str | None = None
    hold: bool = False
    key: KeyWish | None = None
    cpuset_name: str | None = None
    info_type: str = ""  #: host, or host:port of the oarsub that waits for an answer
    initial_request: str = ""
    env: Mapping[str, str] = MappingProxyType({})
    file_id: int | None = None
    in_api: bool = False
    verbosity: int = 0  #: how much is told: 0 to 2

    @property
    def modes(self) -> Modes:
        """What decides whether options go together."""
        return Modes(
            interactive=self.is_interactive,
            reservation=self.reservation is not None,
            command=bool(self.command.strip()),
            noop="noop" in JobTypes(self.types),
            array=self.array_size != 1,
            parameters=self.parameters is not None,
            notify=self.notify,
        )


class Submitted(NamedTuple):
    """What became of a submission."""

    ids: tuple[int, ...]
    array_id: int
    output: admission.Output
    warnings: tuple[str, ...]
    keys: Mapping[int, KeyPair]


# -- without the database ---------------------------------------------------------------------------------------------


def prepare(given: Submission, config: Config, now: int) -> Proposal:
    """Return what is asked, understood; the order of the complaints is documented.  Raises BadSubmission."""
    submission_checks.check_modes(given.modes)
    requests = submission_checks.parse_requests(given.requests, config)
    commands = _commands(given)
    submission_checks.check_array(given.modes, len(commands), config.max_array_size, given.array_limit)
    window = submission_checks.parse_window(given.reservation, now) if given.reservation is not None else None
    warnings = [*_array_warnings(given), *_window_warnings(window, requests), *_notify_warnings(given.notify, config)]
    if window is not None and window.walltime is not None:
        requests = tuple(each._replace(walltime=each.walltime or window.walltime) for each in requests)
    proposal = Proposal(
        user=given.user,
        job_type=JobType.INTERACTIVE if _has_no_command(given) else JobType.PASSIVE,
        requests=requests,
        queue=given.queue or None,
        project=given.project or None,
        properties=_properties(given),
        nodes=(*given.nodes, *given.excluded),
        start=window.start if window else 0,
        types=_types(given.types, requests),
        command=given.command,
        name=given.name or None,
        notify=given.notify or None,
        stdout=given.stdout or None,
        stderr=given.stderr or None,
        directory=given.directory,
        checkpoint=given.checkpoint,
        signal=_signal(given, config),
        dependencies=given.dependencies,
        hold=given.hold,
        env=dict(given.env),
        use_job_key=given.key is not None or config.oarsub_force_job_key,
        array_size=len(commands),
        parameters=given.parameters or (),
        initial_request=given.initial_request,
        info_type=given.info_type,
        in_api=given.in_api,
        verbosity=given.verbosity,
        warnings=tuple(warnings),
    )
    check(proposal)
    submission_checks.check_stored("submission line", given.initial_request)
    submission_checks.check_cpuset_name(given.cpuset_name, len(commands))
    return proposal


def check(proposal: Proposal) -> None:
    """Refuse texts that no job can have; asked again of what the rules leave.  Raises BadSubmission."""
    submission_checks.check_notify(proposal.notify)
    submission_checks.check_file_names(proposal.stdout, proposal.stderr)
    for command in commands_of(proposal):
        submission_checks.check_command(command)
    submission_checks.check_text("job name", proposal.name, submission_checks.LONGEST_NAME)
    submission_checks.check_text("queue name", proposal.queue, submission_checks.LONGEST_NAME)
    submission_checks.check_text("project", proposal.project)
    for text in proposal.types:
        submission_checks.check_text("job type", text, submission_checks.LONGEST_TYPE)
    submission_checks.check_stored("working directory", proposal.directory)
    submission_checks.parse_dependencies(proposal.dependencies)
    submission_checks.check_checkpoint(proposal.checkpoint, proposal.signal)
    _check_environment(proposal)


def _check_environment(proposal: Proposal) -> None:
    try:
        job_environment.check(proposal.env, proposal.array_size)
    except BadRequest as error:
        raise BadSubmission(Code.REQUEST, str(error)) from None


def commands_of(proposal: Proposal) -> Sequence[str]:
    """Return the commands of an array with parameters, else the one command."""
    if proposal.parameters:
        return [f"{proposal.command} {line}" for line in proposal.parameters]
    return [proposal.command]


def _commands(given: Submission) -> range:
    """Return one number for each job of the array."""
    return range(given.array_size if given.parameters is None else len(given.parameters))


def _array_warnings(given: Submission) -> list[str]:
    if given.parameters is None or given.array_size in (0, 1, len(given.parameters)):
        return []
    return [f"--array {given.array_size} is ignored: the parameter file has {len(given.parameters)} lines."]


def _notify_warnings(notify: str | None, config: Config) -> list[str]:
    """Say that mails will reach nobody; whether the text is a subscription at all is asked elsewhere."""
    has_mail = config.mail_smtp_server and config.mail_sender
    if has_mail or not re.match(r"(?i)\s*(\[[^\]]*\]\s*)?mail\s*:", notify or ""):
        return []
    return ["no mail server is configured (MAIL_SMTP_SERVER, MAIL_SENDER): --notify mail will reach nobody."]


def _types(types: tuple[str, ...], requests: Sequence[Request]) -> tuple[str, ...]:
    """Return the types, with that of a job that may last longer than it asks."""
    grows = any(each.grows for each in requests) and GROWING not in types
    return (*types, GROWING) if grows else types


def _properties(given: Submission) -> str | None:
    """Return the condition on resources, with that on nodes.  Raises BadSubmission."""
    on_nodes = submission_checks.condition_on_nodes(given.nodes, given.excluded)
    if on_nodes and given.properties:
        _check_whole(given.properties)
        return f"({given.properties}) AND {on_nodes}"
    return given.properties or on_nodes or None


def _check_whole(condition: str) -> None:
    """Refuse a condition that would not stay one inside parentheses.  Raises BadSubmission."""
    from oar.lib.sqltext import tokenise

    try:
        tokenise(condition)
    except BadSql as error:
        raise BadSubmission(Code.REQUEST, str(error)) from None


def _has_no_command(given: Submission) -> bool:
    """Whether nothing is executed until somebody connects: also a reservation without command."""
    return given.is_interactive or (given.reservation is not None and not given.command.strip())


def _signal(given: Submission, config: Config) -> int:
    return submission_checks.parse_signal(given.signal) if given.signal else config.signal


def _window_warnings(window: Window | None, requests: Sequence[Request]) -> list[str]:
    warnings = []
    if window is not None and window.late > LATE_SECONDS:
        from oar.lib.times import format_date

        asked = format_date(window.start - window.late)
        warnings.append(f"the start date {asked} is over: the reservation is asked for now.")
    if window is not None and any(_differs(window.walltime, request.walltime) for request in requests):
        warnings.append("ignore reservation end date because walltime is set in resource description.")
    return warnings


def _differs(first: int | None, second: int | None) -> bool:
    """Whether two walltimes are given that do not agree: a second is nothing, who computes an end may round it."""
    return first is not None and second is not None and abs(first - second) > 1


# -- with the database ------------------------------------------------------------------------------------------------


def submit(database: "Database", config: Config, given: Submission, proposal: Proposal) -> Submitted:
    """Admit what was prepared, and insert its jobs; the server is told once they are there.

    Raises BadSubmission, RuleRefused, RuleFailed, DatabaseUnavailable.
    """
    database.ready()
    with open_cluster(database) as cluster, database.begin() as tx:
        asked = proposal
        proposal, output = _admit(tx, database, cluster, config, asked)
        _check_queue(tx, proposal)
        size = _feasible(cluster, proposal, asked)
        keys = _keys(tx, given, proposal)
        dependencies, indexed = _dependencies(tx, proposal), _indexed_dependencies(tx, proposal)
        check_kept(tx, config, proposal.user, job_environment.stored(proposal.env), proposal.array_size)
        warnings = [*proposal.warnings, *_check_cpuset(tx, given), *_container_warnings(tx, proposal)]
        new = NewJobs(
            first=_job(given, proposal, size),
            commands=commands_of(proposal),
            number=proposal.array_size,
            alternatives=[Alternative(each.walltime or 0, each.groups) for each in proposal.requests],
            types=proposal.types,
            dependencies=dependencies,
            indexed=indexed,
        )
        ids = new_jobs.insert(tx, new, secrets_of(keys, new.number))
        if GROWING in proposal.types:
            from oar.lib.db.walltimes import Walltimes

            Walltimes(tx).ask_all(ids, _growth(proposal, config))
        if config.oarsub_store_adm_rules_outputs:
            _store_output(tx, ids[0], output)
        tx.outbox.append(Wake(Tag.QSUB_INTERACTIVE if given.is_interactive else Tag.QSUB))
    exported = dict(zip(ids, keys, strict=True)) if keys else {}
    return Submitted(tuple(ids), ids[0], output, tuple(warnings), exported)


def rehearse(database: "Database", config: Config, proposal: Proposal) -> tuple[Proposal, admission.Output, int]:
    """Return what rules make of a submission, what they print, and how many resources it takes; nothing is stored.

    Raises BadSubmission, RuleRefused, RuleFailed, DatabaseUnavailable.
    """
    database.ready()
    try:
        with open_cluster(database) as cluster, database.begin() as tx:
            amended, output = _admit(tx, database, cluster, config, proposal)
            _check_queue(tx, amended)
            raise _Rehearsed(amended, output, _feasible(cluster, amended, proposal))
    except _Rehearsed as rehearsed:
        return rehearsed.result


def amended(database: "Database", config: Config, proposal: Proposal) -> Proposal:
    """Return what rules make of a submission, whether or not the cluster could ever satisfy it; nothing is stored.

    Raises BadSubmission, RuleRefused, RuleFailed, DatabaseUnavailable.
    """
    database.ready()
    try:
        with open_cluster(database) as cluster, database.begin() as tx:
            raise _Rehearsed(*_admit(tx, database, cluster, config, proposal), 0)
    except _Rehearsed as rehearsed:
        return rehearsed.result[0]


class _Rehearsed(Exception):
    """The end of a rehearsal: whatever a rule wrote is rolled back."""

    def __init__(self, proposal: Proposal, output: admission.Output, size: int) -> None:
        super().__init__()
        self.result = proposal, output, size


def _admit(
    tx: "Transaction", database: "Database", cluster: Cluster, config: Config, proposal: Proposal
) -> tuple[Proposal, admission.Output]:
    """Let the rules have their say; what they leave is checked as if the user had given it."""
    proposal = proposal._replace(
        requests=_checked_filters(cluster, submission_checks.named(proposal.requests, cluster.columns, config)),
        properties=_condition(cluster, proposal.properties),
    )
    if proposal.nodes:
        _check_nodes(tx, proposal.nodes)
    names = names_of(tx, cluster, config, proposal)
    program = admission.Program(_rules(tx, config), config.admission_rules_timeout)
    with makers(tx, database) as made:
        left, output = admission.run(program, names, made)
    amended = amend(proposal, left, names, config, output)
    check(amended)
    requests = submission_checks.named(amended.requests, cluster.columns, config)
    return amended._replace(
        requests=requests, warnings=(*amended.warnings, *_type_warnings(amended, config, tx.now))
    ), output


def _growth(proposal: Proposal, config: Config) -> int:
    """Return by how many seconds a job with ``walltime=best`` may grow.  Raises BadSubmission."""
    from oar.lib import walltime

    try:
        return walltime.growth(config, proposal.queue or "", min(each.walltime or 0 for each in proposal.requests))
    except BadRequest as error:
        raise BadSubmission(Code.REQUEST, f"walltime=best: {error}") from None


def _type_warnings(proposal: Proposal, config: Config, now: int) -> list[str]:
    """Refuse types whose date is none; return what else is to be said of the types."""
    if not proposal.types:
        return []
    from oar.lib import type_checks

    if GROWING in proposal.types:
        _growth(proposal, config)

    try:
        type_checks.check_dates(proposal.types)
    except BadRequest as error:
        raise BadSubmission(Code.REQUEST, str(error)) from None
    shortest = min(each.walltime or 0 for each in proposal.requests)
    found = type_checks.warnings(
        proposal.types,
        shortest,
        now,
        is_reservation=proposal.start > 0,
        has_command=bool(proposal.command.strip()),
    )
    return list(found)


def _check_nodes(tx: "Transaction", names: Sequence[str]) -> None:
    """Refuse names that no node has.  Raises BadSubmission."""
    known = tx.resources.nodes()
    for name in names:
        if name not in known:
            from oar.lib.guesses import nearest

            meant = nearest(name, known)
            guess = f", did you mean '{meant}'?" if meant else "."
            raise BadSubmission(Code.REQUEST, f"there is no node '{name}'{guess}")


def _check_queue(tx: "Transaction", proposal: Proposal) -> None:
    if not tx.queues.exists(proposal.queue or ""):
        from oar.lib.guesses import did_you_mean

        guess = did_you_mean(proposal.queue or "", [queue.name for queue in tx.queues.all()], quote="'")
        raise BadSubmission(Code.QUEUE, f"queue '{proposal.queue}' does not exist{guess}")


def _rules(tx: "Transaction", config: Config) -> tuple[Rule, ...]:
    if config.admission_rules_in_files:
        return tuple(rule for rule in admission.read_rules(config.admission_rules_path) if rule.enabled)
    return tuple(tx.queues.rules(enabled=True))


def _checked_filters(cluster: Cluster, requests: Sequence[Request]) -> tuple[Request, ...]:
    """Check the conditions of a user before any rule puts its own beside them."""
    return tuple(
        Request(
            tuple(Group(_condition(cluster, group.filter) or "", group.levels) for group in request.groups),
            request.walltime,
        )
        for request in requests
    )


def _condition(cluster: Cluster, text: str | None) -> str | None:
    try:
        return cluster.condition(text) if text else None
    except BadSql as error:
        raise BadSubmission(Code.REQUEST, str(error)) from None


def _feasible(cluster: Cluster, proposal: Proposal, asked: Proposal) -> int:
    """Refuse what the cluster can never satisfy; return what the first alternative would take.

    ``asked``: the proposal before the rules had their say.
    """
    sizes = []
    for number, request in enumerate(proposal.requests):
        try:
            size = cluster.size(request.groups, proposal.properties or "")
        except UnknownProperty as error:
            raise BadSubmission(Code.REQUEST, str(error), prefix="# ") from None
        except BadSql as error:
            raise BadSubmission(Code.REQUEST, str(error)) from None
        if size is None:
            lack = cluster.lack(request.groups, proposal.properties or "", _wished(request, asked, number))
            text = f"There are not enough resources for your request\n# {lack}"
            raise BadSubmission(Code.REQUEST, text, prefix="# ")
        sizes.append(size)
    return sizes[0]


def _wished(request: Request, asked: Proposal, number: int) -> list[str]:
    """Return the conditions of each group of a request as they were asked for, '' where rules have changed its form."""
    groups = asked.requests[number].groups if number < len(asked.requests) else ()
    if len(groups) != len(request.groups):
        return [asked.properties or "" for _ in request.groups]
    return [" AND ".join(part for part in (asked.properties, group.filter) if part) for group in groups]


def check_kept(tx: "Transaction", config: Config, user: str, env: str | None, jobs: int) -> None:
    """Refuse more scripts and variables than the jobs of one user may have.  Raises BadSubmission."""
    more, most = len((env or "").encode()) * jobs, config.max_kept_bytes_per_user
    if not more:
        return
    kept = new_jobs.kept_bytes(tx, user)
    if kept + more > most:
        raise BadSubmission(
            Code.REQUEST,
            f"the jobs of {user} that have not ended keep {kept} bytes of scripts and variables; with these {more} it"
            f" would be more than {most}: wait until some have ended, or give the path of the script.",
        )


def _keys(tx: "Transaction", given: Submission, proposal: Proposal) -> list[KeyPair]:
    """Return the key pair of each job, none if no key is asked for."""
    wish = given.key
    if wish is None or wish.private is None:
        return [job_keys.generate() for _ in range(proposal.array_size)] if proposal.use_job_key else []
    if proposal.array_size > 1:
        raise BadSubmission(Code.REQUEST, "a job key cannot be imported for an array job.")
    pair = job_keys.read(wish.private, wish.public)
    if tx.secrets.key_in_use(pair.public, proposal.user):
        raise BadSubmission(Code.REQUEST, "Another job is using the same ssh keys", prefix="/!\\ ")
    return [pair]


def _dependencies(tx: "Transaction", proposal: Proposal) -> tuple[Dependency, ...]:
    dependencies = submission_checks.parse_dependencies(proposal.dependencies)
    if dependencies:
        known = tx.jobs.states([each.required for each in dependencies])
        for each in dependencies:
            if each.required not in known:
                raise BadSubmission(Code.REQUEST, f"dependency on unknown job {each.required}.")
    return dependencies


def _indexed_dependencies(tx: "Transaction", proposal: Proposal) -> list[IndexedDependency]:
    found = []
    for each in submission_checks.parse_array_dependencies(proposal.dependencies):
        members = new_jobs.members_of_array(tx, each.required)
        if not members:
            raise BadSubmission(Code.REQUEST, f"dependency on unknown array {each.required}.")
        for index in range(1, proposal.array_size + 1):
            if index not in members:
                raise BadSubmission(Code.REQUEST, f"array {each.required} has no job with index {index}.")
        required = [members[index] for index in range(1, proposal.array_size + 1)]
        found.append(IndexedDependency(required, each.condition, each.min_shift, each.max_shift))
    return found


def dependencies_of_each(tx: "Transaction", proposal: Proposal) -> list[tuple[Dependency, ...]]:
    """Return what each job of a submission would depend on.  Raises BadSubmission."""
    common, indexed = _dependencies(tx, proposal), _indexed_dependencies(tx, proposal)
    return [
        (
            *common,
            *(Dependency(0, each.required[place], each.condition, each.min_shift, each.max_shift) for each in indexed),
        )
        for place in range(proposal.array_size)
    ]


def _check_cpuset(tx: "Transaction", given: Submission) -> list[str]:
    """Refuse a name of cpuset that could be somebody else's; return warnings."""
    name = given.cpuset_name
    if name is None:
        return []
    import pwd

    for match in re.finditer("_", name):
        try:
            pwd.getpwnam(f"{given.user}_{name[: match.start()]}")
        except KeyError:
            continue
        raise BadSubmission(Code.REQUEST, f'invalid cpuset name "{name}".')
    full = f"{given.user}_{name}"
    return [f"cpuset name {full} is used by job {job_id}." for job_id in new_jobs.jobs_of_cpuset(tx, full)[:1]]


def _container_warnings(tx: "Transaction", proposal: Proposal) -> list[str]:
    """Say where a container is too small for the job; it is accepted, and waits."""
    reference = JobTypes(proposal.types).value("inner")
    container = new_jobs.find_container(tx, reference) if reference else None
    if container is None:
        return []
    warnings = []
    for group in proposal.requests[0].groups:
        outermost = group.levels[0]
        held = new_jobs.values_in_container(tx, container.id, outermost.property)
        if 0 < held < outermost.quantity:
            warnings.append(f"container job {container.id} holds only {held} {outermost.property}")
    return warnings


def secrets_of(keys: Sequence[KeyPair], count: int) -> list[JobKeys]:
    """Return a challenge, and the keys if there are any, for each job."""
    random = os.urandom(_CHALLENGE_BYTES * count)
    challenges = [
        str(int.from_bytes(random[start : start + _CHALLENGE_BYTES], "big"))
        for start in range(0, len(random), _CHALLENGE_BYTES)
    ]
    if not keys:
        return [JobKeys(challenge, None, None) for challenge in challenges]
    return [JobKeys(challenge, key.private, key.public) for challenge, key in zip(challenges, keys, strict=True)]


def _job(given: Submission, proposal: Proposal, size: int) -> NewJob:
    is_reservation = proposal.start > 0
    kind = "I" if given.is_interactive else "B"
    message = format_job_message(
        resources=size,
        walltime=proposal.requests[0].walltime or 0,
        kind="R" if is_reservation else kind,
        name=proposal.name or "",
        queue=proposal.queue or "",
        project=proposal.project or "",
        types=proposal.types,
        array_limit=given.array_limit or 0,
    )
    has_files = proposal.job_type is JobType.PASSIVE
    return NewJob(
        id=0,
        array_id=0,
        array_index=1,
        array_limit=given.array_limit or 0,
        initial_request=proposal.initial_request,
        name=proposal.name,
        cpuset_name=f"{given.user}_{given.cpuset_name}" if given.cpuset_name else "",
        job_type=proposal.job_type,
        info_type=proposal.info_type,
        state=JobState.HOLD if proposal.hold else JobState.WAITING,
        reservation=Reservation.TO_SCHEDULE if is_reservation else Reservation.NONE,
        message=message,
        user=proposal.user,
        project=proposal.project or "",
        command="" if given.is_interactive else proposal.command,
        queue=proposal.queue or "",
        properties=proposal.stored_properties,
        launching_directory=proposal.directory,
        start_time=proposal.start,
        file_id=given.file_id,
        notify=proposal.notify,
        checkpoint=proposal.checkpoint,
        checkpoint_signal=proposal.signal,
        stdout_file=_file(proposal.stdout, proposal.name, "stdout") if has_files else None,
        stderr_file=_file(proposal.stderr, proposal.name, "stderr") if has_files else None,
        resubmit_job_id=0,
        env=job_environment.stored(proposal.env),
    )


def _file(given: str | None, name: str | None, stream: str) -> str:
    return given or submission_checks.default_file_name(name, stream)


def _store_output(tx: "Transaction", job_id: int, output: admission.Output) -> None:
    for event, text in (
        (EventType.ADM_RULES_MSG_OUT, output.out),
        (EventType.ADM_RULES_MSG_ERR, output.err),
    ):
        if text:
            tx.events.add(event, job_id, text)
