"""What is saved, restored in a new process and continued: algorithms, envs, and their digests.

A cell is an algorithm in an env with a number of runners. Its outcome are digests of everything a
run shows and knows, by name, so that a difference says where it is.
"""

import hashlib
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from callbacks import RLlibCallback
from checkpoints import encode, read_manifest
from tests.resume_envs import KeptWalk, OwnWalk, StatefulWalk, Walk
from trainer import (
    Algorithm,
    APPOConfig,
    DDPGConfig,
    DQNConfig,
    PGConfig,
    PPOConfig,
    SACConfig,
    TD3Config,
)
from trainer.metrics import comparable

NUM_SLOTS = 4
_ROOT = Path(__file__).parents[1]
_NOTHING = MappingProxyType({})


class Remembering(RLlibCallback):
    """Has state in the main process and in the runners, which shows in results."""

    def __init__(self):
        self.num_episodes = 0
        self.last_returns = []

    def on_environment_created(self, *, metrics_logger, **_):
        metrics_logger.log_value("envs_made", 1, reduce="sum")

    def on_episode_created(self, *, episode, **_):
        episode.custom_data["steps"] = 0

    def on_episode_step(self, *, episode, **_):
        episode.custom_data["steps"] += 1

    def on_episode_end(self, *, episode, prev_episode_chunks, metrics_logger, **_):
        self.num_episodes += 1
        self.last_returns = [*self.last_returns[-3:], float(episode.get_return())]
        metrics_logger.log_value("chunks", sum(map(len, prev_episode_chunks)), window=5)
        metrics_logger.log_value("steps", episode.custom_data["steps"], window=7)
        metrics_logger.log_value("of_runner", self.num_episodes, reduce="max")
        metrics_logger.log_value("lately", sum(self.last_returns), ema_coeff=0.1)

    def on_train_result(self, *, result, metrics_logger, **_):
        self.num_episodes += result["env_runners"]["num_episodes"]
        metrics_logger.log_value("episodes_seen", self.num_episodes, reduce="sum")


ENVS = {
    "CartPole": "CartPole-v1",
    "Acrobot": "Acrobot-v1",
    "Pendulum": "Pendulum-v1",
    "get_state": StatefulWalk,
    "own np_random": Walk,
    "own generator in get_state": KeptWalk,
    "own generator": OwnWalk,
}
BOX_ONLY = ("Pendulum",)
"""Envs that DQN cannot act in."""
CHOICE_ONLY = ("CartPole", "Acrobot")
"""Envs that TD3 and DDPG cannot act in."""
_CANNOT = {"DQN": BOX_ONLY, "TD3": CHOICE_ONLY, "DDPG": CHOICE_ONLY}

_MODEL = {"fcnet_hiddens": [8]}
_REPLAY = {
    "train_batch_size": 16,
    "num_steps_sampled_before_learning_starts": 50,
    # The oldest steps are overwritten, in the middle of iterations and episodes.
    "replay_buffer_config": {"capacity": 150},
    "n_step": (1, 3),
    "training_intensity": 3,
}


def _ppo():
    # 61 steps on 4 slots leave a remainder, and episodes are cut wherever they stand.
    return PPOConfig().training(
        train_batch_size=61,
        minibatch_size=32,
        num_epochs=2,
        lr=[[0, 1e-2], [2000, 1e-4]],
        entropy_coeff=[[0, 0.02], [1500, 0.0]],
    )


def _appo():
    made = APPOConfig().training(sample_ahead=3, train_batch_size=61, minibatch_size=32)
    return made.training(num_epochs=2, lr=[[0, 1e-2], [2000, 1e-4]])


def _pg():
    made = PGConfig().training(train_batch_size=61, lr=[[0, 1e-2], [2000, 1e-4]])
    return made.env_runners(batch_mode="truncate_episodes")


def _dqn():
    made = DQNConfig().training(
        lr=[[0, 1e-2], [2000, 1e-3]],
        epsilon=[[0, 1.0], [1500, 0.05]],
        target_network_update_freq=30,
        **_REPLAY,
    )
    return made.reporting(min_sample_timesteps_per_iteration=50)


def _sac():
    made = SACConfig().training(
        actor_lr=[[0, 1e-2], [2000, 1e-3]], critic_lr=1e-2, alpha_lr=1e-2, **_REPLAY
    )
    return made.reporting(min_sample_timesteps_per_iteration=50)


def _td3():
    made = TD3Config().training(actor_lr=[[0, 1e-2], [2000, 1e-3]], critic_lr=1e-2, **_REPLAY)
    return made.reporting(min_sample_timesteps_per_iteration=50)


def _ddpg():
    made = DDPGConfig().training(actor_lr=1e-2, critic_lr=[[0, 1e-2], [2000, 1e-3]], **_REPLAY)
    return made.reporting(min_sample_timesteps_per_iteration=50)


ALGORITHMS = {
    "PPO": _ppo,
    "APPO": _appo,
    "PG": _pg,
    "DQN": _dqn,
    "SAC": _sac,
    "TD3": _td3,
    "DDPG": _ddpg,
}


