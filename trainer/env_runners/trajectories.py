"""From a chunk of an episode to the columns that callbacks may rewrite, and back.

    batch = trajectory_columns(episode, logp=...)    while the episode still runs, or has just ended
    before = sealed_copy(batch)
    ...                                              callbacks change `batch`
    rewrite = rewrite_of(batch, before=before)       what they changed; None if nothing
    rewrite.write_to(chunk)                          once the episode has been cut

A rewrite goes into the chunk that is handed out, never into the episode that goes on: that begins
with what the env really showed. Nothing here fires an event.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final

import gymnasium
import numpy as np
from gymnasium import spaces

from trainer.connectors import Normalization, ObservationEncoder, SampleBatch
from trainer.connectors.sample_batch import fitted_column, new_column, read_only
from trainer.env_runners.messages import RunnerParts, TrajectoryPostprocessing
from trainer.envs.env_checks import is_all_finite
from trainer.episodes import SingleAgentEpisode, nested
from trainer.episodes.episode_columns import (
    ACTION_DIST_INPUTS,
    ACTION_LOGP,
    ACTION_PROB,
    ACTIONS,
    ADVANTAGES,
    AGENT_INDEX,
    EPISODE_IDS,
    INFOS,
    NEW_OBS,
    OBS,
    REWARDS,
    TERMINATEDS,
    TIMESTEPS,
    TRUNCATEDS,
    UNROLL_ID,
    VALUE_TARGETS,
    VF_PREDS,
)
from trainer.episodes.lookback_buffer import LookbackBuffer
from trainer.errors import EpisodeError
from trainer.modules import ByModule, RLModule
from trainer.seeding import Role
from trainer.types import DEFAULT_AGENT_ID, Array, ModuleId

# ---- trajectories

FIXED: Final = frozenset(
    {EPISODE_IDS, UNROLL_ID, AGENT_INDEX, TIMESTEPS, TERMINATEDS, TRUNCATEDS, ACTION_PROB}
)
"""Columns that tell what happened: read-only."""

ENV_T: Final = "env_t"
"""With several agents: the env step at which a row's observation was seen; read-only."""

LogLikelihoods = Callable[[SingleAgentEpisode, Array, Any], Array]
"""Log-likelihoods of a chunk's actions, from it, their distribution inputs and them."""

_BASE: Final = FIXED | {OBS, NEW_OBS, ACTIONS, REWARDS, INFOS}
"""Columns that are not extra outputs of the chunk."""


class ObservationCodes:
    """Discrete and MultiDiscrete observations as callbacks see them: one-hot, as in RLlib.

    Callbacks written for RLlib take `argmax(obs, -1)`, which would be silently wrong of integers;
    and one-hot rows are what modules read.
    """

    @classmethod
    def of(cls, space: gymnasium.Space[Any]) -> ObservationCodes | None:
        """None for all other spaces: their observations are shown as they are."""
        if isinstance(space, spaces.Discrete):
            return cls(space, sizes=np.array([space.n]), starts=np.array([space.start]))
        if isinstance(space, spaces.MultiDiscrete):
            return cls(space, sizes=space.nvec.ravel(), starts=np.ravel(space.start))
        return None

    def __init__(self, space: gymnasium.Space[Any], *, sizes: Array, starts: Array) -> None:
        self._encoder = ObservationEncoder(space)
        self._shape = space.shape or ()
        self._borders, self._starts = np.cumsum(sizes)[:-1], starts

    def encode(self, observations: Array) -> Array:
        """One-hot codes, float32 [T, n], of a batch of observations."""
        return self._encoder.encode(observations)

    def decode(self, codes: Array) -> Array:
        """The observations that codes stand for, int64 [T, ...].

        Raises:
            EpisodeError: a row is no one-hot code.
        """
        parts = np.split(codes, self._borders, axis=1)
        observations = np.stack([part.argmax(axis=1) for part in parts], axis=1) + self._starts
        observations = observations.reshape(len(codes), *self._shape)
        is_wrong = (self.encode(observations) != codes).any(axis=1)
        if is_wrong.any():
            row = int(np.argmax(is_wrong))
            raise EpisodeError(
                f"An observation was changed to {codes[row].tolist()}, which is no one-hot code; "
                "observations of Discrete and MultiDiscrete spaces are shown as such codes. Write "
                "a row with a single 1, or one for each number."
            )
        return observations


