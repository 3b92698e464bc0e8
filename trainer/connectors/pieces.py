"""Connector pieces of users, as RLlib's: what they are derived from, pipelines, ready-made ones.

    class Difference(SingleAgentObservationPreprocessor):
        def preprocess(self, observation, episode):
            if len(episode) == 0:
                return np.zeros_like(observation)
            return observation - episode.get_observations(-2)

    config.env_runners(env_to_module_connector=lambda env, spaces, device: Difference())

Here are the pieces alone; `trainer.connectors.pieces` lets them work beside an env.
"""

from __future__ import annotations

import copy
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import gymnasium as gym

from trainer.agent_ids import ALL_AGENTS
from trainer.connectors.encoding import check_shape_of_piece
from trainer.episodes import SingleAgentEpisode
from trainer.episodes.episode_columns import ACTIONS, OBS
from trainer.episodes.nested import copied
from trainer.errors import ConfigError
from trainer.types import AgentId, State
from trainer_toolkit.arguments import takes
from trainer_toolkit.checks import instance, optional, several

# ---- pieces


class ConnectorV2(ABC):
    """One piece: called with each new observation, or with each action on its way to the env.

    A piece is made for one sub-env, or for one agent of it, and sees its running episode. What it
    remembers over episodes belongs into `get_state` and `set_state` (plain data); what it remembers
    within an episode is made anew when the episode is played again, and needs no state of its own.

    Attributes:
        input_observation_space, input_action_space: of what comes before it.
    """

    _is_placed = False
    """Whether it works beside a sub-env, or an agent of one."""
    _is_joint = False
    """Whether it sees all agents of a sub-env together."""

    def __init__(
        self,
        input_observation_space: gym.Space[Any] | None = None,
        input_action_space: gym.Space[Any] | None = None,
        **_: Any,
    ) -> None:
        self.input_observation_space = input_observation_space
        self.input_action_space = input_action_space

    @property
    def name(self) -> str:
        """The name of its class."""
        return type(self).__name__

    @property
    def observation_space(self) -> Any:
        """The space of the observations that it gives."""
        return self.recompute_output_observation_space(
            self.input_observation_space, self.input_action_space
        )

    @property
    def action_space(self) -> Any:
        """The space of the actions that it gives."""
        return self.recompute_output_action_space(
            self.input_observation_space, self.input_action_space
        )

    def recompute_output_observation_space(
        self, input_observation_space: Any, input_action_space: Any
    ) -> Any:
        """The space of the observations that it gives; override it if that is another one."""
        del input_action_space
        return input_observation_space

    def recompute_output_action_space(
        self, input_observation_space: Any, input_action_space: Any
    ) -> Any:
        """The space of the actions that it gives."""
        del input_observation_space
        return input_action_space

    @abstractmethod
    def __call__(
        self,
        *,
        rl_module: Any,
        batch: dict[str, Any],
        episodes: list[SingleAgentEpisode],
        explore: bool | None = None,
        shared_data: dict[str, Any] | None = None,
        metrics: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Changes what goes through it.

        Args:
            rl_module: None: pieces work beside the env, where no module is.
            batch: before the module: empty at first; an observation put under "obs" (see
                `add_batch_item`) is what the module gets. Behind it: {"actions": [the action],
                "actions_for_env": [the action]}, of which the env gets the latter.
            episodes: the one running episode, as pieces see it: with the env's observations as the
                pieces before left them, and with actions as the env gets them.
            explore: None.
            shared_data: a dict that the pieces of one call share.
            metrics: None; log in callbacks.
            kwargs: for arguments to come.

        Returns:
            The batch.
        """

    def get_state(self, *_: Any, **__: Any) -> State:
        """What it remembers over episodes, as plain data; by default nothing."""
        return {}

    def set_state(self, state: State) -> None:  # noqa: B027 - most pieces have no state
        """Goes on from what `get_state` gave."""

    def reset_state(self) -> None:  # noqa: B027 - likewise
        """Forgets what it remembers."""

    @staticmethod
    def single_agent_episode_iterator(
        episodes: Iterable[SingleAgentEpisode], **_: Any
    ) -> Iterator[SingleAgentEpisode]:
        """The episodes one by one."""
        yield from episodes

    @staticmethod
    def add_batch_item(
        batch: dict[str, Any],
        column: str,
        item_to_add: Any,
        single_agent_episode: SingleAgentEpisode | None = None,
    ) -> None:
        """Puts a value into a column of the batch."""
        del single_agent_episode
        batch.setdefault(column, []).append(item_to_add)

    @staticmethod
    def add_n_batch_items(
        batch: dict[str, Any], column: str, items_to_add: Any, num_items: int, *_: Any, **__: Any
    ) -> None:
        """Puts as many values into a column of the batch, such as one for each step."""
        batch.setdefault(column, []).extend(items_to_add[:num_items])


# For pieces of users, who subclass it; `FlattenObservations` is one of ours.
class SingleAgentObservationPreprocessor(ConnectorV2):
    """Changes each new observation; a subclass writes `preprocess`."""

    @abstractmethod
    def preprocess(self, observation: Any, episode: SingleAgentEpisode) -> Any:
        """The new observation in its changed form.

        Args:
            observation: as the env, or the piece before, gave it.
            episode: the running episode; its newest observation is this one.
        """

    def __call__(
        self, *, batch: dict[str, Any], episodes: list[SingleAgentEpisode], **_: Any
    ) -> Any:
        """Writes what `preprocess` makes of the newest observation into the episode."""
        for episode in self.single_agent_episode_iterator(episodes):
            changed = self.preprocess(episode.get_observations(-1), episode)
            check_shape_of_piece(self, changed)
            replace_newest(episode, changed, self.observation_space)
        return batch


class MeanStdFilter(ConnectorV2):
    """Observations with mean 0 and standard deviation 1, by statistics over all env runners.

    It asks for what `observation_filter="MeanStdFilter"` does, and is done there: last of all, with
    statistics of the encoded observations (see docs/connectors.md).
    """

    def __init__(
        self,
        *spaces_: Any,
        multi_agent: bool = False,
        de_mean_to_zero: bool = True,
        de_std_to_one: bool = True,
        clip_by_value: float | None = 10.0,
        update_stats: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(*spaces_, **kwargs)
        del multi_agent  # each module has statistics of its own in any case
        asked = (de_mean_to_zero, de_std_to_one, clip_by_value, update_stats)
        if asked != (True, True, 10.0, True):
            raise ConfigError(
                f"MeanStdFilter was given (de_mean_to_zero, de_std_to_one, clip_by_value, "
                f"update_stats) = {asked}; it knows (True, True, 10.0, True). Leave them out, or "
                "write a piece of your own."
            )

    def __call__(self, *, batch: dict[str, Any], **_: Any) -> Any:
        """Does nothing here."""
        return batch


class ConnectorPipelineV2(ConnectorV2):
    """Pieces one after another.

    Attributes:
        connectors: the pieces, from first to last.
    """

    @takes(connectors=optional(several(instance(ConnectorV2, "pieces (ConnectorV2)"))))
    def __init__(
        self,
        input_observation_space: gym.Space[Any] | None = None,
        input_action_space: gym.Space[Any] | None = None,
        *,
        connectors: Sequence[ConnectorV2] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(input_observation_space, input_action_space, **kwargs)
        self.connectors = list(connectors or ())
        self._connect_spaces()

    def _connect_spaces(self) -> None:
        observation_space, action_space = self.input_observation_space, self.input_action_space
        for piece in self.connectors:
            piece.input_observation_space = observation_space
            piece.input_action_space = action_space
            if isinstance(piece, ConnectorPipelineV2):
                piece._connect_spaces()
            if observation_space is not None:
                observation_space, action_space = piece.observation_space, piece.action_space

    def connect(self, observation_space: Any, action_space: Any) -> None:
        """Says what comes before the first piece; each gets the spaces of the one before it."""
        self.input_observation_space, self.input_action_space = observation_space, action_space
        self._connect_spaces()

    def recompute_output_observation_space(
        self, input_observation_space: Any, input_action_space: Any
    ) -> Any:
        """The space behind the last piece."""
        del input_action_space
        if not self.connectors:
            return input_observation_space
        return self.connectors[-1].observation_space

    def __len__(self) -> int:
        return len(self.connectors)

    def __bool__(self) -> bool:
        return bool(self.connectors)

    def __getitem__(self, key: Any) -> Any:
        return self.connectors[key if isinstance(key, int) else self._place(key)]

    def _place(self, name_or_class: Any) -> int:
        for index, piece in enumerate(self.connectors):
            if piece.name == name_or_class or type(piece) is name_or_class:
                return index
        raise ValueError(
            f"There is no piece {name_or_class!r} in {[piece.name for piece in self.connectors]}."
        )

    def append(self, connector: ConnectorV2) -> None:
        """Adds a piece behind all others."""
        self._insert(len(self.connectors), connector)

    def prepend(self, connector: ConnectorV2) -> None:
        """Adds a piece before all others."""
        self._insert(0, connector)

    def insert_before(self, name_or_class: Any, connector: ConnectorV2) -> None:
        """Adds a piece before another one."""
        self._insert(self._place(name_or_class), connector)

    def insert_after(self, name_or_class: Any, connector: ConnectorV2) -> None:
        """Adds a piece behind another one."""
        self._insert(self._place(name_or_class) + 1, connector)

    def remove(self, name_or_class: Any) -> None:
        """Takes a piece out."""
        del self.connectors[self._place(name_or_class)]
        self._connect_spaces()

    def _insert(self, index: int, connector: ConnectorV2) -> None:
        self.connectors.insert(index, connector)
        self._connect_spaces()

    def __call__(self, *, batch: dict[str, Any], **arguments: Any) -> Any:
        """Calls every piece with what the one before it gave."""
        for piece in self.connectors:
            batch = piece(batch=batch, **arguments)
            if not isinstance(batch, dict):
                raise ConfigError(
                    f"The connector {piece.name} returned {batch!r:.80}; expected the batch, a "
                    "dict. Let its __call__ end with `return batch`."
                )
        return batch

    def get_state(self, *_: Any, **__: Any) -> State:
        """The states of the pieces that have one, by their place."""
        states = {}
        for index, piece in enumerate(self.connectors):
            state = piece.get_state()
            # An empty one, too, of a class that has its own: it may be given back later.
            if state or type(piece).get_state not in _WITHOUT_STATE:
                states[str(index)] = state
        return states

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Gives the pieces their states back."""
        for index, piece in enumerate(self.connectors):
            if str(index) in state:
                piece.set_state(state[str(index)])

    def reset_state(self) -> None:
        """Lets all pieces forget what they remember."""
        for piece in self.connectors:
            piece.reset_state()


_WITHOUT_STATE: Final = (ConnectorV2.get_state, ConnectorPipelineV2.get_state)


def replace_newest(episode: SingleAgentEpisode, observation: Any, space: Any) -> None:
    """Writes an observation over the newest one of an episode, of another space perhaps."""
    if episode.observation_space is not space:
        episode.observation_space = space
    episode.observations.data[-1] = observation


def newest_of(batch: Mapping[str, Any], episode: SingleAgentEpisode) -> Any:
    """What the module is to read: the observation put into the batch, or the episode's newest.

    Raises:
        ConfigError: other columns were put into the batch.
    """
    if not batch:
        return episode.get_observations(-1)
    others = sorted(batch.keys() - {OBS})
    if others:
        raise ConfigError(
            f"A connector put {', '.join(map(repr, others))} into the batch; the networks here "
            f"read {OBS!r} alone. Put what they are to know into the observation (and its space: "
            "`recompute_output_observation_space`), or into episodes with the callback "
            "`on_episode_step`."
        )
    return _item(batch, OBS, -1)


def _item(batch: Mapping[str, Any], column: str, index: int) -> Any:
    try:
        return batch[column][index]
    except (IndexError, KeyError, TypeError):
        raise ConfigError(
            f"A connector left {batch[column]!r:.80} under {column!r} in the batch; expected a "
            f"list of one value. Write `batch[{column!r}] = [value]`."
        ) from None


# ---- connected env
#
# An env with connector pieces of the user's beside it: observations and actions go through them.
# Pieces are made for each sub-env, so how sub-envs are spread over processes changes nothing. An
# episode that is played again goes through them again, with the state that they had before it: so
# repair and resume are exact, if a piece depends on nothing but its state and what it is given.

_FOR_ENV: Final = "actions_for_env"
_Factory = Callable[..., Any]


@dataclass(frozen=True)
class ConnectorFactories:
    """What makes the pieces of a config.

    Attributes:
        env_to_module: `env_to_module_connector`; None for no pieces.
        module_to_env: `module_to_env_connector`; None for no pieces.
    """

    env_to_module: _Factory | None = None
    module_to_env: _Factory | None = None

    @classmethod
    def of(cls, config: Any) -> ConnectorFactories | None:
        """Those of a config; None if it has none."""
        made = cls(config.env_to_module_connector, config.module_to_env_connector)
        return None if made == cls() else made

    def connected(self, env: gym.Env[Any, Any]) -> ConnectedEnv:
        """An env with new pieces beside it; a ConfigError if a factory gives something else."""
        return ConnectedEnv(env, self._pieces(env, (env.observation_space, env.action_space)))

    def connected_agents(
        self, env: gym.Env[Any, Any], spaces: Mapping[AgentId, tuple[Any, Any]]
    ) -> ConnectedAgents:
        """An env of several agents with new pieces beside each of them.

        Args:
            env: the env.
            spaces: {agent: its spaces of observations and actions}, canonical order.

        Raises:
            ConfigError: a factory raises, or gives something else than pieces.
        """
        actions: dict[Any, Any] = {agent: own[1] for agent, own in spaces.items()}
        observed: dict[Any, Any] = {agent: own[0] for agent, own in spaces.items()}
        together = made_pipeline(
            self.env_to_module,
            "env_to_module_connector",
            env,
            (gym.spaces.Dict(observed), gym.spaces.Dict(actions)),
            is_joint=True,
        )
        seen = together.observation_space
        pieces = {
            agent: self._pieces(env, (seen[agent], actions[agent]), agent) for agent in spaces
        }
        return ConnectedAgents(env, pieces, actions, together)

    def _pieces(
        self, env: Any, spaces: tuple[Any, Any], agent_id: AgentId | None = None
    ) -> PiecesOfAgent:
        is_joint = None if agent_id is None else False
        return PiecesOfAgent(
            made_pipeline(
                self.env_to_module, "env_to_module_connector", env, spaces, is_joint=is_joint
            ),
            made_pipeline(self.module_to_env, "module_to_env_connector", env, spaces),
            spaces,
            agent_id,
        )

    def wants_mean_std_filter(self, observation_space: Any, action_space: Any) -> bool:
        """Whether `MeanStdFilter` is among the pieces before a module of these spaces."""
        spaces = (observation_space, action_space)
        pipeline = made_pipeline(
            self.env_to_module, "env_to_module_connector", None, spaces, is_connected=False
        )
        return any(isinstance(piece, MeanStdFilter) for piece in pieces_in(pipeline))


def pieces_in(pipeline: ConnectorPipelineV2) -> Iterator[ConnectorV2]:
    """The pieces of a pipeline, and those of pipelines in it."""
    for piece in pipeline.connectors:
        if isinstance(piece, ConnectorPipelineV2):
            yield from pieces_in(piece)
        else:
            yield piece


def made_pipeline(
    factory: _Factory | None,
    setting: str,
    env: Any,
    spaces: tuple[Any, Any],
    *,
    is_connected: bool = True,
    is_joint: bool | None = None,
) -> ConnectorPipelineV2:
    """The pieces that a factory makes, as a pipeline; it is called with as much as it takes.

    Args:
        factory: takes the env, the spaces by RLlib's names and the device, or fewer of them; None
            makes no piece.
        setting: its name, for messages.
        env: the env; None in the main process.
        spaces: of observations and actions.
        is_connected: False: the pieces are only looked at, and get no spaces.
        is_joint: which of the pieces are wanted: those that see all agents together, or the others;
            None where there may be none of the former.

    Raises:
        ConfigError: it raises, or gives something else than pieces.
    """
    if factory is None:
        return ConnectorPipelineV2(*spaces)
    pieces = new_pieces(
        factory,
        setting,
        (env, {"__env__": spaces, "__env_single__": spaces}, None),
        called_with="the env (None in the main process), a dict of spaces, and the device (None)",
    )
    kinds = [piece._is_joint for piece in pieces]
    fits = not any(kinds) if is_joint is None else kinds == sorted(kinds, reverse=True)
    if is_connected and not fits:
        raise ConfigError(
            f"`{setting}` made {pieces!r:.200}. A MultiAgentObservationPreprocessor stands before "
            "the pieces that see one agent each, and needs an env of several agents. Put it first "
            "in the list."
        )
    if is_joint is not None:
        pieces = [piece for piece in pieces if piece._is_joint == is_joint]
    pipeline = ConnectorPipelineV2(connectors=pieces)
    if is_connected:
        place_pieces(
            pipeline,
            setting,
            "each sub-env, and each agent of it, has pieces of its own, or they would see each "
            "other's episodes",
            "env, spaces, device",
        )
        pipeline.connect(*spaces)
    return pipeline


def new_pieces(
    factory: Callable[..., Any], setting: str, arguments: Sequence[Any], *, called_with: str
) -> list[ConnectorV2]:
    """What a factory makes, called with as many of the arguments as it takes.

    Args:
        factory: returns a piece, or a list of them.
        setting: its name, for messages.
        arguments: for the factory.
        called_with: what they are, for messages.

    Raises:
        ConfigError: it raises, or gives something else than pieces.
    """
    try:
        made = factory(*arguments[: _num_positional(factory, len(arguments))])
    except Exception as error:
        raise ConfigError(
            f"`{setting}` raised {type(error).__name__}: {error}. It is called with {called_with}, "
            "or as many of these as it takes."
        ) from error
    pieces = list(made) if isinstance(made, list | tuple) else [made]
    wrong = [piece for piece in pieces if not isinstance(piece, ConnectorV2)]
    if wrong:
        raise ConfigError(
            f"`{setting}` made {wrong[0]!r:.80}; expected a ConnectorV2 of this package, or a list "
            "of such. Derive your class from `trainer.ConnectorV2`."
        )
    return pieces


def place_pieces(pipeline: ConnectorPipelineV2, setting: str, why_own: str, arguments: str) -> None:
    """Notes that the pieces work here, and nowhere else.

    Raises:
        ConfigError: one works somewhere already; `why_own` says why it must not, `arguments` how a
            function begins that makes a new one.
    """
    for piece in pieces_in(pipeline):
        if piece._is_placed:
            raise ConfigError(
                f"`{setting}` gave the same {piece.name} a second time; {why_own}. Make it in the "
                f"function: `lambda {arguments}: {piece.name}(...)`."
            )
        piece._is_placed = True


def _num_positional(factory: Callable[..., Any], at_most: int) -> int:
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):  # some callables written in C have no signature
        return at_most
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return at_most
    kinds = [p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters]
    return min(at_most, sum(kinds))


