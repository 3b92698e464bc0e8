"""Where the slots of a group stand, for checkpoints and for undoing; what such states look like."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from callbacks.chain import CHAIN_STATE
from trainer.env_runners.messages import SlotPosition
from trainer.envs.tasks import TaskInForce
from trainer.episodes import MultiAgentEpisode, SingleAgentEpisode, nested
from trainer.episodes.episode_columns import is_number
from trainer.episodes.episode_state import EPISODE_STATE
from trainer.episodes.multi_agent_state import why_not_of_agents
from trainer.errors import EpisodeError
from trainer.modules import ByModule, RLModuleSpec
from trainer.runner_group.records import RunnerRecords
from trainer.types import AgentId, Array, State
from trainer_toolkit import checks
from trainer_toolkit.plain_classes import check_of, from_plain, to_plain
from trainer_toolkit.trees import same
from trainer_toolkit.undo import Undo

_LOGGER = logging.getLogger(__name__)

# ---- position shape
#
# What the saved positions of env slots look like, to be compared before they are taken. A runner
# takes a position with its next request, possibly in another process: too late to refuse it. What
# runners take from an env (`trainer.envs.env_checks`) is taken here, too: a user who could train
# with an env, however loosely it keeps to its spaces, must be able to go on with it.


CALLBACK_STATES: Final = checks.dict_of(CHAIN_STATE)
"""Of the callbacks of runners, by the runner's number."""


def group_state(
    module_specs: ByModule[RLModuleSpec], *, agents: Collection[AgentId] | None = None
) -> checks.Check:
    """The check for the state of an `EnvRunnerGroup`; the specs know the spaces of the envs."""
    return checks.fields(
        {
            "slots": slots_of(module_specs, agents=agents),
            "callbacks": CALLBACK_STATES,
            "is_continued": checks.FLAG,
        },
        optional={
            "lost": checks.list_of(checks.COUNT, length=2),
            "known_modules": checks.list_of(checks.TEXT),
        },
    )


def slots_of(
    module_specs: ByModule[RLModuleSpec], *, agents: Collection[AgentId] | None = None
) -> checks.Check:
    """The check for the positions of env slots; arguments as in `group_state`."""
    if agents is not None:
        return checks.list_of(_slot_of_agents(agents))
    module_spec = module_specs.only

    def slot(value: Any, place: str) -> Iterator[str]:
        problems = list(check_of(SlotPosition)(value, place))
        problems = problems or [
            problem
            for chunk, inside in _chunks(value, place)
            for problem in EPISODE_STATE(chunk, inside)
        ]
        yield from problems or _slot_problems(value, place, module_spec)

    def slots(value: Any, place: str) -> Iterator[str]:
        problems = list(of_slots(value, place))
        yield from problems or _unlike_each_other(value, place)

    of_slots = checks.list_of(checks.by_place("a slot", slot))
    return checks.by_place("a list of slots", slots)


def _slot_of_agents(agents: Collection[AgentId]) -> checks.Check:
    """The check for the position of a slot in which several agents play."""

    def slot(value: Any, place: str) -> Iterator[str]:
        problems = list(check_of(SlotPosition)(value, place))
        yield from problems or _joint_problems(value, place, agents)

    return checks.by_place("a slot", slot)


def _joint_problems(slot: dict[str, Any], place: str, agents: Collection[AgentId]) -> Iterator[str]:
    parts = [slot["env_seed"], slot["episode"], slot["observation"]]
    if all(part is None for part in parts):
        if slot["actions"]:
            yield f"{place}['actions'] is of an episode, but none runs"
        return
    if any(part is None for part in parts):
        yield f"{place} has only a part of 'env_seed', 'observation' and 'episode': all or none"
        return
    for chunk, inside in _chunks(slot, place):
        try:
            episode = MultiAgentEpisode.from_state(chunk)
        except EpisodeError as error:
            yield f"{inside} is no episode of several agents: {error}"
            return
        if list(episode.possible_agents or ()) != list(agents):
            yield f"{inside} is of the agents {episode.possible_agents}, expected {list(agents)}"
            return
        if problem := why_not_of_agents(chunk, agents):
            yield f"{inside}{problem}"
            return
    joint = [("observation", slot["observation"])]
    joint += [(f"actions'][{index}", chunk) for index, chunk in enumerate(slot["actions"])]
    for name, value in joint:
        is_fit = isinstance(value, tuple) and len(value) == len(agents)
        if not is_fit or not all(isinstance(part, tuple) and len(part) <= 2 for part in value):
            yield f"{place}['{name}'] is {checks.described(value)}, expected a part for each agent"
            return
    steps = sum(nested.batch_length(chunk) for chunk in slot["actions"])
    if steps != slot["episode"]["env_t"]:
        yield (
            f"{place}['actions'] are of {steps} env steps, but the episode has "
            f"{slot['episode']['env_t']}"
        )


