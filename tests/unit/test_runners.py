"""Calls of runners from when they are asked until they are over, and who owns them meanwhile."""

import contextlib
import copy
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest

from checkpoints import encode
from tests.small_runs import small_ppo
from trainer import EnvRunnerGroup, SerializationError, TrainerError
from trainer.env_runners.messages import Assignment, ModuleWeights, PolicySnapshot, Weights
from trainer.modules import ByModule
from trainer.runner_group.pending import Ask
from trainer.runner_group.plays import TicketPlay
from trainer.runner_group.repair import _is_logged, _rarely_logged
from trainer.testing import FakeEngine, ScriptedFault

# ---- what is logged of replacements


def record(num_restarts, *, in_evaluation):
    spec = SimpleNamespace(in_evaluation=in_evaluation)
    return SimpleNamespace(num_restarts=num_restarts, spec=spec)


def test_every_replacement_of_a_training_runner_is_logged():
    assert all(_is_logged(record(number, in_evaluation=False)) for number in range(1, 500))
    assert _rarely_logged(record(100, in_evaluation=False)) == ""


def test_replacements_without_end_of_an_evaluation_runner_are_logged_now_and_then():
    logged = [number for number in range(1, 350) if _is_logged(record(number, in_evaluation=True))]
    assert logged == [*range(1, 21), 100, 200, 300]
    assert _rarely_logged(record(19, in_evaluation=True)) == ""
    assert "replacement 20; from now on every 100th" in _rarely_logged(
        record(20, in_evaluation=True)
    )


# ---- calls


@contextlib.contextmanager
def group_on(*faults, num_env_runners=2, recreated=None):
    """A group of runners on a scripted engine that have played a sample."""
    group = EnvRunnerGroup(
        config=small_ppo(), num_env_runners=num_env_runners, engine=FakeEngine(*faults)
    )
    try:
        group.sample_env_steps(40)
        if recreated is not None:
            group._runners._on_recreated = recreated.extend
        yield group
    finally:
        group.stop()


def dies(runner, *calls, at_sign=5):
    """Faults of one runner; its calls are counted from 0, starts included."""
    place = f"env runner {runner}"
    return [ScriptedFault("die", place=place, call=call, at_sign=at_sign) for call in calls]


IN_THE_SECOND = dies(1, 2, 4, 6)
"""Three deaths at the same place of the second sample: its episodes are given up."""


def ping():
    return Ask("apply", ("ping", {}), is_repeatable=False)


def test_a_call_is_over_when_its_runner_has_answered_and_waits_for_no_other():
    slow = ScriptedFault("delay", place="env runner 1", call=2, seconds=5.0)
    with group_on(slow) as group:
        runners = group._runners
        runners.begin()
        first, second = (runners.ask(index, ping()) for index in (1, 2))
        assert not first.is_over
        ended = runners.advance(1.0)
        assert [pending.index for pending in ended] == [2]
        assert (first.is_over, second.is_over) == (False, True)
        assert runners.advance(60.0) == [first]
        assert first.answer.value == "pong"
        assert runners.advance(60.0) == [], "nothing is in flight"


def test_what_repairs_cost_is_in_the_call_until_it_is_noted():
    with group_on(*IN_THE_SECOND) as group:
        runners = group._runners
        asks = group._sampler.asks_for(40, by_agent=False)
        pendings = runners.run(asks)
        first, second = pendings
        assert (first.num_restarts, second.num_restarts) == (3, 0)
        assert first.num_episodes_lost > 0
        assert first.repair_s > second.repair_s == 0.0
        assert (group.num_restarts, group._records.take_losses()) == (0, (0, 0))
        assert runners.note(pendings) == first.repair_s
        losses = (first.num_episodes_lost, first.num_env_steps_lost)
        assert (group.num_restarts, group._records.take_losses()) == (3, losses)
        runners.note(pendings, are_dropped=True)
        assert group._records.take_losses() == (0, 0)


def test_a_call_that_raises_drops_all_that_are_in_flight():
    with group_on() as group:
        runners = group._runners
        runners.begin()
        kept = runners.ask(1, ping())
        with pytest.raises(SerializationError, match="was not asked"):
            runners.ask(2, Ask("apply", ("ping", {"lock": threading.Lock()})))
        assert kept.is_over
        assert kept.answer is None
        assert runners.advance(60.0) == []
        assert group.foreach_env_runner(lambda runner: runner.worker_index) == [1, 2]


