"""Where the slots of a group stand, for checkpoints and for undoing."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from checkpoints import check_shape
from trainer.curriculum import TaskInForce, same_task
from trainer.env_runners.async_calls import AsyncCalls
from trainer.env_runners.group_parts import GroupParts
from trainer.env_runners.group_sample import GroupSample
from trainer.env_runners.position_shape import group_state
from trainer.env_runners.spec import SlotPosition
from trainer.types import State

_LOGGER = logging.getLogger(__name__)


class GroupState(GroupParts):
    """Adds `get_state` and `set_state` to a group."""

    @property
    def num_slots(self) -> int:
        """Sub-envs of all runners together."""
        return sum(place.spec.num_envs for place in self._places.values())

    def get_state(self) -> State:
        """Where all slots stand, and the state of every runner's callbacks: plain data.

        Calls of users' functions that nobody waits for are waited for: what they change belongs to
        it.
        """
        if isinstance(self._open, AsyncCalls):
            self._finish_open()
        slots = [
            position.to_state() for place in self._places.values() for position in place.positions
        ]
        lost = [self._num_episodes_lost, self._num_env_steps_lost]
        return {
            "slots": slots,
            "callbacks": self.get_callback_states(),
            "is_continued": any(place.is_continued for place in self._places.values()),
            **({"lost": lost} if any(lost) else {}),
        }

    def check_state(self, state: State) -> None:
        """Raises a CheckpointMismatchError unless `set_state` will take it; changes nothing."""
        check_shape(state, group_state(self.module_spec))

    def ways_back(self) -> list[str | None]:
        """How each slot's running episode would be put back; None where none runs."""
        return [
            None
            if position.env_seed is None
            else ("replay" if position.env_state is None else "env_state")
            for place in self._places.values()
            for position in place.positions
        ]

    def get_callback_states(self) -> State:
        """The state of every runner's callbacks, by the runner's number; 1 for a local one."""
        states = {str(max(1, index)): place.callbacks for index, place in self._places.items()}
        return {index: state for index, state in states.items() if state is not None}

    def set_state(self, state: State) -> None:
        """Puts all slots where they stood, with the next request.

        Calls of users' functions that nobody waits for are ended: they are no part of the state.

        The slots are taken in order, however many runners there were. If there were fewer slots
        than there are now, the rest begins with fresh episodes, of numbers that nobody had; if
        there were more, the rest of them is dropped: with the next sample, a warning says so, and
        their running episodes are counted as lost. Fresh slots have the task of all others if that
        is one, else the first one of their env. Callback state goes to the runner of the same
        number; a warning names the numbers that there is no runner for.
        """
        if not {"slots", "callbacks", "is_continued"} <= state.keys():
            self.check_state(state)
        if isinstance(self._open, AsyncCalls):
            self._abandon_open()
        positions = [SlotPosition.from_state(slot) for slot in state["slots"]]
        self._warn_of_dropped_callbacks(state["callbacks"])
        self._num_episodes_lost, self._num_env_steps_lost = state.get("lost", (0, 0))
        self._give_up_without_slot(positions[self.num_slots :])
        fresh = max((position.episode_number + 1 for position in positions), default=0)
        positions = self._without_unknown_tasks(positions)
        tasks = tasks_for_fresh_slots(positions)
        positions += [SlotPosition(fresh, tasks=tasks)] * (self.num_slots - len(positions))
        for index, place in self._places.items():
            first = place.spec.first_slot
            place.positions = tuple(positions[first : first + place.spec.num_envs])
            place.untold_tasks = {}
            place.fill_in_tasks()
            # 0 runners are the same program as 1: the runner of the main process has the state of
            # the first one of a group of processes.
            saved = state["callbacks"].get(str(max(1, index)))
            place.callbacks = place.first_callbacks if saved is None else saved
            place.is_ahead = True
            place.is_continued = state["is_continued"]

    def _give_up_without_slot(self, dropped: Sequence[SlotPosition]) -> None:
        """Counts the running episodes of slots that there is no room for.

        The next sample tells it: who restores only to evaluate or to act drops nothing.
        """
        self._untold_drop = ""
        spec = next(iter(self._places.values())).spec
        if not dropped or spec.in_evaluation:  # evaluations begin with fresh episodes anyway
            return
        running = [position for position in dropped if position.env_seed is not None]
        num_steps = sum(position.num_steps for position in running)
        self._num_episodes_lost += len(running)
        self._num_env_steps_lost += num_steps
        self._untold_drop = (
            f"The restored state has {self.num_slots + len(dropped)} env slots, and there are only "
            f"{self.num_slots} here: the last {len(dropped)} are dropped, with {len(running)} "
            f"running episode(s) of {num_steps} env steps so far (counted in num_episodes_lost and "
            "num_env_steps_lost). To go on exactly, restore with as many slots: "
            f"num_env_runners * num_envs_per_env_runner = {self.num_slots + len(dropped)}."
        )

    def _with_losses(self, sample: GroupSample) -> GroupSample:
        """The sample, with what was lost since the last one."""
        self.num_sub_env_restarts += sample.num_sub_env_restarts
        sample = replace(
            sample,
            num_episodes_lost=sample.num_episodes_lost + self._num_episodes_lost,
            num_env_steps_lost=sample.num_env_steps_lost + self._num_env_steps_lost,
        )
        self._num_episodes_lost = self._num_env_steps_lost = 0
        if self._untold_drop:
            _LOGGER.warning(self._untold_drop)
            self._untold_drop = ""
        return sample

    def _warn_of_dropped_callbacks(self, callbacks: State) -> None:
        dropped = sorted(callbacks.keys() - {str(max(1, index)) for index in self._places}, key=int)
        if dropped:
            _LOGGER.warning(
                "The callback state of env runner(s) %s is dropped: there are only %d now. See "
                "docs/callbacks.md, State.",
                ", ".join(dropped),
                len(self._places),
            )

    def _without_unknown_tasks(self, positions: list[SlotPosition]) -> list[SlotPosition]:
        """The positions as the envs can take them: without tasks, if the envs know none."""
        lacks = next((place.why_no_tasks for place in self._places.values()), "")
        if not lacks or not any(position.tasks for position in positions):
            return positions
        _LOGGER.warning(
            "The tasks of the saved envs are dropped: the env %r cannot be given any: %s.",
            next(iter(self._places.values())).spec.env_factory.name,
            lacks,
        )
        return [position.without_tasks() for position in positions]


def tasks_for_fresh_slots(positions: Sequence[SlotPosition]) -> tuple[TaskInForce, ...]:
    """What slots begin with that a state does not know: the task of all others, if it is one.

    Returns:
        the task as `SlotPosition.tasks`; empty for the env's first one.
    """
    known = [position.task_now for position in positions]
    if not known or not all(known):
        return ()
    is_one = all(same_task(task[0].task, known[0][0].task) for task in known)
    return known[0] if is_one else ()
