"""Older names of an algorithm's members."""

from __future__ import annotations

from typing import Any, Protocol

from trainer.types import DEFAULT_MODULE_ID


class _Algorithm(Protocol):
    env_runner_group: Any
    eval_env_runner_group: Any

    def get_module(self, module_id: str = ...) -> Any: ...
    def save_to_path(self, path: Any = ...) -> str: ...
    def restore_from_path(self, path: Any) -> None: ...


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

    def get_policy(self: _Algorithm, policy_id: str = DEFAULT_MODULE_ID) -> Any:
        """Older name of `get_module`."""
        return self.get_module(policy_id)

    def save(self: _Algorithm, checkpoint_dir: Any = None) -> str:
        """Older name of `save_to_path`."""
        return self.save_to_path(checkpoint_dir)

    def restore(self: _Algorithm, checkpoint_path: Any) -> None:
        """Older name of `restore_from_path`."""
        self.restore_from_path(checkpoint_path)

    def save_checkpoint(self: _Algorithm, checkpoint_dir: Any) -> str:
        """Older name of `save_to_path`."""
        return self.save_to_path(checkpoint_dir)

    def load_checkpoint(self: _Algorithm, checkpoint_dir: Any) -> None:
        """Older name of `restore_from_path`."""
        self.restore_from_path(checkpoint_dir)
