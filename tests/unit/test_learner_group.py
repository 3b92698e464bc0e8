"""Learners of several modules: independent of each other, updated all together or not at all."""

import numpy as np
import pytest

from checkpoints import encode
from tests.unit.test_ppo_learner import ACTIONS, OBSERVATIONS, sample
from trainer.algorithms.ppo.ppo import PPOConfig, PPOLearner, PPOSettings
from trainer.episodes import SingleAgentEpisode
from trainer.errors import ModuleError
from trainer.learners import LearnerGroup, chunks_by_module
from trainer.modules import ByModule, RLModuleSpec, module_position


def group(*ids):
    spec = RLModuleSpec(
        observation_space=OBSERVATIONS,
        action_space=ACTIONS["discrete"],
        model_config={"fcnet_hiddens": [8]},
    )
    config = PPOConfig().training(lr=0.01, num_epochs=2, minibatch_size=16)
    settings = PPOSettings.from_config(config)
    return LearnerGroup(
        {
            id_: PPOLearner(
                module_spec=spec, settings=settings, root_seed=3, position=module_position(id_)
            )
            for id_ in ids
        }
    )


def played(learners, **changes):
    """What each module learns from."""
    seeds = {id_: seed for seed, id_ in enumerate(sorted(["a", "b", "default_policy"]))}
    return ByModule(
        {id_: sample(one.module, seed=seeds[id_]) for id_, one in learners.items()} | changes
    )


def state(learners):
    return {id_: encode(one.get_state()) for id_, one in learners.items()}


def test_a_module_learns_the_same_beside_others():
    alone, together = group("a"), group("b", "a", "default_policy")
    for learners in (alone, together):
        for _ in range(2):
            learners.update(played(learners), num_env_steps_sampled_before=0)
    assert state(alone)["a"] == state(together)["a"]
    assert len({*state(together).values()}) == 3  # weights and minibatches follow from the id


def test_one_without_rows_makes_no_update():
    learners = group("a", "b")
    before = state(learners)
    metrics = learners.update(played(learners, b=[]), num_env_steps_sampled_before=0)
    assert list(metrics) == ["a"]
    assert state(learners)["b"] == before["b"]
    assert state(learners)["a"] != before["a"]


def test_what_fails_in_one_is_undone_in_all():
    learners = group("a", "b")
    before = state(learners)
    chunks = played(learners)
    chunks["b"][0].rewards.data[0] = np.inf
    with pytest.raises(ModuleError, match="not finite"):
        learners.update(chunks, num_env_steps_sampled_before=0)
    assert state(learners) == before


def test_chunks_go_to_the_module_that_acted_in_order():
    chunks = [SingleAgentEpisode(f"e{n}", module_id="ab"[n % 2]) for n in range(4)]
    by_module = chunks_by_module(chunks, ["a", "b", "c"])
    assert [one.id_ for one in by_module["b"]] == ["e1", "e3"]
    assert by_module["c"] == []
    assert chunks_by_module(chunks, ["other"])["other"] == chunks
