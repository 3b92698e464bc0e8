"""Older names of an algorithm's members."""

from __future__ import annotations

from typing import Any, Protocol

from trainer.types import DEFAULT_MODULE_ID


class _Algorithm(Protocol):
    env_runner_group: Any
    eval_env_runner_group: Any

    def get_module(self, module_id: str = ...) -> Any: ...


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
