"""The automaton: what runs after what, how often, and that nothing can starve."""

from collections.abc import Iterable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oar.lib.bus.messages import Tag
from oar.modules.automaton import (
    LANES,
    MODULE_OF_TAG,
    NEXT_MODULES,
    Automaton,
    Lane,
    Module,
    PassStart,
    Timing,
    result_of,
)

META, CHANGE, SARKO, LEON, FINAUD, GRETA = (
    Module.META_SCHED,
    Module.NODE_CHANGE_STATE,
    Module.SARKO,
    Module.LEON,
    Module.FINAUD,
    Module.GRETA,
)


def automaton(*, sarko: float = 30, finaud: float = 300, between_rounds: float = 0, quiet: bool = True) -> Automaton:
    """An automaton; if it is quiet, everything has just run at time 0."""
    result = Automaton(Timing(sarko, finaud, between_rounds))
    result.start()
    if quiet:
        settle(result, 0.0)
    return result


def settle(machine: Automaton, now: float) -> list[Module]:
    """Let everything that is due run to its end, in no time, without anything to do; return what ran."""
    ran: list[Module] = []
    while starts := machine.due(now):
        for start in starts:
            ran.append(start.module)
            machine.on_exit(start.module, 0, now)
    return ran


def in_a_round() -> Automaton:
    """An automaton whose meta-scheduler runs since 10, because of a submission."""
    machine = automaton()
    machine.on_tag(Tag.QSUB)
    machine.due(10.0)
    machine.on_exit(CHANGE, 0, 10.0)
    assert modules(machine.due(10.0)) == {META}
    return machine


def modules(starts: Iterable[PassStart]) -> set[Module]:
    return {start.module for start in starts}


# -- tables -----------------------------------------------------------------------------------------------------------


def test_each_tag_and_each_module_is_in_the_tables() -> None:
    assert set(MODULE_OF_TAG) == set(Tag)
    assert set(LANES) == set(Module)
    assert {module for module, _ in NEXT_MODULES} == set(Module)


def test_the_lanes_keep_rounds_kills_and_checks_apart() -> None:
    assert LANES == {
        META: Lane.SCHED,
        CHANGE: Lane.SCHED,
        SARKO: Lane.KILL,
        LEON: Lane.KILL,
        FINAUD: Lane.CHECK,
        GRETA: Lane.ENERGY,
    }


# -- start ------------------------------------------------------------------------------------------------------------


def test_at_the_start_everything_is_looked_at() -> None:
    machine = automaton(quiet=False)
    assert settle(machine, 0.0) == [CHANGE, SARKO, FINAUD, META]


def test_nodes_are_never_asked_if_the_period_is_0() -> None:
    machine = automaton(finaud=0, quiet=False)
    assert settle(machine, 0.0) == [CHANGE, SARKO, META]
    assert FINAUD not in settle(machine, 1e9)
    machine.on_tag(Tag.REACHABILITY)
    assert FINAUD not in settle(machine, 1e9)
    machine.on_tag(Tag.FINAUD)
    assert settle(machine, 1e9) == [FINAUD]


def test_a_comparison_of_reachability_has_a_shortest_interval_and_delays_no_regular_pass() -> None:
    machine = automaton(finaud=100)
    settle(machine, 10.0)
    machine.on_tag(Tag.REACHABILITY)
    assert FINAUD not in settle(machine, 29.0)
    assert machine.wait(29.0) <= 1.0
    assert PassStart(FINAUD, compare=True) in machine.due(30.0)
    machine.on_exit(FINAUD, None, 30.0)
    assert FINAUD not in settle(machine, 99.0)  # a failed comparison is not repeated
    machine.on_tag(Tag.REACHABILITY)
    assert PassStart(FINAUD) in machine.due(100.0)


def test_a_request_for_a_regular_pass_of_finaud_replaces_a_comparison_that_waits() -> None:
    machine = automaton(finaud=100)
    machine.on_tag(Tag.REACHABILITY)
    machine.on_tag(Tag.FINAUD)
    assert PassStart(FINAUD) in machine.due(1.0)


# -- what follows what ------------------------------------------------------------------------------------------------


