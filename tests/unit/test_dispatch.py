"""Which action of the Runner begins when: oar/modules/runner/dispatch.py."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oar.lib.jobs.sql_runs import InHand
from oar.lib.jobs.states import JobState, Phase
from oar.modules.runner import bipbip_pipe
from oar.modules.runner.dispatch import (
    AR_EVENTS_AT_A_TIME,
    LIMITED,
    MOST_SUSPECTS,
    TELLS_AT_A_TIME,
    TELLS_OF_A_USER,
    Action,
    ActionKind,
    Dispatch,
    host_action,
    next_action,
)

ONE = InHand(42, JobState.TO_LAUNCH, None, "n1", 0, 100)


def begun(dispatch: Dispatch, now: float = 0.0) -> list[Action]:
    return [action for _, action in dispatch.due(now)]


def test_an_action_asked_twice_is_done_once() -> None:
    dispatch = Dispatch(limit=25, workers=2)
    dispatch.add(Action(ActionKind.LAUNCH, 1, "n1"))
    dispatch.add(Action(ActionKind.LAUNCH, 1, "n1"))
    assert begun(dispatch) == [Action(ActionKind.LAUNCH, 1, "n1")]
    assert begun(dispatch) == []


def test_ends_come_before_launches_and_share_their_limit() -> None:
    dispatch = Dispatch(limit=2, workers=1)
    for job in (1, 2, 3):
        dispatch.add(Action(ActionKind.LAUNCH, job))
    dispatch.add(Action(ActionKind.END, 4))
    assert begun(dispatch) == [Action(ActionKind.END, 4), Action(ActionKind.LAUNCH, 1)]
    dispatch.finish(Action(ActionKind.END, 4), now=1.0)
    assert begun(dispatch, 1.0) == [Action(ActionKind.LAUNCH, 2)]


def in_turn(dispatch: Dispatch, turns: int) -> list[ActionKind]:
    """The kinds of what begins, where each action ends before the next turn."""
    kinds = []
    for now in range(turns):
        for action in begun(dispatch, now):
            kinds.append(action.kind)
            dispatch.finish(action, now)
    return kinds


@pytest.mark.parametrize("first", LIMITED)
def test_of_a_burst_of_ends_and_one_of_launches_none_keeps_the_other_waiting(first: ActionKind) -> None:
    dispatch = Dispatch(limit=10, workers=2)
    second = next(kind for kind in LIMITED if kind is not first)
    for job in range(1000):
        dispatch.add(Action(first, job))
    for job in range(1000, 1500):
        dispatch.add(Action(second, job))
    number = {ActionKind.END: 3, ActionKind.LAUNCH: 7}[second]
    assert [action.job_id for action in begun(dispatch) if action.kind is second] == list(range(1000, 1000 + number))
    assert begun(dispatch) == []
    for action in [action for action in dispatch.running if action.kind is second]:
        dispatch.finish(action, now=1.0)
        assert [action.kind for action in begun(dispatch, 1.0)] == [second]


def ends_begun_before_launches(dispatch: Dispatch, jobs: int, launches: int) -> int:
    """Of a full cluster on which all jobs end: how many ends have begun when so many launches are done.

    An end lasts two turns, a launch four; each end makes room for one launch.
    """
    for job in range(jobs):
        dispatch.add(Action(ActionKind.END, job))
    over: dict[int, list[Action]] = {}
    counts = dict.fromkeys(LIMITED, 0)
    turn = done = 0
    while done < launches:
        for action in over.pop(turn, ()):
            dispatch.finish(action, turn)
            if action.kind is ActionKind.END:
                dispatch.add(Action(ActionKind.LAUNCH, jobs + action.job_id))
            done += action.kind is ActionKind.LAUNCH
        for action in begun(dispatch, turn):
            counts[action.kind] += 1
            over.setdefault(turn + (2 if action.kind is ActionKind.END else 4), []).append(action)
        turn += 1
    return counts[ActionKind.END]


@pytest.mark.parametrize("limit", [5, 10, 25, 100])
def test_half_of_the_cores_are_in_use_again_when_few_more_jobs_than_these_have_ended(limit: int) -> None:
    assert ends_begun_before_launches(Dispatch(limit, workers=2), 1000, 500) <= 500 + 2 * limit


def test_what_one_kind_does_not_need_is_for_the_other() -> None:
    dispatch = Dispatch(limit=10, workers=2)
    for job in range(100):
        dispatch.add(Action(ActionKind.END, job))
    assert len(begun(dispatch)) == 10
    dispatch.add(Action(ActionKind.LAUNCH, 200))
    ended = dispatch.running[0]
    dispatch.finish(ended, now=1.0)
    assert begun(dispatch, 1.0) == [Action(ActionKind.LAUNCH, 200)]
    dispatch.finish(Action(ActionKind.LAUNCH, 200), now=2.0)
    assert [action.kind for action in begun(dispatch, 2.0)] == [ActionKind.END]


def test_where_only_one_action_may_run_the_older_one_goes_first() -> None:
    dispatch = Dispatch(limit=1, workers=1)
    for job in range(1, 7):
        dispatch.add(Action(ActionKind.END if job % 3 else ActionKind.LAUNCH, job))
    ends, launch = [ActionKind.END] * 2, [ActionKind.LAUNCH]
    assert in_turn(dispatch, 6) == [*ends, *launch, *ends, *launch]


def test_a_launch_that_waits_for_a_kill_of_its_job_leaves_its_place_to_another() -> None:
    dispatch = Dispatch(limit=2, workers=1)
    for kind, job in ((ActionKind.END, 1), (ActionKind.LAUNCH, 2), (ActionKind.LAUNCH, 3), (ActionKind.KILL, 2)):
        dispatch.add(Action(kind, job))
    kinds = [(action.kind, action.job_id) for action in begun(dispatch)]
    assert kinds == [(ActionKind.END, 1), (ActionKind.KILL, 2), (ActionKind.LAUNCH, 3)]


def test_kills_do_not_wait_for_the_limit_but_for_the_job() -> None:
    dispatch = Dispatch(limit=1, workers=1)
    dispatch.add(Action(ActionKind.LAUNCH, 1))
    assert begun(dispatch) == [Action(ActionKind.LAUNCH, 1)]
    dispatch.add(Action(ActionKind.KILL, 1))
    dispatch.add(Action(ActionKind.KILL, 2))
    assert dispatch.interrupted_by(Action(ActionKind.KILL, 1)) == [
        (dispatch.worker_of(Action(ActionKind.LAUNCH, 1)), Action(ActionKind.LAUNCH, 1))
    ]
    assert begun(dispatch) == [Action(ActionKind.KILL, 2)]
    dispatch.finish(Action(ActionKind.LAUNCH, 1), now=1.0)
    assert begun(dispatch, 1.0) == [Action(ActionKind.KILL, 1)]


def test_commands_of_one_user_that_do_not_end_hold_up_neither_kills_nor_commands_of_others() -> None:
    dispatch = Dispatch(limit=1, workers=1)
    alices = [Action(ActionKind.NOTICE, job, args=("alice", "frontend")) for job in range(100)]
    for action in alices:
        dispatch.add(action)
    assert begun(dispatch) == alices[:4]
    bobs, kill = Action(ActionKind.NOTICE, 200, args=("bob", "frontend")), Action(ActionKind.KILL, 1)
    dispatch.add(bobs)
    dispatch.add(kill)
    assert begun(dispatch) == [bobs, kill]
    dispatch.finish(alices[0], now=1.0)
    assert begun(dispatch, 1.0) == [alices[4]]


def test_oarsubs_that_cannot_be_told_hold_up_no_kill() -> None:
    dispatch = Dispatch(limit=1, workers=1)
    for job in range(1, 1000):
        dispatch.add(Action(ActionKind.TELL, job, args=("Start prediction: soon",)))
    assert len(begun(dispatch)) == TELLS_AT_A_TIME
    dispatch.add(Action(ActionKind.KILL, 1000))
    assert begun(dispatch) == [Action(ActionKind.KILL, 1000)]


def test_oarsubs_of_one_user_that_do_not_listen_leave_places_for_those_of_others() -> None:
    dispatch = Dispatch(10, 4)
    for job in range(1, 100):
        dispatch.add(Action(ActionKind.TELL, job, args=("soon",), user="eve"))
    assert len(begun(dispatch)) == TELLS_OF_A_USER
    good = Action(ActionKind.TELL, 200, args=("GOOD JOB",), user="alice")
    dispatch.add(good)
    assert begun(dispatch) == [good]


def test_commands_of_one_user_do_not_pile_up_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oar.modules.runner.dispatch.NOTICES_WAITING", 50)
    dispatch = Dispatch(limit=1, workers=1)
    taken = [dispatch.add(Action(ActionKind.NOTICE, job, args=("alice",))) for job in range(51)]
    assert taken == [True] * 50 + [False]
    assert dispatch.add(Action(ActionKind.NOTICE, 1, args=("bob",)))


def test_scripts_for_advance_reservations_that_hang_hold_up_no_kill_and_keep_their_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("oar.modules.runner.dispatch.NOTICES_WAITING", 50)
    dispatch = Dispatch(limit=1, workers=1)
    events = [Action(ActionKind.AR_EVENT, frame, args=(str(line),)) for line in range(2) for frame in range(1, 100)]
    for event in events:
        dispatch.add(event)
    assert begun(dispatch) == events[:AR_EVENTS_AT_A_TIME]
    dispatch.add(Action(ActionKind.KILL, 1))
    assert begun(dispatch) == [Action(ActionKind.KILL, 1)]
    more = [dispatch.add(Action(ActionKind.AR_EVENT, 1, args=(str(line),))) for line in range(2, 52)]
    assert (more[0], more[-1]) == (True, False)


def test_lines_for_oarsub_do_not_wait_for_the_launch_and_keep_their_order() -> None:
    dispatch = Dispatch(limit=1, workers=1)
    dispatch.add(Action(ActionKind.LAUNCH, 1))
    first, second = Action(ActionKind.TELL, 1, args=("Starting...",)), Action(ActionKind.TELL, 1, args=("GOOD JOB",))
    dispatch.add(first)
    dispatch.add(second)
    assert begun(dispatch) == [first, Action(ActionKind.LAUNCH, 1)]
    dispatch.finish(first, now=1.0)
    assert begun(dispatch, 1.0) == [second]


def test_notices_that_are_equal_keep_their_place_among_the_others() -> None:
    dispatch = Dispatch(limit=1, workers=1)
    running, suspended = (Action(ActionKind.NOTICE, 1, args=("alice", tag)) for tag in ("RUNNING", "SUSPENDED"))
    told = []
    assert dispatch.due(0) == []
    dispatch.add(running)
    ((_, sent),) = dispatch.due(0)
    for notice in (suspended, running, Action(ActionKind.NOTICE, 1, args=("alice", "ERROR"))):
        dispatch.add(notice)
    for _ in range(3):
        dispatch.finish(sent, 0)
        ((_, sent),) = dispatch.due(0)
        told.append(sent.args[1])
    assert told == ["SUSPENDED", "RUNNING", "ERROR"]


def test_what_breaks_off_is_tried_again_after_longer_and_longer_pauses() -> None:
    dispatch = Dispatch(limit=1, workers=1)
    action = Action(ActionKind.END, 1)
    dispatch.add(action)
    now, pauses = 0.0, []
    for _ in range(9):
        assert begun(dispatch, now) == [action]
        dispatch.fail(action, now)
        due = dispatch.next_due()
        assert due is not None
        assert begun(dispatch, due - 0.5) == []
        pauses.append(due - now)
        now = due
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_of_many_actions_that_break_off_together_none_is_suspected() -> None:
    """A bipbip that dies takes all its actions along; a job must not be given up for what others did."""
    dispatch = Dispatch(limit=25, workers=1)
    for job in range(1, MOST_SUSPECTS + 2):
        dispatch.add(Action(ActionKind.LAUNCH, job))
    actions = begun(dispatch, 0)
    assert dispatch.suspects(0, 1800, 1) == set()
    dispatch.finish(actions[0], 1)
    assert dispatch.suspects(0, 1800, 1) == set(actions[1:])
    assert dispatch.suspects(1, 1800, 1) == set()


def test_a_bipbip_that_is_killed_for_an_action_makes_only_this_one_fail() -> None:
    dispatch = Dispatch(limit=25, workers=1)
    slow, other = Action(ActionKind.LAUNCH, 1), Action(ActionKind.LAUNCH, 2)
    dispatch.add(slow)
    begun(dispatch, 0)
    dispatch.add(other)
    begun(dispatch, 1000)
    assert dispatch.suspects(0, 1800, 1900) == {slow}


def test_what_breaks_off_without_a_fault_of_its_own_pauses_but_is_not_counted() -> None:
    dispatch = Dispatch(limit=1, workers=1)
    action = Action(ActionKind.END, 1)
    dispatch.add(action)
    now = 0.0
    for pause in (1, 2, 4):
        begun(dispatch, now)
        assert dispatch.fail(action, now, counts=False) == 0
        assert dispatch.next_due() == now + pause
        now += pause
    begun(dispatch, now)
    assert dispatch.fail(action, now) == 1


def test_a_kill_asked_again_while_it_is_done_is_done_again() -> None:
    dispatch = Dispatch(limit=1, workers=1)
    kill = Action(ActionKind.KILL, 1)
    dispatch.add(kill)
    begun(dispatch)
    dispatch.add(kill)
    dispatch.finish(kill, now=1.0)
    assert begun(dispatch, 1.0) == [kill]


def test_a_job_that_ends_is_not_kept_waiting_by_its_kills() -> None:
    dispatch = Dispatch(limit=1, workers=1)
    kill, end = Action(ActionKind.KILL, 1), Action(ActionKind.END, 1)
    dispatch.add(kill)
    begun(dispatch)
    dispatch.add(end)
    dispatch.add(kill)
    dispatch.finish(kill, now=1.0)
    assert begun(dispatch, 1.0) == [end]


def test_a_host_has_always_the_same_bipbip() -> None:
    dispatch = Dispatch(limit=100, workers=3)
    for job in range(20):
        dispatch.add(Action(ActionKind.LAUNCH, job + 1, "n7"))
    assert len({worker for worker, _ in dispatch.due(0.0)}) == 1


def test_jobs_that_have_ended_are_forgotten_but_not_what_is_to_be_said_of_them() -> None:
    dispatch = Dispatch(limit=1, workers=1)
    line = Action(ActionKind.TELL, 1, args=("JOB KILLED",))
    for action in (Action(ActionKind.KILL, 1), line, host_action(ActionKind.SWEEP, "n1")):
        dispatch.add(action)
    dispatch.forget_jobs([2])
    assert set(begun(dispatch)) == {line, host_action(ActionKind.SWEEP, "n1")}


@pytest.mark.parametrize(
    ("one", "kind"),
    [
        (ONE, ActionKind.LAUNCH),
        (ONE._replace(state=JobState.LAUNCHING, phase=Phase.CLAIMED), ActionKind.LAUNCH),
        (ONE._replace(state=JobState.LAUNCHING, phase=Phase.EXEC_SENT), ActionKind.LAUNCH),
        (ONE._replace(state=JobState.LAUNCHING, phase=Phase.FAILED), None),
        (ONE._replace(state=JobState.LAUNCHING, phase=Phase.REPORTED, report_date=9), ActionKind.END),
        (ONE._replace(state=JobState.RUNNING, phase=Phase.GO), ActionKind.LAUNCH),
        (ONE._replace(state=JobState.RUNNING, phase=Phase.STARTED), None),
        (ONE._replace(state=JobState.RUNNING, phase=Phase.STARTED, updated=10), ActionKind.PROBE),
        (ONE._replace(state=JobState.RUNNING, phase=Phase.REPORTED, report_date=9), ActionKind.END),
        (ONE._replace(state=JobState.SUSPENDED, phase=Phase.STARTED, updated=10), ActionKind.PROBE),
        (ONE._replace(state=JobState.FINISHING, phase=None), ActionKind.END),
        (ONE._replace(state=JobState.FINISHING, phase=Phase.EXTERMINATE), ActionKind.END),
        (ONE._replace(state=JobState.FINISHING, phase=Phase.CLEANED, report_date=9), None),
        (ONE._replace(state=JobState.TO_ACK_RESERVATION), ActionKind.TELL),
    ],
    ids=lambda value: f"{value.state}-{value.phase}" if isinstance(value, InHand) else str(value),
)
def test_what_is_to_be_done_follows_from_state_and_phase(one: InHand, kind: ActionKind | None) -> None:
    action = next_action(one, probe_before=50)
    assert (action.kind if action else None) is kind


@pytest.mark.parametrize(("told", "kind"), [(50, None), (49, ActionKind.LAUNCH)])
def test_a_node_is_asked_for_a_start_that_should_be_stored_by_now(told: int, kind: ActionKind | None) -> None:
    one = ONE._replace(state=JobState.RUNNING, phase=Phase.GO, updated=told)
    action = next_action(one, probe_before=0, started_before=50)
    assert (action.kind if action else None) is kind


@given(st.lists(st.tuples(st.sampled_from(ActionKind), st.integers(1, 5)), max_size=40), st.integers(1, 4))
def test_no_two_actions_work_on_one_job_and_the_limit_holds(asked: list[tuple[ActionKind, int]], limit: int) -> None:
    dispatch = Dispatch(limit, workers=2)
    for kind, job in asked:
        dispatch.add(Action(kind, job))
    now, done = 0.0, set()
    while running := begun(dispatch, now):
        subjects = [action.subject for action in dispatch.running]
        assert len(subjects) == len(set(subjects))
        assert sum(action.kind in LIMITED for action in dispatch.running) <= limit
        for action in running:
            dispatch.finish(action, now)
            done.add(action)
        now += 1.0
    assert done == {Action(kind, job) for kind, job in asked}


@pytest.mark.parametrize(
    "order",
    [
        bipbip_pipe.RunAction(Action(ActionKind.LAUNCH, 42, "n1")),
        bipbip_pipe.RunAction(Action(ActionKind.TELL, 42, args=("# é\n", "x"))),
        bipbip_pipe.InterruptLaunch(42),
        bipbip_pipe.ActionEnded(host_action(ActionKind.SWEEP, "n1"), retry_after=2.5),
        bipbip_pipe.ActionEnded(Action(ActionKind.END, 42), failed=True),
    ],
    ids=str,
)
def test_orders_survive_the_pipe(order: bipbip_pipe.PipeMessage) -> None:
    line = bipbip_pipe.encode(order)
    assert line.count(b"\n") == 1
    assert bipbip_pipe.decode(line) == order
