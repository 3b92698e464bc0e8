"""Old names of algorithms: their members, what `save()` returned, and what is refused.

What RLlib's `save()` returned is a result with a checkpoint; here it is also the path as text.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Protocol

from trainer.algorithms.on_and_off_policy import learn_from_played
from trainer.errors import ConfigError
from trainer.modules import PolicySpec
from trainer.rllib_names.config import LEARNER_CLASS
from trainer.rllib_names.installing import renamed
from trainer.types import DEFAULT_MODULE_ID
from trainer_toolkit.arguments import argument_error

# ---- checkpoints


class CheckpointHandle:
    """A directory with a checkpoint, in the manner of `ray.tune.Checkpoint`.

    Attributes:
        path: the directory.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def __fspath__(self) -> str:
        return self.path

    def __repr__(self) -> str:
        return f"CheckpointHandle({self.path!r})"

    def to_directory(self, path: str | os.PathLike[str]) -> str:
        """Copies the checkpoint to a directory and returns that."""
        return str(shutil.copytree(self.path, Path(path), dirs_exist_ok=True))

    @contextlib.contextmanager
    def as_directory(self) -> Iterator[str]:
        """Gives the directory itself."""
        yield self.path


class SavedCheckpoint(str):
    """The path that was saved to, as old RLlib returns it, with the attributes of the newer result.

    Attributes:
        checkpoint: has the `path`.
        metrics: where the run stood: `training_iteration`, `env_runners/episode_return_mean`, ….
    """

    __slots__ = ("checkpoint", "metrics")

    checkpoint: CheckpointHandle
    metrics: dict[str, Any]

    def __new__(cls, path: str, metadata: Mapping[str, Any]) -> SavedCheckpoint:
        """See the class; `metadata` are those of the manifest."""
        made = super().__new__(cls, path)
        made.checkpoint = CheckpointHandle(path)
        names = ("training_iteration", "num_env_steps_sampled_lifetime", "time_total_s")
        made.metrics = {name: metadata.get(name) for name in names}
        made.metrics["env_runners"] = {
            "episode_return_mean": metadata.get("episode_return_mean"),
            "num_episodes_lifetime": metadata.get("num_episodes_lifetime"),
        }
        return made


def path_of_checkpoint(given: Any) -> Any:
    """The path of whatever RLlib's `restore()` takes: a path, a checkpoint, a result."""
    checkpoint = getattr(given, "checkpoint", given)
    return getattr(checkpoint, "path", checkpoint)


# ---- members


def _replaced(group: Any, argument: str) -> list[int]:
    if not hasattr(group, "probe_unhealthy_env_runners"):
        raise argument_error("restore_env_runners()", argument, group, "a group of env runners")
    indices: list[int] = group.probe_unhealthy_env_runners()
    return indices


class LearnersByModule:
    """The learners of an algorithm as RLlib's `algo.learner_group`: a learner has one module here.

    Attributes:
        is_local: learning runs in the main process.
    """

    is_local = True

    def __init__(self, algorithm: Any) -> None:
        self._algorithm = algorithm

    @property
    def _learner(self) -> Any:
        """The learner of an algorithm with one module; a ModuleError if there are several."""
        return self._algorithm.learner

    @property
    def module(self) -> Any:
        """The network of an algorithm with one module."""
        return self._algorithm.learner.module

    def update(
        self, *, episodes: Sequence[Any], timesteps: Mapping[str, int] | None = None, **_: Any
    ) -> list[Any]:
        """Learns from episodes that `foreach_env_runner` let the training runners play.

        Their steps are counted here, and the weights that were learnt reach the runners. For
        `training_step()` in RLlib's manner; that of ours is `sample_steps` and `learn_from_sample`.

        Args:
            episodes: all of them, as `env_runner.sample()` gave them.
            timesteps: of no effect.
            _: RLlib's further arguments, likewise.

        Returns:
            Nothing to aggregate: metrics of the update are in the result already.
        """
        del timesteps
        learn_from_played(self._algorithm, episodes)
        return []

    def foreach_learner(self, func: Callable[..., Any], **kwargs: Any) -> list[Any]:
        """Calls `func(learner, **kwargs)` for the learner of each module, in the order of ids."""
        given = {name: value for name, value in kwargs.items() if name not in _OF_REMOTE_CALLS}
        return [func(learner, **given) for learner in self._algorithm.learners.values()]

    def get_weights(self, module_ids: Any = None) -> Any:
        """See `Algorithm.get_weights`."""
        return self._algorithm.get_weights(module_ids)

    def set_weights(self, weights: Mapping[str, Any]) -> None:
        """See `Algorithm.set_weights`."""
        self._algorithm.set_weights(weights)


class LearnerNames:
    """Adds RLlib's names to learners from episodes."""

    _learner_connector = renamed("learner_connector")


_OF_REMOTE_CALLS: Final = frozenset(
    {"healthy_only", "remote_actor_ids", "timeout_seconds", "return_obj_refs", "mark_healthy"}
)
"""Arguments of RLlib's `foreach_learner` that say how learners in processes are asked."""


