"""The keys of oar.conf that affect jobs. Without their values, no plan of the past can be explained.

The server stores their values in the database. Commands on frontends use these values, not their own copy of oar.conf.
"""

#: The options whose changes are kept, by name.  A test compares them with what scheduling passes read.
DECIDING = frozenset(
    {
        "budget_counts",
        *("custom_job_sorting", "custom_job_sorting_config", "custom_job_sorting_config_file", "dependency_condition"),
        *("energy_saving_internal", "energy_saving_mode", "energy_saving_node_manager_wakeup_timeout"),
        *("energy_saving_nodes_keepalive",),
        *("external_scheduler_max_failures", "extra_metasched", "extra_metasched_config", "fairsharing_enabled"),
        *("job_priority", "max_job_per_queues_group_scheduling_round", "metascheduler_mode", "priority_conf_file"),
        *("memory_property", "quotas", "quotas_all_nb_resources_mode", "quotas_conf_file", "quotas_window_time_limit"),
        *("projects", "reservation_precedence", "reservation_replace_after", "reservation_waiting_resources_timeout"),
        *("scheduler_available_suspended_resource_type", "scheduler_backfill_depth", "scheduler_besteffort_duration"),
        *("scheduler_besteffort_kill_duration_before_reservation", "scheduler_fairsharing_coef_project"),
        *("scheduler_fairsharing_coef_user", "scheduler_fairsharing_coef_user_ask"),
        *("scheduler_fairsharing_max_job_per_user", "scheduler_fairsharing_project_targets"),
        *("scheduler_fairsharing_user_targets", "scheduler_fairsharing_window_size", "scheduler_max_jobs_per_user"),
        *("scheduler_gantt_hole_minimum_time", "scheduler_job_security_time", "scheduler_node_manager_idle_time"),
        *("scheduler_node_manager_sleep_time", "scheduler_node_manager_wakeup_time"),
        *("scheduler_priority_hierarchy_order", "scheduler_resource_order"),
        *("scheduler_resource_order_adv_reservations", "scheduler_resource_order_adv_reservations_threshold"),
        *("scheduler_resources_always_assigned_type", "scheduler_timeout", "scheduler_token_scripts"),
        *("scheduler_urgent_time", "user_sql_full_users", "user_sql_round_seconds", "user_sql_timeout"),
        *("walltime_change_apply_time", "walltime_change_enabled", "walltime_increment"),
    }
)

#: The options that commands read to accept, to answer or to show a request, and that scheduling passes do not read.
OF_REQUESTS = frozenset(
    {
        *("accounting_all_types", "accounting_inner", "accounting_subtract_suspended", "accounting_window"),
        *(
            "allowed_networks",
            "apps_ports",
            "default_job_walltime",
            "desktop_computing_shared_directories",
            "hierarchy_labels",
        ),
        "job_kill_grace",
        *("job_resource_manager_property_db_field", "job_types_extra", "kill_inner_jobs_with_container"),
        *("mail_recipient", "mail_sender", "mail_smtp_server"),
        *("max_advance_reservations", "max_alternatives", "max_array_size", "max_kept_bytes_per_user"),
        *("oarstat_private", "oarstat_show_other_users_initial_request", "oarsub_default_resources"),
        *("oarsub_force_job_key", "oarsub_nodes_resources", "oarsub_script_resources"),
        *(
            "oarsub_store_adm_rules_outputs",
            "project_managers_control_jobs",
            "queue",
            "reservation_accounting",
            "reservation_acl_checked_users",
        ),
        *("reservation_duration_offset", "reservation_open", "reservation_replace_lost", "reservation_series_depth"),
        *("users_allowed_hold_resume", "walltime_allowed_users_to_delay_jobs", "walltime_allowed_users_to_force"),
        *("walltime_change_timeout", "walltime_max_increase", "walltime_min_for_change"),
        *("walltime_reduction_disallowed",),
    }
)

#: The options whose values the server stores in the database.
OF_SERVER = DECIDING | OF_REQUESTS

#: Those of them that name a file whose text decides.
FILES = ("quotas_conf_file", "priority_conf_file", "custom_job_sorting_config_file")
