"""An env with connector pieces of the user's beside it: observations and actions go through them.

Pieces are made for each sub-env, so how sub-envs are spread over processes changes nothing. An
episode that is played again goes through them again, with the state that they had before it: so
repair and resume are exact, if a piece depends on nothing but its state and what it is given.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import gymnasium as gym
import numpy as np

from trainer.connectors.pieces import (
    ConnectorPipelineV2,
    ConnectorV2,
    MeanStdFilter,
    newest_of,
)
from trainer.episodes import SingleAgentEpisode, nested
from trainer.episodes.episode_columns import ACTIONS
from trainer.errors import ConfigError
from trainer.types import State

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
        """An env with new pieces beside it.

        Raises:
            ConfigError: a factory raises, or gives something else than pieces.
        """
        spaces = (env.observation_space, env.action_space)
        return ConnectedEnv(
            env,
            made_pipeline(self.env_to_module, "env_to_module_connector", env, spaces),
            made_pipeline(self.module_to_env, "module_to_env_connector", env, spaces),
        )

    def wants_mean_std_filter(self, observation_space: Any, action_space: Any) -> bool:
        """Whether `MeanStdFilter` is among the pieces before the module.

        Args:
            observation_space: of the module.
            action_space: of the module.
        """
        spaces = (observation_space, action_space)
        pipeline = made_pipeline(
            self.env_to_module, "env_to_module_connector", None, spaces, is_connected=False
        )
        return _has_filter(pipeline)


def _has_filter(pipeline: ConnectorPipelineV2) -> bool:
    return any(
        _has_filter(piece)
        if isinstance(piece, ConnectorPipelineV2)
        else isinstance(piece, MeanStdFilter)
        for piece in pipeline.connectors
    )


def made_pipeline(
    factory: _Factory | None,
    setting: str,
    env: Any,
    spaces: tuple[Any, Any],
    *,
    is_connected: bool = True,
) -> ConnectorPipelineV2:
    """The pieces that a factory makes, as a pipeline; it is called with as much as it takes.

    Args:
        factory: takes the env, the spaces by RLlib's names and the device, or fewer of them; None
            makes no piece.
        setting: its name, for messages.
        env: the env; None in the main process.
        spaces: of observations and actions.
        is_connected: False: the pieces are only looked at, and get no spaces.

    Raises:
        ConfigError: it raises, or gives something else than pieces.
    """
    if factory is None:
        return ConnectorPipelineV2(*spaces)
    arguments = (env, {"__env__": spaces, "__env_single__": spaces}, None)
    try:
        made = factory(*arguments[: _num_positional(factory)])
    except Exception as error:
        raise ConfigError(
            f"`{setting}` raised {type(error).__name__}: {error}. It is called with the env (None "
            "in the main process), a dict of spaces, and the device (None), or as many of these as "
            "it takes."
        ) from error
    pieces = list(made) if isinstance(made, list | tuple) else [made]
    wrong = [piece for piece in pieces if not isinstance(piece, ConnectorV2)]
    if wrong:
        raise ConfigError(
            f"`{setting}` made {wrong[0]!r:.80}; expected a ConnectorV2 of this package, or a list "
            "of such. Derive your class from `trainer.ConnectorV2`."
        )
    pipeline = ConnectorPipelineV2(connectors=pieces)
    if is_connected:
        pipeline.connect(*spaces)
    return pipeline


def _num_positional(factory: _Factory) -> int:
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):  # some callables written in C have no signature
        return 3
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return 3
    return min(3, sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters))


class ConnectedEnv(gym.Wrapper[Any, Any, Any, Any]):
    """The outermost layer of a sub-env whose config has connectors.

    Attributes:
        starts_from: what the pieces remember when an episode begins: for evaluation, whose episodes
            all begin alike. None lets each episode go on from the one before.
    """

    # What an env with a state of its own has to remember besides (`trainer.envs.env_state`).
    env_state_attributes = ("connector_state",)
    # What outlasts an episode is part of the slot's position: `carried`.
    is_carried_by_position = True

    def __init__(
        self,
        env: gym.Env[Any, Any],
        env_to_module: ConnectorPipelineV2,
        module_to_env: ConnectorPipelineV2,
    ) -> None:
        super().__init__(env)
        self._env_to_module, self._module_to_env = env_to_module, module_to_env
        self.observation_space = env_to_module.observation_space
        self._first = self._states()
        self._before = self._first
        self.starts_from: State | None = None
        self._begin_view()

    def _begin_view(self) -> None:
        """A new episode as the pieces see it."""
        self._view = SingleAgentEpisode(
            observation_space=self.env.observation_space, action_space=self.env.action_space
        )

    # ---- playing

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """The first observation as the pieces make it."""
        if self.starts_from is not None:
            self._set_states(self.starts_from)
        self._before = self._states()
        observation, info = self.env.reset(seed=seed, options=options)
        self._begin_view()
        self._view.add_env_reset(_copied(observation), info)
        return self._observed(), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """A step with the action as the pieces make it; the observation likewise."""
        if self._module_to_env:
            action = self._action_for_env(action)
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._view.observation_space = self.env.observation_space
        self._view.append_step(
            _copied(observation), _copied(action), reward, info, terminated, truncated, None
        )
        return self._observed(), reward, terminated, truncated, info

    def _observed(self) -> Any:
        batch = self._called(self._env_to_module, {})
        return newest_of(batch, self._view)

    def _action_for_env(self, action: Any) -> Any:
        batch = self._called(self._module_to_env, {ACTIONS: [action], _FOR_ENV: [action]})
        if batch.get(_FOR_ENV, [action])[0] is not action:
            return batch[_FOR_ENV][0]
        return batch.get(ACTIONS, [action])[0]

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

    # ---- what the pieces remember

    def _states(self) -> State:
        states = {
            "env_to_module": self._env_to_module.get_state(),
            "module_to_env": self._module_to_env.get_state(),
        }
        return copy.deepcopy({name: state for name, state in states.items() if state})

    def _set_states(self, states: State) -> None:
        states = copy.deepcopy(states)
        self._env_to_module.set_state(states.get("env_to_module", {}))
        self._module_to_env.set_state(states.get("module_to_env", {}))

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

    @property
    def connector_state(self) -> State:
        """What the pieces remember now, and the running episode as they see it."""
        return {"pieces": self._states(), "view": self._view.get_state()}

    @connector_state.setter
    def connector_state(self, state: State) -> None:
        self._set_states(state["pieces"])
        self._view = SingleAgentEpisode.from_state(
            state["view"],
            observation_space=self.env.observation_space,
            action_space=self.env.action_space,
        )


def _copied(value: Any) -> Any:
    """A copy of arrays, which an env may use again."""
    return nested.map_leaves(
        lambda leaf: np.array(leaf) if isinstance(leaf, np.ndarray) else leaf, value
    )
