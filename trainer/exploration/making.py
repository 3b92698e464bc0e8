"""From `exploration_config` to a strategy: what `type` may be, and which arguments fit.

    spec = ExplorationSpec.from_config({"type": "EpsilonGreedy", "final_epsilon": 0.02})
    strategy = spec.make(action_space, distribution=distribution)

The spec is a small frozen value that travels to the runners; each makes a strategy of its own.
"""

from __future__ import annotations

import copy
import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from gymnasium import spaces

from checkpoints.moved_names import current_module
from trainer.errors import ConfigError, TrainerError, UnknownSettingError, UnsupportedSpaceError
from trainer.exploration.discrete import (
    EpsilonGreedy,
    PerWorkerEpsilonGreedy,
    Random,
    SoftQ,
    StochasticSampling,
)
from trainer.exploration.exploration import Exploration, WithSubExploration
from trainer.exploration.intrinsic_rewards import RE3, Curiosity
from trainer.exploration.noise import (
    GaussianNoise,
    OrnsteinUhlenbeckNoise,
    ParameterNoise,
    PerWorkerGaussianNoise,
    PerWorkerOrnsteinUhlenbeckNoise,
)
from trainer.exploration.schedules import SCHEDULES, hint
from trainer.nn import ActionDistribution, Categorical, DiagGaussian
from trainer.old_names import OLD_NAMES

EXPLORATIONS: Final[Mapping[str, type[Exploration]]] = MappingProxyType(
    {
        strategy.__name__: strategy
        for strategy in (
            StochasticSampling,
            Random,
            EpsilonGreedy,
            PerWorkerEpsilonGreedy,
            SoftQ,
            GaussianNoise,
            PerWorkerGaussianNoise,
            OrnsteinUhlenbeckNoise,
            PerWorkerOrnsteinUhlenbeckNoise,
            ParameterNoise,
            Curiosity,
            RE3,
        )
    }
)
"""Every ready-made strategy by its name."""

_RLLIB: Final = "ray.rllib."
_CONTEXT: Final = frozenset(
    {"action_space", "distribution", "num_workers", "worker_index", "framework", "policy_config"}
) | {"model"}
"""Arguments that constructors get besides the user's; the last three are those of RLlib."""


@dataclass(frozen=True)
class ExplorationSpec:
    """Which strategy to make, with which arguments.

    Attributes:
        kind: a class, a callable that gives a strategy, or a strategy, of which each place gets a
            copy.
        settings: the user's arguments.
        sub: of the strategy that chooses actions for this one; None if there is none, or it follows
            from the action space.
    """

    kind: Any = StochasticSampling
    settings: Mapping[str, Any] = field(default_factory=dict)
    sub: ExplorationSpec | None = None

    @classmethod
    def from_config(cls, config: Any) -> ExplorationSpec:
        """Reads what a user wrote.

        Args:
            config: `{"type": name | dotted path | class | callable | strategy, arguments}`, or any
                of these alone. Without a type it is `StochasticSampling`.

        Raises:
            UnknownSettingError: the type or an argument does not exist; names the nearest one.
            ConfigError: the type is not offered, is no strategy, or an argument is wrong.
        """
        given = dict(config) if isinstance(config, Mapping) else {"type": config}
        kind = _resolved(given.pop("type", StochasticSampling))
        sub = None
        if _takes_sub_exploration(kind):
            sub = _sub_spec(kind, given.pop("sub_exploration", None))
        _refuse_unknown(kind, given)
        spec = cls(kind, given, sub)
        spec._try_out()
        return spec

    @property
    def name(self) -> str:
        """What messages call the strategy."""
        return str(getattr(self.kind, "__name__", type(self.kind).__name__))

    @property
    def is_plain_sampling(self) -> bool:
        """Whether it only draws from the distribution, which runners do without a strategy."""
        return self.kind is StochasticSampling and not self.settings.get("random_timesteps")

    def make(
        self,
        action_space: spaces.Space[Any],
        *,
        distribution: ActionDistribution,
        num_workers: int = 0,
        worker_index: int = 0,
    ) -> Exploration:
        """A new strategy.

        Args:
            action_space: of actions as modules give them.
            distribution: the module's.
            num_workers: env runner processes.
            worker_index: whose strategy it is.

        Raises:
            UnsupportedSpaceError: the strategy cannot serve the action space.
            ConfigError: an argument is wrong.
        """
        if isinstance(self.kind, Exploration):
            return copy.deepcopy(self.kind)
        context: dict[str, Any] = {
            "distribution": distribution,
            "num_workers": num_workers,
            "worker_index": worker_index,
        }
        settings = copy.deepcopy(dict(self.settings))
        if _takes_sub_exploration(self.kind):
            self.kind.check_space(action_space)  # first, so that the sub-exploration is not blamed
            sub = self.sub or self._default_sub(action_space)
            try:
                settings["sub_exploration"] = sub.make(action_space, **context)
            except UnsupportedSpaceError as error:
                error.args = (f"sub_exploration of {self.name}: {error}",)
                raise
        old_context: dict[str, Any] = {"framework": "numpy", "policy_config": {}, "model": None}
        wanted = _parameters(self.kind)
        context |= {name: value for name, value in old_context.items() if name in wanted}
        if not _takes_any(self.kind):
            context = {name: value for name, value in context.items() if name in wanted}
        strategy = self.kind(action_space, **{**context, **settings})
        if not isinstance(strategy, Exploration):
            raise ConfigError(
                f"exploration_config: {self.name} gave {strategy!r}; expected an Exploration. "
                "Derive your strategy from `trainer.Exploration`."
            )
        return strategy

    def _default_sub(self, action_space: spaces.Space[Any]) -> ExplorationSpec:
        config = self.kind.default_sub_exploration(action_space, self.settings)
        return ExplorationSpec.from_config(config)

    def _try_out(self) -> None:
        """Makes a ready-made strategy for some space that it serves, so that mistakes show now."""
        if self.kind not in EXPLORATIONS.values():
            return
        try:
            self.make(spaces.Discrete(2), distribution=Categorical(2))
        except UnsupportedSpaceError:
            self.make(spaces.Box(-1.0, 1.0, (1,)), distribution=DiagGaussian((1,)))


