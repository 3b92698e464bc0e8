"""`AlgorithmConfig`, and from it to the specs that processes receive.

The only place where settings become values of other rooms.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeVar, cast

from checkpoints import CodeNotAllowedError
from trainer.config.config_values import SettingDescription, describe
from trainer.config.recipes import recipe_named
from trainer.config.settings import (
    Problem,
    assignment,
    raise_problems,
    search_space_problems,
    translate,
    unused_problems,
    value_problems,
)
from trainer.config.shared_settings import SharedSettings
from trainer.config.validation import (
    COMMON_RULES,
    Rule,
    callback_problems,
    module_problems,
    rule_problems,
)
from trainer.connectors import ConnectorFactories, NormalizationSettings
from trainer.env_runners import EnvRunnerSpec
from trainer.env_runners.env_runner import DirectRunners
from trainer.envs import make_env_factory
from trainer.envs.env_factory import check_known
from trainer.errors import ConfigError, EnvCreationError, FrozenConfigError
from trainer.exploration import ExplorationSpec
from trainer.modules import (
    ByModule,
    DefaultModelConfig,
    ModuleTable,
    MultiRLModuleSpec,
    OwnActing,
    PolicySpec,
    RLModuleSpec,
)
from trainer.name_resolution import PROGRAM, Source, stranger
from trainer.runtime.restart_policy import RestartPolicy
from trainer.seeding import Role, draw_root_seed
from trainer.types import ModuleId
from trainer_toolkit.arguments import takes
from trainer_toolkit.checks import instance, optional
from trainer_toolkit.nearest_names import IN_BRACKETS, did_you_mean

if TYPE_CHECKING:
    from trainer.algorithms.algorithm import Algorithm


# ---- specs


def first_given(*values: Any) -> Any:
    """The first that is not None; an empty Dict space is false, but given."""
    return next((value for value in values if value is not None), None)


def module_specs(config: AlgorithmConfig) -> ByModule[RLModuleSpec]:
    """The networks that a config asks for; spaces stay None where the env decides them.

    This is the place that decides which modules a run has.
    """
    says = config.policies_by_id()
    return ByModule(
        {id_: module_spec(config.get_config_for_module(id_), id_, says[id_]) for id_ in says}
    )


def given_module_specs(config: AlgorithmConfig) -> dict[ModuleId, RLModuleSpec]:
    """What was said of the network of each module; what was not said is None."""
    says = config.policies_by_id()
    return {id_: policy_spec(says[id_], config.rl_module_spec, id_) for id_ in says}


def module_table(config: AlgorithmConfig) -> ModuleTable:
    """The modules that a config asks for, whom they act for and how."""
    settings = config.settings_of_modules()
    acting = {id_: own_acting(config, settings[id_]) for id_ in settings}
    return ModuleTable(module_specs(config), config.policy_mapping_fn, acting)


def own_acting(config: AlgorithmConfig, settings: Mapping[str, Any]) -> OwnActing:
    """How a module acts that has these settings of its own; see `exploration_spec`."""
    own, run = config.with_settings(settings), exploration_spec(config)
    strategy = exploration_spec(own)
    return OwnActing(
        exploration=None if strategy == run else strategy,
        is_greedy=config.explore and not own.explore,
    )


def module_spec(config: AlgorithmConfig, module_id: ModuleId, policy: Any) -> RLModuleSpec:
    """The network of a module.

    Args:
        config: of the algorithm, with what the module has of its own.
        module_id: of the module.
        policy: what `policies` says of it; None for nothing.
    """
    given = policy_spec(policy, config.rl_module_spec, module_id)
    model_config = plain_model_config(given) or config.model_config
    own, learner = config.own_rl_module_spec, config.chosen_learner_class
    module_class = (
        given.module_class
        or (own and own.module_class)
        or (learner and learner.network_class)
        or config.default_module_class
    )
    if own is not None and own.load_state_path is not None:
        raise ConfigError(
            f"{type(config).__name__}.get_default_rl_module_spec() says load_state_path="
            f"{str(own.load_state_path)!r}; a default names a network and its settings. Give it in "
            "the config: rl_module(rl_module_spec=RLModuleSpec(load_state_path=...))."
        )
    if own is not None and own.module_class is module_class:
        model_config = {**plain_model_config(own), **model_config}
    if issubclass(module_class, config.default_module_class):
        model_config = {**model_config, **config.settings_of_module()}
    return replace(
        given,
        module_class=module_class,
        observation_space=first_given(given.observation_space, config.observation_space),
        action_space=first_given(given.action_space, config.action_space),
        model_config=model_config,
        action_mask_key=given.action_mask_key or config.action_mask_key,
    )


def plain_model_config(spec: RLModuleSpec) -> dict[str, Any]:
    """The settings of a network as a dict."""
    given = spec.model_config
    return asdict(given) if isinstance(given, DefaultModelConfig) else dict(given or {})


def policy_spec(policy: Any, rl_module_spec: Any, module_id: ModuleId) -> RLModuleSpec:
    """What `policies` says of a module, or else `rl_module_spec`."""
    if isinstance(policy, RLModuleSpec):
        return policy
    if isinstance(policy, PolicySpec) and policy.is_random:
        return policy.module_spec()
    given = rl_module_spec
    if isinstance(given, MultiRLModuleSpec):
        given = given.for_modules([module_id])
        given = given.completed(module_id) if module_id in given else None
    given = given if isinstance(given, RLModuleSpec) else RLModuleSpec()
    if isinstance(policy, PolicySpec):
        given = replace(
            given,
            observation_space=first_given(policy.observation_space, given.observation_space),
            action_space=first_given(policy.action_space, given.action_space),
        )
    return given


def env_runner_spec(config: AlgorithmConfig, *, root_seed: int, role: Role) -> EnvRunnerSpec:
    """What makes the env runners of a config; the group fills in the place of each.

    Raises:
        EnvCreationError: the env is not known.
    """
    return EnvRunnerSpec(
        env_factory=make_env_factory(
            config.env,
            config.env_config,
            source=config.source,
            is_of_envpool=config.gym_env_vectorize_mode == "ENVPOOL",
        ),
        table=module_table(config),
        callbacks=config.callback_spec(),
        config=settings_for_callbacks(config),
        root_seed=root_seed,
        role=role,
        worker_index=0,
        num_workers=config.num_env_runners,
        num_envs=config.num_envs_per_env_runner,
        first_slot=0,
        num_slots=config.num_envs_per_env_runner,
        explore=config.explore,
        normalize_actions=config.normalize_actions,
        clip_actions=config.clip_actions,
        lookback=config.episode_lookback_horizon,
        checks_env=not config.disable_env_checking,
        exploration=exploration_spec(config),
        connectors=ConnectorFactories.of(config),
        rewards_after_end="error" if config.rewards_after_end == "error" else "credit",
        max_empty_steps=config.max_empty_steps,
        has_vector_env=config.gym_env_vectorize_mode != "SYNC",
        sub_env_tolerance=(
            config.num_consecutive_env_runner_failures_tolerance
            if config.restart_failed_sub_environments
            else None
        ),
    )


def exploration_spec(config: AlgorithmConfig) -> ExplorationSpec:
    """The exploration strategy of a config; a ConfigError for unknown ones or wrong arguments."""
    return ExplorationSpec.from_config(config.get_exploration_config(), source=config.source)


def normalization_settings(
    config: AlgorithmConfig, *, num_slots: int, module: RLModuleSpec
) -> NormalizationSettings:
    """What a config says about observations and rewards on their way to the networks.

    `num_slots` are the sub-envs that are sampled; the module knows the spaces. A ConfigError if
    `env_to_module_connector` cannot be called in the main process.
    """
    connectors = ConnectorFactories.of(config)
    has_filter = connectors is not None and connectors.wants_mean_std_filter(
        module.observation_space, module.action_space
    )
    return NormalizationSettings(
        observations=has_filter or config.observation_filter == "MeanStdFilter",
        rewards=config.normalize_rewards,
        clip_rewards=config.clip_rewards,
        gamma=config.gamma,
        num_slots=num_slots,
    )


def settings_for_callbacks(config: AlgorithmConfig) -> dict[str, Any]:
    """What `env_runner.config` shows: all settings but those that hold code.

    Workers do not need to see these.
    """
    settings: dict[str, Any] = config.get_state()["settings"]
    settings["in_evaluation"] = config.in_evaluation
    settings["rollout_fragment_length"] = config.get_rollout_fragment_length()
    return settings


def restart_policy(config: AlgorithmConfig) -> RestartPolicy:
    """What a config says about failing env runners."""
    return RestartPolicy(
        should_restart=config.restart_failed_env_runners,
        should_ignore=config.ignore_env_runner_failures,
        max_restarts=config.max_num_env_runner_restarts,
        delay_s=config.delay_between_env_runner_restarts_s,
        tolerance=config.num_consecutive_env_runner_failures_tolerance,
        stall_limit_s=config.sample_timeout_s,
        start_limit_s=config.env_runner_restore_timeout_s,
    )


def direct_runners(config: AlgorithmConfig) -> DirectRunners:
    """What makes env runners without an algorithm: `SingleAgentEnvRunner(config=config)`."""
    root_seed = draw_root_seed() if config.seed is None else int(config.seed)
    role = Role.EVALUATION if config.in_evaluation else Role.TRAINING
    spec = env_runner_spec(config, root_seed=root_seed, role=role)
    return DirectRunners(
        spec=spec,
        num_env_runners=config.num_env_runners,
        policy=restart_policy(config),
    )


def replace_env(config: AlgorithmConfig, env: Any) -> None:
    """Puts another env in the place of the config's, and of one that is for evaluation only."""
    config.env = env
    if "env" in (config.evaluation_config or {}):
        config.evaluation_config = {**config.evaluation_config, "env": env}


