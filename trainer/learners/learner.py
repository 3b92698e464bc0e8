"""Learners: a module, its optimiser, their state; updates from samples."""

from __future__ import annotations

import dataclasses
import functools
import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, Final, Protocol, TypeVar

import numpy as np

from checkpoints import Checkpointable, HasState, check_shape
from checkpoints.components import naming_component
from trainer import seeding
from trainer.connectors import (
    LearnerPipeline,
    Normalization,
    ObservationEncoder,
    made_learner_pipeline,
)
from trainer.episodes import nested
from trainer.episodes.episode_columns import OBS
from trainer.episodes.single_agent_episode import SingleAgentEpisode
from trainer.errors import ModuleError
from trainer.learners.batching import Batching, batching_for
from trainer.learners.columns import (
    BatchListener,
    Columns,
    RowMemory,
    TrainBatchEvent,
    columns_from_episodes,
)
from trainer.learners.torch_optimizers import TorchOptimizer
from trainer.learners.torch_schedulers import TorchSchedule
from trainer.metrics import MetricsLogger
from trainer.modules import RLModule, RLModuleSpec
from trainer.nn import Adam, GradientClipping, Parameters, Schedule, ScheduleSetting
from trainer.old_names import OLD_NAMES, refuse_overrides
from trainer.own_attributes import OwnAttributes
from trainer.runtime.engine import beat
from trainer.types import DEFAULT_MODULE_ID, Array, ModuleId, State
from trainer_toolkit.checks import ANY_NUMBER, COUNT, anything, dict_of, fields
from trainer_toolkit.nearest_names import nearest
from trainer_toolkit.undo import Undo, undone_on_error

# ---- settings
#
# What learners read of configs.


_Settings = TypeVar("_Settings", bound="LearnerSettings")
_StepT = TypeVar("_StepT")


@dataclass(frozen=True, kw_only=True)
class LearnerSettings:
    """The settings of a config that every learner reads, by their names.

    Meanings, defaults and checks are those of the config class, and stand nowhere else.

    Attributes:
        config: all settings, for learners of users; None where there is no config.
        module_id: whose learner it is.
    """

    gamma: float
    lr: ScheduleSetting
    num_epochs: int
    minibatch_size: int | None
    shuffle_batch_per_epoch: bool
    grad_clip: float | None
    grad_clip_by: str
    adam_epsilon: float
    config: Any = field(default=None, repr=False, compare=False)
    module_id: ModuleId = DEFAULT_MODULE_ID

    @classmethod
    def from_config(cls: type[_Settings], config: Any, **others: Any) -> _Settings:
        """The values of these settings in an `AlgorithmConfig`; `others` come from elsewhere."""
        names = [field.name for field in dataclasses.fields(cls) if field.name in config]
        return cls(**{**{name: config[name] for name in names}, "config": config, **others})


# ---- learner

OWN: Final = "learner"
"""The component with what a learner remembers besides its parts."""

