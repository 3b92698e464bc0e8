"""Checks that what is trained in one env can act in the other."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium import spaces

from trainer.env_runners import EnvRunnerGroup
from trainer.errors import ConfigError


def check_same_spaces(training: EnvRunnerGroup, evaluation: EnvRunnerGroup) -> None:
    """Compares the spaces of both groups' envs by kind and size; bounds may differ.

    Args:
        training: the group that learns; its runners have been made.
        evaluation: the other one; its runners have been made.

    Raises:
        ConfigError: the spaces differ; names both.
    """
    for kind in ("observation_space", "action_space"):
        trained = getattr(training.module_spec, kind)
        given = getattr(evaluation.module_spec, kind)
        if _size(trained) != _size(given):
            raise ConfigError(
                f"The evaluation env {evaluation.env_name!r} has {kind}={given}, and the training "
                f"env {training.env_name!r} has {kind}={trained}: a network made for one cannot "
                "act in the other. Give evaluation_config an `env` (or `env_config`) with the "
                "spaces of the training env, or wrap it so that it has them."
            )


def _size(space: gymnasium.Space[Any]) -> Any:
    """What a network sees of a space, in a form that can be compared."""
    if isinstance(space, spaces.Dict):
        return {key: _size(part) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return [_size(part) for part in space.spaces]
    if isinstance(space, spaces.Discrete):
        return ("Discrete", int(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        return ("MultiDiscrete", space.nvec.tolist())
    return (type(space).__name__, space.shape)
