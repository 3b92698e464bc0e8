"""Connector pieces before a learner: they see the episodes of an update before columns are made.

    class CountBased(ConnectorV2):
        counts = None

        def __call__(self, *, batch, episodes, **kwargs):
            ...episode.set_rewards(new_data=..., at_indices=...)
            return batch

    config.training(learner_connector=lambda observation_space, action_space: CountBased())

They work in the main process, on copies: what was reported of an episode, and its next chunk, stay
as they were. What pieces remember is state of the learner, so it is saved, and undone with an
update that fails.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from callbacks.callback import attribute_names, plain_attributes, restore_attributes
from callbacks.chain import LeftOut
from checkpoints import CheckpointMismatchError, check_shape
from trainer.connectors.advantages import Chunks, discounted_returns
from trainer.connectors.pieces import (
    ConnectorPipelineV2,
    ConnectorV2,
    new_pieces,
    pieces_in,
    place_pieces,
)
from trainer.episodes import SingleAgentEpisode
from trainer.episodes.episode_columns import (
    ACTION_DIST_INPUTS,
    ACTION_LOGP,
    ACTIONS,
    ADVANTAGES,
    INFOS,
    OBS,
    RETURNS_TO_GO,
    REWARDS,
    STATE_IN,
    TERMINATEDS,
    TRUNCATEDS,
    VALUE_TARGETS,
)
from trainer.errors import ConfigError, EpisodeError
from trainer.types import Array, State
from trainer_toolkit.checks import anything, dict_of, shown
from trainer_toolkit.undo import Undo

_OF_OURS: Final = frozenset(
    {"input_observation_space", "input_action_space", "_is_placed", "connectors", "_left_out"}
)
"""Attributes of pieces that are no state: spaces, and what pipelines hold."""


class LearnerPipeline(ConnectorPipelineV2):
    """The pieces before one learner, and what they remember.

    A piece without `get_state` of its own is saved as callbacks are: by its attributes of plain
    data; and those that are a kind of dict (`Counter`, `defaultdict`), whose entries go back into
    the object that is there. A warning names the others, once.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """See `ConnectorPipelineV2`."""
        super().__init__(*args, **kwargs)
        self._left_out = LeftOut()

    def changed(
        self, episodes: Sequence[SingleAgentEpisode], rl_module: Any
    ) -> tuple[Sequence[SingleAgentEpisode], dict[str, Array]]:
        """Episodes as the pieces leave them, and the columns [B, …] that they add to the batch.

        Raises:
            ConfigError: a piece gives no batch, or puts what episodes hold into it.
            EpisodeError: a column has another number of rows than there are steps.
        """
        if not self.connectors:
            return episodes, {}
        copies = [_copied(episode) for episode in episodes]
        batch = self(
            rl_module=rl_module,
            batch={},
            episodes=copies,
            explore=None,
            shared_data={},
            metrics=None,
        )
        count = sum(map(len, copies))
        return copies, {name: _column(name, rows, count) for name, rows in batch.items()}

    def get_state(self, *_: Any, **__: Any) -> State:
        """What the pieces remember, by their place; copies."""
        return {str(number): self._state_of(one) for number, one in enumerate(pieces_in(self))}

    def _state_of(self, piece: ConnectorV2) -> State:
        if type(piece).get_state is not ConnectorV2.get_state:
            return copy.deepcopy(piece.get_state())
        attributes = dict(vars(piece))
        kinds = {name: dict(one) for name, one in attributes.items() if _is_kind_of_dict(one)}
        besides = _OF_OURS.union(kinds)
        state = plain_attributes(piece, besides=besides)
        self._left_out.name(piece, state, kind="connector", besides=besides)
        return {**state, **copy.deepcopy(kinds)}

    def check_state(self, state: State) -> None:
        """Raises a CheckpointMismatchError unless `set_state` will take it."""
        check_shape(state, dict_of(dict_of(anything())))
        own = [type(one).__name__ for one in pieces_in(self)]
        if state.keys() != {str(number) for number in range(len(own))}:
            raise CheckpointMismatchError(
                f"The state is of {len(state)} connectors before the learner, but "
                f"`learner_connector` makes {own}. Nothing was changed. Let it make the same "
                "pieces as when the state was saved."
            )

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Goes on from what `get_state` gave."""
        self.check_state(dict(state))
        for number, piece in enumerate(pieces_in(self)):
            _give(piece, state[str(number)])

    def mark(self) -> Undo:
        """What gives the pieces the state of now back, whatever they added since."""
        names = [attribute_names(piece) for piece in pieces_in(self)]
        return partial(self._go_back, self.get_state(), names)

    def _go_back(self, state: State, names: Sequence[set[str]]) -> None:
        for piece, known in zip(pieces_in(self), names, strict=True):
            for name in attribute_names(piece) - known:
                delattr(piece, name)
        self.set_state(state)


def _is_kind_of_dict(value: Any) -> bool:
    return isinstance(value, dict) and type(value) is not dict


def _give(piece: ConnectorV2, state: State) -> None:
    if type(piece).get_state is not ConnectorV2.get_state:
        piece.set_state(copy.deepcopy(state))
        return
    kinds = {name for name in state if _is_kind_of_dict(vars(piece).get(name))}
    for name in kinds:
        own = vars(piece)[name]
        own.clear()
        own.update(copy.deepcopy(state[name]))
    restore_attributes(piece, {name: one for name, one in state.items() if name not in kinds})


def _copied(episode: SingleAgentEpisode) -> SingleAgentEpisode:
    """An episode that pieces may write into."""
    return SingleAgentEpisode.from_state(
        episode.get_state(),
        observation_space=episode.observation_space,
        action_space=episode.action_space,
    )


_IN_EPISODES: Final = (OBS, ACTIONS, REWARDS, TERMINATEDS, TRUNCATEDS, INFOS)
_OF_THE_LEARNER: Final = (ACTION_LOGP, ACTION_DIST_INPUTS, ADVANTAGES, VALUE_TARGETS, STATE_IN)


def _column(name: str, rows: Any, count: int) -> Array:
    if name in _IN_EPISODES:
        raise ConfigError(
            f"A piece of `learner_connector` put {name!r} into the batch; what episodes hold is "
            "read from them. Write it there: `episode.set_rewards(new_data=..., at_indices=...)`, "
            "`set_actions`, `set_observations`."
        )
    if name in _OF_THE_LEARNER:
        raise ConfigError(
            f"A piece of `learner_connector` put {name!r} into the batch, which the learner writes "
            "itself. Take another name and read it in a loss of your own (docs/own-algorithm.md), "
            "or change rewards in the episodes, from which advantages follow."
        )
    try:
        column: Array = np.asarray(rows)
    except ValueError as error:
        raise EpisodeError(
            f"A piece of `learner_connector` put rows of different shapes under {name!r}; expected "
            "one shape for all steps."
        ) from error
    if column.dtype.kind not in "biuf" or len(column) != count:
        raise EpisodeError(
            f"A piece of `learner_connector` put {shown(rows)} under {name!r} into the batch; "
            f"expected numbers, one row for each of the {count} steps, in the order of "
            "`episodes`. Use `add_n_batch_items(batch, column, items, len(items), episode)`."
        )
    return column.astype(np.float32) if column.dtype == np.float64 else column


def made_learner_pipeline(
    factory: Callable[..., Any] | None, observation_space: Any, action_space: Any
) -> LearnerPipeline:
    """The pieces that `learner_connector` makes; it is called with as much as it takes.

    Args:
        factory: takes both spaces, or fewer, and returns a piece or a list; None: no pieces.
        observation_space: of the module.
        action_space: of the module.

    Raises:
        ConfigError: it raises, or gives something else than new pieces.
    """
    if factory is None:
        return LearnerPipeline(observation_space, action_space)
    spaces = observation_space, action_space
    setting = "learner_connector"
    pieces = new_pieces(
        factory, setting, spaces, called_with="the spaces of observations and actions"
    )
    pipeline = LearnerPipeline(*spaces, connectors=pieces)
    why_own = "each learner has pieces of its own"
    place_pieces(pipeline, setting, why_own, "observation_space, action_space")
    return pipeline


# ---- ready-made


class ComputeReturnsToGo(ConnectorV2):
    """Adds the column "returns_to_go": Σₖ γᵏ rₜ₊ₖ to the end of the chunk, float32 [B].

    For losses without a value function; of chunks that are cut, what comes after is missing.
    """

    def __init__(self, *spaces: Any, gamma: float = 0.99, **kwargs: Any) -> None:
        """Takes the discount factor.

        Args:
            spaces: see `ConnectorV2`.
            gamma: in [0, 1].
            kwargs: see `ConnectorV2`.
        """
        super().__init__(*spaces, **kwargs)
        self.gamma = gamma

    def __call__(
        self, *, batch: dict[str, Any], episodes: list[SingleAgentEpisode], **_: Any
    ) -> Any:
        """Adds the column for all steps."""
        for episode in filter(len, self.single_agent_episode_iterator(episodes)):
            rewards = np.asarray(episode.get_rewards(), np.float64)
            whole = Chunks(
                rewards=rewards,
                values=np.zeros(len(rewards)),
                lengths=np.array([len(rewards)]),
                bootstrap_values=np.zeros(1),
            )
            returns = discounted_returns(whole, gamma=self.gamma, use_critic=False).value_targets
            self.add_n_batch_items(batch, RETURNS_TO_GO, returns, len(returns), episode)
        return batch
