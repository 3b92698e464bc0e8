"""The ready-made networks with memory: `model_config={"use_lstm": True}` or `{"use_gru": True}`.

    observation -> layers of `fcnet_hiddens` -> LSTM or GRU -> heads of policy and value function

All up to the heads is a tower. Policy and value function share one ("encoder"), or have one each
("actor", "critic"): then the critic's runs while acting, too, for its state is needed where
learning begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from trainer.episodes.episode_columns import (
    ACTION_DIST_INPUTS,
    OBS,
    PREV_ACTIONS,
    PREV_REWARDS,
    STATE_IN,
    STATE_OUT,
    VF_PREDS,
)
from trainer.errors import ConfigError, ModuleError
from trainer.modules.memory import StatefulRLModule
from trainer.modules.model_config import (
    DefaultModelConfig,
    NetworkPlan,
    Trunk,
    observation_plan,
    policy_distribution,
    policy_width,
    with_log_std,
)
from trainer.modules.spaces import observation_size
from trainer.nn import (
    INITIALIZERS,
    ActionDistribution,
    Parameters,
    acting_forward,
    columns_with_ones,
)
from trainer.nn.initializers import POLICY_HEAD_GAIN, VALUE_HEAD_GAIN, Initializer
from trainer.nn.recurrent import backward_side_by_side, forward_side_by_side
from trainer.nn.torch_network import BACKENDS
from trainer.types import Array


class TowerPlan:
    """One tower before its parameters exist.

    Attributes:
        name: what its tensors' names begin with.
        body: the layers before the recurrent one.
        num_inputs: of the recurrent layer.
        layer_class: its kind.
        config: the user's settings.
    """

    def __init__(
        self, name: str, body: NetworkPlan, config: DefaultModelConfig, *, num_previous: int
    ) -> None:
        """Chooses the recurrent layer and its inputs.

        Args:
            name: what its tensors' names begin with.
            body: the layers before the recurrent one.
            config: the user's settings.
            num_previous: numbers of action and reward before that are read, too.
        """
        self.name, self.body, self.config = name, body, config
        self.num_previous = num_previous
        self.num_inputs = body.num_outputs + num_previous
        self.layer_class = BACKENDS[body.backend].recurrent[config.memory or "lstm"]

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The tensors of all its layers."""
        width = self.config.lstm_cell_size
        own = self.layer_class.shapes(
            f"{self.name}/memory", num_inputs=self.num_inputs, width=width
        )
        return {**self.body.shapes(), **own}

    def build(self, parameters: Parameters, gradients: Parameters) -> Tower:
        """The tower, laid over its tensors."""
        return Tower(self, parameters, gradients)


class Tower:
    """Dense layers or convolutions, then a recurrent layer.

    Attributes:
        layer: the recurrent one.
    """

    def __init__(self, plan: TowerPlan, parameters: Parameters, gradients: Parameters) -> None:
        self._body = Trunk(plan.body, parameters, gradients)
        self.layer = plan.layer_class(
            parameters,
            gradients,
            name=f"{plan.name}/memory",
            draw=plan.config.draw_of("lstm"),
        )
        self._num_features = plan.body.num_outputs
        self._num_previous = plan.num_previous
        self._dtype = parameters.dtype

    def initialize(self, rng: np.random.Generator, initializer: Initializer) -> None:
        """Draws all weights."""
        self._body.initialize(rng, initializer)
        self.layer.initialize(rng)

    def act(
        self, rows: Array, previous: Array | None, state: Mapping[str, Array]
    ) -> tuple[Array, dict[str, Array]]:
        """One step, row-exact: outputs [B, H] and state, of rows [B, D]."""
        features = self._body.act(rows)
        if previous is not None:
            features = np.concatenate([features, previous], axis=1)
        return self.layer.step(features, state)

    def features(self, rows: Array, previous: Array | None) -> Array:
        """What the recurrent layer reads of all steps, [K + 1, L · N], of rows [L · N, D]."""
        features = self._body.forward(rows)
        if previous is not None:
            columns = columns_with_ones(self.layer.num_inputs, len(rows), self._dtype)
            columns[: self._num_features] = features[:-1]
            columns[self._num_features : -1] = previous.T
            features = columns
        return features

    def room_for_d_inputs(self, num_columns: int) -> Array | None:
        """Where the recurrent layer writes what `backward` needs; None if nothing is before it."""
        if self._body.encoder is None:
            return None
        return np.empty((self.layer.num_inputs, num_columns), self._dtype)

    def backward(self, d_inputs: Array | None) -> None:
        """Overwrites the gradients of the layers before the recurrent one."""
        if self._body.encoder is not None and d_inputs is not None:
            self._body.encoder.backward(d_inputs[: self._num_features])