def is_ready_made(name: str) -> bool:
    """Whether a `type` means one of `EXPLORATIONS` or `SCHEDULES`, so that nothing is imported."""
    module, _, short = name.rpartition(".")
    is_ours = short in EXPLORATIONS or short in SCHEDULES
    return is_ours and (not module or module.startswith(_RLLIB))


def _resolved(kind: Any) -> Any:
    """The class, callable or strategy that `type` names."""
    if not isinstance(kind, str):
        if isinstance(kind, type) and not issubclass(kind, Exploration):
            raise ConfigError(
                f"exploration_config: type={kind.__name__} is no exploration strategy. Derive it "
                "from `trainer.Exploration`."
            )
        if isinstance(kind, Exploration) or callable(kind):
            return kind
        raise ConfigError(
            f"exploration_config: type={kind!r} is no exploration strategy. Give a name "
            f"({', '.join(EXPLORATIONS)}), a dotted path, a subclass of `trainer.Exploration`, a "
            "callable that gives one, or one itself."
        )
    module, _, name = kind.rpartition(".")
    why_not = OLD_NAMES.refused_explorations.get(name)
    if why_not is not None:
        raise ConfigError(
            f"exploration_config: type={kind!r} is not offered: {why_not}. "
            f"There are {', '.join(EXPLORATIONS)}."
        )
    if name in EXPLORATIONS and (not module or module.startswith(_RLLIB)):
        return EXPLORATIONS[name]
    if module and not module.startswith(_RLLIB):
        return _resolved(_imported(module, name, kind))
    raise UnknownSettingError(
        f"exploration_config: there is no type {kind!r}.{hint(name, EXPLORATIONS)} Give one of "
        f"{', '.join(EXPLORATIONS)}, a dotted path to a class, or the class itself."
    )


def _imported(module: str, name: str, path: str) -> Any:
    try:
        return getattr(importlib.import_module(current_module(module)), name)
    except (ImportError, AttributeError) as cause:
        raise UnknownSettingError(
            f"exploration_config: type={path!r} cannot be imported ({cause}). Check the path, or "
            "give the class itself."
        ) from cause


def _takes_sub_exploration(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, WithSubExploration)


def _sub_spec(kind: type[WithSubExploration], config: Any) -> ExplorationSpec | None:
    """The spec of the sub-exploration; None if it follows from the action space."""
    if config is not None:
        try:
            return ExplorationSpec.from_config(config)
        except TrainerError as error:
            error.args = (f"sub_exploration of {kind.__name__}: {error}",)
            raise
    if kind.default_sub_exploration(spaces.Discrete(2), {}) is None:
        raise ConfigError(
            f"exploration_config: {kind.__name__} needs `sub_exploration`, which chooses the "
            'actions: e.g. {"type": "StochasticSampling"}, or {"type": "EpsilonGreedy"} for DQN.'
        )
    return None


def _refuse_unknown(kind: Any, settings: Mapping[str, Any]) -> None:
    """Refuses arguments that the constructor does not know, and any for a ready strategy."""
    name = getattr(kind, "__name__", type(kind).__name__)
    if isinstance(kind, Exploration):
        if settings:
            raise ConfigError(
                f"exploration_config: type={name}(…) is a strategy already, so the arguments "
                f"{sorted(settings)} come too late. Give them where it is made, or give the class."
            )
        return
    known = _known_settings(kind)
    unknown = [key for key in settings if known is not None and key not in known]
    if unknown:
        offered = sorted(set(known or ()) - _CONTEXT)
        raise UnknownSettingError(
            f"exploration_config: {name} has no argument {unknown[0]!r}."
            f"{hint(unknown[0], offered)} It takes {', '.join(offered) or 'none'}."
        )


def _known_settings(kind: Callable[..., Any]) -> set[str] | None:
    """The arguments of a constructor, those of base classes included; None if any will do."""
    if not isinstance(kind, type):
        return None if _takes_any(kind) else set(_parameters(kind))
    known = set(_CONTEXT)
    if _takes_sub_exploration(kind):
        known.add("sub_exploration")
    for ancestor in kind.__mro__:
        if "__init__" not in ancestor.__dict__:
            continue
        known |= set(_parameters(ancestor))
        # Arguments that a constructor does not name go on to the next one.
        if ancestor is Exploration or not _takes_any(ancestor):
            break
    return known


def _parameters(kind: Callable[..., Any]) -> list[str]:
    """The names of the arguments of a callable that can be given by name."""
    return [
        parameter.name
        for parameter in inspect.signature(kind).parameters.values()
        if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    ]


def _takes_any(kind: Callable[..., Any]) -> bool:
    parameters = inspect.signature(kind).parameters.values()
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