def _slot_problems(slot: dict[str, Any], place: str, spec: RLModuleSpec) -> Iterator[str]:
    running = [slot["env_seed"], slot["episode"], slot["observation"]]
    if all(value is None for value in running):
        if slot["actions"]:
            yield f"{place}['actions'] is of an episode, but none runs"
        return
    if slot["env_seed"] is None or slot["episode"] is None:
        yield f"{place} has only a part of 'env_seed', 'observation' and 'episode': all or none"
        return
    episode = slot["episode"]
    yield from _element(spec.observation_space)(slot["observation"], f"{place}['observation']")
    for chunk, inside in _chunks(slot, place):
        yield from _chunk_problems(chunk, inside, spec)
    yield from _action_problems(slot["actions"], f"{place}['actions']", spec, steps=episode["t"])


def _unlike_each_other(slots: list[dict[str, Any]], place: str) -> Iterator[str]:
    """Whether the module's outputs look the same in all running episodes."""
    example: dict[str, Any] = {}
    for index, slot in enumerate(slots):
        rows, inside = _newest_outputs(slot), f"{place}[{index}]['episode']['extra_model_outputs']"
        example = example or rows
        for name, row in rows.items():
            if not isinstance(row, np.ndarray | np.generic | int | float | dict):
                yield f"{inside}[{name!r}] holds {checks.described(row)}, expected numbers"
            # They may be missing where random actions were played; they are not learnt from.
            elif name in example:
                yield from checks.like(example[name])(row, f"{inside}[{name!r}]")


def _newest_outputs(slot: dict[str, Any]) -> dict[str, Any]:
    """What the module gave beside the last action, by name; {} if no step was made."""
    outputs = (slot["episode"] or {}).get("extra_model_outputs", {})
    rows = {name: column for name, column in outputs.items() if isinstance(column, list)}
    return {name: column[-1] for name, column in rows.items() if column}


def _chunks(slot: dict[str, Any], place: str) -> Iterator[tuple[dict[str, Any], str]]:
    if slot["episode"] is not None:
        yield slot["episode"], f"{place}['episode']"
    for index, chunk in enumerate(slot["earlier_chunks"]):
        yield chunk, f"{place}['earlier_chunks'][{index}]"


def _chunk_problems(chunk: dict[str, Any], place: str, spec: RLModuleSpec) -> Iterator[str]:
    """Whether an episode can be made of it, and its rows are of the spaces."""
    try:
        SingleAgentEpisode.from_state(chunk)
    except Exception as error:  # noqa: BLE001 - whatever it is, no episode can be made of that
        yield f"{place} is no episode: {type(error).__name__}: {error}"
        return
    if isinstance(chunk["observations"], list):  # else arrays, of a chunk that is finished
        for index, row in enumerate(chunk["observations"]):
            yield from _element(spec.observation_space)(row, f"{place}['observations'][{index}]")
    if isinstance(chunk["actions"], list):
        for index, row in enumerate(chunk["actions"]):
            yield from _element(spec.action_space)(row, f"{place}['actions'][{index}]")
    for name in ("rewards", "earlier_return"):
        values = chunk[name]
        if isinstance(values, list):
            yield from checks.list_of(_REWARD)(values, f"{place}[{name!r}]")
    for name, rows in chunk["extra_model_outputs"].items():
        if isinstance(rows, list):
            for index, row in enumerate(rows):
                yield from checks.like(rows[0])(
                    row, f"{place}['extra_model_outputs'][{name!r}][{index}]"
                )


_REWARD: Final = checks.Check("a number", is_number)


def _action_problems(
    chunks: list[Any], place: str, spec: RLModuleSpec, *, steps: int
) -> Iterator[str]:
    problems = []
    total = 0
    for index, chunk in enumerate(chunks):
        problems += list(_element(spec.action_space, rows=True)(chunk, f"{place}[{index}]"))
        if not problems:
            total += nested.batch_length(chunk)
    if not problems and total != steps:
        problems.append(f"{place} are of {total} steps, but the episode has {steps}")
    yield from problems


