"""Rules about evaluation that involve several settings."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Final

from trainer.config.problems import Problem, assignment
from trainer.config.rule import Rule
from trainer.config.sections import Sections

_FIXED_IN_EVALUATION: Final = {
    "num_env_runners": "evaluation_num_env_runners",
    "batch_mode": "evaluation_duration_unit",
    "rollout_fragment_length": "evaluation_duration",
}


def evaluation_config_decides_nothing_twice(config: Sections) -> Iterator[Problem]:
    """`evaluation_config` holds no setting that evaluation settings decide."""
    overrides = config.evaluation_config
    if not isinstance(overrides, dict):
        return
    for name, value in overrides.items():
        instead = _FIXED_IN_EVALUATION.get(name, name)
        if instead == name and "evaluation" not in name:
            continue
        yield Problem(
            f"evaluation_config: {assignment(name, value)}",
            f"in evaluation this follows from `{instead}` of the training config.",
            f"Remove it, and set `{instead}` with evaluation().",
            ("evaluation_config",),
        )


_AS_LEARNT: Final = ("observation_filter", "normalize_rewards", "clip_rewards")


def evaluation_sees_what_training_sees(config: Sections) -> Iterator[Problem]:
    """`evaluation_config` does not change what the network's inputs and the returns mean."""
    overrides = config.evaluation_config
    if not isinstance(overrides, dict):
        return
    for name in _AS_LEARNT:
        if name in overrides and overrides[name] != config.read_value(name):
            yield Problem(
                f"evaluation_config: {assignment(name, overrides[name])}",
                "evaluations play with the training's running statistics, and report the env's "
                "own returns.",
                "Remove it.",
                ("evaluation_config",),
            )


_OF_THE_MODULE: Final = ("model_config", "rl_module_spec")


def evaluation_acts_with_the_module_that_learns(config: Sections) -> Iterator[Problem]:
    """`evaluation_config` does not ask for another network: the weights are those of training."""
    overrides = config.evaluation_config
    if not isinstance(overrides, dict):
        return
    for name in _OF_THE_MODULE:
        if name not in overrides:
            continue
        given, trained = overrides[name], config.read_value(name)
        if isinstance(given, dict) and isinstance(trained, dict):  # merged key by key
            given, trained = {**trained, **given}, {**trained}
        if given != trained:
            yield Problem(
                f"evaluation_config: {assignment(name, overrides[name])}",
                "an evaluation acts with the weights that training has, so with its network.",
                f"Remove it, or set `{name}` for training.",
                ("evaluation_config", name),
            )


_BESIDE: Final = ("evaluation_parallel_to_training", "enable_async_evaluation")


def evaluation_beside_training_has_runners(config: Sections) -> Iterator[Problem]:
    """What evaluates while the main process trains are processes."""
    if config.in_evaluation or config.evaluation_num_env_runners:
        return
    for name in _BESIDE:
        if config.read_value(name):
            yield Problem(
                assignment(name, True),
                "there are no evaluation processes that could work beside the main process.",
                "Give evaluation_num_env_runners=1 or more.",
                (name, "evaluation_num_env_runners"),
            )


def auto_duration_has_something_to_last_as_long_as(config: Sections) -> Iterator[Problem]:
    """`evaluation_duration="auto"` follows the training step beside it."""
    duration = config.evaluation_duration
    if config.in_evaluation or duration != "auto" or config.evaluation_parallel_to_training:
        return
    yield Problem(
        assignment("evaluation_duration", duration),
        "an evaluation can last as long as the training step only beside it.",
        "Give a number, or set evaluation_parallel_to_training=True.",
        ("evaluation_duration", "evaluation_parallel_to_training"),
    )


def auto_chunks_are_in_order(config: Sections) -> Iterator[Problem]:
    """The least is not above the most."""
    least = config.evaluation_auto_duration_min_env_steps_per_sample
    most = config.evaluation_auto_duration_max_env_steps_per_sample
    if least > most:
        yield Problem(
            assignment("evaluation_auto_duration_min_env_steps_per_sample", least),
            f"it is above evaluation_auto_duration_max_env_steps_per_sample={most}.",
            "Exchange them, or give one alone.",
            ("evaluation_auto_duration_min_env_steps_per_sample",),
        )


def custom_evaluation_can_be_called(config: Sections) -> Iterator[Problem]:
    """The function takes the algorithm and the runners, and is called in the main process."""
    function = config.custom_evaluation_function
    if function is None or config.in_evaluation:
        return
    text = assignment("custom_evaluation_function", function)
    try:
        signature = inspect.signature(function)
        signature.bind(None, None)
    except TypeError:
        yield Problem(
            text,
            f"it takes {signature}, and is called as function(algorithm, eval_env_runner_group).",
            "Let it take these two arguments.",
            ("custom_evaluation_function",),
        )
    except ValueError:
        pass  # written in C: it has no signature
    for name in _BESIDE:
        if config.read_value(name):
            yield Problem(
                text,
                f"it is your code and runs in the main process, so not while that trains ({name}).",
                f"Leave {name} out: it is called after the training step.",
                ("custom_evaluation_function", name),
            )


EVALUATION_RULES: Final = (
    Rule(("evaluation_config",), evaluation_config_decides_nothing_twice),
    Rule(("evaluation_config",), evaluation_sees_what_training_sees),
    Rule(("evaluation_config", *_OF_THE_MODULE), evaluation_acts_with_the_module_that_learns),
    Rule((*_BESIDE, "evaluation_num_env_runners"), evaluation_beside_training_has_runners),
    Rule(
        ("evaluation_duration", "evaluation_parallel_to_training"),
        auto_duration_has_something_to_last_as_long_as,
    ),
    Rule(
        (
            "evaluation_auto_duration_min_env_steps_per_sample",
            "evaluation_auto_duration_max_env_steps_per_sample",
        ),
        auto_chunks_are_in_order,
    ),
    Rule(("custom_evaluation_function", *_BESIDE), custom_evaluation_can_be_called),
)
"""Rules for every algorithm."""