_ATTRIBUTES: Final = "attributes"
_LOGGED: Final = "metrics"
GRADIENT_NORM: Final = "gradients_default_optimizer_global_norm"
"""What results call the norm of the gradients before clipping."""
STEPS: Final = "num_env_steps_sampled_lifetime"
"""What events around updates call the env steps at which schedules are read."""
_SIMILARITY_OF_MISSPELT: Final = 0.93
"""`compute_loss_for_modul` is one; a helper `compute_loss` beside `compute_losses` is none."""
_WAYS: Final = ("extra_state", "set_extra_state")


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
    seed and the number of the update.

    Attributes of a class of the user's that are plain data are state, as those of callbacks; so is
    what it logs. One that has more to remember puts what has a state of its own into `parts`, or
    overrides `extra_state` and `set_extra_state`; then its attributes are its own affair.

    Its components are its parts and "learner". A state, whole or in part, is taken as a whole or
    not at all.

    Attributes:
        module: the network.
        settings: how to learn.
        num_updates: how many updates were made since the start of training.
        root_seed: the seed of the run; with `num_updates` it decides all random numbers.
        optimizer: moves the weights.
        clipping: measures and limits gradients.
        parts: what has a state of its own, by component.
        normalization: what is done to observations and rewards; changed by `normalize_with`.
        metrics: where a class of the user's logs; shown at `learners/{module_id}`.
        torch_schedules: what `torch_lr_schedulers` makes; stepped after each update.
    """

    settings_class: ClassVar[type[LearnerSettings]] = LearnerSettings
    """What `settings` are."""

    network_class: ClassVar[type[RLModule] | None] = None
    """The ready-made network that its loss needs; None: that of the algorithm."""

    never_called: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Methods that other learners call and this one does not, with what to write instead."""

    module: RLModule
    settings: LearnerSettings
    num_updates: int
    root_seed: int
    normalization: Normalization
    optimizer: Adam
    clipping: GradientClipping
    parts: dict[str, LearnerPart]
    metrics: MetricsLogger
    _attributes: OwnAttributes
    _encoder: ObservationEncoder
    torch_schedules: list[TorchSchedule]
    _lr: Schedule | TorchSchedule
    _module_spec: RLModuleSpec
    _position: tuple[int, ...]

    def __init__(
        self,
        *,
        module_spec: RLModuleSpec,
        settings: LearnerSettings,
        root_seed: int,
        position: tuple[int, ...] = (),
    ) -> None:
        """Builds the module with weights drawn from the root seed.

        Args:
            module_spec: the network, with both spaces.
            settings: how to learn.
            root_seed: the seed of the run, ≥ 0.
            position: of the module's random numbers among those of others (`module_position`).
        """
        self._module_spec = module_spec
        self._position = position
        self.module = module_spec.build(seeding.weights_rng(root_seed, of=position))
        module_spec.load_state(self.module)
        self.settings = settings
        self.num_updates = 0
        self.root_seed = root_seed
        self._encoder = self.make_encoder()
        self.normalization = Normalization()
        self.torch_schedules: list[TorchSchedule] = []
        self._lr: Schedule | TorchSchedule = Schedule.from_setting(settings.lr, name="lr")
        self.optimizer = Adam(
            self.module.parameters,
            self.module.gradients,
            epsilon=settings.adam_epsilon,
        )
        self.clipping = GradientClipping(
            self.module.gradients, limit=settings.grad_clip, mode=settings.grad_clip_by
        )
        self.parts = {"rl_module": self.module, "optimizer": self.optimizer}
        if (schedule := self.torch_schedule(settings.lr, name="lr_schedulers")) is not None:
            self._lr = schedule
        self.metrics = MetricsLogger()
        self._attributes = OwnAttributes(self, kind="learner", ways=_WAYS)

    def torch_schedule(self, *rates: Any, name: str) -> TorchSchedule | None:
        """What decides the rates of an optimiser: a new part; None without `torch_lr_schedulers`.

        Args:
            rates: of its groups, before schedulers.
            name: of the part.

        Raises:
            ConfigError: something in `torch_lr_schedulers` is no scheduler.
        """
        factories = None if self.config is None else self.config.torch_lr_schedulers
        if not factories:
            return None
        made = TorchSchedule(factories, rates)
        self.parts[name] = made
        self.torch_schedules.append(made)
        return made

    def get_optimizer(
        self, module_id: ModuleId | None = None, optimizer_name: str = "default_optimizer"
    ) -> Any:
        """The optimiser of Torch of that name.

        Where schedulers of Torch decide the rate of the default one, that which they act on: it
        has the rate in `param_groups`, and moves nothing.

        Args:
            module_id: this learner's, if given.
            optimizer_name: "default_optimizer", or as it was registered.

        Raises:
            ModuleError: there is none.
        """
        part: Any = self.parts.get(f"optimizer_{optimizer_name}")
        if part is None and optimizer_name == "default_optimizer":
            part = self._lr if isinstance(self._lr, TorchSchedule) else None
        if module_id not in (None, self.module_id) or part is None:
            raise ModuleError(
                f"get_optimizer({module_id!r}, {optimizer_name!r}): this learner of "
                f"{self.module_id!r} has no optimiser of Torch of that name. Adam of the config is "
                "`learner.optimizer`, and has no `param_groups`."
            )
        return part.optimizer

    def make_encoder(self) -> ObservationEncoder:
        """A new encoder of the observations that the module reads."""
        module = self.module
        return ObservationEncoder(module.observation_space, action_mask_key=module.action_mask_key)

    def normalize_with(self, normalization: Normalization) -> None:
        """Learns from observations and rewards as these make them, from now on."""
        self.normalization = normalization
        self._encoder.normalizer = normalization.observations

    @property
    def config(self) -> Any:
        """All settings, those of the module's own included: the `AlgorithmConfig` of its run."""
        return self.settings.config

    @property
    def module_id(self) -> ModuleId:
        """Whose learner it is."""
        return self.settings.module_id

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        refuse_overrides(
            cls, {**_misspelt_methods(cls), **OLD_NAMES.learner_overrides, **cls.never_called}
        )

    def build(self) -> None:
        """For subclasses: called once, by the algorithm, when the learner is complete."""

    def before_gradient_based_update(self, *, timesteps: Mapping[str, int]) -> None:
        """For subclasses: called before each update.

        Args:
            timesteps: {"num_env_steps_sampled_lifetime": so many when schedules are read}.
        """

    def after_gradient_based_update(self, *, timesteps: Mapping[str, int]) -> None:
        """For subclasses: called after each update, which is undone if this raises."""

    def logged(self) -> dict[str, Any]:
        """What a subclass has logged, for the result of an iteration; under its id or without."""
        if not self._attributes.is_derived:
            return {}
        logged = self.metrics.compile()
        own = logged.pop(self.module_id, {})
        return {**logged, **(own if isinstance(own, dict) else {self.module_id: own})}

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
        norm = self.clipping.global_norm()
        self.note_applied(loss, norm, batch)
        self.clipping.clip(global_norm=norm)
        self.optimizer.step(lr=lr)
        return norm

    def note_applied(self, loss: float, norm: float, batch: Mapping[str, Any]) -> None:
        """Shows that there is progress; raises the ModuleError of `apply_gradients`."""
        if not (math.isfinite(norm) and math.isfinite(loss)):
            raise _not_finite_error(loss, self.module, batch)
        beat()

    def get_checkpointable_components(self) -> Collection[tuple[str, HasState]]:
        """The parts, in the order in which they are restored."""
        return list(self.parts.items())

    def get_ctor_args_and_kwargs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What it was made with; spec and settings are no plain data, so they are not saved."""
        given = {"module_spec": self._module_spec, "settings": self.settings}
        position = {"position": self._position} if self._position else {}
        return (), {**given, "root_seed": self.root_seed, **position}

    def __reduce__(self) -> tuple[Callable[..., Learner], tuple[Any, ...]]:
        # Copied one by one, the optimiser would change other arrays than those of the module.
        _, arguments = self.get_ctor_args_and_kwargs()
        # The weights are in the state, and what they once began with may be gone.
        spec = dataclasses.replace(arguments["module_spec"], load_state_path=None)
        arguments = {**arguments, "module_spec": spec}
        return _rebuild, (type(self), arguments, self.get_state(), self.normalization)

    def _own_state(self) -> State:
        own = {"num_updates": self.num_updates, **self.extra_state()}
        if self._attributes.is_derived:
            own[_LOGGED] = self.metrics.get_state()
        if self._attributes.are_saved:
            own[_ATTRIBUTES] = self._attributes.get_state()
        return {OWN: own}

    def check_state(self, state: State) -> None:
        self._refuse_unknown(state)
        super().check_state(state)
        if OWN in state:
            with naming_component(OWN):
                self._check_shape_of_own(state[OWN])

    def _check_shape_of_own(self, state: State) -> None:
        check_shape(state, dict_of(anything()))
        # What a subclass keeps besides numbers may grow: its keys are all that is known.
        shapes = {
            name: ANY_NUMBER if type(value) in (int, float) else anything()
            for name, value in self.extra_state().items()
        }
        of_ours, of_users = self._parted(state)
        check_shape(of_ours, fields({"num_updates": COUNT, **shapes}))
        self._attributes.check_state(of_users.get(_ATTRIBUTES, {}))
        if _LOGGED in of_users:
            self.metrics.check_state(of_users[_LOGGED])

    def set_state(self, state: State) -> None:
        """Takes back what `get_state` gave; if it does not fit, nothing is changed.

        Raises:
            ModuleError: a component is unknown, or does not fit this learner.
        """
        self._refuse_unknown(state)
        if OWN in state:
            self._check_own(state[OWN])
        with undone_on_error() as undo:
            undo(self.mark())
            for name in (name for name in self.parts if name in state):
                with naming_component(name):
                    self.parts[name].set_state(state[name])
            if OWN in state:
                self._set_own(state[OWN])

    def _set_own(self, state: State) -> None:
        own, of_users = self._parted(state)
        self.num_updates = int(own.pop("num_updates"))
        self.set_extra_state(own)
        self._attributes.set_state(of_users.get(_ATTRIBUTES, {}))
        if _LOGGED in of_users:
            self.metrics.set_state(of_users[_LOGGED])

    def _parted(self, own: State) -> tuple[dict[str, Any], dict[str, Any]]:
        """The component `OWN` in two: what is ours, and what there is of a class of the user's."""
        names = [_LOGGED] if self._attributes.is_derived else []
        names += [_ATTRIBUTES] if self._attributes.are_saved else []
        of_users: dict[str, Any] = {name: own[name] for name in names if name in own}
        return {name: value for name, value in own.items() if name not in of_users}, of_users

    def mark(self) -> Undo:
        """What gives it the state of now back, whatever was added to it since."""
        cls = type(self)
        if cls.set_state is not Learner.set_state or cls.get_state is not Learner.get_state:
            return partial(self.set_state, self.get_state())
        own, names = self._own_state()[OWN], self._attributes.names()
        marks = [_mark_of(part) for part in self.parts.values()]

        def put_back() -> None:
            for undo in marks:
                undo()
            self._attributes.remove_all_but(names)
            self._set_own(own)

        return put_back

    def _refuse_unknown(self, state: State) -> None:
        unknown = set(state) - {*self.parts, OWN}
        if unknown:
            raise ModuleError(
                f"A learner's state has the components {', '.join([*self.parts, OWN])}; given were "
                f"the unknown {', '.join(sorted(unknown))}. Load a state of the same learner class."
            )

    def _check_own(self, state: State) -> None:
        with naming_component(OWN):
            check_shape(state, dict_of(anything()))
        expected, given = {"num_updates", *self.extra_state()}, set(self._parted(state)[0])
        if given != expected:
            raise ModuleError(
                f"The component `{OWN}` holds {sorted(given)}, but {type(self).__name__} needs "
                f"{sorted(expected)}. Load a state that was written by the same learner class."
            )
        with naming_component(OWN):
            self._check_shape_of_own(state)

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