def trajectory_columns(
    episode: SingleAgentEpisode,
    *,
    logp: LogLikelihoods,
    codes: ObservationCodes | None = None,
) -> SampleBatch:
    """The steps of a chunk as columns with T rows each, in memory of their own.

    Args:
        episode: the running chunk, or one that has just ended; at least one step.
        logp: of the actions, where their outputs lack it.
        codes: of the observations, if they are to be shown as such.
    """
    steps = len(episode)
    observations = nested.batch_copy(episode.get_observations(), name=OBS)
    if codes is not None:
        observations = codes.encode(observations)
    ends = np.zeros((2, steps), np.bool_)
    ends[:, -1] = episode.is_terminated, episode.is_truncated
    batch = SampleBatch(
        {
            OBS: nested.batch_copy(nested.take(observations, slice(0, steps)), name=OBS),
            NEW_OBS: nested.batch_copy(nested.take(observations, slice(1, steps + 1)), name=OBS),
            ACTIONS: nested.batch_copy(episode.get_actions(), name=ACTIONS),
            REWARDS: np.array(episode.get_rewards(), np.float64),
            TERMINATEDS: ends[0],
            TRUNCATEDS: ends[1],
            INFOS: _objects(episode.get_infos()[1:]),
            EPISODE_IDS: np.array([episode.id_] * steps),
            UNROLL_ID: np.full(steps, episode.t_started),
            AGENT_INDEX: np.zeros(steps, np.int64),
            TIMESTEPS: np.arange(episode.t_started, episode.t),
        }
    )
    for name, items in episode.get_extra_model_outputs().items():
        batch[name] = nested.batch_copy(items, name=name)
    if ACTION_DIST_INPUTS in batch:
        if ACTION_LOGP not in batch:  # exploration strategies bring their own
            batch[ACTION_LOGP] = logp(episode, batch[ACTION_DIST_INPUTS], batch[ACTIONS])
        batch[ACTION_PROB] = np.exp(batch[ACTION_LOGP])
    for name in FIXED & batch.keys():
        batch[name] = read_only(batch[name])
    return batch


def all_observations(batch: SampleBatch) -> Any:
    """The T + 1 observations of a chunk."""
    last = nested.take(batch[NEW_OBS], slice(-1, None))
    return nested.concatenate(batch[OBS], last)


def sealed_copy(batch: SampleBatch) -> SampleBatch:
    """A copy that cannot be written to; the info dicts in it are the same objects."""
    copy = batch.copy()
    return SampleBatch({name: read_only(copy[name]) for name in copy})


@dataclass(frozen=True)
class Rewrite:
    """What callbacks changed in the columns of a chunk; None is unchanged.

    Attributes:
        observations: batch of T + 1.
        infos: of the T steps.
        actions: [T, ...].
        rewards: float64 [T].
        outputs: changed and new extra outputs, [T, ...] each.
    """

    observations: Any
    infos: list[dict[str, Any]] | None
    actions: Array | None
    rewards: Array | None
    outputs: Mapping[str, Array]

    def decoded(self, codes: ObservationCodes | None) -> Rewrite:
        """The same with observations as the episode has them; an EpisodeError if one is no code."""
        if codes is None or self.observations is None:
            return self
        return replace(self, observations=codes.decode(self.observations))

    def write_to(self, chunk: SingleAgentEpisode) -> None:
        """Writes the changes into the chunk; `get_return()` stays what the env paid."""
        if self.observations is not None:
            chunk.set_observations(new_data=self.observations)
            chunk.extra_model_outputs.pop(VF_PREDS, None)  # those of the observations before
        if self.infos is not None:
            chunk.infos.set(self.infos, slice(1, len(chunk) + 1))
        if self.actions is not None:
            chunk.set_actions(new_data=self.actions)
            chunk.extra_model_outputs.pop(ACTION_LOGP, None)  # that of the actions before
        if self.rewards is not None:
            paid = chunk.rewards_list().copy()
            chunk.set_rewards(new_data=self.rewards)
            chunk.note_rewrite(paid)
        for name, column in self.outputs.items():
            chunk.set_extra_model_outputs(key=name, new_data=column)


