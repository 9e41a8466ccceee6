"""Web pages: what their specification says is proved by tests, which are named here and exist, or has a reason.

The figures (2.2 budget, 2.3 amounts and drawing) are those of ``bench.browsing`` and ``bench.gantt``.
"""

from collections.abc import Mapping, Sequence
from itertools import chain

import pytest

from tests.unit.named_tests import exists

#: What the specification says, by section and statement.
PAGES: Mapping[str, Sequence[str]] = {
    "1.1 Monika: the grid of nodes, its marks, the table of jobs, the pages of a job and of a node": (
        "api/test_pages::test_the_grid_has_a_letter_for_each_resource",
        "browser/test_living::test_who_knows_monika_and_drawgantt_finds_them",
        "browser/test_living::test_new_jobs_are_announced_and_come_on_a_click",
        "api/test_pages::test_a_job_comes_with_all_that_its_page_shows",
    ),
    "1.1 Monika: the chooser of properties, props= of an address": (
        "api/test_pages::test_resources_are_chosen_by_values_of_properties",
        "browser/test_properties::test_nodes_are_chosen_by_values_of_properties_and_the_address_is_the_view",
        "browser/test_properties::test_properties_are_chosen_on_a_telephone_in_french",
    ),
    "1.1 Monika: addresses": ("api/test_pages::test_links_of_monika_lead_to_what_shows_the_same",),
    "1.2 DrawGantt: rows in a hierarchy, natural order": (
        "api/test_gantt::test_rows_are_in_the_order_in_which_people_count",
        "browser/test_gantt::test_rows_are_grouped_and_folded",
        "browser/test_gantt::test_beside_the_resources_stands_the_name_of_their_node",
    ),
    "1.2 DrawGantt: layers of states and of jobs, pop-ups": (
        "browser/test_gantt::test_times_out_of_use_are_told",
        "browser/test_gantt::test_past_present_and_future_are_pointed_at",
        "browser/test_gantt::test_a_card_beside_the_pointer_tells_what_is_there",
    ),
    "1.2 DrawGantt: addresses of both generations": (
        "api/test_pages::test_links_of_drawgantt_lead_to_what_they_showed",
        "api/test_pages::test_relative_dates_of_drawgantt_count_from_now",
        "api/test_pages::test_dates_of_the_first_drawgantt_are_understood",
    ),
    "2 one application below /ui/, without a build, below any path": (
        "browser/test_pages::test_pages_work_below_a_prefix",
        "unit/test_web::test_scripts_import_what_is_there_by_relative_path",
        "api/test_pages::test_the_first_page_is_found_without_its_slash",
    ),
    "2 templates of submissions in a file of the site": ("unit/test_site_file",),
    "2.1 each page is there": (
        "browser/test_pages::test_every_page_is_for_everybody",
        "browser/test_every_page::test_pages_of_administrators_do_so_too",
        "api/test_pages::test_what_is_wrong_is_a_page",
    ),
    "2.1 all state is in the address": (
        "browser/test_gantt::test_a_view_is_a_link",
        "browser/test_living::test_a_filter_stands_in_the_address",
    ),
    "2.1 jobs of a period, in the order of a column": (
        "api/test_reading::test_conditions_hold_together",
        "browser/test_living::test_the_list_of_jobs_is_sorted_and_the_address_says_so",
    ),
    "2.2 one stream for all tabs, which is caught up with": (
        "browser/test_living::test_two_tabs_share_one_stream",
        "browser/test_living::test_a_page_that_was_cut_off_catches_up",
        "browser/test_living::test_a_job_page_shows_the_new_state_of_its_job",
    ),
    "2.2 nothing jumps: new rows are announced": (
        "browser/test_living::test_new_jobs_are_announced_and_come_on_a_click",
    ),
    "2.2 the command palette": ("browser/test_living::test_a_job_is_found_by_keyboard",),
    "2.2 identity: cookie, token, log out": (
        "browser/test_acting::test_who_logs_out_is_nobody",
        "browser/test_acting::test_a_wrong_token_is_told",
        "browser/test_looking_ahead::test_who_is_nobody_is_led_to_the_login",
    ),
    "2.2 acts ask once, with what will happen": (
        "browser/test_acting::test_the_end_of_a_job_is_asked_for_once",
        "browser/test_acting::test_the_jobs_of_others_have_no_buttons",
        "browser/test_acting::test_an_owner_deletes_his_reservation",
    ),
    "2.2 the policy, no script in documents, nothing made of texts": (
        "api/test_pages::test_every_page_comes_with_its_policy",
        "unit/test_web::test_scripts_make_nothing_of_texts",
        "unit/test_web::test_documents_hold_no_script_and_no_style",
        "api/test_pages::test_names_are_text_in_the_first_view",
    ),
    "2.2 no filter of an address is SQL": ("api/test_hostile_clients::test_no_parameter_is_more_than_a_value",),
    "2.2 accessibility: axe-core in three looks, keyboard": (
        "browser/test_pages::test_every_page_is_for_everybody",
        "browser/test_gantt::test_the_diagram_is_walked_and_opened_by_keyboard",
        "browser/test_living::test_the_grid_is_walked_by_keyboard",
    ),
    "2.2 palettes for the three kinds of colour blindness": (
        "unit/test_web::test_conditions_are_told_apart_by_all_eyes",
        "unit/test_web::test_dark_is_the_same_by_choice_and_by_the_system",
    ),
    "2.2 language: English and French, no word left behind": (
        "unit/test_web::test_every_word_that_is_used_is_there_and_no_other",
        "unit/test_web::test_every_language_has_every_word_with_the_same_values",
        "unit/test_web::test_the_language_is_what_is_asked_or_preferred",
        "browser/test_pages::test_states_are_told_in_the_language_of_the_page_and_by_their_names_for_programs",
        "browser/test_pages::test_pages_speak_french",
    ),
    "2.2 print, and 360 px": (
        "browser/test_every_page::test_every_page_speaks_french_and_can_be_printed",
        "browser/test_pages::test_a_page_is_printed_without_its_controls",
        "browser/test_gantt::test_the_diagram_is_printed_as_vectors",
    ),
    "2.2 without scripts": (
        "browser/test_pages::test_every_page_can_be_read_without_scripts",
        "api/test_gantt_layers::test_days_and_former_plans_are_tables_for_readers_without_scripts",
    ),
    "2.2 budget of scripts, names that never change": (
        "unit/test_web::test_a_page_is_small",
        "unit/test_web::test_files_are_packed_and_their_address_changes_with_them",
        "api/test_pages::test_files_may_be_kept_for_ever_and_are_packed",
    ),
    "2.3 rows, chunks, index": (
        "api/test_gantt::test_a_day_holds_what_ended_on_it",
        "api/test_gantt::test_a_day_that_is_over_is_kept_for_ever_under_its_version",
        "api/test_gantt::test_a_day_that_is_over_is_read_once_also_by_a_service_that_starts_anew",
        "api/test_gantt::test_what_cannot_be_drawn_is_told",
    ),
    "2.3 live, with what changed since": (
        "api/test_gantt::test_only_what_has_changed_is_told_to_who_knows_the_rest",
        "browser/test_gantt::test_what_happens_is_drawn_as_it_happens",
        "browser/test_gantt::test_of_a_day_that_goes_on_only_what_has_ended_since_is_fetched",
    ),
    "2.3 density, where there is too much to be drawn": (
        "api/test_gantt_layers::test_density_tells_how_much_of_each_row_was_used",
        "api/test_gantt_layers::test_rows_are_joined_where_there_are_many",
        "browser/test_gantt_layers::test_days_of_too_many_jobs_are_shown_by_how_much_was_used",
        "api/test_gantt::test_a_curve_of_days_is_kept_for_longer_than_one_of_minutes",
    ),
    "2.3 wheel, drag, keys, areas, folding": (
        "browser/test_gantt::test_an_area_is_selected_by_keyboard",
        "browser/test_gantt::test_rows_are_grouped_and_folded",
        "browser/test_reserving::test_an_area_of_the_diagram_opens_the_form",
    ),
    "2.3 the strip of the whole period": (
        "browser/test_gantt::test_the_strip_above_the_diagram_tells_of_the_period_around_the_view_and_moves_it",
    ),
    "2.3 layers: remainders, reservations, dependencies": (
        "browser/test_gantt::test_a_running_job_is_drawn_up_to_now_and_its_rest_otherwise",
        "browser/test_reserving::test_reservations_are_bands_in_the_diagram",
        "browser/test_gantt::test_a_chosen_job_shows_what_it_depends_on_and_what_waits_for_it",
    ),
    "2.3 bands of quotas": (
        "api/test_gantt_layers::test_periods_of_quotas_are_told",
        "browser/test_gantt_layers::test_periods_of_quotas_stand_above_the_jobs",
    ),
    "2.3 colours by what is asked, legend with counts": (
        "browser/test_gantt::test_jobs_are_coloured_by_what_is_asked",
        "browser/test_gantt::test_jobs_are_chosen_and_listed",
    ),
    "2.3 tooltip with the reason": (
        "browser/test_gantt::test_the_card_of_a_planned_job_says_why_it_waits",
        "browser/test_gantt_layers::test_a_planned_job_says_in_words_for_what_it_waits",
    ),
    "2.3 where would it fit": ("browser/test_gantt::test_where_a_job_would_be_is_shown",),
    "2.3 history of plans": (
        "api/test_gantt_layers::test_what_was_planned_is_told_beside_what_came_of_it",
        "browser/test_gantt_layers::test_what_was_planned_is_laid_over_what_came_of_it",
        "browser/test_gantt_layers::test_all_layers_are_for_everybody",
    ),
    "2.3 export": (
        "browser/test_gantt::test_the_view_is_taken_away_as_vectors",
        "browser/test_gantt_layers::test_a_former_plan_is_taken_away_and_printed_as_it_is_seen",
    ),
    "2.4 counting rules": (
        "api/test_pages::test_the_dashboard_counts_what_the_grid_shows",
        "api/test_pages::test_a_resource_that_can_be_woken_is_not_absent_in_the_grid",
        "acceptance/test_old_programs",
    ),
    "2.4 many nodes": ("api/test_pages::test_the_first_view_of_many_nodes_comes_by_pages",),
    "5 stacked consumption, table, capacity": (
        "browser/test_looking_ahead::test_consumption_is_drawn_and_told",
        "api/test_overview::test_consumption_is_told_by_days_and_by_users",
    ),
    "5 fair share, term by term": ("api/test_overview::test_fair_share_is_told_term_by_term",),
    "5 how karma fades, who is ahead": (
        "api/test_overview::test_who_is_ahead_and_how_karma_fades_is_told",
        "browser/test_usage_page::test_fair_share_fades_and_those_ahead_are_named",
        "browser/test_usage_page::test_all_of_it_is_for_a_dark_telephone_in_french",
    ),
    "5 efficiency as a scatter": ("browser/test_usage_page::test_jobs_are_dots_by_what_they_used_of_what_they_had",),
    "5 energy, most suspected nodes": (
        "api/test_overview::test_nodes_that_were_lost_and_halted_are_told",
        "browser/test_usage_page::test_nodes_that_were_lost_are_told",
    ),
    "5 waiting times by size, over time, by hour of the week": (
        "api/test_overview::test_waiting_times_are_told_by_size_and_by_hour",
        "browser/test_looking_ahead::test_consumption_is_drawn_and_told",
    ),
    "5 privacy": ("api/test_overview::test_consumption_that_is_private_is_that_of_others",),
    "6.1 dashboard": (
        "browser/test_living::test_the_first_page_shows_how_busy_the_cluster_was_and_that_nobody_plans",
        "api/test_pages::test_the_dashboard_tells_who_waits_for_longest_and_when_the_scheduler_looked",
        "api/test_pages::test_nobody_has_no_jobs_on_the_dashboard",
    ),
    "6.1 which nodes are suspected, and since when": (
        "api/test_pages::test_nodes_that_are_out_of_use_are_told_with_since_when",
        "browser/test_living::test_who_knows_monika_and_drawgantt_finds_them",
    ),
    "6.1 rows by property, next free; alerts for disks and licences": (
        "api/test_groups::test_groups_tell_how_busy_each_value_is_and_when_one_is_free",
        "api/test_groups::test_resources_on_no_node_are_pools_by_type",
        "browser/test_properties::test_the_first_page_tells_what_of_a_property_is_free_and_when",
        "browser/test_properties::test_licences_of_which_none_is_free_are_told",
        "unit/test_disks::test_a_disk_with_little_left_is_told_once",
    ),
    "6.2 state grid": ("browser/test_living::test_the_grid_is_walked_by_keyboard",),
    "6.2 many nodes are drained by a selection in the grid": (
        "browser/test_maintenance::test_nodes_are_chosen_in_the_grid_by_keyboard_and_drained",
        "browser/test_maintenance::test_an_area_of_the_grid_is_chosen_with_the_mouse",
        "browser/test_maintenance::test_maintenance_names_the_jobs_that_it_ends",
        "browser/test_maintenance::test_who_is_no_administrator_chooses_no_nodes",
    ),
    "6.3 node, with a small Gantt": (
        "browser/test_gantt::test_a_node_tells_small_what_was_is_and_comes_there",
        "api/test_gantt_strip::test_what_a_node_did_does_and_will_do_is_told",
        "api/test_nodes::test_a_node_tells_the_last_thirty_days_if_nothing_else_is_asked",
        "browser/test_acting::test_an_administrator_drains_a_node_and_takes_it_away",
    ),
    "6.4 jobs: rows that others wait for, arrays": (
        "browser/test_looking_ahead::test_lists_name_the_jobs_that_others_wait_for",
        "browser/test_living::test_an_array_is_a_grid_that_follows_its_jobs",
        "browser/test_living::test_an_array_is_one_row_of_the_list_until_somebody_unfolds_it",
    ),
    "6.4 several jobs at once": (
        "browser/test_many_jobs::test_several_jobs_are_held_and_deleted_by_keyboard",
        "browser/test_many_jobs::test_of_each_job_it_is_told_what_came_of_it",
        "browser/test_many_jobs::test_the_jobs_of_others_are_not_chosen",
        "browser/test_many_jobs::test_jobs_are_chosen_on_a_telephone_in_french",
    ),
    "6.5 job: why it waits, what would let it start, output, usage, starts that were told": (
        "browser/test_looking_ahead::test_a_waiting_job_tells_what_would_let_it_start",
        "browser/test_looking_ahead::test_the_output_of_a_job_is_shown_as_it_is_written",
        "browser/test_acting::test_a_job_that_has_ended_tells_what_it_used_and_is_submitted_again",
    ),
    "6.5 forms for another walltime and for alteration": (
        "browser/test_changing_jobs::test_another_walltime_is_asked_for_by_keyboard",
        "browser/test_changing_jobs::test_what_the_site_does_not_allow_is_not_offered_and_is_refused_in_words",
        "browser/test_changing_jobs::test_where_walltimes_stay_the_page_says_so",
        "browser/test_changing_jobs::test_a_job_that_waits_is_altered",
        "browser/test_changing_jobs::test_a_job_goes_into_an_advance_reservation_and_out_of_it",
        "browser/test_changing_jobs::test_what_cannot_be_admitted_leaves_the_job_as_it_is",
        "browser/test_changing_jobs::test_others_and_other_states_have_no_forms",
    ),
    "6.7 submit: alternatives, former jobs, one job for a double click": (
        "browser/test_looking_ahead::test_alternatives_are_compared_before_one_is_submitted",
        "browser/test_looking_ahead::test_a_form_begins_with_a_former_job_and_tells_how_long_such_jobs_took",
        "browser/test_looking_ahead::test_a_request_that_cannot_be_is_told_in_a_sentence",
    ),
    "6.9 reservations: week, drag in it, form, changes": (
        "browser/test_reserving::test_a_time_of_the_calendar_is_dragged_over_to_reserve_it",
        "browser/test_reserving::test_a_time_of_the_calendar_is_chosen_by_keys",
        "browser/test_looking_ahead::test_a_reservation_is_found_in_its_week_and_opened",
        "browser/test_reserving::test_a_reservation_is_tried_while_it_is_typed_then_asked_for_and_changed",
        "browser/test_reserving::test_what_cannot_be_granted_says_when_it_could",
    ),
    "6.10 admin": (
        "browser/test_acting::test_administrators_see_how_the_installation_is",
        "browser/test_acting::test_an_administrator_stops_a_queue_and_starts_it",
        "browser/test_acting::test_an_administrator_reads_the_rules_and_disables_one",
        "browser/test_acting::test_who_is_no_administrator_has_no_buttons_there",
        "browser/test_acting::test_a_token_is_made_shown_once_and_revoked",
    ),
    "6.10 the reason of a drain": (
        "db/test_admin_commands::test_why_nodes_are_drained_or_maintained_stands_in_the_event_and_beside_them",
        "api/test_nodes::test_why_a_node_is_drained_stands_beside_it",
        "browser/test_maintenance::test_why_a_node_is_drained_is_told_on_its_page",
    ),
    "6.10 maintenance from a date on, tried before, with when nodes are empty": (
        "api/test_maintenance::test_jobs_that_end_before_are_cut_or_start_later_are_told",
        "api/test_maintenance::test_advance_reservations_in_the_way_are_told",
        "browser/test_maintenance::test_a_maintenance_to_come_is_tried_and_reserved",
    ),
    "7.1 no error, no violation of the policy, no other host": (
        "browser/test_pages::test_every_page_is_for_everybody",
        "browser/test_every_page::test_a_word_that_was_left_behind_is_found",
    ),
    "7.3 a change is seen, a service that was away is caught up with": (
        "browser/test_living::test_a_job_page_shows_the_new_state_of_its_job",
        "browser/test_living::test_a_page_that_was_cut_off_catches_up",
    ),
    "7.2 keyboard alone": ("browser/test_acting::test_a_job_is_held_and_resumed_by_keyboard",),
    "7.4 numbers are Monika's, rectangles DrawGantt's": ("acceptance/test_old_programs",),
    "7.6 pictures and structure of each page": (
        "browser/test_pictures::test_each_page_has_its_picture",
        "browser/test_pages::test_every_page_is_for_everybody",
    ),
    "7.7 hostile names": (
        "browser/test_living::test_what_users_name_is_text",
        "browser/test_gantt::test_names_of_jobs_are_text_in_the_diagram",
    ),
    "7.8 old links": (
        "api/test_pages::test_links_of_monika_lead_to_what_shows_the_same",
        "api/test_pages::test_links_of_drawgantt_lead_to_what_they_showed",
    ),
    "8 what is over and what runs is drawn once": (
        "api/test_gantt::test_what_goes_on_is_told_apart_from_what_is_planned",
    ),
}
#: What the specification says and is otherwise, or is not there, and why.
OTHERWISE: Mapping[str, str] = {
    "2 labels, hierarchy, filters and colours in web.yaml": "rows are of any property and colours of what tells eyes"
    " apart: nothing has to be configured before a page is useful; only templates are the site's",
    "2 as a plain directory behind another server with API_URL": "pages come from the service: identity, policy and"
    " the first view are its own; a proxy puts them anywhere",
    "2.3 tiles in steps of the square root of two, 600 of them": "140 tiles of the zoom in sight, the former ones"
    " beneath until they are painted",
    "2.3 density has what is planned, too": "jobs that run and are planned are always drawn one by one; density is of"
    " what ended, so that nothing is shown twice",
    "2.3 inertia of dragging": "a view that goes on by itself paints tiles that nobody looks at",
    "3 preact, htm, signals, uPlot": "an own module of 110 lines makes elements of values; charts are vectors; pages"
    " load a third of their budget, and nothing is vendored",
    "3 types checked by tsc": "npm would have to fetch it while the suite runs, and of its 250 findings none was a"
    " mistake: most are fields that Object.assign sets; a test sees that scripts import what is there, and a browser"
    " runs each page of them",
    "2.1, 6.1 medians of waits beside queues": "they differ more by the size of jobs than by the queue: the page of"
    " consumption has them by both",
    "2.2 columns, exports and a command of each list": "those of jobs have them; what nodes, queues and events tell has"
    " few columns, and programs take it from the API as lines",
    "2.1, 6.2 a filter of the site by its name": "values of properties are chosen, and the choice is a link",
    "6.1 how full the disks of other machines are": "the service sees its own: of the log, and of what it keeps",
    "6.4 rows come by scrolling": "pieces of 200 come by a button, which readers by keyboard reach; what is below the"
    " table stays reachable",
    "7.1 traces of failures": "what a page said wrong is in the error of the test",
}
#: What only tells why (3 is in OTHERWISE, 4 compares), and what others prove: 2.3 figures by the benches.
UNPROVED = {3, 4}
LAST = 8
NAMED = sorted(set(chain(*PAGES.values())))


@pytest.mark.parametrize("name", NAMED)
def test_a_named_test_exists(name: str) -> None:
    assert exists(name)


def test_each_section_is_proved() -> None:
    numbers = {int(title.split()[0].partition(".")[0]) for title in PAGES}
    assert numbers | UNPROVED == set(range(1, LAST + 1))
    assert all(PAGES.values())


def test_what_is_otherwise_has_a_reason() -> None:
    assert not OTHERWISE.keys() & PAGES.keys()
    assert all(reason for reason in OTHERWISE.values())
