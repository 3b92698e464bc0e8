"""From `replay_buffer_config` to a replay buffer."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from checkpoints.arguments import checked_arguments
from trainer.errors import ReplayError
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

_OLD_ARGUMENTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "prioritized_replay_alpha": "alpha",
        "prioritized_replay_beta": "beta",
    }
)
_ELSEWHERE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "batch_size_B": "`train_batch_size` says how many transitions an update draws.",
        "batch_length_T": "`ReplayBuffer.sample_sequences(length=…)` draws sequences.",
        "replay_sequence_length": "`ReplayBuffer.sample_sequences(length=…)` draws sequences.",
        "learning_starts": "Use the setting `num_steps_sampled_before_learning_starts`.",
        "metrics_num_episodes_for_smoothing": "The setting of the same name in `.reporting()` "
        "holds for all metrics.",
        "prioritized_replay_eps": "It is always 1e-6.",
        "storage_unit": "Capacity always counts env steps.",
    }
)
"""Arguments of RLlib's buffers that ours lack, and what there is instead."""
_ASKING_FOR_NOTHING: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "prioritized_replay_eps": 1e-6,
        "replay_sequence_length": 1,
        "storage_unit": "timesteps",
        "worker_side_prioritization": False,
    }
)
"""Values of such arguments that ask for what our buffers do anyway; RLlib's examples give them."""
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
    arguments = {_OLD_ARGUMENTS.get(name, name): value for name, value in config.items()}
    buffer_class = _class_of(arguments.pop("type", "PrioritizedEpisodeReplayBuffer"))
    parameters = dict(inspect.signature(buffer_class.__init__).parameters)
    parameters.pop("self")
    known = list(parameters)
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    if not set(_PRIORITIES) & set(known):
        # The default config has them, and merging keeps them: a uniform buffer has no use for them.
        arguments = {name: v for name, v in arguments.items() if name not in _PRIORITIES}
    unknown = [name for name in arguments if name not in known and not takes_all]
    for name in [name for name in unknown if name in _ASKING_FOR_NOTHING]:
        if arguments[name] == _ASKING_FOR_NOTHING[name]:
            del arguments[name]
            unknown.remove(name)
    if unknown:
        near = difflib.get_close_matches(unknown[0], known, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ReplayError(
            f"{buffer_class.__name__} has no argument {unknown[0]!r}."
            f"{' ' + _ELSEWHERE[unknown[0]] if unknown[0] in _ELSEWHERE else hint} It takes "
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
