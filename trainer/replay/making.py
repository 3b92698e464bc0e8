"""From `replay_buffer_config` to a replay buffer."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from checkpoints.arguments import checked_arguments
from trainer.errors import ReplayError
from trainer.old_names import OLD_NAMES
from trainer.replay.replay_buffer import PrioritizedReplayBuffer, ReplayBuffer

REPLAY_BUFFERS: Final[Mapping[str, type[ReplayBuffer]]] = MappingProxyType(
    {
        "ReplayBuffer": ReplayBuffer,
        "PrioritizedReplayBuffer": PrioritizedReplayBuffer,
        # RLlib's names. Steps of all episodes are linked here, so that one class serves both.
        "EpisodeReplayBuffer": ReplayBuffer,
        "PrioritizedEpisodeReplayBuffer": PrioritizedReplayBuffer,
        "MultiAgentReplayBuffer": ReplayBuffer,
        "MultiAgentPrioritizedReplayBuffer": PrioritizedReplayBuffer,
        "MultiAgentEpisodeReplayBuffer": ReplayBuffer,
        "MultiAgentPrioritizedEpisodeReplayBuffer": PrioritizedReplayBuffer,
    }
)
"""Every name that `type` may have."""

_PRIORITIES: Final = ("alpha", "beta")
_PATHS: Final = ("", "ray", "trainer")
"""First parts of dotted paths that mean our classes; somebody's own class is given as a class."""


@checked_arguments
def make_replay_buffer(config: Mapping[str, Any]) -> ReplayBuffer:
    """The buffer that a config asks for.

    Args:
        config: `type`, a name or a class, and the arguments of its constructor.

    Raises:
        ReplayError: the type does not exist, or an argument is unknown or wrong.
    """
    arguments = {
        OLD_NAMES.replay_arguments.get(name, name): value for name, value in config.items()
    }
    buffer_class = _class_of(arguments.pop("type", "PrioritizedEpisodeReplayBuffer"))
    parameters = dict(inspect.signature(buffer_class.__init__).parameters)
    parameters.pop("self")
    known = list(parameters)
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    if not set(_PRIORITIES) & set(known):
        # The default config has them, and merging keeps them: a uniform buffer has no use for them.
        arguments = {name: v for name, v in arguments.items() if name not in _PRIORITIES}
    unknown = [name for name in arguments if name not in known and not takes_all]
    for name in [name for name in unknown if name in OLD_NAMES.idle_replay_arguments]:
        if arguments[name] == OLD_NAMES.idle_replay_arguments[name]:
            del arguments[name]
            unknown.remove(name)
    if unknown:
        near = difflib.get_close_matches(unknown[0], known, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        if unknown[0] in OLD_NAMES.refused_replay_arguments:
            hint = f" {OLD_NAMES.refused_replay_arguments[unknown[0]]}"
        raise ReplayError(
            f"{buffer_class.__name__} has no argument {unknown[0]!r}."
            f"{hint} It takes "
            f"{', '.join(known)}."
        )
    return buffer_class(**arguments)


def names_replay_buffer(name: str) -> bool:
    """Whether a `type` means one of `REPLAY_BUFFERS`."""
    package, _, short = name.rpartition(".")
    return short in REPLAY_BUFFERS and package.partition(".")[0] in _PATHS


def _class_of(kind: Any) -> type[ReplayBuffer]:
    if isinstance(kind, type) and issubclass(kind, ReplayBuffer):
        return kind
    if isinstance(kind, str) and names_replay_buffer(kind):
        return REPLAY_BUFFERS[kind.rpartition(".")[2]]
    near = difflib.get_close_matches(str(kind), REPLAY_BUFFERS, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise ReplayError(
        f"There is no replay buffer {kind!r}.{hint} Give one of {', '.join(REPLAY_BUFFERS)}, or a "
        "subclass of ReplayBuffer."
    )
