"""Rules that involve several settings, of every algorithm.

A rule gets a config whose single values are all right — it is not asked when one of the settings it
names has a problem already — and gives the problems it finds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from trainer.config.evaluation_rules import EVALUATION_RULES
from trainer.config.problems import Problem, assignment, nearest
from trainer.config.rule import Rule
from trainer.config.sections import Sections
from trainer.curriculum import TaskFunction
from trainer.errors import ConfigError, UnknownSettingError
from trainer.exploration import ExplorationSpec

_ALLOWED_DEVIATION: Final = 0.1


def fragment_fits_train_batch(config: Sections) -> Iterator[Problem]:
    """Whole rounds of fragments exceed the train batch by at most a tenth.

    A round is one fragment of every env; rounds are sampled until the train batch is full.
    """
    fragment, batch = config.rollout_fragment_length, config.total_train_batch_size
    if isinstance(fragment, str) or config.in_evaluation:
        return
    slots = config.num_env_slots
    sampled = -(-batch // (slots * fragment)) * slots * fragment
    if sampled - batch <= _ALLOWED_DEVIATION * batch:
        return
    yield Problem(
        assignment("rollout_fragment_length", fragment),
        f"{slots} envs would sample {sampled} env steps for train_batch_size={batch}, "
        "more than a tenth too many.",
        f'Give rollout_fragment_length={max(1, batch // slots)} or "auto".',
        ("rollout_fragment_length", "train_batch_size"),
    )


def every_env_owes_a_step(config: Sections) -> Iterator[Problem]:
    """With fragments made from the train batch, every env has at least one step to do."""
    slots = config.num_env_slots
    batch = config.total_train_batch_size
    if config.rollout_fragment_length != "auto" or config.in_evaluation or batch >= slots:
        return
    yield Problem(
        assignment("train_batch_size", batch),
        f"{slots} envs sample, so some of them would have nothing to do.",
        f"Give train_batch_size={slots} or more, or use fewer envs.",
        ("train_batch_size",),
    )


FILTERS: Final = ("NoFilter", "MeanStdFilter")
"""What `observation_filter` may be."""


def filter_is_known(config: Sections) -> Iterator[Problem]:
    """The observation filter exists."""
    name = config.observation_filter
    if name in FILTERS:
        return
    meant = nearest(name, FILTERS, similarity=0.4)
    yield Problem(
        assignment("observation_filter", name),
        f"there are {' and '.join(repr(known) for known in FILTERS)}.",
        f"Did you mean {meant!r}?" if meant else "Change other things with env wrappers.",
        ("observation_filter",),
    )


def exploration_can_be_made(config: Any) -> Iterator[Problem]:
    """The exploration strategy exists and takes the arguments."""
    if not config.exploration_config:
        return  # the algorithm's own, made of settings with checks of their own
    try:
        ExplorationSpec.from_config(config.get_exploration_config())
    except ConfigError as error:
        yield Problem(
            assignment("exploration_config", config.exploration_config),
            str(error).removeprefix("exploration_config: "),
            settings=("exploration_config",),
            unknown=isinstance(error, UnknownSettingError),
        )


def task_function_takes_its_arguments(config: Sections) -> Iterator[Problem]:
    """`env_task_fn` can be called as it will be."""
    function = config.env_task_fn
    if function is None or TaskFunction.takes_its_arguments(function):
        return
    yield Problem(
        assignment("env_task_fn", function),
        "it cannot be called with three arguments.",
        "Write it as `def env_task_fn(train_results, task_settable_env, env_ctx): return task`.",
        ("env_task_fn",),
    )


COMMON_RULES: Final = (
    Rule(("env_task_fn",), task_function_takes_its_arguments),
    *EVALUATION_RULES,
    Rule(("exploration_config",), exploration_can_be_made),
    Rule(("observation_filter",), filter_is_known),
)
"""Rules for every algorithm."""

_SAMPLING: Final = (
    "num_env_runners",
    "num_envs_per_env_runner",
    "rollout_fragment_length",
    "train_batch_size",
)

ON_POLICY_RULES: Final = (
    Rule(_SAMPLING, fragment_fits_train_batch),
    Rule(_SAMPLING, every_env_owes_a_step),
)
"""Rules for algorithms that learn from each sample once."""
