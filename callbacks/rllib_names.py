"""The quarantine of RLlib's old names for callbacks: this file can be deleted.

Nothing else in this package imports it but `__init__.py`, which offers the names listed here and
calls `install()`. That enters other names of the arguments of events into `callbacks.events`: RLlib
renamed most of them once (`worker` became `env_runner`). A callable that *names* such an argument
gets it, derived by one of the functions here; no other override pays for it.

`DefaultCallbacks` is `RLlibCallback`. `make_multi_callbacks` and `MultiCallbacks` chain classes,
which a list given to `config.callbacks([...])` does as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from callbacks.callback import RLlibCallback
from callbacks.chain import CallbackGroup, CallbackSpec
from callbacks.events import FOREIGN_EVENTS, OLD_ARGUMENTS, Derivation

__all__ = ["DefaultCallbacks", "MultiCallbacks", "make_multi_callbacks"]

# ---- classes

DefaultCallbacks = RLlibCallback
"""The old name of `RLlibCallback`."""


def make_multi_callbacks(callback_class_list: Sequence[Any]) -> type[RLlibCallback]:
    """A class whose objects pass every event to one object of each given class, in order.

    Args:
        callback_class_list: Callback classes, or functions without arguments that make callback
            objects.

    Raises:
        CallbackConfigError: An entry is unfit; all problems are listed.
    """
    spec = CallbackSpec(callback_class_list)

    class MultipleCallbacks(CallbackGroup):
        """The classes given to `make_multi_callbacks`, as one class."""

        def __init__(self) -> None:
            super().__init__(spec.classes)

    return MultipleCallbacks


class MultiCallbacks:
    """An object that poses as a class: calling it makes an object of each given class.

    Unlike RLlib's, which answers with itself, each call makes an object of its own: the algorithm
    and every runner in one process must not share what callbacks remember.

    Args:
        callback_class_list: Callback classes, or functions without arguments that make callback
            objects.

    Raises:
        CallbackConfigError: An entry is unfit; all problems are listed.
    """

    def __init__(self, callback_class_list: Sequence[Any]) -> None:
        self._spec = CallbackSpec(callback_class_list)

    def __call__(self) -> CallbackGroup:
        """An object that holds one new object of each class."""
        return CallbackGroup(self._spec.classes)


# ---- arguments

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


_EPISODE_OLD: Final[Mapping[str, Derivation]] = {
    "worker": Renamed("env_runner"),
    "base_env": Renamed("env"),
    "policies": modules_by_id,
}

_BY_EVENT: Final[Mapping[str, Mapping[str, Derivation]]] = {
    "on_train_result": {"trainer": Renamed("algorithm")},
    "on_env_runners_recreated": {
        "worker_set": Renamed("env_runner_group"),
        "worker_ids": Renamed("env_runner_indices"),
    },
    "on_workers_recreated": {
        "env_runner_group": Renamed("worker_set"),
        "env_runner_indices": Renamed("worker_ids"),
    },
    "on_learn_on_batch": {"rl_module": Renamed("policy")},
    "on_environment_created": {"worker": Renamed("env_runner"), "base_env": Renamed("env")},
    "on_sub_environment_created": {"worker": Renamed("env_runner")},
    "on_create_policy": {"module_id": Renamed("policy_id"), "rl_module": Renamed("policy")},
    "on_episode_created": _EPISODE_OLD,
    "on_episode_start": _EPISODE_OLD,
    "on_episode_step": _EPISODE_OLD,
    "on_postprocess_trajectory": {
        "worker": Renamed("env_runner"),
        "module_id": Renamed("policy_id"),
        "rl_module": module_of_trajectory,
        "policy": module_of_trajectory,
        "pre_batch": batch_before,
        "post_batch": Renamed("postprocessed_batch"),
        "info": trajectory_info,
    },
    "on_episode_end": _EPISODE_OLD,
    "on_sample_end": {"worker": Renamed("env_runner")},
}

_OFFLINE: Final = "an event of RLlib's offline evaluation, which does not exist here; remove it"


def install() -> None:
    """Enters the old names into the table of events; called once."""
    OLD_ARGUMENTS.update(_BY_EVENT)
    FOREIGN_EVENTS.update(
        dict.fromkeys(
            (
                "on_evaluate_offline_start",
                "on_evaluate_offline_end",
                "on_offline_eval_runners_recreated",
            ),
            _OFFLINE,
        )
    )
