"""The golden event trace: every episode has the same events, wherever and however it is played."""

import os
import signal
from pathlib import Path

import pytest

from callbacks import CallbackChain, RLlibCallback
from tests.event_trace import (
    TRAJECTORY,
    EventTrace,
    all_traces,
    finished_traces,
    outline,
    problems_of,
    running_traces,
    without_trajectories,
)
from tests.small_runs import small_ppo
from trainer import PPO
from trainer.env_runners.episode_player import EpisodeEvents, EpisodePlayer

pytestmark = pytest.mark.process

NUM_SLOTS = 4
STEPS_PER_SLOT = 30


def config(num_env_runners, *, steps_per_iteration=40, callbacks=EventTrace, **more):
    """Four slots, spread over the runners, and weights that stay as they are."""
    made = small_ppo(num_env_runners, num_slots=NUM_SLOTS, batch=steps_per_iteration, seed=7)
    # Weights that learn would make the actions depend on where the iterations end.
    return made.training(lr=0.0).callbacks(callbacks).update_from_dict(more)


def traces_of_run(made):
    """All traces after 30 steps in each slot."""
    with made.build_algo() as algo:
        for _ in range(STEPS_PER_SLOT * NUM_SLOTS // made.train_batch_size):
            algo.train()
        return all_traces(algo)


@pytest.fixture(scope="module")
def golden():
    return traces_of_run(config(0))


def test_the_golden_trace_is_what_one_writes_down_by_hand(golden):
    assert problems_of(golden) == set()
    for episode_id, trace in golden.items():
        assert {line[1] for line in trace} == {int(episode_id.split("-")[1])}, "the env slot"
        assert [line[2] for line in trace] == [line[3] for line in trace], "1 is paid per step"
    # All steps that were asked for are there, with episodes that ended and others that run.
    last_lines = [trace[-1] for trace in golden.values()]
    assert sum(step for _, _, step, *_ in last_lines) == NUM_SLOTS * STEPS_PER_SLOT
    events = [event for event, *_ in last_lines]
    assert events.count("end") > 8
    assert events.count(TRAJECTORY) >= 2, "of episodes that are cut where the run ends"


def test_it_makes_no_difference_how_slots_are_spread(golden):
    assert traces_of_run(config(2)) == golden


@pytest.mark.parametrize(("num_env_runners", "steps_per_iteration"), [(0, 120), (2, 4)])
def test_cuts_into_chunks_have_no_events(num_env_runners, steps_per_iteration, golden):
    traces = traces_of_run(config(num_env_runners, steps_per_iteration=steps_per_iteration))
    assert without_trajectories(traces) == without_trajectories(golden)
    assert problems_of(traces) == set()


def test_complete_episodes_have_the_same_events(golden):
    traces = traces_of_run(config(2, batch_mode="complete_episodes"))
    assert {trace[-1][0] for trace in traces.values()} == {"end"}, "all episodes are finished"
    assert problems_of(traces) == set()
    whole = without_trajectories(traces)
    for episode_id, trace in without_trajectories(golden).items():
        assert whole[episode_id][: len(trace)] == trace


def test_evaluation_episodes_have_the_same_events_whoever_plays_them():
    outcomes = []
    for num_runners, num_envs in ((0, 1), (0, 3), (2, 2)):
        made = config(0, evaluation_num_env_runners=num_runners, evaluation_duration=5)
        made.evaluation(evaluation_config={"num_envs_per_env_runner": num_envs})
        with made.build_algo() as algo:
            algo.evaluate()
            algo.train()
            algo.evaluate()
            outcomes.append(finished_traces(algo, in_evaluation=True))
    assert outcomes[0].keys() == {f"evaluation-{n}-{k}" for n in range(2) for k in range(5)}
    assert problems_of(outcomes[0]) == set()
    assert {trace[-1][0] for trace in outcomes[0].values()} == {"end"}
    assert all(outcome == outcomes[0] for outcome in outcomes)


class KillsItsProcess(RLlibCallback):
    """Writes each step into a file, and kills its process after some of them while `armed` is."""

    def __init__(self, armed, steps):
        self._armed, self._steps = str(armed), str(steps)

    def on_episode_step(self, *, episode, **kwargs):
        with Path(self._steps).open("a") as file:
            file.write(f"{episode.id_} {episode.t}\n")
        if episode.t != 3:
            return
        try:
            Path(self._armed).unlink()  # of two runners, one succeeds
        except FileNotFoundError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_runner_killed_in_mid_iteration_leaves_no_event_out_and_none_twice(golden, tmp_path):
    armed, steps = tmp_path / "armed", tmp_path / "steps"
    made = config(2, callbacks=[EventTrace, KillsItsProcess(armed, steps)])
    with made.build_algo() as algo:
        for _ in range(3):
            armed.touch()  # the callback that traces comes first: it has seen what is lost
            algo.train()
            assert not armed.exists()
        assert algo.env_runner_group.num_remote_worker_restarts() == 3
        assert all_traces(algo) == golden
    # What callbacks do to the world outside is another matter: that happened twice.
    written = steps.read_text().splitlines()
    assert set(written) == {
        f"{episode_id} {step}"
        for episode_id, trace in golden.items()
        for event, step in outline(trace)
        if event == "step"
    }
    assert len(written) > len(set(written))


@pytest.mark.parametrize(("num_before", "num_after"), [(0, 2), (2, 0)])
def test_a_restored_run_goes_on_in_the_middle_of_its_traces(
    num_before, num_after, golden, tmp_path
):
    with config(num_before).build_algo() as algo:
        algo.train()
        path = algo.save_to_path(tmp_path / "checkpoint")
        finished = finished_traces(algo)
        running = running_traces(algo)
        algo.train()  # whatever happens after the save must not matter
    assert running
    assert finished
    with PPO.from_checkpoint(path, config=config(num_after)) as other:
        assert running_traces(other) == running
        for _ in range(2):
            other.train()
        assert {**finished, **all_traces(other)} == golden


# ---- negative controls: an engine that errs is found out


def drops_the_last_step(fire, event, slot, **more):
    if event != "on_episode_step" or not slot.episode.is_done:
        fire(event, slot, **more)


def fires_steps_twice(fire, event, slot, **more):
    fire(event, slot, **more)
    if event == "on_episode_step":
        fire(event, slot, **more)


def starts_before_the_reset(fire, event, slot, **more):
    fire(event, slot, **more)
    if event == "on_episode_created":
        fire("on_episode_start", slot)


def ends_before_the_last_step(fire, event, slot, **more):
    is_last = event == "on_episode_step" and slot.episode.is_done
    if is_last:
        fire("on_episode_end", slot, prev_episode_chunks=slot.earlier_chunks)
    if event != "on_episode_end":
        fire(event, slot, **more)


def forgets_earlier_chunks(fire, event, slot, **more):
    fire(event, slot, **({**more, "prev_episode_chunks": []} if more else more))


def names_the_next_sub_env(fire, event, slot, **more):
    index = slot.index
    slot.index = (index + 1) % NUM_SLOTS
    fire(event, slot, **more)
    slot.index = index


def gives_out_copies(fire, event, slot, **more):
    original = slot.episode
    slot.episode = original.from_state(original.get_state())
    slot.episode.custom_data = original.custom_data
    fire(event, slot, **more)
    slot.episode = original


_ORDER = "order and number of events"


@pytest.mark.parametrize(
    ("errs", "problem"),
    [
        (drops_the_last_step, _ORDER),
        (fires_steps_twice, _ORDER),
        (ends_before_the_last_step, _ORDER),
        (starts_before_the_reset, "created before the reset, the others after it"),
        (forgets_earlier_chunks, "chunks follow each other from 0 on"),
        (names_the_next_sub_env, "env.envs[env_index] is what stepped"),
        (gives_out_copies, "episode is that of the chunk's earlier events"),
    ],
)
def test_an_engine_that_errs_is_found_out(errs, problem, golden, monkeypatch):
    fire = EpisodeEvents.fire

    def wrong(events, event, slot, **more):
        errs(fire.__get__(events), event, slot, **more)

    monkeypatch.setattr(EpisodeEvents, "fire", wrong)
    traces = traces_of_run(config(0))
    assert traces != golden
    assert problem in problems_of(traces)


def test_a_trajectory_that_is_left_out_is_found_out(monkeypatch):
    postprocess = EpisodePlayer._postprocess

    def wrong(player, slot):
        if slot.episode is None or not slot.episode.is_done:
            return postprocess(player, slot)
        return None

    monkeypatch.setattr(EpisodePlayer, "_postprocess", wrong)
    problem = "the end comes after the last trajectory, in evaluation without"
    assert problems_of(traces_of_run(config(0))) == {problem}


@pytest.mark.parametrize(
    ("argument", "problem"),
    [
        ("env_runner", "env_runner is that which made the env"),
        ("env", "env is env_runner.env"),
        ("metrics_logger", "metrics_logger is env_runner.metrics"),
        ("rl_module", "rl_module is env_runner.module"),
    ],
)
def test_arguments_that_are_other_objects_are_found_out(argument, problem, monkeypatch):
    emitter = CallbackChain.emitter

    def wrong(chain, event):
        emit = emitter(chain, event)
        if emit is None or not event.startswith("on_episode"):
            return emit
        return lambda **all_: emit(**{**all_, argument: look_alike(all_[argument])})

    def look_alike(one):
        other = object.__new__(type(one))
        other.__dict__.update(one.__dict__)
        return other

    monkeypatch.setattr(CallbackChain, "emitter", wrong)
    assert problem in problems_of(traces_of_run(config(0)))
