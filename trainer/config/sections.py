"""The sections of a config: every setting that all algorithms share is declared here, once.

The docstring of a section begins that of its method. `sections.pyi`, which editors and type
checkers read, is made from this file by `docs/make_section_stubs.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from callbacks.events import EVENTS
from trainer.config.config_values import ConfigValues
from trainer.config.settings import (
    INSTEAD_IN_EVALUATION,
    GivenSchedule,
    Merge,
    Setting,
    schedule,
    space,
)
from trainer.learners import Learner
from trainer.modules import MultiRLModuleSpec, PolicySpec, RLModuleSpec, plain_names
from trainer.old_names import OLD_NAMES
from trainer.runtime.engine import ENGINES, Engine
from trainer.types import DEFAULT_MODULE_ID
from trainer_toolkit.checks import (
    Check,
    anything,
    boolean,
    either,
    function,
    integer,
    mapping,
    number,
    one_of,
    optional,
    several,
    text,
)

_ENV = Check(
    "an env's name, its class, or a function that makes one; no env object, which several sub-envs "
    "would share",
    either(text(), function()).accepts,
)


class EnvironmentSection(ConfigValues, section="environment"):
    """Say which environment is played."""

    env = Setting[Any](
        None,
        optional(_ENV),
        "a registered name, a gymnasium id, a dotted path to a class, or a class or function that "
        "is called with one `EnvContext`.",
        is_positional=True,
    )
    env_config = Setting[dict[Any, Any]](
        {},
        mapping(),
        "what the env finds in its `EnvContext`; merged into earlier values, on every level.",
        merge=Merge.DEEP,
    )
    observation_space = Setting[Any](
        None,
        optional(space()),
        "overrides the env's observation space.",
    )
    action_space = Setting[Any](
        None,
        optional(space()),
        "overrides the env's action space.",
    )
    max_empty_steps = Setting(
        1000,
        integer(1),
        "with several agents: an env that observes no agent for more than so many env steps in a "
        "row counts as broken.",
        unit="env steps",
    )
    clip_rewards = Setting[float | bool | None](
        None,
        optional(either(boolean(), number(above=0))),
        "learn from the sign of rewards (True), or from rewards clipped to ±c (a number c); "
        "returns are reported unclipped.",
    )
    normalize_rewards = Setting(
        False,
        boolean(),
        "learn from rewards divided by the running standard deviation of the discounted return and "
        "clipped to ±10; returns are reported as the env gave them.",
    )
    normalize_actions = Setting(
        True,
        boolean(),
        "the module acts in [-1, 1]; actions are scaled to the bounds of a Box before `step`.",
    )
    clip_actions = Setting(
        False,
        boolean(),
        "actions are clipped to the bounds of a Box before `step`.",
    )
    disable_env_checking = Setting(
        False,
        boolean(),
        "do not check the env against the gymnasium contract when it is made.",
    )
    action_mask_key = Setting(
        "action_mask",
        text(),
        "the key of the action mask in a dict observation.",
    )
    env_task_fn = Setting[Callable[..., Any] | None](
        None,
        optional(function()),
        "the curriculum, called as `fn(train_results, env, env_context)` after each iteration, "
        "beside each training env; gives the env's next task.",
    )


_Connector = Callable[..., Any] | None


def _vectorize_mode(value: Any) -> Any:
    """Accept gymnasium's `VectorizeMode` and lower case as well."""
    name = getattr(value, "value", value)
    return name.upper() if isinstance(name, str) else value


_VECTORIZE_MODE = Check(
    '"SYNC", "VECTOR_ENTRY_POINT" or "ENVPOOL" (for "ASYNC" use more runners: `num_env_runners`)',
    lambda mode: isinstance(mode, str) and mode in ("SYNC", "VECTOR_ENTRY_POINT", "ENVPOOL"),
)


def _filter_of_today(value: Any) -> Any:
    """Accept older names of filters."""
    return OLD_NAMES.filters.get(value, value) if isinstance(value, str) else value


def _exploration_config(value: Any) -> Any:
    """Accept the type alone, and None for the algorithm's own strategy."""
    if isinstance(value, Mapping):
        return value
    return {} if value is None else {"type": value}


