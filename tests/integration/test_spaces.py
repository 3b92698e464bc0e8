"""Nested actions, action masks and images in whole runs: the same promises as for plain spaces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from tests.small_runs import learnt
from trainer import PPOConfig, RLlibCallback
from trainer.errors import ConfigError, EnvContractError, UnsupportedSpaceError
from trainer.testing.envs import TargetEnv

pytestmark = pytest.mark.process

NESTED = spaces.Dict(
    {
        "arm": spaces.Box(-2.0, 2.0, (2,)),
        "hand": spaces.Tuple([spaces.Discrete(3, start=1), spaces.MultiBinary(2)]),
        "level": spaces.Box(3, 5, (1,), np.int16),
    }
)


class NestedEnv(gymnasium.Env[Any, Any]):
    """Shows two numbers; pays for an action whose parts are right; lasts 5 to 9 steps."""

    def __init__(self, env_config: Any = None) -> None:
        self.observation_space = spaces.Box(-1.0, 1.0, (2,))
        self.action_space = NESTED
        self._shown = np.zeros(2, np.float32)
        self._left = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._left = int(self.np_random.integers(5, 10))
        return self._show_next(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert NESTED.contains(action), action
        right = self._shown > 0.0
        reward = float(action["hand"][0] == 1 + right[0])
        reward += float((action["hand"][1] == right).mean())
        reward += float(action["level"][0] == 3 + 2 * right[1])
        reward -= float(np.square(action["arm"] - 2.0 * self._shown).mean())
        self._left -= 1
        return self._show_next(), reward, self._left == 0, False, {}

    def _show_next(self) -> Any:
        self._shown = self.np_random.uniform(-1.0, 1.0, 2).astype(np.float32)
        # What was shown before is in there, so a replay with other actions would be noticed.
        return self._shown.copy()


class MaskedEnv(gymnasium.Env[Any, Any]):
    """One of several actions is possible at a time, as a mask says; anything else is an error.

    Settings: "nothing_at": at this step the mask allows nothing; "key": of the mask; "multi":
    actions are MultiDiscrete.
    """

    def __init__(self, env_config: Any) -> None:
        self.multi = env_config.get("multi", False)
        self.key = env_config.get("key", "action_mask")
        self.nothing_at = env_config.get("nothing_at")
        self.sizes = [2, 3] if self.multi else [4]
        mask = spaces.Box(0, 1, (sum(self.sizes),), np.int8)
        self.observation_space = spaces.Dict(
            {self.key: mask, "observations": spaces.Box(-1.0, 1.0, (2,))}
        )
        self.action_space: Any = (
            spaces.MultiDiscrete(self.sizes) if self.multi else spaces.Discrete(4, start=10)
        )
        self._steps = 0
        self._masks: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        chosen = list(action) if self.multi else [action - 10]
        for choice, mask in zip(chosen, self._masks, strict=True):
            assert mask[choice] == 1, f"{action} is impossible: {self._masks}"
        self._steps += 1
        return self._observation(), 1.0, self._steps >= 7, False, {}

    def _observation(self) -> dict[str, Any]:
        self._masks = []
        for size in self.sizes:
            mask = self.np_random.integers(0, 2, size).astype(np.int8)
            mask[self.np_random.integers(size)] = 1
            # The last observation of an episode allows nothing: no action follows it.
            if self._steps in (7, self.nothing_at):
                mask[:] = 0
            self._masks.append(mask)
        shown = self.np_random.uniform(-1.0, 1.0, 2).astype(np.float32)
        return {"observations": shown, self.key: np.concatenate(self._masks)}


def config(env: Any, *, num_env_runners: int = 0, **settings: Any) -> PPOConfig:
    made = (
        PPOConfig()
        .environment(env, env_config=settings.pop("env_config", {}))
        .env_runners(
            num_env_runners=num_env_runners,
            num_envs_per_env_runner=4 // max(1, num_env_runners),
        )
        .training(
            train_batch_size=102,
            minibatch_size=32,
            num_epochs=2,
            lr=1e-3,
            entropy_coeff=0.01,
            model={"fcnet_hiddens": [8], "conv_filters": settings.pop("conv_filters", None)},
        )
        .debugging(seed=7)
    )
    made.update_from_dict(settings)
    return made


ENVS: dict[str, dict[str, Any]] = {
    "nested actions": {"env": NestedEnv},
    "masks": {"env": MaskedEnv},
    "masks of several choices": {"env": MaskedEnv, "env_config": {"multi": True}},
    "images": {
        "env": TargetEnv,
        "env_config": {"size": 5, "mask": True},
        "conv_filters": [[2, 2, 2]],
    },
}


@pytest.mark.parametrize("name", ENVS)
def test_runs_are_exact_however_envs_are_spread_and_after_a_restore(
    name: str, tmp_path: Path
) -> None:
    outcomes = []
    for num_env_runners in (0, 2):
        with config(**ENVS[name], num_env_runners=num_env_runners).build_algo() as algo:
            algo.train()
            if num_env_runners == 0:
                algo.save_to_path(tmp_path / "checkpoint")
            algo.train()
            outcomes.append(learnt(algo))
    with config(**ENVS[name]).build_algo() as algo:
        algo.restore_from_path(tmp_path / "checkpoint")
        algo.train()
        outcomes.append(learnt(algo))
    assert outcomes[0] == outcomes[1] == outcomes[2]


class LooksAtBatches(RLlibCallback):
    """Changes nested actions where callbacks may."""

    def on_postprocess_trajectory(self, *, postprocessed_batch: Any, **kwargs: Any) -> None:
        actions = postprocessed_batch["actions"]
        assert actions["hand"][1].shape == (postprocessed_batch.count, 2)
        actions["hand"][0][:] = 0

    def on_sample_end(self, *, samples: Any, **kwargs: Any) -> None:
        for episode in samples:
            assert set(episode.get_actions()["hand"][0].tolist()) <= {0}
            assert episode.get_actions(0)["arm"].shape == (2,)
            assert episode.get_extra_model_outputs("action_logp").shape == (len(episode),)


def test_callbacks_see_and_rewrite_nested_actions() -> None:
    with config(NestedEnv).callbacks(LooksAtBatches).build_algo() as algo:
        before = algo.learner.module.parameters.flat.copy()
        algo.train()
        assert (algo.learner.module.parameters.flat != before).any()


@pytest.mark.parametrize("env_config", [{}, {"multi": True}, {"key": "allowed"}], ids=str)
def test_masks_hold_wherever_actions_are_chosen(env_config: dict[str, Any]) -> None:
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
def test_a_mask_that_allows_nothing_names_the_step(random_actions: bool) -> None:
    text = r"step 3 of episode training-0-0 allows no action"
    with (
        config(MaskedEnv, env_config={"nothing_at": 3}).build_algo() as algo,
        pytest.raises(EnvContractError, match=text),
    ):
        algo.env_runner.sample(num_timesteps=50, random_actions=random_actions)


def test_masks_that_do_not_fit_are_refused_when_the_run_is_built() -> None:
    class WrongMask(MaskedEnv):
        def __init__(self, env_config: Any) -> None:
            super().__init__(env_config)
            self.action_space = spaces.Discrete(5)

    with pytest.raises(UnsupportedSpaceError, match=r"has 4 entries.* has 5 alternatives"):
        config(WrongMask).build_algo()
    # It is an ordinary part of the observation if the key is another one.
    with config(WrongMask).environment(action_mask_key="other").build_algo() as algo:
        assert algo.learner.module.obs_size == 6


def test_compute_single_action_takes_one_observation_in_the_form_of_its_space() -> None:
    """As many numbers in another order would give an action that means nothing."""
    made = PPOConfig().environment(TargetEnv, env_config={"size": 6, "mask": True})
    made.env_runners(num_env_runners=0).training(model={"fcnet_hiddens": [4]})
    with made.build_algo() as algo:
        observation = algo.env_runner.env.single_observation_space.sample()
        observation["action_mask"][:] = 1
        algo.compute_single_action(observation)
        image = observation["observations"]
        for wrong, words in (
            (image[None], r"\[1, 6, 6, 2\] was given where .* looks like a batch"),
            (image.transpose(2, 0, 1), r"\[2, 6, 6\] was given where .* as the env does"),
            (image.ravel(), r"\[72\] was given where"),
        ):
            with pytest.raises(EnvContractError, match=words):
                algo.compute_single_action({**observation, "observations": wrong})
        with pytest.raises(EnvContractError, match="expected a dict of observations by agent"):
            algo.compute_actions(image)


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
    settings: dict[str, Any], expected: str
) -> None:
    made = PPOConfig().environment("CartPole-v1", **settings).env_runners(num_env_runners=0)
    with pytest.raises((ConfigError, EnvContractError, UnsupportedSpaceError), match=expected):
        made.build_algo()


def test_an_action_space_of_the_same_kind_may_take_the_place_of_the_envs() -> None:
    made = PPOConfig().environment("CartPole-v1", action_space=spaces.Discrete(1))
    made.env_runners(num_env_runners=0).training(train_batch_size=20, minibatch_size=20)
    with made.build_algo() as algo:
        assert algo.train()["env_runners"]["num_env_steps_sampled"] == 20
