"""Judging a config: single values, what is not offered, callbacks, rules; all problems at once."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import gymnasium
from gymnasium import spaces

from callbacks.errors import CallbackConfigError
from trainer.config.settings import INSTEAD_IN_EVALUATION, Problem, assignment
from trainer.config.shared_settings import SharedSettings
from trainer.envs.tasks import TaskFunction
from trainer.errors import ConfigError, UnknownSettingError
from trainer.exploration import ExplorationSpec
from trainer.modules import DefaultModelConfig, MultiRLModuleSpec, PolicySpec, RLModuleSpec
from trainer.modules.by_module import why_no_module_id
from trainer.runner_group import EnvRunnerGroup
from trainer_toolkit.checks import shown
from trainer_toolkit.nearest_names import nearest

# ---- rule


@dataclass(frozen=True)
class Rule:
    """One rule.

    Attributes:
        settings: the settings it reads.
        find: gives its problems with a config.
    """

    settings: tuple[str, ...]
    find: Callable[[Any], Iterator[Problem]]


# ---- validation


def callback_problems(config: SharedSettings) -> Iterator[Problem]:
    """What is wrong with the configured callbacks."""
    try:
        config.callback_spec()
    except CallbackConfigError as error:
        for text in error.problems:
            yield Problem("callbacks()", text, settings=("callbacks_class",))


def module_problems(config: SharedSettings) -> Iterator[Problem]:
    """What is wrong with `model_config`, when the ready-made network reads it."""
    spec = config.rl_module_spec
    if spec is not None and (not isinstance(spec, RLModuleSpec) or spec.module_class is not None):
        return
    if spec is None and config.own_rl_module_spec is not None:
        return
    model_config = config.model_config if spec is None else spec.model_config
    try:
        DefaultModelConfig.from_setting(model_config)
    except ConfigError as error:
        yield Problem("`model_config`", str(error), settings=("model_config",))


def rule_problems(
    config: SharedSettings, rules: Sequence[Rule], earlier: Iterable[Problem]
) -> Iterator[Problem]:
    """The rules that are broken, of those whose settings have no problem yet."""
    doubtful = {name for problem in earlier for name in problem.settings}
    for rule in rules:
        if not doubtful.isdisjoint(rule.settings):
            continue
        try:
            yield from list(rule.find(config))
        except Exception:
            # A rule may look at more settings than it judges; those that are wrong are told.
            if not doubtful:
                raise


# ---- evaluation rules


def evaluation_config_decides_nothing_twice(config: SharedSettings) -> Iterator[Problem]:
    """`evaluation_config` holds no setting that evaluation settings decide."""
    overrides = config.evaluation_config or {}
    for name, value in overrides.items():
        instead = INSTEAD_IN_EVALUATION.get(name, name)
        says_the_same = "evaluation" not in name or value == config.get(name)
        if instead == name and says_the_same:
            continue
        yield Problem(
            f"evaluation_config: {assignment(name, value)}",
            f"in evaluation this follows from `{instead}` of the training config.",
            f"Remove it, and set `{instead}` with evaluation().",
            ("evaluation_config",),
        )


_AS_LEARNT: Final = ("observation_filter", "normalize_rewards", "clip_rewards")


def evaluation_sees_what_training_sees(config: SharedSettings) -> Iterator[Problem]:
    """`evaluation_config` does not change what the network's inputs and the returns mean."""
    overrides = config.evaluation_config or {}
    for name in _AS_LEARNT:
        if name in overrides and overrides[name] != config.read_value(name):
            yield Problem(
                f"evaluation_config: {assignment(name, overrides[name])}",
                "evaluations play with the training's running statistics, and report the env's "
                "own returns.",
                "Remove it.",
                ("evaluation_config",),
            )


_OF_THE_MODULE: Final = ("model_config", "rl_module_spec", "learner_class")


def evaluation_acts_with_the_module_that_learns(config: Any) -> Iterator[Problem]:
    """`evaluation_config` does not ask for another network: the weights are those of training."""
    overrides = config.evaluation_config or {}
    for name in (*_OF_THE_MODULE, "policies", *config.module_settings):
        if name not in overrides:
            continue
        given, trained = overrides[name], config.read_value(name)
        if name == "policies":  # what is said of each may differ: how it acts
            given, trained = set(given), set(trained)
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


def evaluation_beside_training_has_runners(config: SharedSettings) -> Iterator[Problem]:
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


def auto_duration_has_something_to_last_as_long_as(config: SharedSettings) -> Iterator[Problem]:
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


def auto_chunks_are_in_order(config: SharedSettings) -> Iterator[Problem]:
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


def custom_evaluation_can_be_called(config: SharedSettings) -> Iterator[Problem]:
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


