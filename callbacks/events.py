"""The one table of events: what fires, where, with which arguments, and when it does not.

Everything else that knows events (`RLlibCallback`, the checks of a configuration, the chain) reads
this table. The engine fires each event with exactly `arguments`, by keyword. The table fires
nothing itself.

Arguments have the names of RLlib's new API. Of the events that only RLlib's old API had, every
`worker` is an `env_runner` here as well; what has no other meaning in the new API keeps its name
(`policy`, `policies`, `policy_id`, `worker_set`, `worker_ids`), and the new word is the other one.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

Derivation = Callable[[Mapping[str, Any]], Any]
"""A function from the keyword arguments of one firing to the value of one more argument."""

OLD_ARGUMENTS: Final[dict[str, Mapping[str, Derivation]]] = {}
"""By event, other names of its arguments; empty until filled from outside (`rllib_names.py`)."""

FOREIGN_EVENTS: Final[dict[str, str]] = {}
"""Events of RLlib that do not exist here, with what to say; filled from outside, likewise."""

_NONE: Final[Mapping[str, Derivation]] = {}

Scope = Literal["algorithm", "env_runner"]
"""Whose callback objects hear an event: those of the algorithm or those of one env runner."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """One event.

    Attributes:
        name: The name of the method, and of the keyword of `config.callbacks(...)`.
        scope: Whose callback objects hear it.
        arguments: The exact keyword arguments it fires with, in the order of documentation.
        fired: When it fires.
        not_fired: When one could expect it, but it does not fire.
    """

    name: str
    scope: Scope
    arguments: tuple[str, ...]
    fired: str
    not_fired: str

    @property
    def old_arguments(self) -> Mapping[str, Derivation]:
        """Other name -> function that derives its value from the arguments of one firing.

        Given only to callables that name it.
        """
        return OLD_ARGUMENTS.get(self.name, _NONE)

    @property
    def process(self) -> str:
        """The process it fires in, as text."""
        if self.scope == "algorithm":
            return "the main process"
        return "the process of the env runner (the main process for the local env runner)"


_EPISODE_ARGUMENTS: Final = (
    "episode",
    "env_runner",
    "metrics_logger",
    "env",
    "env_index",
    "rl_module",
)
_ALGORITHM_EVENTS: Final = (
    Event(
        name="on_algorithm_init",
        scope="algorithm",
        arguments=("algorithm", "metrics_logger"),
        fired="once, at the end of the construction of an algorithm: its runners hold its weights",
        not_fired="when runners are restarted, or when a checkpoint is loaded into an algorithm",
    ),
    Event(
        name="on_train_result",
        scope="algorithm",
        arguments=("algorithm", "metrics_logger", "result"),
        fired="at the end of every `train()`: the iteration is counted and the result is complete",
        not_fired="by `evaluate()` called by hand, or when `train()` raised before its end",
    ),
    Event(
        name="on_evaluate_start",
        scope="algorithm",
        arguments=("algorithm", "metrics_logger"),
        fired="before every evaluation: its runners hold the weights that will be evaluated",
        not_fired="in iterations without evaluation",
    ),
    Event(
        name="on_evaluate_end",
        scope="algorithm",
        arguments=("algorithm", "metrics_logger", "evaluation_metrics"),
        fired="after every evaluation, before its metrics are returned or put into a result",
        not_fired="when the evaluation raised or was cancelled",
    ),
    Event(
        name="on_env_runners_recreated",
        scope="algorithm",
        arguments=("algorithm", "env_runner_group", "env_runner_indices", "is_evaluation"),
        fired="after lost, failed or interrupted env runners were replaced and put back to where "
        "they were; in the next request to them if theirs was cut short",
        not_fired="for the first start of a runner, or when a runner is not replaced",
    ),
    Event(
        name="on_workers_recreated",
        scope="algorithm",
        arguments=("algorithm", "worker_set", "worker_ids", "is_evaluation"),
        fired="directly after `on_env_runners_recreated`, which is its new name",
        not_fired="whenever `on_env_runners_recreated` is not",
    ),
    Event(
        name="on_checkpoint_loaded",
        scope="algorithm",
        arguments=("algorithm", "metrics_logger"),
        fired="after a checkpoint was loaded by any route and all runners hold its state",
        not_fired="when only one component is restored, or when loading raised",
    ),
    Event(
        name="on_checkpoint_saved",
        scope="algorithm",
        arguments=("algorithm", "metrics_logger", "path"),
        fired="after a checkpoint was written completely and renamed into place",
        not_fired="when writing raised; `get_state()` alone writes nothing",
    ),
    Event(
        name="on_learn_on_batch",
        scope="algorithm",
        arguments=("policy", "train_batch", "result"),
        fired="per module and update, when its train batch is complete and nothing is learnt yet",
        not_fired="per minibatch or epoch",
    ),
)

_ENV_RUNNER_EVENTS: Final = (
    Event(
        name="on_environment_created",
        scope="env_runner",
        arguments=("env_runner", "metrics_logger", "env", "env_context"),
        fired="after an env runner made all its sub-envs; a runner that replaces a lost one does "
        "too",
        not_fired="for single sub-envs, also when one is made anew: see "
        "`on_sub_environment_created`",
    ),
    Event(
        name="on_sub_environment_created",
        scope="env_runner",
        arguments=(
            "env_runner",
            "metrics_logger",
            "sub_environment",
            "env_context",
            "env_index",
        ),
        fired="after each sub-env was made, in order of its index, before "
        "`on_environment_created`; again when a single one failed and was made anew "
        "(`restart_failed_sub_environments`)",
        not_fired="at a reset",
    ),
    Event(
        name="on_create_policy",
        scope="env_runner",
        arguments=("policy_id", "policy"),
        fired="after each module of an env runner was built, before it gets its weights",
        not_fired="when weights are updated",
    ),
    Event(
        name="on_episode_created",
        scope="env_runner",
        arguments=_EPISODE_ARGUMENTS,
        fired="when the object of a new episode was made, always before the env is reset for it",
        not_fired="for a chunk that continues an episode",
    ),
    Event(
        name="on_episode_start",
        scope="env_runner",
        arguments=_EPISODE_ARGUMENTS,
        fired="after the env was reset and the first observation is in the episode",
        not_fired="for a chunk that continues an episode",
    ),
    Event(
        name="on_episode_step",
        scope="env_runner",
        arguments=_EPISODE_ARGUMENTS,
        fired="after each env step was added to the episode, the last one included",
        not_fired="for the reset: n steps give n events",
    ),
    Event(
        name="on_postprocess_trajectory",
        scope="env_runner",
        arguments=(
            "env_runner",
            "metrics_logger",
            "episode",
            "agent_id",
            "policy_id",
            "policies",
            "postprocessed_batch",
            "original_batches",
        ),
        fired="per agent and chunk of a training episode: when the episode ends, before "
        "`on_episode_end`, and for what was played of it when `sample()` ends in its middle",
        not_fired="in evaluation, for a chunk without steps, or when an episode is given up",
    ),
    Event(
        name="on_episode_end",
        scope="env_runner",
        arguments=(*_EPISODE_ARGUMENTS, "prev_episode_chunks"),
        fired="once per episode, after its last step event, before conversion to arrays",
        not_fired="when an episode is only cut into chunks, or is dropped or given up before its "
        "end",
    ),
    Event(
        name="on_sample_end",
        scope="env_runner",
        arguments=("env_runner", "metrics_logger", "samples"),
        fired="at the end of every `sample()` of an env runner",
        not_fired="per iteration: one iteration may sample several times",
    ),
)

EVENTS: Final[Mapping[str, Event]] = {
    event.name: event for event in (*_ALGORITHM_EVENTS, *_ENV_RUNNER_EVENTS)
}
"""Every event by name: first those of the algorithm, then those of the env runners."""


def signature_text(event: str) -> str:
    """The arguments of an event for an error message, on one line."""
    entry = EVENTS[event]
    text = f"{event}(*, {', '.join(entry.arguments)})"
    if entry.old_arguments:
        text += f"; also, when named: {', '.join(entry.old_arguments)}"
    return text


def unknown_event_text(name: str) -> str:
    """Why `name` is no event and what to write instead: the second half of an error message."""
    if name in FOREIGN_EVENTS:
        return FOREIGN_EVENTS[name]
    near = difflib.get_close_matches(name, EVENTS, n=1, cutoff=0.6)
    if near:
        return f"not an event; did you mean `{near[0]}`?"
    return f"not an event; the events are {', '.join(EVENTS)}"
