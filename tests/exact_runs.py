"""Runs with code of users in them, which `tests/contract/test_algorithms.py` holds to the promise.

Each is a config by its number of runners, of four slots in all. None has callbacks that count per
runner, so that everything they show is the same wherever envs are stepped.
"""

import functools
import os
import signal
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces, wrappers

from callbacks import RLlibCallback
from tests import multi_agent_runs as agents
from tests.memory_modules import MODELS
from tests.resume_envs import Walk
from tests.small_runs import small_ppo
from trainer import (
    ConnectorV2,
    FlattenObservations,
    MultiAgentObservationPreprocessor,
    SingleAgentObservationPreprocessor,
    compute_advantages,
)
from trainer.testing.envs import FailingEnv, RestlessEnv, TaskCountdownEnv

NUM_SLOTS = 4


def per_runner(num_env_runners):
    """The slots of each runner."""
    return NUM_SLOTS // max(1, num_env_runners)


def cut(num_env_runners, env, **settings):
    """PPO with 61 steps on four slots: episodes are cut wherever they stand."""
    return small_ppo(num_env_runners, env=env, batch=61, **settings)


# ---- what envs and their wrappers remember


def in_wrappers(context):
    """An env that no seed determines, whose wrappers remember as much as it does."""
    return wrappers.NormalizeObservation(wrappers.TimeLimit(RestlessEnv(context), 25))


def remembering(num_env_runners):
    """Whose network has memory, too."""
    lengths = {"min_length": 5, "max_length": 40}  # some episodes are cut twice
    env_config = {**lengths, "num_envs_per_env_runner": per_runner(num_env_runners)}
    made = cut(num_env_runners, in_wrappers, env_config=env_config)
    return made.rl_module(model_config=MODELS["lstm"])


class OwnMean(gymnasium.ObservationWrapper[Any, Any, Any]):
    """A wrapper of the user's own with a running mean, which says so."""

    env_state_attributes = ("total", "count")

    def __init__(self, env):
        super().__init__(env)
        self.total, self.count = np.zeros(env.observation_space.shape, np.float32), 1

    def observation(self, observation):
        self.total, self.count = self.total + observation, self.count + 1
        return (observation - self.total / self.count).astype(np.float32)


def normalised(context, *, env=FailingEnv):
    """An env without a state in wrappers that carry statistics from episode to episode."""
    recorded = wrappers.RecordEpisodeStatistics(wrappers.TimeLimit(env(context), 9))
    return wrappers.NormalizeReward(wrappers.NormalizeObservation(recorded))


def carrying_over(context):
    """Of ready-made wrappers and of a user's, around an env of forces."""
    return OwnMean(normalised(context, env=Walk))


# ---- spaces

NESTED = spaces.Dict(
    {
        "arm": spaces.Box(-2.0, 2.0, (2,)),
        "hand": spaces.Tuple([spaces.Discrete(3, start=1), spaces.MultiBinary(2)]),
        "level": spaces.Box(3, 5, (1,), np.int16),
    }
)


class NestedEnv(gymnasium.Env[Any, Any]):
    """Shows two numbers; pays for an action whose parts are right; lasts 5 to 9 steps."""

    def __init__(self, env_config=None):
        self.observation_space = spaces.Box(-1.0, 1.0, (2,))
        self.action_space = NESTED
        self._shown = np.zeros(2, np.float32)
        self._left = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._left = int(self.np_random.integers(5, 10))
        return self._show_next(), {}

    def step(self, action):
        assert NESTED.contains(action), action
        right = self._shown > 0.0
        reward = float(action["hand"][0] == 1 + right[0])
        reward += float((action["hand"][1] == right).mean())
        reward += float(action["level"][0] == 3 + 2 * right[1])
        reward -= float(np.square(action["arm"] - 2.0 * self._shown).mean())
        self._left -= 1
        return self._show_next(), reward, self._left == 0, False, {}

    def _show_next(self):
        self._shown = self.np_random.uniform(-1.0, 1.0, 2).astype(np.float32)
        # What was shown before is in there, so a replay with other actions would be noticed.
        return self._shown.copy()


