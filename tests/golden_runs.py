"""The runs of which golden checkpoints are kept: their envs, callbacks and settings.

What is here made files that are never made again, so nothing of it may change: a run is added
instead. The envs compute with sums of short numbers, which come out the same everywhere, and depend
on no version of Gymnasium's own envs.
"""

import os
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium import spaces

from callbacks import RLlibCallback
from trainer import (
    APPOConfig,
    BCConfig,
    CQLConfig,
    DDPGConfig,
    DQNConfig,
    EpisodeRecorder,
    IMPALAConfig,
    MARWILConfig,
    MultiAgentEnv,
    PGConfig,
    PPOConfig,
    PPOTorchLearner,
    SACConfig,
    TD3Config,
    tune,
)

# ---- envs


class Walk(gymnasium.Env):
    """A random walk of 5 to 12 steps; its episodes follow from seed and actions.

    Settings: `is_continuous`: actions are forces; `is_image`: 8 × 8 pixels are seen.
    """

    def __init__(self, context):
        self.is_continuous = context.get("is_continuous", False)
        self.is_image = context.get("is_image", False)
        self.observation_space = spaces.Box(-100.0, 100.0, (2,), np.float32)
        if self.is_image:
            self.observation_space = spaces.Box(0, 255, (8, 8, 1), np.uint8)
        self.action_space = spaces.Discrete(2)
        if self.is_continuous:
            self.action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.place = self.steps = self.length = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.steps = 0, 0
        self.length = int(self.np_random.integers(5, 13))
        return self.seen(), {}

    def step(self, action):
        self.steps += 1
        push = round(4 * float(action[0])) if self.is_continuous else 2 * int(action) - 1
        self.place += push + int(self.np_random.integers(-1, 2))
        return self.seen(), -abs(self.place) / 8, self.steps >= self.length, False, {}

    def seen(self):
        if not self.is_image:
            return np.array([self.place / 4, self.steps / 8], np.float32)
        picture = np.zeros((8, 8, 1), np.uint8)
        picture[self.steps % 8, self.place % 8] = 200
        return picture


class StatefulWalk(Walk):
    """Counts its steps over all episodes, which only its state can bring back."""

    def __init__(self, context):
        super().__init__(context)
        self.total = 0

    def step(self, action):
        self.total += 1
        return super().step(action)

    def seen(self):
        return super().seen() + np.float32(self.total % 4)

    def get_state(self):
        names = ("place", "steps", "length", "total")
        return {name: getattr(self, name) for name in names} | {
            "generator": self.np_random.bit_generator.state
        }

    def set_state(self, state):
        for name in ("place", "steps", "length", "total"):
            setattr(self, name, state[name])
        self.np_random.bit_generator.state = state["generator"]


class TaskWalk(Walk):
    """Its task is where it begins."""

    task = 0

    def get_task(self):
        return self.task

    def set_task(self, task):
        self.task = task

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.task
        return self.seen(), {}


class Pair(MultiAgentEnv):
    """Two agents; the second one comes a step later and may end before."""

    def __init__(self, context):
        self.possible_agents = ["first", "second"]
        self.observation_space = spaces.Box(-100.0, 100.0, (2,), np.float32)
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.length = 0, int(self.np_random.integers(5, 10))
        return {"first": self.seen()}, {}

    def seen(self):
        return np.array([self.t / 4, int(self.np_random.integers(0, 8)) / 4], np.float32)

    def step(self, actions):
        self.t += 1
        running = ["first"] + (["second"] if self.t < 7 else [])
        rewards = {agent: actions.get(agent, 0) / 2 - self.t / 8 for agent in running}
        ends = {"second": self.t == 6, "__all__": self.t >= self.length}
        return {agent: self.seen() for agent in running}, rewards, ends, {}, {}


def module_of(agent_id, episode, **_):
    return "a" if (episode.number + (agent_id == "first")) % 2 == 0 else "b"


def next_task(train_results, task_settable_env, env_ctx):
    return int(train_results["training_iteration"])


