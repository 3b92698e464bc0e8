"""Ways to ruin learning that were written after the checks of learning, and what those say.

python -m benchmarks.quality.ruined [PART OF A NAME …]

Each way names the checks that would tell its cause; it was run once before any check was changed
for it. `tests/learning/test_learning_checks.py` has those that the checks were made with.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, NamedTuple

import gymnasium
import numpy as np

from trainer import DQNConfig, PPOConfig, SACConfig
from trainer.learners.learning_checks import findings

_TOO_FAST: Final = frozenset({"kl_far_above_target", "entropy_collapsed"})
"""Which comes first depends on rounding; both say first that lr is to be lowered."""
_GRU: Final = {"use_gru": True, "lstm_cell_size": 32, "max_seq_len": 16}


class Scaled(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An env in other units: `env_config={"name": id, "obs": factor, "reward": factor}`."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(gymnasium.make(config["name"]))
        self._obs, self._reward = config.get("obs", 1.0), config.get("reward", 1.0)
        wide = np.full(self.env.observation_space.shape or (), np.inf, np.float32)
        self.observation_space = gymnasium.spaces.Box(-wide, wide)

    def reset(self, **options: Any) -> Any:
        observation, infos = self.env.reset(**options)
        return (observation * self._obs).astype(np.float32), infos

    def step(self, action: Any) -> Any:
        observation, reward, *rest = self.env.step(action)
        return (observation * self._obs).astype(np.float32), float(reward) * self._reward, *rest


class Way(NamedTuple):
    """A way to ruin learning.

    Attributes:
        name: what it is.
        config: makes the config.
        causes: the checks that tell the cause.
        num_iterations: after which it should be told.
        needs: the module that the env is in.
    """

    name: str
    config: Callable[[], Any]
    causes: Collection[str]
    num_iterations: int
    needs: str = ""


def _ppo(env: str, **settings: Any) -> Any:
    return PPOConfig.recipe(env).training(**settings)


def _pendulum(**settings: Any) -> Any:
    return _ppo("Pendulum-v1", train_batch_size=2048, **settings)


def _scaled(config: Any, env: str, **factors: float) -> Any:
    return config.environment(Scaled, env_config={"name": env, **factors})


def _diverging(config: Any, lr: float) -> Any:
    return config.training(lr=lr, target_network_update_freq=1, grad_clip=None)


def _never_there(env: str, **env_config: Any) -> Any:
    config = _ppo("CartPole-v1", train_batch_size=1024, lr=1e-3, clip_param=0.2)
    return config.environment(env, env_config=env_config)


FIRST: Final = (
    Way("Acrobot, lr 0.1", lambda: _ppo("Acrobot-v1", lr=0.1), _TOO_FAST, 15),
    Way(
        "Pendulum, rewards x 1,000 and a value clip of 10",
        lambda: _scaled(_pendulum(vf_clip_param=10.0), "Pendulum-v1", reward=1e3),
        {"rewards_beg_for_normalization", "value_loss_beyond_clip"},
        15,
    ),
    Way(
        "Acrobot, entropy_coeff 1",
        lambda: _ppo("Acrobot-v1", entropy_coeff=1.0),
        {"policy_stays_random"},
        30,
    ),
    Way(
        "Pendulum, log_std_init 3",
        lambda: _pendulum().rl_module(model_config={"log_std_init": 3.0}),
        {"actions_at_bounds"},
        15,
    ),
    Way(
        "Acrobot, 100 epochs, clip 10, lr 0.003",
        lambda: _ppo("Acrobot-v1", num_epochs=100, clip_param=10.0, lr=3e-3, train_batch_size=2048),
        _TOO_FAST,
        12,
    ),
    Way(
        "Pendulum, clip 0.001",
        lambda: _pendulum(clip_param=1e-3),
        {"ratio_clipped_everywhere"},
        20,
    ),
    Way(
        "MountainCar by Acrobot's recipe",
        lambda: _ppo("Acrobot-v1", train_batch_size=1024).environment("MountainCar-v0"),
        {"returns_never_differ"},
        120,
    ),
    Way(
        "SAC that starts after a million steps",
        lambda: SACConfig.recipe("Pendulum-v1").training(
            num_steps_sampled_before_learning_starts=10**6
        ),
        {"never_learns_from_replay"},
        105,
    ),
    Way(
        "DQN, Acrobot, lr 0.5",
        lambda: _diverging(DQNConfig.recipe("Acrobot-v1"), 0.5),
        {"values_diverge"},
        10,
    ),
    Way(
        "Pendulum, observations x 100,000",
        lambda: _scaled(_pendulum(), "Pendulum-v1", obs=1e5),
        {"observations_beg_for_normalization"},
        12,
    ),
    Way(
        "Acrobot, lr 1e-8",
        lambda: _ppo("Acrobot-v1", lr=1e-8, train_batch_size=2048),
        {"updates_change_nothing"},
        30,
    ),
    Way(
        "SAC, rewards x 100,000",
        lambda: _scaled(SACConfig.recipe("Pendulum-v1"), "Pendulum-v1", reward=1e5),
        {"rewards_beg_for_normalization"},
        8,
    ),
    Way(
        "CartPole with an LSTM, lr 0.3",
        lambda: _ppo(
            "CartPole-v1", lr=0.3, clip_param=0.2, train_batch_size=1024, minibatch_size=256
        ).rl_module(model_config={"use_lstm": True, "lstm_cell_size": 32, "max_seq_len": 16}),
        _TOO_FAST,
        20,
    ),
    Way(
        "Pendulum, grad_clip 1e-8",
        lambda: _pendulum(grad_clip=1e-8, lr=1e-6),
        {"gradients_always_clipped"},
        30,
    ),
    Way(
        "Pendulum, lr that is soon 0",
        lambda: _pendulum(lr=[[0, 1e-3], [2000, 0.0]]),
        {"learning_rate_is_zero"},
        20,
    ),
)
"""Run before anything was mended for them."""

SECOND: Final = (
    Way("HalfCheetah, lr 0.1", lambda: _ppo("HalfCheetah-v5", lr=0.1), _TOO_FAST, 12, "mujoco"),
    Way(
        "Hopper, clip 0.0001",
        lambda: _ppo("Hopper-v5", clip_param=1e-4),
        {"ratio_clipped_everywhere"},
        15,
        "mujoco",
    ),
    Way(
        "LunarLander, lr 1e-8",
        lambda: _ppo("LunarLander-v3", lr=1e-8, train_batch_size=4096),
        {"updates_change_nothing"},
        30,
        "Box2D",
    ),
    Way(
        "LunarLander, entropy_coeff 5",
        lambda: _ppo("LunarLander-v3", entropy_coeff=5.0, train_batch_size=4096),
        {"policy_stays_random"},
        30,
        "Box2D",
    ),
    Way(
        "InvertedDoublePendulum, log_std_init 5",
        lambda: _ppo("InvertedDoublePendulum-v5").rl_module(model_config={"log_std_init": 5.0}),
        {"actions_at_bounds"},
        12,
        "mujoco",
    ),
    Way(
        "LunarLander, rewards x 10,000",
        lambda: _scaled(
            _ppo("LunarLander-v3", train_batch_size=4096), "LunarLander-v3", reward=1e4
        ),
        {"rewards_beg_for_normalization"},
        12,
        "Box2D",
    ),
    Way(
        "BipedalWalker, grad_clip 1e-9",
        lambda: _ppo("BipedalWalker-v3", grad_clip=1e-9, lr=1e-6, train_batch_size=4096),
        {"gradients_always_clipped"},
        20,
        "Box2D",
    ),
    Way(
        "DQN, CartPole, lr 0.3",
        lambda: _diverging(DQNConfig.recipe("CartPole-v1"), 0.3),
        {"values_diverge"},
        15,
    ),
    Way(
        "MountainCar by CartPole's recipe",
        lambda: _never_there("MountainCar-v0"),
        {"returns_never_differ"},
        130,
    ),
    Way(
        "InvertedPendulum, a value clip of 0.001",
        lambda: _ppo("InvertedPendulum-v5", vf_clip_param=1e-3).environment(
            normalize_rewards=False
        ),
        {"value_loss_beyond_clip"},
        15,
        "mujoco",
    ),
    Way(
        "Hopper, observations x 10,000, not normalised",
        lambda: _scaled(_ppo("Hopper-v5"), "Hopper-v5", obs=1e4).env_runners(
            observation_filter="NoFilter"
        ),
        {"observations_beg_for_normalization"},
        10,
        "mujoco",
    ),
    Way(
        "DQN that starts after half a million steps",
        lambda: DQNConfig.recipe("LunarLander-v3").training(
            num_steps_sampled_before_learning_starts=500_000
        ),
        {"never_learns_from_replay"},
        101,
        "Box2D",
    ),
    Way(
        "FrozenLake 8x8",
        lambda: _never_there("FrozenLake-v1", map_name="8x8"),
        {"returns_never_differ"},
        130,
    ),
    Way(
        "Acrobot with a GRU, lr 0.5",
        lambda: _ppo("Acrobot-v1", lr=0.5, train_batch_size=2048, minibatch_size=256).rl_module(
            model_config=_GRU
        ),
        _TOO_FAST,
        15,
    ),
)
"""Run after the checks had been mended for the first."""


def main(parts: Sequence[str]) -> None:
    """Runs the ways, and prints what is told of each."""
    for way in (*FIRST, *SECOND):
        if parts and not any(part in way.name for part in parts):
            continue
        if way.needs and importlib.util.find_spec(way.needs) is None:
            print(f"{way.name}: {way.needs} is not installed")
            continue
        config = way.config().env_runners(num_env_runners=0).debugging(seed=0)
        with config.build_algo() as algo:
            results = [algo.train() for _ in range(way.num_iterations)]
        found = findings(results)
        is_right = bool(found) and found[0].check in way.causes
        told = ", ".join(f"{each.check} ({each.iteration})" for each in found) or "nothing"
        returns = [results[place]["env_runners"]["episode_return_mean"] for place in (0, -1)]
        print(
            f"{way.name}: {'right' if is_right else 'OTHER'}, told {told}; "
            f"return {returns[0]:.4g} to {returns[1]:.4g}",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