def _element(space: gym.Space[Any] | None, *, rows: bool = False) -> checks.Check:
    """The check for an element of a space, or for an array with a row for each of several."""
    if isinstance(space, spaces.Dict):
        return checks.fields({key: _element(part, rows=rows) for key, part in space.spaces.items()})
    if isinstance(space, spaces.Tuple):
        return _tuple_of([_element(part, rows=rows) for part in space.spaces])
    if space is None or space.shape is None:
        return checks.anything()
    shape, is_float = space.shape, np.issubdtype(space.dtype or np.float64, np.floating)
    kinds = "fiub" if is_float or isinstance(space, spaces.MultiBinary) else "iub"

    def problems(value: Any, place: str) -> Iterator[str]:
        found = _as_array(value)
        if found is None:
            yield f"{place} is {checks.described(value)}, expected an element of {space}"
        elif found.shape[rows:] != shape or (rows and not found.ndim):
            expected = ("n", *shape) if rows else shape
            yield f"{place} has shape {found.shape}, expected {expected}"
        elif found.dtype.kind not in kinds:
            yield f"{place} has dtype {found.dtype}, expected {space.dtype}"

    return checks.by_place(f"an element of {space}", problems)


def _as_array(value: Any) -> Array | None:
    """The array that a leaf of an observation or action is or becomes; None if it becomes none."""
    if not isinstance(value, np.ndarray | np.generic | int | float | list):
        return None
    try:
        return np.asarray(value)
    except (ValueError, OverflowError):  # rows of different lengths
        return None


def _tuple_of(parts: list[checks.Check]) -> checks.Check:
    def problems(value: Any, place: str) -> Iterator[str]:
        if type(value) is not tuple or len(value) != len(parts):
            yield f"{place} is {checks.described(value)}, expected a tuple of {len(parts)}"
            return
        for index, (part, entry) in enumerate(zip(parts, value, strict=True)):
            yield from part(entry, f"{place}[{index}]")

    return checks.by_place(f"a tuple of {len(parts)}", problems)


# ---- group state


def _in_one_chunk(position: SlotPosition) -> SlotPosition:
    """The position with its actions in one batch, however many requests it took to play them.

    Those of several agents, who act in other steps in every chunk, stay as they are.
    """
    if len(position.actions) < 2 or "modules" in (position.episode or {}):
        return position
    return replace(position, actions=(nested.concatenate(*position.actions),))