class EnvRunnersSection(ConfigValues, section="env_runners"):
    """Say how experience is sampled."""

    num_env_runners = Setting(
        0,
        integer(0),
        "processes that sample; 0 samples in the main process.",
    )
    num_envs_per_env_runner = Setting(
        1,
        integer(1),
        "envs that each runner steps together.",
    )
    gym_env_vectorize_mode = Setting(
        "SYNC",
        _VECTORIZE_MODE,
        '"SYNC" steps the envs of a runner one after the other, "VECTOR_ENTRY_POINT" in one call '
        'of a vector env ([envs](envs.md#vector-envs)), "ENVPOOL" by EnvPool '
        "([envs](envs.md#envpool)).",
        normalize=_vectorize_mode,
    )
    num_cpus_per_env_runner = Setting[float](
        1,
        number(0),
        'CPUs to reserve for each runner in a cluster (engine="ray").',
    )
    custom_resources_per_env_runner = Setting[dict[str, float]](
        {},
        mapping(number(0)),
        "other resources to reserve for each runner in the cluster.",
    )
    sample_timeout_s = Setting[float | None](
        60.0,
        optional(number(above=0)),
        "a runner without an env step or reset for so long is replaced; None waits.",
        unit="s",
    )
    env_to_module_connector = Setting[_Connector](
        None,
        optional(function()),
        "makes connector pieces between env and module.",
    )
    module_to_env_connector = Setting[_Connector](
        None,
        optional(function()),
        "makes connector pieces between module and env.",
    )
    episode_lookback_horizon = Setting(
        1,
        integer(0),
        "steps of the past kept when a running episode is cut.",
        unit="env steps",
    )
    rollout_fragment_length = Setting[int | str](
        200,
        either(integer(1), one_of("auto")),
        'env steps of each env per sample; "auto" divides the train batch.',
        unit="env steps",
    )
    batch_mode = Setting(
        "truncate_episodes",
        one_of("truncate_episodes", "complete_episodes"),
        '"truncate_episodes" cuts running episodes at the end of a sample, "complete_episodes" '
        "plays them to their end.",
    )
    explore = Setting(
        True,
        boolean(),
        "whether to explore; False takes the most likely action.",
    )
    exploration_config = Setting[Any](
        {},
        mapping(),
        'the exploration strategy, `{"type": ..., arguments}` (see docs/exploration.md); merged '
        "into what is there unless the type changes.",
        merge=Merge.BY_TYPE,
        normalize=_exploration_config,
    )
    observation_filter = Setting(
        "NoFilter",
        text(),
        '"MeanStdFilter" normalises observations by the running mean and standard deviation over '
        'all runners; "NoFilter" does not.',
        normalize=_filter_of_today,
    )


Listener = Callable[..., Any] | list[Callable[..., Any]] | None
"""One function, several in the order they are called, or none."""

# Judged by CallbackSpec, which knows the arguments of each event.
_LISTENER = anything("None, a callable or a list of callables")


class CallbacksSection(ConfigValues, section="callbacks"):
    """Say which of your code is called when: methods of classes first, then functions.

    An event given again in a later call replaces the earlier functions. Arguments left out leave
    what is there. `callbacks.EVENTS` lists the arguments of every event.
    """

    callbacks_class = Setting[Any](
        None,
        anything("None, a callback class or a list of them"),
        "a subclass of `RLlibCallback`, or a list of them in the order they are called.",
        is_positional=True,
    )
    # In a class body, `vars()` is the class' namespace: a setting per event.
    vars().update(
        {
            f"callbacks_{name}": Setting[Listener](
                None, _LISTENER, f"functions called {event.fired}.", argument=name
            )
            for name, event in EVENTS.items()
        }
    )


def _given_settings(value: Any) -> Any:
    """Of a config, the settings that were set in it: what it leaves open is as in training.

    It may be a changed copy of the training config, so what says nothing about evaluation is left
    out.
    """
    if not isinstance(value, ConfigValues):
        return value
    given = value.given_settings()
    left_out = {*INSTEAD_IN_EVALUATION, "in_evaluation", "evaluation_config"}
    return {name: given[name] for name in given if name not in left_out}


