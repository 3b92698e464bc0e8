"""Checks of what users write: gradients, modules, states of envs.

A check for modules written by users: everything the library relies on, in one call.
    check_module(MyModule, observation_space=env.observation_space, action_space=env.action_space)

It takes a small network: gradients are compared number by number, with two forward passes each.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import gymnasium as gym
import numpy as np

from trainer.connectors import ObservationEncoder
from trainer.envs import EnvFactory, EnvState, make_env_factory, why_no_env_state
from trainer.episodes import nested
from trainer.episodes.episode_columns import (
    ACTION_DIST_INPUTS,
    OBS,
    SEQ_LENS,
    STATE_IN,
    STATE_OUT,
    VF_PREDS,
)
from trainer.episodes.nested import copied
from trainer.modules import RLModule, RLModuleSpec
from trainer.modules.memory import state_form
from trainer.name_resolution import PROGRAM
from trainer.types import Array
from trainer_toolkit.trees import same

# ---- gradients
#
# A check for gradients written by hand: compare them with central differences. Use it for every
# `backward` of your own modules, in float64, where differences are exact to some ten digits:
#
#     def loss(flat):
#         module.parameters.flat[:] = flat
#         return float((module.forward_train(batch)["vf_preds"] * weights).sum())
#
#     loss(x)
#     module.backward(d_action_dist_inputs=zeros, d_vf_preds=weights)
#     gradient_check(loss, module.gradients.flat, x)


def central_differences(function: Callable[[Array], float], x: Array, *, step: float) -> Array:
    """The derivatives (f(x + h) - f(x - h)) / 2h for every number of x.

    Args:
        function: takes an array of x's shape.
        x: float64, any shape.
        step: h, relative to max(1, |number|).
    """
    derivatives = np.empty_like(x)
    for index in np.ndindex(x.shape):
        distance = step * max(1.0, abs(float(x[index])))
        higher, lower = x.copy(), x.copy()
        higher[index] += distance
        lower[index] -= distance
        derivatives[index] = (function(higher) - function(lower)) / (2.0 * distance)
    return derivatives


def gradient_check(
    function: Callable[[Array], float],
    gradient: Array,
    x: Array,
    *,
    relative_tolerance: float = 1e-6,
    floor: float = 1e-3,
    step: float = 1e-5,
) -> float:
    """Compares a gradient with central differences, number by number.

    The error of a number is relative to its own size, but at least to `floor` times the largest
    derivative: tiny derivatives drown in rounding, yet an absolute tolerance would pass any
    gradient that is small as a whole.

    Args:
        function: the scalar function.
        gradient: what is claimed to be its gradient at x, same shape.
        x: the point, float64. There must be no kink within a step of it.
        relative_tolerance: largest error allowed.
        floor: smallest size that errors are relative to, as a fraction of the largest derivative.
        step: see `central_differences`.

    Returns:
        The largest relative error.

    Raises:
        TypeError: x or the gradient is not float64.
        AssertionError: an error is too large, or all derivatives are 0, so that nothing was
            checked.
    """
    if x.dtype != np.float64 or gradient.dtype != np.float64:
        raise TypeError(
            f"A gradient check needs float64; x is {x.dtype}, the gradient {gradient.dtype}. "
            "Differences in fewer digits say nothing. Build the module with `dtype=np.float64`."
        )
    claimed = gradient.copy()
    expected = central_differences(function, x, step=step)
    largest = float(np.abs(expected).max())
    if largest == 0.0:
        raise AssertionError(
            "All central differences are 0: the function does not depend on x here, so nothing "
            "was checked. Choose another point."
        )
    sizes = np.maximum(np.maximum(np.abs(expected), np.abs(claimed)), floor * largest)
    errors = np.abs(claimed - expected) / sizes
    worst = np.unravel_index(int(np.argmax(np.nan_to_num(errors, nan=np.inf))), errors.shape)
    if not errors[worst] <= relative_tolerance:
        where = tuple(int(i) for i in worst)
        raise AssertionError(
            f"The gradient at index {where} is {claimed[worst]:.10g}, but central differences give "
            f"{expected[worst]:.10g}: relative error {errors[worst]:.2g} > "
            f"{relative_tolerance:.2g}. {int((~(errors <= relative_tolerance)).sum())} of "
            f"{errors.size} numbers are wrong."
        )
    return float(errors[worst])


# ---- modules

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
        the module in float32, as it was built; `acts_row_by_row` of one in Torch says how it acts.

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
    if module.gives_values:
        _check_values_while_acting(module, obs)
    if module.is_stateful():
        _check_memory(module, obs, seed=seed)
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


def _check_values_while_acting(module: RLModule, obs: Array) -> None:
    """Acting values a row as learning does, with the same bits in any batch."""
    name = type(module).__name__
    for forward in (module.forward_exploration, module.forward_inference):
        values, wanted = forward({OBS: obs})[VF_PREDS], module.compute_values({OBS: obs})
        alone = forward({OBS: obs[:1]})[VF_PREDS]
        _expect(
            alone.tobytes() == values[:1].tobytes(),
            f"{name}.{forward.__name__} values a row with other bits when it stands alone, so runs "
            "could not be repeated exactly. Compute nothing across rows.",
        )
        _expect(
            np.allclose(values, wanted, rtol=1e-3, atol=1e-4),
            f"{name}.{forward.__name__} gives other {VF_PREDS!r} than `compute_values`, by "
            f"{np.abs(values - wanted).max():.3g}. What acting gives is learnt from: return the "
            "same, or none.",
        )


def _batch_of(module: RLModule, obs: Array, *, seed: int) -> dict[str, Any]:
    """A batch to learn from: with memory, sequences of several lengths and states before them."""
    if not module.is_stateful():
        return {OBS: obs}
    rng = np.random.default_rng(seed)
    lengths = np.array([3, 1, len(obs) - 4])
    drawn = nested.map_leaves(
        lambda leaf: leaf + 0.3 * rng.standard_normal(leaf.shape).astype(leaf.dtype),
        state_form(module).repeated(len(lengths)),
    )
    return {OBS: obs, SEQ_LENS: lengths, STATE_IN: drawn}


def _check_memory(module: RLModule, obs: Array, *, seed: int) -> None:
    """Steps hand on what sequences do, and give every row the same bits in any batch."""
    name, form = type(module).__name__, state_form(module)
    batch = _batch_of(module, obs, seed=seed)
    expected = module.target_output(batch, ACTION_DIST_INPUTS)
    lengths, starts = batch[SEQ_LENS], np.cumsum(batch[SEQ_LENS]) - batch[SEQ_LENS]
    states = form.rows(batch[STATE_IN], len(lengths))
    for step in range(int(lengths.max())):
        active = [number for number, length in enumerate(lengths) if step < length]
        rows = obs[[starts[number] + step for number in active]]
        before = form.together([states[number] for number in active])
        outputs = module.forward_inference({OBS: rows, STATE_IN: before})
        after = form.rows_of(outputs, len(active))
        alone = module.forward_inference(
            {OBS: rows[:1], STATE_IN: nested.take(before, slice(0, 1))}
        )
        _expect(
            alone[ACTION_DIST_INPUTS].tobytes() == outputs[ACTION_DIST_INPUTS][:1].tobytes()
            and nested.equal(form.rows_of(alone, 1)[0], after[0]),
            f"{name} gives a row other bits when it stands alone, in what it returns or in "
            f"{STATE_OUT!r}, so runs could not be repeated exactly. Multiply with "
            "`trainer.nn.matmul_rows` instead of `@`, and compute nothing across rows.",
        )
        for place, number in enumerate(active):
            states[number] = after[place]
            found = outputs[ACTION_DIST_INPUTS][place]
            wanted = expected[starts[number] + step]
            _expect(
                np.allclose(found, wanted, rtol=1e-3, atol=1e-4),
                f"{name}: step {step} of a sequence gives {found} while acting and {wanted} while "
                f"learning. Both must hand the same state on, from {STATE_IN!r} to "
                f"{STATE_OUT!r}.",
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
    batch = _batch_of(module, obs, seed=seed)
    outputs = module.forward_train(batch)
    weights = {key: rng.standard_normal(value.shape) for key, value in outputs.items()}
    invalid = np.abs(outputs[ACTION_DIST_INPUTS]) > 1e20  # masked: huge and constant
    weights[ACTION_DIST_INPUTS][invalid] = 0.0
    if module.gives_loadings:  # features do not learn from the deviations that follow from them
        weights[ACTION_DIST_INPUTS][:, module.action_distribution.noise_width :] = 0.0

    def loss(flat: Array) -> float:
        parameters.flat[:] = flat
        outputs = module.forward_train(batch)
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


# ---- env states
#
# A check for envs with `get_state` and `set_state`: whether runs can go on from their states.
#     check_env_state(MyEnv, env_config={"size": 4})
#
# The env is made as a run makes it, wrappers included.

_PARTS: Final = ("observation", "reward", "terminated", "truncated")
_Answer = tuple[Any, ...]


def check_env_state(
    env: Any,
    *,
    env_config: Mapping[str, Any] | None = None,
    seed: int = 0,
    num_steps: int = 50,
    num_states: int = 5,
) -> None:
    """Plays, takes states on the way, and goes on from each of them in another env.

    Both must answer the same actions with the same observations, rewards and ends, bit for bit,
    into the episodes that follow. Actions are drawn from the action space; infos are not compared.

    Args:
        env: whatever `environment(env=…)` takes.
        env_config: its settings.
        seed: of resets and actions.
        num_steps: how far to go on from a state; longer than an episode is best.
        num_states: how many states to take, `num_steps // 3` steps apart; the first one right after
            a reset.

    Raises:
        AssertionError: something does not hold; says what, and what to look at.
    """
    factory = make_env_factory(env, env_config or {}, source=PROGRAM)
    players = [_Player(factory, seed=seed) for _ in range(3)]
    try:
        original, fresh, used = players
        used.play(num_steps // 2 + 1)
        for number in range(num_states):
            if number:
                original.play(num_steps // 3)
            place, state = original.place(), original.state()
            _expect_state(
                original.state() == state,
                f"Two calls of get_state() after each other gave different states ({factory.name}, "
                f"{place}). It must change nothing, and tell nothing that changes by itself.",
            )
            for other, kind in ((fresh, "a new env"), (used, "an env that stood elsewhere")):
                other.go_to(original, state, kind=kind)
            expected = original.play(num_steps)
            for other, kind in ((fresh, "a new env"), (used, "an env that stood elsewhere")):
                _compare(expected, other.play(num_steps), where=f"{factory.name}, {place}, {kind}")
            original.go_to(fresh, fresh.state(), kind="the same env")
    finally:
        for player in players:
            player.env.close()


class _Player:
    """One env that is played with random actions; they follow from the number of the step."""

    def __init__(self, factory: EnvFactory, *, seed: int) -> None:
        self.name = factory.name
        self.env, _ = factory.make(
            worker_index=0, vector_index=0, num_workers=0, recreated_worker=False
        )
        found = EnvState.of(self.env)
        if found is None:
            why = why_no_env_state(self.env) or "no layer of it has get_state and set_state"
            raise AssertionError(f"The state of the env {self.name!r} would not be used: {why}.")
        self._state = found
        self._seed = seed
        self._num_steps = self._num_episodes = self._step = 0
        self._reset()

    def _reset(self) -> Any:
        observation, _ = self.env.reset(seed=self._seed + self._num_episodes)
        self._num_episodes += 1
        self._step = 0
        return copied(observation)

    def place(self) -> str:
        """Where it stands, for messages."""
        return f"episode {self._num_episodes - 1}, step {self._step}"

    def state(self) -> bytes:
        """The state of the env now."""
        state = self._state.take()
        if state is None:
            raise AssertionError(f"{self.name}, {self.place()}: {self._state.trouble}")
        return state

    def go_to(self, other: _Player, state: bytes, *, kind: str) -> None:
        """Goes to where another one stands."""
        self._num_steps, self._num_episodes = other._num_steps, other._num_episodes
        self._step = other._step
        self.env.reset(seed=self._seed + self._num_episodes - 1)
        _expect_state(
            self._state.give_back(state),
            f"A state of {self.name} ({other.place()}) was given to {kind}, in vain: "
            f"{self._state.trouble}. After reset() and set_state(state), get_state() must give "
            "that state.",
        )

    def play(self, num_steps: int) -> list[_Answer]:
        """What the env answers to its next actions; it is reset where an episode ends."""
        answers: list[_Answer] = []
        for _ in range(num_steps):
            self.env.action_space.seed(self._seed + self._num_steps)
            self._num_steps += 1
            self._step += 1
            action = self.env.action_space.sample()
            observation, reward, terminated, truncated, _ = self.env.step(action)
            answers.append((copied(observation), reward, terminated, truncated))
            if terminated or truncated:
                answers.append((self._reset(),))
        return answers


def _compare(expected: Sequence[_Answer], found: Sequence[_Answer], *, where: str) -> None:
    for step, (right, left) in enumerate(zip(expected, found, strict=False)):
        for part, a, b in zip(_PARTS, right, left, strict=False):
            _expect_state(
                same(a, b),
                f"After set_state(), the {part} of answer {step} is {b!r:.200}, and without it "
                f"{a!r:.200} ({where}). Something that the env remembers is missing in "
                "get_state(), or is not put back by set_state(): counters, generators, buffers, "
                "and what is drawn in reset().",
            )


def _expect_state(is_right: bool, message: str) -> None:
    if not is_right:
        raise AssertionError(message)
