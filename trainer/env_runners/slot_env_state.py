"""The state of one sub-env, and the ways back to where it stood: by its state, or else by replay.

of the running episode   reset with its seed, set_state, and whatever was played since
of an earlier moment     reset, set_state: what the env carries over; then the whole episode
none, or it fails        what known wrappers carried into the episode, and the whole episode;
                         the newest observation must be the recorded one
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gymnasium

from trainer.env_runners.observations import is_same
from trainer.env_runners.replay import Replay
from trainer.env_runners.spec import SlotPosition
from trainer.envs import EnvState

_ANY_SEED = 0


class SlotEnvState:
    """Takes the state of a sub-env when it is asked to, and brings the sub-env back to it.

    A state that cannot be taken or given back is not tried again: the sub-env is replayed then.

    Attributes:
        was_reset: the sub-env was reset since it was made; before, it has no state.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        self._is_given_up = False
        self._carried_over: bytes | None = None
        self._trouble = ""
        self._latest: bytes | None = None
        self._is_of_episode = False
        self.take_env(env)

    def take_env(self, env: gymnasium.Env[Any, Any]) -> None:
        """Gets a new env in place of one that failed, which stood where the latest state is."""
        self._env = env
        self._state = None if self._is_given_up else EnvState.of(env)
        is_unknown = self._state is None and not self._is_given_up
        self._carried = EnvState.carried(env) if is_unknown else None
        # For going back to before the first episode of all.
        is_at_hand = self._carried is not None and not self._carried.needs_reset
        self._carried_first = self._carried.take() if self._carried and is_at_hand else None
        self.was_reset = False

    # ---- taking

    def take(self, *, is_of_episode: bool) -> bytes | None:
        """The state now; None if it cannot be had.

        Args:
            is_of_episode: an episode runs.
        """
        if self._state is None or not (is_of_episode or self.was_reset):
            return None
        self._latest, self._is_of_episode = self._state.take(), is_of_episode
        if self._latest is None:
            self._give_up(f"it could not be taken: {self._state.trouble}")
        return self._latest

    def take_carried(self, *, is_of_episode: bool) -> bytes | None:
        """What wrappers carried into the running episode, or carry now if there is none.

        None if the state as a whole is known, if they carry nothing, and in the first episode.
        """
        if self._carried is not None and self.was_reset and not is_of_episode:
            self._carried_over = self._carried.take()
            if self._carried_over is None:
                self._give_up_carried(f"could not be taken: {self._carried.trouble}")
        return self._carried_over

    def before_reset(self, *, keeps_state: bool) -> None:
        """Notes what the env carries over into its next episode, or gives it to a new env.

        Args:
            keeps_state: also where the state is taken between requests anyway.
        """
        if self._carried is not None:
            if self.was_reset:
                self.take_carried(is_of_episode=False)
            elif self._carried_over is not None:
                self._carry_over()
        if not keeps_state:
            return
        if self.was_reset:
            self.take(is_of_episode=False)
        elif self._latest is not None:
            self._bring_back(self._latest)

    def episode_begins(self) -> None:
        """Notes that the latest state is of a time before the running episode."""
        self.was_reset, self._is_of_episode = True, False

    def take_trouble(self) -> str:
        """Why the state is used no longer, since last asked; empty if nothing happened."""
        trouble, self._trouble = self._trouble, ""
        return trouble

    def _give_up(self, why: str) -> None:
        self._trouble = self._trouble or why
        self._state, self._latest, self._is_given_up = None, None, True

    # ---- going back

    def bring_back(self, state: bytes | None, carried: bytes | None) -> None:
        """Brings the env to a state between two episodes, of the whole env or of its wrappers."""
        self._bring_back(state)
        self._carried_over = carried
        self._carry_over()

    def _carry_over(self) -> None:
        """Gives wrappers what they carried into the episode that is to be played next."""
        saved = self._carried_first if self._carried_over is None else self._carried_over
        if self._carried is None:
            if saved is not None:
                self._give_up_carried("was saved, but this env has no such wrappers")
            return
        if saved is None or (self._carried_over is None and not self.was_reset):
            return
        if self._carried.needs_reset:
            self._env.reset(seed=_ANY_SEED)
            self.was_reset = True
        if not self._carried.give_back(saved):
            self._give_up_carried(f"could not be given back: {self._carried.trouble}")

    def _give_up_carried(self, why: str) -> None:
        self._trouble = self._trouble or f"what wrappers carry from episode to episode {why}"
        self._carried, self._carried_over, self._carried_first = None, None, None

    def _bring_back(self, state: bytes | None) -> None:
        if state is None or not self._expects_state():
            return
        self._env.reset(seed=_ANY_SEED)
        self.was_reset = True
        if self._is_given_back(state):
            self._latest, self._is_of_episode = state, False

    def put_back(self, replay: Replay, position: SlotPosition) -> bool:
        """Brings the env to a position in the middle of an episode; whether it stands there."""
        self._latest = position.env_state
        self._is_of_episode = position.env_state is not None
        self._carried_over = position.carried_state
        return self._is_back(replay, position, since=())

    def put_back_running(
        self, replay: Replay, position: SlotPosition, *, since: tuple[Any, ...]
    ) -> bool:
        """Brings a new env to where the running episode stands; whether it stands there.

        Args:
            replay: plays in the new env.
            position: of the episode, with all of its actions.
            since: actions since the latest state was taken, if that was in this episode.
        """
        return self._is_back(replay, position, since=since)

    def _is_back(self, replay: Replay, position: SlotPosition, *, since: tuple[Any, ...]) -> bool:
        if self._latest is not None and not self._is_of_episode:
            self._bring_back(self._latest)
        elif self._latest is not None and self._expects_state():
            rest = replace(position, actions=since)
            if self._went_on(replay, rest, position.num_steps - rest.num_steps, self._latest):
                return True
        self._carry_over()
        self.was_reset = True
        return is_same(replay.from_reset(position), position.observation)

    def _went_on(self, replay: Replay, rest: SlotPosition, num_steps: int, state: bytes) -> bool:
        """Goes on from a state within the episode; whether that leads to the right place."""
        replay.reset(rest)
        self.was_reset = True
        replay.on_step()
        replay.enter_tasks_before(rest, num_steps)
        if not self._is_given_back(state):
            return False
        observation = replay.from_state(rest, num_steps)
        if not rest.num_steps:
            return True
        if is_same(observation, rest.observation):
            return True
        self._give_up("the same actions led from it to another observation")
        return False

    def _expects_state(self) -> bool:
        """Whether there is somebody to give a state to."""
        if self._state is None and not self._is_given_up:
            self._trouble = self._trouble or "there is one, but the env has no set_state now"
        return self._state is not None

    def _is_given_back(self, saved: bytes) -> bool:
        state = self._state
        if state is None:
            return False
        if state.give_back(saved):
            return True
        why = f"it could not be given back: {state.trouble}"
        if state.fits:
            self._give_up(why)
        else:  # of another env: those of this one may well be of use
            self._trouble, self._latest = self._trouble or why, None
        return False
