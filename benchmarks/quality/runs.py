"""What is measured in a run, and its file."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import gymnasium

from benchmarks.quality.tasks import Env, Task
from trainer.envs.multi_agent_env import MultiAgentWrapper

OURS: Final = "ours"
PEER: Final = "sb3"
"""Who trains: what files of runs begin with."""
RESULTS: Final = Path(__file__).parent / "results"
NUM_POINTS: Final = 100
"""Of a curve."""
NUM_EPISODES: Final = 20
"""Of training that a point of a curve is the mean of, and of the evaluation at the end."""


class Recorder:
    """The returns of all episodes of training, as the env pays them, in the order they ended.

    Attributes:
        num_steps: made in all envs so far.
        ends: the number of steps at the end of each episode.
        returns: of each episode.
    """

    def __init__(self) -> None:
        self.num_steps = 0
        self.ends: list[int] = []
        self.returns: list[float] = []

    def curve(self, num_env_steps: int) -> list[float]:
        """The mean of the last episodes, at equal distances up to the budget.

        Before the first episode has ended, its return stands.
        """
        points, num_ended = [], 0
        for point in range(1, NUM_POINTS + 1):
            until = point * num_env_steps / NUM_POINTS
            while num_ended < len(self.ends) and self.ends[num_ended] <= until:
                num_ended += 1
            newest = self.returns[: max(1, num_ended)][-NUM_EPISODES:]
            points.append(round(sum(newest) / max(1, len(newest)), 3))
        return points

    def steps_to(self, wanted_return: float) -> int | None:
        """Env steps until the mean of that many episodes in a row first is what is wanted."""
        for count in range(NUM_EPISODES, len(self.returns) + 1):
            if sum(self.returns[count - NUM_EPISODES : count]) >= wanted_return * NUM_EPISODES:
                return self.ends[count - 1]
        return None


class _Return:
    """Of the running episode of one env."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder, self._return = recorder, 0.0

    def begin(self) -> None:
        self._return = 0.0

    def add(self, reward: float, *, is_over: bool) -> None:
        self._return += reward
        self._recorder.num_steps += 1
        if is_over:
            self._recorder.ends.append(self._recorder.num_steps)
            self._recorder.returns.append(self._return)


class Recorded(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Tells a recorder of each step and episode."""

    def __init__(self, env: Env, recorder: Recorder) -> None:
        super().__init__(env)
        self._return = _Return(recorder)

    def reset(self, **options: Any) -> Any:
        self._return.begin()
        return super().reset(**options)

    def step(self, action: Any) -> Any:
        answer = super().step(action)
        self._return.add(float(answer[1]), is_over=bool(answer[2] or answer[3]))
        return answer


class RecordedGame(MultiAgentWrapper):
    """The same for several agents, whose rewards are added up."""

    def __init__(self, env: Env, recorder: Recorder) -> None:
        super().__init__(env)
        self._return = _Return(recorder)
        self._ended: set[Any] = set()

    def reset(self, **options: Any) -> Any:
        self._return.begin()
        self._ended.clear()
        return self.env.reset(**options)

    def step(self, actions: Any) -> Any:
        answer = self.env.step(actions)
        flags = (*answer[2].items(), *answer[3].items())
        self._ended.update(agent for agent, has_ended in flags if has_ended)
        is_over = "__all__" in self._ended or self._ended.issuperset(self.possible_agents)
        self._return.add(sum(map(float, answer[1].values())), is_over=is_over)
        return answer


@dataclass(frozen=True)
class Run:
    """What came out of one run.

    Attributes:
        task: its name.
        trainer: "ours", or the peer.
        seed: of everything.
        curve: see `Recorder.curve`.
        steps_to_wanted: env steps until the wanted return; None if it was not reached.
        final_return: the mean of 20 episodes without exploration, at the end.
        processor_s: from building to the end of training, all threads.
        versions: of what it was made with.
        findings: what our checks of learning found in it, by their names; None if they did not
            look.
    """

    task: str
    trainer: str
    seed: int
    curve: list[float]
    steps_to_wanted: int | None
    final_return: float
    processor_s: float
    versions: dict[str, str] = field(default_factory=dict)
    findings: list[str] | None = None

    @property
    def area(self) -> float:
        """The mean of the curve: the area under it, divided by the budget."""
        return sum(self.curve) / len(self.curve)

    def save(self) -> None:
        """Writes its file, all or nothing."""
        path = path_of(self.task, self.trainer, self.seed)
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(f".{os.getpid()}.tmp")
        unfinished.write_text(json.dumps(dataclasses.asdict(self)) + "\n")
        unfinished.replace(path)


def path_of(task: str, trainer: str, seed: int) -> Path:
    """Where a run is kept."""
    return RESULTS / task.replace(" ", "_") / f"{trainer}-{seed}.json"


def read(path: Path) -> Run:
    """The run that a file holds."""
    return Run(**json.loads(path.read_text()))


def load(task: Task) -> list[Run]:
    """All runs of a task that there are, by trainer and seed."""
    folder = path_of(task.name, OURS, 0).parent
    runs = [read(path) for path in folder.glob("*.json")]
    return sorted(runs, key=lambda run: (run.trainer, run.seed))


class Learnt(NamedTuple):
    """What a run gives besides its episodes; see `Run`."""

    processor_s: float
    final_return: float
    findings: list[str] | None = None


Learn = Callable[[Task, int, Recorder], Learnt]
"""Learns a task with a seed."""


def measured(task: Task, trainer: str, seed: int, learn: Learn, versions: dict[str, str]) -> Run:
    """One run, from its beginning to its end."""
    recorder = Recorder()
    learnt = learn(task, seed, recorder)
    return Run(
        task.name,
        trainer,
        seed,
        recorder.curve(task.num_env_steps),
        recorder.steps_to(task.wanted_return),
        round(learnt.final_return, 3),
        round(learnt.processor_s, 2),
        versions,
        learnt.findings,
    )
