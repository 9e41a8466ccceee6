"""Data of a job that its launch and its end need, and the input of the programs on its nodes.

See docs/design/nodes.rst, "Job resource manager".

``read`` loads a job in a transaction. All other functions are pure functions of a job and of oar.conf.
"""

import hashlib
import socket
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from oar.lib.base.sizes import mib_of
from oar.lib.base.times import format_duration
from oar.lib.bus.servers import own_server
from oar.lib.config.files import Config
from oar.lib.db.transaction import Transaction
from oar.lib.db.user_sql import satisfying
from oar.lib.jobs import output_names
from oar.lib.jobs.curves import PERIOD
from oar.lib.jobs.records import Job, JobKeys, JobRun, Memory
from oar.lib.jobs.states import JobType, JobTypeName, Reservation
from oar.lib.jobs.usage import GPU_PROPERTY
from oar.lib.nodes.records import Resource
from oar.lib.nodes.states import NodeCheck
from oar.lib.remote.protocol import ControlSignal
from oar.lib.reservations.records import AdvanceReservation, decode_readable
from oar.lib.submission import job_environment
from oar.lib.submission.resource_request import JobTypes

#: Property of a resource: the GPU of its node that goes with it.
LOOPBACK = ("localhost", "127.", "::1")
#: Behind ``CPUSET_PATH``: the groups of commands on frontends, which are no groups of jobs (oarsh leads into none).
ENCLOSURES = "_commands"


