"""The base of learners: a module, its optimiser, and their state."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

import numpy as np

from checkpoints import Checkpointable, HasState, check_shape
from checkpoints.component_tree import naming_component
from checkpoints.state_shapes import anything, count, fields, number
from trainer import seeding
from trainer.connectors import Normalization, ObservationEncoder
from trainer.episodes import nested
from trainer.errors import FrozenConfigError, ModuleError
from trainer.learners.settings import LearnerSettings
from trainer.modules import RLModule, RLModuleSpec
from trainer.nn import Adam, GradientClipping, Parameters, Schedule
from trainer.rllib_names.config_names import OLD_NAMES
from trainer.types import DEFAULT_MODULE_ID, Array, State

OWN: Final = "learner"
"""The component with what a learner remembers besides its parts."""


class LearnerPart(Protocol):
    """A part of a learner: a module, an optimiser, a target network."""

    def get_state(self) -> State:
        """Plain data; copies."""

    def set_state(self, state: State) -> None:
        """Takes back what `get_state` gave, or raises a ModuleError and changes nothing."""


class Learner(Checkpointable):
    """Owns a module's weights and their optimiser.

    How it learns is decided by its two kinds: `EpisodeLearner` learns from each sample once,
    `ReplayLearner` from a replay buffer. The random numbers of an update are a function of the root
    seed and the number of the update. A subclass overrides `extra_state` and `set_extra_state` if
    it has more to remember, and puts what has a state of its own into `parts`.

    Its components are its parts and "learner". A state, whole or in part, is taken as a whole or
    not at all.

    Attributes:
        module: the network.
        settings: how to learn.
        num_updates: how many updates were made since the start of training.
        root_seed: the seed of the run; with `num_updates` it decides all random numbers.
        parts: what has a state of its own, by component.
        normalization: what is done to observations and rewards; changed by `normalize_with`.
        moving_settings: settings that are where they begin: they move on, and are saved.
    """

    moving_settings: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self, *, module_spec: RLModuleSpec, settings: LearnerSettings, root_seed: int
    ) -> None:
        """Builds the module with weights drawn from the root seed.

        Args:
            module_spec: the network, with both spaces.
            settings: how to learn.
            root_seed: the seed of the run, ≥ 0.
        """
        self._module_spec = module_spec
        self.module: RLModule = module_spec.build(seeding.weights_rng(root_seed))
        self.settings = settings
        self.num_updates = 0
        self.root_seed = root_seed
        self._encoder = self.make_encoder()
        self.normalization = Normalization()
        self._lr = Schedule.from_setting(settings.lr, name="lr")
        self._optimizer = Adam(
            self.module.parameters,
            self.module.gradients,
            betas=settings.adam_betas,
            epsilon=settings.adam_epsilon,
        )
        self._clipping = GradientClipping(
            self.module.gradients, limit=settings.grad_clip, mode=settings.grad_clip_by
        )
        self.parts: dict[str, LearnerPart] = {
            "rl_module": self.module,
            "optimizer": self._optimizer,
        }

    def __setattr__(self, name: str, value: Any) -> None:
        # What was copied out of the settings at construction would keep its value.
        settings = self.__dict__.get("settings")
        meant = OLD_NAMES[name].new if name in OLD_NAMES else name
        is_fixed = meant == "settings" or hasattr(settings, meant)
        if settings is not None and is_fixed and name not in self.moving_settings:
            raise FrozenConfigError.of_attribute(self, name, value)
        super().__setattr__(name, value)

    def make_encoder(self) -> ObservationEncoder:
        """A new encoder of the observations that the module reads."""
        module = self.module
        return ObservationEncoder(module.observation_space, action_mask_key=module.action_mask_key)

    def normalize_with(self, normalization: Normalization) -> None:
        """Learns from observations and rewards as these make them, from now on."""
        self.normalization = normalization
        self._encoder.normalizer = normalization.observations

    def apply_gradients(self, *, loss: float, lr: float | Array, batch: Mapping[str, Any]) -> float:
        """Clips the module's gradients and makes one step of the optimiser.

        Args:
            loss: the value whose gradients these are.
            lr: learning rate ≥ 0; one for all, or one for each number of the flat vector.
            batch: what they were computed from, to name the cause if something is not finite.

        Returns:
            The global norm of the gradients before clipping.

        Raises:
            ModuleError: the loss or a gradient is not finite; the weights are not changed.
        """
        norm = self._clipping.global_norm()
        if not (math.isfinite(norm) and math.isfinite(loss)):
            raise _not_finite_error(loss, self.module, batch)
        self._clipping.clip(global_norm=norm)
        self._optimizer.step(lr=lr)
        return norm

    def get_checkpointable_components(self) -> Collection[tuple[str, HasState]]:
        """The parts, in the order in which they are restored."""
        return list(self.parts.items())

    def get_ctor_args_and_kwargs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What it was made with; spec and settings are no plain data, so they are not saved."""
        given = {"module_spec": self._module_spec, "settings": self.settings}
        return (), {**given, "root_seed": self.root_seed}

    def _own_state(self) -> State:
        return {OWN: {"num_updates": self.num_updates, **self.extra_state()}}

    def check_state(self, state: State) -> None:
        """See `Checkpointable`."""
        self._refuse_unknown(state)
        super().check_state(state)
        if OWN in state:
            with naming_component(OWN):
                # What a subclass keeps besides numbers may grow: its keys are all that is known.
                shapes = {
                    name: number if type(value) in (int, float) else anything
                    for name, value in self.extra_state().items()
                }
                check_shape(state[OWN], fields({"num_updates": count, **shapes}))

    def set_state(self, state: State) -> None:
        """Takes back what `get_state` gave; if it does not fit, nothing is changed.

        Raises:
            ModuleError: a component is unknown, or does not fit this learner.
        """
        self._refuse_unknown(state)
        if OWN in state:
            self._check_own(state[OWN])
        before: dict[str, State] = {}
        try:
            for name in (name for name in self.parts if name in state):
                before[name] = self.parts[name].get_state()
                with naming_component(name):
                    self.parts[name].set_state(state[name])
        except Exception:
            for name, previous in before.items():
                self.parts[name].set_state(previous)
            raise
        if OWN in state:
            own = dict(state[OWN])
            self.num_updates = int(own.pop("num_updates"))
            self.set_extra_state(own)

    def _refuse_unknown(self, state: State) -> None:
        unknown = set(state) - {*self.parts, OWN}
        if unknown:
            raise ModuleError(
                f"A learner's state has the components {', '.join([*self.parts, OWN])}; given were "
                f"the unknown {', '.join(sorted(unknown))}. Load a state of the same learner class."
            )

    def _check_own(self, state: State) -> None:
        expected, given = {"num_updates", *self.extra_state()}, set(state)
        if given != expected:
            raise ModuleError(
                f"The component `{OWN}` holds {sorted(given)}, but {type(self).__name__} needs "
                f"{sorted(expected)}. Load a state that was written by the same learner class."
            )

    def get_weights(self) -> dict[str, Array]:
        """Copies of the module's tensors by name."""
        return self.module.get_state()

    def set_weights(self, weights: State) -> None:
        """Replaces the module's weights; the optimiser keeps its moments.

        Raises:
            ModuleError: they do not fit the module.
        """
        self.module.set_state(weights)

    def extra_state(self) -> State:
        """What a subclass remembers from update to update, as plain data."""
        return {}

    def set_extra_state(self, state: State) -> None:
        """Takes back what `extra_state` gave."""
        del state