def test_a_submission_asks_for_a_round_and_node_states_are_looked_at_first() -> None:
    machine = automaton()
    machine.on_tag(Tag.QSUB)
    assert machine.due(10.0) == [PassStart(CHANGE)]
    assert machine.due(10.0) == []
    machine.on_exit(CHANGE, 0, 10.0)
    assert machine.due(10.0) == [PassStart(META)]


def test_a_look_at_node_states_that_has_just_ended_serves_for_the_round() -> None:
    machine = automaton()
    machine.on_tag(Tag.CHSTATE)
    assert modules(machine.due(10.0)) == {CHANGE}
    machine.on_exit(CHANGE, 1, 10.1)
    assert modules(machine.due(10.1)) == {META}


def test_an_event_during_that_look_makes_another_one_necessary() -> None:
    machine = automaton()
    machine.on_tag(Tag.CHSTATE)
    machine.due(10.0)
    machine.on_tag(Tag.CHSTATE)
    machine.on_exit(CHANGE, 1, 10.1)
    assert modules(machine.due(10.1)) == {CHANGE}
    machine.on_exit(CHANGE, 0, 10.2)
    assert modules(machine.due(10.2)) == {META}


def test_a_kill_asked_for_by_node_states_runs_beside_the_round() -> None:
    machine = automaton()
    machine.on_tag(Tag.CHSTATE)
    machine.due(10.0)
    machine.on_exit(CHANGE, 2, 10.1)
    assert modules(machine.due(10.1)) == {META, LEON}


def test_a_round_that_must_kill_asks_leon_and_the_place_that_gets_free_is_planned() -> None:
    machine = in_a_round()
    machine.on_exit(META, 2, 10.0)
    assert modules(machine.due(10.0)) == {LEON}
    machine.on_exit(LEON, 1, 10.0)
    assert settle(machine, 10.0) == [CHANGE, META]


def test_a_round_that_must_be_repeated_is() -> None:
    machine = in_a_round()
    machine.on_exit(META, 1, 10.0)
    assert settle(machine, 10.0) == [CHANGE, META]


def test_a_passed_walltime_goes_to_leon_before_anything_else_in_its_lane() -> None:
    machine = automaton()
    machine.on_tag(Tag.VILLAINS)
    machine.due(10.0)
    machine.on_tag(Tag.VILLAINS)
    machine.on_exit(SARKO, 1, 10.0)
    assert modules(machine.due(10.0)) == {LEON}


def test_a_node_that_died_is_treated_and_then_jobs_are_scheduled() -> None:
    machine = automaton()
    machine.on_tag(Tag.FINAUD)
    machine.due(10.0)
    machine.on_exit(FINAUD, 1, 12.0)
    assert modules(machine.due(12.0)) == {CHANGE}
    machine.on_exit(CHANGE, 1, 12.0)
    assert modules(machine.due(12.0)) == {META}


def test_an_end_of_a_module_that_does_not_run_is_ignored() -> None:
    machine = automaton()
    machine.on_exit(SARKO, 1, 5.0)
    assert machine.due(5.0) == []


# -- bursts and lanes -------------------------------------------------------------------------------------------------


def test_a_thousand_submissions_cost_one_round() -> None:
    machine = automaton()
    for _ in range(1000):
        machine.on_tag(Tag.QSUB)
    assert settle(machine, 10.0) == [CHANGE, META]


def test_submissions_during_a_round_cost_one_more() -> None:
    machine = in_a_round()
    for _ in range(1000):
        machine.on_tag(Tag.QSUB)
    assert machine.due(11.0) == []
    machine.on_exit(META, 0, 11.0)
    assert settle(machine, 12.0).count(META) == 1


def passes_of_a_burst(machine: Automaton, *, pass_: float, round_: float) -> list[Module]:
    """What begins while a job ends every 10 ms, for 2 seconds; a pass and a round take so long."""
    begun: list[Module] = []
    over = 0.0
    for turn in range(200):
        now = 10 + turn / 100
        machine.on_tag(Tag.CHSTATE)
        machine.on_tag(Tag.TERM)
        running = machine.running[Lane.SCHED]
        if running is not None and now >= over:
            machine.on_exit(running, 0, now, starts=10)
        for module in modules(machine.due(now)) & {CHANGE, META}:
            begun.append(module)
            over = now + (round_ if module is META else pass_)
    return begun


