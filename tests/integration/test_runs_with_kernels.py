"""Whole runs give the same bytes with the kernels in C and without them."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from trainer import DQNConfig, PGConfig, PPOConfig, SACConfig, TD3Config
from trainer.nn import kernels

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
REPLAY = {
    "train_batch_size": 16,
    "num_steps_sampled_before_learning_starts": 40,
    "min_sample_timesteps_per_iteration": 80,
    "target_network_update_freq": 30,
    "grad_clip": 0.5,
}
SAMPLE = {
    "train_batch_size": 128,
    "minibatch_size": 32,
    "num_epochs": 2,
    "grad_clip": 0.5,
    "entropy_coeff": 0.01,
}
PLAIN = {"double_q": False, "dueling": False}


class SixActions(gymnasium.Env):
    """Six numbers to repeat: gradients of several columns, whose sums go by how they lie."""

    observation_space = spaces.Box(-1.0, 1.0, (6,))
    action_space = spaces.Box(-1.0, 1.0, (6,))

    def __init__(self, _=None):
        self.shown = np.zeros(6, np.float32)
        self.t = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._next(), {}

    def step(self, action):
        reward = -float(np.square(action - self.shown).sum())
        self.t += 1
        return self._next(), reward, self.t == 9, False, {}

    def _next(self):
        self.shown = self.np_random.uniform(-1.0, 1.0, 6).astype(np.float32)
        return self.shown


def dqn(**settings):
    return DQNConfig().environment("CartPole-v1").update_from_dict({**REPLAY, **settings})


def sac(env="Pendulum-v1", **settings):
    return SACConfig().environment(env).update_from_dict({**REPLAY, "tau": 0.1, **settings})


def td3(env="Pendulum-v1", **settings):
    return TD3Config().environment(env).update_from_dict({**REPLAY, "tau": 0.1, **settings})


def ppo(env="CartPole-v1", model=None, **settings):
    made = PPOConfig().environment(env).update_from_dict({**SAMPLE, **settings})
    return made.training(model={"fcnet_hiddens": [16, 16], **(model or {})})


RUNS = {
    "DQN, a whole step": lambda: dqn(**PLAIN),
    "DQN, double": lambda: dqn(dueling=False, double_q=True),
    "DQN, squared errors, no limit": lambda: dqn(**PLAIN, td_error_loss_fn="mse", grad_clip=None),
    "DQN, each tensor limited": lambda: dqn(**PLAIN, grad_clip_by="norm"),
    "DQN, as by default": dqn,
    "SAC, large enough for two threads": lambda: sac(train_batch_size=256),
    "SAC, Discrete": lambda: sac("CartPole-v1"),
    "PPO": ppo,
    "PPO, normal distributions": lambda: ppo("Pendulum-v1"),
    "PPO, free deviations": lambda: ppo("Pendulum-v1", {"free_log_std": True}),
    "PPO, six actions": lambda: ppo(SixActions),
    "PPO, six actions, free deviations": lambda: ppo(SixActions, {"free_log_std": True}),
    "SAC, six actions": lambda: sac(SixActions),
    "TD3, large enough for two threads": lambda: td3(train_batch_size=256),
    "TD3, six actions": lambda: td3(SixActions, twin_q=False),
    "PPO, shared layers, ReLU": lambda: ppo(
        model={"vf_share_layers": True, "fcnet_activation": "relu"}
    ),
    "PPO, swish": lambda: ppo(model={"fcnet_activation": "swish"}),
    "PPO, large": lambda: ppo(
        model={"fcnet_hiddens": [256, 256]}, minibatch_size=128, standardize_advantages="minibatch"
    ),
    "PPO, LSTM": lambda: ppo(model={"use_lstm": True, "lstm_cell_size": 16, "max_seq_len": 8}),
    "PPO, GRU": lambda: ppo(model={"use_gru": True, "lstm_cell_size": 16, "max_seq_len": 8}),
    "PG": lambda: PGConfig().environment("CartPole-v1").training(train_batch_size=128),
}


def main():
    """Prints a digest of every run's weights, optimiser and positions, in JSON."""
    digests = {}
    for name, make in RUNS.items():
        config = make().env_runners(num_env_runners=0, num_envs_per_env_runner=2)
        with config.debugging(seed=3).build_algo() as algo:
            for _ in range(3):
                algo.train()
            saved = hashlib.sha256(repr(algo.get_state()["env_runners"]).encode())
            module, optimizer = algo.learner.module, algo.learner.optimizer
            for vector in (module.parameters.flat, optimizer._second_moment.flat):
                saved.update(vector.tobytes())
            digests[name] = saved.hexdigest()
    print(json.dumps(digests))


def digests(switch):
    done = subprocess.run(
        [sys.executable, "-c", "from tests.integration.test_runs_with_kernels import main; main()"],
        cwd=ROOT,
        env={**os.environ, kernels.SWITCH: switch},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.skipif(bool(kernels.why_not()), reason=f"no kernels here: {kernels.why_not()}")
def test_every_run_gives_the_same_bytes_with_kernels_and_without():
    with_kernels, without = digests("1"), digests("0")
    assert with_kernels == without
    assert len(with_kernels) == len(RUNS)
    assert len({*with_kernels.values()}) == len(RUNS), "each run is another one"
