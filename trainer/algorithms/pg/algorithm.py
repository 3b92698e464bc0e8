"""PG: plays whole episodes with the current weights, and makes one step towards what paid.

PGConfig: the settings of the policy gradient without a value function.

What PG shows of its returns in `on_postprocess_trajectory`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from checkpoints.arguments import checked_methods
from trainer.algorithms.on_policy import OnPolicyAlgorithm
from trainer.algorithms.pg.learner import PGLearner, PGSettings
from trainer.config import AlgorithmConfig, NotProvided, section
from trainer.config.settings import Problem, assignment
from trainer.config.validation import COMMON_RULES, ON_POLICY_RULES, Rule
from trainer.connectors import SampleBatch, compute_advantages
from trainer.modules import PolicyModule, RLModule
from trainer.types import FloatArray, ModuleId

# ---- config

# Section methods only declare; the decorator `section` reads their arguments.
# ruff: noqa: ARG002


ConfigT = TypeVar("ConfigT", bound="PGConfig")


def every_row_counts_once(config: PGConfig) -> Iterator[Problem]:
    """A batch is learnt from as a whole and once: afterwards it is not of the policy any more."""
    for name, fine in (("num_epochs", 1), ("minibatch_size", None)):
        value = config.read_value(name)
        if value != fine:
            yield Problem(
                assignment(name, value),
                "PG makes one gradient step from the whole batch; a second one would need a "
                "correction, because the policy is another one by then.",
                "Leave it out, or use PPO, which makes that correction.",
                (name,),
            )


class PGConfig(AlgorithmConfig):
    """The settings of PG (Williams 1992, "Simple statistical gradient-following algorithms …").

    Example:
        `PGConfig().environment("CartPole-v1").training(lr=4e-3).build_algo()`
    """

    if TYPE_CHECKING:

        def _builds(self) -> PG: ...

    changed_defaults: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {
            "lr": 4e-4,
            "train_batch_size": 200,
            "rollout_fragment_length": "auto",
            # The return of a cut episode leaves out what would have followed, and nothing here
            # could estimate it; RLlib cuts nevertheless. See README.md.
            "batch_mode": "complete_episodes",
            "model_config": {"vf_share_layers": False},
        }
    )
    rules: ClassVar[tuple[Rule, ...]] = (
        *COMMON_RULES,
        *ON_POLICY_RULES,
        Rule(("num_epochs", "minibatch_size"), every_row_counts_once),
    )
    default_module_class: ClassVar[type[RLModule]] = PolicyModule

    @section
    def training(
        self: ConfigT,
        *,
        lr_schedule: list[list[float]] | None = NotProvided,
        **common_settings: Any,
    ) -> ConfigT:
        """Say how PG learns.

        Args:
            lr_schedule: old way to give a schedule for `lr`; None says nothing.
            **common_settings: arguments of `AlgorithmConfig.training`, such as `lr`, `gamma` and
                `train_batch_size`.

        Raises:
            UnknownSettingError: an argument does not exist.
        """
        return self


# ---- postprocessing


@dataclass(frozen=True)
class ReturnPostprocessing:
    """Adds the returns of a chunk as `advantages` (and `value_targets`), as RLlib's PG does.

    Attributes:
        gamma: see `PGConfig`.
    """

    gamma: float

    @property
    def needs_whole_module(self) -> bool:
        """No values are needed."""
        return False

    def add_columns(self, batch: SampleBatch, *, module: RLModule, obs: FloatArray) -> None:
        """See `TrajectoryPostprocessing.add_columns`."""
        del module, obs
        compute_advantages(batch, 0.0, gamma=self.gamma, use_gae=False, use_critic=False)


# ---- algorithm


@checked_methods()
class PG(OnPolicyAlgorithm):
    """Policy gradient without a value function: REINFORCE (Williams 1992).

    The equations are in `README.md` beside this file.
    """

    config_class: ClassVar[type[AlgorithmConfig]] = PGConfig

    def make_learner(self, module_id: ModuleId | None = None) -> PGLearner:
        """The learner with the settings of `PGConfig.training()`."""
        settings = PGSettings.from_config(self.config)
        return PGLearner(settings=settings, **self.learner_arguments(module_id))

    def make_postprocessing(self) -> ReturnPostprocessing:
        """Returns, as the learner computes them."""
        return ReturnPostprocessing(gamma=self.config.gamma)