class Remembering(RLlibCallback):
    """Has state in the main process and in the runners."""

    def __init__(self):
        self.num_episodes, self.returns = 0, []

    def on_episode_end(self, *, episode, metrics_logger, **_):
        self.num_episodes += 1
        self.returns = [*self.returns[-3:], float(episode.get_return())]
        metrics_logger.log_value("lately", sum(self.returns), window=5)

    def on_train_result(self, *, result, metrics_logger, **_):
        self.num_episodes += result["env_runners"]["num_episodes"]
        metrics_logger.log_value("episodes_seen", self.num_episodes, reduce="sum")


# ---- runs

FORCES = {"is_continuous": True}
SMALL = {"fcnet_hiddens": [4]}
REPLAY = {
    "train_batch_size": 8,
    "num_steps_sampled_before_learning_starts": 20,
    "replay_buffer_config": {"capacity": 40},  # the oldest steps are overwritten
    "training_intensity": 2,
    "n_step": (1, 3),
}
PRIORITIES = {"type": "PrioritizedReplayBuffer", "capacity": 40}
CURIOSITY = {
    "type": "Curiosity",
    "feature_dim": 4,
    "feature_net_config": {"fcnet_hiddens": [4]},
    "inverse_net_hiddens": [4],
    "forward_net_hiddens": [4],
    "sub_exploration": {"type": "StochasticSampling"},
}


def run(config, env=Walk, *, runners=0, env_config=None, model=None, **settings):
    """A config: two slots in all, a network of four units."""
    config.environment(env, env_config=env_config or {})
    config.env_runners(num_env_runners=runners, num_envs_per_env_runner=1 if runners else 2)
    config.rl_module(model_config=model or SMALL).debugging(seed=11)
    return config.update_from_dict(settings)


def ppo(env=Walk, **settings):
    made = PPOConfig().training(train_batch_size=23, minibatch_size=8, num_epochs=2, lr=0.01)
    return run(made, env, **settings)


def replaying(config, env=Walk, **settings):
    given = {**REPLAY, **settings}
    return run(config.reporting(min_sample_timesteps_per_iteration=25), env, **given)


def recorded(config, folder, **settings):
    """Of one that learns from recordings, which lie in a folder."""
    config.offline_data(input_=str(folder), dataset_num_iters_per_learner=3)
    return run(config, train_batch_size=16, **settings)


RUNS = {
    "ppo": lambda _: ppo(),
    "ppo-runners": lambda _: ppo(
        runners=2, observation_filter="MeanStdFilter", normalize_rewards=True,
        evaluation_interval=2, evaluation_duration=2, lr=[[0, 1e-2], [500, 1e-3]],
    ).callbacks(Remembering),
    "ppo-callbacks": lambda _: ppo(env_config=FORCES).callbacks(Remembering),
    "ppo-env-state": lambda _: ppo(StatefulWalk),
    "ppo-tasks": lambda _: ppo(TaskWalk, env_task_fn=next_task),
    "ppo-agents": lambda _: ppo(
        Pair, policies={"a", "b"}, policy_mapping_fn=module_of, observation_filter="MeanStdFilter"
    ),
    "ppo-lstm": lambda _: ppo(
        model={
            **SMALL, "use_lstm": True, "lstm_cell_size": 4, "max_seq_len": 5,
            "lstm_use_prev_action": True, "lstm_use_prev_reward": True,
        }
    ),
    "ppo-gru": lambda _: ppo(
        model={**SMALL, "use_gru": True, "lstm_cell_size": 4, "vf_share_layers": True}
    ),
    "ppo-torch": lambda _: ppo(learner_class=PPOTorchLearner),
    "ppo-curiosity": lambda _: ppo(exploration_config=CURIOSITY),
    "appo": lambda _: run(
        APPOConfig().training(sample_ahead=2, train_batch_size=23, minibatch_size=8), num_epochs=2
    ),
    "impala": lambda _: run(IMPALAConfig().training(train_batch_size=23)),
    "pg": lambda _: run(PGConfig().training(train_batch_size=23)),
    "dqn": lambda _: replaying(DQNConfig()),
    "dqn-images": lambda _: replaying(
        DQNConfig(), env_config={"is_image": True}, replay_buffer_config=PRIORITIES,
        model={"conv_filters": [[2, 3, 2]], "fcnet_hiddens": [4]},
    ),
    "dqn-agents": lambda _: replaying(
        DQNConfig(), Pair, policies={"a", "b"}, policy_mapping_fn=module_of, n_step=1
    ),
    "sac": lambda _: replaying(SACConfig(), env_config=FORCES),
    "td3": lambda _: replaying(TD3Config(), env_config=FORCES),
    "ddpg": lambda _: replaying(DDPGConfig(), env_config=FORCES),
    "bc": lambda folder: recorded(BCConfig(), folder / "choices"),
    "marwil": lambda folder: recorded(MARWILConfig(), folder / "choices"),
    "cql": lambda folder: recorded(
        CQLConfig().training(num_actions=2, bc_iters=4), folder / "forces", env_config=FORCES
    ),
}  # fmt: skip
"""By name: functions from the folder of recordings to a config."""

