"""Drives the controller of experiments without processes: delays, kills and restores by a seed."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trainer.tune.controller import Controller
from trainer.tune.events import (
    CheckpointRef,
    CountRow,
    EndExperiment,
    EndTrial,
    PauseTrial,
    StartTrial,
)
from trainer.tune.journal_entries import CommittedEntry, Reported, TrialOver, move_from_plain
from trainer.tune.plan import ExperimentPlan
from trainer.tune.schedulers import FIFOScheduler
from trainer.tune.search_space import SearchSpace
from trainer.tune.searchers import BasicVariantGenerator
from trainer.tune.stoppers import StopCriteria

RowMaker = Callable[[Mapping[str, Any], float, int], tuple[float, float] | Exception | None]
"""(config, state before, row number) -> (new state, score); None: returned; or its error."""


def default_rows(config, state, row_number):
    """A curve whose height and slope follow from `x`."""
    state = state + config.get("x", 1.0) * math.exp(-row_number / 7)
    return state, state


def make_plan(space=None, *, searcher=None, scheduler=None, stop=None, **changes):
    """A plan with defaults that suit most tests; made anew for each restore."""
    given = {
        "metric": "score",
        "mode": "max",
        "seed": 7,
        "num_samples": 6,
        "num_lanes": 2,
        "cpus": 64.0,
        "cpus_of": lambda config: 1.0,
        **changes,
    }
    return ExperimentPlan(
        space=SearchSpace(space or {}),
        searcher=searcher or BasicVariantGenerator(),
        scheduler=scheduler or FIFOScheduler(),
        stop=StopCriteria({"training_iteration": 4} if stop is None else stop),
        **given,
    )


@dataclass
class Process:
    """A trial's process: what it delivered, and what its state is."""

    start: StartTrial
    state: float
    row_number: int
    is_over: bool = False


@dataclass
class Outcome:
    """What an experiment came to, in a form that is compared."""

    rows: dict[tuple[int, int], float] = field(default_factory=dict)
    journal: list[dict[str, Any]] = field(default_factory=list)
    ends: dict[int, tuple[str, str]] = field(default_factory=dict)
    configs: dict[int, Any] = field(default_factory=dict)
    reason: str = ""

    def decided(self):
        """The journal without notes about checkpoints."""
        return [each for each in self.journal if not is_checkpoint(each)]

    def entries(self):
        """Causes and consequences of all moves, in order."""
        found = []
        for move in self.decided():
            found += [move["cause"]] if "cause" in move else []
            found += move.get("then", [])
        return found


def is_checkpoint(move):
    """Whether a line of the journal says that a checkpoint is there."""
    return bool(move.get("cause", {}).get("event") == "checkpoint")


