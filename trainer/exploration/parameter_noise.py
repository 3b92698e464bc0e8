"""Noise on the weights instead of the actions (Plappert et al. 2018, "Parameter Space Noise").

A run of consistent behaviour per episode, where noise on actions trembles in every step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np
from gymnasium import spaces

from checkpoints import check_shape
from checkpoints.arguments import checked_methods
from checkpoints.state_shapes import anything, fields, number
from trainer.errors import ConfigError
from trainer.exploration.epsilon_greedy import EpsilonGreedy
from trainer.exploration.explored_sample import ExploredSample
from trainer.exploration.gaussian_noise import GaussianNoise
from trainer.exploration.ornstein_uhlenbeck_noise import OrnsteinUhlenbeckNoise
from trainer.exploration.settings import checked_count, checked_number
from trainer.exploration.sub_exploration import WithSubExploration
from trainer.types import Array, State

_ADAPTATION: Final = 1.01
_SIGMA_OF_OTHERS: Final = 0.2
_SMALLEST: Final = 1e-10


@checked_methods(but=("__init__", "get_exploration_action"))
class ParameterNoise(WithSubExploration):
    """Acts with weights to which normal noise was added, once per episode.

    θ̃ = θ + stddev · ε, with ε ~ N(0, 1) a function of the episode's position. The standard
    deviation adapts (ibid., section 3 and appendix C): after each chunk that was sampled, in order
    of slots and time, it is multiplied by 1.01 if perturbed and clean policy were closer than δ,
    else divided by it. For counted actions the distance is the mean KL(clean ‖ perturbed) of the
    softmaxes, and δ = -log(1 - ε + ε/n), with the ε of the sub-exploration. For continuous actions
    it is the root mean square of the difference of the most likely actions, and δ = σ · scale of
    the sub-exploration's noise. There are no layer-norm parameters here that would be left out.

    The standard deviation lives in the main process and is sent to the runners with the weights.

    Attributes:
        current_stddev: the standard deviation now.
    """

    possible_spaces: ClassVar[tuple[type[spaces.Space[Any]], ...]] = (
        spaces.Discrete,
        spaces.MultiDiscrete,
        spaces.Box,
    )
    perturbs_weights: ClassVar[bool] = True

    def __init__(
        self,
        action_space: spaces.Space[Any],
        *,
        initial_stddev: float = 1.0,
        random_timesteps: int = 10_000,
        **context: Any,
    ) -> None:
        """Starts with the initial standard deviation.

        Args:
            action_space: of actions as modules give them.
            initial_stddev: the first standard deviation, > 0.
            random_timesteps: the uniform phase of the default sub-exploration, env steps.
            context: `sub_exploration` and the context of `Exploration`.

        Raises:
            ConfigError: an argument is wrong, or the sub-exploration gives no δ.
            UnsupportedSpaceError: there is no strategy for the action space.
        """
        super().__init__(action_space, **context)
        stddev = checked_number(initial_stddev, name="initial_stddev", above=True)
        self.current_stddev = stddev
        self.random_timesteps = checked_count(random_timesteps, name="random_timesteps")
        wanted = GaussianNoise if isinstance(action_space, spaces.Box) else EpsilonGreedy
        if not isinstance(self.sub_exploration, wanted):
            raise ConfigError(
                "ParameterNoise adapts its standard deviation to the noise of its "
                f"`sub_exploration`, which {type(self.sub_exploration).__name__} does not say. "
                "Leave it out, or give EpsilonGreedy for actions that are counted, GaussianNoise "
                "or OrnsteinUhlenbeckNoise for continuous ones, or a subclass of these."
            )

    def perturbation(
        self, shapes: Mapping[str, tuple[int, ...]], rng: np.random.Generator
    ) -> Array:
        """Standard normal numbers, float32 [number of parameters]."""
        return rng.standard_normal(sum(map(math.prod, shapes.values())), dtype=np.float32)

    def observe_sample(self, sample: ExploredSample) -> Sequence[Array] | None:
        """Adapts the standard deviation; the rewards stay."""
        delta = self._threshold(sample.timestep)
        for chunk in sample.chunks:
            if chunk.inputs is None or len(chunk.inputs) == 0:
                continue
            clean = sample.clean_inputs(chunk.obs[:-1])
            if self.distance(clean, chunk.inputs) <= delta:
                self.current_stddev *= _ADAPTATION
            else:
                self.current_stddev /= _ADAPTATION
        return None

    def distance(self, clean: Array, noisy: Array) -> float:
        """How far two policies are apart, ≥ 0.

        Args:
            clean: distribution inputs of the module, [T, K].
            noisy: those of the perturbed module, [T, K].
        """
        clean, noisy = clean.astype(np.float64), noisy.astype(np.float64)
        if isinstance(self.action_space, spaces.Box):
            best = self.distribution.deterministic
            difference = best(clean) - best(noisy)
            return float(np.sqrt(np.mean(difference * difference)))
        return max(0.0, float(np.mean(self.distribution.kl(clean, noisy))))

    def _threshold(self, timestep: int) -> float:
        """The δ of the class at a timestep."""
        sub = self.sub_exploration
        if isinstance(sub, EpsilonGreedy):
            space = self.action_space
            sizes = [space.n] if isinstance(space, spaces.Discrete) else space.nvec  # type: ignore[attr-defined]
            epsilon = sub.epsilon(timestep)
            share = 1.0 - epsilon + epsilon / math.prod(int(size) for size in sizes)
            return -math.log(max(share, _SMALLEST))
        if isinstance(sub, OrnsteinUhlenbeckNoise):
            return sub.ou_sigma * sub.scale(timestep)
        return _SIGMA_OF_OTHERS * sub.scale(timestep) if isinstance(sub, GaussianNoise) else 0.0

    def runner_state(self) -> State:
        """The standard deviation."""
        return {"cur_stddev": self.current_stddev}

    def get_state(self) -> State:
        """The standard deviation, and the sub-exploration's state."""
        return {"cur_stddev": self.current_stddev, **super().get_state()}

    def check_state(self, state: State) -> None:
        """See `Exploration.check_state`."""
        check_shape(state, fields({"cur_stddev": number, "sub_exploration": anything}))
        super().check_state(state)

    def set_state(self, state: State) -> None:
        """See `Exploration.set_state`."""
        super().set_state(state)
        if "cur_stddev" in state:
            self.current_stddev = float(state["cur_stddev"])
