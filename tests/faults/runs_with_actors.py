"""A run with everything at once: actors, a curriculum, evaluation beside training, states of
callbacks, checkpoints in the background.

    python -m tests.faults.killed_runs ACTORS RUNNERS ITERATIONS

Everything that tells an actor something tells it by a key of its own (an episode, an iteration), so
that telling it again changes nothing: what was done since the last checkpoint is done again after a
kill. The caller waits for the answer, so that it is in the next checkpoint.
"""

# mypy: disable-error-code="attr-defined"
# Type checkers take a decorated class for the class itself.

import json
from multiprocessing import forkserver
from pathlib import Path

from callbacks import RLlibCallback
from checkpoints import Checkpointable
from trainer import PPOConfig, actors
from trainer.errors import ActorError
from trainer.testing.envs import TaskCountdownEnv

PIDS_FILE = Path("pids.json")
SETTINGS = {
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

    def __init__(self):
        self.means = {}
        self.returns = {}

    def take_result(self, iteration, mean):
        self.means[str(iteration)] = mean

    def take_episode(self, episode, episode_return):
        self.returns[episode] = episode_return

    def level(self, iteration):
        return 1 + int(sum(self.means.get(str(n), 0.0) for n in range(iteration))) % 5

    def get_state(self, components=None, *, not_components=None):
        # In an order that does not follow from who came first.
        return {"means": dict(sorted(self.means.items())), "returns": sorted(self.returns.items())}

    def set_state(self, state):
        self.means, self.returns = dict(state["means"]), dict(state["returns"])


@actors.remote
class Log(Checkpointable):
    """A second one, which only the main process calls."""

    def __init__(self):
        self.rows = {}

    def take(self, iteration, level):
        self.rows[str(iteration)] = level
        return len(self.rows)

    def get_state(self, components=None, *, not_components=None):
        return {"rows": self.rows}

    def set_state(self, state):
        self.rows = dict(state["rows"])


def told(name, method, *args):
    """What an actor answers."""
    return actors.get(getattr(actors.get_actor(name), method).remote(*args))


class Reporting(RLlibCallback):
    """Tells the actors, and counts for itself, in runners and in the main process."""

    def __init__(self):
        self.num_delivered = 0

    def on_episode_end(self, *, episode, prev_episode_chunks, **kwargs):
        chunks = [*prev_episode_chunks, episode]
        told("teacher", "take_episode", episode.id_, sum(chunk.get_return() for chunk in chunks))
        self.num_delivered += 1

    def on_train_result(self, *, algorithm, result, **kwargs):
        iteration = result["training_iteration"]
        told("teacher", "take_result", iteration, result["env_runners/episode_return_mean"])
        level = told("teacher", "level", iteration)
        result["num_logged"] = told("log", "take", iteration, level)
        self.num_delivered += 1
        write_pids(algorithm)

    def on_algorithm_init(self, *, algorithm, **kwargs):
        write_pids(algorithm)


def task_of(train_results, env, env_ctx):
    return int(told("teacher", "level", train_results["training_iteration"]))


def make_actors():
    Teacher.options(name="teacher").remote()
    Log.options(name="log").remote()


def write_pids(algorithm):
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


def config(**settings):
    made = PPOConfig().environment(
        TaskCountdownEnv,
        env_config={"min_length": 4, "max_length": 12},
        env_task_fn=task_of,
    )
    made.update_from_dict({**SETTINGS, **settings})
    return made


def is_about_an_actor(error):
    """Whether a run ended because an actor is gone."""
    while error is not None:
        if isinstance(error, ActorError) or "Actor" in str(error):
            return True
        error = error.__cause__
    return False