@pytest.mark.parametrize(("round_", "passes"), [(0.02, 1), (0.05, 1), (0.1, 1), (0.2, 2)])
def test_a_burst_of_ends_costs_one_pass_for_each_round_or_each_quarter_of_a_second(round_: float, passes: int) -> None:
    begun = passes_of_a_burst(automaton(), pass_=0.02, round_=round_)
    assert begun.count(META) >= 4
    assert begun.count(CHANGE) <= passes * begun.count(META) + 1


def end_a_job(machine: Automaton) -> None:
    """Announce an end as the Runner does: its event, and the resources that become free when that is handled."""
    machine.on_tag(Tag.CHSTATE)
    machine.on_tag(Tag.BIPBIP)


def test_the_resources_of_a_job_that_ends_during_a_look_at_node_states_are_used_by_a_round_after_the_next_one() -> None:
    """Its request was served by a round that began before its event was handled: jobs then waited for a minute."""
    machine = automaton()
    end_a_job(machine)
    assert modules(machine.due(10.0)) == {CHANGE}
    end_a_job(machine)
    machine.on_exit(CHANGE, 0, 10.1)
    assert modules(machine.due(10.1)) == {META}
    machine.on_exit(META, 0, 10.2)
    assert [module for module in settle(machine, 10.4) if module in (CHANGE, META)] == [CHANGE, META]
    assert META not in settle(machine, 11.0)


def test_the_end_of_a_single_job_costs_one_round() -> None:
    """The move to its final state asks for a further look at node states, but not for a round."""
    machine = automaton()
    end_a_job(machine)
    assert modules(machine.due(10.0)) == {CHANGE}
    machine.on_tag(Tag.CHSTATE)
    machine.on_exit(CHANGE, 0, 10.1)
    assert settle(machine, 10.1).count(META) == 1
    assert META not in settle(machine, 11.0)


def test_after_failures_of_node_change_state_a_round_uses_what_it_frees() -> None:
    machine = automaton()
    end_a_job(machine)
    machine.due(10.0)
    end_a_job(machine)
    machine.on_exit(CHANGE, None, 10.1)  # it failed, and is tried again after a second
    assert modules(machine.due(10.1)) == {META}
    machine.on_exit(META, 0, 10.1)
    assert settle(machine, 10.5) == []
    assert [module for module in settle(machine, 11.2) if module in (CHANGE, META)] == [CHANGE, META]


def test_while_rounds_have_a_long_pause_ends_wait_a_quarter_of_a_second_for_a_pass() -> None:
    begun = passes_of_a_burst(automaton(between_rounds=60), pass_=0.02, round_=0.1)
    assert META not in begun
    assert 6 <= begun.count(CHANGE) <= 8


def test_an_end_that_is_alone_waits_for_no_round() -> None:
    machine = automaton()
    run_round(machine, 10.0, 13.0)
    machine.on_tag(Tag.CHSTATE)
    machine.on_tag(Tag.TERM)
    assert modules(machine.due(13.1)) == {CHANGE}


def test_a_long_round_and_a_long_check_delay_no_kill() -> None:
    machine = automaton()
    machine.on_tag(Tag.QSUB)
    machine.on_tag(Tag.FINAUD)
    machine.due(10.0)
    machine.on_exit(CHANGE, 0, 10.0)
    assert modules(machine.due(10.0)) == {META}
    machine.on_tag(Tag.QDEL)
    assert modules(machine.due(10.1)) == {LEON}


# -- distances and periods --------------------------------------------------------------------------------------------


def run_round(machine: Automaton, begin: float, end: float) -> None:
    machine.on_tag(Tag.QSUB)
    for start in machine.due(begin):
        machine.on_exit(start.module, 0, begin)
    assert modules(machine.due(begin)) == {META}
    machine.on_exit(META, 0, end)


@pytest.mark.parametrize(("duration", "pause"), [(0.2, 0.2), (3.0, 3.0), (20.0, 5.0)])
def test_a_round_is_followed_by_a_pause_as_long_as_it_was_but_not_above_five_seconds(
    duration: float, pause: float
) -> None:
    machine = automaton(sarko=1000)
    run_round(machine, 10.0, 10.0 + duration)
    machine.on_tag(Tag.QSUB)
    end = 10.0 + duration
    assert machine.due(end) == []
    assert machine.wait(end) == pytest.approx(pause)
    assert modules(machine.due(end + pause)) == {CHANGE}


