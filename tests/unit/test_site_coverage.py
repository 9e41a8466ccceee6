"""A site's life: each statement of the request is proved by tests, which are named here and exist.

The request is the issue "A site's life: install, upgrade, adopt, reboot, back up, bill, measure"; its sections have
letters.  Figures are those of ``bench.retention`` and of the suite itself, which tells how long an installation took.
"""

from collections.abc import Mapping, Sequence
from itertools import chain

import pytest

from tests.unit.named_tests import exists

#: Statements of the request, by section and number.
STATEMENTS: Mapping[str, Sequence[str]] = {
    "A machines with a real systemd: start, stop, restart, reload, reboot of each machine": (
        "site/test_a_site::test_a_job_runs_on_both_nodes",
        "site/test_a_site::test_the_server_is_restarted_while_a_job_runs",
        "site/test_a_site::test_the_server_rereads_its_configuration",
        "site/test_a_site::test_the_server_reboots_and_all_comes_back_by_itself",
        "site/test_a_site::test_a_frontend_reboots_and_users_go_on",
        "site/test_a_site::test_a_node_reboots_in_order_and_its_jobs_end_as_after_a_crash",
        "site/test_a_site::test_a_node_that_lost_its_power_is_back_when_it_answers",
    ),
    "A the installation chapter executed as written; PostgreSQL late": (
        "site/test_a_site::test_a_site_without_packages_is_installed_upgraded_removed_and_installed_again",
        "site/test_packages::test_what_a_site_expects_is_enabled_by_the_packages",
        "site/test_a_site::test_the_database_comes_up_later_than_the_server",
        "site/test_a_site::test_the_database_is_away_for_a_while",
    ),
    "A clocks that are set, a database that takes no changes, keys and names that change": (
        "db/test_sarko::test_a_clock_that_was_set_ahead_ends_no_job_before_somebody_could_set_it_back",
        "db/test_sarko::test_a_clock_that_was_set_ahead_and_stays_so_ends_jobs_ten_minutes_later",
        "db/test_sarko::test_a_clock_that_was_set_ahead_is_noticed_across_a_restart_of_the_server",
        "db/test_oar_phoenix::test_a_date_of_a_clock_that_was_ahead_keeps_no_node_from_its_next_step",
        "db/test_sarko::test_a_clock_that_was_set_ahead_asks_for_no_checkpoint_too_early",
        "db/test_advance_reservations::"
        "test_a_clock_that_was_set_ahead_begins_and_ends_none_before_somebody_could_set_it_back",
        "db/test_advance_reservations::test_a_clock_that_stays_ahead_is_believed_ten_minutes_later",
        "db/test_oar_phoenix::test_a_clock_that_was_set_ahead_makes_no_step_come_early",
        "db/test_retention::test_a_clock_that_is_far_ahead_is_not_believed",
        "db/test_retention::test_a_date_that_a_time_service_keeps_is_believed_after_months_of_rest",
        "db/test_advance_reservations::test_a_request_is_not_too_old_by_a_clock_that_was_set_ahead",
        "db/test_retention::test_a_clock_of_which_the_server_waits_whether_it_is_set_back_is_not_believed",
        "db/test_meta_sched::test_jobs_pass_one_that_a_clock_which_was_set_back_has_not_started_yet",
        "db/test_database::test_a_database_that_takes_no_changes_is_one_to_wait_for",
        "db/test_database::test_who_asks_whether_the_server_is_well_is_told_of_such_a_database",
        "process/test_remote::test_a_key_that_the_node_does_not_know_is_refused",
        "process/test_remote::test_a_key_that_cannot_be_read_is_named_until_it_can",
        "process/test_remote::test_each_address_of_a_node_is_tried",
        "process/test_remote::test_so_many_connections_are_opened_at_a_time_however_many_nodes_are_asked",
        "site/test_names_and_keys::test_a_node_gets_another_name_while_a_job_runs_there",
        "site/test_names_and_keys::test_the_server_gets_a_new_key_while_a_job_runs",
        "site/test_names_and_keys::test_a_key_that_was_lost_is_named_until_the_nodes_have_the_new_one",
    ),
    "A disks that are full or can only be read": (
        "process/test_server::test_a_run_directory_that_is_full_while_the_server_runs_is_told_and_stops_nothing",
        "process/test_server::test_a_run_directory_that_takes_nothing_keeps_the_server_from_starting_and_is_named",
        "process/test_writing_trouble",
        "process/test_full_database::test_who_writes_has_to_wait_until_there_is_room",
        "process/test_full_database::test_the_server_says_so_in_a_line_and_goes_on_by_itself",
        "process/test_hostile_surroundings::test_a_node_whose_disk_is_full_says_so_before_anything_of_the_job_runs",
    ),
    "B.1 packages": (
        "process/test_packages::test_lintian_finds_no_error",
        "process/test_packages::test_packages_have_what_users_shells_readers_and_services_look_for",
        "process/test_packages::test_the_list_of_libraries_has_what_the_project_asks_for",
        "process/test_packages::test_no_file_is_in_two_packages",
        "site/test_packages::test_what_a_site_expects_is_enabled_by_the_packages",
        "site/test_packages::test_nothing_of_the_packages_was_changed_by_what_runs",
        "site/test_packages::test_a_purge_leaves_nothing_but_the_database_which_a_new_installation_finds",
        "process/test_upgrade::test_without_network_what_is_missing_is_named",
    ),
    "B.2 an upgrade that upgrades": (
        "process/test_upgrade::test_an_upgrade_is_used_at_once_and_the_release_before_stays_for_what_is_running",
        "process/test_upgrade::test_the_same_is_not_installed_twice_but_what_was_left_unfinished_is",
        "process/test_upgrade::test_a_failure_leaves_the_release_that_is_there",
        "process/test_upgrade::test_the_one_environment_of_older_releases_stays_for_what_is_running_in_it",
        "site/test_a_week::test_a_week",
        "site/test_a_site::test_a_site_without_packages_is_installed_upgraded_removed_and_installed_again",
        "db/test_migrate",
    ),
    "B.3 documents": (
        "process/test_install::test_shipped_files_name_the_places_of_this_installation",
        "process/test_install::test_the_manual_is_installed_with_the_documents_and_names_the_places_of_this_installation",
        "unit/test_docs",
    ),
    "B.4 a wrong password is told, an absent database waited for": (
        "process/test_server::test_a_server_whose_login_is_refused_says_so_and_ends_at_once",
        "db/test_oar_database::test_a_database_that_cannot_be_used_is_named_with_the_way_out",
        "unit/test_server_health::test_a_database_that_does_not_answer_is_told_before_what_follows_from_it",
        "process/test_server::test_a_server_whose_database_is_away_is_started_says_so_and_works_when_it_is_there",
        "process/test_almighty::test_systemd_is_told_of_a_database_that_is_away_and_waits_no_longer",
        "site/test_a_site::test_the_database_comes_up_later_than_the_server",
    ),
    "C.1 an orderly reboot of a node": (
        "site/test_a_site::test_a_node_reboots_in_order_and_its_jobs_end_as_after_a_crash",
        "process/test_oarexec::test_a_launch_that_meets_a_node_going_down_says_that_the_command_was_not_started",
        "unit/test_node_going_down::test_a_node_goes_down_when_its_init_says_so",
    ),
    "C.2 a node says that it is back, and that it goes": (
        "site/test_a_site::test_the_key_of_the_nodes_opens_nothing_but_the_node_s_own_state",
        "db/test_admin_commands::test_a_node_says_that_it_goes_and_that_it_is_back_and_its_jobs_are_its_own",
        "db/test_admin_commands::test_what_an_administrator_decided_of_a_node_stays_whatever_it_says",
        "db/test_admin_commands::test_a_node_says_nothing_else",
    ),
    "C.2 checks, plain ssh, access scripts": (
        "site/test_choices::test_a_node_that_finds_a_fault_is_suspected_until_somebody_removes_what_it_found",
        "site/test_choices::test_plain_ssh_leads_into_a_job_and_ends_with_it",
        "site/test_choices::test_a_list_lets_in_who_has_a_job",
        "site/test_choices::test_the_server_lets_users_in_on_nodes_that_they_have_as_a_whole",
        "process/test_examples::test_access_is_changed_on_the_nodes_that_a_job_has_as_a_whole",
        "acceptance/test_reaching_in::test_what_an_editor_starts_by_ssh_is_in_the_job_and_ends_with_it",
    ),
    "C.3 typos are the user's; checks of the configuration; drain": (
        "db/test_admission_rules::TestRulesOfSites::test_an_estimate_of_a_typo_is_the_user_s_fault_not_the_rule_s",
        "db/test_policies::test_a_check_tells_of_quotas_that_no_queue_obeys",
        "db/test_configuration_check::test_what_is_not_there_is_named_with_the_way_out",
        "unit/test_config::test_keys_of_greta_without_effect_are_named",
        "db/test_admin_commands::test_a_drain_leaves_an_event_and_shows_among_the_states",
    ),
    "D.1 end times": (
        "process/test_lost_reports::test_a_job_that_ended_while_nobody_listened_has_ended_when_its_node_says_so",
        "db/test_ends::test_an_end_that_was_told_late_has_its_own_date_which_is_not_before_the_start",
    ),
    "D.2 numbers are given once, one report, noticed by itself": (
        "db/test_restoration::test_numbers_jump_ahead_and_are_never_given_twice",
        "db/test_restoration::test_there_is_one_report",
        "db/test_restoration::test_an_older_database_is_noticed_once",
        "site/test_backup::test_an_older_database_is_noticed_by_the_server_that_is_started_with_it",
        "db/test_restoration::test_the_command_tells_what_it_has_done",
    ),
    "D.2 jobs that run and are not known are recognised, or ended": (
        "site/test_backup::test_nothing_is_mended_by_hand_after_a_dump_of_yesterday",
        "process/test_survey::test_a_job_that_was_started_after_the_dump_is_recognised_and_goes_on",
        "process/test_survey::test_a_node_that_was_absent_at_the_time_of_the_dump_is_asked_when_it_comes_back",
        "process/test_survey::test_a_job_that_the_restored_database_does_not_know_is_ended",
        "process/test_survey::test_no_node_is_swept_before_the_others_were_asked",
        "db/test_recognition::test_a_job_of_which_something_does_not_agree_is_none_of_ours",
        "db/test_recognition::test_the_end_of_a_job_that_waits_here_is_to_be_told_again",
    ),
    "D.3 retention": (
        "db/test_retention",
        "db/test_archive::test_ended_jobs_are_copied_with_all_their_rows_and_once",
        "db/test_retention::test_keys_of_ended_jobs_go_and_those_of_live_ones_stay",
        "db/test_retention::test_jobs_are_removed_in_pieces_and_those_that_stay_are_passed",
        "db/test_retention::test_nobody_waits_for_an_open_step",
        "db/test_plans",
    ),
    "D.4 adoption": (
        "db/test_adoption::test_a_week_of_work_is_taken_over",
        "db/test_adoption::test_a_database_of_each_age",
        "db/test_adoption::test_a_database_of_2_4",
        "db/test_adoption::test_a_database_of_a_large_site",
        "db/test_adoption::test_a_database_that_was_converted_from_mysql",
        "db/test_adoption::test_a_database_of_oar_3_and_its_accepted_reservation",
        "db/test_adoption::test_a_dry_run_changes_nothing_and_tells_the_same",
        "db/test_adoption::test_running_jobs_are_waited_for",
        "db/test_adoption::test_jobs_that_ran_in_a_dump_are_ended_as_the_chapter_says",
        "db/test_adoption::test_running_jobs_are_refused_and_named",
        "db/test_adoption::test_queues_keep_their_policies_or_stop",
        "db/test_adopted_rules::test_every_standard_rule_is_recognised",
        "acceptance/test_old_programs",
    ),
    "D.5 policy_log": (
        "db/test_policies::test_a_key_that_changes_is_noted_with_both_values",
        "db/test_policies::test_what_a_command_changes_has_its_caller_and_the_round_adds_nothing",
        "db/test_policies::test_the_history_is_a_line_for_a_value_and_a_difference_for_a_text",
    ),
    "D.6 the log tells each job's life": (
        "db/test_chronicle::test_the_log_tells_the_life_of_a_job",
        "db/test_chronicle::test_a_refused_submission_is_told",
        "db/test_chronicle::test_an_ended_job_is_a_line_of_the_completion_log",
        "db/test_chronicle::test_the_completion_log_may_be_moved_away",
        "site/test_a_week::test_a_week",
        "db/test_oar2trace::test_each_ended_job_is_18_numbers",
    ),
    "E commands of the manual": (
        "acceptance/test_keys::test_a_node_that_lost_its_keys_gets_them_again",
        "db/test_oar_phoenix::test_a_hard_reboot_follows_and_then_a_mail",
        "site/test_phoenix::test_broken_nodes_are_rebooted_in_order_and_then_by_their_power",
        "db/test_oar_resources_init::test_lines_create_what_was_found",
        "db/test_oar2trace::test_a_trace_is_a_file_with_its_resources_beside",
        "site/test_a_site::test_users_of_a_frontend_read_what_administrators_decide",
        "site/test_choices::test_the_example_switches_a_node_off",
        "process/test_examples::test_nodes_are_woken_by_their_addresses",
    ),
    "E Greta": (
        "acceptance/test_energy::test_idle_nodes_are_off_but_one_and_boot_for_a_job",
        "acceptance/test_energy::test_a_greta_that_is_killed_again_and_again_halts_no_node_with_a_job",
        "db/test_greta::test_a_window_has_so_many_commands_and_the_next_one_comes_later",
        "db/test_greta::test_a_node_that_does_not_come_is_woken_once_more_and_given_up_then",
        "db/test_greta::test_rounds_leave_so_many_idle_nodes_awake",
        "db/test_greta::test_the_server_is_rung_when_a_command_has_ended_and_when_something_is_asked",
    ),
    "E desktop computing: pull, stage-in, stage-out, expiry, results, signals and ends": (
        "acceptance/test_desktop::test_files_go_with_jobs_and_results_come_back",
        "acceptance/test_desktop::test_the_examples_of_the_user_guide_do_what_it_says",
        "acceptance/test_desktop::test_a_job_is_killed_with_all_that_it_has_started",
        "acceptance/test_desktop::test_an_agent_that_is_killed_comes_back_and_works_on",
        "acceptance/test_desktop::test_a_killed_server_and_a_killed_api_cost_no_job",
        "api/test_desktop_deaths::test_a_start_that_was_not_stored_is_told_by_the_next_service",
        "api/test_desktop_deaths::test_a_start_whose_answer_was_lost_is_told_again_to_the_same_agent",
        "api/test_desktop_deaths::test_results_of_which_a_half_has_come_are_none_and_are_sent_again",
        "db/test_desktop_pull::test_a_computer_that_is_silent_is_suspected_until_its_agent_asks",
        "db/test_desktop_pull::test_nothing_is_sent_to_a_running_job",
        "process/test_install::test_the_agent_of_desktop_computers_is_one_file_that_needs_nothing_else",
        "site/test_choices::test_an_agent_is_a_service_of_its_computer",
    ),
    "E hostile agents, and two of one name": (
        "api/test_desktop::test_an_upload_without_end_is_cut_off_and_leaves_nothing",
        "api/test_desktop::test_uploads_that_stand_still_hold_up_no_other_computer",
        "api/test_desktop::test_a_question_that_is_none_is_refused",
        "api/test_desktop::test_jobs_of_other_computers_are_out_of_reach",
        "db/test_desktop_pull::test_results_that_become_larger_than_may_be_are_not_unpacked",
        "db/test_desktop_pull::test_a_job_is_of_the_agent_that_has_fetched_it_whoever_else_has_its_name",
        "process/test_oar_agent::test_two_agents_of_one_name_share_its_jobs_and_run_none_twice",
        "process/test_oar_agent::test_an_archive_that_is_more_than_files_is_refused",
        "process/test_oar_agent::test_results_do_not_follow_links_of_the_user",
    ),
    "E every key has its effect or is gone": (
        "unit/test_unread_keys::test_the_keys_that_nothing_reads_are_known",
        "unit/test_config::test_a_key_of_other_systems_that_has_no_effect_says_why",
    ),
    "F MPI, GPUs, containers, editors, notebooks, engines": (
        "acceptance/test_programs::test_mpirun_reaches_both_nodes_of_its_job_without_an_option",
        "site/test_a_week::test_a_week",
        "unit/test_gpu_variables",
        "process/test_devices::test_a_job_and_its_sessions_are_told_their_gpus_of_this_node",
        "site/test_a_site::test_a_site_without_packages_is_installed_upgraded_removed_and_installed_again",
        "acceptance/test_documentation::test_examples_print_what_is_shown",
        "acceptance/test_reaching_in::test_plain_ssh_and_what_uses_it_reach_into_a_job",
        "acceptance/test_engines::test_jupyterhub_runs_the_servers_of_its_users_as_jobs",
        "acceptance/test_engines::test_an_engine_computes_on_all_nodes_for_its_user_alone_and_ends_with_its_program",
        "process/test_oar_launch",
    ),
    "F metrics, dashboards, alerts, health, journal": (
        "db/test_metrics_file::test_the_file_tells_the_present_and_what_has_happened",
        "db/test_metrics_file::test_promtool_accepts_the_rules_and_what_dashboards_ask",
        "db/test_metrics_file::test_each_alert_rings_for_what_it_names_and_no_other",
        "db/test_metrics_file::test_there_are_two_dashboards_and_each_panel_has_a_place_of_its_own",
        "unit/test_server_health::test_what_is_wrong_is_named",
        "process/test_logs::test_the_journal_gets_job_queue_and_nodes_as_fields",
        "site/test_a_site::test_the_journal_finds_the_lines_of_a_job_by_its_number_and_its_node",
    ),
    "done: upgraded, restored and rebooted under jobs of MPI, nothing mended by hand": (
        "site/test_a_week::test_a_week",
        "site/test_backup::test_nothing_is_mended_by_hand_after_a_dump_of_yesterday",
    ),
}