class EvaluationSection(ConfigValues, section="evaluation"):
    """Say when and how the weights are evaluated."""

    evaluation_interval = Setting[int | None](
        None,
        optional(integer(0)),
        "evaluate after every so many iterations; None and 0: never.",
        unit="iterations",
    )
    evaluation_duration = Setting[int | str](
        10,
        either(integer(1), one_of("auto")),
        'how many episodes or env steps; "auto" lasts as long as the training step.',
    )
    evaluation_duration_unit = Setting(
        "episodes",
        one_of("episodes", "timesteps"),
        '"episodes" are played exactly, "timesteps" (env steps) are rounded up to a multiple of '
        "the evaluation runners.",
    )
    evaluation_auto_duration_min_env_steps_per_sample = Setting(
        100,
        integer(1),
        'the least env steps of a runner\'s chunk, with duration "auto".',
        unit="env steps",
    )
    evaluation_auto_duration_max_env_steps_per_sample = Setting(
        2000,
        integer(1),
        "the most env steps of such a chunk.",
        unit="env steps",
    )
    evaluation_sample_timeout_s = Setting[float | None](
        120.0,
        optional(number(above=0)),
        "a runner that makes no env step in this time is replaced; one that ends no episode in it "
        "evaluates no further; None waits.",
        unit="s",
    )
    evaluation_parallel_to_training = Setting(
        False,
        boolean(),
        "evaluate the previous weights while the training step runs; needs "
        "`evaluation_num_env_runners` ≥ 1.",
    )
    evaluation_config = Setting[Any](
        None,
        optional(mapping()),
        'settings that differ in evaluation, e.g. `{"explore": False}`, as a dict or a config; '
        "merged into earlier values; None removes all.",
        merge=Merge.DEEP,
        normalize=_given_settings,
        holds_settings=True,
    )
    evaluation_num_env_runners = Setting(
        0,
        integer(0),
        "processes that evaluate; 0 evaluates in the main process.",
    )
    evaluation_seed = Setting[int | None](
        None,
        optional(integer(0)),
        "the root seed of evaluation episodes, which are then the same at every evaluation; None: "
        "the `seed` of `evaluation_config`, or else seeds derived from `seed`.",
    )
    custom_evaluation_function = Setting[Callable[..., Any] | None](
        None,
        optional(function()),
        "called as `fn(algorithm, eval_env_runner_group)` instead of playing episodes; gives a "
        "dict of metrics, or (dict, env steps, agent steps).",
    )
    always_attach_evaluation_results = Setting(
        True,
        boolean(),
        "keep the last evaluation in every later result.",
    )
    enable_async_evaluation = Setting(
        False,
        boolean(),
        "training waits for no evaluation; its result comes with the iteration in which it is "
        "over.",
    )


def _engine() -> Check:
    def accepts(value: Any) -> bool:
        return value in ENGINES if isinstance(value, str) else hasattr(value, "make_place")

    return Check(f"one of {', '.join(map(repr, ENGINES))}, or an engine", accepts)


class FaultToleranceSection(ConfigValues, section="fault_tolerance"):
    """Say what happens when an env runner fails."""

    restart_failed_env_runners = Setting(
        True,
        boolean(),
        "replace a failed runner, put it back to where it was, and ask again.",
    )
    ignore_env_runner_failures = Setting(
        False,
        boolean(),
        "go on without a failed runner that is not replaced.",
    )
    max_num_env_runner_restarts = Setting(
        1000,
        integer(0),
        "replacements of one runner, after which its failure is final.",
    )
    delay_between_env_runner_restarts_s = Setting[float](
        0.0,
        number(0),
        "wait before a replacement; grows from the second failure without progress on.",
        unit="s",
    )
    restart_failed_sub_environments = Setting(
        False,
        boolean(),
        "if `reset` or `step` of a single env raises, replace that env alone; its runner only if "
        "that does not help.",
    )
    num_consecutive_env_runner_failures_tolerance = Setting(
        100,
        integer(0),
        "failures of one runner in a row without progress, kills from outside included, before "
        "`train()` raises; without kills eight (docs/fault-tolerance.md). Of a single env: at most "
        "10.",
    )
    env_runner_restore_timeout_s = Setting[float](
        1800.0,
        number(above=0),
        "the longest time without progress while a runner is made and its episodes are put back.",
        unit="s",
    )
    crash_dir = Setting[str | None](
        None,
        optional(text()),
        "directory for files of failed requests, which `local-trainer replay-episode` plays again; "
        "None keeps none.",
    )