@pytest.mark.parametrize(("starts", "pause"), [(0, 0.01), (2, 0.01), (3, 0.05), (100, 0.05)])
def test_behind_a_round_that_has_started_several_jobs_is_a_pause(starts: int, pause: float) -> None:
    machine = in_a_round()
    machine.on_exit(META, 0, 10.01, None, starts)
    machine.on_tag(Tag.QSUB)
    assert modules(machine.due(10.01 + 0.9 * pause)) == set()
    assert modules(machine.due(10.01 + 1.1 * pause)) == {CHANGE}


def test_the_first_round_after_a_quiet_time_starts_at_once() -> None:
    machine = automaton(sarko=1000)
    run_round(machine, 10.0, 13.0)
    machine.on_tag(Tag.QSUB)
    assert modules(machine.due(20.0)) == {CHANGE}


def test_a_fixed_distance_is_kept_from_start_to_start() -> None:
    machine = automaton(sarko=1000, between_rounds=5)
    run_round(machine, 10.0, 11.0)
    machine.on_tag(Tag.QSUB)
    assert machine.due(14.9) == []
    assert modules(machine.due(15.0)) == {CHANGE}


def test_a_round_that_waits_for_its_time_does_not_keep_node_states_waiting() -> None:
    machine = automaton(sarko=1000, between_rounds=50)
    run_round(machine, 50.0, 51.0)
    machine.on_tag(Tag.QSUB)
    machine.on_tag(Tag.CHSTATE)
    assert modules(machine.due(52.0)) == {CHANGE}
    machine.on_exit(CHANGE, 0, 52.0)
    assert machine.due(52.0) == []


def test_without_any_message_there_is_a_round_each_minute() -> None:
    machine = automaton(sarko=1000, finaud=0)
    assert machine.due(59.9) == []
    assert machine.wait(50.0) == pytest.approx(10.0)
    assert settle(machine, 60.0) == [CHANGE, META]


def test_sarko_and_finaud_have_their_periods() -> None:
    machine = automaton(sarko=30, finaud=45)
    assert machine.due(29.9) == []
    assert settle(machine, 30.0) == [SARKO]
    assert settle(machine, 45.0) == [FINAUD]
    assert SARKO in settle(machine, 60.0)


def test_sarko_runs_at_the_date_that_it_has_told() -> None:
    machine = automaton()
    machine.on_tag(Tag.VILLAINS)
    machine.due(1.0)
    machine.on_exit(SARKO, 0, 1.0, hint=12.5)
    assert machine.wait(2.0) == pytest.approx(10.5)
    assert machine.due(12.4) == []
    assert modules(machine.due(12.5)) == {SARKO}
    machine.on_exit(SARKO, 0, 12.6, hint=None)
    assert machine.wait(12.6) == pytest.approx(29.9)


def test_sarko_runs_at_a_date_of_which_it_could_not_know() -> None:
    machine = automaton()
    machine.on_deadline(12.5)
    assert SARKO not in modules(machine.due(12.4))
    assert SARKO in modules(machine.due(12.5))


def test_a_date_that_is_told_while_sarko_looks_is_not_forgotten() -> None:
    machine = automaton()
    machine.on_tag(Tag.VILLAINS)
    assert SARKO in modules(machine.due(5.0))
    machine.on_deadline(9.0)
    machine.on_exit(SARKO, 0, 6.0, hint=20.0)
    assert SARKO not in modules(machine.due(8.9))
    assert SARKO in modules(machine.due(9.0))


def test_a_date_in_the_past_does_not_make_sarko_run_all_the_time() -> None:
    machine = automaton()
    machine.on_tag(Tag.VILLAINS)
    machine.due(10.0)
    machine.on_exit(SARKO, 0, 10.0, hint=3.0)
    assert machine.due(10.5) == []
    assert modules(machine.due(11.0)) == {SARKO}