class PiecesOfAgent:
    """The pieces beside one agent of a sub-env, and the running episode as they see it.

    Attributes:
        observation_space: of what they show.
    """

    def __init__(
        self,
        env_to_module: ConnectorPipelineV2,
        module_to_env: ConnectorPipelineV2,
        spaces: tuple[Any, Any],
        agent_id: AgentId | None = None,
    ) -> None:
        """Begins before the first episode.

        Args:
            env_to_module: the pieces before the module.
            module_to_env: those behind it.
            spaces: of the env's observations and actions.
            agent_id: whose; None where there is a single agent.
        """
        self._env_to_module, self._module_to_env = env_to_module, module_to_env
        self._spaces, self._agent_id = spaces, agent_id
        self.observation_space = env_to_module.observation_space
        self.begin_view()

    def begin_view(self, seed: int | None = None) -> None:
        """A new episode as the pieces see it; its id follows from the seed of its env."""
        observation_space, action_space = self._spaces
        self._view = SingleAgentEpisode(
            f"{seed}",
            observation_space=observation_space,
            action_space=action_space,
            agent_id=self._agent_id,
        )

    def first(self, observation: Any, info: Any) -> Any:
        """The first observation of an episode as the pieces make it."""
        self._view.add_env_reset(copied(observation), info)
        return self._observed()

    def action(self, action: Any) -> Any:
        """An action of the module as the env gets it."""
        if not self._module_to_env:
            return action
        batch = self._called(self._module_to_env, {ACTIONS: [action], _FOR_ENV: [action]})
        batch = {ACTIONS: [action], _FOR_ENV: [action], **batch}
        for_env = _item(batch, _FOR_ENV, 0)
        return for_env if for_env is not action else _item(batch, ACTIONS, 0)

    def next(
        self, observation: Any, action: Any, reward: Any, info: Any, ends: tuple[bool, bool]
    ) -> Any:
        """The observation after an action, as the pieces make it.

        Args:
            observation: as the env gave it.
            action: as the env got it.
            reward: since that action.
            info: with the observation.
            ends: whether the agent was terminated, and truncated.
        """
        self._view.observation_space = self._spaces[0]
        self._view.append_step(copied(observation), copied(action), reward, info, *ends, None)
        return self._observed()

    def _observed(self) -> Any:
        batch = self._called(self._env_to_module, {})
        return newest_of(batch, self._view)

    def _called(self, pipeline: ConnectorPipelineV2, batch: dict[str, Any]) -> dict[str, Any]:
        called: dict[str, Any] = pipeline(
            rl_module=None,
            batch=batch,
            episodes=[self._view],
            explore=None,
            shared_data={},
            metrics=None,
        )
        return called

    def states(self) -> State:
        """What the pieces remember; empty for nothing."""
        states = {
            "env_to_module": self._env_to_module.get_state(),
            "module_to_env": self._module_to_env.get_state(),
        }
        return copy.deepcopy({name: state for name, state in states.items() if state})

    def set_states(self, states: State) -> None:
        """Goes on from what `states` gave."""
        states = copy.deepcopy(states)
        self._env_to_module.set_state(states.get("env_to_module", {}))
        self._module_to_env.set_state(states.get("module_to_env", {}))

    def view_state(self) -> State:
        """The running episode as the pieces see it, as plain data."""
        return self._view.get_state()

    def set_view_state(self, state: State) -> None:
        """Goes on with the episode that `view_state` gave."""
        observation_space, action_space = self._spaces
        self._view = SingleAgentEpisode.from_state(
            state, observation_space=observation_space, action_space=action_space
        )


