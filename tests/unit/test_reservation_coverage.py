"""Advance reservations: each line of their specification is proved by tests, which are named here and exist.

The specification is the fifth document of the customer; its sections are "Acceptance" (numbered lines) and "The seed,
statement by statement".  Benchmarks prove the figures: ``bench.reservations`` and ``bench.reservation_site``.
"""

from collections.abc import Mapping, Sequence
from itertools import chain

import pytest

from tests.unit.named_tests import exists

#: The acceptance, line by line.
ACCEPTANCE: Mapping[int, Sequence[str]] = {
    1: (
        "acceptance/test_advance_reservations::test_a_reservation_begins_keeps_others_away_and_ends",
        "db/test_advance_reservations::test_a_reservation_is_granted_begins_and_ends_at_its_dates",
    ),
    2: ("acceptance/test_advance_reservations::test_a_reservation_begins_keeps_others_away_and_ends",),
    3: (
        "scheduler/test_reservation_reasons::test_a_job_inside_waits_for_the_start",
        "db/test_advance_reservations::test_jobs_outside_keep_away_and_jobs_inside_wait_for_its_start",
        "acceptance/test_documentation::test_examples_print_what_is_shown",
    ),
    4: (
        "scheduler/test_random_reservations::test_jobs_outside_keep_away_and_jobs_inside_stay_inside",
        "scheduler/test_random_reservations::test_two_reservations_never_have_a_resource_at_the_same_time",
    ),
    5: (
        "db/test_oarsub_reservation::TestRefusals::test_requests_that_it_cannot_hold",
        "db/test_oarsub_reservation::TestRefusals::test_walltimes_that_are_too_long",
        "db/test_oarsub_reservation::TestRefusals::test_with_verify_n_it_is_accepted_and_waits",
        "db/test_default_walltimes::test_one_that_could_not_begin_at_once_has_what_is_left_when_it_begins",
        "db/test_reservation_jobs::test_a_node_of_which_only_a_part_is_reserved_is_no_node_for_its_jobs",
        "acceptance/test_advance_reservations::test_no_job_of_a_reservation_outlives_it",
        "acceptance/test_reservation_rights::test_a_reservation_takes_no_job_that_it_cannot_hold_or_that_it_does_not_know",
        "db/test_qrsub::test_a_job_that_is_killed_at_the_last_moment_is_gone_at_the_end",
    ),
    6: ("acceptance/test_advance_reservations::test_no_job_of_a_reservation_outlives_it",),
    7: (
        "db/test_oarsub_reservation::TestRefusals::test_syntax",
        "db/test_oarsub_reservation::TestRefusals::test_unknown_asked_refused_and_ended_ones",
        "acceptance/test_reservation_rights::test_a_reservation_takes_no_job_that_it_cannot_hold_or_that_it_does_not_know",
        "acceptance/test_reservation_rights::test_a_request_without_an_answer_and_a_refused_one_take_no_job",
    ),
    8: (
        "db/test_qrsub::test_a_request_is_refused_in_the_words_of_grid_engine_and_leaves_nothing",
        "acceptance/test_reservation_rights::test_what_makes_no_sense_is_refused_in_its_words_and_leaves_nothing",
    ),
    9: (
        "acceptance/test_advance_reservations::test_an_overlap_is_refused_and_its_proposal_is_granted",
        "db/test_advance_reservations::test_reservations_back_to_back_are_granted_and_an_overlap_is_refused_with_a_proposal",
        "scheduler/test_advance_reservations::test_the_proposal_of_a_refusal_would_be_granted",
    ),
    10: (
        "db/test_advance_reservations::test_running_jobs_come_first_and_waiting_ones_do_not",
        "db/test_advance_reservations::"
        "test_a_running_job_is_in_the_way_to_its_walltime_and_no_longer_when_it_has_ended",
        "acceptance/test_reservation_life::test_a_running_job_is_in_the_way_to_its_walltime_unless_it_ends_before",
    ),
    11: (
        "scheduler/test_advance_reservations::test_a_suspended_job_is_in_the_way_for_ever",
        "scheduler/test_advance_reservations::test_a_job_is_not_resumed_into_a_reservation",
        "db/test_reservation_jobs::test_a_suspended_job_outside_is_told_which_reservation_it_waits_for",
        "acceptance/test_reservation_life::test_nothing_is_reserved_under_a_suspended_job_and_none_goes_on_into_a_reservation",
    ),
    12: (
        "db/test_qrdel::test_others_do_not_delete_but_operators_and_managers_do",
        "db/test_advance_reservations::test_the_owner_deletes_and_its_jobs_go_first",
        "db/test_qrdel::test_with_jobs_it_is_registered_and_goes_with_the_last",
        "acceptance/test_reservation_rights::test_owners_operators_and_managers_delete_and_what_was_reserved_is_free_at_once",
    ),
    13: (
        "acceptance/test_advance_reservations::"
        "test_force_ends_the_jobs_of_a_reservation_though_their_node_does_not_answer",
        "db/test_qrdel::test_force_exterminates_its_jobs",
    ),
    14: (
        "db/test_reservation_crashes::test_each_statement_of_a_round_may_be_the_last",
        "db/test_reservation_crashes::test_what_happened_while_the_server_was_down_is_written_late",
        "db/test_reservation_crashes::test_each_statement_of_a_command_may_be_the_last",
        "db/test_reservation_crashes::test_each_statement_of_a_pass_of_leon_may_be_the_last",
        "db/test_reservation_repairs::test_what_is_wrong_before_the_start_is_named_and_mended",
        "db/test_reservation_repairs::test_what_is_wrong_after_the_start_is_named_and_mended",
        "db/test_held_reservations::test_a_round_goes_on_beside_a_row_that_somebody_holds",
        "db/test_qrsub::test_who_types_it_again_does_not_keep_his_request_from_being_withdrawn",
        "acceptance/test_advance_reservations::test_who_does_not_wait_for_the_answer_leaves_no_request",
        "acceptance/test_reservation_crashes::test_a_server_that_is_killed_over_a_start_begins_the_reservation_late",
        "acceptance/test_reservation_crashes::"
        "test_a_server_that_is_killed_over_an_end_ends_the_reservation_and_its_jobs",
        "acceptance/test_reservation_crashes::test_a_deletion_that_a_killed_server_has_not_seen_is_carried_out",
        "acceptance/test_reservation_crashes::test_a_change_that_a_killed_server_has_not_seen_is_made_once",
        "acceptance/test_reservation_crashes::test_a_script_of_the_site_is_told_each_event_at_most_once_over_a_kill",
    ),
    15: (
        "db/test_advance_reservations::test_a_lost_node_is_an_error_that_heals",
        "acceptance/test_documentation::test_examples_print_what_is_shown",
        "acceptance/test_reservation_errors::test_with_soft_errors_jobs_begin_on_what_is_left_and_the_owner_is_told",
    ),
    16: (
        "db/test_advance_reservations::test_a_lost_node_is_an_error_that_heals",
        "scheduler/test_random_reservations::test_a_hard_reservation_in_error_starts_nothing",
        "db/test_advance_reservations::test_mails_tell_begin_error_repair_and_end",
        "acceptance/test_reservation_errors::test_with_hard_errors_no_job_begins_until_all_is_there_again",
        "acceptance/test_reservation_errors::test_with_soft_errors_jobs_begin_on_what_is_left_and_the_owner_is_told",
    ),
    17: (
        "db/test_advance_reservations::test_lost_resources_are_replaced_under_the_jobs_that_go_on",
        "scheduler/test_reservation_replacement::test_lost_resources_are_replaced_when_their_time_is_over",
        "scheduler/test_reservation_replacement::test_what_is_kept_stays_and_nothing_is_replaced_that_jobs_use",
        "acceptance/test_reservation_errors::test_lost_nodes_are_replaced_under_the_jobs_that_go_on",
    ),
    18: (
        "unit/test_access_lists::test_an_entry_allows_and_none_denies",
        "db/test_oarsub_reservation::TestRefusals::test_somebody_who_is_not_in_the_access_list",
        "db/test_qralter::test_who_loses_his_access_loses_his_waiting_jobs",
        "acceptance/test_reservation_rights::test_those_use_a_reservation_whom_its_access_list_allows",
        "acceptance/test_reservation_rights::test_who_loses_his_access_keeps_what_runs_and_loses_what_waits",
    ),
    19: (
        "db/test_qrsub::test_only_what_all_listed_users_may_use_is_reserved",
        "db/test_qrsub::test_a_rule_that_refuses_is_quoted_with_the_user",
        "db/test_new_users::test_one_who_may_not_use_all_that_is_reserved_is_refused",
        "acceptance/test_reservation_rights::test_only_what_every_listed_user_may_use_is_reserved",
    ),
    20: (
        "db/test_qrsub::test_only_members_of_a_userset_may_ask",
        "acceptance/test_advance_reservations::test_who_may_reserve_is_changed_at_once",
    ),
    21: (
        "db/test_qrsub::test_the_limit_is_told_with_its_own_code",
        "db/test_advance_reservations::test_requests_at_once_never_exceed_the_limit",
        "db/test_advance_reservations::test_the_limit_of_reservations_counts_live_ones",
        "acceptance/test_reservation_rights::test_twenty_requests_at_once_never_exceed_a_limit_that_holds_at_once",
    ),
    22: ("acceptance/test_reservation_life::test_quotas_count_neither_a_reservation_nor_its_jobs",),
    23: (
        "scheduler/test_reserved_besteffort::test_besteffort_jobs_leave_before_the_start_and_earlier_with_a_checkpoint",
        "scheduler/test_reserved_besteffort::"
        "test_a_besteffort_job_that_writes_its_checkpoint_too_long_ends_in_time_all_the_same",
        "scheduler/test_reserved_besteffort::test_besteffort_jobs_leave_a_reservation_that_has_begun_but_for_its_own",
        "db/test_advance_reservations::test_besteffort_jobs_leave_a_reservation_that_begins_at_once",
        "acceptance/test_reservation_life::test_a_besteffort_job_writes_its_checkpoint_and_is_gone_before_the_start",
    ),
    24: (
        "db/test_reserved_resources::test_settings_of_nodes",
        "db/test_reserved_resources::test_the_removal_of_a_resource",
        "db/test_reserved_resources::test_the_removal_and_the_name_of_a_property",
        "db/test_reserved_resources::TestOrphanedQueue::test_it_goes_with_its_last_reservation",
        "db/test_oaruserset::test_a_live_reservation_keeps_its_users",
        "db/test_oaruserset::test_a_userset_that_reservations_allow_or_deny_is_not_deleted",
        "acceptance/test_reservation_errors::test_what_would_break_a_reservation_is_refused_unless_it_is_forced",
        "acceptance/test_reservation_errors::test_the_queue_of_a_reservation_stays_until_its_last_job_is_gone",
        "acceptance/test_reservation_rights::test_who_loses_his_access_keeps_what_runs_and_loses_what_waits",
    ),
    25: (
        "db/test_qralter::test_a_window_is_moved_and_the_frame_follows",
        "db/test_qralter::test_a_refused_change_names_what_is_possible_and_changes_nothing",
        "scheduler/test_advance_reservations::test_a_reservation_to_come_is_moved_to_its_own_resources_or_to_others",
        "scheduler/test_advance_reservations::test_a_running_reservation_keeps_its_resources_and_its_start",
        "scheduler/test_advance_reservations::test_an_end_is_not_moved_before_the_jobs_inside_unless_forced",
        "scheduler/test_random_reservations::test_a_granted_change_takes_nothing_from_others",
        "scheduler/test_random_reservations::test_a_refused_change_of_resources_lets_nobody_else_start",
        "db/test_qralter::test_a_reservation_gets_more_and_fewer_resources_and_keeps_what_it_has",
        "db/test_qralter::test_a_running_reservation_keeps_what_its_jobs_hold",
        "acceptance/test_reservation_life::test_a_reservation_to_come_is_changed_as_a_whole_or_stays_as_it_is",
        "acceptance/test_reservation_life::test_a_running_reservation_keeps_its_start_its_jobs_and_its_resources_while_a_change_is_refused",
    ),
    26: (
        "unit/test_recurrence::test_a_time_that_summer_time_leaves_out_moves_forward_on_that_day_alone",
        "db/test_reservation_series::test_a_conflict_refuses_the_whole_series",
        "db/test_reservation_series::test_a_conflict_may_be_skipped_and_another_one_follows",
        "db/test_reservation_series::test_conflicts_that_follow_each_other_are_skipped_together",
        "db/test_reservation_series::test_the_next_one_is_as_it_was_asked_for_whatever_became_of_another",
        "db/test_reservation_series::test_a_series_is_deleted_with_all_that_is_left_of_it",
        "acceptance/test_advance_reservations::test_a_series_goes_on_when_one_of_it_ends_until_it_is_deleted",
        "acceptance/test_reservation_life::test_a_series_keeps_the_hour_of_the_wall_over_the_change_to_summer_time",
        "acceptance/test_reservation_life::test_a_conflict_refuses_a_series_or_is_left_out_of_it",
    ),
    27: (
        "db/test_flexible_reservations::test_its_end_leaves_its_jobs_and_waiting_ones_go_on_without_it",
        "db/test_flexible_reservations::test_its_jobs_are_checked_like_jobs_outside",
        "acceptance/test_reservation_life::test_jobs_of_a_flexible_reservation_begin_before_it_lie_beside_it_and_go_on_behind_it",
    ),
    28: (
        "scheduler/test_advance_reservations::test_an_idle_reservation_ends",
        "acceptance/test_reservation_life::test_a_reservation_that_nobody_uses_ends_when_its_idle_limit_is_reached",
        "db/test_advance_reservations::test_what_an_idle_reservation_held_is_free_in_the_round_in_which_it_ends",
    ),
    29: (
        "db/test_qrstat::test_the_overview_is_that_of_grid_engine_letter_for_letter",
        "db/test_qrstat::test_the_detail_is_that_of_grid_engine_and_ours_behind_it",
        "db/test_qrstat::test_xml_is_that_of_the_schema",
        "db/test_qrstat::test_xml_is_valid_for_every_state_and_for_hostile_texts",
        "db/test_qrstat::test_a_thousand_reservations_take_a_fixed_number_of_statements",
        "acceptance/test_reservation_reports::test_bills_queries_and_reports_agree_about_what_was_used_and_what_was_not",
    ),
    30: (
        "db/test_reservation_reports::test_every_query_is_tested",
        "db/test_reservation_reports::test_the_accounting_of_each_reservation_by_month",
        "db/test_reservation_reports::test_the_attributes_are_those_of_the_newest_revision",
        "db/test_reservation_reports::test_the_log_of_a_reservation",
        "db/test_reservation_reports::test_the_time_usage_of_an_unused_reservation_is_all_of_it",
        "db/test_reservation_reports::test_the_reservations_of_a_user_are_those_that_were_granted",
        "db/test_reservation_reports::test_the_number_of_jobs_by_day",
        "db/test_reservation_reports::test_the_reporting_file_is_made_from_the_tables",
        "db/test_reservation_accounting::test_both_ways_and_the_bill_have_the_same_sum",
        "acceptance/test_reservation_reports::test_bills_queries_and_reports_agree_about_what_was_used_and_what_was_not",
        "acceptance/test_reservation_reports::test_both_ways_of_accounting_have_the_same_sum",
    ),
    31: (
        "db/test_advance_reservations::test_numbers_begin_again_and_skip_those_of_live_reservations",
        "acceptance/test_reservation_reports::test_numbers_begin_again_behind_the_largest_and_skip_one_that_lives",
    ),
    32: (
        "api/test_reservation_changes::test_routes_tell_what_commands_tell",
        "api/test_reservation_changes::test_a_reservation_is_granted_changed_and_deleted",
        "api/test_reservation_changes::test_what_cannot_be_granted_says_why_and_when",
        "api/test_reservation_changes::test_who_may_not_is_told_so",
        "api/test_parity::test_each_option_of_a_request_has_its_field",
        "api/test_usersets::test_what_a_reservation_relies_on_is_kept_as_by_the_command",
    ),
    33: (
        "db/test_reservations_seen_by_others::test_a_frame_is_a_reservation_job_of_the_type_container",
        "db/test_reservations_seen_by_others::test_an_external_scheduler_sees_what_is_reserved_and_places_jobs_inside",
        "acceptance/test_old_programs::test_reservations_of_all_states_are_seen_as_jobs",
    ),
    34: (
        "db/test_hostile_commands::test_no_command_accepts_a_hostile_condition",
        "db/test_hostile_commands::test_no_hostile_word_breaks_a_command_for_reservations",
        "db/test_hostile_reservations::test_no_option_breaks_on_a_hostile_text",
        "db/test_hostile_reservations::test_what_is_stored_is_shown_as_text",
        "db/test_long_requests::test_more_patterns_than_anybody_needs_are_refused",
        "db/test_long_requests::test_a_request_whose_conditions_are_too_long_is_refused",
        "db/test_qrstat::test_control_characters_forge_no_line",
    ),
    35: (
        "db/test_advance_reservations::test_the_answer_is_written_before_the_jobs_are_planned",
        "db/test_qrstat::test_a_thousand_reservations_take_a_fixed_number_of_statements",
        "db/test_reservation_queries::test_rounds_read_all_reservations_with_a_fixed_number_of_statements",
        "db/test_reservation_queries::test_those_that_end_together_leave_with_few_statements_for_each",
        "scheduler/test_search_clock::test_requests_that_are_left_over_come_first_in_the_next_round",
    ),
}

