"""Rewards for what cannot be predicted yet: the Intrinsic Curiosity Module (Pathak et al. 2017).

Three networks, learnt in the main process from every sample, before rewards are learnt from:
features φ of observations; a forward model φ̂(s') of φ(s) and the action; an inverse model of the
action from φ(s) and φ(s'), which keeps in the features what the agent can influence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise, starmap
from typing import Any, ClassVar, Final

import numpy as np
from gymnasium import spaces

from checkpoints import check_shape, like
from checkpoints.arguments import checked_methods
from checkpoints.state_shapes import ShapeCheck, anything, fields
from trainer.errors import ConfigError, ModuleError
from trainer.exploration.explored_sample import ExploredSample
from trainer.exploration.feature_network import (
    FeatureNetworks,
    as_columns,
    dense_layers,
    encoder_layers,
)
from trainer.exploration.settings import checked_count, checked_number
from trainer.exploration.sub_exploration import WithSubExploration
from trainer.nn import Categorical, LayerSpec, MultiCategorical
from trainer.seeding import Role, position_rng
from trainer.types import Array, State

_ROWS_PER_STEP: Final = 256
_STREAM: Final = 1_001
"""Tells the weights of these networks from other uses of the exploration role."""


@checked_methods(but=("__init__", "get_exploration_action"))
class Curiosity(WithSubExploration):
    """Adds η · ½‖φ̂(s') - φ(s')‖² to the rewards (ibid., equation 6).

    The loss is (1 - β) · inverse + β · forward (ibid., equation 7), inverse being the negative
    log-likelihood of the action and forward ½‖φ̂(s') - φ(s')‖² (equation 5), both means over steps.
    Steps are taken in order of slots and time, 256 at once: their rewards first, then one step of
    Adam. Everything happens in the main process, so any number of runners will do.
    """

    possible_spaces: ClassVar[tuple[type[spaces.Space[Any]], ...]] = (
        spaces.Discrete,
        spaces.MultiDiscrete,
    )

    def __init__(
        self,
        action_space: spaces.Space[Any],
        *,
        feature_dim: int = 288,
        feature_net_config: Mapping[str, Any] | None = None,
        inverse_net_hiddens: Sequence[int] = (256,),
        inverse_net_activation: str = "relu",
        forward_net_hiddens: Sequence[int] = (256,),
        forward_net_activation: str = "relu",
        beta: float = 0.2,
        eta: float = 1.0,
        lr: float = 1e-3,
        **context: Any,
    ) -> None:
        """Plans the networks; `prepare` makes them, in the main process only.

        Args:
            action_space: of actions as modules give them.
            feature_dim: numbers of a feature vector φ.
            feature_net_config: `fcnet_hiddens` and `fcnet_activation` of the feature network.
            inverse_net_hiddens: widths of the inverse model's hidden layers.
            inverse_net_activation: their activation.
            forward_net_hiddens: widths of the forward model's hidden layers.
            forward_net_activation: their activation.
            beta: weight of the forward loss against the inverse one, in [0, 1].
            eta: weight of the intrinsic reward.
            lr: learning rate.
            context: `sub_exploration`, which must be given, and the context of `Exploration`.

        Raises:
            ConfigError: an argument is wrong.
            UnsupportedSpaceError: the action space is not Discrete or MultiDiscrete.
        """
        super().__init__(action_space, **context)
        if isinstance(action_space, spaces.Discrete):
            self._sizes = [int(action_space.n)]
        else:
            self._sizes = [int(size) for size in action_space.nvec]  # type: ignore[attr-defined]
        self._num_alternatives = sum(self._sizes)
        self._inverse_distribution: Categorical | MultiCategorical
        if isinstance(action_space, spaces.Discrete):
            self._inverse_distribution = Categorical(self._num_alternatives)
        else:
            self._inverse_distribution = MultiCategorical(self._sizes)
        self.feature_dim = checked_count(feature_dim, name="feature_dim", minimum=1)
        self.beta = checked_number(beta, name="beta", maximum=1.0)
        self.eta = checked_number(eta, name="eta")
        self.lr = checked_number(lr, name="lr", above=True)
        inverse = dense_layers(
            inverse_net_hiddens, inverse_net_activation, name="inverse_net_hiddens"
        )
        forward = dense_layers(
            forward_net_hiddens, forward_net_activation, name="forward_net_hiddens"
        )
        self._layers: dict[str, list[LayerSpec]] = {
            "features": encoder_layers(
                feature_net_config, name="feature_net_config", num_outputs=self.feature_dim
            ),
            "inverse": [*inverse, LayerSpec(self._num_alternatives, "linear")],
            "forward": [*forward, LayerSpec(self.feature_dim, "linear")],
        }
        self._networks: FeatureNetworks | None = None

    def prepare(self, *, obs_size: int, root_seed: int) -> None:
        """Makes the networks with weights drawn from the root seed."""
        num_inputs = {
            "features": obs_size,
            "inverse": 2 * self.feature_dim,
            "forward": self.feature_dim + self._num_alternatives,
        }
        self._networks = FeatureNetworks(
            {name: (num_inputs[name], layers) for name, layers in self._layers.items()},
            position_rng(root_seed, Role.EXPLORATION, _STREAM),
        )

    def observe_sample(self, sample: ExploredSample) -> Sequence[Array]:
        """Adds the intrinsic rewards and learns."""
        chunks = sample.chunks
        obs = np.concatenate([chunk.obs[:-1] for chunk in chunks])
        new_obs = np.concatenate([chunk.obs[1:] for chunk in chunks])
        actions = np.concatenate([chunk.actions for chunk in chunks])
        bonus = np.concatenate(
            [
                self.learn(obs[rows], actions[rows], new_obs[rows])
                for rows in _windows(len(obs), _ROWS_PER_STEP)
            ]
        )
        lengths = [len(chunk.rewards) for chunk in chunks]
        parts = starmap(slice, pairwise(accumulate(lengths, initial=0)))
        return [
            chunk.rewards + self.eta * bonus[part]
            for chunk, part in zip(chunks, parts, strict=True)
        ]

    def learn(self, obs: Array, actions: Array, new_obs: Array) -> Array:
        """Makes one step of Adam; returns ½‖φ̂(s') - φ(s')‖² of before, float64 [B]."""
        networks = self._made_networks()
        error, _ = self.loss(obs, actions, new_obs)
        surprise: Array = 0.5 * np.add.reduce(error.astype(np.float64) ** 2, axis=0)
        if not np.isfinite(surprise).all():
            raise ModuleError(
                "Curiosity predicts features that are not finite; its networks cannot go on. "
                "Check observations for extreme values, or lower `lr` of the exploration_config."
            )
        networks.step(lr=self.lr)
        return surprise

    def loss(self, obs: Array, actions: Array, new_obs: Array) -> tuple[Array, float]:
        """The loss of a batch; its gradient overwrites that of the networks.

        Args:
            obs: encoded, [B, D].
            actions: int64 [B] or [B, A].
            new_obs: encoded observations after the actions, [B, D].

        Returns:
            φ̂(s') - φ(s'), [F, B], and the loss.
        """
        nets = self._made_networks()
        rows, size = len(obs), self.feature_dim
        features = nets.networks["features"].forward(as_columns(np.concatenate([obs, new_obs])))
        phi, new_phi = features[:-1, :rows], features[:-1, rows:]
        ones = features[-1:, :rows]
        inverse_in = np.concatenate([phi, new_phi, ones])
        logits = nets.networks["inverse"].forward(inverse_in)[:-1].T
        forward_in = np.concatenate([phi, self._one_hot(actions).T, ones])
        error: Array = nets.networks["forward"].forward(forward_in)[:-1] - new_phi
        terms = self._inverse_distribution.evaluate(logits, actions)
        d_logp = np.full(rows, -(1.0 - self.beta) / rows, logits.dtype)
        d_error = (self.beta / rows) * error
        d_inverse, d_forward = np.empty_like(inverse_in[:-1]), np.empty_like(forward_in[:-1])
        nets.networks["inverse"].backward(terms.backward(d_logp=d_logp).T, d_inputs=d_inverse)
        nets.networks["forward"].backward(d_error, d_inputs=d_forward)
        d_phi = d_inverse[:size] + d_forward[:size]
        d_new_phi = d_inverse[size:] - d_error
        nets.networks["features"].backward(np.concatenate([d_phi, d_new_phi], axis=1))
        forward_loss = 0.5 * float(np.add.reduce(error * error, axis=0).mean())
        inverse_loss = -float(terms.logp.mean())
        return error, (1.0 - self.beta) * inverse_loss + self.beta * forward_loss

    def _one_hot(self, actions: Array) -> Array:
        """Each choice one-hot, side by side; float32 [B, sum of sizes]."""
        choices = actions.reshape(len(actions), -1)
        parts = [
            np.eye(size, dtype=np.float32)[choices[:, i]] for i, size in enumerate(self._sizes)
        ]
        return np.concatenate(parts, axis=1)

    def _made_networks(self) -> FeatureNetworks:
        if self._networks is None:
            raise ConfigError(
                "Curiosity learns in the main process only; there, `prepare` makes its networks."
            )
        return self._networks

    @classmethod
    def default_sub_exploration(
        cls, action_space: spaces.Space[Any], settings: Mapping[str, Any]
    ) -> None:
        """There is none: RLlib wants one to be given as well."""
        del action_space, settings

    def get_state(self) -> State:
        """Networks and optimiser, once they are made, and the sub-exploration's state."""
        state = super().get_state()
        if self._networks is not None:
            state["networks"] = self._networks.get_state()
        return state

    def check_state(self, state: State) -> None:
        """See `Exploration.check_state`."""
        shapes: dict[str, ShapeCheck] = {"sub_exploration": anything}
        if self._networks is not None:
            shapes["networks"] = like(self._networks.get_state())
        check_shape(state, fields(shapes))
        super().check_state(state)

    def set_state(self, state: State) -> None:
        """See `Exploration.set_state`."""
        super().set_state(state)
        if self._networks is not None and "networks" in state:
            self._networks.set_state(state["networks"])


def _windows(total: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, total)) for start in range(0, total, size)]
