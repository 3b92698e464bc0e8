"""Networks with memory: their states, sequences of rows, and the base class for those in NumPy.

    acting      rows [B, D] with `state_in` [B, ...] to `action_dist_inputs` and `state_out`
    learning    rows of whole sequences one after another, [R, D], with `seq_lens` [N] and the state
                `state_in` [N, ...] before the first row of each

Everything outside of modules sees rows. Losses, statistics and metrics are computed from rows, so
nothing there can count padding: sequences are padded to [N, L] on their way into a network, and
what it gives is taken out of the padding again.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np

from trainer.episodes import nested
from trainer.episodes.episode_columns import (
    ACTION_DIST_INPUTS,
    LOSS_MASK,
    OBS,
    SEQ_LENS,
    STATE_IN,
    STATE_OUT,
    VF_PREDS,
)
from trainer.errors import ConfigError, ModuleError
from trainer.modules.rl_module import RLModule, check_gradient
from trainer.modules.spaces import masked_gradient, masked_outputs
from trainer.types import Array
from trainer_toolkit.checks import integer

MAX_SEQ_LEN: Final = 20
"""Steps of a sequence where `model_config` does not say `max_seq_len`: RLlib's number."""


def max_seq_len_of(model_config: Mapping[str, Any]) -> int:
    """The most steps of one sequence that a network learns from; a ConfigError if it is none."""
    given = model_config.get("max_seq_len", MAX_SEQ_LEN)
    if not integer(1).accepts(given):
        raise ConfigError(
            f"`model_config={{'max_seq_len': {given!r}}}`: gradients flow back through so many "
            "steps of an episode at most; expected an integer ≥ 1. Give one, or leave it out: "
            f"{MAX_SEQ_LEN}."
        )
    return int(given)


# ---- states