# ---- algorithm config
#
# AlgorithmConfig: the settings of an algorithm, set by sections, judged at once, then built.
#     config = PPOConfig().environment("CartPole-v1").training(lr=3e-4)
#     algorithm = config.build_algo()
#
# SharedSettings store what they are given; `validate()` judges it. The config stays in the main
# process: what other processes need is taken from it.

ConfigT = TypeVar("ConfigT", bound="AlgorithmConfig")
_Algorithm = TypeVar("_Algorithm")
_Algorithm_co = TypeVar("_Algorithm_co", covariant=True)

_AUTO_EVALUATION_FRAGMENT = 100

OF_THE_WHOLE_RUN: Final = frozenset(
    {
        "train_batch_size",
        "sample_ahead",
        "replay_buffer_config",
        "num_steps_sampled_before_learning_starts",
        "training_intensity",
        "store_buffer_in_checkpoints",
        "learner_config_dict",
    }
)
"""Settings of `training()` that no module can have of its own."""
_SHAPING_EVALUATION = ("evaluation_config", "evaluation_duration", "evaluation_num_env_runners")


class _Builds(Protocol[_Algorithm_co]):
    """A config as type checkers see it: `_builds`, which is never there, says what is built."""

    def _builds(self) -> _Algorithm_co: ...

    def _built(self, env: Any, logger_creator: Callable[..., Any] | None) -> Any: ...


