"""The keys of oar.conf that affect the plan, as settings of the planner."""

from oar.kao.facts.snapshot import FairShare, Settings
from oar.lib.config.files import Config
from oar.lib.jobs.states import JobPriority

#: Greta has so many seconds more than a woken node before rounds take care of it.
GRETA_GRACE = 120


def settings_of(config: Config) -> Settings:
    """Return the settings of the planner, without the weights of MULTIFACTOR (read from a file in each round)."""
    priority = config.job_priority
    if config.fairsharing_enabled and priority is JobPriority.FIFO:
        priority = JobPriority.FAIRSHARE
    return Settings(
        security_time=max(1, config.scheduler_job_security_time),
        hole_minimum=config.scheduler_gantt_hole_minimum_time,
        suspended_types=tuple(config.scheduler_available_suspended_resource_type),
        always_assigned_type=config.scheduler_resources_always_assigned_type or "",
        reservation_patience=config.reservation_waiting_resources_timeout,
        jobs_before_reservations=config.reservation_precedence == "jobs",
        reservation_replace_after=config.reservation_replace_after,
        reservation_order_threshold=config.scheduler_resource_order_adv_reservations_threshold,
        besteffort_kill_before=config.scheduler_besteffort_kill_duration_before_reservation,
        besteffort_duration=config.scheduler_besteffort_duration,
        timeout=config.scheduler_timeout,
        max_jobs=config.max_job_per_queues_group_scheduling_round,
        first_jobs_per_user=config.scheduler_max_jobs_per_user,
        max_jobs_per_user=config.scheduler_fairsharing_max_job_per_user or 0,
        backfill_depths=dict(config.scheduler_backfill_depth),
        job_priority=priority,
        is_priority_explicit=priority is not JobPriority.FIFO,
        dependency_condition=config.dependency_condition,
        has_quotas=config.quotas,
        may_wake=config.may_wake,
        wakeup_time=config.scheduler_node_manager_wakeup_time,
        boot_limit=_boot_limit(config),
        idle_time=(config.scheduler_node_manager_idle_time or 0) if config.may_halt else 0,
        sleep_time=(config.scheduler_node_manager_sleep_time or 0) if config.may_halt else 0,
        fairshare=FairShare(
            config.scheduler_fairsharing_coef_project,
            config.scheduler_fairsharing_coef_user,
            config.scheduler_fairsharing_coef_user_ask,
            dict(config.scheduler_fairsharing_project_targets),
            dict(config.scheduler_fairsharing_user_targets),
        ),
    )


def _boot_limit(config: Config) -> int:
    """Return when a woken node that has not booted is woken again, in seconds: after the limits of Greta."""
    if not config.energy_saving_internal:
        return config.scheduler_node_manager_wakeup_time
    return GRETA_GRACE + max(seconds for _, seconds in config.energy_saving_node_manager_wakeup_timeout)
