"""Several sub-envs of one runner side by side, each with its own context and its own episodes.

It is one of gymnasium's vector envs, so that code which is given `env` finds what it knows. But it
does not step or reset for itself: the runner steps each sub-env and resets it when its episode
ends, so that no step goes uncounted and each episode can have its own seed.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import gymnasium.vector
from gymnasium.vector.utils import batch_space

from checkpoints.arguments import checked_methods
from trainer.envs.env_factory import EnvContext
from trainer.envs.tasks import task_layer, user_layer, why_no_tasks
from trainer.errors import EnvError, TaskError


@checked_methods()
class VectorEnv(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """The sub-envs of one env runner.

    Attributes:
        envs: the sub-envs, as their creator returned them.
        contexts: their contexts, in the same order.
        num_envs: how many sub-envs there are.
        single_observation_space: the observation space of one sub-env.
        single_action_space: the action space of one sub-env.
    """

    def __init__(
        self, envs: Sequence[gymnasium.Env[Any, Any]], contexts: Sequence[EnvContext]
    ) -> None:
        self.envs = list(envs)
        self.contexts = list(contexts)
        self.num_envs = len(self.envs)
        self.single_observation_space = self.envs[0].observation_space
        self.single_action_space = self.envs[0].action_space
        self.metadata = self.envs[0].metadata
        self.render_mode = self.envs[0].render_mode
        self.spec = self.envs[0].spec

    @functools.cached_property
    def observation_space(self) -> gymnasium.Space[Any]:  # type: ignore[override]
        """The space of the observations of all sub-envs together."""
        return batch_space(self.single_observation_space, self.num_envs)

    @functools.cached_property
    def action_space(self) -> gymnasium.Space[Any]:  # type: ignore[override]
        """The space of the actions of all sub-envs together."""
        return batch_space(self.single_action_space, self.num_envs)

    @property
    def unwrapped(self) -> VectorEnv:
        """Itself: written for gymnasium's vector envs, `env.unwrapped.envs[i]` works here, too."""
        return self

    @property
    def env(self) -> VectorEnv:
        """Itself: where RLlib has a wrapper around its vector env, there is none here."""
        return self

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Calls a method of every sub-env, or reads an attribute; finds it in any layer.

        Raises:
            AttributeError: a sub-env has nothing of that name in any layer.
        """
        members = [self._member(env, name) for env in self.envs]
        return tuple(member(*args, **kwargs) if callable(member) else member for member in members)

    @staticmethod
    def _member(env: gymnasium.Env[Any, Any], name: str) -> Any:
        try:
            return env.get_wrapper_attr(name)
        except AttributeError as cause:
            raise AttributeError(
                f"The env {type(env.unwrapped).__name__} has no {name!r}, nor has a wrapper around "
                "it; expected the name of an attribute or a method. Look at what it has: "
                "dir(env.envs[0].unwrapped)."
            ) from cause

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """An attribute of every sub-env, in any layer; raises as `call` does."""
        return self.call(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Sets an attribute of every sub-env, in the layer that has it.

        Nothing remembers it but the env: a runner that is replaced has its env as it was made. What
        has to last is a task (`TaskSettableEnv`).

        Args:
            name: of the attribute.
            values: a list or tuple with a value for each sub-env, or one value for all.

        Raises:
            EnvError: there are more or fewer values than sub-envs.
        """
        if not isinstance(values, list | tuple):
            values = [values] * self.num_envs
        if len(values) != self.num_envs:
            raise EnvError(
                f"set_attr({name!r}) was given {len(values)} values for {self.num_envs} sub-envs. "
                "Give one for each, or a single value that is no list."
            )
        for env, value in zip(self.envs, values, strict=True):
            env.set_wrapper_attr(name, value)

    def render(self) -> tuple[Any, ...]:
        """A frame of every sub-env.

        Raises:
            EnvError: the env cannot be shown.
        """
        try:
            return tuple(env.render() for env in self.envs)
        except NotImplementedError as cause:
            raise EnvError(
                f"render() was called, but {type(self.envs[0].unwrapped).__name__} has no method "
                "of that name; expected an env that draws frames. Write `render` in the env, and "
                'make it with `render_mode="rgb_array"`.'
            ) from cause

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Refused: the runner resets each sub-env with its own seed.

        Raises:
            EnvError: always.
        """
        del seed, options
        raise _of_the_runner("reset")

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Refused: the runner steps each sub-env.

        Raises:
            EnvError: always.
        """
        del actions
        raise _of_the_runner("step")

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

    def __del__(self) -> None:
        """Closes nothing: the runner does, and a process that ends does not need it."""

    def close(self, **kwargs: Any) -> None:
        """Closes every sub-env, also if one of them raises. Idempotent."""
        del kwargs  # those of gymnasium's, for the extras of other vector envs
        if self.closed:
            return
        self.closed = True
        with contextlib.ExitStack() as stack:
            for env in self.envs:
                stack.callback(env.close)


class MultiAgentVectorEnv(VectorEnv):
    """The sub-envs of a runner that several agents play in.

    Their spaces are by agent, and the same in all of them; see `EnvAgents`.
    """

    def __init__(
        self, envs: Sequence[gymnasium.Env[Any, Any]], contexts: Sequence[EnvContext]
    ) -> None:
        self.envs = list(envs)
        self.contexts = list(contexts)
        self.num_envs = len(self.envs)
        first = self.envs[0]
        self.metadata = getattr(first, "metadata", {})
        self.render_mode = getattr(first, "render_mode", None)
        self.spec = getattr(first, "spec", None)


def _of_the_runner(method: str) -> EnvError:
    return EnvError(
        f"env.{method}() was called on the sub-envs of an env runner, which steps and resets each "
        "of them by itself, with a seed of its own. Play episodes with `env_runner.sample()`, or "
        "make an env of your own."
    )


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
