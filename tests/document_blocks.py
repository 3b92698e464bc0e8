"""The code blocks of RLlib's pages on callbacks, with nothing but their import lines changed.

There are three versions of the page: (a) its source, (b) the page of Ray 2.40, (c) a translation of
a later one. Every block of each is here.
"""

LAMBDA = """\
from trainer import PPOConfig

ppo = config = (
    PPOConfig()
    .environment("CartPole-v1")
    .callbacks(
        on_episode_end=(
            lambda episode, **kw: print(f"Episode done. R={episode.get_return()}")
        )
    )
    .build()
)
ppo.train()
"""
"""In (a), (b) and (c)."""

CLASS_WITHOUT_STATE = """\
from trainer import PPOConfig
from callbacks import RLlibCallback

class EpisodeReturn(RLlibCallback):
    def on_episode_end(self, *, episode, **kwargs):
        print(f"Episode done. R={episode.get_return()}")

ppo = (
    PPOConfig()
    .environment("CartPole-v1")
    .callbacks(EpisodeReturn)
    .build()
)
ppo.train()
"""
"""In (a)."""

CLASS_WITH_STATE = """\
from trainer import PPOConfig
from callbacks import RLlibCallback

class EpisodeReturn(RLlibCallback):
    def __init__(self):
        # Keep some global state in between individual callback events.
        self.overall_sum_of_rewards = 0.0

    def on_episode_end(self, *, episode, **kwargs):
        self.overall_sum_of_rewards += episode.get_return()
        print(f"Episode done. R={episode.get_return()} Global SUM={self.overall_sum_of_rewards}")

ppo = (
    PPOConfig()
    .environment("CartPole-v1")
    .callbacks(EpisodeReturn)
    .build()
)
ppo.train()
"""
"""In (b)."""

CLASS_WITH_STATE_AND_SUPER = CLASS_WITH_STATE.replace(
    "        # Keep", "        super().__init__()\n        # Keep"
)
"""In (c)."""

CHAIN = """\
class MyCallbacks(RLlibCallback):
    def on_train_result(self, *, algorithm, metrics_logger, result, **kwargs):
        print("RLlibCallback subclass")

class MyDebugCallbacks(RLlibCallback):
    def on_train_result(self, *, algorithm, metrics_logger, result, **kwargs):
        print("debug subclass")

# Define the callbacks order through the config.
# Subclasses first, then individual `on_train_result` (or other events) callables:
config.callbacks(
    callbacks_class=[MyDebugCallbacks, MyCallbacks],  # <- note: debug class first
    on_train_result=[
        lambda algorithm, **kw: print('lambda 1'),
        lambda algorithm, **kw: print('lambda 2'),
    ],
)

# When training the algorithm, after each training iteration, you should see
# something like:
# > debug subclass
# > RLlibCallback subclass
# > lambda 1
# > lambda 2
"""
"""In (a), (b) and (c). It imports nothing and goes on with a `config`."""

REPLAY_BUFFER_TO_DISK = """\
import ormsgpack
from trainer import DQNConfig

def _write_buffer_if_necessary(algorithm, metrics_logger, result):
    # Write the buffer contents only every ith iteration.
    if algorithm.training_iteration % 2 == 0:
        # python dict
        buffer_contents = algorithm.local_replay_buffer.get_state()

        # binary
        msgpacked = ormsgpack.packb(
           buffer_contents,
           option=ormsgpack.OPT_SERIALIZE_NUMPY,
        )

        # Open some file and write the buffer contents into it using `ormsgpack`.
        with open("replay_buffer_contents.msgpack", "wb") as f:
           f.write(msgpacked)

config = (
    DQNConfig()
    .environment("CartPole-v1")
    .callbacks(
       on_train_result=_write_buffer_if_necessary,
    )
)
dqn = config.build()

# Train n times. Expect buffer to be written every ith iteration.
for _ in range(4):
    print(dqn.train())
"""
"""In (a), (b) and (c)."""

ACROBOT_TEMPORARY_DATA = """\
import math
import numpy as np
from trainer import PPOConfig
from callbacks import RLlibCallback

class LogAcrobotAngle(RLlibCallback):
    def on_episode_step(self, *, episode, env, **kwargs):
        # First get the angle from the env (note that `env` is a VectorEnv).
        # See
        # for the env's source code.
        cos_theta1, sin_theta1 = env.envs[0].unwrapped.state[0], env.envs[0].unwrapped.state[1]
        # Convert cos/sin/tan into degree.
        deg_theta1 = math.degrees(math.atan2(sin_theta1, cos_theta1))

        # Log the theta1 degree value in the episode object, temporarily.
        episode.add_temporary_timestep_data("theta1", deg_theta1)

    def on_episode_end(self, *, episode, metrics_logger, **kwargs):
        # Get all the logged theta1 degree values and average them.
        theta1s = episode.get_temporary_timestep_data("theta1")
        avg_theta1 = np.mean(theta1s)

        # Log the final result - per episode - to the MetricsLogger.
        # Report with a sliding/smoothing window of 50.
        metrics_logger.log_value("theta1_mean", avg_theta1, reduce="mean", window=50)

config = (
    PPOConfig()
    .environment("Acrobot-v1")
    .callbacks(
        callbacks_class=LogAcrobotAngle,
    )
)
ppo = config.build()

# Train n times. Expect `theta1_mean` to be found in the results under:
# `env_runners/theta1_mean`
for i in range(10):
    results = ppo.train()
    print(
        f"iter={i} "
        f"theta1_mean={results['env_runners']['theta1_mean']} "
        f"R={results['env_runners']['episode_return_mean']}"
    )
"""
"""In (b), where the lines of the config and of `print(` got lost; they are those of (c)."""

ACROBOT_CUSTOM_DATA = (
    ACROBOT_TEMPORARY_DATA.replace(
        "    def on_episode_step",
        "    def on_episode_created(self, *, episode, **kwargs):\n"
        "        # Initialize an empty list in the `custom_data` property of `episode`.\n"
        '        episode.custom_data["theta1"] = []\n\n'
        "    def on_episode_step",
    )
    .replace(
        'episode.add_temporary_timestep_data("theta1", deg_theta1)',
        'episode.custom_data["theta1"].append(deg_theta1)',
    )
    .replace('episode.get_temporary_timestep_data("theta1")', 'episode.custom_data["theta1"]')
)
"""In (c)."""

TREE = {
    "algorithm": {
        "on_algorithm_init": ("algorithm",),
        "on_train_result": ("algorithm", "metrics_logger", "result"),
        "on_evaluate_start": ("algorithm",),
        "on_evaluate_end": ("algorithm",),
        "on_env_runners_recreated": (),
        "on_checkpoint_loaded": (),
    },
    "env_runner": {
        "on_environment_created": (),
        "on_episode_created": ("episode",),
        "on_episode_start": ("episode",),
        "on_episode_step": ("episode",),
        "on_episode_end": ("episode",),
        "on_sample_end": ("env_runner",),
    },
}
"""The overview of events in (a), (b) and (c), with the arguments that are named there."""