class ConnectedLayer(gym.Wrapper[Any, Any, Any, Any], ABC):
    """The outermost layer of a sub-env whose config has connectors.

    Attributes:
        starts_from: what the pieces remember when an episode begins: for evaluation, whose episodes
            all begin alike. None lets each episode go on from the one before.
    """

    # What an env with a state of its own has to remember besides (`trainer.envs.env_state`).
    env_state_attributes = ("connector_state",)
    # What outlasts an episode is part of the slot's position: `carried`.
    is_carried_by_position = True

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.starts_from: State | None = None
        self._first = self._before = self._states()

    @abstractmethod
    def _states(self) -> State:
        """What the pieces remember; empty for nothing."""

    @abstractmethod
    def _set_states(self, states: State) -> None:
        """Goes on from what `_states` gave."""

    def _begin_episode(self) -> None:
        if self.starts_from is not None:
            self._set_states(self.starts_from)
        self._before = self._states()

    def carried(self, *, is_running: bool) -> State | None:
        """What the pieces remembered before the running episode, or now; None for nothing.

        Nor is there anything to carry where all episodes begin alike.
        """
        if self.starts_from is not None:
            return None
        return (self._before if is_running else self._states()) or None

    def go_on_from(self, carried: State | None) -> None:
        """Lets the pieces go on from what `carried` gave; None is what they began with."""
        self._set_states(self._first if carried is None else carried)
        self._before = self._states()

    def begin_every_episode_from(self, carried: State | None) -> None:
        """Lets every episode begin with what pieces elsewhere remembered; for evaluation."""
        self.starts_from = self._first if carried is None else carried