NEEDS_TORCH = {"ppo-torch"}
GIVEN = {
    "ppo-runners": {"callbacks_class": Remembering},
    "ppo-callbacks": {"callbacks_class": Remembering},
    "ppo-env-state": {"env": StatefulWalk},
    "ppo-tasks": {"env": TaskWalk, "env_task_fn": next_task},
    "ppo-torch": {"learner_class": PPOTorchLearner},
    "ppo-agents": {"env": Pair, "policy_mapping_fn": module_of},
    "dqn-agents": {"env": Pair, "policy_mapping_fn": module_of},
    "bc": {"input_": "choices"},
    "marwil": {"input_": "choices"},
    "cql": {"input_": "forces"},
}
"""What a restore is given besides the env: the code of the config, and where recordings are."""


def given(name, folder):
    """What a restore of a run is given, with recordings in a folder."""
    made = {"env": Walk, **GIVEN.get(name, {})}
    if "input_" in made:
        made["input_"] = str(folder / made["input_"])
    return made


def record(folder):
    """Plays the recordings, of choices and of forces."""
    for name, env_config in (("choices", {}), ("forces", FORCES)):
        config = run(PGConfig().training(train_batch_size=60), env_config=env_config)
        config.env_runners(batch_mode="complete_episodes")
        with config.callbacks([EpisodeRecorder(str(folder / name))]).build_algo() as algo:
            algo.train()


# ---- an experiment


class Climb(tune.Trainable):
    """Adds its step to its height; a population of them changes the step while it climbs."""

    def setup(self, config):
        self.step_width, self.height = config["step_width"], 0.0

    def reset_config(self, new_config):
        self.step_width = new_config["step_width"]
        return True

    def step(self):
        self.height += self.step_width
        return {"height": self.height}

    def save_checkpoint(self, folder):
        Path(folder, "height").write_text(repr(self.height))

    def load_checkpoint(self, folder):
        self.height = float(Path(folder, "height").read_text())


def experiment(folder):
    """A population of two that has come half of its way."""
    scheduler = tune.PopulationBasedTraining(
        perturbation_interval=2, hyperparam_mutations={"step_width": [0.25, 0.5, 1.0, 2.0]}
    )
    return tune.Tuner(
        Climb,
        param_space={"step_width": tune.choice([0.25, 0.5, 1.0, 2.0])},
        tune_config=tune.TuneConfig(
            num_samples=2, scheduler=scheduler, metric="height", mode="max",
            max_concurrent_trials=1, seed=5,
        ),
        run_config=tune.RunConfig(
            name="experiment", storage_path=os.fspath(folder), verbose=0,
            stop={"training_iteration": 4},
        ),
    )  # fmt: skip
