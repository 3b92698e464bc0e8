"""Settings of callbacks: classes, and functions per event.

The events themselves, with their arguments and when they fire, are listed in `callbacks.events`;
the two lists are compared by a test. What was configured is judged by
`callbacks.spec.CallbackSpec`.
"""

# Section methods only declare; the decorator `section` reads their arguments.
# ruff: noqa: ARG002

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from callbacks.events import EVENTS
from callbacks.spec import CallbackSpec
from trainer.config.checks import anything
from trainer.config.config_values import ConfigValues, section
from trainer.config.setting import NotProvided, Setting

ConfigT = TypeVar("ConfigT", bound="CallbacksSection")

Listener = Callable[..., Any] | list[Callable[..., Any]] | None
"""One function, several in the order they are called, or none."""

# Judged by CallbackSpec, which knows the arguments of each event.
_LISTENER = anything("None, a callable or a list of callables")


class CallbacksSection(ConfigValues):
    """`callbacks()`: your code, called at the events of a run."""

    callbacks_class = Setting[Any](None, anything("None, a callback class or a list of them"))
    callbacks_on_algorithm_init = Setting[Listener](None, _LISTENER)
    callbacks_on_train_result = Setting[Listener](None, _LISTENER)
    callbacks_on_evaluate_start = Setting[Listener](None, _LISTENER)
    callbacks_on_evaluate_end = Setting[Listener](None, _LISTENER)
    callbacks_on_env_runners_recreated = Setting[Listener](None, _LISTENER)
    callbacks_on_workers_recreated = Setting[Listener](None, _LISTENER)
    callbacks_on_checkpoint_loaded = Setting[Listener](None, _LISTENER)
    callbacks_on_checkpoint_saved = Setting[Listener](None, _LISTENER)
    callbacks_on_postprocess_trajectory = Setting[Listener](None, _LISTENER)
    callbacks_on_learn_on_batch = Setting[Listener](None, _LISTENER)
    callbacks_on_environment_created = Setting[Listener](None, _LISTENER)
    callbacks_on_sub_environment_created = Setting[Listener](None, _LISTENER)
    callbacks_on_create_policy = Setting[Listener](None, _LISTENER)
    callbacks_on_episode_created = Setting[Listener](None, _LISTENER)
    callbacks_on_episode_start = Setting[Listener](None, _LISTENER)
    callbacks_on_episode_step = Setting[Listener](None, _LISTENER)
    callbacks_on_episode_end = Setting[Listener](None, _LISTENER)
    callbacks_on_sample_end = Setting[Listener](None, _LISTENER)

    @section
    def callbacks(
        self: ConfigT,
        callbacks_class: Any = NotProvided,
        *,
        on_algorithm_init: Listener = NotProvided,
        on_train_result: Listener = NotProvided,
        on_evaluate_start: Listener = NotProvided,
        on_evaluate_end: Listener = NotProvided,
        on_env_runners_recreated: Listener = NotProvided,
        on_workers_recreated: Listener = NotProvided,
        on_checkpoint_loaded: Listener = NotProvided,
        on_checkpoint_saved: Listener = NotProvided,
        on_postprocess_trajectory: Listener = NotProvided,
        on_learn_on_batch: Listener = NotProvided,
        on_environment_created: Listener = NotProvided,
        on_sub_environment_created: Listener = NotProvided,
        on_create_policy: Listener = NotProvided,
        on_episode_created: Listener = NotProvided,
        on_episode_start: Listener = NotProvided,
        on_episode_step: Listener = NotProvided,
        on_episode_end: Listener = NotProvided,
        on_sample_end: Listener = NotProvided,
        **old_names: Any,
    ) -> ConfigT:
        """Say which of your code is called when: methods of classes first, then functions.

        An event given again in a later call replaces the earlier functions. Arguments left out
        leave what is there. `callbacks.EVENTS` lists the arguments of every event.

        Args:
            callbacks_class: a subclass of `RLlibCallback`, or a list of them in the order they are
                called.
            on_algorithm_init: functions called when an algorithm is complete.
            on_train_result: functions called at the end of `train()`.
            on_evaluate_start: functions called before an evaluation.
            on_evaluate_end: functions called after an evaluation.
            on_env_runners_recreated: functions called after env runners were replaced.
            on_workers_recreated: the same event with its old arguments.
            on_checkpoint_loaded: functions called after a checkpoint was loaded.
            on_checkpoint_saved: functions called after a checkpoint was written.
            on_postprocess_trajectory: functions called with each chunk as columns, to rewrite.
            on_learn_on_batch: functions called before a module learns from a batch.
            on_environment_created: functions called after a runner has made its envs.
            on_sub_environment_created: functions called after one env was made.
            on_create_policy: functions called after a module was made.
            on_episode_created: functions called when an episode exists, before its first
                observation.
            on_episode_start: functions called after the first observation of an episode.
            on_episode_step: functions called after every env step.
            on_episode_end: functions called after the last step of an episode.
            on_sample_end: functions called at the end of every sample of a runner.
            **old_names: old names of these settings.

        Raises:
            UnknownSettingError: an event or argument does not exist.
        """
        return self

    def callback_spec(self) -> CallbackSpec:
        """What was configured, checked, ready to be sent to other processes.

        Raises:
            CallbackConfigError: a class or function cannot be called at its event; lists all.
        """
        functions = {event: self.read_value(f"callbacks_{event}") for event in EVENTS}
        return CallbackSpec(self.callbacks_class, functions)
