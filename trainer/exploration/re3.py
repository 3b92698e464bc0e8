"""Rewards for states that are far from others: RE3 (Seo et al. 2021, "Random Encoders")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise, starmap
from typing import Any, Final

import numpy as np
from gymnasium import spaces

from checkpoints import check_shape, like
from checkpoints.arguments import checked_methods
from checkpoints.state_shapes import ShapeCheck, anything, array, fields, list_of, number
from trainer.errors import ConfigError
from trainer.exploration.explored_sample import ExploredSample
from trainer.exploration.feature_network import FeatureNetworks, as_columns, encoder_layers
from trainer.exploration.settings import checked_count, checked_number
from trainer.exploration.sub_exploration import WithSubExploration
from trainer.seeding import Role, position_rng
from trainer.types import Array, State

_MEMORY_ROWS: Final = 1024
_BLOCK_ROWS: Final = 256
_STREAM: Final = 1_002
_SMALLEST_STD: Final = 1e-6


@checked_methods(but=("__init__", "get_exploration_action"))
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
        rng = position_rng(root_seed, Role.EXPLORATION, _STREAM)
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
        """See `Exploration.check_state`."""
        shapes: dict[str, ShapeCheck] = {"sub_exploration": anything}
        if self._encoder is not None:
            shapes["encoder"] = like(self._encoder.parameters.get_state())
            shapes["memory"] = array(dtype=np.float32, shape=(None, self.embeds_dim))  # it grows
            shapes["moments"] = list_of(number, length=3)
        check_shape(state, fields(shapes))
        super().check_state(state)

    def set_state(self, state: State) -> None:
        """See `Exploration.set_state`."""
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
