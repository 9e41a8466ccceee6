"""The data that an agent needs to start a job."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from oar.lib.base.times import format_duration
from oar.lib.jobs import output_names
from oar.lib.submission import job_environment
from oar.lib.submission.resource_request import JobTypes

if TYPE_CHECKING:
    from oar.lib.config.files import Config
    from oar.lib.db.transaction import Transaction
    from oar.lib.jobs.records import Job
    from oar.lib.jobs.sql_jobs import JobDetail

#: How many times as large as a file that may be uploaded the unpacked one may be.
UNPACKED_TIMES = 16


def read(tx: "Transaction", ids: Collection[int], host: str, config: "Config") -> dict[int, dict[str, Any]]:
    """Return the data that the agent of a host needs to run jobs, by job id."""
    if not ids:
        return {}
    details = tx.jobs.read_details(ids)
    return {job.id: _order(tx, job, details[job.id], host, config) for job in tx.jobs.select(ids)}


def _order(tx: "Transaction", job: "Job", detail: "JobDetail", host: str, config: "Config") -> dict[str, Any]:
    stdout, stderr = (output_names.expand(name or "", job, host) for name in (job.stdout_file, job.stderr_file))
    staged = tx.desktop_computers.input_of(job.id)
    resources = tx.resources.select(sorted(detail.resources))
    return {
        "command": job_environment.command_in_job(job.command or "", job.env),
        "script": job_environment.script_of(job.env),
        "stdout_file": stdout,
        "stderr_file": stderr,
        "walltime": detail.walltime,
        "environment": {**_variables(job, detail), **job_environment.variables_of(job.env)},
        "nodes": [each.network_address for each in resources if each.type == "default" and each.network_address],
        "stagein": {"md5sum": staged.md5sum, "kind": staged.compression, "size": staged.size} if staged else None,
        "unpacked_size": config.api_max_upload * UNPACKED_TIMES,
    }


def _variables(job: "Job", detail: "JobDetail") -> dict[str, str]:
    """Return the environment variables of a job that do not depend on its node."""
    types = {each.name: "1" if each.value is None else each.value for each in JobTypes(detail.types)}
    texts = (name if value == "1" else f"{name}={value}" for name, value in types.items())
    variables = {
        "OAR_USER": job.user,
        "OAR_JOB_NAME": job.name or "",
        "OAR_PROJECT_NAME": job.project,
        "OAR_JOB_TYPES": ";".join(texts),
        "OAR_JOB_WALLTIME": format_duration(detail.walltime),
        "OAR_JOB_WALLTIME_SECONDS": str(detail.walltime),
        "OAR_CPUSET": "",
    }
    for names, value in (
        ("OAR_JOB_ID OAR_JOBID", job.id),
        ("OAR_ARRAY_ID OAR_ARRAYID", job.array_id),
        ("OAR_ARRAY_INDEX OAR_ARRAYINDEX OAR_JOB_INDEX OAR_JOBINDEX", job.array_index),
    ):
        variables.update(dict.fromkeys(names.split(), str(value)))
    return variables
