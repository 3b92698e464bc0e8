"""Notes which events a small run fires, in whichever process, for docs/make_callback_events.py.

Every process appends a line to one file for each event. There is one env runner at most, and the
main process waits for its answers, so the order of the lines is always the same.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from callbacks import EVENTS
from trainer import PPO, PPOConfig
from trainer.testing.envs import FailingEnv

_ORDINALS: Final = ("", " (2nd)", " (3rd)")
"""What is put behind the name of an actor whose process is not its first one."""


@dataclass(frozen=True)
class Firing:
    """An event that fired.

    Attributes:
        actor: who fired it.
        event: its name.
    """

    actor: str
    event: str


@dataclass(frozen=True)
class Act:
    """A call and what came of it.

    Attributes:
        call: as one would write it.
        firings: the events in the meantime, in order.
        outcome: what it raised and left behind; empty if there is nothing to say.
    """

    call: str
    firings: tuple[Firing, ...]
    outcome: str = ""


@dataclass(frozen=True)
class Note:
    """A callback function that appends its event to a file, in whichever process it is called."""

    event: str
    path: str

    def __call__(self, **arguments: Any) -> None:
        """Writes one line: process id, actor, event."""
        line = f"{os.getpid()}|{_actor(self.event, arguments)}|{self.event}\n"
        with Path(self.path).open("a", encoding="utf-8") as file:  # complete even if killed next
            file.write(line)


def _actor(event: str, arguments: dict[str, Any]) -> str:
    """Who fires an event; empty if its arguments do not say."""
    if EVENTS[event].scope == "algorithm":
        return "algorithm"
    if "env_runner" not in arguments:
        return ""
    env_runner, episode = arguments["env_runner"], arguments.get("episode")
    kind = "evaluation env runner" if env_runner.config.in_evaluation else "env runner"
    index = arguments.get("env_index", getattr(episode, "env_id", None))
    is_one_of_many = index is not None and env_runner.config.num_envs_per_env_runner > 1
    return f"{kind} {env_runner.worker_index}{f', sub-env {index}' if is_one_of_many else ''}"


class Stage:
    """Where a scenario is played: makes configs whose events are noted, and notes calls.

    Attributes:
        acts: the calls so far.
        folder: for files of the scenario.
        armed: a file; while it exists, a `FailingEnv` may fail, once.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.acts: list[Act] = []
        self.folder = folder
        self.armed = folder / "armed"
        self._journal = folder / "journal"
        self._journal.touch()
        self._num_lines = 0
        self._pids: dict[str, list[str]] = {}

    def config(
        self, num_env_runners: int = 0, *, num_envs: int = 1, num_steps: int = 6, **fault: Any
    ) -> PPOConfig:
        """Settings for episodes of 3 steps.

        Args:
            num_env_runners: runners in processes.
            num_envs: sub-envs per runner.
            num_steps: env steps per iteration.
            fault: settings of `FailingEnv`; it fails when `armed` exists, which it removes.
        """
        env_config = {"min_length": 3, "max_length": 3, "armed_file": str(self.armed), **fault}
        config = PPOConfig().environment(FailingEnv, env_config=env_config).debugging(seed=0)
        config.env_runners(
            num_env_runners=num_env_runners, num_envs_per_env_runner=num_envs, sample_timeout_s=60.0
        )
        config.training(train_batch_size=num_steps, minibatch_size=num_steps, num_epochs=1)
        config.training(model={"fcnet_hiddens": [4]})
        return config.callbacks(**{event: self.note(event) for event in EVENTS})

    def note(self, event: str) -> Note:
        """A callback function that notes an event of this stage."""
        return Note(event, str(self._journal))

    def call(self, text: str, function: Callable[[], Any], *, algo: Any = None) -> Any:
        """Calls a function and notes which events fired.

        Args:
            text: the call as one would write it.
            function: what to call; what it raises is noted and goes no further.
            algo: whose iteration is told if something is raised.
        """
        returned, outcome = None, ""
        try:
            returned = function()
        except BaseException as error:  # noqa: BLE001 - what is raised is what the page tells
            cause = error.__cause__
            reason = f" from {type(cause).__name__}" if type(cause) is ValueError else ""
            outcome = f"raises {type(error).__name__}{reason}"
            if algo is not None:
                outcome += f"; training_iteration is {algo.training_iteration}"
        self.acts.append(Act(text, tuple(self._new_firings()), outcome))
        return returned

    def forget(self) -> None:
        """Leaves what fired since the last call out of the page."""
        self._new_firings()

    def build(self, config: PPOConfig) -> PPO:
        """An algorithm whose construction the page does not show."""
        algo: PPO = config.build_algo()
        self.forget()
        return algo

    def _new_firings(self) -> list[Firing]:
        lines = self._journal.read_text(encoding="utf-8").splitlines()
        new, self._num_lines = lines[self._num_lines :], len(lines)
        firings = []
        runners: dict[str, str] = {}
        for line in new:
            pid, actor, event = line.split("|")
            runner = actor.partition(",")[0] or runners[pid]
            if runner.startswith(("env", "eval")):
                runners[pid] = runner
            pids = self._pids.setdefault(runner, [])
            if pid not in pids:
                pids.append(pid)
            firings.append(Firing((actor or runner) + _ORDINALS[pids.index(pid)], event))
        return firings


@dataclass(frozen=True)
class FailsOnce:
    """A callback function that raises while a file exists, and removes it."""

    armed: str

    def __call__(self) -> None:
        """Raises a ValueError."""
        if Path(self.armed).exists():
            Path(self.armed).unlink()
            raise ValueError("this callback fails on purpose")


def interrupt(group: Any) -> None:
    """Lets a sub-env press Ctrl-C in its second step, once, and wait for the end if remote."""
    main = os.getpid()

    def arm(env_runner: Any) -> None:
        env = env_runner.env.envs[0]
        play = env.step
        actions: list[Any] = []

        def step(action: Any) -> Any:
            actions.append(action)
            if len(actions) < 2:
                return play(action)
            del env.step
            os.kill(main, signal.SIGINT)
            if env_runner.worker_index:
                threading.Event().wait()
            return play(action)

        env.step = step

    group.foreach_env_runner(arm)
