"""Older names of an algorithm's members."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from checkpoints.arguments import argument_error
from trainer.rllib_names.saved_checkpoint import SavedCheckpoint, path_of_checkpoint


class _Algorithm(Protocol):
    # Properties, because type checkers compare writable members and signatures exactly.
    @property
    def env_runner_group(self) -> Any: ...
    @property
    def eval_env_runner_group(self) -> Any: ...
    @property
    def get_state(self) -> Callable[..., dict[str, Any]]: ...
    @property
    def set_state(self) -> Callable[..., None]: ...
    @property
    def get_metadata(self) -> Callable[..., dict[str, Any]]: ...
    @property
    def get_module(self) -> Callable[..., Any]: ...
    @property
    def save_to_path(self) -> Callable[..., str]: ...
    @property
    def restore_from_path(self) -> Callable[..., None]: ...


class AlgorithmNames:
    """Adds the older names to an algorithm."""

    @property
    def workers(self: _Algorithm) -> Any:
        """Older name of `env_runner_group`."""
        return self.env_runner_group

    @property
    def evaluation_workers(self: _Algorithm) -> Any:
        """Older name of `eval_env_runner_group`."""
        return self.eval_env_runner_group

    def get_policy(self: _Algorithm, policy_id: str | None = None) -> Any:
        """Older name of `get_module`."""
        return self.get_module(policy_id)

    def restore_env_runners(self: _Algorithm, env_runner_group: Any = None) -> list[int]:
        """RLlib's way to have lost runners made again, of which nobody has to think here.

        Args:
            env_runner_group: the group; None means the runners of training.

        Returns:
            The indices of the runners that were replaced.
        """
        group = self.env_runner_group if env_runner_group is None else env_runner_group
        if not hasattr(group, "probe_unhealthy_env_runners"):
            raise argument_error(
                "restore_env_runners()", "env_runner_group", group, "a group of env runners"
            )
        indices: list[int] = group.probe_unhealthy_env_runners()
        return indices

    def restore_workers(self: _Algorithm, workers: Any = None) -> list[int]:
        """Older name of `restore_env_runners`."""
        group = self.env_runner_group if workers is None else workers
        if not hasattr(group, "probe_unhealthy_env_runners"):
            raise argument_error(
                "restore_env_runners()", "workers", group, "a group of env runners"
            )
        indices: list[int] = group.probe_unhealthy_env_runners()
        return indices

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
