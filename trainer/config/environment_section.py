"""Settings of the environment."""

# Section methods only declare; the decorator `section` reads their arguments.
# ruff: noqa: ARG002

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from trainer.config.checks import (
    boolean,
    either,
    function,
    mapping,
    number,
    optional,
    space,
    text,
)
from trainer.config.config_values import ConfigValues, section
from trainer.config.setting import Merge, NotProvided, Setting

ConfigT = TypeVar("ConfigT", bound="EnvironmentSection")

_ENV = either(text(), function())


class EnvironmentSection(ConfigValues):
    """`environment()`: which env is played, and how rewards and actions pass its border."""

    env = Setting[Any](None, optional(_ENV))
    env_config = Setting[dict[Any, Any]]({}, mapping(), merge=Merge.DEEP)
    observation_space = Setting[Any](None, optional(space()))
    action_space = Setting[Any](None, optional(space()))
    render_env = Setting(False, boolean())
    clip_rewards = Setting[float | bool | None](None, optional(either(boolean(), number(above=0))))
    normalize_rewards = Setting(False, boolean())
    normalize_actions = Setting(True, boolean())
    clip_actions = Setting(False, boolean())
    disable_env_checking = Setting(False, boolean())
    is_atari = Setting[bool | None](None, optional(boolean()))
    action_mask_key = Setting("action_mask", text())
    env_task_fn = Setting[Callable[..., Any] | None](None, optional(function()))
    auto_wrap_old_gym_envs = Setting(True, boolean())

    @section
    def environment(
        self: ConfigT,
        env: Any = NotProvided,
        *,
        env_config: dict[Any, Any] = NotProvided,
        observation_space: Any = NotProvided,
        action_space: Any = NotProvided,
        render_env: bool = NotProvided,
        clip_rewards: float | bool | None = NotProvided,
        normalize_rewards: bool = NotProvided,
        normalize_actions: bool = NotProvided,
        clip_actions: bool = NotProvided,
        disable_env_checking: bool = NotProvided,
        is_atari: bool | None = NotProvided,
        action_mask_key: str = NotProvided,
        env_task_fn: Callable[..., Any] | None = NotProvided,
        auto_wrap_old_gym_envs: bool = NotProvided,
        **old_names: Any,
    ) -> ConfigT:
        """Say which environment is played.

        Args:
            env: a registered name, a gymnasium id, a dotted path to a class, a class or a function;
                the last two are called with one `EnvContext`.
            env_config: what the env finds in its `EnvContext`. Merged into what is already there,
                on every level.
            observation_space: overrides the env's observation space.
            action_space: overrides the env's action space.
            render_env: call `render()` while sampling.
            clip_rewards: learn from the sign of rewards (True), or from rewards clipped to ±c (a
                number c); False and None leave them. Reported returns are the env's own.
            normalize_rewards: learn from rewards divided by the running standard deviation of the
                discounted return, and clipped to ±10. Reported returns are the env's own.
            normalize_actions: the module acts in [-1, 1]; actions are scaled to the bounds of a Box
                before `step`.
            clip_actions: actions are clipped to the bounds of a Box before `step`.
            disable_env_checking: do not check the env against the gymnasium contract when it is
                made.
            is_atari: whether the env is an Atari game.
            action_mask_key: the key of the action mask in a dict observation.
            env_task_fn: the curriculum, called as `fn(train_results, env, env_context)` after each
                iteration, beside each training env; gives the env's next task.
            auto_wrap_old_gym_envs: wrap envs written for gym before 0.26.
            **old_names: old names of these settings.

        Raises:
            UnknownSettingError: an argument does not exist.
        """
        return self
