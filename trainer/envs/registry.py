"""Names for env creators, as `ray.tune.register_env` gives them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from checkpoints.arguments import instance, takes
from trainer.envs.env_context import EnvContext

EnvCreator = Callable[[EnvContext], Any]
"""Makes one env from its context."""

# Names are global because that is what registering means. Workers do not use the table: the
# creator itself is sent.
_CREATORS: Final[dict[str, EnvCreator]] = {}


@takes(name=instance(str, "a string"))
def register_env(name: str, env_creator: EnvCreator) -> None:
    """Gives an env creator a name that configs can use; a name that is taken is given anew.

    Args:
        name: what `environment(env=…)` will say.
        env_creator: a callable that takes an `EnvContext` and returns a gymnasium env.

    Raises:
        TypeError: `env_creator` is not callable.
    """
    if not callable(env_creator):
        raise TypeError(
            f"register_env({name!r}, …) got a {type(env_creator).__name__}; expected a callable "
            "that takes an EnvContext and returns an env. "
            f"Write: register_env({name!r}, lambda context: MyEnv(context))."
        )
    _CREATORS[name] = env_creator


def registered_creator(name: str) -> EnvCreator | None:
    """The creator of that name, or None."""
    return _CREATORS.get(name)


def registered_names() -> list[str]:
    """All registered names, sorted."""
    return sorted(_CREATORS)
