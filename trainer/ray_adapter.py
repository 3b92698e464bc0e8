"""Our algorithms as trainables of Ray Tune, for teams whose experiments are Ray's.

    from ray import tune
    from trainer import PPO
    from trainer.ray_adapter import as_ray_trainable

    tune.Tuner(as_ray_trainable(PPO), param_space={"env": "CartPole-v1", "lr": tune.uniform(…)})

Inside a trial everything is as without Ray: the same rows, checkpoints that are our folders, exact
resume. What is decided between trials, and in which order, is Ray's. Runners of a trial are
processes of the machine that Ray has placed it on.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from callbacks.optional_import import optional_module
from trainer.algorithms.algorithm import Algorithm
from trainer.config import AlgorithmConfig
from trainer.errors import ConfigError

_FOLDER: Final = "algorithm"
_NOT_IN_ROWS: Final = ("config",)


def as_ray_trainable(algorithm: type[Algorithm]) -> Any:
    """A subclass of `ray.tune.Trainable` that trains an algorithm.

    Args:
        algorithm: its class, such as `PPO`.

    Returns:
        the class; its `param_space` is a dict of the algorithm's settings, by any of their names.

    Raises:
        ConfigError: that is no class of an algorithm.
        ImportError: Ray Tune is not installed; says how to install it.
    """
    if not (isinstance(algorithm, type) and issubclass(algorithm, Algorithm)):
        raise ConfigError(
            f"as_ray_trainable({algorithm!r:.80}): expected the class of an algorithm, such as PPO."
        )
    tune = optional_module("ray.tune", user="as_ray_trainable", extra="ray")

    class RayTrainable(tune.Trainable):  # type: ignore[misc, name-defined]  # ray has no types here
        """One trial: `setup`, `step`, `save_checkpoint`, `load_checkpoint`, `cleanup`."""

        def setup(self, config: Mapping[str, Any]) -> None:
            """Builds the algorithm."""
            self.algorithm = algorithm(config=_config_of(algorithm, config))

        def step(self) -> dict[str, Any]:
            """Trains for one iteration."""
            return _row_of(self.algorithm.train())

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            """Saves as `Algorithm.save_to_path` does, into a folder of the checkpoint."""
            self.algorithm.save_to_path(Path(checkpoint_dir) / _FOLDER)

        def load_checkpoint(self, checkpoint: Any) -> None:
            """Goes on from a checkpoint, also from that of another trial."""
            self.algorithm.restore_from_path(Path(checkpoint) / _FOLDER)

        def reset_config(self, new_config: Mapping[str, Any]) -> bool:
            """Becomes another trial; what is wrong with its settings is raised before."""
            own = _config_of(algorithm, new_config)
            self.algorithm.stop()
            self.algorithm = algorithm(config=own)
            return True

        def cleanup(self) -> None:
            """Ends runners and closes envs; nothing is left to be ended if `setup` has failed."""
            made = self.__dict__.get("algorithm")
            if made is not None:
                made.stop()

        @classmethod
        def default_resource_request(cls, config: Mapping[str, Any]) -> Any:
            """One CPU for learning and one for each runner, all on one machine."""
            return tune.PlacementGroupFactory([{"CPU": _num_processes(algorithm, config)}])

    RayTrainable.__name__ = RayTrainable.__qualname__ = algorithm.__name__
    return RayTrainable


def _config_of(algorithm: type[Algorithm], given: Mapping[str, Any]) -> AlgorithmConfig:
    """The settings of a trial; a ConfigError that lists everything that is wrong."""
    config = algorithm.get_default_config().copy(copy_frozen=False)
    config.update_from_dict(dict(given))
    config.validate()
    if config.engine == "ray":
        raise ConfigError(
            'engine="ray" in a trial of Ray Tune: the runners of a trial are processes of its own '
            "machine, which its resources reserve. Leave engine out."
        )
    return config


def _num_processes(algorithm: type[Algorithm], given: Mapping[str, Any]) -> int:
    config = algorithm.get_default_config().copy(copy_frozen=False)
    config.update_from_dict(dict(given))
    num_evaluation = config.evaluation_num_env_runners if config.evaluation_interval else 0
    return 1 + int(config.num_env_runners) + int(num_evaluation)


def _row_of(result: Mapping[str, Any]) -> dict[str, Any]:
    """A result as plain dicts, without what Ray adds itself."""
    return {
        key: _row_of(value) if isinstance(value, Mapping) else value
        for key, value in result.items()
        if key not in _NOT_IN_ROWS
    }
