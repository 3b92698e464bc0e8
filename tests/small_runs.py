"""Small runs for tests of whole runs: their settings, and what comes out of them as bytes."""

import os
import signal

from callbacks import RLlibCallback
from checkpoints import encode
from tests.resume_cells import recordings
from trainer import DDPGConfig, DQNConfig, MARWILConfig, PGConfig, PPOConfig, SACConfig, TD3Config
from trainer.metrics import comparable
from trainer.testing.envs import CountdownEnv
from trainer.testing.processes import is_process_alive, wait_until


class Counting(RLlibCallback):
    """Counts the env steps of its runner: state that every step changes."""

    def __init__(self):
        self.num_steps = 0

    def on_episode_step(self, **kwargs):
        self.num_steps += 1


def small_ppo(num_env_runners=0, *, env=CountdownEnv, num_slots=4, batch=60, **settings):
    """PPO with two minibatches an iteration; slots are shared out over the runners.

    Args:
        num_env_runners: 0 samples in the main process.
        env: what is played.
        num_slots: sub-envs of all runners together.
        batch: env steps of an iteration.
        **settings: laid over the others by name.
    """
    made = (
        PPOConfig()
        .environment(env)
        .env_runners(
            num_env_runners=num_env_runners,
            num_envs_per_env_runner=num_slots // max(1, num_env_runners),
        )
        .training(
            train_batch_size=batch,
            minibatch_size=batch // 2,
            num_epochs=1,
            model={"fcnet_hiddens": [8]},
        )
        .debugging(seed=5)
    )
    return made.update_from_dict(settings)


def kill(group, *indices):
    """Kills these runners of a group, or all of them, and waits until they are gone."""
    pids = group.env_runner_pids()
    killed = [pids[index] for index in indices or pids]
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    assert wait_until(lambda: not any(map(is_process_alive, killed)))


def killing(file, *, at_step, worker_index=1):
    """A callback that kills its runner in mid-episode, once if it finds the file."""

    def on_episode_step(*, episode, env_runner, **_):
        step = episode.env_t if hasattr(episode, "env_t") else episode.t
        if (env_runner.worker_index, step) == (worker_index, at_step) and file.exists():
            file.unlink()
            os.kill(os.getpid(), signal.SIGKILL)

    return on_episode_step


def known(algo):
    """Everything that an algorithm knows, but its settings."""
    return encode(algo.get_state(not_components="config"))


def told_and_known(algo, results):
    """Results without times and settings, and everything known after them."""
    return encode([{**comparable(result), "config": None} for result in results]) + known(algo)


def trained(algo, num_iterations):
    """The results of some more iterations, without times and settings."""
    results = (comparable(algo.train()) for _ in range(num_iterations))
    return [encode({**result, "config": None}) for result in results]


def learnt(algo):
    """What does not depend on how slots are spread over processes."""
    state = algo.get_state(["learner", "env_runners", "counters"])
    return encode([state["learner"], state["env_runners"]["slots"], state["counters"]])


def with_every_component():
    """A small run of every algorithm that puts something into every component."""
    ppo = PPOConfig().training(train_batch_size=32, minibatch_size=16, num_epochs=1)
    ppo.update_from_dict({"observation_filter": "MeanStdFilter", "normalize_rewards": True})
    off_policy = {
        "num_steps_sampled_before_learning_starts": 8,
        "rollout_fragment_length": 4,
        "train_batch_size": 8,
        "replay_buffer_config": {"type": "PrioritizedReplayBuffer", "capacity": 60},
        "min_sample_timesteps_per_iteration": 24,
    }
    configs = {
        "ppo": ppo.environment("CartPole-v1"),
        "dqn": DQNConfig().environment("CartPole-v1").update_from_dict(off_policy),
        "sac": SACConfig().environment("Pendulum-v1").update_from_dict(off_policy),
        "td3": TD3Config().environment("Pendulum-v1").update_from_dict(off_policy),
        "ddpg": DDPGConfig().environment("Pendulum-v1").update_from_dict(off_policy),
        "pg": PGConfig().environment("CartPole-v1").training(train_batch_size=32),
        "marwil": MARWILConfig()
        .environment("CartPole-v1")
        .training(train_batch_size=32)
        .offline_data(input_=recordings("CartPole")),
    }
    for config in configs.values():
        config.env_runners(num_env_runners=0, num_envs_per_env_runner=2).debugging(seed=7)
        config.training(model={"fcnet_hiddens": [4], "head_fcnet_hiddens": []})
    return configs
