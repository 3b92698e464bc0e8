"""Several sub-envs of one runner side by side, each with its own context and its own episodes.

Unlike gymnasium's vector envs this one does not step or reset for itself: the runner steps each
sub-env and resets it when its episode ends, so that no step goes uncounted and each episode can
have its own seed. It is what callbacks see as `env`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium

from checkpoints.arguments import checked_methods
from trainer.curriculum import task_layer, user_layer, why_no_tasks
from trainer.envs.env_context import EnvContext
from trainer.errors import TaskError


@checked_methods()
class VectorEnv:
    """The sub-envs of one env runner.

    Attributes:
        envs: the sub-envs, as their creator returned them.
        contexts: their contexts, in the same order.
    """

    def __init__(
        self, envs: Sequence[gymnasium.Env[Any, Any]], contexts: Sequence[EnvContext]
    ) -> None:
        self.envs = list(envs)
        self.contexts = list(contexts)
        self._is_closed = False

    @property
    def num_envs(self) -> int:
        """How many sub-envs there are."""
        return len(self.envs)

    @property
    def single_observation_space(self) -> gymnasium.Space[Any]:
        """The observation space of one sub-env."""
        return self.envs[0].observation_space

    @property
    def single_action_space(self) -> gymnasium.Space[Any]:
        """The action space of one sub-env."""
        return self.envs[0].action_space

    @property
    def unwrapped(self) -> VectorEnv:
        """Itself: written for gymnasium's vector envs, `env.unwrapped.envs[i]` works here, too."""
        return self

    def foreach_env(self, function: Callable[[Any], Any]) -> list[Any]:
        """Calls the function with each sub-env, the user's own object.

        That is the outermost layer that is not one of gymnasium's own wrappers.

        Returns:
            the results in the order of the sub-envs.

        Raises:
            TaskError: the function asked the env for `set_task` or `get_task`, which it lacks.
        """
        return [self._called(function, env) for env in self.envs]

    def foreach_env_with_context(self, function: Callable[[Any, EnvContext], Any]) -> list[Any]:
        """Like `foreach_env`, with the sub-env's context as second argument."""
        pairs = zip(self.envs, self.contexts, strict=True)
        return [self._called(function, env, context) for env, context in pairs]

    def replace(self, index: int, env: gymnasium.Env[Any, Any], context: EnvContext) -> None:
        """Puts another sub-env in the place of one that failed and was closed."""
        self.envs[index] = env
        self.contexts[index] = context

    @staticmethod
    def _called(function: Callable[..., Any], env: gymnasium.Env[Any, Any], *more: Any) -> Any:
        layer = user_layer(env)
        try:
            return function(layer, *more)
        except AttributeError as error:
            if error.obj is layer and error.name in ("set_task", "get_task"):
                raise TaskError(_no_such_method(env, layer, error.name)) from error
            raise

    def close(self) -> None:
        """Closes every sub-env, also if one of them raises. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        with contextlib.ExitStack() as stack:
            for env in self.envs:
                stack.callback(env.close)


def _no_such_method(env: gymnasium.Env[Any, Any], layer: Any, method: str) -> str:
    name = type(layer).__name__
    inside = task_layer(env)
    if inside is None:
        return (
            f"{name} was asked for {method}, which it does not have: {why_no_tasks(env)}. An env "
            "that is to be given tasks needs set_task(task) and get_task(); "
            "`trainer.TaskSettableEnv` shows how."
        )
    return (
        f"{name} was asked for {method}, which it does not have; {type(inside).__name__}, which it "
        f"wraps, does. Write `env.get_wrapper_attr({method!r})(…)`, or give {name} the method, or "
        "let `env_runner_group.set_task(task)` find it."
    )