def test_a_runner_is_made_again_for_a_call_that_was_handed_back_and_takes_the_next_one():
    with group_on(*dies(1, 2)) as group:
        runners = group._runners
        asks = group._sampler.asks_for(40, by_agent=False)
        (request,) = asks[1].arguments
        runners.begin()
        first = runners.ask(1, Ask("sample", (request,), handed_back_after=1))
        assert runners.advance(60.0) == [first]
        assert first.failure is not None
        assert first.attempt is not None
        second = runners.ask(1, ping())
        runners.wait()
        assert second.answer is not None
        assert (first.num_restarts, second.num_restarts) == (1, 0)
        assert second.repair_s > 0


def test_who_was_replaced_is_told_once_and_only_when_it_is_there():
    recreated = []
    with group_on(*dies(2, 2), recreated=recreated) as group:
        group.foreach_env_runner_async(lambda runner: runner.sample(num_timesteps=30))
        runners = group._runners
        while 2 not in runners._replaced:
            group.calls._advance(0.001)
        runners.fire_recreated()
        assert recreated == [], "it is being made"
        group.fetch_ready_async_reqs(timeout_seconds=None)
        group.fetch_ready_async_reqs()
        assert recreated == [2]


# ---- samples ahead


@contextlib.contextmanager
def interrupted(group):
    """The next wait for an answer is interrupted."""
    arrivals = group._runners._pool._arrivals
    wait = arrivals.wait

    def interrupt(_):
        arrivals.wait = wait
        raise KeyboardInterrupt

    arrivals.wait = interrupt
    yield


def outcome(group):
    sample = group.sample_env_steps(40)
    return encode([group.get_state(), sample.numbers, sample.counts.num_episodes_lost])


def finished(group):
    group.foreach_env_runner(lambda runner: None)


def abandoned(group):
    group._runners.abandon()


@pytest.mark.parametrize("drop", [finished, abandoned])
@pytest.mark.parametrize("faults", [[], IN_THE_SECOND])
def test_a_sample_ahead_that_is_dropped_never_happened(drop, faults):
    with group_on() as group:
        expected = outcome(group)
    with group_on(*faults) as group:
        before = encode(group.get_state())
        group.begin_sample(40)
        if faults:
            record = group._records.by_index[1]
            positions = record.positions
            while record.positions is positions:
                group._runners.advance(0.01)
        drop(group)
        assert encode(group.get_state()) == before
        assert group._records.take_losses() == (0, 0)
        assert outcome(group) == expected


def test_a_sample_ahead_that_is_taken_is_the_sample_with_its_losses():
    def played(*, is_ahead):
        with group_on(*IN_THE_SECOND) as group:
            if is_ahead:
                group.begin_sample(40)
            found = outcome(group)
            assert group.num_dropped_ahead == 0
            return found, group.num_restarts

    assert played(is_ahead=True) == played(is_ahead=False)
    assert played(is_ahead=True)[1] == 3


@pytest.mark.parametrize("change", ["steps", "policy", None])
def test_a_sample_ahead_is_taken_for_what_was_asked_and_as_runners_are_to_act(
    change,
):
    with group_on() as group:
        group.begin_sample(40)
        if change == "policy":
            group._records.policy = replace(group.policy, table=copy.copy(group.policy.table))
        group.sample_env_steps(48 if change == "steps" else 40)
        assert group.num_dropped_ahead == (change is not None)


def test_an_interrupt_while_a_sample_ahead_is_waited_for_leaves_nothing_of_it():
    with group_on() as group:
        before, undo = encode(group.get_state()), group.mark()
        group.begin_sample(40)
        with interrupted(group), pytest.raises(KeyboardInterrupt):
            group.foreach_env_runner(lambda runner: None)
        assert group._runners.owner is None
        assert encode(group.get_state()) == before
        group.begin_sample(40)
        group.end_calls()
        undo()
        assert group._runners.owner is None
        assert encode(group.get_state()) == before