class ConnectedEnv(ConnectedLayer):
    """A sub-env of one agent with connector pieces."""

    def __init__(self, env: gym.Env[Any, Any], pieces: PiecesOfAgent) -> None:
        self._pieces = pieces
        super().__init__(env)
        self.observation_space = pieces.observation_space

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """The first observation as the pieces make it."""
        self._begin_episode()
        observation, info = self.env.reset(seed=seed, options=options)
        self._pieces.begin_view(seed)
        return self._pieces.first(observation, info), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """A step with the action as the pieces make it; the observation likewise."""
        action = self._pieces.action(action)
        observation, reward, terminated, truncated, info = self.env.step(action)
        shown = self._pieces.next(observation, action, reward, info, (terminated, truncated))
        return shown, reward, terminated, truncated, info

    def _states(self) -> State:
        return self._pieces.states()

    def _set_states(self, states: State) -> None:
        self._pieces.set_states(states)

    @property
    def connector_state(self) -> State:
        """What the pieces remember now, and the running episode as they see it."""
        return {"pieces": self._states(), "view": self._pieces.view_state()}

    @connector_state.setter
    def connector_state(self, state: State) -> None:
        self._set_states(state["pieces"])
        self._pieces.set_view_state(state["view"])


class ConnectedAgents(ConnectedLayer):
    """A sub-env of several agents with connector pieces of its own for each agent.

    An agent's pieces see its own episode: the observations that it got, its actions, and what it
    earned in between, however long it waited.

    Attributes:
        possible_agents: as inside.
        observation_spaces: {agent: space of what its pieces show}.
        action_spaces: {agent: space}, as inside.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        pieces: Mapping[AgentId, PiecesOfAgent],
        action_spaces: Mapping[AgentId, Any],
        together: ConnectorPipelineV2,
    ) -> None:
        self._pieces, self._together = dict(pieces), together
        self._open: dict[AgentId, tuple[Any, float]] = {}
        super().__init__(env)
        self.possible_agents = list(pieces)
        self.observation_spaces = {agent: own.observation_space for agent, own in pieces.items()}
        self.action_spaces = dict(action_spaces)

    def get_observation_space(self, agent_id: AgentId) -> Any:
        """The space of what an agent's pieces show."""
        return self.observation_spaces[agent_id]

    def get_action_space(self, agent_id: AgentId) -> Any:
        """The space of an agent's actions."""
        return self.action_spaces[agent_id]

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        """The first observations as the pieces make them."""
        self._begin_episode()
        answer: Any = self.env.reset(seed=seed, options=options)
        self._open = {}
        for own in self._pieces.values():
            own.begin_view(seed)
        if not _is_answer(answer, 2):
            return answer  # who reads it says what is wrong
        observations, infos = answer
        return self._shown(observations, {}, infos, {}, {}), infos

    def step(self, actions: Any) -> Any:
        """A step with the actions as the pieces make them; the observations likewise."""
        actions = {agent: self._pieces[agent].action(action) for agent, action in actions.items()}
        self._open |= {agent: (copied(action), 0.0) for agent, action in actions.items()}
        answer: Any = self.env.step(actions)
        if not _is_answer(answer, 5):
            return answer  # who reads it says what is wrong
        observations, rewards, terminateds, truncateds, infos = answer
        shown = self._shown(observations, rewards, infos, terminateds, truncateds)
        return shown, rewards, terminateds, truncateds, infos

    def _shown(
        self, observations: Any, rewards: Any, infos: Any, terminateds: Any, truncateds: Any
    ) -> dict[Any, Any]:
        for piece in self._together.connectors:
            observations = _preprocessed(piece, observations)
        for agent, reward in rewards.items():
            if agent in self._open:
                action, earned = self._open[agent]
                self._open[agent] = action, earned + reward
        shown = dict(observations)
        for agent in observations.keys() & self._pieces.keys():
            own, info = self._pieces[agent], infos.get(agent) or {}
            if agent not in self._open:
                shown[agent] = own.first(observations[agent], info)
                continue
            action, earned = self._open.pop(agent)
            flags = (terminateds, truncateds)
            terminated, truncated = (bool(f.get(agent) or f.get(ALL_AGENTS)) for f in flags)
            ends = terminated, truncated
            shown[agent] = own.next(observations[agent], action, earned, info, ends)
        return shown

    def _states(self) -> State:
        states = [[agent, own.states()] for agent, own in self._pieces.items()]
        remembered = [pair for pair in states if pair[1]]
        parts = {"agents": remembered, "together": copy.deepcopy(self._together.get_state())}
        return {name: part for name, part in parts.items() if part}

    def _set_states(self, states: State) -> None:
        remembered = dict(states.get("agents", ()))
        self._together.set_state(copy.deepcopy(states.get("together", {})))
        for agent, own in self._pieces.items():
            own.set_states(remembered.get(agent, {}))

    @property
    def connector_state(self) -> State:
        """What the pieces remember now, and the running episode as they see it."""
        return {
            "pieces": self._states(),
            "views": [[agent, own.view_state()] for agent, own in self._pieces.items()],
            "open": [[agent, action, earned] for agent, (action, earned) in self._open.items()],
        }

    @connector_state.setter
    def connector_state(self, state: State) -> None:
        self._set_states(state["pieces"])
        for agent, view in state["views"]:
            self._pieces[agent].set_view_state(view)
        self._open = {agent: (action, earned) for agent, action, earned in state["open"]}


def _preprocessed(piece: Any, observations: Mapping[AgentId, Any]) -> Mapping[AgentId, Any]:
    """What a piece makes of the observations of all agents."""
    given = {agent: copied(observation) for agent, observation in observations.items()}
    made: Any = piece.preprocess(given, None)
    if not isinstance(made, Mapping) or made.keys() != observations.keys():
        raise ConfigError(
            f"{piece.name}.preprocess() was given the observations of {list(observations)} and "
            f"returned {made!r:.200}; expected a dict with one for each of them."
        )
    return made


def _is_answer(answer: Any, length: int) -> bool:
    """Whether it is a tuple of so many dicts."""
    is_tuple = isinstance(answer, tuple) and len(answer) == length
    return is_tuple and all(isinstance(part, Mapping) for part in answer)
