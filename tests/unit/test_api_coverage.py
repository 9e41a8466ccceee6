"""REST API: what its specification says is proved by tests, which are named here and exist.

The figures (section 14) are those of ``bench.api``, ``bench.notifications`` and ``bench.submission``.
"""

from collections.abc import Mapping, Sequence
from itertools import chain

import pytest

from tests.unit.named_tests import exists

#: What the specification of the REST API says, by section and statement; 8 and 17 are proved with the others.
API: Mapping[str, Sequence[str]] = {
    "0 a service by itself, started by systemd, with its own account": (
        "api/test_program::test_it_tells_when_it_is_ready_answers_and_ends",
        "api/test_program::test_an_address_that_cannot_be_is_told_in_one_line",
    ),
    "0 submissions and estimates in worker processes, which are replaced": (
        "api/test_submission::test_a_worker_that_dies_is_replaced",
        "api/test_watching::test_readiness_tells_of_workers_threads_and_the_server",
    ),
    "0 a page of the reference without files of others": (
        "api/test_watching::test_the_reference_has_each_operation_and_no_script",
    ),
    "0 each option of a command has its route": (
        "api/test_parity::test_every_command_is_in_a_table",
        "api/test_parity::test_each_option_of_oarsub_has_its_field",
        "api/test_parity::test_each_option_of_the_other_commands_has_its_operation_or_a_reason",
        "api/test_parity::test_each_option_of_a_request_has_its_field",
    ),
    "1 mount: prefixes, slashes, links": (
        "api/test_addresses::test_addresses_are_found_below_the_path_of_the_site_and_without_it",
        "api/test_addresses::test_a_path_that_a_trusted_proxy_tells_is_in_links_and_not_taken_away",
        "api/test_web_servers::test_nginx_hands_over_what_is_below_a_path",
        "browser/test_acting::test_who_comes_directly_or_by_the_path_of_the_site_logs_in_and_out",
        "api/test_legacy::test_addresses_are_read_with_prefix_and_extension",
        "api/test_addresses::test_a_slash_at_the_end_changes_nothing",
        "api/test_addresses::test_a_body_is_taken_behind_a_slash",
        "api/test_legacy_lists::test_links_lead_to_the_same_place_where_they_are_relative",
        "api/test_legacy_lists::test_links_of_the_beginning_are_relative_too",
        "api/test_addresses::test_what_was_made_is_named_by_its_address_outside",
    ),
    "1 formats by extension and Accept, bodies of all kinds": (
        "api/test_legacy::test_answers_are_json_yaml_or_html",
        "api/test_legacy::test_a_client_gets_the_form_that_it_likes_best",
        "api/test_legacy::test_submissions_are_read_in_all_their_forms",
        "api/test_legacy::test_json_that_is_sent_as_a_form_is_told_so",
    ),
    "1 collections: limit, offset, links, total, ids": (
        "api/test_legacy::test_pages_of_jobs_are_chosen_as_the_clients_write_it",
        "api/test_legacy_lists::test_many_jobs_are_not_counted",
        "api/test_legacy_lists::test_pages_behind_an_id_are_followed_to_the_end",
        "api/test_legacy_lists::test_a_site_says_whether_lists_are_by_id",
        "api/test_reading::test_pages_hold_each_job_once",
    ),
    "1 fields, and lines for exports": (
        "api/test_lists::test_some_fields_of_each_item_are_given",
        "api/test_legacy_lists::test_only_the_fields_that_are_asked_for_come",
        "api/test_reading::test_all_of_a_list_can_be_had_as_lines",
        "api/test_lists::test_a_list_is_given_as_lines_to_who_accepts_these_alone",
        "api/test_legacy_lists::test_all_jobs_come_as_lines",
        "api/test_legacy_lists::test_other_lists_come_as_lines_and_what_is_no_list_is_one",
    ),
    "1 errors: one line, a word, the field, the status": (
        "api/test_reading::test_what_is_wrong_is_one_line_and_a_word",
        "api/test_legacy::test_a_parameter_that_is_wrong_is_named_for_programs",
        "api/test_legacy::test_what_is_wrong_in_a_body_is_named_for_programs",
        "api/test_reading::test_a_wrong_method_names_the_right_ones",
        "api/test_submission::test_a_bad_field_is_named",
        "api/test_changes::test_a_change_with_a_parameter_that_it_does_not_have_changes_nothing",
        "api/test_addresses::test_no_address_takes_a_parameter_that_it_does_not_have",
        "api/test_changes::test_a_body_that_is_none_or_no_record_is_told_so",
        "api/test_legacy::test_oar_may_have_problems_as_answers",
        "api/test_program::test_requests_do_not_wait_for_a_database_as_commands_do",
        "db/test_statement_timeout",
    ),
    "1 headers of every answer, the id of a request": (
        "api/test_reading::test_every_answer_has_its_frame",
        "api/test_overview::test_an_answer_tells_where_its_time_went",
        "api/test_watching::test_each_change_stands_in_the_log_with_who_made_it",
    ),
    "1 tags: 304 without a query, own changes at once, HEAD": (
        "api/test_lists::test_what_nothing_has_changed_is_not_read_again",
        "api/test_lists::test_who_has_changed_something_never_gets_what_was_before",
        "api/test_lists::test_a_tag_is_that_of_one_caller_one_address_and_one_configuration",
        "api/test_lists::test_every_answer_that_is_read_has_a_tag",
        "api/test_lists::test_without_notices_tags_are_those_of_bodies",
        "api/test_addresses::test_the_head_of_an_answer_is_that_of_the_answer",
    ),
    "1 pages of other origins only where the site lists them": (
        "api/test_other_origins::test_no_other_origin_is_named_where_none_is_configured",
        "api/test_other_origins::test_a_page_of_a_configured_origin_reads_and_changes",
    ),
    "1 versions and If-Match": (
        "api/test_preconditions::test_of_another_version_nothing_is_changed",
        "api/test_preconditions::test_what_another_administrator_has_changed_meanwhile_stays",
        "api/test_preconditions::test_a_resource_that_somebody_has_changed_meanwhile_stays",
    ),
    "2 the peer of the socket decides": (
        "api/test_callers::test_a_header_of_a_stranger_says_nothing",
        "api/test_callers::test_a_forwarded_address_makes_no_proxy",
        "api/test_callers::test_the_kernel_tells_who_uses_the_local_socket",
        "api/test_who_counts::test_the_token_of_a_request_counts_and_not_whom_a_proxy_names_beside_it",
    ),
    "2 tokens, and those of OAR 3": (
        "api/test_callers::test_a_token_is_its_user",
        "api/test_callers::test_a_token_ends_when_it_expires_or_is_revoked",
        "api/test_sessions::test_signed_tokens_of_oar_3_are_taken_where_there_is_a_key",
        "api/test_who_counts::test_signed_tokens_of_another_family_are_not_taken",
        "api/test_who_counts::test_an_account_that_is_gone_has_no_token",
        "api/test_who_counts::test_no_address_holds_a_secret",
        "api/test_who_counts::test_that_a_token_is_used_is_not_written_with_each_request",
        "api/test_sessions::test_tokens_are_valid_for_as_long_as_the_site_says",
        "db/test_oar_token",
    ),
    "2 passwords, and who guesses": (
        "api/test_sessions::test_a_password_names_the_user",
        "api/test_sessions::test_who_guesses_is_stopped_even_when_he_guesses_right",
        "api/test_sessions::test_passwords_are_not_taken_where_the_site_does_not_say_so",
        "api/test_who_counts::test_a_password_is_not_taken_over_a_plain_network",
        "api/test_passwords::test_pam_tells_whether_a_password_is_right",
        "api/test_passwords::test_every_kind_of_sum_fits_its_password_only",
    ),
    "2 names of trusted proxies": (
        "api/test_callers::test_a_header_of_a_trusted_proxy_names_the_user",
        "api/test_callers::test_a_trusted_proxy_cannot_name_everybody",
        "api/test_who_counts::test_the_first_header_of_a_proxy_counts",
        "api/test_who_counts::test_a_site_may_take_no_name_of_any_proxy",
        "api/test_callers::test_a_proxy_of_a_local_account_is_trusted_on_the_socket",
        "api/test_web_servers",
    ),
    "2 sessions of browsers": (
        "api/test_sessions::test_a_session_is_a_cookie_that_scripts_and_other_sites_do_not_get",
        "api/test_who_counts::test_the_cookie_of_a_session_travels_by_tls_and_to_our_pages_only",
        "api/test_who_counts::test_the_cookie_of_a_session_is_for_the_path_at_which_a_browser_sees_the_page",
        "api/test_who_counts::test_a_browser_that_would_drop_the_cookie_is_told_so",
        "api/test_sessions::test_a_session_goes_on_while_it_is_used",
        "api/test_sessions::test_who_logs_out_is_nobody_whatever_was_kept",
    ),
    "2 scopes": (
        "api/test_callers::test_each_scope_allows_what_it_says_and_nothing_else",
        "api/test_callers::test_a_token_of_one_job_is_valid_for_an_hour_after_its_end",
        "api/test_callers::test_what_a_token_has_submitted_it_may_delete",
        "api/test_sessions::test_administrators_see_and_revoke_the_tokens_of_others",
    ),
    "2 administrators": (
        "api/test_callers::test_an_administrator_is_one_by_a_token_of_that_scope_only",
        "api/test_callers::test_members_of_the_group_of_administrators_are_some",
        "api/test_sessions::test_an_administrator_proves_once_more_who_he_is",
        "api/test_who_counts::test_whom_a_proxy_names_administers_only_where_the_site_says_so",
    ),
    "2 what of others is hidden, and a site without anonymous readers": (
        "api/test_reading::test_one_job_tells_everything_but_what_is_private",
        "api/test_callers::test_a_site_may_let_nobody_read_without_a_name",
        "api/test_callers::test_a_token_of_one_job_shows_what_is_private_of_that_job_and_its_array",
    ),
    "2 requests that other sites let browsers send": (
        "api/test_sessions::test_pages_of_other_sites_change_nothing",
        "api/test_sessions::test_a_form_without_the_word_of_a_browser_changes_nothing",
    ),
    "2 every change leaves who did it": ("api/test_watching::test_each_change_stands_in_the_log_with_who_made_it",),
    "3 beginning, version, whoami, timezone, tokens, stress factor": (
        "api/test_legacy::test_cigri_reads_the_site",
        "api/test_legacy::test_the_script_of_the_site_runs_once_at_a_time_and_holds_nobody_up",
        "api/test_legacy_administration::test_a_new_token_is_signed_where_the_site_has_a_key",
        "api/test_legacy::test_a_token_that_is_not_valid_is_told_in_the_words_of_oar_3",
    ),
    "3 what is gone or for administrators only": (
        "api/test_legacy_administration::test_what_is_gone_says_where_it_went",
        "api/test_legacy_administration::test_sql_of_administrators_is_read_only_and_only_where_the_site_says_so",
        "api/test_legacy::test_other_addresses_and_methods_are_told_so",
    ),
    "3 what clients need to know of a site": ("api/test_overview::test_a_site_tells_what_programs_need",),
    "4.1 lists: parameters of all dialects, the default, the order": (
        "api/test_legacy::test_pages_of_jobs_are_chosen_as_the_clients_write_it",
        "api/test_legacy_lists::test_a_site_says_which_jobs_are_listed_when_none_are_chosen",
        "api/test_legacy_lists::test_ids_and_a_condition_hold_together",
        "api/test_legacy_lists::test_jobs_that_ended_since_are_listed_with_those_that_live",
        "api/test_reading::test_a_list_holds_the_live_jobs_by_id",
        "api/test_reading::test_conditions_hold_together",
    ),
    "4.2 one job with all its keys, as oarstat has them": (
        "api/test_reading::test_one_job_tells_everything_but_what_is_private",
        "acceptance/test_both_ways::test_what_is_shown_is_the_same",
        "api/test_legacy::test_a_job_tells_clients_of_both_versions_all_that_is_known",
    ),
    "4.2 explanation, states, usage, predictions, array, dependencies": (
        "api/test_reading::test_a_job_explains_why_it_waits",
        "api/test_reading::test_a_job_tells_its_states",
        "api/test_job_parts",
        "api/test_overview::test_an_array_is_told_as_a_whole",
    ),
    "4.3 submission: fields, toggles, escapes, refusals": (
        "api/test_legacy::test_submissions_are_read_in_all_their_forms",
        "api/test_legacy::test_a_submission_that_cannot_be_says_why",
        "api/test_submission::test_the_checks_are_those_of_oarsub",
        "api/test_submission::test_admission_rules_change_refuse_and_fail_as_for_oarsub",
        "api/test_legacy::test_an_estimate_is_told_and_nothing_is_submitted",
        "api/test_parity::test_a_job_is_the_same_by_both_ways",
    ),
    "4.3 scripts and files of the user": (
        "api/test_submission::test_the_lines_of_a_script_are_options_where_it_is_asked_for",
        "api/test_submission::test_a_script_of_the_user_is_read_for_its_lines",
        "api/test_legacy::test_files_that_a_submission_names_count_from_its_working_directory",
        "api/test_submission::test_a_file_that_takes_too_long_is_given_up_and_nothing_is_left",
        "unit/test_script_lines",
    ),
    "4.3 keys of requests": (
        "api/test_submission::test_a_request_with_a_key_is_carried_out_once",
        "api/test_submission::test_a_key_belongs_to_one_request",
        "api/test_submission::test_requests_of_one_key_at_once_make_one_job",
        "api/test_submission::test_a_refused_request_leaves_its_key_free",
        "api/test_submission::test_old_keys_are_forgotten",
        "api/test_legacy::test_a_job_is_submitted_again_once_on_its_old_address",
        "api/test_legacy::test_a_key_of_another_request_is_told_so_on_old_addresses",
    ),
    "4.3 reservations are answered": (
        "api/test_waiting::test_a_reservation_is_submitted_with_its_answer",
        "api/test_waiting::test_a_refused_reservation_is_told_in_the_words_of_oarsub",
        "api/test_waiting::test_a_reservation_without_an_answer_in_time_is_told_so",
    ),
    "4.3 several submissions": (
        "api/test_submission::test_several_jobs_are_submitted_each_by_itself",
        "api/test_submission::test_a_batch_with_a_job_that_is_no_request_submits_nothing",
    ),
    "4.4 actions, with the texts of the commands": (
        "api/test_legacy::test_what_is_done_with_jobs_is_registered",
        "api/test_legacy::test_clients_of_both_versions_find_what_is_done_with_jobs",
        "api/test_legacy::test_what_is_refused_has_the_title_of_its_act",
        "api/test_changes::test_a_job_that_is_being_deleted_is_told_so",
        "api/test_changes::test_the_job_of_somebody_else_is_left_alone",
        "api/test_changes::test_another_walltime_is_asked_for",
        "api/test_parity::test_an_act_leaves_the_same_by_both_ways",
    ),
    "4.4 alteration, besteffort, several jobs": (
        "api/test_changes::test_a_job_that_waits_is_altered",
        "api/test_changes::test_the_jobs_of_an_array_that_wait_are_altered",
        "api/test_administration::test_the_same_is_done_with_several_jobs",
    ),
    "5 resources and nodes are read": (
        "api/test_old_clients::test_cigri_reads_the_whole_cluster",
        "api/test_legacy_lists::test_jobs_of_a_node_and_of_the_values_of_a_property",
        "api/test_nodes::test_nodes_tell_what_is_free_and_who_is_there",
        "api/test_nodes::test_a_node_tells_what_it_was",
        "api/test_nodes::test_one_resource_tells_what_was_set_of_it",
        "api/test_nodes::test_nodes_are_chosen_by_name_and_by_state",
    ),
    "5 resources, nodes and properties are changed": (
        "api/test_legacy::test_administrators_change_resources",
        "api/test_legacy_administration::test_resources_are_made_in_all_forms_and_removed_by_their_cpuset",
        "api/test_legacy_administration::test_resources_are_described_before_they_are_made",
        "api/test_administration::test_resources_are_added_changed_and_removed",
        "api/test_administration::test_machines_are_described_created_and_repaired",
        "api/test_administration::test_a_property_is_added_renamed_and_removed",
        "api/test_administration::test_only_administrators_do_it",
    ),
    "6 queues, rules, configuration, accounting": (
        "api/test_administration::test_a_queue_is_added_changed_and_removed",
        "api/test_administration::test_rules_are_added_tried_changed_and_removed",
        "api/test_legacy_administration::test_admission_rules_are_kept_where_the_site_says_so",
        "api/test_legacy_administration::test_the_configuration_is_read_without_its_secrets",
        "api/test_overview::test_consumption_is_told_by_days_and_by_users",
        "api/test_overview::test_consumption_that_is_private_is_that_of_others",
    ),
    "6 Gantt": ("api/test_gantt", "api/test_gantt_strip"),
    "6 estimates and alternatives": (
        "api/test_changes::test_alternatives_are_compared_and_nothing_is_stored",
        "api/test_changes::test_alternatives_for_which_no_time_is_left_are_told_so",
        "api/test_changes::test_alternatives_stand_in_one_situation_but_not_beside_one_another",
    ),
    "6 the last rounds": (
        "process/test_almighty::test_the_last_round_is_told",
        "api/test_administrators_view::test_the_last_rounds_are_told_to_everybody",
        "api/test_administrators_view::test_rounds_of_a_server_that_is_down_are_not_known",
    ),
    "6 fair share": ("api/test_overview::test_fair_share_is_told_term_by_term",),
    "6 reservations and usersets": (
        "api/test_reservation_reading",
        "api/test_reservation_changes",
        "api/test_reservation_events",
        "api/test_usersets",
    ),
    "6 tokens, desktop computing": (
        "api/test_sessions::test_tokens_are_made_listed_and_revoked",
        "api/test_desktop",
    ),
    "7 output: pieces, tails, owners, plain files": (
        "api/test_output::test_the_owner_reads_what_his_job_has_written",
        "api/test_output::test_a_piece_of_it_is_read",
        "api/test_output::test_nobody_else_reads_it",
        "api/test_output::test_what_its_owner_may_not_read_or_is_no_plain_file_is_not_read",
        "api/test_output::test_an_interactive_job_and_a_site_without_output_have_none",
    ),
    "7 output that is followed": (
        "api/test_output::test_a_file_that_comes_later_or_begins_anew_is_followed",
        "api/test_output::test_a_stream_begins_near_the_end_and_skips_what_is_too_much",
        "api/test_output::test_a_stream_ends_some_time_after_the_job",
        "api/test_output::test_who_may_not_read_or_follows_too_much_gets_no_stream",
        "api/test_output::test_a_stream_ends_though_its_program_was_stopped_on_the_way",
    ),
    "7 files": (
        "api/test_media::test_a_file_is_written_read_and_removed",
        "api/test_media::test_nothing_leads_out_of_the_directories",
        "api/test_media::test_rights_are_changed_but_for_those_that_make_others",
        "api/test_media::test_an_upload_that_breaks_off_leaves_nothing",
        "api/test_media::test_the_kernel_decides_what_a_user_may",
    ),
    "9 differences of the dialects": (
        "api/test_legacy::test_submissions_are_read_in_all_their_forms",
        "api/test_legacy::test_what_is_done_with_jobs_is_registered",
    ),
    "10 notices behind the commit": ("db/test_notifications", "unit/test_topics"),
    "10 nothing is lost": (
        "db/test_feed::test_many_writers_that_sleep_and_roll_back_lose_nothing",
        "db/test_feed::test_a_row_that_is_never_committed_stops_nothing",
        "api/test_deaths::test_each_event_is_told_once_whoever_is_killed",
    ),
    "10 positions, messages, privacy, ends": (
        "api/test_stream::test_who_comes_back_is_told_what_he_missed",
        "api/test_stream::test_a_place_of_another_database_lets_all_be_loaded_anew",
        "api/test_stream::test_a_listener_hears_only_what_he_asks_for",
        "api/test_stream::test_a_client_chooses_messages_and_a_queue",
        "api/test_stream::test_of_a_topic_it_is_told_once_a_second",
        "api/test_stream::test_who_was_away_for_too_long_loads_all_anew",
        "api/test_stream::test_a_token_that_is_revoked_ends_its_streams",
        "api/test_stream::test_a_stream_ends_after_an_hour",
        "api/test_stream::test_the_end_of_the_service_is_told",
    ),
    "10 the same by the command": (
        "db/test_oarstat_follow::test_a_job_is_followed_to_its_end",
        "db/test_oarstat_follow::test_what_is_told_behind_a_position_is_the_rest",
    ),
    "10 pages of events, and long requests": (
        "api/test_stream::test_pages_of_the_history_follow_one_another",
        "api/test_stream::test_a_page_of_the_history_is_as_long_as_asked_for",
        "api/test_waiting::test_an_answer_comes_with_what_happens_next",
    ),
    "11 the clean form and its document": (
        "api/test_addresses::test_the_beginning_of_v1_leads_to_all_that_can_be_read",
        "api/test_description::test_the_document_is_the_one_in_the_documentation",
        "api/test_description::test_every_operation_says_what_it_is_for",
        "api/test_description::test_no_number_is_taken_beyond_the_bounds_that_the_document_tells",
        "api/test_description::test_each_body_has_an_example_that_its_operation_takes",
        "api/test_description::test_the_document_tells_how_often_a_client_may_ask",
        "api/test_description::test_the_service_does_what_the_document_says",
    ),
    "11 a generated client": (
        "api/test_generated_client",
        "api/test_description::test_every_record_has_a_name_by_which_clients_know_it",
    ),
    "12 rates": (
        "unit/test_limits",
        "api/test_hostile_clients::test_who_asks_too_often_is_told_so_and_others_are_not",
        "api/test_job_parts::test_so_many_estimates_are_answered",
    ),
    "12 connections": ("db/test_configuration_check::test_what_is_not_there_is_named_with_the_way_out",),
    "12 heads, bodies, threads, streams, time": (
        "api/test_hostile_clients::test_a_head_without_end_is_refused",
        "api/test_hostile_clients::test_a_head_that_is_too_long_is_told_what_is_long_in_it",
        "api/test_hostile_clients::test_one_line_may_have_most_of_a_head",
        "api/test_hostile_clients::test_a_body_that_is_too_large_is_refused_before_it_is_read",
        "api/test_hostile_clients::test_a_body_of_an_endless_shape_is_not_read",
        "api/test_hostile_clients::test_yaml_of_nobody_and_much_of_it_is_not_read",
        "api/test_hostile_clients::test_more_requests_than_threads_can_answer_are_told_to_come_again",
        "api/test_hostile_clients::test_a_body_that_only_drips_is_given_up",
        "api/test_hostile_clients::test_who_reads_nothing_holds_nothing_for_long",
        "api/test_stream::test_nobody_takes_the_streams_of_all",
        "api/test_stream::test_behind_a_proxy_everybody_has_streams_of_his_own",
    ),
    "13 metrics": (
        "api/test_overview::test_prometheus_reads_the_metrics",
        "api/test_overview::test_what_happens_is_counted",
        "api/test_overview::test_metrics_are_for_the_networks_of_the_site",
        "api/test_overview::test_a_site_chooses_by_whom_jobs_are_told_and_how_many_are_named",
        "api/test_watching::test_metrics_are_made_once_for_all_who_ask_in_a_while",
        "api/test_watching::test_requests_are_counted_by_the_routes_of_the_document",
        "db/test_metrics_file",
        "db/test_meta_sched::test_a_round_tells_how_long_its_parts_took",
        "process/test_almighty::test_the_last_round_is_told",
    ),
    "13 health, reload": (
        "api/test_reading::test_the_service_is_ready_and_says_of_what",
        "api/test_program::test_it_reads_its_configuration_again",
        "api/test_program::test_a_configuration_with_errors_changes_nothing",
        "api/test_program::test_it_tells_systemd_that_it_lives",
        "api/test_watching::test_health_tells_nobody_of_versions_or_names_and_life_asks_no_database",
    ),
    "14 speed": (
        "api/test_costs",
        "api/test_program::test_no_answer_waits_in_the_kernel",
        "api/test_program::test_the_collector_of_garbage_does_not_look_at_what_stays",
        "unit/test_routes::test_few_routes_are_tried_for_an_address",
    ),
    "15 where it lies in the code": ("unit/test_layers",),
    "16 clients of others, unmodified": ("api/test_old_clients", "acceptance/test_replayed_programs"),
    "16 injection, forged identities": (
        "api/test_hostile_clients::test_no_parameter_is_more_than_a_value",
        "api/test_hostile_clients::test_no_path_and_no_header_is_more_than_a_value",
    ),
    "16 one job whoever is killed": (
        "api/test_deaths::test_a_request_with_a_key_makes_one_job_whenever_the_service_is_killed",
    ),
    "16 both ways are the same": ("acceptance/test_both_ways::test_what_is_done_is_the_same",),
}
#: What the specification says and is otherwise, and why.
OTHERWISE: Mapping[str, str] = {
    "1 WWW-Authenticate: Basic": "only Bearer is named: Basic lets browsers ask for a password in a window of theirs;"
    " clients that have one send it without being asked",
    "2 a delay of 1 s after a wrong password": "a request that sleeps holds a thread that others need; five wrong ones"
    " a minute stop who guesses, and PAM has a delay of its own",
    "7 GET /jobs/ID/log?file=": "the first form of what is /v1/jobs/ID/output now; no client was ever written for it",
    "7 the keys of the files of a job": "size is null where there is nothing, and problem says why: more than"
    " exists; follow is a parameter of each file",
    "11 servers from API_URL": "the pages and the document speak to the address that they come from, so that a site"
    " moves without a change of a file",
    "13 the names of metrics": "those of steps of jobs begin with oar_job_, as oar_job_wait_seconds: names that begin"
    " alike stand together where Prometheus and Grafana list them",
    "7 API_ADMIN_READS_OUTPUT": "administrators that may be root read files on the machine; the service shows those of"
    " a user to nobody else, whatever token is stolen",
    "2 tokens are kept in memory for 30 s": "each request looks its token up, by one statement of an index: what was"
    " revoked is refused from the next request on, also if the notice of it is lost; with it a job costs 0.1 ms more",
    "1 the id of a request in the texts of events": "an act leaves the same rows by command and by request; the line"
    " [audit] has the id, the user, the address and so the job",
    "1 tags on older addresses": "each answer has the date of the moment (api_timestamp), which pages take for a clock"
    " of the site; a browser that was told 304 would give them an old one, and their clock would stand still",
    "4.1 q finds parts of commands": "hits would tell what is hidden; parts of names and users are found by an index",
    "4.1 order=start_time": "a page by another column than the id is read from the beginning each time, and jobs that"
    " start meanwhile move between pages; lists are by id, either way",
    "12 a line of 8 KiB": "the lines of a head share its 32 KiB as they like: a list of 500 ids that CiGri asks for by"
    " job_ids= is longer than 8 KiB",
    "3 to 6, what is ours on older addresses": "new routes stand under /v1 only, each with one name: no older client"
    " asks for them, and what is there twice is kept twice for ever",
    "5 the reason of a drain is the property comment, too": "it is kept in the event and shown while the drain lasts;"
    " what a site writes into a column of its own is not overwritten",
    "0 API_PROCESSES": "one process answers 300 requests a second with a quarter of a core; rates, streams and what is"
    " kept of answers are counted in one place so",
}
#: What only tells why, or what other sections repeat.
UNPROVED = {8, 17}
NAMED = sorted(set(chain(*API.values())))


@pytest.mark.parametrize("name", NAMED)
def test_a_named_test_exists(name: str) -> None:
    assert exists(name)


def test_each_section_is_proved() -> None:
    numbers = {int(title.split()[0].partition(".")[0]) for title in API}
    assert numbers | UNPROVED == set(range(18))
    assert all(API.values())


def test_what_is_otherwise_has_a_reason() -> None:
    assert not OTHERWISE.keys() & API.keys()
    assert all(reason for reason in OTHERWISE.values())