@dataclass(frozen=True)
class Cell:
    """An algorithm in an env with a number of runners."""

    algorithm: str
    env: str
    num_env_runners: int

    @property
    def name(self):
        return f"{self.algorithm}, {self.env}, {self.num_env_runners}"

    @classmethod
    def of(cls, name):
        algorithm, env, runners = name.split(", ")
        return cls(algorithm, env, int(runners))

    def config(self, **settings):
        made = (
            ALGORITHMS[self.algorithm]()
            .environment(
                ENVS[self.env],
                # These meet continuous actions in the walks, too.
                env_config={"continuous": self.algorithm in {"SAC", "TD3", "DDPG", "PG"}}
                if isinstance(ENVS[self.env], type)
                else {},
            )
            .env_runners(
                num_env_runners=self.num_env_runners,
                num_envs_per_env_runner=NUM_SLOTS // max(1, self.num_env_runners),
            )
            .rl_module(model_config=_MODEL)
            .callbacks(Remembering)
            .debugging(seed=7)
        )
        return made.update_from_dict(settings)


_RE3 = {
    "type": "RE3",
    "embeds_dim": 4,
    "encoder_net_config": {"fcnet_hiddens": [6]},
    "k_nn": 5,
}
_CURIOSITY = {
    "type": "Curiosity",
    "feature_dim": 4,
    "feature_net_config": {"fcnet_hiddens": [6]},
    "sub_exploration": {"type": "StochasticSampling"},
}


@dataclass(frozen=True)
class Run:
    """A cell with settings of its own.

    Attributes:
        cell: what is trained.
        settings: what is set besides.
        num_iterations: how many are made before something is forgotten.
    """

    cell: Cell
    settings: Mapping[str, Any]
    num_iterations: int = 4


FEATURES = {
    "PPO": Run(
        Cell("PPO", "own np_random", 0),
        {
            "observation_filter": "MeanStdFilter",
            "normalize_rewards": True,
            "metrics_num_episodes_for_smoothing": 9,
            "evaluation_interval": 3,
            "evaluation_duration": 2,
        },
    ),
    "PG": Run(Cell("PG", "own np_random", 0), {}),
    "DQN": Run(Cell("DQN", "CartPole", 0), {"target_network_update_freq": 170}),
    "SAC": Run(
        Cell("SAC", "own np_random", 0),
        {"target_network_update_freq": 170},
        num_iterations=3,  # then rows are owed
    ),
    "TD3": Run(
        Cell("TD3", "own np_random", 0),
        {"target_network_update_freq": 170, "policy_delay": 3},
        num_iterations=3,
    ),
    "DDPG": Run(
        Cell("DDPG", "own np_random", 0), {"target_network_update_freq": 170}, num_iterations=3
    ),
    "ParameterNoise": Run(
        Cell("PPO", "CartPole", 0), {"exploration_config": {"type": "ParameterNoise"}}
    ),
    "RE3": Run(Cell("PPO", "CartPole", 0), {"exploration_config": _RE3}),
    "Curiosity": Run(Cell("PPO", "CartPole", 0), {"exploration_config": _CURIOSITY}),
}


def digests(algo, num_iterations):
    """Digests of what some more iterations show, and of all that is known then, by name."""
    found = {}
    for _ in range(num_iterations):
        result = comparable(algo.train())
        found[f"result {algo.training_iteration}"] = _digest(result)
    for name, part in algo.get_state(not_components="config").items():
        for key, value in part.items():
            found[f"{name}/{key}"] = _digest(value)
    return found


def _digest(value):
    return hashlib.sha256(encode(value)).hexdigest()[:16]


def file_hashes(path):
    """The hashes of the component files of a checkpoint, by name."""
    components = read_manifest(path).components
    return {f"file {name}": entry.sha256 for name, entry in components.items()}


def different(one, other):
    """The names of the digests that differ."""
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


# ---- a new process


def continued_elsewhere(paths, num_iterations, *, overrides=_NOTHING):
    """What a new process finds that restores checkpoints, by name of their cells, and trains."""
    task = json.dumps([dict(paths), num_iterations, dict(overrides)])
    program = "from tests.resume_cells import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, task], capture_output=True, check=False, cwd=_ROOT
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def restored(path, cell, **overrides):
    """The algorithm of a checkpoint; what is code in its config is given anew."""
    env = ENVS[cell.env]
    given = {"env": env} if isinstance(env, type) else {}
    return Algorithm.from_checkpoint(path, callbacks_class=Remembering, **given, **overrides)


def main():
    """The program of the new process."""
    paths, num_iterations, overrides = json.loads(sys.argv[1])
    found = {}
    for name, path in paths.items():
        with restored(path, Cell.of(name), **overrides) as algo:
            files = file_hashes(algo.save_to_path())
            found[name] = {**files, **digests(algo, num_iterations)}
    sys.stdout.write(json.dumps(found))


def all_cells(envs=tuple(ENVS)):
    """Every algorithm in every env that it can act in, with 0, 1 and 2 runners."""
    return [
        Cell(algorithm, env, num_env_runners)
        for algorithm in ALGORITHMS
        for env in envs
        for num_env_runners in (0, 1, 2)
        if env not in _CANNOT.get(algorithm, ())
    ]