def test_no_event_tells_of_runners_that_end_with_a_sample_that_nobody_wanted():
    recreated = []
    with group_on(recreated=recreated) as group:
        group.begin_sample(40)
        group._runners.abandon()
        group.sample_env_steps(40)
        assert recreated == []
        group._runners.begin()
        group._runners.ask(1, ping())
        group._runners.abandon()
        group.sample_env_steps(40)
        assert recreated == [1], "that was wanted"


def test_an_event_tells_of_runners_that_end_with_a_sample_that_was_taken():
    recreated = []
    with group_on(recreated=recreated) as group:
        group.begin_sample(40)
        with interrupted(group), pytest.raises(KeyboardInterrupt):
            group.sample_env_steps(40)
        group.sample_env_steps(40)
        assert recreated == [1, 2]


# ---- users' calls


def test_calls_of_users_that_are_dropped_are_over_and_others_can_be_made():
    with group_on() as group:
        assert group.foreach_env_runner_async(lambda runner: runner.worker_index) == 2
        group._runners.abandon()
        assert group.num_in_flight_async_reqs() == 0
        assert group.fetch_ready_async_reqs(timeout_seconds=None) == []
        assert group.foreach_env_runner_async(lambda runner: runner.worker_index) == 2
        assert sorted(group.fetch_ready_async_reqs(timeout_seconds=None)) == [(1, 1), (2, 2)]


def test_an_interrupt_between_two_calls_of_users_leaves_neither(
    monkeypatch,
):
    with group_on() as group:
        ask = group._runners.ask

        def asks_the_first_only(index, call):
            if index == 2:
                raise KeyboardInterrupt
            ask(index, call)

        with monkeypatch.context() as patch:
            patch.setattr(group._runners, "ask", asks_the_first_only)
            with pytest.raises(KeyboardInterrupt):
                group.foreach_env_runner_async(lambda runner: None)
        assert (group.num_in_flight_async_reqs(), group._runners.owner) == (0, None)


# ---- owners


class Owner:
    """Has calls in flight, and may fail when they are waited for."""

    def __init__(self, failure=None):
        self.failure, self.calls = failure, []

    def finish(self):
        self.calls.append("finish")
        if self.failure is not None:
            raise self.failure

    def dropped(self):
        self.calls.append("dropped")


@pytest.mark.parametrize(
    ("method", "failure", "calls"),
    [
        ("finish", None, ["finish"]),
        ("begin", None, ["finish"]),
        ("finish", RuntimeError("of a runner"), ["finish", "dropped"]),
        ("finish", KeyboardInterrupt(), ["finish", "dropped"]),
        ("abandon", None, ["dropped"]),
    ],
)
def test_what_is_in_flight_is_over_however_it_ends(method, failure, calls):
    group = EnvRunnerGroup(config=small_ppo())
    runners = group._runners
    runners.owner = owner = Owner(failure)
    with contextlib.nullcontext() if failure is None else pytest.raises(type(failure)):
        getattr(runners, method)()
    assert (owner.calls, runners.owner) == (calls, None)
    runners.finish()
    runners.abandon()
    assert owner.calls == calls
    group.stop()


def test_a_call_that_an_interrupt_left_behind_is_dropped_before_the_next():
    with group_on() as group:
        left = group._runners.ask(1, ping())  # its owner was never noted
        assert group.foreach_env_runner(lambda runner: runner.worker_index) == [1, 2]
        assert left.is_over
        assert left.answer is None


def test_a_play_that_cannot_ask_leaves_nothing_in_flight(monkeypatch):
    ask = TicketPlay._ask

    def interrupted(play, index, share):
        ask(play, index, share)
        raise KeyboardInterrupt

    with group_on() as group:
        monkeypatch.setattr(TicketPlay, "_ask", interrupted)
        (request,) = group._sampler.asks_for(8, by_agent=False)[1].arguments
        with pytest.raises(KeyboardInterrupt):
            group.begin_play(request.assignments)
        assert group._runners.owner is None
        assert group._runners.advance(60.0) == []


# ---- plays


def play_of(group, num_tickets, **options):
    """A play of single episodes that does not wait for all."""
    tickets = [Assignment(0, number, num_episodes=1) for number in range(num_tickets)]
    return group.begin_play(tickets, waits_for_all=False, **options)