class StateForm:
    """What the state of one network looks like: a dict of arrays, dicts and tuples of such.

    Attributes:
        initial: the state before the first step of an episode; arrays of the module's dtype.
    """

    def __init__(self, module: RLModule, dtype: type[np.floating[Any]]) -> None:
        """Reads `get_initial_state()`.

        Args:
            module: whose.
            dtype: number type of the module.

        Raises:
            ModuleError: it is no dict of arrays of finite numbers.
        """
        self._name = type(module).__name__
        self._dtype = dtype
        given = module.get_initial_state()
        if not isinstance(given, dict) or not given:
            raise ModuleError(
                f"{self._name}.get_initial_state() returned {nested.describe(given)}; expected a "
                'dict of arrays without a batch dimension, such as {"h": np.zeros(64, '
                "np.float32)}. A network without memory leaves the method out."
            )
        self.initial: dict[str, Any] = nested.map_leaves(self._leaf, given)

    def _leaf(self, leaf: Any) -> Array:
        array = as_array(leaf)
        if array is None or array.dtype.kind not in "f" or not np.isfinite(array).all():
            raise ModuleError(
                f"{self._name}.get_initial_state() holds {nested.describe(leaf)}; expected arrays "
                "of finite floating-point numbers, in dicts and tuples or not. Keep counts and "
                "flags as such numbers, too."
            )
        return array.astype(self._dtype)

    def repeated(self, count: int) -> Any:
        """The initial state as a batch of `count` rows; new arrays."""
        return nested.map_leaves(lambda leaf: np.stack([leaf] * count), self.initial)

    def single(self, state: Any, *, where: str) -> Any:
        """One state without a batch dimension, as arrays of the module's dtype; see `checked`."""

        def as_batch(leaf: Any) -> Any:
            array = as_array(leaf)
            return leaf if array is None else array[None]

        return nested.take(self.checked(nested.map_leaves(as_batch, state), 1, where=where), 0)

    def filled(self, states: Sequence[Any]) -> list[Any]:
        """The states of several rows, with a copy of the initial one for None."""
        return [
            nested.map_leaves(np.array, self.initial) if state is None else state
            for state in states
        ]

    def together(self, states: Sequence[Any]) -> Any:
        """The states of several rows as one batch."""
        return nested.map_leaves(lambda *leaves: np.array(leaves), states[0], *states[1:])

    def rows(self, batch: Any, count: int) -> list[Any]:
        """The states of a batch one by one, in memory of their own."""
        return nested.unstack(nested.map_leaves(np.array, batch), count)

    def rows_of(self, outputs: Mapping[str, Any], count: int) -> list[Any]:
        """The states after a step of acting, one by one; see `rows`."""
        return self.rows(outputs[STATE_OUT], count)

    def given(self, batch: Mapping[str, Any], count: int) -> Any:
        """The `state_in` of a batch, `checked`; the initial state where it holds none."""
        if STATE_IN not in batch:
            return self.repeated(count)
        return self.checked(batch[STATE_IN], count, where=f"the batch for {self._name}")

    def returned(self, outputs: Any, count: int, *, where: str) -> Any:
        """The `state_out` of a forward pass for acting, checked: a batch of arrays.

        Raises:
            ModuleError: there is none, or it does not fit.
        """
        if not isinstance(outputs, Mapping) or STATE_OUT not in outputs:
            given = sorted(map(str, outputs)) if isinstance(outputs, Mapping) else type(outputs)
            raise ModuleError(
                f"{where} returned {given}, without {STATE_OUT!r}: the network has an initial "
                "state, and nothing would be remembered. Return the state after the step beside "
                f"{ACTION_DIST_INPUTS!r}, shaped as {self._shapes(count)}."
            )
        return self.checked(outputs[STATE_OUT], count, where=f"what {where} returned")

    def checked(self, state: Any, count: int, *, where: str) -> Any:
        """A batch of `count` states, as arrays of the module's dtype: itself, if it is that.

        Raises:
            ModuleError: its structure or a shape is another, or a leaf is no array of numbers.
        """
        if _is_usual(state, self.initial, count):
            return state
        try:
            return self._checked(state, self.initial, count, "")
        except _MisfitError as misfit:
            raise ModuleError(
                f"A state in {where} is {misfit}; get_initial_state() says {self._shapes(count)}. "
                "Keep the structure and the shapes of the initial state, with one row for each "
                "sequence in front."
            ) from None

    def _checked(self, state: Any, like: Any, count: int, path: str) -> Any:
        if isinstance(like, dict | tuple):
            fits = type(state) is type(like) and len(state) == len(like)
            keys = list(like) if isinstance(like, dict) else range(len(like))
            if not fits or (isinstance(like, dict) and set(state) != set(keys)):
                raise _MisfitError(f"{_shown(state)}{_at(path)}")
            parts = [self._checked(state[k], like[k], count, f"{path}[{k!r}]") for k in keys]
            return dict(zip(like, parts, strict=True)) if isinstance(like, dict) else tuple(parts)
        array = as_array(state)
        if array is None or array.dtype.kind not in "biuf":
            raise _MisfitError(f"a {type(state).__name__}, which is no array{_at(path)}")
        if array.shape != (count, *like.shape):
            raise _MisfitError(f"of the shape {list(array.shape)}{_at(path)}")
        return array if array.dtype == like.dtype else array.astype(like.dtype)

    def _shapes(self, count: int) -> str:
        return str(nested.map_leaves(lambda leaf: [count, *leaf.shape], self.initial))


def state_form(module: RLModule) -> StateForm:
    """What the state of a module with memory looks like; read once. Errors as of `StateForm`."""
    form: StateForm | None = module.__dict__.get("_state_form")
    if form is None:
        form = StateForm(module, module.parameters.dtype)
        module.__dict__["_state_form"] = form
    return form


def _is_usual(state: Any, like: Any, count: int) -> bool:
    """Whether a batch of states is dicts of arrays, as it should be: half the price of a check."""
    if type(like) is not dict:
        return (
            type(like) is type(state) is np.ndarray
            and state.dtype == like.dtype
            and state.shape == (count, *like.shape)
        )
    if type(state) is not dict or list(state) != list(like):
        return False
    return all(_is_usual(state[key], part, count) for key, part in like.items())


