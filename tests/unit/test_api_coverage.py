"""REST API and pages: each section of their specification is proved by tests, which are named here and exist.

The figures (API, section 14; pages, section 2.3) are those of ``bench.api``, ``bench.notifications``,
``bench.submission`` and ``bench.gantt``.
"""

from collections.abc import Mapping, Sequence
from itertools import chain

import pytest

from tests.unit.named_tests import exists

#: The sections of the specification of the REST API that say what it does; 8 and 17 are proved with the others.
API: Mapping[str, Sequence[str]] = {
    "0 what it is": (
        "api/test_program::test_it_tells_when_it_is_ready_answers_and_ends",
        "api/test_parity::test_each_option_of_oarsub_has_its_field",
        "api/test_parity::test_each_option_of_the_other_commands_has_its_operation_or_a_reason",
        "api/test_submission::test_a_worker_that_dies_is_replaced",
    ),
    "1 common behaviour": (
        "api/test_reading::test_pages_hold_each_job_once",
        "api/test_reading::test_all_of_a_list_can_be_had_as_lines",
        "api/test_reading::test_what_is_wrong_is_one_line_and_a_word",
        "api/test_reading::test_a_wrong_method_names_the_right_ones",
        "api/test_reading::test_who_has_an_answer_already_gets_none",
        "api/test_reading::test_every_answer_has_its_frame",
        "api/test_preconditions::test_of_another_version_nothing_is_changed",
        "api/test_other_origins::test_a_page_of_a_configured_origin_reads_and_changes",
        "api/test_legacy::test_answers_are_json_yaml_or_html",
        "api/test_lists::test_a_list_is_given_as_lines_to_who_accepts_these_alone",
        "api/test_lists::test_some_fields_of_each_item_are_given",
        "api/test_lists::test_what_nothing_has_changed_is_not_read_again",
        "api/test_overview::test_an_answer_tells_where_its_time_went",
    ),
    "2 who is asking": (
        "api/test_callers::test_a_header_of_a_stranger_says_nothing",
        "api/test_callers::test_a_forwarded_address_makes_no_proxy",
        "api/test_callers::test_each_scope_allows_what_it_says_and_nothing_else",
        "api/test_callers::test_a_token_ends_when_it_expires_or_is_revoked",
        "api/test_callers::test_the_kernel_tells_who_uses_the_local_socket",
        "api/test_sessions::test_pages_of_other_sites_change_nothing",
        "api/test_sessions::test_an_administrator_proves_once_more_who_he_is",
        "api/test_sessions::test_signed_tokens_of_oar_3_are_taken_where_there_is_a_key",
        "api/test_sessions::test_tokens_are_valid_for_as_long_as_the_site_says",
        "api/test_passwords::test_pam_tells_whether_a_password_is_right",
        "api/test_web_servers::test_nginx_with_tls_lets_tokens_and_streams_through_and_nobody_be_named",
    ),
    "3 general routes": (
        "api/test_legacy::test_cigri_reads_the_site",
        "api/test_legacy::test_other_addresses_and_methods_are_told_so",
        "api/test_overview::test_a_site_tells_what_programs_need",
    ),
    "4 jobs": (
        "api/test_reading::test_a_list_holds_the_live_jobs_by_id",
        "api/test_reading::test_conditions_hold_together",
        "api/test_reading::test_one_job_tells_everything_but_what_is_private",
        "api/test_job_parts::test_the_smallest_change_of_a_job_that_waits_is_told",
        "api/test_job_parts::test_one_request_tells_all_of_a_job",
        "api/test_submission::test_requests_of_one_key_at_once_make_one_job",
        "api/test_submission::test_the_lines_of_a_script_are_options_where_it_is_asked_for",
        "api/test_submission::test_several_jobs_are_submitted_each_by_itself",
        "api/test_changes::test_a_job_that_is_being_deleted_is_told_so",
        "api/test_changes::test_a_job_that_waits_is_altered",
        "api/test_administration::test_the_same_is_done_with_several_jobs",
        "unit/test_script_lines::test_they_have_the_names_that_oarsub_knows",
    ),
    "5 resources and nodes": (
        "api/test_nodes::test_nodes_tell_what_is_free_and_who_is_there",
        "api/test_nodes::test_a_node_tells_what_it_was",
        "api/test_administration::test_resources_are_added_changed_and_removed",
        "api/test_administration::test_machines_are_described_created_and_repaired",
        "api/test_administration::test_a_property_is_added_renamed_and_removed",
        "api/test_legacy::test_administrators_change_resources",
    ),
    "6 other objects": (
        "api/test_administration::test_a_queue_is_added_changed_and_removed",
        "api/test_administration::test_rules_are_added_tried_changed_and_removed",
        "api/test_overview::test_consumption_is_told_by_days_and_by_users",
        "api/test_overview::test_fair_share_is_told_term_by_term",
        "api/test_changes::test_alternatives_stand_in_one_situation_but_not_beside_one_another",
        "api/test_reservation_changes::test_routes_tell_what_commands_tell",
        "api/test_usersets",
        "api/test_gantt",
    ),
    "7 files and output": (
        "api/test_output::test_a_piece_of_it_is_read",
        "api/test_output::test_nobody_else_reads_it",
        "api/test_output::test_what_its_owner_may_not_read_or_is_no_plain_file_is_not_read",
        "api/test_output::test_a_file_that_comes_later_or_begins_anew_is_followed",
        "api/test_output::test_a_stream_ends_though_its_program_was_stopped_on_the_way",
        "api/test_submission::test_a_file_that_takes_too_long_is_given_up_and_nothing_is_left",
    ),
    "9 differences of the dialects": (
        "api/test_legacy::test_submissions_are_read_in_all_their_forms",
        "api/test_legacy::test_pages_of_jobs_are_chosen_as_the_clients_write_it",
        "api/test_legacy::test_what_is_done_with_jobs_is_registered",
    ),
    "10 the stream of events": (
        "db/test_feed::test_many_writers_that_sleep_and_roll_back_lose_nothing",
        "api/test_stream::test_who_comes_back_is_told_what_he_missed",
        "api/test_stream::test_a_token_that_is_revoked_ends_its_streams",
        "api/test_stream::test_a_place_of_another_database_lets_all_be_loaded_anew",
        "api/test_waiting::test_an_answer_comes_with_what_happens_next",
        "unit/test_topics::test_who_writes_a_table_names_its_topic",
    ),
    "11 the clean form": (
        "api/test_description::test_the_document_is_the_one_in_the_documentation",
        "api/test_description::test_the_document_tells_how_often_a_client_may_ask",
        "api/test_description::test_the_service_does_what_the_document_says",
    ),
    "12 limits": (
        "api/test_hostile_clients::test_who_asks_too_often_is_told_so_and_others_are_not",
        "api/test_hostile_clients::test_a_body_that_is_too_large_is_refused_before_it_is_read",
        "api/test_hostile_clients::test_more_requests_than_threads_can_answer_are_told_to_come_again",
        "api/test_hostile_clients::test_nobody_is_waited_for_for_ever",
        "api/test_hostile_clients::test_a_body_that_only_drips_is_given_up",
        "api/test_hostile_clients::test_who_reads_nothing_holds_nothing_for_long",
        "api/test_desktop::test_a_token_of_all_computers_is_not_as_many_as_it_names",
        "api/test_job_parts::test_so_many_estimates_are_answered",
        "api/test_sessions::test_who_guesses_is_stopped_even_when_he_guesses_right",
        "unit/test_limits",
    ),
    "13 metrics and health": (
        "api/test_overview::test_prometheus_reads_the_metrics",
        "api/test_overview::test_metrics_are_for_the_networks_of_the_site",
        "api/test_overview::test_what_happens_is_counted",
        "api/test_overview::test_who_accepts_openmetrics_gets_it",
        "api/test_reading::test_the_service_is_ready_and_says_of_what",
        "api/test_program::test_it_reads_its_configuration_again",
    ),
    "14 speed": (
        "api/test_costs::test_a_page_is_one_statement",
        "api/test_costs::test_a_page_of_all_details_has_as_many_however_long_it_is",
        "api/test_program::test_no_answer_waits_in_the_kernel",
        "unit/test_routes::test_few_routes_are_tried_for_an_address",
    ),
    "15 where it lies in the code": ("unit/test_layers",),
    "16 acceptance": (
        "acceptance/test_replayed_programs",
        "acceptance/test_both_ways",
        "api/test_old_clients::test_the_library_that_cigri_uses_gets_what_it_reads",
        "api/test_old_clients::test_skylight_gets_what_it_reads",
        "api/test_parity::test_an_act_leaves_the_same_by_both_ways",
        "api/test_hostile_clients::test_no_parameter_is_more_than_a_value",
    ),
}