class RecurrentModule(StatefulRLModule):
    """Policy and value network with memory; settings are those of `DefaultModelConfig`.

    The state is {"h": [H]} of a GRU and {"h", "c"} of an LSTM; with two towers (see above) it is
    {"actor": ..., "critic": ...} of such.

    Attributes:
        has_value_network: whether there is a "vf" (`RecurrentPolicyModule` has none).
    """

    has_value_network: ClassVar[bool] = True

    def make_action_distribution(self) -> ActionDistribution:
        """The distribution that fits the action space, with the configured limit of log_std."""
        self._config = DefaultModelConfig.from_setting(self.model_config)
        if self._config.log_std_by_feature:
            raise ConfigError(
                f"`log_std_by_feature=True`: a {type(self).__name__}, which has memory, does not "
                "offer it. Leave it out, or take a network without memory."
            )
        return policy_distribution(self._config, self.action_space)

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """Tensors of towers, `<tower>/<layer>/...` and `<tower>/memory/...`; "pi/...", "vf/...".

        With `free_log_std` also "pi/log_std", as in `ActorCriticModule`.
        """
        config = self._config
        previous = observation_size(self.action_space) if config.lstm_use_prev_action else 0
        self._num_previous = previous + bool(config.lstm_use_prev_reward)
        is_shared = config.vf_share_layers or not self.has_value_network
        names = ["encoder"] if is_shared else ["actor", "critic"]
        self._plans = {}
        for name in names:
            body = observation_plan(name, self, config)
            self._plans[name] = TowerPlan(name, body, config, num_previous=self._num_previous)
        widths = {"pi": policy_width(config, self.action_distribution), "vf": 1}
        if not self.has_value_network:
            del widths["vf"]
        self._heads = {}
        for name, width in widths.items():
            layers = [*config.head_layers(), config.last_layer(width)]
            self._heads[name] = NetworkPlan(
                name, config.lstm_cell_size, layers, backend=body.backend
            )
        shapes: dict[str, tuple[int, ...]] = {}
        for tower in self._plans.values():
            shapes |= tower.shapes()
        for head in self._heads.values():
            shapes |= head.shapes()
        if config.free_log_std:
            shapes["pi/log_std"] = (self.action_distribution.noise_width,)
        return shapes

    def setup(self) -> None:
        """Lays the networks over the parameters."""
        parts = self.parameters, self.gradients
        self._towers = {name: plan.build(*parts) for name, plan in self._plans.items()}
        names = list(self._towers)
        self._tower_of = {"pi": names[0], "vf": names[-1]}
        self._networks = {
            name: plan.build(*parts)
            for name, plan in self._heads.items()
            if name != "vf" or not self.inference_only
        }
        self._acting_head = acting_forward(self._networks["pi"])
        self._log_std = self.parameters.views.get("pi/log_std")
        self._shape = (0, 0)

    def initialize(self, rng: np.random.Generator) -> None:
        """Draws towers, policy and value head, in this order."""
        initializer = INITIALIZERS[self._config.initializer]
        for tower in self._towers.values():
            tower.initialize(rng, initializer)
        head_gains = {"pi": POLICY_HEAD_GAIN, "vf": VALUE_HEAD_GAIN}
        for name, network in self._networks.items():
            network.initialize(rng, initializer=initializer, gain=head_gains[name])
        if self._log_std is not None:
            self._log_std[...] = self._config.log_std_init

    def get_initial_state(self) -> dict[str, Any]:
        """Zeros; see the class for their names."""
        states = {name: tower.layer.initial_state() for name, tower in self._towers.items()}
        return self._by_tower(states)

    def _by_tower(self, states: dict[str, Any]) -> dict[str, Any]:
        """The state as users see it: that of a single tower without the tower's name."""
        return states if len(states) > 1 else next(iter(states.values()))

    def _state_of(self, state: Mapping[str, Any], name: str) -> Mapping[str, Array]:
        part: Mapping[str, Array] = state[name] if len(self._towers) > 1 else state
        return part

    def _previous(self, batch: Mapping[str, Any], shape: tuple[int, ...]) -> Array | None:
        """What is read of the step before, [*shape, P]; zeros where the batch does not say."""
        if self._num_previous == 0:
            return None
        parts = []
        if self._config.lstm_use_prev_action:
            width = observation_size(self.action_space)
            parts.append(
                batch[PREV_ACTIONS] if PREV_ACTIONS in batch else np.zeros((*shape, width))
            )
        if self._config.lstm_use_prev_reward:
            rewards = batch[PREV_REWARDS] if PREV_REWARDS in batch else np.zeros(shape)
            parts.append(rewards[..., None])
        previous: Array = np.concatenate(parts, axis=-1)
        return previous.astype(self.parameters.dtype, copy=False)

    def forward_step(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        rows, state = batch[OBS], batch[STATE_IN]
        previous = self._previous(batch, (len(rows),))
        outputs, states = {}, {}
        for name, tower in self._towers.items():
            outputs[name], states[name] = tower.act(rows, previous, self._state_of(state, name))
        inputs = with_log_std(self._acting_head(outputs[self._tower_of["pi"]]), self._log_std)
        return {ACTION_DIST_INPUTS: inputs, STATE_OUT: self._by_tower(states)}

    def forward_sequences(self, batch: Mapping[str, Any]) -> dict[str, Array]:
        obs, state = batch[OBS], batch[STATE_IN]
        self._shape = obs.shape[:2]
        rows, previous = _time_major(obs), self._previous(batch, self._shape)
        if previous is not None:
            previous = _time_major(previous)
        towers = self._towers.values()
        of_towers = forward_side_by_side(
            [tower.layer for tower in towers],
            [tower.features(rows, previous) for tower in towers],
            [self._state_of(state, name) for name in self._towers],
        )
        outputs = dict(zip(self._towers, of_towers, strict=True))
        found = {}
        for name, network in self._networks.items():
            column = network.forward(outputs[self._tower_of[name]])[:-1]
            found[name] = column.reshape(len(column), *self._shape[::-1]).transpose(2, 1, 0)
        given = {ACTION_DIST_INPUTS: with_log_std(found["pi"], self._log_std)}
        return given if "vf" not in found else {**given, VF_PREDS: found["vf"][:, :, 0]}

    def backward_sequences(self, *, d_action_dist_inputs: Array, d_vf_preds: Array) -> None:
        gradients = {"pi": d_action_dist_inputs, "vf": d_vf_preds[:, :, None]}
        if self._log_std is not None:
            width = len(self._log_std)
            of_log_std = d_action_dist_inputs[:, :, width:]
            np.add.reduce(of_log_std, axis=(0, 1), out=self.gradients.views["pi/log_std"])
            gradients["pi"] = d_action_dist_inputs[:, :, :width]
        of_towers: dict[str, Array] = {}
        for name, network in self._networks.items():
            d_inputs = np.empty(
                (self._config.lstm_cell_size, self._shape[0] * self._shape[1]),
                self.parameters.dtype,
            )
            network.backward(_time_major(gradients[name]).T, d_inputs=d_inputs)
            tower = self._tower_of[name]
            of_towers[tower] = of_towers[tower] + d_inputs if tower in of_towers else d_inputs
        towers, of_outputs = [self._towers[name] for name in of_towers], list(of_towers.values())
        rooms = [tower.room_for_d_inputs(self._shape[0] * self._shape[1]) for tower in towers]
        backward_side_by_side([tower.layer for tower in towers], of_outputs, rooms)
        for one, room in zip(towers, rooms, strict=True):
            one.backward(room)

    def compute_values(self, batch: Mapping[str, Any]) -> Array:
        """See `RLModule.compute_values`; a ModuleError if there is no value network."""
        if not self.has_value_network:
            raise ModuleError(
                f"A {type(self).__name__} predicts no values, because its algorithm learns none "
                "(PG's advantages are returns). Use an algorithm with a critic, such as PPO."
            )
        values: Array = super().compute_values(batch)
        return values


class RecurrentPolicyModule(RecurrentModule):
    """A `RecurrentModule` without its value network, for PG."""

    has_value_network: ClassVar[bool] = False


def _time_major(padded: Array) -> Array:
    """Padded rows [N, L, X] as [L · N, X]: all sequences' first steps, then their second ones."""
    by_step = padded.transpose(1, 0, 2)
    rows: Array = by_step.reshape(-1, padded.shape[2])
    return rows