class _MisfitError(Exception):
    """Says what does not fit."""


def _shown(state: Any) -> str:
    if isinstance(state, dict):
        return f"a dict of {sorted(map(str, state))}"
    return f"a {type(state).__name__}"


def _at(path: str) -> str:
    return f" at {path}" if path else ""


def as_array(leaf: Any) -> Array | None:
    """A number, an array, or a tensor of Torch as an array; None if it is neither."""
    if isinstance(leaf, np.ndarray | np.number | int | float):
        return np.asarray(leaf)
    if hasattr(leaf, "detach"):
        array: Array = leaf.detach().cpu().numpy()
        return array
    return None


# ---- sequences


class Sequences:
    """How rows of whole sequences, one after another, stand in a padded batch [N, L].

    Attributes:
        lengths: rows of each sequence, ≥ 1, int64 [N].
        longest: L.
        mask: which places hold a row, bool [N, L].
        places: of the rows in the N · L places, int64 [R].
        is_full: all sequences are as long.
    """

    def __init__(self, lengths: Array) -> None:
        """Finds the places of the rows.

        Args:
            lengths: rows of each sequence, ≥ 1, int64 [N].
        """
        self.lengths = lengths
        self.longest = int(lengths.max())
        self.mask: Array = np.arange(self.longest) < lengths[:, None]
        self.is_full = bool(self.mask.all())
        self.places: Array = np.flatnonzero(self.mask)

    @classmethod
    def of(cls, batch: Mapping[str, Any], num_rows: int) -> Sequences:
        """Those of a batch; every row by itself if it has no `seq_lens`.

        Raises:
            ModuleError: the lengths do not add up to the rows.
        """
        lengths = batch.get(SEQ_LENS)
        if lengths is None:
            return cls(np.ones(num_rows, np.int64))
        lengths = np.asarray(lengths)
        if lengths.ndim != 1 or (lengths < 1).any() or lengths.sum() != num_rows:
            raise ModuleError(
                f"{SEQ_LENS!r} of a batch with {num_rows} rows is {lengths!r:.200}; expected the "
                "number of rows of each sequence, which add up to all rows. Cut sequences and rows "
                "at the same places."
            )
        return cls(lengths)

    def __len__(self) -> int:
        """N."""
        return len(self.lengths)

    @property
    def num_rows(self) -> int:
        """R, the rows of all sequences."""
        return len(self.places)

    def padded(self, rows: Array) -> Array:
        """Rows [R, ...] as [N, L, ...], with zeros where a sequence is shorter."""
        shape = (len(self), self.longest, *rows.shape[1:])
        if self.is_full:
            return rows.reshape(shape)
        column = np.zeros((len(self) * self.longest, *rows.shape[1:]), rows.dtype)
        column[self.places] = rows
        return column.reshape(shape)

    def flat(self, padded: Array) -> Array:
        """The rows [R, ...] of a padded batch [N, L, ...]."""
        column = padded.reshape(len(self) * self.longest, *padded.shape[2:])
        return column if self.is_full else column[self.places]


class PaddedColumns(Mapping[str, Any]):
    """The columns of a batch of rows as a network with memory reads them: padded when asked for.

    Columns with a row for each row are [N, L, ...]; `state_in` and `seq_lens` are as they were, and
    `loss_mask` [N, L] is added.
    """

    def __init__(self, batch: Mapping[str, Any], sequences: Sequences) -> None:
        """Pads nothing yet; the batch of rows has its `state_in`."""
        self._columns = {**batch, SEQ_LENS: sequences.lengths, LOSS_MASK: sequences.mask}
        self._sequences = sequences

    def __getitem__(self, name: str) -> Any:
        column = self._columns[name]
        if name in (STATE_IN, SEQ_LENS, LOSS_MASK):
            return column
        return nested.map_leaves(self._padded, column)

    def _padded(self, leaf: Any) -> Any:
        is_of_rows = isinstance(leaf, np.ndarray) and leaf.shape[:1] == (self._sequences.num_rows,)
        return self._sequences.padded(leaf) if is_of_rows else leaf

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