def is_late(runner, seconds, *, call=2):
    return ScriptedFault("delay", place=f"env runner {runner}", call=call, seconds=seconds)


def test_a_share_that_another_one_has_played_is_not_waited_for():
    with group_on(is_late(1, 3600.0)) as group:
        play = play_of(group, 4)
        play.finish()
        assert [index for index, _ in play.replies()] == [2, 2]
        assert group._runners.advance(0.0) == [], "the first runner was ended"
        assert not group._runners._pool[1].is_running
        assert group.end_play(play).counts.num_episodes == 4


def test_a_share_is_not_handed_on_again_while_somebody_plays_it():
    with group_on(is_late(1, 60.0), *dies(2, 3)) as group:
        play = play_of(group, 4)
        play.finish()
        assert [index for index, _ in play.replies()] == [2, 1]
        assert play.missing == []


def test_the_second_answer_for_a_share_counts_for_nothing():
    # The second runner plays the first one's share, and is late itself with the third one's.
    late = [is_late(1, 30.0), is_late(2, 120.0, call=4), is_late(3, 60.0)]
    with group_on(*late, num_env_runners=3) as group:
        play = play_of(group, 6)
        play.finish()
        assert [index for index, _ in play.replies()] == [2, 2, 3]
        assert group._runners._pool[1].is_running, "it has answered"


def test_who_is_asked_after_the_end_was_requested_hears_of_it():
    config = small_ppo().fault_tolerance(
        restart_failed_env_runners=False, ignore_env_runner_failures=True
    )
    group = EnvRunnerGroup(config=config, num_env_runners=2, engine=FakeEngine(*dies(1, 1)))
    slots = range(group.num_slots)
    tickets = [Assignment(0, slot, len(slots), num_env_steps=8) for slot in slots]
    play = group.begin_play(tickets, steps_per_chunk=(8, 8))
    own = group._runners._in_flight[2]
    while len(group.healthy_env_runner_ids()) == 2:
        play.advance(0.01)
    play.request_end()
    while not own.is_over:
        play.advance(0.01)
    assert group._runners._in_flight[2].must_end, "it plays the share of the other one now"
    play.finish()
    assert [index for index, _ in play.replies()] == [2, 2]
    group.stop()


# ---- the runner of this process


def test_the_runner_of_this_process_refuses_calls_of_its_own_callbacks():
    def ask(**_):
        groups[0].foreach_env_runner(lambda runner: None)

    groups = []
    groups.append(EnvRunnerGroup(config=small_ppo().callbacks(on_episode_end=ask)))
    with pytest.raises(Exception, match="is at work itself") as raised:
        groups[0].sample_env_steps(100)
    assert isinstance(raised.value.__cause__, TrainerError)
    groups.pop().stop()


def test_the_runner_of_this_process_is_kept_after_an_error_and_put_back():
    def fail(runner):
        runner.sample(num_timesteps=7)
        raise ZeroDivisionError("mine")

    group = EnvRunnerGroup(config=small_ppo())
    group.sample_env_steps(40)
    runner, before = group.local_env_runner, encode(group.get_state())
    with pytest.raises(ZeroDivisionError, match="mine") as raised:
        group.foreach_env_runner(fail)
    assert raised.traceback[-1].name == "fail", "as it was raised, for a debugger"
    assert group.local_env_runner is runner
    assert encode(group.get_state()) == before
    group.stop()
    assert group.local_env_runner is None


def test_weights_that_did_not_arrive_as_a_whole_are_sent_again(
    monkeypatch,
):
    def interrupt(_):
        raise KeyboardInterrupt

    group = EnvRunnerGroup(config=small_ppo())
    group.sample_env_steps(40)
    runner = group.local_env_runner
    id_, state = group.module_specs.only_id, runner.module.get_state()
    group.act_with(PolicySnapshot(Weights(ByModule({id_: ModuleWeights(1, state)}))))
    with monkeypatch.context() as patch:
        patch.setattr(runner, "synchronize", interrupt)
        with pytest.raises(KeyboardInterrupt):
            group.sample_env_steps(40)
    assert group.sample_env_steps(40).num_env_steps == 40
    group.stop()