class MaskedEnv(gymnasium.Env[Any, Any]):
    """One of several actions is possible at a time, as a mask says; anything else is an error.

    Settings: "nothing_at": at this step the mask allows nothing; "key": of the mask; "multi":
    actions are MultiDiscrete.
    """

    def __init__(self, env_config):
        self.multi = env_config.get("multi", False)
        self.key = env_config.get("key", "action_mask")
        self.nothing_at = env_config.get("nothing_at")
        self.sizes = [2, 3] if self.multi else [4]
        mask = spaces.Box(0, 1, (sum(self.sizes),), np.int8)
        self.observation_space = spaces.Dict(
            {self.key: mask, "observations": spaces.Box(-1.0, 1.0, (2,))}
        )
        self.action_space = (
            spaces.MultiDiscrete(self.sizes) if self.multi else spaces.Discrete(4, start=10)
        )
        self._steps = 0
        self._masks = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._steps = 0
        return self._observation(), {}

    def step(self, action):
        chosen = list(action) if self.multi else [action - 10]
        for choice, mask in zip(chosen, self._masks, strict=True):
            assert mask[choice] == 1, f"{action} is impossible: {self._masks}"
        self._steps += 1
        return self._observation(), 1.0, self._steps >= 7, False, {}

    def _observation(self):
        self._masks = []
        for size in self.sizes:
            mask = self.np_random.integers(0, 2, size).astype(np.int8)
            mask[self.np_random.integers(size)] = 1
            # The last observation of an episode allows nothing: no action follows it.
            if self._steps in (7, self.nothing_at):
                mask[:] = 0
            self._masks.append(mask)
        shown = self.np_random.uniform(-1.0, 1.0, 2).astype(np.float32)
        return {"observations": shown, self.key: np.concatenate(self._masks)}


# ---- connector pieces


class RunningScale(SingleAgentObservationPreprocessor):
    """Divides by the largest number seen so far, over episodes."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.largest = 1.0

    def preprocess(self, observation, episode):
        self.largest = max(self.largest, float(np.abs(observation).max()))
        return (observation / self.largest).astype(np.float32)

    def get_state(self, *_, **__):
        return {"largest": self.largest}

    def set_state(self, state):
        self.largest = state["largest"]


class PreviousReward(ConnectorV2):
    """Puts the last reward behind the observation, through the batch."""

    def recompute_output_observation_space(self, space, _):
        return spaces.Box(-np.inf, np.inf, (space.shape[0] + 1,), np.float32)

    def __call__(self, *, batch, episodes, **_):
        for episode in self.single_agent_episode_iterator(episodes):
            reward = episode.get_rewards(-1) if len(episode) else 0.0
            seen = np.append(episode.get_observations(-1), np.float32(reward))
            self.add_batch_item(batch, "obs", seen.astype(np.float32), episode)
        return batch


class Inverted(ConnectorV2):
    """Gives the env the other one of two actions, and counts."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.count = 0

    def __call__(self, *, batch, **_):
        self.count += 1
        batch["actions_for_env"] = [1 - action for action in batch["actions"]]
        return batch

    def get_state(self, *_, **__):
        return {"count": self.count}

    def set_state(self, state):
        self.count = state["count"]


def pieces(*_):
    return [FlattenObservations(), RunningScale(), PreviousReward()]


class Counted(SingleAgentObservationPreprocessor):
    """Puts behind an observation how many steps its agent made, and what it earned last.

    It also counts observations over episodes, which is its state.
    """

    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        self.seen = 0

    def recompute_output_observation_space(self, observations, actions):
        del observations, actions
        return spaces.Box(-1e6, 1e6, (6,), np.float32)

    def preprocess(self, observation, episode):
        self.seen += 1
        earned = episode.get_rewards(-1) if len(episode) else 0.0
        numbers = [len(episode), earned, self.seen]
        return np.concatenate([observation, numbers]).astype(np.float32)

    def get_state(self, *_, **__):
        return {"seen": self.seen}

    def set_state(self, state):
        self.seen = state["seen"]


class Together(MultiAgentObservationPreprocessor):
    """Shows each agent the mean of all, and how many steps there were over all episodes."""

    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        self.steps = 0

    def preprocess(self, observations, episode):
        del episode
        self.steps += 1
        mean = sum(observations[agent] for agent in sorted(observations, key=str)) / 9
        return {agent: one - mean - self.steps % 5 for agent, one in observations.items()}

    def get_state(self, *_, **__):
        return {"steps": self.steps}

    def set_state(self, state):
        self.steps = state["steps"]


class Turned(ConnectorV2):
    """Gives the env another action than the module chose."""

    def __call__(self, *, batch, **_):
        batch["actions_for_env"] = [(2 - action) for action in batch["actions"]]
        return batch


def counting(*arguments, **env_config):
    """Several agents with pieces."""
    return agents.gaps(*arguments, **env_config).env_runners(
        env_to_module_connector=lambda *_: [Together(), Counted()],
        module_to_env_connector=lambda *_: Turned(),
    )


# ---- rewriting


