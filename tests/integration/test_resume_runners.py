"""A checkpoint in another number of env runners, or of env slots: exact, or told and counted."""

import logging

import pytest

from callbacks import RLlibCallback
from checkpoints import encode, read_manifest
from tests.resume_cells import ALGORITHMS
from tests.resume_envs import Walk
from trainer import PPO, CallbackError
from trainer.metrics import comparable

pytestmark = pytest.mark.process

NUM_SLOTS = 8
NUMBERS_OF_RUNNERS = (0, 1, 2, 4, 8)


def built(num_env_runners, *, algorithm="PPO", num_slots=NUM_SLOTS, callbacks=None, **settings):
    made = (
        ALGORITHMS[algorithm]()
        .environment(Walk)
        .env_runners(
            num_env_runners=num_env_runners,
            num_envs_per_env_runner=num_slots // max(1, num_env_runners),
        )
        .rl_module(model_config={"fcnet_hiddens": [8]})
        .debugging(seed=7)
    )
    if callbacks is not None:
        made.callbacks(callbacks)
    return made.update_from_dict(settings).build_algo()


def outcome(algo, num_iterations=3):
    """Results and all that is known, save what there is of each runner."""
    results = [comparable(algo.train()) for _ in range(num_iterations)]
    state = algo.get_state(not_components="config")
    state["env_runners"] = state["env_runners"]["slots"]
    return encode([results, state])


def slots_of(algo):
    return algo.get_state()["env_runners"]["slots"]


def num_steps(slot):
    return sum(len(chunk) for chunk in slot["actions"])


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_number_of_runners_goes_on_exactly_from_every_other(algorithm, tmp_path):
    expected = {}
    for saving in NUMBERS_OF_RUNNERS:
        with built(saving, algorithm=algorithm) as algo:
            outcome(algo)
            assert any(slot["env_seed"] is not None for slot in slots_of(algo))
            algo.save_to_path(tmp_path / str(saving))
            expected[saving] = outcome(algo)
    assert len(set(expected.values())) == 1
    for restoring in NUMBERS_OF_RUNNERS:
        with built(restoring, algorithm=algorithm) as algo:
            for saving in NUMBERS_OF_RUNNERS:
                algo.restore_from_path(tmp_path / str(saving))
                assert outcome(algo) == expected[saving], f"from {saving} into {restoring}"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Of four slots in the main process, each in the middle of an episode."""
    path = tmp_path_factory.mktemp("run") / "checkpoint"
    with built(0, num_slots=4) as algo:
        outcome(algo)
        assert all(num_steps(slot) > 0 for slot in slots_of(algo))
        algo.save_to_path(path)
    return path


def test_slots_that_there_is_no_room_for_are_told_and_counted(saved, tmp_path, caplog):
    class FailOnce(RLlibCallback):
        has_failed = False

        def on_train_result(self, **_):
            if not FailOnce.has_failed:
                FailOnce.has_failed = True
                raise ValueError("on purpose")

    with built(0, num_slots=4) as algo:
        algo.restore_from_path(saved)
        steps = [num_steps(slot) for slot in slots_of(algo)[1:]]
    assert "dropped" not in caplog.text
    with caplog.at_level(logging.WARNING):
        algo = PPO.from_checkpoint(saved, env=Walk, num_envs_per_env_runner=1)
    with algo:
        between = algo.save_to_path(tmp_path / "between")
        algo.evaluate()
        assert "dropped" not in caplog.text, "who does not train loses nothing"
        algo.train()
        text = f"the last 3 are dropped, with 3 running episode(s) of {sum(steps)} env steps"
        assert caplog.text.count(text) == 1
    for attempt in ("undone", "whole"):  # neither a save nor an undone iteration forgets them
        FailOnce.has_failed = attempt == "whole"
        with built(0, num_slots=1, callbacks=FailOnce) as algo:
            algo.restore_from_path(between)
            if attempt == "undone":
                with pytest.raises(CallbackError):
                    algo.train()
            faults = [algo.train()["fault_tolerance"] for _ in range(2)]
        assert [told["num_episodes_lost"] for told in faults] == [3, 0]
        assert [told["num_env_steps_lost"] for told in faults] == [sum(steps), 0]
        assert faults[1]["num_episodes_lost_lifetime"] == 3


def test_slots_that_nobody_saved_begin_with_episodes_that_nobody_had(saved):
    with built(0, num_slots=6) as algo:
        algo.restore_from_path(saved)
        slots = slots_of(algo)
        with built(0, num_slots=4) as other:
            other.restore_from_path(saved)
            assert encode(slots[:4]) == encode(slots_of(other))
        fresh = max(slot["episode_number"] for slot in slots[:4]) + 1
        assert [slot["episode_number"] for slot in slots[4:]] == [fresh, fresh]
        assert all(slot["env_seed"] is None for slot in slots[4:])
        assert algo.train()["fault_tolerance/num_episodes_lost"] == 0


def test_runners_that_were_added_are_there_after_a_restore(tmp_path, caplog):
    with built(1, num_slots=2) as algo:
        algo.env_runner_group.add_workers(1)
        outcome(algo, 2)
        path = algo.save_to_path(tmp_path / "checkpoint")
        assert read_manifest(path).metadata["num_env_runners"] == 2
        expected = outcome(algo, 2)
    with PPO.from_checkpoint(path, env=Walk) as other:
        assert other.env_runner_group.num_remote_env_runners() == other.config.num_env_runners == 2
        assert outcome(other, 2) == expected
    assert "dropped" not in caplog.text
    with built(1, num_slots=2) as other, caplog.at_level(logging.WARNING):
        other.restore_from_path(path)
        other.train()
        assert "has 4 env slots, and there are only 2 here" in caplog.text
