"""How an argument of the other API generation is derived from the arguments an event has.

RLlib renamed most callback arguments once (`worker` became `env_runner`). A callable that *names*
such an argument gets it, derived by one of these functions; nobody else pays for it. This file
holds no event: which name belongs to which event is said in `callbacks.events`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

Derivation = Callable[[Mapping[str, Any]], Any]
"""A function from the keyword arguments of one firing to the value of one more argument."""

SINGLE_MODULE_ID: Final = "default_policy"
"""The key under which a single module is found in `policies`."""


class Renamed:
    """A derivation for an argument that only changed its name.

    Args:
        source: The documented argument that holds the value.
    """

    def __init__(self, source: str) -> None:
        self.source = source

    def __call__(self, arguments: Mapping[str, Any]) -> Any:
        """The value of the documented argument."""
        return arguments[self.source]


def modules_by_id(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """`policies` from `rl_module`: {module id: module}, one entry for a single module."""
    module = arguments["rl_module"]
    if isinstance(module, Mapping) or hasattr(module, "keys"):
        # A multi-module has keys, but need not iterate over them.
        return {module_id: module[module_id] for module_id in module.keys()}  # noqa: SIM118
    return {SINGLE_MODULE_ID: module}


def module_of_trajectory(arguments: Mapping[str, Any]) -> Any:
    """`rl_module` from `policies` and `policy_id`: the module that acted for the agent."""
    return arguments["policies"][arguments["policy_id"]]


def batch_before(arguments: Mapping[str, Any]) -> tuple[Any, ...]:
    """`pre_batch`: (policy, batch before post-processing) of the agent."""
    return tuple(arguments["original_batches"][arguments["agent_id"]][-2:])


def trajectory_info(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """`info`: the one dict that the oldest callbacks received about a trajectory."""
    return {
        "episode": arguments["episode"],
        "agent_id": arguments["agent_id"],
        "pre_batch": batch_before(arguments),
        "post_batch": arguments["postprocessed_batch"],
        "all_pre_batches": arguments["original_batches"],
    }