#: The sections of the specification of the pages; 3 and 4 tell why, 8 is proved with the others.
PAGES: Mapping[str, Sequence[str]] = {
    "1 what exists": (
        "api/test_pages::test_links_of_monika_lead_to_what_shows_the_same",
        "api/test_pages::test_links_of_drawgantt_lead_to_what_they_showed",
        "api/test_pages::test_dates_of_the_first_drawgantt_are_understood",
    ),
    "2.1 pages and addresses": (
        "browser/test_gantt::test_a_view_is_a_link",
        "browser/test_living::test_a_filter_stands_in_the_address",
    ),
    "2.2 common needs": (
        "browser/test_living::test_two_tabs_share_one_stream",
        "browser/test_living::test_new_jobs_are_announced_and_come_on_a_click",
        "browser/test_living::test_a_page_that_was_cut_off_catches_up",
        "browser/test_pages::test_every_page_is_for_everybody",
        "browser/test_pages::test_every_page_can_be_read_without_scripts",
        "browser/test_every_page::test_every_page_speaks_french_and_can_be_printed",
        "api/test_pages::test_every_page_comes_with_its_policy",
        "unit/test_web::test_a_page_is_small",
        "unit/test_web::test_conditions_are_told_apart_by_all_eyes",
    ),
    "2.3 Gantt": (
        "browser/test_gantt::test_past_present_and_future_are_pointed_at",
        "browser/test_gantt::test_what_happens_is_drawn_as_it_happens",
        "browser/test_gantt::test_the_diagram_is_walked_and_opened_by_keyboard",
        "browser/test_gantt::test_rows_are_grouped_and_folded",
        "browser/test_gantt::test_the_view_is_taken_away_as_vectors",
        "api/test_gantt::test_a_day_that_is_over_is_kept_for_ever_under_its_version",
        "api/test_gantt::test_only_what_has_changed_is_told_to_who_knows_the_rest",
    ),
    "2.4 state grid": (
        "api/test_pages::test_the_grid_has_a_letter_for_each_resource",
        "api/test_pages::test_the_dashboard_counts_what_the_grid_shows",
        "browser/test_living::test_the_grid_is_walked_by_keyboard",
    ),
    "5 usage": ("browser/test_looking_ahead::test_consumption_is_drawn_and_told",),
    "6 the pages": (
        "browser/test_pictures::test_each_page_has_its_picture",
        "browser/test_looking_ahead::test_a_waiting_job_tells_what_would_let_it_start",
        "browser/test_looking_ahead::test_alternatives_are_compared_before_one_is_submitted",
        "browser/test_reserving::test_a_reservation_is_tried_while_it_is_typed_then_asked_for_and_changed",
        "browser/test_acting::test_an_administrator_drains_a_node_and_takes_it_away",
    ),
    "7 tests": (
        "browser/test_living::test_what_users_name_is_text",
        "browser/test_living::test_a_job_is_found_by_keyboard",
        "browser/test_acting::test_a_job_is_held_and_resumed_by_keyboard",
    ),
}
#: What only tells why, or what other sections repeat.
UNPROVED = {"API": {8, 17}, "pages": {3, 4, 8}}
NAMED = sorted(set(chain(*API.values(), *PAGES.values())))


@pytest.mark.parametrize("name", NAMED)
def test_a_named_test_exists(name: str) -> None:
    assert exists(name)


@pytest.mark.parametrize(("sections", "what", "last"), [(API, "API", 17), (PAGES, "pages", 8)])
def test_each_section_is_proved(sections: Mapping[str, Sequence[str]], what: str, last: int) -> None:
    numbers = {int(title.split()[0].partition(".")[0]) for title in sections}
    assert numbers | UNPROVED[what] == set(range(0 if what == "API" else 1, last + 1))
    assert all(sections.values())