class _Algorithm(Protocol):
    # Properties, because type checkers compare writable members and signatures exactly.
    @property
    def counters(self) -> Any: ...
    @property
    def eval_env_runner_group(self) -> Any: ...
    @property
    def env_runner_group(self) -> Any: ...
    @property
    def get_state(self) -> Callable[..., dict[str, Any]]: ...
    @property
    def set_state(self) -> Callable[..., None]: ...
    @property
    def get_metadata(self) -> Callable[..., dict[str, Any]]: ...
    @property
    def add_module(self) -> Callable[..., Any]: ...
    @property
    def remove_module(self) -> Callable[..., None]: ...
    @property
    def get_module(self) -> Callable[..., Any]: ...
    @property
    def save_to_path(self) -> Callable[..., str]: ...
    @property
    def restore_from_path(self) -> Callable[..., None]: ...


class AlgorithmNames:
    """Adds the older names to an algorithm."""

    workers = renamed("env_runner_group")
    evaluation_workers = renamed("eval_env_runner_group")

    @property
    def learner_group(self: _Algorithm) -> LearnersByModule:
        """RLlib's way to the learners; see `learner` and `learners`."""
        return LearnersByModule(self)

    @property
    def eval_env_runner(self: _Algorithm) -> Any:
        """The evaluation runner of the main process; None if there is none."""
        group = self.eval_env_runner_group
        return None if group is None else group.local_env_runner

    @property
    def _counters(self: _Algorithm) -> Counter[str]:
        """Steps sampled and learnt from over the whole run; 0 for other names.

        Changing it changes nothing.
        """
        played, trained = self.counters.played, self.counters.trained
        steps = {
            "num_env_steps_sampled": played.num_env_steps,
            "num_agent_steps_sampled": sum(played.num_agent_steps.values()),
            "num_env_steps_trained": trained.num_env_steps,
            "num_agent_steps_trained": trained.num_agent_steps or trained.num_env_steps,
        }
        return Counter(steps)

    def get_policy(self: _Algorithm, policy_id: str | None = None) -> Any:
        """Older name of `get_module`."""
        return self.get_module(policy_id)

    def add_policy(
        self: _Algorithm,
        policy_id: str,
        policy_cls: Any = None,
        *,
        policy: Any = None,
        observation_space: Any = None,
        action_space: Any = None,
        config: Any = None,
        policy_state: Any = None,
        policy_mapping_fn: Any = None,
        policies_to_train: Any = None,
        module_spec: Any = None,
        **_: Any,
    ) -> Any:
        """Older name of `add_module`; returns the module.

        Args:
            policy_id: of the new module.
            policy_cls: None, or "random".
            policy: must be None.
            observation_space: None is that of the agents that it acts for.
            action_space: None is that of the agents that it acts for.
            config: settings that are different for this module.
            policy_state: its weights by name, or `{"weights": those}`.
            policy_mapping_fn: replaces the mapping; None keeps it.
            policies_to_train: replaces what learns; None keeps it.
            module_spec: its network, instead of class and spaces.
            _: RLlib's further arguments, which mean nothing here.

        Raises:
            ConfigError: see `add_module`.
        """
        if policy is not None:
            raise ConfigError(
                f"add_policy({policy_id!r}, policy=…): a module of your own is given as "
                "module_spec=RLModuleSpec(module_class=…), for every process makes its own."
            )
        said = PolicySpec(policy_cls, observation_space, action_space).module_spec()
        is_said = said != PolicySpec().module_spec()
        weights = policy_state
        if isinstance(weights, Mapping) and isinstance(weights.get("weights"), Mapping):
            weights = weights["weights"]
        self.add_module(
            policy_id,
            module_spec or (said if is_said else None),
            module_state=weights,
            config_overrides=config,
            new_agent_to_module_mapping_fn=policy_mapping_fn,
            new_should_module_be_updated=policies_to_train,
        )
        return self.get_module(policy_id)

    def remove_policy(
        self: _Algorithm,
        policy_id: str = DEFAULT_MODULE_ID,
        *,
        policy_mapping_fn: Any = None,
        policies_to_train: Any = None,
        **_: Any,
    ) -> None:
        """Older name of `remove_module`.

        Args:
            policy_id: which one.
            policy_mapping_fn: replaces the mapping; None keeps it.
            policies_to_train: replaces what learns; None keeps it.
            _: RLlib's further arguments, which mean nothing here.

        Raises:
            ConfigError: see `remove_module`.
        """
        self.remove_module(
            policy_id,
            new_agent_to_module_mapping_fn=policy_mapping_fn,
            new_should_module_be_updated=policies_to_train,
        )

    def restore_env_runners(self: _Algorithm, env_runner_group: Any = None) -> list[int]:
        """RLlib's way to have lost runners made again, which happens by itself here.

        Args:
            env_runner_group: the group; None means the runners of training.

        Returns:
            The indices of the runners that were replaced.
        """
        group = self.env_runner_group if env_runner_group is None else env_runner_group
        return _replaced(group, "env_runner_group")

    def restore_workers(self: _Algorithm, workers: Any = None) -> list[int]:
        """Older name of `restore_env_runners`."""
        return _replaced(self.env_runner_group if workers is None else workers, "workers")

    def save(self: _Algorithm, checkpoint_dir: Any = None) -> SavedCheckpoint:
        """Older name of `save_to_path`; the path it returns also has `checkpoint` and `metrics`."""
        return SavedCheckpoint(self.save_to_path(checkpoint_dir), self.get_metadata())

    def restore(self: _Algorithm, checkpoint_path: Any) -> None:
        """Older name of `restore_from_path`; also takes what `save` returned, or its checkpoint."""
        self.restore_from_path(path_of_checkpoint(checkpoint_path))

    def save_checkpoint(self: _Algorithm, checkpoint_dir: Any) -> str:
        """Older name of `save_to_path`."""
        return self.save_to_path(checkpoint_dir)

    def load_checkpoint(self: _Algorithm, checkpoint_dir: Any) -> None:
        """Older name of `restore_from_path`."""
        self.restore_from_path(path_of_checkpoint(checkpoint_dir))

    def __getstate__(self: _Algorithm) -> dict[str, Any]:
        # RLlib's name of `get_state()`, with what `from_state` needs besides.
        return {**self.get_state(), "algorithm_class": type(self).__name__}

    def __setstate__(self: _Algorithm, state: dict[str, Any]) -> None:
        if "config" not in self.__dict__:
            raise TypeError(
                f"A {type(self).__name__} cannot be copied or pickled: it owns processes and envs. "
                "Save it and restore it (save_to_path, from_checkpoint), or call from_state()."
            )
        self.set_state({name: part for name, part in state.items() if name != "algorithm_class"})


