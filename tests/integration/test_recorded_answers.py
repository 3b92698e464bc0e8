"""What is recorded of envs stays as it was, whatever envs and callbacks do with the memory."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from checkpoints import encode
from tests.small_runs import small_ppo
from trainer.env_runners import single_agent_player as step_loop
from trainer.episodes.nested import copied, copied_info


class Fresh(gymnasium.Wrapper[Any, Any, Any, Any]):
    """CartPole whose answers are all new: vectors, or vectors in dicts and tuples."""

    def __init__(self, context):
        super().__init__(gymnasium.make("CartPole-v1"))
        self.is_nested = context.get("nested", False)
        self.turn = -1
        if self.is_nested:
            box = self.env.observation_space
            bit = spaces.MultiBinary(2)
            self.observation_space = spaces.Dict({"a": spaces.Tuple([box, bit]), "b": box})

    def shown(self, observation):
        self.turn += 1
        if not self.is_nested:
            return observation
        signs = (observation[:2] > 0).astype(np.int8)
        return {"a": (observation, signs), "b": 2 * observation}

    def spoil(self):
        """Nothing to spoil."""

    def told(self, reward):
        return np.array(float(reward)), {"turn": self.turn, "parts": {"list": [self.turn]}}

    def reset(self, **options):
        observation, _ = self.env.reset(**options)
        self.turn = -1
        return self.shown(observation), {"turn": self.turn, "parts": {"list": [self.turn]}}

    def step(self, action):
        observation, reward, terminated, truncated, _ = self.env.step(action)
        paid, info = self.told(float(reward))
        return self.shown(observation), paid, terminated, truncated, info


def write(memory, value):
    """Writes a value into the arrays of another one."""
    if isinstance(memory, dict):
        for key in memory:
            write(memory[key], value[key])
    elif isinstance(memory, tuple):
        for one, other in zip(memory, value, strict=True):
            write(one, other)
    else:
        memory[...] = value


class Ring(Fresh):
    """Shows its observations in so many buffers in turn; rewards and infos in one."""

    def __init__(self, context):
        super().__init__(context)
        self.num_buffers = context.get("buffers", 1)
        self.first_steps = context.get("fresh", 0)
        self.buffers = []
        self.reward = np.array(0.0)
        self.info = {"turn": 0, "parts": {"list": [0]}}

    def shown(self, observation):
        new = super().shown(observation)
        if self.turn < self.first_steps:
            return new
        if len(self.buffers) < self.num_buffers:
            self.buffers.append(new)
        else:
            write(self.buffers[self.turn % self.num_buffers], new)
            new = self.buffers[self.turn % self.num_buffers]
        return new

    def told(self, reward):
        self.reward[...], self.info["turn"] = reward, self.turn
        self.info["parts"]["list"][0] = self.turn
        return self.reward, self.info


class Views(Fresh):
    """Shows views of its own state, which it spoils before each step and in `close`."""

    def __init__(self, context):
        super().__init__(context)
        self.state = np.zeros(8, np.float32)

    def shown(self, observation):
        self.state[:4] = observation
        return super().shown(self.state[:4])

    def step(self, action):
        self.state[:] = np.nan
        return super().step(action)

    def spoil(self):
        self.state[:] = -1.0

    def close(self):
        self.state[:] = np.nan
        super().close()


class Postman(Fresh):
    """Fills the array that it gave last time, and gives a new one."""

    last = None

    def shown(self, observation):
        new = super().shown(observation)
        if self.last is not None:
            write(self.last, new)
        self.last = new
        return new


HOSTILE = {
    "one buffer": (Ring, {"buffers": 1}),
    "two in turn": (Ring, {"buffers": 2}),
    "a ring of three": (Ring, {"buffers": 3}),
    "one from the first step on": (Ring, {"buffers": 1, "fresh": 1}),
    "one from the second step on": (Ring, {"buffers": 1, "fresh": 2}),
    "two from the fifth step on": (Ring, {"buffers": 2, "fresh": 5}),
    "views of the state": (Views, {}),
    "the last one is spoilt": (Postman, {}),
}


def config(env, context, *, num_env_runners=0, **settings):
    settings = {"env_config": context, "num_envs_per_env_runner": 2, "seed": 11, **settings}
    return small_ppo(num_env_runners, env=env, batch=64, **settings)


def spoil_envs(env, **_):
    """What a `render` may do."""
    env.foreach_env(lambda one: one.spoil())


def outcome(env, context, *, num_iterations=2, **settings):
    """Weights, returns and another sample after some iterations."""
    with config(env, context, **settings).build_algo() as algo:
        returns = [algo.train()["env_runners/num_episodes_lifetime"] for _ in range(num_iterations)]
        weights = algo.get_weights()
        sample = [episode.get_state() for episode in algo.env_runner.sample(num_timesteps=30)]
    return [encode(weights), encode(returns), encode(sample)]


@pytest.mark.parametrize("nested", [False, True], ids=["vectors", "nested"])
def test_whatever_memory_an_env_uses_the_same_is_recorded_and_learnt(nested):
    expected = outcome(Fresh, {"nested": nested})
    for name, (env, context) in HOSTILE.items():
        assert outcome(env, {"nested": nested, **context}) == expected, name


def test_callbacks_that_make_an_env_spoil_its_memory_change_nothing():
    for event in ("on_episode_step", "on_episode_start", "on_episode_end"):
        settings = {f"callbacks_{event}": spoil_envs}
        assert outcome(Views, {}, **settings) == outcome(Fresh, {}, **settings)


def test_without_copies_the_hostile_envs_would_show(monkeypatch):
    """A negative control, by nested observations: those are copied by a function."""
    expected = outcome(Fresh, {"nested": True})
    monkeypatch.setattr(step_loop, "copied", lambda value: value)
    for name, (env, context) in HOSTILE.items():
        assert outcome(env, {"nested": True, **context}) != expected, name
    assert outcome(Fresh, {"nested": True}) == expected


@pytest.mark.slow
def test_a_cart_pole_with_two_buffers_learns_as_any_other():
    curves = []
    for env, context in ((Fresh, {}), *HOSTILE.values()):
        made = config(env, context).training(
            train_batch_size=1000, minibatch_size=100, num_epochs=6, lr=1e-3
        )
        with made.training(model={"fcnet_hiddens": [32]}).build_algo() as algo:
            curve = [algo.train()["env_runners/episode_return_mean"] for _ in range(20)]
            curves.append((curve, encode(algo.get_weights())))
    assert curves[0][0][-1] > 100
    assert all(curve == curves[0] for curve in curves)


# ---- actions

ACTION_SPACES = {
    "MultiDiscrete": spaces.MultiDiscrete([3, 4]),
    "MultiDiscrete with starts": spaces.MultiDiscrete([3, 4], start=[1, 1]),
    "MultiBinary": spaces.MultiBinary(3),
    "Box": spaces.Box(-1, 1, (2,), np.float32),
    "unbounded Box": spaces.Box(-np.inf, np.inf, (2,), np.float32),
    "single number": spaces.Box(-np.inf, np.inf, (), np.float32),
    "integers": spaces.Box(0, 3, (2,), np.int64),
    "nested": spaces.Dict(
        {
            "a": spaces.Tuple([spaces.MultiBinary(2), spaces.Discrete(3)]),
            "b": spaces.Box(-1, 1, (2,), np.float32),
            "c": spaces.Discrete(2, start=1),
        }
    ),
}


class Adding(gymnasium.Env[Any, Any]):
    """Shows the sum of its actions; if it is told to, it writes into them."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)

    def __init__(self, context):
        self.action_space = context["space"]
        self.writes = context["writes"]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.total, self.steps = self.np_random.normal(), 0
        return np.array([self.total], np.float32), {}

    def step(self, action):
        self.steps += 1
        flat = spaces.flatten(self.action_space, action)
        self.total = 0.5 * self.total + float(np.dot(flat, np.arange(1, len(flat) + 1)))
        if self.writes:
            spoil(action)
        reward = -abs(self.total)
        return np.array([self.total], np.float32), reward, False, self.steps >= 9, {}