LearnerT = TypeVar("LearnerT", bound=Learner)


@dataclass(frozen=True)
class LearnerSpec(Generic[LearnerT]):
    """What is needed to build a learner.

    Attributes:
        learner_class: e.g. `PPOLearner`.
        module_spec: the network, with both spaces.
        settings: the settings class of that learner.
        root_seed: the seed of the run, ≥ 0.
        module_id: the name of the module in results.
    """

    learner_class: type[LearnerT]
    module_spec: RLModuleSpec
    settings: Any
    root_seed: int
    module_id: str = DEFAULT_MODULE_ID

    def build(self) -> LearnerT:
        """A new learner with weights drawn from the root seed."""
        return self.learner_class(
            module_spec=self.module_spec, settings=self.settings, root_seed=self.root_seed
        )


def _not_finite_error(loss: float, module: RLModule, batch: Mapping[str, Array]) -> ModuleError:
    """Says where numbers that are not finite were found."""
    places = [f"the loss ({loss})"] if not math.isfinite(loss) else []
    places += [f"the batch column {name!r}" for name in _not_finite(batch)]
    places += [f"the weights {name!r}" for name in _parameters_not_finite(module.parameters)]
    places += [f"the gradient of {name!r}" for name in _parameters_not_finite(module.gradients)]
    if not places:
        places = ["the norm of the gradient, which is too large for its number type"]
    return ModuleError(
        f"Numbers that are not finite appeared in {', '.join(places)}. The step was not made, and "
        "all weights are as before this update. Check observations and rewards for extreme "
        "values, lower `lr`, or set `grad_clip`."
    )


def _not_finite(columns: Mapping[str, Any]) -> list[str]:
    return [name for name, column in columns.items() if _has_non_finite(column)]


def _has_non_finite(column: Any) -> bool:
    found: list[bool] = []
    nested.map_leaves(
        lambda leaf: found.append(leaf.dtype.kind == "f" and not np.isfinite(leaf).all()), column
    )
    return any(found)


def _parameters_not_finite(parameters: Parameters) -> list[str]:
    return _not_finite(parameters.views)
