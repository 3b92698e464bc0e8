"""Strategies that reward novelty, and leave the choice of actions to another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise, starmap
from typing import Any, ClassVar, Final

import numpy as np
from gymnasium import spaces

from checkpoints import check_shape, like
from trainer.errors import ConfigError, ModuleError, UnknownSettingError
from trainer.exploration.exploration import (
    ExploredSample,
    WithSubExploration,
    checked_count,
    checked_number,
)
from trainer.nn import (
    ACTIVATIONS,
    INITIALIZERS,
    MLP,
    Adam,
    Categorical,
    LayerSpec,
    MultiCategorical,
    Parameters,
    columns_with_ones,
)
from trainer.seeding import Role, position_rng
from trainer.types import Array, State
from trainer_toolkit.checks import ANY_NUMBER, Check, array, fields, list_of, of_type
from trainer_toolkit.nearest_names import did_you_mean

# ---- feature network
#
# Small networks that strategies learn by themselves, beside the module: dense layers and Adam.

_CONFIG: Final[Mapping[str, Any]] = {"fcnet_hiddens": (256, 256), "fcnet_activation": "tanh"}


def encoder_layers(config: Mapping[str, Any] | None, *, name: str, num_outputs: int) -> Any:
    """The layers of an encoder: hidden ones, then linear outputs.

    Args:
        config: `fcnet_hiddens` and `fcnet_activation`; None takes (256, 256) and tanh.
        name: what the setting is called, for errors.
        num_outputs: numbers of the embedding.

    Raises:
        ConfigError: something in the config is unknown or wrong.
    """
    given = dict(config or {})
    for key in given:
        if key not in _CONFIG:
            raise UnknownSettingError(
                f"`{name}` has no key {key!r}.{did_you_mean(key, _CONFIG)}"
                f" It takes {', '.join(_CONFIG)}."
            )
    chosen = {**_CONFIG, **given}
    layers = dense_layers(chosen["fcnet_hiddens"], chosen["fcnet_activation"], name=name)
    return [*layers, LayerSpec(num_outputs, "linear")]


def dense_layers(widths: Any, activation: Any, *, name: str) -> list[LayerSpec]:
    """Hidden layers of some widths.

    Raises:
        ConfigError: the widths are no positive ints, or the activation does not exist.
    """
    if not isinstance(widths, list | tuple) or not all(
        isinstance(width, int) and width > 0 for width in widths
    ):
        raise ConfigError(f"`{name}={widths!r}`: expected a list of widths > 0, such as [256].")
    if activation not in ACTIVATIONS:
        raise ConfigError(
            f"`{name}`: there is no activation {activation!r}."
            f"{did_you_mean(activation, ACTIVATIONS)} "
            f"Give one of {', '.join(ACTIVATIONS)}."
        )
    return [LayerSpec(width, activation) for width in widths]


class FeatureNetworks:
    """Some networks in one flat vector of parameters, with one optimiser.

    Attributes:
        networks: by name.
    """

    def __init__(
        self, layers: Mapping[str, tuple[int, Sequence[LayerSpec]]], rng: np.random.Generator
    ) -> None:
        """Draws the networks one by one; `layers` are name → (number of inputs, layers)."""
        shapes: dict[str, tuple[int, ...]] = {}
        for name, (num_inputs, specs) in layers.items():
            shapes |= MLP.shapes(name, num_inputs=num_inputs, layers=specs)
        self.parameters = Parameters(shapes)
        self.gradients = self.parameters.zeros_like()
        self._optimizer = Adam(self.parameters, self.gradients)
        self.networks = {
            name: MLP(self.parameters, self.gradients, name=name, layers=specs)
            for name, (_, specs) in layers.items()
        }
        for network in self.networks.values():
            network.initialize(rng, initializer=INITIALIZERS["orthogonal"], gain=1.0)

    def step(self, *, lr: float) -> None:
        """One step of Adam against the gradients."""
        self._optimizer.step(lr=lr)

    def get_state(self) -> State:
        """Weights and moments; copies."""
        return {"weights": self.parameters.get_state(), "optimizer": self._optimizer.get_state()}

    def set_state(self, state: State) -> None:
        """Takes back what `get_state` gave; a ModuleError if it does not fit."""
        self.parameters.set_state(state["weights"])
        self._optimizer.set_state(state["optimizer"])


def as_columns(rows: Array) -> Array:
    """Rows [B, K] as the networks read them: float32 [K + 1, B] with a last row of ones."""
    columns = columns_with_ones(rows.shape[1], len(rows), np.float32)
    columns[:-1] = rows.T
    return columns


# ---- curiosity
#
# Rewards for what cannot be predicted yet: the Intrinsic Curiosity Module (Pathak et al. 2017).
# Three networks, learnt in the main process from every sample, before rewards are learnt from:
# features φ of observations; a forward model φ̂(s') of φ(s) and the action; an inverse model of
# the action from φ(s) and φ(s'), which keeps in the features what the agent can influence.

_ROWS_PER_STEP: Final = 256
_CURIOSITY_STREAM: Final = 1_001
"""Tells the weights of these networks from other uses of the exploration role."""


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
            choices = np.ravel(action_space.nvec)  # type: ignore[attr-defined]
            self._sizes = [int(size) for size in choices]
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
            position_rng(root_seed, Role.EXPLORATION, _CURIOSITY_STREAM),
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
        shapes: dict[str, Check] = {"sub_exploration": of_type(dict)}
        if self._networks is not None:
            shapes["networks"] = like(self._networks.get_state())
        check_shape(state, fields(shapes))
        super().check_state(state)

    def set_state(self, state: State) -> None:
        super().set_state(state)
        if self._networks is not None and "networks" in state:
            self._networks.set_state(state["networks"])


def _windows(total: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, total)) for start in range(0, total, size)]


# ---- re3
#
# Rewards for states that are far from others: RE3 (Seo et al. 2021, "Random Encoders").

_MEMORY_ROWS: Final = 1024
_BLOCK_ROWS: Final = 256
_RE3_STREAM: Final = 1_002
_SMALLEST_STD: Final = 1e-6


class RE3(WithSubExploration):
    """Adds β_t · log(1 + ‖y - y_kNN‖) to the rewards (ibid., equations 4 and 5).

    y = f(s) is a random encoder that is never trained, and y_kNN the k-th nearest neighbour among
    the sample and up to 1024 states before it (so that samples of a few steps have neighbours, too;
    with fewer than k of them, the farthest counts). The logarithms are divided by their running
    standard deviation (ibid., section 4). β_t is β, or β(1 - ρ)^t with t the training iterations
    completed. Happens in the main process; no callback is needed.
    """

    def __init__(
        self,
        action_space: spaces.Space[Any],
        *,
        embeds_dim: int = 128,
        encoder_net_config: Mapping[str, Any] | None = None,
        beta: float = 0.2,
        beta_schedule: str = "constant",
        rho: float = 0.1,
        k_nn: int = 50,
        random_timesteps: int = 10_000,
        **context: Any,
    ) -> None:
        """Plans the encoder; `prepare` makes it, in the main process only.

        Args:
            action_space: of actions as modules give them.
            embeds_dim: numbers of an embedding y.
            encoder_net_config: `fcnet_hiddens` and `fcnet_activation` of the encoder.
            beta: weight of the intrinsic reward.
            beta_schedule: "constant" or "linear_decay" (RLlib's name of β(1 - ρ)^t).
            rho: how fast β decays, in [0, 1].
            k_nn: which neighbour, ≥ 1.
            random_timesteps: the uniform phase of the default sub-exploration, env steps.
            context: `sub_exploration` and the context of `Exploration`.

        Raises:
            ConfigError: an argument is wrong.
        """
        super().__init__(action_space, **context)
        self.embeds_dim = checked_count(embeds_dim, name="embeds_dim", minimum=1)
        self.beta = checked_number(beta, name="beta")
        self.rho = checked_number(rho, name="rho", maximum=1.0)
        self.k_nn = checked_count(k_nn, name="k_nn", minimum=1)
        checked_count(random_timesteps, name="random_timesteps")
        if beta_schedule not in ("constant", "linear_decay"):
            raise ConfigError(
                f"`beta_schedule={beta_schedule!r}`: give 'constant' or 'linear_decay'."
            )
        self.beta_schedule = beta_schedule
        self._layers = encoder_layers(
            encoder_net_config, name="encoder_net_config", num_outputs=self.embeds_dim
        )
        self._encoder: FeatureNetworks | None = None
        self._memory: Array = np.empty((0, self.embeds_dim), np.float32)
        self._moments = (0, 0.0, 0.0)  # count, mean, sum of squared deviations

    def prepare(self, *, obs_size: int, root_seed: int) -> None:
        """Draws the encoder from the root seed."""
        rng = position_rng(root_seed, Role.EXPLORATION, _RE3_STREAM)
        self._encoder = FeatureNetworks({"encoder": (obs_size, self._layers)}, rng)

    def beta_at(self, iteration: int) -> float:
        """β_t after so many training iterations."""
        if self.beta_schedule == "constant":
            return self.beta
        return float(self.beta * (1.0 - self.rho) ** iteration)

    def observe_sample(self, sample: ExploredSample) -> Sequence[Array]:
        """Adds the intrinsic rewards."""
        chunks = sample.chunks
        embedded = self.embed(np.concatenate([chunk.obs[:-1] for chunk in chunks]))
        known = np.concatenate([self._memory, embedded])
        entropies = np.log1p(neighbour_distances(embedded, known, k=self.k_nn))
        self._memory = known[-_MEMORY_ROWS:].copy()
        self._moments = _merged_moments(self._moments, entropies)
        count, _, squares = self._moments
        std = float(np.sqrt(squares / max(1, count)))
        bonus = self.beta_at(sample.iteration) * entropies / (std if std > _SMALLEST_STD else 1.0)
        lengths = [len(chunk.rewards) for chunk in chunks]
        parts = starmap(slice, pairwise(accumulate(lengths, initial=0)))
        return [chunk.rewards + bonus[part] for chunk, part in zip(chunks, parts, strict=True)]

    def embed(self, obs: Array) -> Array:
        """The embeddings of encoded observations, float32 [B, D] to [B, `embeds_dim`]."""
        if self._encoder is None:
            raise ConfigError("RE3 encodes in the main process only, after `prepare`.")
        embedded: Array = self._encoder.networks["encoder"].forward(as_columns(obs))[:-1].T.copy()
        return embedded

    def get_state(self) -> State:
        """Encoder, remembered embeddings and moments, and the sub-exploration's state."""
        state = super().get_state()
        if self._encoder is not None:
            state["encoder"] = self._encoder.parameters.get_state()
            state["memory"] = self._memory.copy()
            state["moments"] = list(self._moments)
        return state

    def check_state(self, state: State) -> None:
        shapes: dict[str, Check] = {"sub_exploration": of_type(dict)}
        if self._encoder is not None:
            shapes["encoder"] = like(self._encoder.parameters.get_state())
            shapes["memory"] = array(dtype=np.float32, shape=(None, self.embeds_dim))  # it grows
            shapes["moments"] = list_of(ANY_NUMBER, length=3)
        check_shape(state, fields(shapes))
        super().check_state(state)

    def set_state(self, state: State) -> None:
        super().set_state(state)
        if self._encoder is not None and "encoder" in state:
            self._encoder.parameters.set_state(state["encoder"])
            self._memory = np.array(state["memory"], np.float32).reshape(-1, self.embeds_dim)
            count, mean, squares = state["moments"]
            self._moments = (int(count), float(mean), float(squares))


def neighbour_distances(rows: Array, known: Array, *, k: int) -> Array:
    """The distance of each row to its k-th nearest other row; float64 [B].

    Args:
        rows: [B, E], the last B of `known`.
        known: [N, E].
        k: ≥ 1; with fewer others the farthest counts, and without any the distance is 0.
    """
    points = known.astype(np.float64)
    norms = np.add.reduce(points * points, axis=1)
    # Each row is its own nearest neighbour, at place 0.
    place = min(k, len(points) - 1)
    first = len(known) - len(rows)
    distances = np.empty(len(rows))
    for start in range(0, len(rows), _BLOCK_ROWS):
        block = points[first + start : first + min(start + _BLOCK_ROWS, len(rows))]
        squares = norms[first + start : first + start + len(block), None] + norms[None, :]
        squares -= 2.0 * (block @ points.T)
        own = np.arange(len(block))
        squares[own, first + start + own] = 0.0
        kth = np.partition(np.maximum(squares, 0.0), place, axis=1)[:, place]
        distances[start : start + len(block)] = np.sqrt(kth)
    return distances


def _merged_moments(moments: tuple[int, float, float], values: Array) -> tuple[int, float, float]:
    """Count, mean and sum of squared deviations with further values (Chan et al. 1983)."""
    count, mean, squares = moments
    more = len(values)
    shift = float(values.mean()) - mean
    total = count + more
    deviations = values - values.mean()
    squares += float(np.add.reduce(deviations * deviations)) + shift * shift * count * more / total
    return total, mean + shift * more / total, squares