# ---- refused

_MODULE: Final = "Name the class in the config: `config.rl_module(rl_module_spec=...)`."
_STATE: Final = (
    "Override `get_state` and `set_state`, which every way of saving and restoring calls; or use "
    "the callbacks `on_checkpoint_saved` and `on_checkpoint_loaded`."
)

ALGORITHM_OVERRIDES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "cleanup": "Override `stop`, and call `super().stop()` in it.",
        "log_result": "Use the callback `on_train_result`, or override `step`.",
        "reset_config": "Build a new algorithm with the other config.",
        "save_checkpoint": _STATE,
        "load_checkpoint": _STATE,
        "get_default_policy_class": _MODULE,
        "get_default_rl_module_spec": _MODULE,
        "get_default_learner_class": LEARNER_CLASS,
        "validate_env": "Check the env where it is made, or in `on_environment_created`.",
        "_setup": "Override `setup`, and call `super().setup(config)` in it.",
        "_train": "Override `step`, and call `super().step()` in it.",
        "_stop": "Override `stop`, and call `super().stop()` in it.",
        "_save": _STATE,
        "_restore": _STATE,
    }
)
"""Methods of RLlib's algorithms that are never called here, with what to write instead."""

_GRADIENTS: Final = (
    "Override `apply_gradients(self, *, loss, lr, batch)`: change `self.module.gradients`, and "
    "call `super().apply_gradients(...)`."
)
_ONE_MODULE: Final = "Override `compute_loss_for_module`: a learner here learns one module."
_UPDATE: Final = "Override `learn`, or `before_gradient_based_update` and `after_...`."

LEARNER_OVERRIDES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "compute_losses": _ONE_MODULE,
        "compute_gradients": _GRADIENTS,
        "postprocess_gradients": _GRADIENTS,
        "postprocess_gradients_for_module": _GRADIENTS,
        "configure_optimizers": "Write `configure_optimizers_for_module`, which registers them; it "
        "belongs to learners in Torch, such as PPOTorchLearner.",
        "update_from_batch": _UPDATE,
        "update_from_episodes": _UPDATE,
        "_update_from_batch_or_episodes": _UPDATE,
        "add_module": "Use the algorithm's `add_module`.",
        "remove_module": "Use the algorithm's `remove_module`.",
        "filter_param_dict_for_optimizer": "See `configure_optimizers_for_module` of "
        "PPOTorchLearner.",
    }
)
"""Methods of RLlib's learners that are never called here, with what to write instead."""

_POLICY_GRADIENT: Final = "PPO"
_CONTINUOUS: Final = "SAC"
_VALUES: Final = "DQN"

NOT_OFFERED_ALGORITHMS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "A2C": _POLICY_GRADIENT,
        "A3C": _POLICY_GRADIENT,
        "ARS": _POLICY_GRADIENT,
        "DDPPO": _POLICY_GRADIENT,
        "ES": _POLICY_GRADIENT,
        "TRPO": _POLICY_GRADIENT,
        "APEXDDPG": _CONTINUOUS,
        "TQC": _CONTINUOUS,
        "APEX": _VALUES,
        "APEXDQN": _VALUES,
        "R2D2": _VALUES,
        "RAINBOW": _VALUES,
        "SIMPLEQ": _VALUES,
    }
)
"""Algorithms that are not here, in upper case without dashes and underscores: ours instead."""