class Rewriting(RLlibCallback):
    """Rewrites everything that can be, in ways that depend on its episode and on the critic."""

    def on_postprocess_trajectory(self, *, episode, postprocessed_batch, metrics_logger, **_):
        batch = postprocessed_batch
        episode.custom_metrics["seen"] = batch.count
        batch["rewards"] += 0.01 * batch["t"]
        if batch.count % 2:
            compute_advantages(batch, batch["vf_preds"][-1], 0.5, 0.25)
        batch["value_targets"] *= 1.5
        batch["novelty"] = np.abs(batch["new_obs"] - batch["obs"]).sum(axis=1)
        metrics_logger.log_value("rewritten_rows", batch.count, reduce="sum")


class PlusOneAtTheEnd(RLlibCallback):
    """Pays one more per step, when a sample is complete."""

    def on_sample_end(self, *, samples, **_):
        for episode in samples:
            for one in getattr(episode, "agent_episodes", {"": episode}).values():
                if len(one):
                    one.set_rewards(new_data=one.get_rewards() + 1.0)


def shared(*, agent_id, postprocessed_batch, original_batches, **_):
    """Each row gets what the others earned for acting in the same env step."""
    batch = postprocessed_batch
    for other, (_, _, original) in original_batches.items():
        if other != agent_id:
            paid = dict(zip(original["env_t"].tolist(), original["rewards"], strict=True))
            batch["rewards"] += [0.5 * paid.get(t, 0.0) for t in batch["env_t"].tolist()]


# ---- faults


def die_soon(env_runner, victim, num_steps):
    """Lets a runner kill its process in mid-episode."""
    if env_runner.worker_index != victim:
        return
    after(num_steps, env_runner.env.envs[-1], lambda: os.kill(os.getpid(), signal.SIGKILL))


def fail_soon(env_runner, num_steps):
    """Lets a sub-env of each runner raise in mid-episode, once."""
    after(num_steps, env_runner.env.envs[-1], fail)


def after(num_steps, env, act):
    """Does something instead of a step of an env, in mid-episode, once."""
    step, left = env.step, iter(range(num_steps))

    def step_or_act(action):
        if next(left, None) is None:
            env.step = step
            act()
        return step(action)

    env.step = step_or_act


def fail():
    raise OSError("on purpose")


# ---- the table


def task_of_iteration(train_results, task_settable_env, env_ctx):
    return int(train_results["training_iteration"])


def task_env(env_config):
    """The env with the tasks is two of gymnasium's wrappers deep."""
    env = wrappers.TimeLimit(TaskCountdownEnv(env_config), 17)
    return wrappers.TransformReward(env, lambda reward: reward)


def of_users(num_env_runners):
    """Pieces, tasks and callbacks at once; many episodes are in several chunks."""
    made = small_ppo(num_env_runners, env=task_env, batch=42, env_task_fn=task_of_iteration)
    made.environment(env_config={"min_length": 6})
    made.env_runners(env_to_module_connector=pieces, module_to_env_connector=lambda *_: Inverted())
    made.evaluation(evaluation_interval=1, evaluation_duration=2)
    return made.callbacks([Rewriting, PlusOneAtTheEnd])


def several(num_env_runners):
    return agents.gaps(num_env_runners, per_runner(num_env_runners))


def several_of_users(num_env_runners):
    """All that there is for several agents at once, with sizes that are agent steps."""
    made = counting(num_env_runners, per_runner(num_env_runners))
    made.env_runners(
        episode_lookback_horizon=4,
        exploration_config={"type": "EpsilonGreedy", **agents.STRATEGIES["EpsilonGreedy"]},
    )
    made.multi_agent(count_steps_by="agent_steps").rl_module(model_config=MODELS["lstm"])
    agents.evaluated(made)
    return made.callbacks(PlusOneAtTheEnd, on_postprocess_trajectory=shared)


def several_with_replay(type_, num_env_runners):
    """Modules with small buffers, which are drawn from by errors."""
    made = agents.exploring(type_, None, num_env_runners, per_runner(num_env_runners))
    made.multi_agent(policies={"p", "q"}, policy_mapping_fn={"a": "p", 3: "q", "late": "p"})
    buffer = {"type": "PrioritizedEpisodeReplayBuffer", "capacity": 60}
    return made.training(n_step=3, replay_buffer_config=buffer)


MADE = {
    "PPO, memory": remembering,
    "PPO, code of users": of_users,
    "PPO, several agents": several,
    "several agents, whole episodes": lambda n: several(n).env_runners(
        batch_mode="complete_episodes"
    ),
    "several agents, code of users": several_of_users,
    "several agents, ParameterNoise": functools.partial(several_with_replay, "ParameterNoise"),
    "several agents, OrnsteinUhlenbeckNoise": functools.partial(
        several_with_replay, "OrnsteinUhlenbeckNoise"
    ),
}
"""Configs by the number of their runners."""