def rewrite_of(batch: SampleBatch, *, before: SampleBatch) -> Rewrite | None:
    """What was changed in a batch since `before`; None if nothing was.

    Raises:
        EpisodeError: a column was removed, or now holds what cannot be learnt from.
    """
    _check_names(batch, before)
    num_rows = before.count
    outputs: dict[str, Array] = {}
    for name in batch:
        if name in _BASE or (name == ENV_T and name in before):
            continue
        if name not in before:
            outputs[name] = new_column(name, batch[name], num_rows=num_rows)
        elif not _is_same(batch[name], before[name]):
            outputs[name] = fitted_column(name, batch[name], like=before[name], num_rows=num_rows)
    _check_values(outputs)
    rewrite = Rewrite(
        observations=_rewritten_observations(batch, before),
        infos=_rewritten_infos(batch, before),
        actions=_rewritten(ACTIONS, batch, before),
        rewards=_rewritten(REWARDS, batch, before),
        outputs=outputs,
    )
    base = (rewrite.observations, rewrite.infos, rewrite.actions, rewrite.rewards)
    return None if not outputs and all(column is None for column in base) else rewrite


def _check_names(batch: SampleBatch, before: SampleBatch) -> None:
    removed = [name for name in before if name not in batch]
    if removed:
        raise EpisodeError(
            f"The column {removed[0]!r} was removed, but is needed. Leave the columns of the batch "
            "in place; columns of your own may be added."
        )
    for name in (FIXED | {ENV_T}) & before.keys():
        if not _is_same(batch[name], before[name]):
            raise EpisodeError(
                f"The column {name!r} was changed, but it says what happened and can only be read. "
                "Change rewards, observations, actions, action_logp, advantages or value_targets."
            )


def _check_values(outputs: dict[str, Array]) -> None:
    """Takes rewritten `vf_preds` out: what is learnt follows from them by way of advantages."""
    if VF_PREDS in outputs and not {ADVANTAGES, VALUE_TARGETS} & outputs.keys():
        raise EpisodeError(
            "The column 'vf_preds' was changed, which alone changes nothing: the learner predicts "
            "values itself. Assign 'advantages' and 'value_targets' that follow from your values."
        )
    outputs.pop(VF_PREDS, None)


def _rewritten(name: str, batch: SampleBatch, before: SampleBatch) -> Any:
    if _is_same(batch[name], before[name]):
        return None
    return fitted_column(name, batch[name], like=before[name], num_rows=before.count)


def _rewritten_infos(batch: SampleBatch, before: SampleBatch) -> list[dict[str, Any]] | None:
    given = batch[INFOS]
    if not isinstance(given, Sequence | np.ndarray):
        raise EpisodeError(
            f"The column 'infos' is {type(given).__name__} now; expected a list of {before.count} "
            "dicts. Change the dicts, or assign as many."
        )
    infos = list(given)
    if len(infos) != before.count or not all(isinstance(info, dict) for info in infos):
        raise EpisodeError(
            f"The column 'infos' has {len(infos)} rows now; expected {before.count} dicts. Change "
            "the dicts, or assign as many."
        )
    # Changes inside the dicts need no writing back: they are the chunk's own.
    is_same = all(info is old for info, old in zip(infos, before[INFOS], strict=True))
    return None if is_same else infos


def _rewritten_observations(batch: SampleBatch, before: SampleBatch) -> Any:
    """All T + 1 observations, if `obs` or `new_obs` changed.

    Most observations stand in both columns. Who changes one of the two places changes the
    observation; who changes both must agree.
    """
    changes = [_rewritten(name, batch, before) for name in (OBS, NEW_OBS)]
    if all(change is None for change in changes):
        return None
    obs, new_obs = (
        before[name] if change is None else change
        for name, change in zip((OBS, NEW_OBS), changes, strict=True)
    )
    return nested.map_leaves(_merged, obs, new_obs, before[OBS], before[NEW_OBS])


def _merged(obs: Array, new_obs: Array, obs_before: Array, new_obs_before: Array) -> Array:
    in_obs, in_new = _changed_rows(obs, obs_before), _changed_rows(new_obs, new_obs_before)
    both = in_obs[1:] & in_new[:-1] & _changed_rows(obs[1:], new_obs[:-1])
    if both.any():
        row = int(np.flatnonzero(both)[0])
        raise EpisodeError(
            f"'obs' row {row + 1} and 'new_obs' row {row} are one observation, but were changed to "
            "different values. Change both to the same, or one of them."
        )
    merged = np.concatenate([obs_before, new_obs_before[-1:]])
    merged[:-1][in_obs] = obs[in_obs]
    merged[1:][in_new] = new_obs[in_new]
    return merged