class ResourcesSection(ConfigValues, section="resources"):
    """Say where env runners run."""

    engine = Setting[str | Engine](
        "local",
        _engine(),
        '"local": processes of this machine; "ray": a Ray cluster (docs/scale-out.md); or an '
        "engine of your own. Checkpoints do not hold it.",
        is_saved=False,
    )
    strict_cpus = Setting(
        False,
        boolean(),
        'with engine="ray", refuse machines with another kind of CPU: their results may differ in '
        "the last bits.",
        is_saved=False,
    )
    placement_strategy = Setting(
        "PACK",
        text(),
        'how runners are spread over machines (engine="ray"): "PACK", "SPREAD", "STRICT_PACK" or '
        '"STRICT_SPREAD".',
    )


class ReportingSection(ConfigValues, section="reporting"):
    """Say what a result holds and how long an iteration lasts."""

    keep_per_episode_custom_metrics = Setting(
        False,
        boolean(),
        "report lists of custom metrics instead of their mean.",
    )
    metrics_num_episodes_for_smoothing = Setting[int | None](
        100,
        optional(integer(1)),
        "episode means are over the last so many episodes of all runners; None: over all since the "
        "last result, as in evaluation.",
        unit="episodes",
    )
    min_time_s_per_iteration = Setting[float | None](
        None,
        optional(number(0)),
        "repeat the training step until an iteration has lasted so long; None: once.",
        unit="s",
    )
    min_train_timesteps_per_iteration = Setting[int | None](
        0,
        optional(integer(0)),
        "repeat it until so many env steps were trained on.",
        unit="env steps",
    )
    min_sample_timesteps_per_iteration = Setting[int | None](
        0,
        optional(integer(0)),
        "repeat it until so many env steps were sampled.",
        unit="env steps",
    )


class DebuggingSection(ConfigValues, section="debugging"):
    """Say what makes a run repeatable and visible."""

    seed = Setting[int | None](
        None,
        optional(integer(0)),
        "the root seed: the same seed and settings give the same run; None draws one and reports "
        "it.",
    )