class SlotStates:
    """The state of a group: where its slots stand, and the callbacks of its runners."""

    def __init__(self, records: RunnerRecords) -> None:
        self._records = records
        self._keeps_known_modules = False
        # What the next sample says about slots of a restored state; empty for nothing.
        self._drop_to_log = ""

    def get_state(self) -> State:
        """Where all slots stand, and the state of every runner's callbacks: plain data."""
        records = self._records
        lost = [records.num_episodes_lost, records.num_env_steps_lost]
        return {
            "slots": [to_plain(_in_one_chunk(position)) for position in records.positions()],
            "callbacks": self.get_callback_states(),
            "is_continued": any(record.taken.is_continued for record in records),
            **({"lost": lost} if any(lost) else {}),
            **self.known_modules(),
        }

    def mark(self) -> Undo:
        """What puts all slots back to where they stand now, with the next request."""
        records, marks = self._records, [record.mark() for record in self._records]
        lost = records.num_episodes_lost, records.num_env_steps_lost
        drop_to_log, keeps_known_modules = self._drop_to_log, self._keeps_known_modules

        def undo() -> None:
            for mark in marks:
                mark()
            records.num_episodes_lost, records.num_env_steps_lost = lost
            self._drop_to_log, self._keeps_known_modules = drop_to_log, keeps_known_modules

        return undo

    def known_modules(self) -> State:
        """The modules that callbacks were told of, where they have changed in the run."""
        stands = [record.taken for record in self._records]
        known = [one.known_modules for one in stands if one.known_modules is not None]
        has_changed = self._records.table.version or self._keeps_known_modules
        if not has_changed or not known:
            return {}
        return {"known_modules": sorted(frozenset.intersection(*known))}

    def set_known_modules(self, state: State) -> None:
        """Takes back what `known_modules` gave; without it, callbacks know of all modules."""
        # An evaluation takes the changed modules over when it begins.
        self._keeps_known_modules = "known_modules" in state
        there = frozenset(self._records.table.specs)
        for record in self._records:
            record.known_modules = frozenset(state.get("known_modules", there))

    def ways_back(self) -> list[str | None]:
        """How each slot's running episode would be put back; None where none runs."""
        without_state = "lost" if self._records.spec.has_vector_env else "replay"
        return [
            None
            if position.env_seed is None
            else (without_state if position.env_state is None else "env_state")
            for position in self._records.positions()
        ]

    def get_callback_states(self) -> State:
        """The state of every runner's callbacks, by the runner's number; 1 for a local one."""
        states = {
            str(max(1, index)): record.taken.callbacks
            for index, record in self._records.by_index.items()
        }
        return {index: state for index, state in states.items() if state is not None}

    def set_state(self, state: State) -> None:
        """Puts all slots where they stood, with the next request.

        The slots are taken in order, however many runners there were. If there were fewer slots
        than there are now, the rest begins with fresh episodes, of unused numbers; if
        there were more, the rest of them is dropped: with the next sample, a warning says so, and
        their running episodes are counted as lost. Fresh slots have the task of all others if that
        is one, else the first one of their env. Callback state goes to the runner of the same
        number; a warning names the numbers that there is no runner for.
        """
        records = self._records
        positions = [from_plain(SlotPosition, slot) for slot in state["slots"]]
        self.set_known_modules(state)
        self._warn_of_dropped_callbacks(state["callbacks"])
        records.num_episodes_lost, records.num_env_steps_lost = state.get("lost", (0, 0))
        self._give_up_without_slot(positions[records.num_slots :])
        fresh = max((position.episode_number + 1 for position in positions), default=0)
        positions = self._without_unknown_tasks(positions)
        tasks = tasks_for_fresh_slots(positions)
        positions += [SlotPosition(fresh, tasks=tasks)] * (records.num_slots - len(positions))
        for index, record in records.by_index.items():
            first = record.spec.first_slot
            record.go_to(
                tuple(positions[first : first + record.spec.num_envs]),
                # 0 runners are the same program as 1: the runner of the main process has the state
                # of the first one of a group of processes.
                state["callbacks"].get(str(max(1, index))),
                is_continued=state["is_continued"],
            )

    def _give_up_without_slot(self, dropped: Sequence[SlotPosition]) -> None:
        """Counts the running episodes of slots that there is no room for.

        The next sample tells it: who restores only to evaluate or to act drops nothing.
        """
        self._drop_to_log = ""
        num_slots = self._records.num_slots
        if (
            not dropped or self._records.spec.in_evaluation
        ):  # evaluations begin with fresh episodes anyway
            return
        running = [position for position in dropped if position.env_seed is not None]
        num_steps = sum(position.num_steps for position in running)
        self._records.add_losses(len(running), num_steps)
        self._drop_to_log = (
            f"The restored state has {num_slots + len(dropped)} env slots, and there are only "
            f"{num_slots} here: the last {len(dropped)} are dropped, with {len(running)} "
            f"running episode(s) of {num_steps} env steps so far (counted in num_episodes_lost and "
            "num_env_steps_lost). To go on exactly, restore with as many slots: "
            f"num_env_runners * num_envs_per_env_runner = {num_slots + len(dropped)}."
        )

    def log_drop(self) -> None:
        """Logs once which slots of a restored state were dropped."""
        if self._drop_to_log:
            _LOGGER.warning(self._drop_to_log)
            self._drop_to_log = ""

    def _warn_of_dropped_callbacks(self, callbacks: State) -> None:
        dropped = sorted(
            callbacks.keys() - {str(max(1, index)) for index in self._records.by_index}, key=int
        )
        if dropped:
            _LOGGER.warning(
                "The callback state of env runner(s) %s is dropped: there are only %d now. See "
                "docs/callbacks.md, State.",
                ", ".join(dropped),
                len(self._records.by_index),
            )

    def _without_unknown_tasks(self, positions: list[SlotPosition]) -> list[SlotPosition]:
        """The positions as the envs can take them: without tasks, if the envs know none."""
        lacks = self._records.by_index[min(self._records.by_index)].why_no_tasks
        if not lacks or not any(position.tasks for position in positions):
            return positions
        _LOGGER.warning(
            "The tasks of the saved envs are dropped: the env %r cannot be given any: %s.",
            self._records.spec.env_factory.name,
            lacks,
        )
        return [replace(position, tasks=()) for position in positions]


def tasks_for_fresh_slots(positions: Sequence[SlotPosition]) -> tuple[TaskInForce, ...]:
    """What slots begin with that a state does not know: the task of all others, if it is one.

    Returns:
        the task as `SlotPosition.tasks`; empty for the env's first one.
    """
    known = [position.task_now for position in positions]
    if not known or not all(known):
        return ()
    is_one = all(same(task[0].task, known[0][0].task) for task in known)
    return known[0] if is_one else ()
