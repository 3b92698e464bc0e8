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

from trainer.envs.env_context import EnvContext


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

    def foreach_env(self, function: Callable[[gymnasium.Env[Any, Any]], Any]) -> list[Any]:
        """Calls the function with each sub-env's innermost env, the user's own object.

        Returns:
            the results in the order of the sub-envs.
        """
        return [function(env.unwrapped) for env in self.envs]

    def foreach_env_with_context(
        self, function: Callable[[gymnasium.Env[Any, Any], EnvContext], Any]
    ) -> list[Any]:
        """Like `foreach_env`, with the sub-env's context as second argument."""
        pairs = zip(self.envs, self.contexts, strict=True)
        return [function(env.unwrapped, context) for env, context in pairs]

    def close(self) -> None:
        """Closes every sub-env, also if one of them raises. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        with contextlib.ExitStack() as stack:
            for env in self.envs:
                stack.callback(env.close)