#: The statements of the customer's document, by their paragraphs there.
STATEMENTS: Mapping[str, Sequence[str]] = {
    "1 an interval on resources, for some users, by negotiation": (
        "acceptance/test_advance_reservations::test_an_overlap_is_refused_and_its_proposal_is_granted",
        "acceptance/test_demo::test_the_demonstration_shows_real_work_and_leaves_nothing",
    ),
    "4.4.1 users create, delete, show, use": ("acceptance/test_documentation::test_examples_print_what_is_shown",),
    "4.4.2 the same by pages": (
        "browser/test_reserving::test_a_reservation_is_tried_while_it_is_typed_then_asked_for_and_changed",
        "browser/test_reserving::test_what_cannot_be_granted_says_when_it_could",
        "browser/test_reserving::test_reservations_are_bands_in_the_diagram",
    ),
    "4.4.3 the same by the API": (
        "api/test_reservation_changes::test_routes_tell_what_commands_tell",
        "api/test_parity::test_each_option_of_a_request_has_its_field",
    ),
    "5.1.1 clients": (
        "unit/test_start_up::test_a_user_command_starts_without_what_is_heavy",
        "acceptance/test_documentation::test_examples_print_what_is_shown",
        "acceptance/test_reservation_life::test_a_reservation_to_come_is_changed_as_a_whole_or_stays_as_it_is",
    ),
    "5.1.3.1.1 switches of qrsub": (
        "db/test_qrsub::test_all_of_a_request_is_stored",
        "db/test_qrsub::test_slots_lie_as_the_rule_says",
        "db/test_qrsub::test_resources_of_other_types_are_counted_for_each_slot",
    ),
    "5.1.3.1.1 default request files": (
        "db/test_qrsub::test_requests_begin_with_the_options_of_the_site_and_of_the_user",
        "acceptance/test_advance_reservations::test_requests_begin_with_the_options_in_files",
    ),
    "5.1.3.1.1 dates and durations": ("unit/test_grid_engine_times::",),
    "5.1.3.1.1 -u": (
        "unit/test_access_lists::test_an_entry_allows_and_none_denies",
        "acceptance/test_reservation_rights::test_those_use_a_reservation_whom_its_access_list_allows",
    ),
    "5.1.3.1.1 -m": ("db/test_advance_reservations::test_mails_tell_begin_error_repair_and_end",),
    "5.1.3.1.1 -he": ("scheduler/test_random_reservations::test_a_hard_reservation_in_error_starts_nothing",),
    "5.1.3.1.1 -alloc and -pe": ("db/test_qrsub::test_slots_lie_as_the_rule_says",),
    "5.1.3.1.1 -q": ("db/test_qrsub::test_a_list_of_queues_is_tried_from_the_highest_priority_on",),
    "5.1.3.1.1 -w v": ("db/test_qrsub::test_a_request_is_verified_on_the_present_situation_and_nothing_is_stored",),
    "5.1.3.1.1 -masterq": (
        "db/test_qrsub::test_slots_lie_as_the_rule_says",
        "acceptance/test_reservation_crashes::test_a_job_begins_on_the_host_of_the_master_queues",
    ),
    "5.1.3.3 -f though the host does not answer": (
        "acceptance/test_advance_reservations::"
        "test_force_ends_the_jobs_of_a_reservation_though_their_node_does_not_answer",
    ),
    "5.1.3.3 jobs go first, then the reservation": (
        "db/test_advance_reservations::test_the_owner_deletes_and_its_jobs_go_first",
        "db/test_qrdel::test_with_jobs_it_is_registered_and_goes_with_the_last",
    ),
    "5.1.3.3 qrdel": (
        "db/test_qrdel::test_all_that_is_named_is_tried_in_its_order",
        "db/test_qrdel::test_all_of_some_users",
        "db/test_qrdel::test_force_exterminates_its_jobs",
    ),
    "5.1.3.4 qrstat": (
        "db/test_qrstat::test_reservations_are_chosen_by_numbers_names_and_patterns",
        "db/test_qrstat::test_reasons_and_asked_changes_stand_below_their_reservation",
        "db/test_qrstat::test_xml_is_that_of_the_schema",
    ),
    "5.1.3.5 qsub and qalter -ar": (
        "db/test_oarsub_reservation::TestEntry::test_a_job_is_in_the_frame_and_in_the_table",
        "db/test_oarsub_reservation::TestAlteration::test_a_running_job_stays_where_it_is",
    ),
    "5.1.3.5 qsub -ar with all other options": (
        "acceptance/test_advance_reservations::test_jobs_of_all_kinds_run_in_a_reservation_and_end_with_it",
        "db/test_reservation_jobs::test_of_an_array_as_many_run_as_fit_and_a_dependent_job_waits_for_its_turn",
        "db/test_reservation_jobs::test_of_a_moldable_job_the_alternative_starts_that_is_over_in_time",
        "db/test_reservation_jobs::test_timesharing_jobs_share_inside_and_with_nobody_outside",
        "db/test_reservation_jobs::test_a_besteffort_job_inside_leaves_for_others_inside_and_not_for_those_outside",
        "db/test_reservation_jobs::test_a_container_inside_lends_what_it_has_and_all_of_it_ends_with_the_reservation",
        "db/test_reservation_jobs::test_a_job_with_a_date_inside_starts_at_it_and_others_keep_away",
        "db/test_oarsub_reservation::TestRefusals::test_the_frame_is_entered_by_no_other_way",
    ),
    "5.1.3.6 qstat -j, reserved beside used and total": (
        "db/test_oarsub_reservation::TestFrames::test_lists_leave_it_out_and_records_name_the_reservation",
        "db/test_oarsub_reservation::TestFrames::test_nodes_are_reserved_and_used_by_jobs_only",
    ),
    "5.1.3.7 qacct": ("db/test_reservation_reports::test_oarstat_shows_the_bills_of_a_time",),
    "5.1.3.9 max_advance_reservations": ("db/test_qrsub::test_the_limit_is_told_with_its_own_code",),
    "5.2.1 ids": ("db/test_advance_reservations::test_numbers_begin_again_and_skip_those_of_live_reservations",),
    "5.2.2.1.1 windows that make no sense, DURATION_OFFSET": (
        "db/test_qrsub::test_a_request_is_refused_in_the_words_of_grid_engine_and_leaves_nothing",
        "db/test_oarsub_reservation::TestRefusals::test_walltimes_that_are_too_long",
    ),
    "5.2.2.1.2 arusers": ("db/test_qrsub::test_only_members_of_a_userset_may_ask",),
    "5.2.2.1.3 suited queues, orphaned ones not": (
        "db/test_suited_queues::test_what_is_disabled_or_does_not_answer_is_suited",
        "db/test_suited_queues::test_what_is_dead_is_not_suited",
        "db/test_qrsub::test_the_queue_of_a_removed_one_is_unknown",
    ),
    "5.2.2.1.3 (1) access of all listed users": ("db/test_qrsub::test_only_what_all_listed_users_may_use_is_reserved",),
    "5.2.2.1.3 (2) jobs without run time limit, both ways": (
        "scheduler/test_advance_reservations::test_a_suspended_job_is_in_the_way_for_ever",
        "scheduler/test_advance_reservations::test_a_job_is_not_resumed_into_a_reservation",
    ),
    "5.2.2.1.3 (3) quotas are ignored": (
        "acceptance/test_reservation_life::test_quotas_count_neither_a_reservation_nor_its_jobs",
    ),
    "5.2.2.2.1 foreseeable changes are rejected, outages are errors": (
        "db/test_reserved_resources::test_settings_of_nodes",
        "db/test_advance_reservations::test_a_lost_node_is_an_error_that_heals",
    ),
    "5.2.2.2.2 a removed queue is orphaned": (
        "db/test_reserved_resources::TestOrphanedQueue::test_it_goes_with_its_last_reservation",
        "db/test_reserved_resources::TestOrphanedQueue::test_it_takes_only_jobs_of_its_reservations_and_starts_them",
        "db/test_reserved_resources::TestOrphanedQueue::test_with_force_other_jobs_are_left_behind",
    ),
    "5.2.2.3 clean-up at the end": ("acceptance/test_advance_reservations::test_no_job_of_a_reservation_outlives_it",),
    "5.2.3.2 to add, delete and get, with conditions and chosen fields": (
        "api/test_reservation_changes::test_a_reservation_is_granted_changed_and_deleted",
        "api/test_reservation_reading::test_conditions_hold_together",
        "api/test_reservation_reading::test_some_fields_and_pages",
    ),
    "5.2.3.3 events of additions, deletions and changes": (
        "api/test_reservation_events::test_each_line_is_told_with_the_reservation_as_it_is_now",
        "api/test_reservation_events::test_a_line_that_is_committed_late_is_neither_lost_nor_overtaken",
    ),
    "5.2.3.1 states": ("db/test_qrstat::test_reservations_are_chosen_by_owner_and_state",),
    "5.3.2.1.1 verifications of jobs, -w n": (
        "db/test_oarsub_reservation::TestRefusals::test_requests_that_it_cannot_hold",
        "db/test_oarsub_reservation::TestRefusals::test_with_verify_n_it_is_accepted_and_waits",
    ),
    "5.3.2.1.1 the reservation is a field of its jobs": (
        "db/test_oarsub_reservation::TestFrames::test_lists_leave_it_out_and_records_name_the_reservation",
    ),
    "5.3.2.2 jobs start after the start, on free resources": (
        "scheduler/test_random_reservations::test_jobs_outside_keep_away_and_jobs_inside_stay_inside",
    ),
    "5.3.2.3 jobs are deleted at the end": (
        "acceptance/test_advance_reservations::test_no_job_of_a_reservation_outlives_it",
    ),
    "5.4.1 reserved and not used": ("db/test_reservation_reports::test_views_of_the_bill",),
    "5.4.2 six queries": (
        "db/test_reservation_reports::test_every_query_is_tested",
        "db/test_reservation_reports::test_the_accounting_of_each_reservation_by_month",
        "db/test_reservation_reports::test_the_attributes_are_those_of_the_newest_revision",
        "db/test_reservation_reports::test_the_log_of_a_reservation",
        "db/test_reservation_reports::test_the_time_usage_of_an_unused_reservation_is_all_of_it",
        "db/test_reservation_reports::test_the_reservations_of_a_user_are_those_that_were_granted",
        "db/test_reservation_reports::test_the_number_of_jobs_by_day",
    ),
    "5.4.3.1 the reservation in the accounting of each job": (
        "db/test_reservation_reports::test_jobs_have_the_fields_of_grid_engine_and_their_reservation",
    ),
    "5.4.3.2 reporting records": ("db/test_reservation_reports::test_the_reporting_file_is_made_from_the_tables",),
    "5.4.3.3 views": (
        "db/test_schema::test_all_views_are_there",
        "db/test_reservation_reports::test_views_of_the_bill",
        "db/test_reservation_reports::test_frames_are_no_jobs_of_the_model",
        "db/test_reservation_reports::test_of_a_number_that_was_given_again_each_reservation_has_its_own_jobs",
    ),
    "appendix 1, access lists": (
        "unit/test_access_lists::test_an_entry_allows_and_none_denies",
        "acceptance/test_reservation_rights::test_those_use_a_reservation_whom_its_access_list_allows",
    ),
    "spooled objects: what is asked, granted and known survives": (
        "db/test_reservation_crashes::test_each_statement_of_a_round_may_be_the_last",
        "db/test_reservation_crashes::test_what_happened_while_the_server_was_down_is_written_late",
    ),
    "appendix 1, fields": ("db/test_qrstat::test_json_has_what_the_detail_has_with_types",),
    "appendix 3, schema": ("db/test_qrstat::test_xml_is_valid_for_every_state_and_for_hostile_texts",),
}


NAMED = sorted(set(chain(*ACCEPTANCE.values(), *STATEMENTS.values())))


@pytest.mark.parametrize("name", NAMED)
def test_a_named_test_exists(name: str) -> None:
    assert exists(name)


def test_each_line_of_the_acceptance_is_proved() -> None:
    assert set(range(1, 36)) == ACCEPTANCE.keys()
    assert all(chain(ACCEPTANCE.values(), STATEMENTS.values()))