def _misspelt_methods(cls: type[Learner]) -> dict[str, str]:
    """New methods of a class that are called almost like one that it inherits: advice by name."""
    known = [name for name in dir(cls.__base__) if not name.startswith("_")]
    new = [name for name in vars(cls) if not name.startswith("_") and name not in known]
    near = {name: nearest(name, known, similarity=_SIMILARITY_OF_MISSPELT) for name in new}
    return {name: f"Did you mean `{meant}`?" for name, meant in near.items() if meant}


def _mark_of(part: LearnerPart) -> Undo:
    """What gives a part its state of now back; some know how without judging it."""
    if isinstance(part, TorchOptimizer | LearnerPipeline):
        return part.mark()
    return partial(part.set_state, part.get_state())


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


# ---- episode learner
#
# Learning from each sample once: columns of whole chunks, one update, all or nothing.


class EpisodeLearner(Learner, ABC):
    """Learns from episodes that its own weights have just played.

    Life:
        learner = PPOLearner(module_spec=…, settings=…, root_seed=…)
        metrics = learner.update(episodes, num_env_steps_sampled_before=...)     once per iteration
        weights = learner.module.get_state(inference_only=True)                  for the env runners
        state = learner.get_state(); learner.set_state(state)                    exact resume

    An update either happens as a whole or not at all: if it raises, everything is as it was before.
    A subclass implements `learn`.

    Attributes:
        batching: makes batches of rows, or of whole sequences for a module with memory.
    """

    needs_policy: ClassVar[bool] = True
    """Whether episodes have to say how probable their actions were; recordings need not."""

    batching: Batching
    _memory: RowMemory

    def __init__(self, **arguments: Any) -> None:
        """See `Learner`.

        Raises:
            ConfigError: the module has memory, and its `max_seq_len` is no number of steps.
        """
        super().__init__(**arguments)
        self.batching = batching_for(self.module)
        self._memory = RowMemory()
        if self.config is not None and self.config.learner_connector is not None:
            self.learner_connector  # noqa: B018 - makes the pieces

    @functools.cached_property
    def learner_connector(self) -> LearnerPipeline:
        """The pieces that see episodes before columns are made; a part from now on.

        A class of the user's may add some in `build()`.
        """
        factory = None if self.config is None else self.config.learner_connector
        made = made_learner_pipeline(
            factory, self.module.observation_space, self.module.action_space
        )
        self.parts["learner_connector"] = made
        return made

    @abstractmethod
    def learn(
        self,
        columns: Columns,
        *,
        rng: np.random.Generator,
        num_env_steps: int,
        event: TrainBatchEvent,
    ) -> dict[str, Any]:
        """Makes one update; `apply_gradients` changes the weights.

        Args:
            columns: all steps to learn from.
            rng: the random numbers of this update.
            num_env_steps: env steps sampled before these, where schedules are read.
            event: to fire once with all columns of the loss, which it may change.

        Returns:
            Metrics by their key under `learners/{module_id}`.
        """

    def learn_in_minibatches(
        self,
        rows: Mapping[str, Any],
        lengths: Array,
        step: Callable[[dict[str, Any]], _StepT],
        *,
        rng: np.random.Generator,
    ) -> tuple[list[_StepT], int]:
        """Makes a step from each minibatch, in `num_epochs` passes over the rows.

        Args:
            rows: the columns of the loss, [B, ...] each.
            lengths: steps of each chunk, int64 [C].
            step: makes a gradient step from a minibatch, which is valid until it returns.
            rng: draws the orders, with `shuffle_batch_per_epoch`.

        Returns:
            What the steps of the last pass gave, and how many rows all steps were made from.
        """
        settings, num_rows = self.settings, len(rows[OBS])
        size = settings.minibatch_size or num_rows
        last_pass = self.batching.num_minibatches(lengths, num_rows, minibatch_size=size)
        made: deque[_StepT] = deque(maxlen=last_pass)
        num_rows_trained = 0
        for minibatch in self.batching.minibatches(
            rows,
            lengths,
            minibatch_size=size,
            num_epochs=settings.num_epochs,
            rng=rng if settings.shuffle_batch_per_epoch else None,
        ):
            made.append(step(minibatch))
            num_rows_trained += len(minibatch[OBS])
        return [*made], num_rows_trained

    def update(
        self,
        episodes: Sequence[SingleAgentEpisode],
        *,
        num_env_steps_sampled_before: int,
        on_batch: BatchListener | None = None,
    ) -> dict[str, Any]:
        """Learns from episodes.

        Args:
            episodes: chunks after `to_numpy()`, sampled with the current weights.
            num_env_steps_sampled_before: env steps sampled since the start of training, without
                those of these episodes; schedules are read there, so that the first update uses
                their first value.
            on_batch: called with the module, the complete train batch, which it may change, and a
                dict for metrics of its own.

        Returns:
            Metrics by their key under `learners/{module_id}`; learning algorithms list theirs.
            Those of `on_batch` are under `custom_metrics`.

        Raises:
            ModuleError: a loss or gradient was not finite.
            EpisodeError: the episodes cannot be learnt from, or what `on_batch` made of them.
        """
        timesteps = {STEPS: num_env_steps_sampled_before}
        rng = seeding.learner_rng(self.root_seed, self.num_updates, of=self._position)
        # No warnings of overflow: what is not finite is found and raised before it does harm.
        silent = np.errstate(over="ignore", invalid="ignore", divide="ignore")
        with undone_on_error() as undo:
            undo(self.mark())
            episodes, columns = self._columns_of(episodes)
            event = TrainBatchEvent(
                self.module, episodes, on_batch, keeps_rows=self.batching.keeps_rows
            )
            self.module.begin_update(self.root_seed, self.num_updates, of=self._position)
            with silent:
                self.before_gradient_based_update(timesteps=timesteps)
                metrics = self.learn(
                    columns, rng=rng, num_env_steps=num_env_steps_sampled_before, event=event
                )
                self.num_updates += 1
                for schedule in self.torch_schedules:
                    schedule.step()
                self.after_gradient_based_update(timesteps=timesteps)
        metrics["num_trainable_parameters"] = self.module.num_parameters
        if event.result:
            metrics["custom_metrics"] = event.result
        return metrics

    def _columns_of(
        self, episodes: Sequence[SingleAgentEpisode]
    ) -> tuple[Sequence[SingleAgentEpisode], Columns]:
        """The episodes as the pieces before the learner leave them, and their columns."""
        given: Mapping[str, Array] = {}
        if "learner_connector" in self.parts:
            episodes, given = self.learner_connector.changed(episodes, self.module)
        columns = columns_from_episodes(
            episodes,
            encoder=self._encoder,
            previous=self.batching.previous,
            memory=self._memory,
            needs_policy=self.needs_policy,
        )
        if given:
            columns = replace(columns, extras={**columns.extras, **given})
        if self.normalization.rewards is not None:
            columns = replace(columns, rewards=self.normalization.rewards(columns.rewards))
        return episodes, columns


def means_of_losses(
    record: Collection[tuple[Any, float]], names: Collection[str]
) -> dict[str, float]:
    """The means of these attributes of losses, and of the gradient's norm, over some steps.

    Args:
        record: the loss of each step, and the norm before clipping.
        names: of attributes.
    """
    count = len(record)
    means = {name: sum(getattr(loss, name) for loss, _ in record) / count for name in names}
    return {**means, GRADIENT_NORM: sum(norm for _, norm in record) / count}


NOT_IN_TORCH: Final = MappingProxyType(
    dict.fromkeys(
        ("compute_loss_for_module", "configure_optimizers_for_module"),
        "Derive from TorchLearner or PPOTorchLearner, with a network in Torch; or write "
        "`compute_loss`.",
    )
)
"""What learners never call whose loss is computed on arrays."""


def _rebuild(
    learner_class: type[Learner],
    arguments: dict[str, Any],
    state: State,
    normalization: Normalization,
) -> Learner:
    """A learner with the given state (used by copy and pickle)."""
    learner = learner_class(**arguments)
    learner.build()
    learner.set_state(state)
    learner.normalize_with(normalization)
    return learner
