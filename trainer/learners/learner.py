"""The base of learners: from episodes to better weights, all or nothing."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from trainer import seeding
from trainer.connectors import ObservationEncoder
from trainer.episodes.single_agent_episode import SingleAgentEpisode
from trainer.errors import ModuleError
from trainer.learners.columns import Columns, columns_from_episodes
from trainer.learners.settings import LearnerSettings
from trainer.modules import RLModule, RLModuleSpec
from trainer.nn import Adam, GradientClipping, Parameters, Schedule
from trainer.types import DEFAULT_MODULE_ID, Array, State

COMPONENTS: Final = ("rl_module", "optimizer", "learner")
"""The parts of a learner's state."""


class Learner(ABC):
    """Owns a module's weights and their optimiser, and updates them.

    Life:
        learner = LearnerSpec(...).build()
        metrics = learner.update(episodes, num_env_steps_sampled_lifetime=...)   once per iteration
        weights = learner.module.get_state(inference_only=True)                  for the env runners
        state = learner.get_state(); learner.set_state(state)                    exact resume

    An update either happens as a whole or not at all: if it raises, everything is as it was before.
    Its random numbers are a function of the root seed and the number of the update. A subclass
    implements `learn`, and `extra_state` and `set_extra_state` if it has more to remember.

    Attributes:
        module: the network.
        settings: how to learn.
        num_updates: how many updates were made since the start of training.
        root_seed: the seed of the run; with `num_updates` it decides the order of minibatches.
    """

    def __init__(
        self, *, module_spec: RLModuleSpec, settings: LearnerSettings, root_seed: int
    ) -> None:
        """Builds the module with weights drawn from the root seed.

        Args:
            module_spec: the network, with both spaces.
            settings: how to learn.
            root_seed: the seed of the run, ≥ 0.
        """
        self.module: RLModule = module_spec.build(seeding.weights_rng(root_seed))
        self.settings = settings
        self.num_updates = 0
        self.root_seed = root_seed
        self._encoder = ObservationEncoder(self.module.observation_space)
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

    @abstractmethod
    def learn(
        self, columns: Columns, *, rng: np.random.Generator, num_env_steps: int
    ) -> dict[str, float]:
        """Makes one update; `apply_gradients` changes the weights.

        Args:
            columns: all steps to learn from.
            rng: the random numbers of this update.
            num_env_steps: env steps sampled since the start of training, for schedules.

        Returns:
            Metrics by their key under `learners/{module_id}`.
        """

    def update(
        self, episodes: Sequence[SingleAgentEpisode], *, num_env_steps_sampled_lifetime: int
    ) -> dict[str, float]:
        """Learns from episodes.

        Args:
            episodes: chunks after `to_numpy()`, sampled with the current weights.
            num_env_steps_sampled_lifetime: env steps sampled since the start of training, these
                included.

        Returns:
            Metrics by their key under `learners/{module_id}`; learning algorithms list theirs.

        Raises:
            ModuleError: a loss or gradient was not finite.
            EpisodeError: the episodes cannot be learnt from.
        """
        columns = columns_from_episodes(episodes, encoder=self._encoder)
        rng = seeding.learner_rng(self.root_seed, self.num_updates)
        before = self.get_state()
        try:
            # Overflow is not a warning here: what is not finite is found and raised before it does
            # harm.
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                metrics = self.learn(columns, rng=rng, num_env_steps=num_env_steps_sampled_lifetime)
        except BaseException:  # raised again; also Ctrl-C must not leave half an update
            self.set_state(before)
            raise
        self.num_updates += 1
        metrics["num_trainable_parameters"] = self.module.num_parameters
        return metrics

    def apply_gradients(self, *, loss: float, lr: float, batch: Mapping[str, Array]) -> float:
        """Clips the module's gradients and makes one step of the optimiser.

        Args:
            loss: the value whose gradients these are.
            lr: learning rate ≥ 0.
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

    def get_state(self) -> State:
        """Everything that is needed to go on as if nothing had happened, by component."""
        return {
            "rl_module": self.module.get_state(),
            "optimizer": self._optimizer.get_state(),
            "learner": {"num_updates": self.num_updates, **self.extra_state()},
        }

    def set_state(self, state: State) -> None:
        """Takes back what `get_state` gave; if it does not fit, nothing is changed.

        Raises:
            ModuleError: a component is missing or unknown, or does not fit this learner.
        """
        if set(state) != set(COMPONENTS):
            raise ModuleError(
                f"A learner's state has the components {', '.join(COMPONENTS)}; given were "
                f"{', '.join(sorted(state)) or 'none'}. Give all parts of one state that "
                "`get_state` returned."
            )
        expected, given = {"num_updates", *self.extra_state()}, set(state["learner"])
        if given != expected:
            raise ModuleError(
                f"The component `learner` holds {sorted(given)}, but {type(self).__name__} needs "
                f"{sorted(expected)}. Load a state that was written by the same learner class."
            )
        weights_before = self.module.get_state()
        self.module.set_state(state["rl_module"])
        try:
            self._optimizer.set_state(state["optimizer"])
        except ModuleError:
            self.module.set_state(weights_before)
            raise
        own = dict(state["learner"])
        self.num_updates = int(own.pop("num_updates"))
        self.set_extra_state(own)

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


@dataclass(frozen=True)
class LearnerSpec:
    """What is needed to build a learner.

    Attributes:
        learner_class: e.g. `PPOLearner`.
        module_spec: the network, with both spaces.
        settings: the settings class of that learner.
        root_seed: the seed of the run, ≥ 0.
        module_id: the name of the module in results.
    """

    learner_class: type[Learner]
    module_spec: RLModuleSpec
    settings: Any
    root_seed: int
    module_id: str = DEFAULT_MODULE_ID

    def build(self) -> Learner:
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


def _not_finite(arrays: Mapping[str, Array]) -> list[str]:
    return [
        name
        for name, array in arrays.items()
        if array.dtype.kind == "f" and not np.isfinite(array).all()
    ]


def _parameters_not_finite(parameters: Parameters) -> list[str]:
    return _not_finite(parameters.views)