def _model_config(value: Any) -> Any:
    """Accept a dataclass such as RLlib's `DefaultModelConfig`, and functions for their names."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    return {**value, **plain_names(value)} if isinstance(value, dict) else value


_MODULE_SPEC = Check(
    "None, an RLModuleSpec or a MultiRLModuleSpec (of a torch.nn.Module: "
    "`RLModuleSpec(module_class=TorchRLModule.wrapping(network))`)",
    lambda value: value is None or isinstance(value, RLModuleSpec | MultiRLModuleSpec),
)


class TrainingSection(ConfigValues, section="training"):
    """Say how the algorithm learns; algorithms add their own arguments."""

    learner_class = Setting[type[Any] | None](
        None,
        Check(
            "None or a class derived from the algorithm's learner, such as PPOLearner",
            lambda value: value is None or (isinstance(value, type) and issubclass(value, Learner)),
        ),
        "how updates are made: a class derived from the algorithm's own learner; see "
        "docs/own-algorithm.md.",
    )
    learner_connector = Setting[_Connector](
        None,
        optional(function()),
        "makes connector pieces that see the episodes of an update before it learns from them (not "
        "with replay); see docs/connectors.md.",
    )
    gamma = Setting[float](
        0.99,
        number(0, maximum=1),
        "the discount factor.",
    )
    lr = Setting[GivenSchedule](
        0.001,
        schedule(0),
        "the learning rate.",
    )
    torch_lr_schedulers = Setting[Sequence[Callable[..., Any]] | None](
        None,
        optional(several(function())),
        "Torch's schedulers, which change `lr` after each update (PPO and PG): "
        "`[functools.partial(torch.optim.lr_scheduler.ExponentialLR, gamma=0.99)]`.",
    )
    grad_clip = Setting[float | None](
        None,
        optional(number(above=0)),
        "the bound that `grad_clip_by` applies to gradients; None does not clip.",
    )
    grad_clip_by = Setting(
        "global_norm",
        one_of("value", "norm", "global_norm"),
        '"value" clips each number, "norm" each array by its norm, "global_norm" all by their '
        "norm.",
    )
    adam_epsilon = Setting[float](
        1e-08,
        number(above=0),
        "Adam's ε; larger values make steps with small gradients smaller.",
    )
    train_batch_size = Setting(
        32,
        integer(1),
        "env steps sampled for one update.",
        unit="env steps",
    )
    num_epochs = Setting(
        1,
        integer(1),
        "how often an update passes over its batch.",
    )
    minibatch_size = Setting[int | None](
        None,
        optional(integer(1)),
        "rows per gradient step; None takes the whole batch.",
        unit="env steps",
    )
    shuffle_batch_per_epoch = Setting(
        False,
        boolean(),
        "draw a new order of the rows for every epoch.",
    )
    sample_ahead = Setting[bool | int](
        False,
        either(boolean(), integer(0, 64)),
        "how many samples env runners play ahead while the main process learns, with weights as "
        "many updates old (PPO, APPO); True is one.",
    )
    learner_config_dict = Setting[dict[str, Any]](
        {},
        mapping(),
        "your own data: callbacks find it in `algorithm.config`, a learner of yours in "
        "`self.config`.",
        merge=Merge.DEEP,
    )


class RLModuleSection(ConfigValues, section="rl_module"):
    """Say which networks are used."""

    model_config = Setting[dict[str, Any]](
        {},
        mapping(),
        'settings of the networks, e.g. `{"fcnet_hiddens": [64, 64]}`; merged into earlier values.',
        merge=Merge.DEEP,
        normalize=_model_config,
        keeps_default=True,
        also_in=("training",),
    )
    rl_module_spec = Setting[Any](
        None,
        _MODULE_SPEC,
        "an `RLModuleSpec` with a module class of your own.",
    )
    algorithm_config_overrides_per_module = Setting[dict[str, Any]](
        {},
        mapping(mapping()),
        "by module id: settings that are different for it.",
        also_in=("multi_agent",),
    )


_POLICIES = Check(
    "a dict by module id, or a list or set of module ids",
    lambda value: isinstance(value, (dict, list, tuple, set, frozenset)),
)
_MAPPING_FN = Check(
    "None, a callable, or a dict {agent: module id}",
    lambda value: value is None or callable(value) or isinstance(value, dict),
)


def _policies(given: Any) -> Any:
    """Policies with a `PolicySpec` for each tuple of its four arguments, as RLlib had them."""
    if not isinstance(given, dict):
        return given
    tuples = {id_: said for id_, said in given.items() if isinstance(said, tuple)}
    return {**given, **{id_: PolicySpec(*said) for id_, said in tuples.items() if len(said) == 4}}


class MultiAgentSection(ConfigValues, section="multi_agent"):
    """Say which modules act for which agents."""

    policies = Setting[Any](
        {DEFAULT_MODULE_ID: None},
        _POLICIES,
        "modules by id (`{id: PolicySpec}`, an `RLModuleSpec` or None), or just ids; by default "
        "one module serves all agents.",
        normalize=_policies,
    )
    policy_mapping_fn = Setting[Any](
        None,
        _MAPPING_FN,
        "`{agent: module id}`, or a function `fn(agent_id, episode)` that gives an agent's module, "
        "asked once per episode; see docs/multi-agent.md.",
    )
    policies_to_train = Setting[Any](
        None,
        anything("None, module ids or a callable"),
        "ids of the modules that learn, or a function `f(module_id, batch)`, asked once per "
        "update; None trains all.",
    )
    count_steps_by = Setting(
        "env_steps",
        one_of("env_steps", "agent_steps"),
        "the steps that `train_batch_size`, `rollout_fragment_length` and other numbers of steps "
        'count: "env_steps", or "agent_steps", the actions of all agents; see docs/multi-agent.md.',
    )
    rewards_after_end = Setting(
        "credit",
        one_of("credit", "error"),
        'a reward of an agent after its end: "credit" adds it to the agent\'s last step if this '
        'chunk contains it, else to returns only; "error" refuses it.',
    )
