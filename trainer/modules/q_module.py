"""The ready-made Q-network: one value per action, plain, dueling or distributional."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from gymnasium import spaces

from trainer.episodes.episode_columns import ACTION_DIST_INPUTS, OBS
from trainer.errors import ConfigError, UnsupportedSpaceError
from trainer.modules.model_config import (
    DefaultModelConfig,
    NetworkPlan,
    Trunk,
    observation_plan,
    refuse_memory,
)
from trainer.modules.rl_module import RLModule, check_gradient
from trainer.modules.spaces import INVALID, is_invalid
from trainer.nn import (
    INITIALIZERS,
    ActingForward,
    ActionDistribution,
    Categorical,
    LayerSpec,
    kernels,
)
from trainer.nn.initializers import VALUE_HEAD_GAIN
from trainer.types import Array


@dataclass(frozen=True)
class QModelConfig(DefaultModelConfig):
    """The shape of a `QModule`; what DQN's settings say is filled in by the algorithm.

    Attributes:
        dueling: separate streams for the value of a state and the advantages of actions.
        num_atoms: 1 for plain values; above, the return is a distribution over so many atoms.
        v_min, v_max: the smallest and the largest atom.
    """

    dueling: bool = True
    num_atoms: int = 1
    v_min: float = -10.0
    v_max: float = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.free_log_std:
            raise ConfigError("`free_log_std=True`: Q-networks have no deviations. Leave it out.")


class QModule(RLModule):
    """Q(s, a) for every action of a Discrete space.

    Dueling (Wang et al. 2016, equation 9): Q = V + A - mean of A over the actions. With m atoms
    (Bellemare et al. 2017, section 4) every action has m logits, and Q is the mean of the atoms
    under their softmax; `forward_train` then gives the logits.

    For acting, the "action distribution inputs" are the Q values [B, n]. Where an action mask rules
    an action out, they are `INVALID`, and so are all its logits in `forward_train`.

    Attributes:
        num_actions: n.
        atoms: float32 [m], or [1] of no meaning for plain values.
    """

    _config: QModelConfig

    def make_action_distribution(self) -> ActionDistribution:
        """A choice among the actions, by their values."""
        self._config = QModelConfig.from_setting(self.model_config)
        refuse_memory(self._config)
        space = self.action_space
        if not isinstance(space, spaces.Discrete):
            raise UnsupportedSpaceError(
                f"A Q-network has one output per action, so it needs a Discrete action space; this "
                f"env has {space}. Use PPO or SAC for Box actions, PPO for MultiDiscrete ones, or "
                "number the actions with an action wrapper."
            )
        self.num_actions = int(space.n)
        return Categorical(self.num_actions)

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """Tensors `<network>/<layer>/kernel` and `.../bias` of "encoder", "af" and "vf"."""
        config = self._config
        head = config.head_layers()
        num_outputs = self.num_actions * config.num_atoms
        self._heads = {"af": [*head, config.last_layer(num_outputs)]}
        if config.dueling:
            self._heads["vf"] = [*head, config.last_layer(config.num_atoms)]
        self._plan = observation_plan("encoder", self, config)
        shapes = self._plan.shapes()
        for name, layers in self._heads.items():
            shapes |= self._head_plan(name, layers).shapes()
        return shapes

    def is_for_acting(self, name: str) -> bool:
        """All tensors: the values that are shown to exploration include V."""
        del name
        return True

    def setup(self) -> None:
        """Lays the networks over the parameters."""
        config = self._config
        self.atoms = np.linspace(config.v_min, config.v_max, config.num_atoms)
        self.atoms = self.atoms.astype(self.parameters.dtype)
        self._trunk = Trunk(self._plan, self.parameters, self.gradients)
        self._streams = {
            name: self._head_plan(name, layers).build(self.parameters, self.gradients)
            for name, layers in self._heads.items()
        }
        self._acting_streams = {
            name: ActingForward(network.layers) for name, network in self._streams.items()
        }
        # Plain values are the outputs of one chain of layers, unless a subclass expects others.
        self._acting_values: Callable[[Array], Array] | None = None
        is_own = type(self).expected_values is not QModule.expected_values
        if not (is_own or config.dueling or config.num_atoms > 1):
            self._acting_values = self._trunk.acting_with(self._streams["af"])
        self._batch_size = 0

    def initialize(self, rng: np.random.Generator) -> None:
        """Draws encoder, advantages and values, in this order."""
        initializer = INITIALIZERS[self._config.initializer]
        self._trunk.initialize(rng, initializer)
        for network in self._streams.values():
            network.initialize(rng, initializer=initializer, gain=VALUE_HEAD_GAIN)

    def forward_acting(self, obs: Array) -> Array:
        """The values Q(s, ·), [B, n]; see `RLModule.forward_acting`."""
        obs = obs if obs.ndim == 2 else self.checked_rows({OBS: obs})
        if self._acting_values is not None:
            return self._acting_values(obs)
        features = self._trunk.act(obs)
        outputs = {name: network(features) for name, network in self._acting_streams.items()}
        advantages = outputs["af"].reshape(len(obs), self.num_actions, -1)
        if "vf" in outputs:
            advantages = advantages - advantages.mean(axis=1, keepdims=True)
            advantages += outputs["vf"][:, None, :]
        return self.expected_values(advantages)

    def expected_values(self, outputs: Array) -> Array:
        """Q values [B, n] from outputs [B, n, m]; those of impossible actions are `INVALID`.

        Called for every vector step, so its argument is not checked.
        """
        if len(self.atoms) == 1:
            return outputs[:, :, 0]
        exponentials = np.exp(outputs - outputs.max(axis=2, keepdims=True))
        values: Array = (exponentials * self.atoms).sum(axis=2) / exponentials.sum(axis=2)
        if self.action_masks is not None:
            values[is_invalid(outputs[:, :, 0])] = INVALID
        return values

    def forward_train(self, batch: Mapping[str, Array]) -> dict[str, Array]:
        """Values [B, n], or logits [B, n·m] in order of actions; a view that does not last."""
        obs = self.checked_rows(batch)
        self._batch_size = -1  # until the pass is complete
        features = self._trunk.forward(obs)
        outputs = self._streams["af"].forward(features)[:-1]
        if "vf" in self._streams:
            by_action = outputs.reshape(self.num_actions, -1, len(obs))
            np.subtract(by_action, by_action.mean(axis=0), by_action)
            np.add(by_action, self._streams["vf"].forward(features)[:-1], by_action)
        self._batch_size = len(obs)
        return {ACTION_DIST_INPUTS: outputs.T}

    def backward(self, *, d_action_dist_inputs: Array, d_vf_preds: Array | None = None) -> None:
        """See `RLModule.backward`; a Q-network has no other value function, so that is ignored."""
        del d_vf_preds
        check_gradient(
            "d_action_dist_inputs",
            d_action_dist_inputs,
            (self._batch_size, self.num_actions * len(self.atoms)),
        )
        gradient = d_action_dist_inputs.T
        if "vf" not in self._streams:
            self._trunk.backward((self._streams["af"], gradient))
            return
        by_action = gradient.reshape(self.num_actions, -1, gradient.shape[1])
        d_value = by_action.sum(axis=0)
        d_advantages = (by_action - d_value / self.num_actions).reshape(gradient.shape)
        self._trunk.backward((self._streams["af"], d_advantages), (self._streams["vf"], d_value))

    def network_in_c(self) -> kernels.Network | None:
        """See `Trunk.network_in_c`; None of a network that does not give plain values."""
        is_plain = "vf" not in self._streams and len(self.atoms) == 1 and self.action_masks is None
        return self._trunk.network_in_c(self._streams["af"]) if is_plain else None

    def is_current(self, network: kernels.Network) -> bool:
        """Whether its layers still have the memory that `network_in_c` gave."""
        return network.is_current(self._trunk.columns)

    def _head_plan(self, name: str, layers: list[LayerSpec]) -> NetworkPlan:
        return NetworkPlan(name, self._plan.num_outputs, layers, backend=self._plan.backend)