class AlgorithmConfig(SharedSettings):
    """The settings of an algorithm.

    Its life: made with defaults; changed by section methods, attributes, items or dicts;
    `validate()`; `freeze()`; read by one algorithm. `build_algo()` does the last three to a copy.

    Args:
        algo_class: the algorithm that `build_algo()` makes; by default the one the class belongs
            to.

    Attributes:
        default_algo_class: set by the algorithm that names this class as its config class.
        module_settings: names of settings that this network takes in its `model_config`.
        rules: what `validate()` checks besides single values.
    """

    default_algo_class: ClassVar[type[Algorithm] | None] = None
    module_settings: ClassVar[tuple[str, ...]] = ()
    rules: ClassVar[tuple[Rule, ...]] = COMMON_RULES
    _section_of_settings: ClassVar[str] = "training"

    if TYPE_CHECKING:

        def _builds(self) -> Algorithm: ...

    @takes(algo_class=optional(instance(type, "a class")))
    def __init__(self, algo_class: type[Any] | None = None) -> None:
        super().__init__()
        self._algo_class = algo_class

    @property
    def algo_class(self) -> type[Any] | None:
        """The algorithm that `build_algo()` makes."""
        return self._algo_class or self.default_algo_class

    @algo_class.setter
    def algo_class(self, value: type[Any] | None) -> None:
        if self.is_frozen:
            raise FrozenConfigError(
                "`algo_class` belongs to a frozen config. Change a copy: "
                "`config.copy(copy_frozen=False)`."
            )
        self._algo_class = value

    @classmethod
    def recipe(cls: type[ConfigT], name: str) -> ConfigT:
        """A config with settings that are known to learn an env, or a kind of envs.

        It is a config as any other: all settings can be seen (`given_settings()`) and changed.
        `local-trainer recipes` lists all, with the returns and times that were measured.

        Args:
            name: an env, such as "HalfCheetah-v5", which is set, too; or a kind, such as "mujoco".

        Raises:
            ConfigError: this algorithm has no recipe for it.
        """
        algorithms = []
        for base in getattr(cls.default_algo_class, "__mro__", (cls,)):
            algorithms.append(base.__name__)
            if base.__module__.startswith("trainer."):
                break  # what PPO has learnt with, APPO need not learn with
        found = recipe_named(name, algorithms)
        config = cls().update_from_dict(found.settings)
        return config.environment(name) if found.is_of(name) else config

    # ---- judging

    def validate(self) -> None:
        """Check all settings, each by itself and together.

        Raises:
            ConfigError: something is wrong; the message lists every problem, what was expected,
                what to do.
            CodeNotAllowedError: settings were read from a file, and name code.
        """
        raise_problems(type(self).__name__, self.find_problems())
        self.check_names()

    def find_problems(self) -> list[Problem]:
        """Everything that is wrong; empty when the config can be built."""
        settings = self._names.settings
        values = {name: self.read_value(name) for name in settings}
        problems = list(search_space_problems(values))
        if problems:
            return problems  # other checks would compute with what is no value yet
        problems = list(value_problems(settings, values))
        problems += unused_problems(self._unused)
        problems += callback_problems(self)
        if not any("model_config" in problem.settings for problem in problems):
            problems += module_problems(self)
        problems += rule_problems(self, self.rules, problems)
        wrong = {name for problem in problems for name in problem.settings}
        if wrong.isdisjoint(("policies", "algorithm_config_overrides_per_module")):
            problems += self._problems_of_modules({str(problem) for problem in problems})
        if self.evaluation_config and wrong.isdisjoint(_SHAPING_EVALUATION):
            problems += self._problems_of_evaluation({str(problem) for problem in problems})
        return problems

    def check_names(self) -> None:
        """Raises if settings, which are valid else, name code that their source may not name.

        Raises:
            CodeNotAllowedError: an env or a strategy, of the run, of evaluation or of a module.
            EnvCreationError: there is no env of a name.
        """
        if self.source.is_trusted:
            return
        configs = [self, *map(self.get_config_for_module, self.settings_of_modules())]
        if self.evaluation_config:
            configs.append(self.get_evaluation_config_object())
        for config in configs:
            exploration_spec(config)
            if isinstance(config.env, str):
                check_known(config.env, source=config.source)

    def names_code(self, *given: str) -> bool:
        """Whether a file of these settings would not be opened, but for names given beside it."""
        source = stranger("").handing_in(*given)
        try:
            self.copy(copy_frozen=False).update_from_dict({}, source=source).check_names()
        except CodeNotAllowedError:
            return True
        except (ConfigError, EnvCreationError):  # other problems, which are reported elsewhere
            return False
        return False

    def _problems_of_evaluation(self, known: Container[str]) -> list[Problem]:
        """What `evaluation_config` adds to the problems that are known already."""
        return [
            problem.inside("evaluation_config")
            for problem in self.get_evaluation_config_object().find_problems()
            if str(problem) not in known
        ]

    # ---- what follows from the settings

    def default_exploration_config(self) -> dict[str, Any]:
        """The exploration of this algorithm where `exploration_config` names no type."""
        return {"type": "StochasticSampling"}

    def get_exploration_config(self) -> dict[str, Any]:
        """The exploration in force: `exploration_config`, or the algorithm's own if that is empty.

        Arguments without a type are those of the algorithm's own type.
        """
        given, default = dict(self.exploration_config), self.default_exploration_config()
        return {"type": default["type"], **given} if given else default

    def settings_of_module(self) -> dict[str, Any]:
        """What the algorithm's settings say about its ready-made network."""
        return {name: self.read_value(name) for name in self.module_settings}

    def get_evaluation_config_object(self: ConfigT) -> ConfigT:
        """The config of evaluation runners: this one, changed by `evaluation_config`; not frozen.

        How much a runner samples follows from the duration of the evaluation. Its statistics are
        over the episodes of one evaluation (`metrics_num_episodes_for_smoothing` is None), unless
        `evaluation_config` says otherwise.
        """
        config = self.copy(copy_frozen=False)
        fixed: dict[str, Any] = {
            "in_evaluation": True,
            "evaluation_config": None,
            "num_env_runners": self.evaluation_num_env_runners,
            "metrics_num_episodes_for_smoothing": None,
        }
        if (seed := self.fixed_evaluation_seed) is not None:
            fixed["seed"] = seed
        overrides = self.evaluation_config or {}
        kept = {"metrics_num_episodes_for_smoothing"} & overrides.keys()
        config.update_from_dict(overrides)
        config.update_from_dict({k: v for k, v in fixed.items() if k not in kept})
        return config.update_from_dict(self._evaluation_sampling())

    @property
    def fixed_evaluation_seed(self) -> int | None:
        """The root seed of all evaluations, if it is not that of the run; else None.

        It is `evaluation_seed`, or the `seed` of `evaluation_config`, which is how RLlib spells it.
        """
        if self.evaluation_seed is not None:
            return self.evaluation_seed
        seed: int | None = (self.evaluation_config or {}).get("seed")
        # The same seed says nothing: `evaluation_config` may be a changed copy of this config.
        return None if seed == self.seed else seed

    def _evaluation_sampling(self) -> dict[str, Any]:
        if self.evaluation_duration_unit == "episodes":
            return {"batch_mode": "complete_episodes", "rollout_fragment_length": 1}
        fragment = _AUTO_EVALUATION_FRAGMENT
        if not isinstance(self.evaluation_duration, str):
            fragment = -(-self.evaluation_duration // max(1, self.evaluation_num_env_runners))
        return {"batch_mode": "truncate_episodes", "rollout_fragment_length": fragment}

    # ---- settings of single modules

    def policies_by_id(self) -> dict[ModuleId, Any]:
        """What `policies` says of each module; None for nothing."""
        given = self.policies
        return dict(given) if isinstance(given, Mapping) else dict.fromkeys(given)

    def settings_of_modules(self) -> dict[ModuleId, dict[str, Any]]:
        """By module id: the settings that are different for it, as they were given.

        Those of `algorithm_config_overrides_per_module` stand above those of a `PolicySpec`.
        """
        found: dict[ModuleId, dict[str, Any]] = {
            id_: dict(policy.config)
            for id_, policy in self.policies_by_id().items()
            if isinstance(policy, PolicySpec) and policy.config
        }
        for id_, own in self.algorithm_config_overrides_per_module.items():
            found[id_] = {**found.get(id_, {}), **own}
        return found

    def get_config_for_module(self: ConfigT, module_id: ModuleId) -> ConfigT:
        """The settings of a module: these, but for those that it has of its own."""
        return self.with_settings(self.settings_of_modules().get(module_id, {}))

    def with_settings(
        self: ConfigT, settings: Mapping[str, Any], *, source: Source = PROGRAM
    ) -> ConfigT:
        """A frozen copy with other values of some settings, for one module; itself for none."""
        return self._for_one_module(settings, source).copy(copy_frozen=True) if settings else self

    def _for_one_module(
        self: ConfigT, settings: Mapping[str, Any], source: Source = PROGRAM
    ) -> ConfigT:
        own = self.copy(copy_frozen=False)
        own.policies = list(self.policies)
        own.algorithm_config_overrides_per_module = {}
        return own.update_from_dict(dict(settings), source=source)

    def checked_settings_of_module(
        self, module_id: ModuleId, settings: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Settings that a module is to have of its own, by their present names.

        Raises:
            ConfigError: some do not exist, are those of the whole run, or have impossible values;
                lists all of them.
        """
        problems = list(self._problems_of_settings(settings, f"module {module_id!r}", ()))
        raise_problems(f"The settings of module {module_id!r}", problems)
        return dict(type(self).overrides(**settings))

    def _problems_of_modules(self, known: Container[str]) -> Iterator[Problem]:
        """What is wrong with settings of single modules, and not told already."""
        ids = [*self.policies_by_id()]
        for id_, settings in self.settings_of_modules().items():
            if id_ not in ids:
                yield Problem(
                    f"`algorithm_config_overrides_per_module[{id_!r}]`",
                    f"there is no such module{did_you_mean(id_, ids, IN_BRACKETS)}.",
                    f"Name one of {', '.join(map(repr, ids))}.",
                    ("algorithm_config_overrides_per_module",),
                )
                continue
            yield from self._problems_of_settings(settings, f"module {id_!r}", known)

    def _problems_of_settings(
        self, settings: Mapping[str, Any], place: str, known: Container[str]
    ) -> Iterator[Problem]:
        translation = translate(self._names, settings)
        found = {str(problem) for problem in translation.problems}
        yield from (problem.inside(place) for problem in translation.problems)
        own = self._names.settings_of("training") | {"exploration_config", "explore"}
        own -= OF_THE_WHOLE_RUN
        kept = dict(translation.unused)
        for name, value in translation.writes.items():
            if name in own:
                kept[name] = value
                continue
            yield Problem(
                f"{place}: {assignment(name, value)}",
                "it is a setting of the whole run, which says how is sampled, stored or built.",
                f"Set `{name}` for all modules. A module may have of its own: "
                f"{', '.join(sorted(own))}.",
                (name,),
            )
        changed = self._for_one_module(kept)
        for problem in changed.find_problems():
            if str(problem) not in known and str(problem) not in found:
                yield problem.inside(place)

    # ---- building

    def build_algo(
        self: _Builds[_Algorithm],
        env: Any = None,
        logger_creator: Callable[..., Any] | None = None,
        use_copy: bool = True,  # noqa: ARG002  an argument of RLlib's; see below
    ) -> _Algorithm:
        """Make the algorithm; this config is not changed.

        Args:
            env: the env to use instead of the one in the config, and in `evaluation_config`.
            logger_creator: see `debugging()`.
            use_copy: without effect: the algorithm always gets a copy.

        Returns:
            The algorithm.

        Raises:
            ConfigError: the settings are wrong, or it is not known which algorithm to build.
        """
        return cast(_Algorithm, self._built(env, logger_creator))

    def build(
        self: _Builds[_Algorithm],
        env: Any = None,
        logger_creator: Callable[..., Any] | None = None,
        use_copy: bool = True,  # noqa: ARG002  as above
    ) -> _Algorithm:
        """The same as `build_algo()`."""
        return cast(_Algorithm, self._built(env, logger_creator))

    def _built(self, env: Any, logger_creator: Callable[..., Any] | None) -> Any:
        algo_class = self.algo_class
        if algo_class is None:
            raise ConfigError(
                f"{type(self).__name__} does not say which algorithm to build. Use the config of "
                f"an algorithm, such as PPOConfig(), or name one: "
                f"{type(self).__name__}(algo_class=PPO)."
            )
        config = self.copy(copy_frozen=False)
        if env is not None:
            replace_env(config, env)
        if logger_creator is not None:
            config.update_from_dict({"logger_creator": logger_creator})
        return algo_class(config=config)

    def direct_runners(self) -> DirectRunners:
        """What env runners are made from that users make without an algorithm.

        Raises:
            ConfigError: the settings are wrong.
        """
        config = self.copy(copy_frozen=True)
        problems = [
            problem
            for problem in config.find_problems()
            if "train_batch_size" not in problem.settings  # nothing learns
        ]
        raise_problems(type(self).__name__, problems)
        return direct_runners(config)

    # ---- documenting

    @classmethod
    def describe_settings(cls) -> list[SettingDescription]:
        """One row per setting: what it is called, accepts and means."""
        return describe(cls._names)