def _is_same(column: Any, before: Any) -> bool:
    try:
        return nested.equal(column, before)
    except ValueError:  # rows of different lengths: refused, with a better text, by who looks next
        return False


def _changed_rows(rows: Array, before: Array) -> Array:
    differs = (rows != before) & ((rows == rows) | (before == before))  # NaN stays NaN
    changed: Array = differs.any(axis=tuple(range(1, differs.ndim)))  # also of no row at all
    return changed


def _objects(items: list[dict[str, Any]]) -> Array:
    """An array of objects: `np.array` would look into the dicts' own structure."""
    column = np.empty(len(items), object)
    column[:] = items
    return column


# ---- trajectory event
#
# Firing `on_postprocess_trajectory`: callbacks see a chunk as columns and may rewrite it.

TRAJECTORY_EVENT: Final = "on_postprocess_trajectory"


@dataclass(frozen=True)
class ShownChunk:
    """A chunk as callbacks see it.

    Attributes:
        batch: what they may rewrite.
        before: what stood in it; read-only.
        original: the same without what the algorithm adds.
    """

    batch: SampleBatch
    before: SampleBatch
    original: SampleBatch


def trajectory_emitter(runner: RunnerParts) -> Callable[..., None] | None:
    """What fires the event; None without a listener, or the runner plays for evaluation."""
    return (
        None if runner.spec.role is Role.EVALUATION else runner.callbacks.emitter(TRAJECTORY_EVENT)
    )


class ModuleTrajectories:
    """Chunks that one module acted in, as columns that callbacks may rewrite, and back.

    What a chunk's columns hold depends on that chunk alone, so it makes no difference how slots are
    spread over runners. What listeners leave unchanged never reaches the learner: who only listens
    changes no byte of what is learnt.
    """

    def __init__(
        self,
        module: RLModule,
        *,
        logp: LogLikelihoods,
        postprocessing: TrajectoryPostprocessing | None,
    ) -> None:
        """Looks at the module's spaces; `postprocessing` is what the algorithm adds."""
        self._module = module
        self._logp = logp
        self._postprocessing = postprocessing
        self._normalization = Normalization()
        self._codes = ObservationCodes.of(module.observation_space)
        self._encoder = ObservationEncoder(
            module.observation_space, action_mask_key=module.action_mask_key
        )

    def normalize_with(self, normalization: Normalization) -> None:
        """Shows columns that follow from observations and rewards as these make them."""
        self._normalization = normalization
        self._encoder.normalizer = normalization.observations

    def shown(self, episode: SingleAgentEpisode, **columns: Array) -> ShownChunk:
        """The steps since an episode began or was cut.

        Args:
            episode: still running or just ended, with at least one step.
            columns: take the place of columns of these names, or are added; read-only.
        """
        batch = trajectory_columns(episode, logp=self._logp, codes=self._codes)
        for name, column in columns.items():
            batch[name] = read_only(column)
        before = sealed_copy(batch)
        original = before.copy(shallow=True)
        self._add_columns(batch, before)
        return ShownChunk(batch, before, original)

    def _add_columns(self, batch: SampleBatch, before: SampleBatch) -> None:
        """Adds the algorithm's columns to the batch, and sealed copies of them to `before`."""
        if self._postprocessing is None:
            return
        obs = all_observations(batch)
        obs = self._encoder.encode(obs if self._codes is None else self._codes.decode(obs))
        # Advantages follow from what the learner will make of the rewards; callbacks see those of
        # the env, for they may rewrite them.
        paid = batch[REWARDS]
        batch[REWARDS] = self._normalization.rewards_to_learn(paid)
        self._postprocessing.add_columns(batch, module=self._module, obs=obs)
        batch[REWARDS] = paid
        for name in [name for name in batch if name not in before]:
            before[name] = read_only(batch[name].copy())

    def rewrite_of(self, shown: ShownChunk) -> Rewrite | None:
        """What callbacks changed; None if nothing. Errors as of the function `rewrite_of`."""
        rewrite = rewrite_of(shown.batch, before=shown.before)
        if rewrite is None:
            return None
        if rewrite.actions is not None:
            self._module.action_distribution.check_actions(rewrite.actions)
        return rewrite.decoded(self._codes)


