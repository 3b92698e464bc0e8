"""All sections that every algorithm shares, in the order in which they are documented."""

from __future__ import annotations

from trainer.config.callbacks_section import CallbacksSection
from trainer.config.checks import boolean
from trainer.config.env_runners_section import EnvRunnersSection
from trainer.config.environment_section import EnvironmentSection
from trainer.config.evaluation_section import EvaluationSection
from trainer.config.run_sections import RunSections
from trainer.config.setting import Setting
from trainer.config.stack_sections import StackSections
from trainer.config.training_sections import TrainingSections
from trainer.rllib_names.config_sections import OldSections
from trainer.types import DEFAULT_MODULE_ID


class Sections(
    EnvironmentSection,
    EnvRunnersSection,
    TrainingSections,
    CallbacksSection,
    EvaluationSection,
    RunSections,
    StackSections,
    OldSections,
):
    """The settings that every algorithm shares, and what follows directly from them.

    Attributes:
        in_evaluation: whether this config belongs to evaluation runners; set by the algorithm.
    """

    in_evaluation = Setting(False, boolean())

    @property
    def total_train_batch_size(self) -> int:
        """Env steps sampled for one update, by all runners together."""
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
        """Env steps that each env of a runner owes per sample.

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
