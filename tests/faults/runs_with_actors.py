"""A run with everything at once: actors, a curriculum, evaluation beside training, states of
callbacks, checkpoints in the background.

    python -m tests.faults.killed_runs ACTORS RUNNERS ITERATIONS

Everything that tells an actor something tells it by a key of its own (an episode, an iteration), so
that telling it again changes nothing: what was done since the last checkpoint is done again after a
kill. The caller waits for the answer, so that it is in the next checkpoint.
"""

# mypy: disable-error-code="attr-defined"
# Type checkers take a decorated class for the class itself.

from __future__ import annotations

import json
from multiprocessing import forkserver
from pathlib import Path
from typing import Any, Final

from callbacks import RLlibCallback
from checkpoints import Checkpointable
from trainer import PPOConfig, actors
from trainer.errors import ActorError
from trainer.testing.envs import TaskCountdownEnv

PIDS_FILE: Final = Path("pids.json")
SETTINGS: Final[dict[str, Any]] = {
    "train_batch_size": 80,
    "minibatch_size": 40,
    "num_epochs": 1,
    "evaluation_interval": 2,
    "evaluation_num_env_runners": 1,
    "evaluation_parallel_to_training": True,
    "evaluation_duration": 3,
}


@actors.remote
class Teacher(Checkpointable):
    """Knows all results and all episodes, and decides by them how hard the tasks are."""

    def __init__(self) -> None:
        self.means: dict[str, float] = {}
        self.returns: dict[str, float] = {}

    def take_result(self, iteration: int, mean: float) -> None:
        self.means[str(iteration)] = mean

    def take_episode(self, episode: str, episode_return: float) -> None:
        self.returns[episode] = episode_return

    def level(self, iteration: int) -> int:
        return 1 + int(sum(self.means.get(str(n), 0.0) for n in range(iteration))) % 5

    def get_state(self, components: Any = None, *, not_components: Any = None) -> dict[str, Any]:
        # In an order that does not follow from who came first.
        return {"means": dict(sorted(self.means.items())), "returns": sorted(self.returns.items())}

    def set_state(self, state: dict[str, Any]) -> None:
        self.means, self.returns = dict(state["means"]), dict(state["returns"])


@actors.remote
class Log(Checkpointable):
    """A second one, which only the main process calls."""

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}

    def take(self, iteration: int, level: int) -> int:
        self.rows[str(iteration)] = level
        return len(self.rows)

    def get_state(self, components: Any = None, *, not_components: Any = None) -> dict[str, Any]:
        return {"rows": self.rows}

    def set_state(self, state: dict[str, Any]) -> None:
        self.rows = dict(state["rows"])


def told(name: str, method: str, *args: Any) -> Any:
    """What an actor answers."""
    return actors.get(getattr(actors.get_actor(name), method).remote(*args))


class Reporting(RLlibCallback):
    """Tells the actors, and counts for itself, in runners and in the main process."""

    def __init__(self) -> None:
        self.num_delivered = 0

    def on_episode_end(self, *, episode: Any, prev_episode_chunks: Any, **kwargs: Any) -> None:
        chunks = [*prev_episode_chunks, episode]
        told("teacher", "take_episode", episode.id_, sum(chunk.get_return() for chunk in chunks))
        self.num_delivered += 1

    def on_train_result(self, *, algorithm: Any, result: Any, **kwargs: Any) -> None:
        iteration = result["training_iteration"]
        told("teacher", "take_result", iteration, result["env_runners/episode_return_mean"])
        level = told("teacher", "level", iteration)
        result["num_logged"] = told("log", "take", iteration, level)
        self.num_delivered += 1
        write_pids(algorithm)

    def on_algorithm_init(self, *, algorithm: Any, **kwargs: Any) -> None:
        write_pids(algorithm)


def task_of(train_results: Any, env: Any, env_ctx: Any) -> int:
    return int(told("teacher", "level", train_results["training_iteration"]))


def make_actors() -> None:
    Teacher.options(name="teacher").remote()
    Log.options(name="log").remote()


def write_pids(algorithm: Any) -> None:
    """Says who could be killed."""
    evaluation = algorithm.eval_env_runner_group
    found = {
        "training runner": [*algorithm.env_runner_group.env_runner_pids().values()],
        "evaluation runner": [] if evaluation is None else [*evaluation.env_runner_pids().values()],
        "actor": [actors.get_actor(name)._address.pid for name in ("teacher", "log")],
        "fork server": [forkserver._forkserver._forkserver_pid],
    }
    draft = PIDS_FILE.with_suffix(".draft")
    draft.write_text(json.dumps(found))
    draft.replace(PIDS_FILE)


def config(**settings: Any) -> PPOConfig:
    made = PPOConfig().environment(
        TaskCountdownEnv,
        env_config={"min_length": 4, "max_length": 12},
        env_task_fn=task_of,
    )
    made.update_from_dict({**SETTINGS, **settings})
    return made


def is_about_an_actor(error: BaseException | None) -> bool:
    """Whether a run ended because an actor is gone."""
    while error is not None:
        if isinstance(error, ActorError) or "Actor" in str(error):
            return True
        error = error.__cause__
    return False
