"""Settings that objects of a built algorithm work with: a change is refused, not ignored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trainer import PPO, DQNConfig, FrozenConfigError, PPOConfig, SACConfig
from trainer.testing.envs import ContinuousEnv, CountdownEnv


def _changes(algo: Any) -> list[tuple[Any, str]]:
    names = ("lr", "gamma", "settings", "adam_epsilon", "grad_clip")
    changes = [(algo.learner, name) for name in names]
    changes += [(algo, name) for name in ("lr", "num_workers", "config", "callbacks", "seed")]
    changes += [(algo.env_runner, name) for name in ("lr", "explore", "config")]
    return changes + [(algo.config, name) for name in ("lr", "num_env_runners")]


_CONFIGS: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "PPO": (
        lambda: PPOConfig().environment(CountdownEnv),
        ["clip_param", "entropy_coeff", "lambda_", "lambda", "num_sgd_iter", "vf_clip_param"],
    ),
    "DQN": (lambda: DQNConfig().environment(CountdownEnv), ["n_step", "tau", "double_q"]),
    "SAC": (lambda: SACConfig().environment(ContinuousEnv), ["actor_lr", "target_entropy"]),
}


@pytest.mark.parametrize("name", _CONFIGS)
def test_a_setting_cannot_be_changed_where_it_would_have_no_effect(name: str) -> None:
    make, of_learner = _CONFIGS[name]
    with make().env_runners(num_env_runners=0).build_algo() as algo:
        changes = _changes(algo) + [(algo.learner, setting) for setting in of_learner]
        for owner, setting in changes:
            before = getattr(owner, setting, None)
            with pytest.raises(FrozenConfigError, match=setting):
                setattr(owner, setting, 0.5)
            assert repr(getattr(owner, setting, None)) == repr(before)
        algo.counter_of_my_own = 1
        algo.learner.note = algo.env_runner.note = "mine"


def test_the_weight_of_the_kl_penalty_moves_on_and_may_be_set() -> None:
    config = PPOConfig().environment(CountdownEnv).env_runners(num_env_runners=0)
    with config.build_algo() as algo:
        algo.learner.kl_coeff = 0.7
        assert algo.get_state("learner")["learner"]["learner"]["kl_coeff"] == 0.7


def test_the_exponents_of_priorities_are_fixed() -> None:
    config = DQNConfig().environment(CountdownEnv).env_runners(num_env_runners=0)
    with config.build_algo() as algo:
        for name in ("alpha", "beta", "capacity"):
            with pytest.raises(AttributeError, match=name):
                setattr(algo.local_replay_buffer, name, 0.5)


class Counted:
    """A class of the user's beside ours that sees what is assigned."""

    def __setattr__(self, name: str, value: Any) -> None:
        vars(self).setdefault("names", []).append(name)
        super().__setattr__(name, value)


class Early(PPO):
    """Assigns a setting before there is a config that could tell."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.gamma = 0.5
        super().__init__(*args, **kwargs)


class Beside(PPO, Counted):
    """Ours come first in the order of the classes."""


def _config() -> PPOConfig:
    return PPOConfig().environment(CountdownEnv).env_runners(num_env_runners=0)


def test_a_setting_assigned_before_there_was_a_config_cannot_be_assigned_again() -> None:
    with Early(_config()) as algo:
        vars(algo.env_runner)["gamma"] = 0.5
        for owner in (algo, algo.env_runner):
            for _ in range(2):
                with pytest.raises(FrozenConfigError, match="gamma"):
                    owner.gamma = 0.7
            assert vars(owner)["gamma"] == 0.5


def test_classes_of_the_user_see_every_assignment() -> None:
    with Beside(_config()) as algo:
        for _ in range(3):
            algo.of_my_own = 1
        assert vars(algo)["names"].count("of_my_own") == 3
