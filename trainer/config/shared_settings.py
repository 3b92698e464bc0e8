"""The settings that all algorithms share, and what follows directly from them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from callbacks.events import EVENTS
from callbacks.spec import CallbackSpec
from trainer.config.config_values import ConfigValues
from trainer.config.sections import (
    CallbacksSection,
    DebuggingSection,
    EnvironmentSection,
    EnvRunnersSection,
    EvaluationSection,
    FaultToleranceSection,
    MultiAgentSection,
    ReportingSection,
    ResourcesSection,
    RLModuleSection,
    TrainingSection,
)
from trainer.config.settings import INSTEAD_IN_EVALUATION, Setting, Translation, assignment
from trainer.learners import Learner
from trainer.modules import ActorCriticModule, RLModule, RLModuleSpec
from trainer.types import DEFAULT_MODULE_ID
from trainer_toolkit.checks import boolean

_LOGGER: Final = logging.getLogger(__name__)


class SharedSettings(
    EnvironmentSection,
    EnvRunnersSection,
    TrainingSection,
    RLModuleSection,
    CallbacksSection,
    EvaluationSection,
    FaultToleranceSection,
    ResourcesSection,
    ReportingSection,
    DebuggingSection,
    MultiAgentSection,
):
    """The settings that every algorithm shares, and what follows directly from them.

    Attributes:
        default_module_class: the ready-made network of the algorithm.
    """

    default_module_class: ClassVar[type[RLModule]] = ActorCriticModule

    in_evaluation = Setting(
        False, boolean(), "whether this config belongs to evaluation runners; set by the algorithm."
    )

    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """The network where none is named, for subclasses to change; spaces come from the env."""
        return RLModuleSpec(module_class=self.default_module_class)

    @property
    def own_rl_module_spec(self) -> RLModuleSpec | None:
        """What a subclass says of the default network; None if it says nothing."""
        says = type(self).get_default_rl_module_spec
        is_own = says is not SharedSettings.get_default_rl_module_spec
        return self.get_default_rl_module_spec() if is_own else None

    def get_default_learner_class(self) -> type[Learner] | None:
        """For subclasses: the learner where `learner_class` names none; None, the algorithm's."""
        return None

    @property
    def chosen_learner_class(self) -> type[Learner] | None:
        """The class of learners that the config names; None leaves it to the algorithm."""
        return self.learner_class or self.get_default_learner_class()

    def callback_spec(self) -> CallbackSpec:
        """What was configured, checked, ready to be sent to other processes.

        Raises:
            CallbackConfigError: a class or function cannot be called at its event; lists all.
        """
        functions = {event: self.read_value(f"callbacks_{event}") for event in EVENTS}
        return CallbackSpec(self.callbacks_class, functions)

    def _translated(self, given: Mapping[Any, Any], section_name: str, where: str) -> Translation:
        translation = super()._translated(given, section_name, where)
        for config in given.values():
            if isinstance(config, ConfigValues):
                self._warn_of_left_out(config)
        return translation

    def _warn_of_left_out(self, config: ConfigValues) -> None:
        """Logs what a config given as `evaluation_config` says and evaluation settings decide."""
        given = config.given_settings()
        for name, instead in INSTEAD_IN_EVALUATION.items():
            # A copy of this config says it, too, and means nothing by it.
            if name in given and given[name] != self.read_value(name):
                _LOGGER.warning(
                    "evaluation_config: %s of the %s has no effect; in evaluation this follows "
                    "from `%s`. Set that with evaluation().",
                    assignment(name, given[name]),
                    type(config).__name__,
                    instead,
                )

    @property
    def counts_agent_steps(self) -> bool:
        """Whether sizes of samples are in agent steps, and not in env steps."""
        return bool(self.count_steps_by == "agent_steps")

    @property
    def total_train_batch_size(self) -> int:
        """Steps sampled for one update, by all runners together; see `count_steps_by`."""
        return self.train_batch_size

    @property
    def is_multi_agent(self) -> bool:
        """Whether there is any module besides the default one."""
        return list(self.policies) != [DEFAULT_MODULE_ID]

    @property
    def num_env_slots(self) -> int:
        """How many envs sample at the same time, in all runners."""
        return max(1, self.num_env_runners) * self.num_envs_per_env_runner

    def get_rollout_fragment_length(self, worker_index: int = 0) -> int:
        """Steps that each env of a runner owes per sample; see `count_steps_by`.

        With "auto" the train batch is divided by the number of env slots. What is left over is
        given to the first runners, one more step for each of their envs, until it is used up; the
        local runner (index 0) takes one more when anything is left. Example: 4000 steps, 3 runners
        of one env: 1334, 1333, 1333.

        Args:
            worker_index: 1 and up for runners in processes, 0 for the local one.
        """
        fragment = self.rollout_fragment_length
        if not isinstance(fragment, str):
            return fragment
        share, rest = divmod(self.total_train_batch_size, self.num_env_slots)
        return (
            share + 1
            if (worker_index - 1) * self.num_envs_per_env_runner < rest and rest
            else share
        )