class Simulation:
    """Carries out what a controller says, in memory.

    Args:
        make: gives the plan, anew for each restore.
        seed: of delays, kills, and how far processes run ahead.
        kill_every: kills the tuner with this probability after each event.
        tear: also tears lines off the journal's end when it is killed.
        run_ahead: rows that a process may be ahead.
    """

    def __init__(self, make, *, rows=default_rows, seed=0, kill_every=0.0, tear=True, run_ahead=2):
        self.make, self.row_maker, self.run_ahead = make, rows, run_ahead
        self.rng = np.random.default_rng(seed)
        self.kill_every, self.tear = kill_every, tear
        self.processes = {}
        self.states = {}  # what checkpoints hold: nothing is lost
        self.made = {}  # what is in the files of trials
        self.outcome = Outcome()
        self.controller = Controller(make())
        self.num_kills = 0
        # Kills after three of ten events, with five lanes that run ahead: 31,000 were needed.
        self.max_events = 200_000

    def run(self):
        """Until the experiment is over."""
        self.carry_out(self.controller.begin())
        return self.run_on()

    def run_on(self):
        """Until the end, from where it stands."""
        for _ in range(self.max_events):
            if self.controller.is_done:
                for trial in self.controller.trials:
                    self.outcome.configs[trial.number] = dict(trial.params)
                return self.outcome
            self.carry_out(self.controller.take(self.next_event()))
            if self.rng.random() < self.kill_every:
                self.restore()
        raise AssertionError(f"no end after {self.max_events} events")

    def restore(self):
        """Kills everything and begins again from the journal."""
        self.num_kills += 1
        self.processes.clear()
        journal = self.outcome.journal
        if self.tear:
            self.tear_off(journal)
        self.controller = Controller(self.make())
        moves = [move_from_plain(each) for each in json.loads(json.dumps(journal))]
        self.carry_out(self.controller.replay(moves, self.whole_row))

    def tear_off(self, journal):
        """Loses lines at the end, as far as they were not synced or not written yet."""
        for _ in range(int(self.rng.integers(4))):
            # Synced lines may be lost only if not acted on; here all may but checkpoints.
            if len(journal) > 1 and not is_checkpoint(journal[-1]):
                journal.pop()

    def whole_row(self, trial, row_number):
        """A row that was counted or reported."""
        return {"score": self.made[trial, row_number], "training_iteration": row_number}

    # ---- processes

    def next_event(self):
        """What some process delivers next."""
        able = [each for each in self.processes.values() if self.can_go_on(each)]
        assert able, "all wait for each other"
        process = able[int(self.rng.integers(len(able)))]
        return self.advance(process)

    def can_go_on(self, process):
        if process.is_over:
            return False
        decided = self.controller.trials[process.start.trial].num_rows
        return process.row_number - decided <= self.run_ahead

    def advance(self, process):
        """Lets a process make its next row."""
        start = process.start
        made = self.row_maker(start.config, process.state, process.row_number + 1)
        if made is None or isinstance(made, Exception):
            process.is_over = True
            how = "returned" if made is None else "failed"
            error = None if made is None else str(made)
            return TrialOver(start.trial, start.start_number, how, error)
        process.row_number += 1
        process.state, score = made
        self.states[CheckpointRef(start.trial, process.row_number)] = process.state
        self.made[start.trial, process.row_number] = score
        row = {"score": score, "training_iteration": process.row_number}
        return Reported(start.trial, start.start_number, process.row_number, row)

    # ---- actions

    def carry_out(self, steps):
        """Journals first, then acts."""
        for step in steps:
            self.write(step)
            for action in step.actions:
                self.act(action)

    def write(self, step):
        if step.move is not None:
            self.outcome.journal.append(step.move.to_plain())

    def act(self, action):
        if isinstance(action, StartTrial):
            self.processes[action.trial] = self.started(action)
        elif isinstance(action, PauseTrial):
            self.processes.pop(action.trial, None)
            self.commit(CheckpointRef(action.trial, action.row_number))
        elif isinstance(action, EndTrial):
            self.processes.pop(action.trial, None)
            self.outcome.ends[action.trial] = (action.status.value, action.reason)
            if action.should_save:
                self.commit(CheckpointRef(action.trial, action.row_number))
        elif isinstance(action, CountRow):
            self.outcome.rows[action.trial, action.row_number] = action.row["score"]
            if action.should_save:
                self.commit(CheckpointRef(action.trial, action.row_number))
        elif isinstance(action, EndExperiment):
            self.outcome.reason = action.reason

    def commit(self, ref):
        name = f"{ref.row_number:06d}"
        (step,) = self.controller.take(CommittedEntry(ref.trial, ref.row_number, name))
        self.write(step)

    def started(self, start):
        """A process that made what it had made before; rows made again are dropped."""
        state = 0.0 if start.start_from is None else self.states[start.start_from]
        for row_number in range(start.base_row + 1, start.row_number + 1):
            made = self.row_maker(start.config, state, row_number)
            assert isinstance(made, tuple)
            state = made[0]
            assert made[1] == self.made[start.trial, row_number]
        return Process(start, state, start.row_number)