#: What no test of the suite shows, and why.
NOT_BY_TESTS: Mapping[str, str] = {
    "A the clock of a whole machine": "machines of tests share one; tried once with a library before libc",
    "A a kernel with version 2 of the control groups only": "tried once under qemu; docs/design/testing.rst",
    "B.1 debconf": "no package asks anything: none has a config script (process/test_packages)",
    "D.3 ten million ended jobs, purge of a million rows": "bench.retention, by hand",
    "D.4 dumps of real sites": "the one that is public, of Grid'5000, has rows of users: only its shape is made anew",
    "F apptainer": "only Debian sid has one, which moves on: Charliecloud is tried",
    "done: under ten minutes": "the suite tells the time; no test depends on the speed of a machine",
}

NAMED = sorted(set(chain(*STATEMENTS.values())))
SECTIONS = {
    *("A", "B.1", "B.2", "B.3", "B.4", "C.1", "C.2", "C.3", "D.1", "D.2", "D.3", "D.4", "D.5", "D.6"),
    *("E", "F", "done:"),
}


@pytest.mark.parametrize("name", NAMED)
def test_a_named_test_exists(name: str) -> None:
    assert exists(name)


def test_each_section_of_the_request_is_proved() -> None:
    assert {statement.split()[0] for statement in STATEMENTS} == SECTIONS
    assert all(STATEMENTS.values())
    assert {statement.split()[0] for statement in NOT_BY_TESTS} <= SECTIONS
