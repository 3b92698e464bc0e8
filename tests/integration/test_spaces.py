"""Nested actions, action masks and images in whole runs: the same promises as for plain spaces."""

import numpy as np
import pytest
from gymnasium import spaces

from tests.exact_runs import MaskedEnv, NestedEnv
from tests.small_runs import small_ppo
from trainer import PPOConfig, RLlibCallback
from trainer.algorithms.inference import check_single
from trainer.errors import ConfigError, EnvContractError, UnsupportedSpaceError
from trainer.testing.envs import TargetEnv

pytestmark = pytest.mark.process


def config(env, **settings):
    made = small_ppo(env=env, batch=102, minibatch_size=32, num_epochs=2, lr=1e-3, seed=7)
    return made.training(entropy_coeff=0.01).update_from_dict(settings)


class LooksAtBatches(RLlibCallback):
    """Changes nested actions where callbacks may."""

    def on_postprocess_trajectory(self, *, postprocessed_batch, **kwargs):
        actions = postprocessed_batch["actions"]
        assert actions["hand"][1].shape == (postprocessed_batch.count, 2)
        actions["hand"][0][:] = 0

    def on_sample_end(self, *, samples, **kwargs):
        for episode in samples:
            assert set(episode.get_actions()["hand"][0].tolist()) <= {0}
            assert episode.get_actions(0)["arm"].shape == (2,)
            assert episode.get_extra_model_outputs("action_logp").shape == (len(episode),)


def test_callbacks_see_and_rewrite_nested_actions():
    with config(NestedEnv).callbacks(LooksAtBatches).build_algo() as algo:
        before = algo.learner.module.parameters.flat.copy()
        algo.train()
        assert (algo.learner.module.parameters.flat != before).any()


@pytest.mark.parametrize("env_config", [{}, {"multi": True}, {"key": "allowed"}], ids=str)
def test_masks_hold_wherever_actions_are_chosen(env_config):
    made = config(MaskedEnv, env_config=env_config, evaluation_config={"explore": False})
    made.environment(action_mask_key=env_config.get("key", "action_mask"))
    made.evaluation(evaluation_duration=3)
    with made.build_algo() as algo:
        algo.train()  # the env refuses impossible actions
        algo.evaluate()
        algo.env_runner.sample(num_timesteps=50, random_actions=True)
        module = algo.learner.module
        assert module.obs_size == 2
        assert np.isfinite(module.parameters.flat).all()
        env = MaskedEnv(env_config)
        observation, _ = env.reset(seed=0)
        for explore in (True, False) * 10:
            action = algo.compute_single_action(observation, explore=explore)
            observation, _, terminated, _, _ = env.step(action)
            if terminated:
                observation, _ = env.reset()


@pytest.mark.parametrize("random_actions", [False, True])
def test_a_mask_that_allows_nothing_names_the_step(random_actions):
    text = r"step 3 of episode training-0-0 allows no action"
    with (
        config(MaskedEnv, env_config={"nothing_at": 3}).build_algo() as algo,
        pytest.raises(EnvContractError, match=text),
    ):
        algo.env_runner.sample(num_timesteps=50, random_actions=random_actions)


def test_masks_that_do_not_fit_are_refused_when_the_run_is_built():
    class WrongMask(MaskedEnv):
        def __init__(self, env_config):
            super().__init__(env_config)
            self.action_space = spaces.Discrete(5)

    with pytest.raises(UnsupportedSpaceError, match=r"has 4 entries.* has 5 alternatives"):
        config(WrongMask).build_algo()
    # It is an ordinary part of the observation if the key is another one.
    with config(WrongMask).environment(action_mask_key="other").build_algo() as algo:
        assert algo.learner.module.obs_size == 6