# ---- stateful module


class StatefulRLModule(RLModule):
    """A network with memory in NumPy: what it gives follows from an observation and its state.

    To write your own, implement `parameter_shapes`, `initialize`, and the four methods below; keep
    `__init__` as it is. N sequences of L steps are learnt from side by side; shorter ones are
    padded with zeros, and gradients of padding are 0. An example, which remembers a running mean:

        class RunningMean(StatefulRLModule):
            def get_initial_state(self):
                return {"mean": np.zeros(self.obs_size, np.float32)}

            def forward_step(self, batch):
                mean = 0.9 * batch["state_in"]["mean"] + 0.1 * batch["obs"]
                inputs = matmul_rows(mean, self.parameters.views["pi"])
                return {"action_dist_inputs": inputs, "state_out": {"mean": mean}}

            def forward_sequences(self, batch):
                mean, means = batch["state_in"]["mean"], []
                for step in range(batch["obs"].shape[1]):
                    mean = 0.9 * mean + 0.1 * batch["obs"][:, step]
                    means.append(mean)
                self._means, w = np.stack(means, axis=1), self.parameters.views
                return {"action_dist_inputs": self._means @ w["pi"], "vf_preds": ...}

            def backward_sequences(self, *, d_action_dist_inputs, d_vf_preds): ...

    `forward_step` must be row-exact, as `RLModule.forward_acting`. Masks of actions are no part of
    the observations that these methods get, and are applied to what they return.
    """

    applies_masks: ClassVar[bool] = True
    _passed: tuple[Sequences, Array | None, tuple[int, ...]] | None = None

    # ---- what users write

    @abstractmethod
    def get_initial_state(self) -> dict[str, Any]:
        """The state before the first step of an episode: arrays without a batch dimension."""

    @abstractmethod
    def forward_step(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """One step of acting, row-exact.

        Args:
            batch: {"obs": encoded observations [B, D], "state_in": [B, ...]}.

        Returns:
            {"action_dist_inputs": [B, K], "state_out": [B, ...]}, new arrays.
        """

    @abstractmethod
    def forward_sequences(self, batch: Mapping[str, Any]) -> Mapping[str, Array]:
        """The forward pass of learning; keeps what `backward_sequences` needs.

        Args:
            batch: {"obs": [N, L, D], "state_in": before each sequence, [N, ...], "seq_lens": [N],
                "loss_mask": bool [N, L]}, and the learner's other columns, [N, L, ...].

        Returns:
            {"action_dist_inputs": [N, L, K], "vf_preds": [N, L]}.
        """

    @abstractmethod
    def backward_sequences(self, *, d_action_dist_inputs: Array, d_vf_preds: Array) -> None:
        """Overwrites `self.gradients`; belongs to the last `forward_sequences`.

        Args:
            d_action_dist_inputs: derivative of the loss, [N, L, K]; 0 in padding.
            d_vf_preds: derivative of the loss, [N, L]; 0 in padding.
        """

    # ---- what the library calls

    def is_stateful(self) -> bool:
        """True: there is a state from step to step."""
        return True

    def forward_acting(self, obs: Array) -> Array:
        """The action distribution inputs of first steps of episodes; see `RLModule`."""
        inputs: Array = self._stepped({OBS: obs})[ACTION_DIST_INPUTS]
        return inputs

    def forward_inference(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Acts without exploration: {"obs", "state_in"} to {"action_dist_inputs", "state_out"}.

        Raises:
            ModuleError: observations or state do not fit, or what `forward_step` returned.
        """
        return self._stepped(batch)

    def forward_exploration(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        return self._stepped(batch)

    def _stepped(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        rows = self.checked_rows(batch)
        form = state_form(self)
        state = form.given(batch, len(rows))
        seen, mask = self._apart(rows)
        outputs = self.forward_step({**batch, OBS: seen, STATE_IN: state})
        where = f"{type(self).__name__}.forward_step"
        state_out = form.returned(outputs, len(rows), where=where)
        inputs = self._inputs(outputs, (len(rows),), where)
        if mask is not None:
            inputs = masked_outputs(inputs, mask)
        return {ACTION_DIST_INPUTS: inputs, STATE_OUT: state_out}

    def _apart(self, rows: Array) -> tuple[Array, Array | None]:
        """Observations without their masks, and the masks in force."""
        masks = self.action_masks
        if masks is None or rows.shape[1] == masks.start:
            return rows, None
        return rows[:, : masks.start], masks.effective(rows)

    def _inputs(self, outputs: Mapping[str, Any], shape: tuple[int, ...], where: str) -> Array:
        """The action distribution inputs of a forward pass, checked."""
        expected = (*shape, self.action_distribution.num_inputs)
        given = outputs.get(ACTION_DIST_INPUTS) if isinstance(outputs, Mapping) else None
        if not isinstance(given, np.ndarray) or given.shape != expected:
            raise ModuleError(
                f"{where} gave {nested.describe(given)} as {ACTION_DIST_INPUTS!r}; expected an "
                f"array of the shape {list(expected)}. Return it under that name."
            )
        return given

    def forward_train(self, batch: Mapping[str, Any]) -> dict[str, Array]:
        """Runs over the sequences of a batch of rows; see `RLModule.forward_train`.

        Args:
            batch: {"obs": [R, D], "seq_lens": [N], "state_in": [N, ...]}, and whatever else the
                learner has. Without lengths, every row is a sequence.

        Returns:
            {"action_dist_inputs": [R, K], "vf_preds": [R]}.
        """
        if self.inference_only:
            raise self.acting_only_error()
        rows = self.checked_rows(batch)
        sequences = Sequences.of(batch, len(rows))
        state = state_form(self).given(batch, len(sequences))
        seen, mask = self._apart(rows)
        columns = PaddedColumns({**batch, OBS: seen, STATE_IN: state}, sequences)
        outputs = self.forward_sequences(columns)
        where, shape = f"{type(self).__name__}.forward_sequences", sequences.mask.shape
        inputs = sequences.flat(self._inputs(outputs, shape, where))
        found = {ACTION_DIST_INPUTS: inputs if mask is None else masked_outputs(inputs, mask)}
        if VF_PREDS in outputs:
            values = outputs[VF_PREDS]
            if not isinstance(values, np.ndarray) or values.shape != shape:
                raise ModuleError(
                    f"{where} gave {nested.describe(values)} as {VF_PREDS!r}; expected an array of "
                    f"the shape {list(shape)}: one number for each step of each sequence."
                )
            found[VF_PREDS] = sequences.flat(values)
        self._passed = (sequences, mask, inputs.shape)
        return found

    def backward(self, *, d_action_dist_inputs: Array, d_vf_preds: Array) -> None:
        """See `RLModule.backward`; derivatives are those of rows."""
        shape: tuple[int, ...] = (-1, self.action_distribution.num_inputs)
        if self._passed is None:
            check_gradient("d_action_dist_inputs", d_action_dist_inputs, shape)
            raise AssertionError  # the line above has raised
        sequences, mask, shape = self._passed
        check_gradient("d_action_dist_inputs", d_action_dist_inputs, shape)
        check_gradient("d_vf_preds", d_vf_preds, shape[:1])
        if mask is not None:
            d_action_dist_inputs = masked_gradient(d_action_dist_inputs, mask)
        self.backward_sequences(
            d_action_dist_inputs=sequences.padded(d_action_dist_inputs),
            d_vf_preds=sequences.padded(d_vf_preds),
        )
