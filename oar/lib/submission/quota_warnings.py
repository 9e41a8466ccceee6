"""Warn of a job that can never start because of the quotas."""

from typing import TYPE_CHECKING

from oar.lib.accounts import quota_checks
from oar.lib.accounts.quota_checks import Demand
from oar.lib.accounts.quota_files import states_of_all
from oar.lib.jobs.queue_policies import policy_of
from oar.lib.jobs.states import JobTypeName
from oar.lib.submission.resource_request import JobTypes

if TYPE_CHECKING:
    from oar.lib.config.files import Config
    from oar.lib.db.transaction import Transaction
    from oar.lib.submission.admission import Admission
    from oar.lib.submission.feasibility import Cluster

#: Jobs with one of these types do not count, or choose their resources by a plug-in of the site.
_EXEMPT = (JobTypeName.NO_QUOTAS, JobTypeName.FIND, JobTypeName.ASSIGN)
#: Only resources of this type count.
_COUNTED = "type = 'default'"
_WAY_OUT = "Request less (oarsub -l), or see your limits: oarstat --limits"


def warnings(
    tx: "Transaction", cluster: "Cluster", config: "Config", admission: "Admission", quota_file: str | None
) -> list[str]:
    """Return a warning if each alternative of a job exceeds the quotas alone, in all their periods.

    ``quota_file``: its text as the server read it last.
    """
    spec, requests = admission.proposal.spec, admission.proposal.requests
    types = JobTypes(spec.types)
    if not quota_file or admission.reservation or any(name in types for name in _EXEMPT):
        return []
    if not _has_quotas(tx, config, spec.queue):
        return []
    file = quota_checks.file_of(quota_file)
    everything = tx.accounts.counted_resources(states_of_all(config)) if file.has_parts else 0
    sets = quota_checks.rule_sets(quota_file, everything)
    walltimes = [request.walltime or 0 for request in requests]
    most = list(map(Demand, admission.sizes, walltimes))
    if quota_checks.lasting_excess(sets, spec, types.names, most) is None:
        return []
    sizes = [cluster.least_size(request.groups, spec.properties or "", _COUNTED) for request in requests]
    excess = quota_checks.lasting_excess(sets, spec, types.names, list(map(Demand, sizes, walltimes)))
    subject = "each job of this array" if spec.array_size > 1 else "the job"
    return [f"{subject} {excess.text} {_WAY_OUT}"] if excess else []


def _has_quotas(tx: "Transaction", config: "Config", queue: str) -> bool:
    policies = [policy_of(row.policy) for row in tx.queues.all() if row.name == queue]
    return any(policy.has_quotas(is_configured=config.quotas) for policy in policies if policy)
