"""A check for modules written by users: everything the library relies on, in one call.

    check_module(MyModule, observation_space=env.observation_space, action_space=env.action_space)

It takes a small network: gradients are compared number by number, with two forward passes each.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final

import gymnasium as gym
import numpy as np

from trainer.connectors import ObservationEncoder
from trainer.episodes.columns import ACTION_DIST_INPUTS, OBS, VF_PREDS
from trainer.modules import RLModule, RLModuleSpec
from trainer.testing.gradients import gradient_check
from trainer.types import Array

_NUM_ROWS: Final = 11
_LARGEST_NUMBER: Final = 3.0


def check_module(
    module_class: type[RLModule],
    *,
    observation_space: gym.Space[Any],
    action_space: gym.Space[Any],
    model_config: Mapping[str, Any] | None = None,
    seed: int = 0,
    relative_tolerance: float = 1e-5,
) -> RLModule:
    """Builds a module and checks shapes, row-exactness, gradients and state.

    Observations are drawn from the space; unbounded ones within ±3, bytes as they are. The gradient
    is checked at the first weights plus a little noise, so that no part of the network is dead. If
    the check meets a kink (relu) within its step, try another seed.

    Args:
        module_class: what to check.
        observation_space: of an env.
        action_space: of an env.
        model_config: its settings; choose few units, for speed.
        seed: of observations and weights.
        relative_tolerance: largest error of a derivative.

    Returns:
        the module in float32, as it was built.

    Raises:
        AssertionError: something does not hold; says what, and what to look at.
    """
    spec = RLModuleSpec(
        module_class=module_class,
        observation_space=observation_space,
        action_space=action_space,
        model_config=dict(model_config or {}),
    )
    obs = encoded_samples(observation_space, seed=seed)
    module = spec.build(np.random.default_rng(seed))
    _check_acting(module, obs)
    _check_training(module, obs)
    _check_state(module, obs)
    exact = spec.build(np.random.default_rng(seed), dtype=np.float64)
    _check_gradients(exact, obs.astype(np.float64), seed=seed, tolerance=relative_tolerance)
    return module


def encoded_samples(space: gym.Space[Any], *, seed: int) -> Array:
    """Some observations of a space as networks get them, float32 [B, D]."""
    space.seed(seed)
    encoder = ObservationEncoder(space)
    rows: Array = encoder.encode([space.sample() for _ in range(_NUM_ROWS)]).copy()
    seen = rows[:, : encoder.size - encoder.mask_size]
    if not (np.abs(seen) <= 255.0).all():
        np.clip(seen, -_LARGEST_NUMBER, _LARGEST_NUMBER, out=seen)
    return rows


def _check_acting(module: RLModule, obs: Array) -> None:
    name, width = type(module).__name__, module.action_distribution.num_inputs
    together = module.forward_acting(obs)
    _expect(
        together.shape == (len(obs), width),
        f"{name}.forward_acting gave the shape {together.shape} for {len(obs)} observations; "
        f"expected {(len(obs), width)}: `action_distribution.num_inputs` numbers per row.",
    )
    _expect(
        together.dtype == np.float32,
        f"{name}.forward_acting gave {together.dtype}; expected float32. Keep constants in the "
        "dtype of the parameters (`self.parameters.dtype`).",
    )
    before = together.copy()
    module.forward_acting(obs[::-1].copy())
    _expect(
        together.tobytes() == before.tobytes(),
        f"{name}.forward_acting overwrote what it had returned before. Return a new array.",
    )
    for rows in [slice(row, row + 1) for row in range(len(obs))] + [slice(2, 7)]:
        _expect(
            module.forward_acting(obs[rows]).tobytes() == together[rows].tobytes(),
            f"{name}.forward_acting gives the rows {rows.start} to {rows.stop - 1} other bits when "
            "they stand alone, so runs could not be repeated exactly. Multiply with "
            "`trainer.nn.matmul_rows` instead of `@`, and compute nothing across rows.",
        )


def _check_training(module: RLModule, obs: Array) -> None:
    name, width = type(module).__name__, module.action_distribution.num_inputs
    for count in (len(obs), 3, len(obs)):
        outputs = module.forward_train({OBS: obs[:count]})
        inputs = outputs[ACTION_DIST_INPUTS]
        _expect(
            inputs.shape[0] == count and inputs.shape[1] % width == 0,
            f"{name}.forward_train gave {ACTION_DIST_INPUTS!r} of the shape {inputs.shape}; "
            f"expected {(count, width)}.",
        )
        if inputs.shape == (count, width):
            # Without dropout and other things that belong to learning alone.
            inputs = module.target_output({OBS: obs[:count]}, ACTION_DIST_INPUTS)
            acting = module.forward_acting(obs[:count])
            _expect(
                np.allclose(inputs, acting, rtol=1e-3, atol=1e-4),
                f"{name}.forward_train and forward_acting disagree on {ACTION_DIST_INPUTS!r} by "
                f"{np.abs(inputs - acting).max():.3g}. Both must compute the same.",
            )
        if VF_PREDS not in outputs:
            continue
        values = outputs[VF_PREDS]
        _expect(
            values.shape == (count,),
            f"{name}.forward_train gave {VF_PREDS!r} of the shape {values.shape}; expected "
            f"{(count,)}: one number per row.",
        )


def _check_state(module: RLModule, obs: Array) -> None:
    name, expected = type(module).__name__, module.forward_acting(obs).tobytes()
    spec = RLModuleSpec(
        type(module),
        module.observation_space,
        module.action_space,
        module.model_config,
        inference_only=True,
    )
    actor = spec.build()
    actor.set_state(module.get_state(inference_only=True))
    # `deepcopy` builds a module as pickle does, from its arguments and its state.
    for what, other in {"a copy": copy.deepcopy(module), "its acting part": actor}.items():
        _expect(
            other.forward_acting(obs).tobytes() == expected,
            f"{name}: {what} acts differently. All that a module learns must be in "
            "`self.parameters`, all that `forward_acting` needs must be made in `setup`, and the "
            'names of tensors that acting needs must not start with "vf/".',
        )


def _check_gradients(module: RLModule, obs: Array, *, seed: int, tolerance: float) -> None:
    rng = np.random.default_rng(seed)
    parameters, gradients = module.parameters, module.gradients
    start = parameters.flat + 0.05 * rng.standard_normal(parameters.num_parameters)
    outputs = module.forward_train({OBS: obs})
    weights = {key: rng.standard_normal(value.shape) for key, value in outputs.items()}
    invalid = np.abs(outputs[ACTION_DIST_INPUTS]) > 1e20  # masked: huge and constant
    weights[ACTION_DIST_INPUTS][invalid] = 0.0

    def loss(flat: Array) -> float:
        parameters.flat[:] = flat
        outputs = module.forward_train({OBS: obs})
        return float(sum((outputs[key] * weights[key]).sum() for key in weights))

    def gradient() -> Array:
        loss(start)
        module.backward(
            d_action_dist_inputs=weights[ACTION_DIST_INPUTS],
            d_vf_preds=weights.get(VF_PREDS, np.zeros(len(obs))),
        )
        flat: Array = gradients.flat.copy()
        return flat

    gradients.flat[:] = 1.0
    first = gradient()
    _expect(
        gradient().tobytes() == first.tobytes(),
        f"{type(module).__name__}.backward gave other gradients the second time: it must overwrite "
        "`self.gradients` (write `[:] =`, not `+=`), all of them.",
    )
    gradient_check(loss, first, start, relative_tolerance=tolerance)


def _expect(holds: bool, message: str) -> None:
    if not holds:
        raise AssertionError(message)
