"""What methods of algorithms are called in Stable-Baselines3, for hints: what to write here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_LEARN: Final = (
    "`train()` makes one iteration and returns its result; call it until "
    '`result["num_env_steps_sampled_lifetime"]` is what you want.'
)
_LOAD: Final = "`Algorithm.from_checkpoint(path)` goes on; `TrainedPolicy.from_checkpoint` acts."
_ENV: Final = "The config names the env: `config.environment(...)`, then build another algorithm."

METHODS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "learn": _LEARN,
        "collect_rollouts": _LEARN,
        "predict": "`compute_single_action(observation, explore=False)` gives one action.",
        "load": _LOAD,
        "set_parameters": "`set_weights(weights)` takes what `get_weights()` gives.",
        "get_parameters": "`get_weights()` gives all arrays by module.",
        "set_env": _ENV,
        "get_env": "`env_runner.env` is that of the main process. " + _ENV,
        "set_logger": "Give a logger: `config.callbacks(TensorBoardLogger())`.",
        "num_timesteps": 'It is `result["num_env_steps_sampled_lifetime"]`.',
        "policy": "`get_module()` gives the network, `TrainedPolicy` what acts by it.",
        "replay_buffer": "It is `local_replay_buffer`.",
        "save_replay_buffer": "Checkpoints hold it, unless `store_buffer_in_checkpoints=False`.",
        "load_replay_buffer": "Checkpoints hold it, unless `store_buffer_in_checkpoints=False`.",
    }
)


def hint_for(name: str) -> str:
    """What to write instead of a method that is not here; empty if the name is unknown."""
    return f" {METHODS[name]} See docs/coming-from-sb3.md." if name in METHODS else ""