def test_compute_single_action_takes_one_observation_in_the_form_of_its_space():
    """As many numbers in another order would give an action that means nothing."""
    made = PPOConfig().environment(TargetEnv, env_config={"size": 6, "mask": True})
    made.env_runners(num_env_runners=0).training(model={"fcnet_hiddens": [4]})
    with made.build_algo() as algo:
        observation = algo.env_runner.env.single_observation_space.sample()
        observation["action_mask"][:] = 1
        algo.compute_single_action(observation)
        image = observation["observations"]
        for wrong, words in (
            (image[None], r"\[1, 6, 6, 2\] was given where .* looks like a batch.*predict_all"),
            (image.transpose(2, 0, 1), r"\[2, 6, 6\] was given where .* as the env does"),
            (image.ravel(), r"\[72\] was given where"),
        ):
            with pytest.raises(EnvContractError, match=words):
                algo.compute_single_action({**observation, "observations": wrong})
        with pytest.raises(EnvContractError, match="expected a dict of observations by agent"):
            algo.compute_actions(image)
        with pytest.raises(EnvContractError, match=r"observation, info = env\.reset"):
            algo.compute_single_action((observation, {}))
        with pytest.raises(ConfigError, match="got no observation"):
            algo.compute_single_action(input_dict={"observation": observation})


_NUMBERS = spaces.Box(-1.0, 1.0, (3,), np.float32)


@pytest.mark.parametrize(
    ("space", "observation", "words"),
    [
        (_NUMBERS, (np.zeros(3), {}), "observation, info = env.reset"),
        (spaces.Discrete(3), (1, {}), "observation, info = env.reset"),
        (spaces.Tuple((_NUMBERS,)), ((np.zeros(3),), {"a": 1}), "observation, info = env.reset"),
        (_NUMBERS, ((1, 2), (3,)), r"shape \[2\] was given"),
        (spaces.Tuple((_NUMBERS, _NUMBERS)), (np.zeros(3), np.zeros(2)), r"shape \[2\] was given"),
    ],
)
def test_what_is_not_one_observation_is_refused(space, observation, words):
    with pytest.raises(EnvContractError, match=words):
        check_single(space, observation)


@pytest.mark.parametrize(
    ("space", "observation"),
    [
        (spaces.Tuple((_NUMBERS, spaces.Dict({"a": _NUMBERS}))), (np.zeros(3), {"a": np.zeros(3)})),
        (spaces.Dict({"a": _NUMBERS}), (np.zeros(3),)),  # the encoder tells
        (spaces.Tuple((_NUMBERS, _NUMBERS)), (np.zeros(3),)),
    ],
)
def test_other_containers_are_left_to_the_encoder(space, observation):
    check_single(space, observation)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"observation_space": 5}, "`observation_space=5`: expected None or a gymnasium space"),
        ({"action_space": spaces.Box}, "expected None or a gymnasium space"),
        ({"observation_space": spaces.Text(3)}, "Text"),
        ({"observation_space": spaces.Dict({})}, "holds no number"),
        ({"action_space": spaces.Dict({})}, "Dict"),
        ({"action_space": spaces.Text(3)}, "action_space=Text.* whose own is Discrete"),
        ({"action_space": spaces.Box(0, 1, (3,))}, "action_space=Box.* whose own is Discrete"),
        ({"action_space": spaces.MultiDiscrete([2, 2])}, "whose own is Discrete"),
        ({"action_space": spaces.Discrete(3)}, "whose own is Discrete"),
    ],
)
def test_a_space_that_does_not_fit_is_one_clear_error_when_the_algorithm_is_built(
    settings, expected
):
    made = PPOConfig().environment("CartPole-v1", **settings).env_runners(num_env_runners=0)
    with pytest.raises((ConfigError, EnvContractError, UnsupportedSpaceError), match=expected):
        made.build_algo()


def test_an_action_space_of_the_same_kind_may_take_the_place_of_the_envs():
    made = PPOConfig().environment("CartPole-v1", action_space=spaces.Discrete(1))
    made.env_runners(num_env_runners=0).training(train_batch_size=20, minibatch_size=20)
    with made.build_algo() as algo:
        assert algo.train()["env_runners"]["num_env_steps_sampled"] == 20