def test_a_round_is_made_when_the_next_job_is_to_start() -> None:
    machine = automaton()
    machine.on_tag(Tag.SCHEDULING)
    machine.due(2.0)
    machine.on_exit(CHANGE, 0, 2.0)
    assert modules(machine.due(2.0)) == {META}
    machine.on_exit(META, 0, 2.0, hint=12.5)
    assert machine.wait(2.0) == pytest.approx(10.5)
    assert settle(machine, 12.4) == []
    assert settle(machine, 12.5) == [CHANGE, META]
    assert settle(machine, 20.0) == []


# -- failures ---------------------------------------------------------------------------------------------------------


def test_a_module_that_fails_is_tried_again_later_and_later() -> None:
    machine = automaton(sarko=1e9, finaud=0)
    machine.on_tag(Tag.QDEL)
    now = 1.0
    pauses: list[float] = []
    while len(pauses) < 8:
        assert LEON in modules(machine.due(now))
        machine.on_exit(LEON, None, now)
        failed = now
        while LEON not in machine.queues[Lane.KILL] or not machine._may_start(LEON, now):
            settle_others(machine, now)
            now += machine.wait(now)
        pauses.append(now - failed)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]


def settle_others(machine: Automaton, now: float) -> None:
    """Let what is due besides Leon run to its end."""
    assert LEON not in settle(machine, now)


def test_an_exit_code_that_is_not_documented_is_a_failure() -> None:
    machine = automaton()
    machine.on_tag(Tag.VILLAINS)
    machine.due(1.0)
    machine.on_exit(SARKO, 77, 1.0)
    assert machine.records[SARKO].failures == 1
    assert machine.due(1.5) == []
    assert modules(machine.due(2.0)) == {SARKO}


def test_an_end_is_told_in_words() -> None:
    assert result_of(META, 0) == result_of(FINAUD, 0) == "nothing more to do"
    assert result_of(CHANGE, 2) == "wants leon, meta_sched"
    assert result_of(META, 7) == result_of(SARKO, None) == "failed"


def test_a_success_ends_the_pauses() -> None:
    machine = automaton()
    machine.on_tag(Tag.VILLAINS)
    machine.due(1.0)
    machine.on_exit(SARKO, None, 1.0)
    machine.due(2.0)
    machine.on_exit(SARKO, 0, 2.0)
    assert machine.records[SARKO].failures_in_a_row == 0
    assert machine.records[SARKO].failures == 1


def test_rounds_go_on_while_node_change_state_fails() -> None:
    machine = automaton()
    machine.on_tag(Tag.QSUB)
    assert modules(machine.due(10.0)) == {CHANGE}
    machine.on_exit(CHANGE, None, 10.0)
    assert modules(machine.due(10.0)) == {META}


def fail_round(machine: Automaton, now: float, queues: tuple[str, ...]) -> PassStart:
    """Begin the next round, let it reach the queues and fail; return how it was started."""
    while True:
        machine.on_tag(Tag.QSUB)
        for start in machine.due(now):
            if start.module is META:
                machine.at(queues)
                machine.on_exit(META, None, now)
                return start
            machine.on_exit(start.module, 0, now)
        now += 1.0


def test_after_five_failures_in_a_row_at_the_same_queues_they_are_stopped() -> None:
    machine = automaton()
    starts = [fail_round(machine, 100.0 * number, ("batch",)) for number in range(1, 7)]
    assert [start.disable for start in starts] == [()] * 5 + [("batch",)]
    machine.on_tag(Tag.QSUB)
    settle(machine, 1000.0)
    assert machine.disable == ()


def test_failures_at_different_queues_stop_none() -> None:
    machine = automaton()
    groups = [("a",), ("b",)] * 5
    starts = [fail_round(machine, 100.0 * number, group) for number, group in enumerate(groups, 1)]
    assert {start.disable for start in starts} == {()}


# -- nothing starves --------------------------------------------------------------------------------------------------

events = st.lists(
    st.one_of(
        st.tuples(st.just("tag"), st.sampled_from(list(Tag))),
        st.tuples(st.just("end"), st.sampled_from([0, 1, 2])),
        st.tuples(st.just("time"), st.sampled_from([0.0, 0.1, 1.0, 7.0])),
    ),
    max_size=120,
)


