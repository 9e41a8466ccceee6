"""A job as its bipbip has to know it, and the data that the programs on its nodes are given (node.md 3.1, 4.1).

Reading is one function on a transaction; everything else is a pure function of what was read and of oar.conf.
"""

import hashlib
import socket
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from oar.lib import job_environment, patterns
from oar.lib.config import Config
from oar.lib.db.engine import Transaction
from oar.lib.model import Job, JobKeys, JobRun, Resource
from oar.lib.request import JobTypes
from oar.lib.states import JobType, Reservation
from oar.lib.times import format_duration

#: Property of a resource: the GPU of its node that goes with it.
GPU_PROPERTY = "gpudevice"
LOOPBACK = ("localhost", "127.", "::1")
#: Names of the built-in job resource manager, old ones too (node.md 3.1).
BUILT_IN_MANAGERS = frozenset(
    {
        "job_resource_manager_cgroups.py",
        "job_resource_manager_cgroups.pl",
        "job_resource_manager.pl",
        "cpuset_manager.pl",
    }
)


@dataclass(frozen=True)
class JobData:
    """A job with everything that its launch and its end need."""

    job: Job
    type_texts: tuple[str, ...]
    walltime: int
    resources: tuple[Resource, ...]
    keys: JobKeys
    run: JobRun | None
    gpu_hosts: tuple[str, ...] = ()  #: nodes with GPUs of which the job has none: it may use none of them

    @cached_property
    def types(self) -> JobTypes:
        """The job's types, as questions."""
        return JobTypes(self.type_texts)

    @property
    def is_noop(self) -> bool:
        """Whether the job only books resources."""
        return "noop" in self.types

    @property
    def is_elsewhere(self) -> bool:
        """Whether its command runs on a frontend instead of its nodes (deploy, cosystem, or no node at all)."""
        return "deploy" in self.types or "cosystem" in self.types or not self.hosts

    @property
    def is_reservation(self) -> bool:
        """Whether it is an advance reservation."""
        return self.job.reservation is not Reservation.NONE

    @property
    def is_interactive(self) -> bool:
        """Whether an oarsub waits for its shell."""
        return self.job.job_type is JobType.INTERACTIVE

    @cached_property
    def hosts(self) -> tuple[str, ...]:
        """The job's nodes, sorted."""
        return tuple(
            sorted({one.network_address for one in self.resources if one.type == "default" and one.network_address})
        )

    def exec_host(self, config: Config) -> str:
        """Return the node on which the command runs (server.md 6)."""
        if "deploy" in self.types:
            return config.deploy_hostname
        if "cosystem" in self.types or not self.hosts:
            return config.cosystem_hostname
        return self.hosts[0]

    def processors(self, config: Config) -> dict[str, list[str]]:
        """Return each node that has to be prepared with the processors of the job there.

        Empty when no job resource manager is configured, or the job runs elsewhere.
        """
        field = config.job_resource_manager_property_db_field
        if not field or self.is_elsewhere or self.is_noop or "desktop_computing" in self.types:
            return {}
        kinds = {"default", config.scheduler_resources_always_assigned_type}
        nodes: dict[str, list[str]] = {}
        for one in self.resources:
            if one.type in kinds and one.network_address:
                nodes.setdefault(one.network_address, []).append(str(one.properties.get(field) or ""))
        return nodes


def read(tx: Transaction, job_id: int) -> JobData | None:
    """Return a job with its data, None if it does not exist."""
    job = tx.jobs.find(job_id)
    if job is None:
        return None
    moldables = tx.jobs.moldables([job_id]).get(job_id, [])
    chosen = next((one for one in moldables if one.id == job.assigned_moldable), None)
    assigned = tx.jobs.assigned([job_id], current=True).get(job_id, [])
    resources = tuple(tx.resources.select([one.id for one in assigned])) if assigned else ()
    return JobData(
        job=job,
        type_texts=tx.jobs.types([job_id], current=True).get(job_id, ()),
        walltime=chosen.walltime if chosen else 0,
        resources=resources,
        keys=tx.secrets.get(job_id) or JobKeys("", None, None),
        run=tx.runs.find(job_id),
        gpu_hosts=_gpu_hosts(tx, resources),
    )


def _gpu_hosts(tx: Transaction, resources: Collection[Resource]) -> tuple[str, ...]:
    """Return the nodes with GPUs of which none is among these resources.  A site may have no such property at all."""
    if not any(GPU_PROPERTY in one.properties for one in resources):
        return ()
    used = {one.network_address for one in resources if one.properties.get(GPU_PROPERTY) not in (None, "")}
    others = {one.network_address for one in resources if one.network_address} - used
    return tuple(tx.resources.nodes_with(others, GPU_PROPERTY)) if others else ()