class TrajectoryEvent:
    """Shows chunks of one agent to the listeners of a training runner."""

    @classmethod
    def of(cls, runner: RunnerParts, *, logp: LogLikelihoods) -> TrajectoryEvent | None:
        """None without a listener, or the runner plays for evaluation."""
        emit = trajectory_emitter(runner)
        return None if emit is None else cls(runner, emit, logp)

    def __init__(
        self,
        runner: RunnerParts,
        emit: Callable[..., None],
        logp: LogLikelihoods,
    ) -> None:
        self._runner = runner
        self._emit = emit
        self._trajectories = ModuleTrajectories(
            runner.module, logp=logp, postprocessing=runner.spec.postprocessing
        )

    def normalize_with(self, normalization: ByModule[Normalization]) -> None:
        """Shows columns that follow from observations and rewards as these make them."""
        self._trajectories.normalize_with(normalization.only)

    def fire(self, episode: SingleAgentEpisode) -> Rewrite | None:
        """Fires the event for the steps since the episode began or was cut.

        Returns:
            what is to be written into the chunk.

        Raises:
            CallbackError: a callback raised, or left what cannot be learnt from.
        """
        runner, module = self._runner, self._runner.module
        shown = self._trajectories.shown(episode)
        agent_id = DEFAULT_AGENT_ID if episode.agent_id is None else episode.agent_id
        module_id = runner.spec.module_specs.only_id
        arguments: dict[str, Any] = {
            "env_runner": runner,
            "metrics_logger": runner.metrics,
            "episode": episode,
            "agent_id": agent_id,
            "policy_id": module_id,
            "policies": {module_id: module},
            "postprocessed_batch": shown.batch,
            "original_batches": {agent_id: (module_id, module, shown.original)},
        }
        self._emit(**arguments)
        try:
            return self._trajectories.rewrite_of(shown)
        except EpisodeError as error:
            raise runner.callbacks.blame(TRAJECTORY_EVENT, arguments, error) from error


# ---- sample checks
#
# Whether episodes that callbacks could change still hang together, before they are learnt from.
# It looks at the form, and for numbers that a replay buffer would keep and nothing learn from.


def check_samples(
    samples: Sequence[Any],
    outputs_before: Mapping[str, Collection[str]],
    *,
    modules: Mapping[ModuleId, RLModule],
    must_be_finite: bool,
) -> None:
    """Checks what `on_sample_end` left in the list of episodes.

    Args:
        samples: episodes of single agents.
        outputs_before: the names of each episode's `extra_model_outputs`, by the episode's id.
        modules: that acted.
        must_be_finite: whether they held neither NaN nor infinity before.

    Raises:
        EpisodeError: columns of an episode do not fit together any more, or hold what cannot be
            learnt from.
    """
    only = next(iter(modules.values())) if len(modules) == 1 else None
    for episode in samples:
        _check_columns(episode)
        if must_be_finite:
            _check_numbers(episode)
        module, actions = modules.get(episode.module_id, only), episode.actions.data
        if module is not None and len(episode.actions):
            if isinstance(actions, list):
                actions = nested.stack(actions, name=ACTIONS)
            module.action_distribution.check_actions(actions)
        removed = set(outputs_before.get(episode.id_, ())) - episode.extra_model_outputs.keys()
        if removed:
            raise EpisodeError(
                f"The column {min(removed)!r} of {episode.id_!r} was removed from "
                "extra_model_outputs, but is needed. Leave it there; names of your own may be "
                "added."
            )


def check_kinds(samples: Sequence[Any], kind: type) -> None:
    """Raises an EpisodeError if callbacks left something else than such episodes in the samples."""
    for place, episode in enumerate(samples):
        if not isinstance(episode, kind):
            raise EpisodeError(
                f"samples[{place}] is {type(episode).__name__} now; expected a {kind.__name__}. "
                "Remove what is not to be learnt from: `samples[:] = [those to be kept]`."
            )