def spoil(value):
    """Writes into every array of a value."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, tuple):
        for part in value:
            spoil(part)
    elif isinstance(value, np.ndarray):
        value[...] = 1


def halves(space, *, writes, restored, folder, **settings):
    """An iteration in the middle of an episode, and two more, restored in between if wanted."""
    made = config(
        Adding,
        {"space": space, "writes": writes},
        train_batch_size=32,
        minibatch_size=16,
        normalize_actions=False,
        clip_actions=False,
        **settings,
    )
    with made.build_algo() as algo:
        algo.train()
        algo.save_to_path(folder)
        if not restored:
            return rest(algo)
    with made.build_algo() as algo:
        algo.restore_from_path(folder)
        return rest(algo)


def rest(algo):
    results = [algo.train() for _ in range(2)]
    assert results[-1]["fault_tolerance/num_episodes_lost_lifetime"] == 0
    sample = [episode.get_state() for episode in algo.env_runner.sample(num_timesteps=30)]
    return [encode(algo.get_weights()), encode(sample)]


@pytest.mark.parametrize("space", ACTION_SPACES.values(), ids=ACTION_SPACES)
def test_an_env_that_writes_into_its_action_changes_nothing(space, tmp_path):
    expected = halves(space, writes=False, restored=False, folder=tmp_path / "1")
    assert halves(space, writes=True, restored=True, folder=tmp_path / "2") == expected


def spoil_records(episode, **_):
    """Writes into the newest step of a running episode, in place and by a setter."""
    spoil(episode.get_observations(-1))
    if len(episode):
        spoil(episode.get_actions(-1))
        episode.set_actions(new_data=copied(episode.get_actions(-1)), at_indices=-1)


@pytest.mark.parametrize("event", ["on_episode_start", "on_episode_step"])
@pytest.mark.parametrize("name", ["MultiBinary", "nested"])
def test_a_callback_that_writes_into_a_running_episode_changes_its_record_alone(
    name, event, tmp_path
):
    space = ACTION_SPACES[name]
    settings = {f"callbacks_{event}": spoil_records}
    ran = [
        halves(space, writes=False, restored=restored, folder=tmp_path / str(restored), **settings)
        for restored in (False, True)
    ]
    assert ran[0] == ran[1]


# ---- copies


def test_a_copy_shares_no_memory_and_keeps_classes_and_values():
    marker = object()
    value = {
        "array": np.arange(3.0),
        "parts": ([np.zeros(2)], {"deep": np.ones(1)}, {1, 2}),
        "marker": marker,
        "text": "a",
    }
    copy = copied(value)
    assert copy["marker"] is marker
    assert [type(part) for part in copy["parts"]] == [list, dict, set]
    expected = encode({**value, "marker": None})
    spoil(value["array"])
    value["parts"][0][0][:] = 7
    spoil(value["parts"][1])
    value["parts"][2].add(3)
    assert encode({**copy, "marker": None}) == expected


def test_an_info_that_holds_itself_is_copied_as_far_as_that_goes():
    info = {"one": 1}
    info["self"] = info
    copy = copied_info(info)
    assert copy is not info
    assert copy["one"] == 1
