"""The settings that all algorithms with replay share."""

# Section methods only declare; the decorator `section` reads their arguments.
# ruff: noqa: ARG002

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final, TypeVar

from trainer.config import AlgorithmConfig, Merge, NotProvided, Setting, section
from trainer.config.checks import Check, boolean, either, integer, mapping, number, optional
from trainer.config.problems import Problem, assignment
from trainer.config.rule import Rule
from trainer.config.rules import COMMON_RULES
from trainer.config.values import same_value
from trainer.errors import ReplayError
from trainer.replay import make_replay_buffer

ConfigT = TypeVar("ConfigT", bound="OffPolicyConfig")


def _is_range(value: Any) -> bool:
    if not (isinstance(value, (tuple, list)) and len(value) == 2):
        return False
    return all(integer(1).accepts(bound) for bound in value) and value[0] <= value[1]


_DRAWN: Final = (
    "Leave it out: every update draws its own batch from the replay buffer. For more updates, set "
    "`training_intensity`."
)
_STEPS: Final = either(integer(1), Check("a pair (lowest, highest) of ints ≥ 1", _is_range))


def refused(advice: Mapping[str, str]) -> Rule:
    """A rule that accepts settings of RLlib with values that ask for nothing, and no others.

    Args:
        advice: what to do instead, a sentence, by setting.
    """

    def ask_for_nothing(config: OffPolicyConfig) -> Iterator[Problem]:
        for name, text in advice.items():
            value = config.read_value(name)
            if not same_value(value, getattr(type(config), name).default):
                yield Problem(
                    assignment(name, value), "not offered in this version.", text, (name,)
                )

    return Rule(tuple(advice), ask_for_nothing)


def replay_buffer_can_be_made(config: OffPolicyConfig) -> Iterator[Problem]:
    """The replay buffer's type exists and takes the settings."""
    if config.in_evaluation:
        return
    try:
        make_replay_buffer(config.replay_buffer_config)
    except ReplayError as error:
        yield Problem(
            assignment("replay_buffer_config", config.replay_buffer_config),
            str(error),
            "Correct it.",
            ("replay_buffer_config",),
        )


def fragment_reaches_n_steps(config: OffPolicyConfig) -> Iterator[Problem]:
    """A fragment is at least as long as a transition over n steps."""
    fragment, steps = config.rollout_fragment_length, config.max_n_step
    if not isinstance(fragment, str) and fragment < steps and not config.in_evaluation:
        yield Problem(
            assignment("rollout_fragment_length", fragment),
            f"a fragment is shorter than n_step={config.n_step}.",
            f'Give rollout_fragment_length={steps} or more, or "auto".',
            ("rollout_fragment_length", "n_step"),
        )


class OffPolicyConfig(AlgorithmConfig):
    """What DQN and SAC have in common: they learn from a replay buffer, against target networks."""

    changed_defaults: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {
            "num_env_runners": 0,
            "rollout_fragment_length": "auto",
            "evaluation_config": {"explore": False},
        }
    )
    rules: ClassVar[tuple[Rule, ...]] = (
        *COMMON_RULES,
        refused(dict.fromkeys(("num_epochs", "minibatch_size", "shuffle_batch_per_epoch"), _DRAWN)),
        Rule(("replay_buffer_config",), replay_buffer_can_be_made),
        Rule(("rollout_fragment_length", "n_step"), fragment_reaches_n_steps),
    )

    replay_buffer_config = Setting[dict[str, Any]](
        {
            "type": "PrioritizedEpisodeReplayBuffer",
            "capacity": 50_000,
            "alpha": 0.6,
            "beta": 0.4,
        },
        mapping(),
        # Not by type: another type keeps the capacity, and a uniform one ignores alpha and beta.
        merge=Merge.DEEP,
        keeps_default=True,
    )
    num_steps_sampled_before_learning_starts = Setting(1000, integer(0), unit="env steps")
    training_intensity = Setting[float | None](None, optional(number(above=0)))
    n_step = Setting[int | tuple[int, int]](1, _STEPS, unit="env steps")
    tau = Setting[float](1.0, number(above=0, maximum=1))
    target_network_update_freq = Setting(0, integer(0), unit="env steps")
    store_buffer_in_checkpoints = Setting(True, boolean())

    @section
    def training(
        self: ConfigT,
        *,
        replay_buffer_config: dict[str, Any] = NotProvided,
        num_steps_sampled_before_learning_starts: int = NotProvided,
        training_intensity: float | None = NotProvided,
        n_step: int | tuple[int, int] = NotProvided,
        tau: float = NotProvided,
        target_network_update_freq: int = NotProvided,
        store_buffer_in_checkpoints: bool = NotProvided,
        **common_settings: Any,
    ) -> ConfigT:
        """Say how the algorithm learns from replay.

        Args:
            replay_buffer_config: `type` (a name of `trainer.replay`, or a class) and what it takes,
                such as `capacity`; merged into what is there.
            num_steps_sampled_before_learning_starts: no update before so many env steps were
                sampled.
            training_intensity: rows learnt from per env step sampled: with 16, `train_batch_size`
                64 and 4 steps per round there is one update per round. None makes one update per
                round (a round samples `rollout_fragment_length` steps from every env).
            n_step: env steps per transition; a pair draws a number for each, both ends included.
                Shortened where an episode ends.
            tau: target networks move by this share of the way to the learning ones.
            target_network_update_freq: so many env steps after the last time; 0 after every update.
            store_buffer_in_checkpoints: False leaves the replay buffer out of checkpoints, and a
                restored run fills a new one before it learns on. RLlib's default.
            **common_settings: arguments of `AlgorithmConfig.training`.

        Raises:
            UnknownSettingError: an argument does not exist.
        """
        return self

    @property
    def max_n_step(self) -> int:
        """The longest transition, in env steps."""
        steps = self.n_step
        return int(steps[1]) if isinstance(steps, (tuple, list)) else int(steps)

    def get_rollout_fragment_length(self, worker_index: int = 0) -> int:
        """Env steps that each env owes per round: with "auto" as many as `n_step`."""
        if self.rollout_fragment_length == "auto" and not self.in_evaluation:
            return self.max_n_step
        return super().get_rollout_fragment_length(worker_index)