def test_rounds_that_end_jobs_one_after_another_do_not_keep_sarko_from_its_pass() -> None:
    machine = automaton()
    machine.on_tag(Tag.QDEL)
    assert Module.LEON in {start.module for start in machine.due(1.0)}
    machine.on_tag(Tag.VILLAINS)
    begun: list[Module] = []
    for _ in range(3):
        machine._enqueue_first(Module.LEON)
        machine.on_exit(machine.running[Lane.KILL] or Module.LEON, 0, 2.0)
        begun += [start.module for start in machine.due(2.0) if LANES[start.module] is Lane.KILL]
    assert begun == [Module.LEON, Module.SARKO, Module.LEON]


@example(
    [("tag", Tag.QSUB), ("tag", Tag.VILLAINS), *[("end", code) for code in (0, 0, 1)], ("tag", Tag.QSUB)]
    + [("end", code) for code in (0, 2, 1, 0, 2, 0)]
)
@given(events)
def test_a_wanted_module_starts_after_at_most_as_many_others_as_its_lane_has_modules(
    story: list[tuple[str, Tag | int | float]],
) -> None:
    machine = Automaton(Timing(30, 300, 0))
    machine.start()
    now = 0.0
    others: dict[Module, int] = {}
    for kind, value in story:
        if kind == "tag":
            assert isinstance(value, Tag)
            machine.on_tag(value)
        elif kind == "time":
            now += float(value)
        else:
            for lane in Lane:
                running = machine.running[lane]
                if running is not None:
                    code = int(value) if (running, int(value)) in NEXT_MODULES else 0
                    machine.on_exit(running, code, now)
                    break
        for queue in machine.queues.values():
            for module in queue:
                others.setdefault(module, 0)
        started = machine.due(now)
        assert len({LANES[start.module] for start in started}) == len(started)
        for start in started:
            lane = LANES[start.module]
            others.pop(start.module, None)
            for module in machine.queues[lane]:
                if machine._may_start(module, now):
                    others[module] = others.get(module, 0) + 1
        for module, count in others.items():
            assert count <= sum(1 for other in Module if LANES[other] is LANES[module])


@given(events)
def test_there_is_always_a_time_to_look_again_and_never_a_busy_loop(story: list[tuple[str, Tag | int | float]]) -> None:
    machine = Automaton(Timing(30, 300, 0))
    machine.start()
    now = 0.0
    for kind, value in story:
        if kind == "tag":
            assert isinstance(value, Tag)
            machine.on_tag(value)
        elif kind == "time":
            now += float(value)
        else:
            running = next((module for module in machine.running.values() if module), None)
            if running is not None:
                code = int(value) if (running, int(value)) in NEXT_MODULES else None
                machine.on_exit(running, code, now)
        machine.due(now)
        assert machine.due(now) == []
        wait = machine.wait(now)
        assert 0 < wait <= 300


# -- Greta ------------------------------------------------------------------------------------------------------------


def with_greta() -> Automaton:
    """An automaton with Greta, for which everything has just run at time 0."""
    result = Automaton(Timing(1e9, 0, 0, has_greta=True))
    result.start()
    assert GRETA in settle(result, 0.0)
    return result


def test_without_energy_saving_greta_never_runs() -> None:
    machine = automaton(quiet=False)
    machine.on_energy()
    assert GRETA not in settle(machine, 0.0)
    assert GRETA not in settle(machine, 1000.0)


def test_greta_runs_when_asked_at_her_hint_and_each_minute() -> None:
    machine = with_greta()
    assert GRETA not in modules(machine.due(10.0))
    machine.on_energy()
    machine.on_energy()
    assert GRETA in modules(machine.due(10.0))
    machine.on_exit(GRETA, 0, 10.0, hint=30.0)
    settle(machine, 10.0)
    assert machine.wait(10.0) <= 20.0
    assert GRETA not in modules(machine.due(29.0))
    assert GRETA in modules(machine.due(30.0))
    machine.on_exit(GRETA, 0, 30.0)
    assert GRETA not in modules(machine.due(89.0))
    assert GRETA in modules(machine.due(90.0))


def test_greta_stops_when_energy_saving_is_switched_off() -> None:
    machine = with_greta()
    machine.on_energy()
    machine.follow(Timing(1e9, 0, 0))
    assert GRETA not in modules(machine.due(10.0))
    assert machine.wait(10.0) > 0
    machine.follow(Timing(1e9, 0, 0, has_greta=True))
    assert GRETA in modules(machine.due(11.0))
