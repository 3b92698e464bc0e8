"""Older names of an env runner's members (RLlib's `RolloutWorker`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class _EnvRunner(Protocol):
    # Properties, because type checkers compare writable members exactly.
    @property
    def config(self) -> Any: ...
    @property
    def env(self) -> Any: ...
    @property
    def module(self) -> Any: ...
    @property
    def module_id(self) -> str: ...


class EnvRunnerNames:
    """Adds the older names to an env runner."""

    @property
    def policy_config(self: _EnvRunner) -> Any:
        """Older name of `config`."""
        return self.config

    @property
    def policy_map(self: _EnvRunner) -> dict[str, Any]:
        """The module under its id."""
        return {self.module_id: self.module}

    def get_policy(self: _EnvRunner, policy_id: str | None = None) -> Any:
        """Older name of `module`; None for an id that does not exist."""
        return self.module if policy_id in (None, self.module_id) else None

    def for_policy(
        self: _EnvRunner,
        func: Callable[..., Any],
        policy_id: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Calls `func(module, **kwargs)`."""
        if policy_id not in (None, self.module_id):
            raise KeyError(
                f"There is no module {policy_id!r}; expected policy_id={self.module_id!r}."
            )
        return func(self.module, **kwargs)

    def foreach_policy(self: _EnvRunner, func: Callable[..., Any], **kwargs: Any) -> list[Any]:
        """Calls `func(module, module_id, **kwargs)` for the one module."""
        return [func(self.module, self.module_id, **kwargs)]

    def foreach_env(self: _EnvRunner, func: Callable[[Any], Any]) -> list[Any]:
        """Calls `func(env)` with every sub-env; no results if the runner has no env."""
        return self.env.foreach_env(func) if self.env is not None else []

    def foreach_env_with_context(self: _EnvRunner, func: Callable[[Any, Any], Any]) -> list[Any]:
        """Calls `func(env, context)` with every sub-env; no results if the runner has no env."""
        return self.env.foreach_env_with_context(func) if self.env is not None else []