# ---- rules
#
# Rules that involve several settings, of every algorithm. A rule gets a config whose single
# values are all right — it is not asked when one of the settings it names has a problem already —
# and gives the problems it finds.

_ALLOWED_DEVIATION: Final = 0.1


def fragment_fits_train_batch(config: SharedSettings) -> Iterator[Problem]:
    """Whole rounds of fragments exceed the train batch by at most a tenth.

    A round is one fragment of every env; rounds are sampled until the train batch is full.
    """
    fragment, batch = config.rollout_fragment_length, config.total_train_batch_size
    if isinstance(fragment, str) or config.in_evaluation:
        return
    slots = config.num_env_slots

    def surplus(length: int) -> int:
        return -(-batch // (slots * length)) * slots * length - batch

    if surplus(fragment) <= _ALLOWED_DEVIATION * batch:
        return
    one_round = -(-batch // slots)
    fits = surplus(one_round) <= _ALLOWED_DEVIATION * batch
    yield Problem(
        assignment("rollout_fragment_length", fragment),
        f"{slots} envs would sample {batch + surplus(fragment)} env steps for "
        f"train_batch_size={batch}, more than a tenth too many.",
        f'Give rollout_fragment_length={f"{one_round} or " if fits else ""}"auto".',
        ("rollout_fragment_length", "train_batch_size"),
    )


def every_env_owes_a_step(config: SharedSettings) -> Iterator[Problem]:
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


def cpus_are_reserved_by_one_setting(config: SharedSettings) -> Iterator[Problem]:
    """CPUs are no custom resource: one of two amounts would be ignored."""
    given = config.custom_resources_per_env_runner
    if "CPU" in given:
        yield Problem(
            assignment("custom_resources_per_env_runner", given),
            f"CPUs are reserved by num_cpus_per_env_runner={config.num_cpus_per_env_runner!r}.",
            f"Give num_cpus_per_env_runner={given['CPU']!r}, and leave 'CPU' out.",
            ("custom_resources_per_env_runner",),
        )


FILTERS: Final = ("NoFilter", "MeanStdFilter")
"""What `observation_filter` may be."""


def filter_is_known(config: SharedSettings) -> Iterator[Problem]:
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
        ExplorationSpec.from_config(config.get_exploration_config(), source=config.source)
    except ConfigError as error:
        yield Problem(
            assignment("exploration_config", config.exploration_config),
            str(error).removeprefix("exploration_config: "),
            settings=("exploration_config",),
            unknown=isinstance(error, UnknownSettingError),
        )


def task_function_takes_its_arguments(config: SharedSettings) -> Iterator[Problem]:
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


def policies_can_be_made(config: SharedSettings) -> Iterator[Problem]:
    """Ids of modules can be ids, and what is said of each is offered."""
    policies = config.policies
    for id_ in policies:
        why = why_no_module_id(id_)
        if why is not None:
            yield Problem("`policies`", f"{why}.", "Give a short text as id.", ("policies",))
    if not policies:
        yield Problem("`policies`", "there is none.", "Name at least one.", ("policies",))
    says = policies if isinstance(policies, Mapping) else {}
    for id_, policy in says.items():
        is_known = policy is None or isinstance(policy, PolicySpec | RLModuleSpec)
        if not is_known:
            yield Problem(
                f"`policies[{shown(id_)}]={shown(policy)}`",
                "expected None, a PolicySpec, or an RLModuleSpec.",
                "For settings of this module alone, write PolicySpec(config={…}).",
                ("policies",),
            )


def modules_of_a_spec_are_policies(config: SharedSettings) -> Iterator[Problem]:
    """A `MultiRLModuleSpec` says something of modules that there are."""
    spec = config.rl_module_spec
    said = spec.rl_module_specs if isinstance(spec, MultiRLModuleSpec) else {}
    if isinstance(said, RLModuleSpec):
        return  # it is for all modules
    unknown = sorted({*said} - {*config.policies})
    if unknown:
        yield Problem(
            f"`rl_module_spec`, a MultiRLModuleSpec of {', '.join(map(repr, sorted(said)))}",
            f"there is no policy {', '.join(map(repr, unknown))}.",
            f"Name all modules: multi_agent(policies={sorted(said)}, policy_mapping_fn=…).",
            ("rl_module_spec", "policies"),
        )


def trained_policies_exist(config: SharedSettings) -> Iterator[Problem]:
    """`policies_to_train` names modules that there are."""
    named = config.policies_to_train
    if named is None or callable(named):
        return
    if isinstance(named, str) or not isinstance(named, Collection):
        text = "expected a list of module ids, or a function f(module_id, batch)."
        yield Problem(
            assignment("policies_to_train", named), text, "List them.", ("policies_to_train",)
        )
        return
    unknown = sorted({*named} - {*config.policies}, key=str)
    if unknown:
        yield Problem(
            assignment("policies_to_train", named),
            f"there is no module {', '.join(map(repr, unknown))}.",
            f"Name some of {', '.join(map(repr, sorted(config.policies)))}.",
            ("policies_to_train",),
        )


def vector_envs_are_played_whole(config: SharedSettings) -> Iterator[Problem]:
    """Nothing is asked of the sub-envs of a vector env that only single envs can do."""
    if config.gym_env_vectorize_mode == "SYNC":
        return
    if config.restart_failed_sub_environments:
        yield Problem(
            assignment("restart_failed_sub_environments", True),
            "the sub-envs of a vector env cannot be made anew one by one.",
            "Leave it out: a runner whose env fails is made anew as a whole.",
            ("restart_failed_sub_environments", "gym_env_vectorize_mode"),
        )
    for name in ("env_to_module_connector", "module_to_env_connector"):
        if config[name] is not None:
            yield Problem(
                assignment(name, config[name]),
                "connector pieces stand beside single sub-envs, not beside a vector env.",
                "Wrap the vector env in the creator, or leave out `gym_env_vectorize_mode`.",
                (name, "gym_env_vectorize_mode"),
            )


def sample_ahead_without_env_task_fn(config: SharedSettings) -> Iterator[Problem]:
    """What is sampled while the main process learns does not depend on what comes of that."""
    if config.sample_ahead and config.env_task_fn is not None and not config.in_evaluation:
        yield Problem(
            assignment("sample_ahead", config.sample_ahead),
            "env_task_fn chooses tasks from the result of an iteration, and the next sample is "
            "played before there is one.",
            "Leave one of them out; a callback may call set_task() now and then, which drops the "
            "sample under way and plays it again.",
            ("sample_ahead", "env_task_fn"),
        )


_OF_VECTOR_ENVS: Final = (
    "gym_env_vectorize_mode",
    "restart_failed_sub_environments",
    "env_to_module_connector",
    "module_to_env_connector",
)

COMMON_RULES: Final = (
    Rule(
        ("custom_resources_per_env_runner", "num_cpus_per_env_runner"),
        cpus_are_reserved_by_one_setting,
    ),
    Rule(_OF_VECTOR_ENVS, vector_envs_are_played_whole),
    Rule(("policies",), policies_can_be_made),
    Rule(("rl_module_spec", "policies"), modules_of_a_spec_are_policies),
    Rule(("policies_to_train", "policies"), trained_policies_exist),
    Rule(("env_task_fn",), task_function_takes_its_arguments),
    Rule(("sample_ahead", "env_task_fn"), sample_ahead_without_env_task_fn),
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


def rates_follow_one_schedule(config: SharedSettings) -> Iterator[Problem]:
    """Schedulers of Torch begin at one learning rate, not at a schedule of it."""
    if config.torch_lr_schedulers and not isinstance(config.lr, int | float):
        yield Problem(
            assignment("lr", config.lr),
            "it is a schedule, and `torch_lr_schedulers` are another one.",
            "Give a number as lr, at which the schedulers begin, or leave them out.",
            ("lr", "torch_lr_schedulers"),
        )


ON_POLICY_RULES: Final = (
    Rule(("lr", "torch_lr_schedulers"), rates_follow_one_schedule),
    Rule(_SAMPLING, fragment_fits_train_batch),
    Rule(_SAMPLING, every_env_owes_a_step),
)
"""Rules for algorithms that learn from each sample once."""


# ---- same spaces


def check_same_spaces(training: EnvRunnerGroup, evaluation: EnvRunnerGroup) -> None:
    """Raises a ConfigError, with both, unless the envs of two groups have the same spaces.

    They are compared by kind and size, bounds may differ. The runners of both have been made.
    """
    for module_id, kind in itertools.product(
        training.module_specs, ("observation_space", "action_space")
    ):
        trained = getattr(training.module_specs[module_id], kind)
        given = getattr(evaluation.module_specs[module_id], kind)
        if _size(trained) != _size(given):
            raise ConfigError(
                f"The evaluation env {evaluation.env_name!r} has {kind}={given}, and the training "
                f"env {training.env_name!r} has {kind}={trained}: a network made for one cannot "
                "act in the other. Give evaluation_config an `env` (or `env_config`) with the "
                "spaces of the training env, or wrap it so that it has them."
            )


def _size(space: gymnasium.Space[Any]) -> Any:
    """What a network sees of a space, in a form that can be compared."""
    if isinstance(space, spaces.Dict):
        return {key: _size(part) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return [_size(part) for part in space.spaces]
    if isinstance(space, spaces.Discrete):
        return ("Discrete", int(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        return ("MultiDiscrete", space.nvec.tolist())
    return (type(space).__name__, space.shape)