def manager_data(data: JobData, config: Config) -> dict[str, Any]:
    """Return what the job resource manager is given for ``init`` and ``clean``."""
    job = data.job
    return {
        "job_id": job.id,
        "name": job.cpuset_name,
        "user": job.user,
        "job_user": job.user,
        "nodes": data.processors(config),
        "cpuset_path": config.cpuset_path or None,
        "compute_thread_siblings": config.compute_thread_siblings,
        "ssh_keys": _ssh_keys(data, config),
        "oar_tmp_directory": config.oar_runtime_directory,
        "types": types_of(data),
        "resources": [_shown(one) for one in data.resources],
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
        "log_level": config.log_level,
        "options": manager_options(config),
    }


def manager_options(config: Config) -> dict[str, Any]:
    """Return how cgroups are to be used on nodes."""
    return {
        "cgroup_manager": config.cgroup_manager,
        "memory": config.jrm_memory,
        "processes": config.jrm_processes,
        "devices": config.jrm_devices,
        "mem_nodes": config.jrm_mem_nodes,
        "clear_dirs": list(config.jrm_clear_dirs),
        "max_uptime": config.jrm_max_uptime,
    }


def oarexec_data(data: JobData, config: Config, attempt: int, *, init: bool) -> dict[str, Any]:
    """Return what oarexec is given; with ``init`` it prepares the node first."""
    job = data.job
    confined = bool(data.processors(config)) and bool(config.cpuset_path)
    shared = manager_data(data, config)
    return {
        **{name: shared[name] for name in (_SHARED if data.processors(config) else _SHARED + _FILES)},
        "name": job.name or "",
        "reservation": str(job.reservation),
        "mode": str(job.job_type),
        "command": job_environment.command_in_job(job.command or "", job.env),
        "script": job_environment.script_of(job.env),
        "challenge": data.keys.challenge,
        "almighty_hostname": report_host(config),
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
        "attempt": attempt,
        "kill_grace": config.job_kill_grace,
        "interactive_connect_timeout": config.interactive_connect_timeout,
        "init": shared if init else None,
    }


#: What oarexec is told as the job resource manager is.
_SHARED = (
    *("job_id", "array_id", "array_index", "user", "job_user", "job_name", "project", "types", "stdout_file"),
    *("stderr_file", "launching_directory", "walltime", "walltime_seconds", "options", "job_env"),
)
#: What it needs besides on a host where no job resource manager writes the files of the job.
_FILES = ("resources", "node_file_db_fields", "node_file_db_fields_distinct_values")


def probe_data(jobs: Iterable[JobData], config: Config, *, fence: int = 0) -> dict[str, Any]:
    """Return what node_probe is given; ``fence``: no attempt up to that number may begin any more."""
    return {
        "oar_tmp_directory": config.oar_runtime_directory,
        "cpuset_path": config.cpuset_path or None,
        "options": manager_options(config),
        "jobs": [
            {
                "job_id": one.job.id,
                "name": one.job.cpuset_name,
                "user": one.job.user,
                "challenge": hashlib.sha256(one.keys.challenge.encode()).hexdigest(),
                "attempt": one.run.attempt if one.run else 0,
                "fence": bool(fence),
            }
            for one in jobs
        ],
    }


def sweep_data(jobs: Collection[JobData], config: Config) -> dict[str, Any]:
    """Return what a sweep is given: the jobs that may be on the node."""
    return {
        "oar_tmp_directory": config.oar_runtime_directory,
        "cpuset_path": config.cpuset_path or None,
        "options": manager_options(config),
        "jobs": [{"job_id": one.job.id, "name": one.job.cpuset_name} for one in jobs],
    }


def suspend_data(data: JobData, config: Config) -> dict[str, Any]:
    """Return what the suspend and resume manager is given."""
    return {
        "job_id": data.job.id,
        "name": data.job.cpuset_name,
        "user": data.job.user,
        "cpuset_path": config.cpuset_path or None,
        "options": manager_options(config),
    }


def control_data(job_id: int, config: Config, signal: str, user_signal: int | None = None) -> dict[str, Any]:
    """Return what ``ctl`` is given: the signal for oarexec, and with URG the one for the user's command."""
    return {
        "job_id": job_id,
        "tmp_directory": config.oar_runtime_directory,
        "signal": signal,
        "user_signal": user_signal,
    }


def types_of(data: JobData) -> dict[str, str | int]:
    """Return the types by name, each with its value or 1."""
    return {one.name: 1 if one.value is None else one.value for one in data.types}


def file_name(name: str | None, data: JobData, config: Config) -> str | None:
    """Return the name of an output file with its patterns replaced."""
    return None if name is None else patterns.expand(name, data.job, data.exec_host(config))


def report_host(config: Config) -> str:
    """Return the name under which nodes reach the server."""
    if config.server_hostname.startswith(LOOPBACK):
        return socket.gethostname()
    return config.server_hostname


def _shown(resource: Resource) -> dict[str, Any]:
    return dict(resource.properties)


def _ssh_keys(data: JobData, config: Config) -> dict[str, Any] | None:
    keys = data.keys
    if not (keys.private_key and keys.public_key):
        return None
    private = f"{config.oar_runtime_directory}/{data.job.user}_{data.job.id}.jobkey"
    return {
        "public": {"file_name": config.oar_ssh_authorized_keys_file, "key": keys.public_key},
        "private": {"file_name": private, "key": keys.private_key},
    }