def _check_columns(episode: SingleAgentEpisode) -> None:
    """All columns are buffers, and have one entry per env step; observations and infos one more."""
    columns: dict[str, tuple[Any, int]] = {
        "observations": (episode.observations, 1),
        "infos": (episode.infos, 1),
        "actions": (episode.actions, 0),
        "rewards": (episode.rewards, 0),
        **{
            f"extra_model_outputs[{name!r}]": (column, 0)
            for name, column in episode.extra_model_outputs.items()
        },
    }
    for name, (column, _) in columns.items():
        if not isinstance(column, LookbackBuffer):
            raise EpisodeError(
                f"The column {name!r} of {episode.id_!r} is {type(column).__name__} now; expected "
                "the LookbackBuffer that was there. Change what that holds (`set_rewards()`, …)."
            )
    num_steps = len(episode.actions)
    for name, (column, more) in columns.items():
        if len(column) != num_steps + more:
            raise EpisodeError(
                f"The column {name!r} of {episode.id_!r} has {len(column)} entries now, but "
                f"'actions' has {num_steps}; expected {num_steps + more}. Every column has one "
                "entry per env step, and observations and infos one more. Change entries in place, "
                "or shorten the episode as a whole: `samples[i] = episode[:n]`."
            )


def _check_numbers(episode: SingleAgentEpisode) -> None:
    for name in ("rewards", "observations"):
        if not is_all_finite(getattr(episode, name).data):
            raise EpisodeError(
                f"The column {name!r} of {episode.id_!r} holds NaN or infinity now; nothing can be "
                "learnt from numbers that are not finite. Look for a division by zero or a "
                "logarithm of zero in what was written into it."
            )


# ---- sample event

SAMPLE_EVENT: Final = "on_sample_end"


def fire_sample_end(
    runner: RunnerParts,
    samples: list[Any],
    *,
    slots: Sequence[Any],
    note_rewrites: Callable[[Mapping[str, Any]], None],
    kind: type,
    chunks_of: Callable[[Any], Sequence[SingleAgentEpisode]],
) -> None:
    """Fires the event; where it rewrote rewards, returns stay those of the env.

    Args:
        runner: who has played.
        samples: what it hands out; changed by callbacks.
        slots: what runs on remembers that its earlier chunks were rewritten.
        note_rewrites: told of the rewritten episodes by id, for the records of those that ended.
        kind: of the samples.
        chunks_of: gives the chunks of single agents that one of them is made of.

    Raises:
        CallbackError: a callback raised, or left episodes whose columns do not fit together.
    """
    emit = runner.callbacks.emitter(SAMPLE_EVENT)
    if emit is None:
        return
    # By id, which no two of them share: callbacks may put others in their place.
    chunks = list(chain.from_iterable(map(chunks_of, samples)))
    paid = rewards_of(chunks)
    outputs = {chunk.id_: tuple(chunk.extra_model_outputs) for chunk in chunks}
    arguments = {"env_runner": runner, "metrics_logger": runner.metrics, "samples": samples}
    emit(**arguments)
    try:
        check_kinds(samples, kind)
        left = list(chain.from_iterable(map(chunks_of, samples)))
        finite = runner.spec.checks_env
        check_samples(left, outputs, modules=runner.modules, must_be_finite=finite)
    except EpisodeError as error:
        raise runner.callbacks.blame(SAMPLE_EVENT, arguments, error) from error
    rewritten = {
        episode.id_: episode for episode in samples if note_rewrites_of(chunks_of(episode), paid)
    }
    for slot in slots:
        if slot.episode is not None and slot.episode.id_ in rewritten:
            slot.follow(rewritten[slot.episode.id_])
    if rewritten:
        note_rewrites(rewritten)


def rewards_of(chunks: Iterable[SingleAgentEpisode]) -> dict[str, list[float]]:
    """The rewards of chunks by the chunks' ids: copies, for `note_rewrites_of`."""
    return {chunk.id_: chunk.rewards_list().copy() for chunk in chunks}


def note_rewrites_of(chunks: Sequence[SingleAgentEpisode], paid: Mapping[str, list[float]]) -> bool:
    """Notes which rewards are others than those that were paid; whether there are any."""
    is_rewritten = False
    for chunk in chunks:
        before = paid.get(chunk.id_)
        if before is not None and chunk.rewards_list() != before:
            chunk.note_rewrite(before)
            is_rewritten = True
    return is_rewritten