@dataclass(frozen=True)
class JobData:
    """A job with all data that its launch and its end need."""

    job: Job
    type_texts: tuple[str, ...]
    walltime: int
    resources: tuple[Resource, ...]
    keys: JobKeys
    run: JobRun | None
    advance_reservation: AdvanceReservation | None = None  #: the one that it is in
    first_hosts: frozenset[str] = frozenset()  #: nodes that come before the others of the job
    memory: Memory | None = None  #: that its alternative asks for
    node_sizes: Mapping[str, int] = field(default_factory=dict)  #: resources of its nodes, if that is the default
    gpu_hosts: tuple[str, ...] = ()  #: nodes with GPUs of which the job has none: it may use none of them

    @cached_property
    def types(self) -> JobTypes:
        return JobTypes(self.type_texts)

    @property
    def is_noop(self) -> bool:
        """Return whether the job only reserves resources."""
        return JobTypeName.NOOP in self.types

    @property
    def is_elsewhere(self) -> bool:
        """Return whether its command runs on a frontend instead of its nodes (deploy, cosystem, or no nodes)."""
        return JobTypeName.DEPLOY in self.types or JobTypeName.COSYSTEM in self.types or not self.hosts

    @property
    def is_fetched(self) -> bool:
        """Return whether the agent of its head fetches it (desktop computing). OAR does not connect to its nodes."""
        return JobTypeName.DESKTOP_COMPUTING in self.types and not (self.is_noop or self.is_elsewhere)

    @property
    def is_reservation(self) -> bool:
        """Return whether it is an advance reservation."""
        return self.job.reservation is not Reservation.NONE

    @property
    def is_interactive(self) -> bool:
        """Return whether an oarsub waits for its shell."""
        return self.job.job_type is JobType.INTERACTIVE

    @cached_property
    def hosts(self) -> tuple[str, ...]:
        """Return the nodes of the job, sorted. The first one is its head."""
        default_resources = [resource for resource in self.resources if resource.type == "default"]
        names = {resource.network_address for resource in default_resources if resource.network_address}
        return tuple(sorted(names, key=lambda name: (name not in self.first_hosts, name)))

    def exec_host(self, config: Config) -> str:
        """Return the node on which the command runs, or the frontend on which it was launched."""
        if self.is_elsewhere:
            return (self.run and self.run.head_host) or self.launch_host(config)
        return self.hosts[0]

    def launch_host(self, config: Config) -> str:
        """Return the node or the frontend on which the command must be launched.

        Without DEPLOY_HOSTNAME or COSYSTEM_HOSTNAME, a frontend is the active server. After a take-over this is another
        one; a job that was launched before stays where it is.
        """
        if not self.is_elsewhere:
            return self.hosts[0]
        if JobTypeName.DEPLOY in self.types:
            return config.deploy_hostname if "deploy_hostname" in config.changed else own_server(config)
        return config.cosystem_hostname if "cosystem_hostname" in config.changed else own_server(config)

    def memory_limits(self, config: Config) -> dict[str, int]:
        """Return the MiB that the job may use on each of its nodes; {} if it asked for none, or none is counted."""
        memory = self.memory if config.memory_property else None
        if memory is None:
            return {}
        counted = (row for row in self.resources if row.type != config.scheduler_resources_always_assigned_type)
        counts = Counter(row.network_address for row in counted if row.network_address)
        units = self._shares(config) if memory.is_default else dict.fromkeys(counts, memory.mib)
        limits = {node: units[node] * (count if memory.is_per_core else 1) for node, count in counts.items()}
        return {node: mib for node, mib in limits.items() if mib}

    def _shares(self, config: Config) -> dict[str, int]:
        """Return the MiB of one resource by node if the job has the default of the site, as the planner counts it."""
        most, shares = self.memory.mib if self.memory else 0, dict[str, int]()
        for row in self.resources:
            node, mib = row.network_address, mib_of(row.properties.get(config.memory_property or ""))
            if size := self.node_sizes.get(node):
                shares[node] = min(shares.get(node, most), mib // size)
        return shares

    def processors(self, config: Config) -> dict[str, list[str]]:
        """Return the processors of the job by node, for the nodes that must be prepared.

        Return {} if no job resource manager is configured, or the job runs elsewhere.
        """
        property_name = config.job_resource_manager_property_db_field
        if not property_name or self.is_elsewhere or self.is_noop or self.is_fetched:
            return {}
        types = {"default", config.scheduler_resources_always_assigned_type}
        nodes: dict[str, list[str]] = {}
        for resource in self.resources:
            if resource.type in types and resource.network_address:
                nodes.setdefault(resource.network_address, []).append(str(resource.properties.get(property_name) or ""))
        return nodes


def read(tx: Transaction, job_id: int) -> JobData | None:
    """Return a job with its data, None if it does not exist."""
    return read_all(tx, [job_id]).get(job_id)


def read_all(tx: Transaction, ids: Collection[int]) -> dict[int, JobData]:
    """Return the existing jobs among ``ids``, with their data."""
    return read_details(tx, tx.jobs.select(ids))


def read_details(tx: Transaction, jobs: Sequence[Job]) -> dict[int, JobData]:
    """Return jobs with their data."""
    ids = [job.id for job in jobs]
    runs, details = tx.job_runs.select(ids), tx.jobs.read_details(ids)
    many = {resource_id for detail in details.values() if detail.rows is None for resource_id in detail.resources}
    rows = tx.resources.select(sorted(many)) if many else []
    inside = {detail.reservation_id for detail in details.values() if detail.reservation_id is not None}
    reservations = {reservation.id: reservation for reservation in tx.reservations.select(inside)}
    found = {}
    for job in jobs:
        detail, run = details[job.id], runs.get(job.id)
        resources = tuple(row for row in rows if row.id in detail.resources) if detail.rows is None else detail.rows
        reservation = reservations.get(detail.reservation_id or 0)
        found[job.id] = JobData(
            job=job,
            type_texts=detail.types,
            walltime=detail.walltime,
            resources=resources,
            keys=detail.keys,
            run=run,
            advance_reservation=reservation,
            first_hosts=_first_hosts(tx, reservation, resources, run),
            memory=detail.memory,
            node_sizes=_node_sizes(tx, resources) if detail.memory and detail.memory.is_default else {},
            gpu_hosts=_gpu_hosts(tx, resources),
        )
    return found


def _first_hosts(
    tx: Transaction, reservation: AdvanceReservation | None, resources: Collection[Resource], run: JobRun | None
) -> frozenset[str]:
    """Return the nodes of a job that may run the master of its advance reservation (``qrsub -masterq``).

    A job that has been launched keeps its head, even if properties change.
    """
    if reservation is None or not reservation.master_queue_list:
        return frozenset()
    names = {resource.id: resource.network_address for resource in resources if resource.network_address}
    if run and run.head_host in names.values():
        return frozenset([run.head_host])
    alternatives = decode_readable(reservation.request)
    # the slot of the master is the first of the request
    master = alternatives[reservation.alternative].groups[0] if reservation.alternative < len(alternatives) else None
    found = satisfying(tx, master.filter, names.keys()) if master and names else None
    return frozenset(names[number] for number in found or ())


def _node_sizes(tx: Transaction, resources: Collection[Resource]) -> dict[str, int]:
    """Return the number of all resources of the nodes of these resources."""
    names = {resource.network_address for resource in resources if resource.network_address}
    return {node: len(ids) for node, ids in tx.resources.ids_of_nodes(names).items()}


def _gpu_hosts(tx: Transaction, resources: Collection[Resource]) -> tuple[str, ...]:
    """Return the nodes that have GPUs of which these resources contain none.

    Return no nodes if the site has not defined the GPU property.
    """
    if not any(GPU_PROPERTY in resource.properties for resource in resources):
        return ()
    with_gpu = [resource for resource in resources if resource.properties.get(GPU_PROPERTY) not in (None, "")]
    nodes = {resource.network_address for resource in resources if resource.network_address}
    others = nodes - {resource.network_address for resource in with_gpu}
    return tuple(tx.resources.nodes_with(others, GPU_PROPERTY)) if others else ()


def manager_data(data: JobData, config: Config) -> dict[str, Any]:
    """Return the input of the job resource manager for ``init``. A site's own manager also gets it for ``clean``."""
    job, memory = data.job, data.memory_limits(config)
    return {
        **({"memory_limits": memory} if memory else {}),
        "job_id": job.id,
        "name": job.cpuset_name,
        "user": job.user,
        "job_user": job.user,
        "nodes": data.processors(config),
        "nodes_property": config.job_resource_manager_property_db_field or "",
        "cpuset_path": config.cpuset_path or None,
        "compute_thread_siblings": config.compute_thread_siblings,
        "ssh_keys": _ssh_keys(data, config),
        "oar_tmp_directory": config.oar_runtime_directory,
        "types": types_of(data),
        "resources": [dict(resource.properties) for resource in data.resources],
        "first_nodes": sorted(data.first_hosts),
        "gpu_hosts": list(data.gpu_hosts),
        "node_file_db_fields": config.node_file_db_field,
        "node_file_db_fields_distinct_values": config.node_file_db_field_distinct_values,
        "array_id": job.array_id,
        "array_index": job.array_index,
        "job_env": job_environment.variables_of(job.env),
        "stdout_file": file_name(job.stdout_file, data, config),
        "stderr_file": file_name(job.stderr_file, data, config),
        "launching_directory": job.launching_directory,
        "job_name": job.name or "",
        "project": job.project,
        "walltime": format_duration(data.walltime),
        "walltime_seconds": data.walltime,
        "advance_reservation": advance_reservation_data(data.advance_reservation),
        "log_level": config.log_level,
        "options": manager_options(config),
    }


#: What the built-in manager reads of its input for ``clean``.
_TO_CLEAN = ("job_id", "name", "user", "cpuset_path", "ssh_keys", "oar_tmp_directory", "options")


def cleaning_data(data: JobData, config: Config) -> dict[str, Any]:
    """Return the input of the built-in manager for ``clean``.

    It omits the resources: for a large job they are long, and each node would read all of them.
    """
    everything = manager_data(data, config)
    return {name: everything[name] for name in _TO_CLEAN}


def advance_reservation_data(reservation: AdvanceReservation | None) -> dict[str, Any] | None:
    """Return the data of an advance reservation that its jobs get."""
    if reservation is None:
        return None
    return {"number": reservation.number, "name": reservation.name, "end": reservation.end}


def manager_options(config: Config) -> dict[str, Any]:
    """Return the options of oar.conf for control groups on nodes."""
    return {
        "cgroup_manager": config.cgroup_manager,
        "memory": config.jrm_memory,
        "processes": config.jrm_processes,
        "devices": config.jrm_devices,
        "mem_nodes": config.jrm_mem_nodes,
        "clear_dirs": list(config.jrm_clear_dirs),
        "max_uptime": config.jrm_max_uptime,
        "prologue": config.node_prologue_file,
        "epilogue": config.node_epilogue_file,
        "script_seconds": config.prologue_epilogue_timeout,
    }


def oarexec_data(data: JobData, config: Config, attempt: int, *, init: bool) -> dict[str, Any]:
    """Return the input of oarexec. With ``init``, oarexec prepares the node first."""
    job = data.job
    confined = bool(data.processors(config)) and bool(config.cpuset_path)
    shared, hosts = manager_data(data, config), report_hosts(config)
    is_systemd = config.deploy_cosystem_job_exec_system != "none"
    return {
        **{name: shared[name] for name in (_SHARED if data.processors(config) else _SHARED + _FILES)},
        "name": job.name or "",
        "reservation": str(job.reservation),
        "mode": str(job.job_type),
        "command": job_environment.command_in_job(job.command or "", job.env),
        "script": job_environment.script_of(job.env),
        "challenge": data.keys.challenge,
        "almighty_hostname": hosts[0],
        "almighty_hosts": hosts,
        "almighty_port": config.server_port,
        "checkpoint_signal": job.checkpoint_signal,
        "prologue": config.prologue_exec_file,
        "epilogue": config.epilogue_exec_file,
        "passive_job_hook": config.passive_job_hook_exec_file,
        "pro_epi_timeout": config.prologue_epilogue_timeout,
        "tmp_directory": config.oar_runtime_directory,
        "detach_oarexec": config.detach_job_from_server,
        "debug_mode": config.oarexec_debug_mode,
        "deploy_cosystem_job_exec_system": config.deploy_cosystem_job_exec_system if data.is_elsewhere else "none",
        "cpuset_full_path": f"{config.cpuset_path}/{job.cpuset_name}" if confined else None,
        "enclosure": enclosure_data(config, systemd=is_systemd) if data.is_elsewhere else None,
        "attempt": attempt,
        "kill_grace": config.job_kill_grace,
        "interactive_connect_timeout": config.interactive_connect_timeout,
        "init": shared if init else None,
        "record": {"alternative": job.assigned_moldable, "resources": [resource.id for resource in data.resources]},
    }


def enclosure_data(config: Config, *, systemd: bool = False) -> dict[str, Any]:
    """Return the limits and the control group for a command of a user on a frontend.

    With ``systemd``, systemd creates its own group for the command.
    """
    path = f"{config.cpuset_path}{ENCLOSURES}" if config.cpuset_path and not systemd else None
    return {
        "cpuset_path": path,
        "options": {"cgroup_manager": config.cgroup_manager},
        "processes": config.frontend_command_processes,
        "memory": config.frontend_command_memory << 20,
    }


#: Fields that oarexec gets with the same values as the job resource manager.
_SHARED = (
    *("job_id", "array_id", "array_index", "user", "job_user", "job_name", "project", "types", "stdout_file"),
    *("stderr_file", "launching_directory", "walltime", "walltime_seconds", "options", "job_env"),
    "advance_reservation",
)
#: Further ones on a host where no job resource manager writes the files of the job.
_FILES = ("resources", "first_nodes", "node_file_db_fields", "node_file_db_fields_distinct_values")


def probe_data(jobs: Iterable[JobData], config: Config, *, fence: int = 0) -> dict[str, Any]:
    """Return the input of node_probe. With ``fence``, the node refuses all attempts up to that number from now on."""
    return {
        **_node_data(config),
        "jobs": [
            {
                "job_id": data.job.id,
                "name": data.job.cpuset_name,
                "user": data.job.user,
                "challenge": hashlib.sha256(data.keys.challenge.encode()).hexdigest(),
                "attempt": data.run.attempt if data.run else 0,
                "fence": bool(fence),
            }
            for data in jobs
        ],
    }


def check_data(checks: Iterable[tuple[NodeCheck, str]], config: Config) -> dict[str, Any]:
    """Return the input of node_check."""
    return {**_node_data(config), "checks": [{"kind": kind, "user": user} for kind, user in checks]}


def watch_data(config: Config) -> dict[str, Any]:
    """Return the input of node_curves."""
    return {**_node_data(config), "period": PERIOD}


def sweep_data(jobs: Iterable[JobData], config: Config) -> dict[str, Any]:
    """Return the input of a sweep: the jobs that may be on the node."""
    return {
        **_node_data(config),
        "jobs": [{"job_id": data.job.id, "name": data.job.cpuset_name} for data in jobs],
    }


def _node_data(config: Config) -> dict[str, Any]:
    """Return where a node keeps files and groups of jobs."""
    return {
        "oar_tmp_directory": config.oar_runtime_directory,
        "cpuset_path": config.cpuset_path or None,
        "options": manager_options(config),
    }


def suspend_data(data: JobData, config: Config) -> dict[str, Any]:
    """Return the input of the suspend and resume manager."""
    return {
        "job_id": data.job.id,
        "name": data.job.cpuset_name,
        "user": data.job.user,
        "cpuset_path": config.cpuset_path or None,
        "options": manager_options(config),
    }


def control_data(job_id: int, config: Config, signal: ControlSignal, user_signal: int | None = None) -> dict[str, Any]:
    """Return the input of ``oarexec ctl``: the signal for oarexec and, with URG, the signal for the user's command."""
    return {
        "job_id": job_id,
        "tmp_directory": config.oar_runtime_directory,
        "signal": signal,
        "user_signal": user_signal,
    }


def types_of(data: JobData) -> dict[str, str | int]:
    """Return the types by name, each with its value, or 1 if it has none."""
    return {type_.name: 1 if type_.value is None else type_.value for type_ in data.types}


def file_name(name: str | None, data: JobData, config: Config) -> str | None:
    """Return the name of an output file with its patterns replaced."""
    return None if name is None else output_names.expand(name, data.job, data.exec_host(config))


def report_hosts(config: Config) -> list[str]:
    """Return the host names by which nodes connect to the servers, the host of this one first.

    Nodes of release 3.2 know only ``almighty_hostname``, the first name.
    """
    own = own_server(config)
    names = sorted(config.server_hostnames, key=lambda name: name != own)
    return [socket.gethostname() if name.startswith(LOOPBACK) else name for name in names]


def _ssh_keys(data: JobData, config: Config) -> dict[str, Any] | None:
    keys = data.keys
    if not (keys.private_key and keys.public_key):
        return None
    private = f"{config.oar_runtime_directory}/{data.job.user}_{data.job.id}.jobkey"
    return {
        "public": {"file_name": config.oar_ssh_authorized_keys_file, "key": keys.public_key},
        "private": {"file_name": private, "key": keys.private_key},
    }
