"""Connector pieces of users: RLlib's examples; exactness is in `tests/contract`."""

import zlib
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from checkpoints import encode
from tests.exact_runs import Inverted, PreviousReward, RunningScale, pieces
from tests.small_runs import small_ppo
from trainer import (
    ConfigError,
    ConnectorPipelineV2,
    ConnectorV2,
    FlattenObservations,
    FrameStacking,
    MeanStdFilter,
    PrevActionsPrevRewards,
    SingleAgentEnvRunner,
    SingleAgentEpisode,
    SingleAgentObservationPreprocessor,
    TrainerError,
)


class Sums(gym.Env[Any, Any]):
    """Shows the sum of the actions, and how many there were; an episode lasts 7 steps."""

    observation_space = gym.spaces.Dict(
        {"sum": gym.spaces.Box(-99, 99, (1,)), "kind": gym.spaces.Discrete(3)}
    )
    action_space = gym.spaces.Discrete(2)

    def __init__(self, _=None):
        self.taken = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.taken = []
        return self._shown(), {}

    def step(self, action):
        self.taken.append(int(action))
        return self._shown(), float(action), len(self.taken) == 7, False, {"got": int(action)}

    def _shown(self):
        total = np.array([sum(self.taken)], np.float32)
        return {"sum": total, "kind": np.int64(len(self.taken) % 3)}


def config(**settings):
    made = small_ppo(env=Sums, num_slots=2, batch=30, seed=4)
    made.evaluation(evaluation_interval=1, evaluation_duration=2)
    made.env_runners(
        env_to_module_connector=pieces,
        module_to_env_connector=lambda env, spaces, device: Inverted(),
    )
    return made.update_from_dict(settings)


def weights_of(algorithm):
    state = algorithm.get_weights()["default_policy"]
    return b"".join(state[name].tobytes() for name in sorted(state))


def test_observations_and_actions_go_through_the_pieces():
    runner = SingleAgentEnvRunner(config=config())
    try:
        first, *_ = runner.sample(num_episodes=2)
        assert runner.env.single_observation_space.shape == (5,)
        assert first.get_observations().shape == (8, 5)
        actions, rewards = first.get_actions(), first.get_rewards()
        assert (rewards == 1 - actions).all()  # the env got the other one
        assert first.get_observations()[1:, -1].tolist() == rewards.tolist()
        largest = np.maximum.accumulate(np.maximum(1, np.cumsum(rewards)))
        sums = np.cumsum(rewards) / largest
        column = int(np.argmax(first.get_observations()[-1, :4] == np.float32(sums[-1])))
        np.testing.assert_array_equal(first.get_observations()[1:, column], sums.astype(np.float32))
        assert runner.env.foreach_env(lambda env: type(env)) == [Sums, Sums]
    finally:
        runner.stop()


def test_a_lost_state_of_the_pieces_is_seen(tmp_path, monkeypatch):
    with config().build_algo() as algorithm:
        for _ in range(2):
            algorithm.train()
        path = algorithm.save_to_path(tmp_path / "checkpoint")
        algorithm.train()
        expected = weights_of(algorithm)
    with config().build_algo() as again:
        monkeypatch.setattr(RunningScale, "get_state", lambda self: {})
        monkeypatch.setattr(RunningScale, "set_state", lambda self, state: None)
        again.restore_from_path(path)
        again.train()
        assert weights_of(again) != expected


class Counting(SingleAgentObservationPreprocessor):
    """Divides by the number of observations so far, which it knows only after the first one."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.seen = {}

    def preprocess(self, observation, episode):
        del episode
        self.seen["observations"] = self.seen.get("observations", 0) + 1
        return np.float32(observation / self.seen["observations"])

    def get_state(self, *_, **__):
        return dict(self.seen)

    def set_state(self, state):
        self.seen = dict(state)


def test_a_piece_goes_back_to_an_empty_state():
    made = config(env_to_module_connector=lambda *_: [FlattenObservations(), Counting()])
    with made.build_algo() as algorithm:
        began = algorithm.get_state()
        outcomes = []
        for _ in range(2):
            algorithm.set_state(began)
            algorithm.train()
            outcomes.append(encode(algorithm.get_state(["learner", "env_runners", "evaluation"])))
    assert outcomes[0] == outcomes[1]


class Marked(SingleAgentObservationPreprocessor):
    """Adds up numbers of the episodes' ids, in what it shows as well."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.mark = 0

    def preprocess(self, observation, episode):
        self.mark = (self.mark + zlib.crc32(episode.id_.encode())) % 101
        return observation + np.float32(self.mark)

    def get_state(self, *_, **__):
        return {"mark": self.mark}

    def set_state(self, state):
        self.mark = state["mark"]


def test_the_episodes_of_pieces_have_the_same_ids_in_every_run():
    """And in a restored one, which plays running episodes again."""
    made = config(env_to_module_connector=lambda *_: [FlattenObservations(), Marked()])
    with made.build_algo() as algorithm:
        algorithm.train()
        state = algorithm.get_state()
        algorithm.train()
        expected = encode(algorithm.get_state()["env_runners"])
    with made.build_algo() as again:
        again.set_state(state)
        again.train()
        assert encode(again.get_state()["env_runners"]) == expected


def test_the_mean_std_filter_as_a_piece_is_the_observation_filter():
    outcomes = []
    for settings in (
        {"observation_filter": "MeanStdFilter"},
        {"env_to_module_connector": lambda env, spaces, device: MeanStdFilter()},
    ):
        asked = config(env_to_module_connector=None, module_to_env_connector=None)
        with asked.env_runners(**settings).build_algo() as algorithm:
            algorithm.train()
            algorithm.train()
            outcomes.append(weights_of(algorithm))
    assert outcomes[0] == outcomes[1]


def test_frames_are_stacked_from_zeros_on():
    asked = config(
        env_to_module_connector=lambda env: [FlattenObservations(), FrameStacking(num_frames=3)],
        module_to_env_connector=None,
    )
    runner = SingleAgentEnvRunner(config=asked)
    episode, *_ = runner.sample(num_episodes=1)
    runner.stop()
    stacked = episode.get_observations().reshape(8, 3, 4)
    assert (stacked[0, :2] == 0.0).all()
    for step in range(1, 8):
        assert (stacked[step, :2] == stacked[step - 1, 1:]).all()


@pytest.mark.parametrize("actions", [gym.spaces.Discrete(2), gym.spaces.Box(-1, 1, (2,))])
def test_previous_actions_and_rewards_are_shown_from_zeros_on(actions):
    piece = PrevActionsPrevRewards(n_prev_actions=2, n_prev_rewards=3, multi_agent=False)
    piece.input_observation_space = gym.spaces.Discrete(9)
    piece.input_action_space = actions
    codes = np.array([[0, 1], [1, 0], [0, 1]], np.float32)
    taken = codes if isinstance(actions, gym.spaces.Box) else [1, 0, 1]
    episode = SingleAgentEpisode(
        observation_space=piece.input_observation_space, action_space=actions
    )
    episode.add_env_reset(np.int64(0), {})
    for step in range(4):
        if step:
            episode.observation_space = piece.input_observation_space
            episode.add_env_step(np.int64(step), taken[step - 1], float(step), {})
        assert piece(batch={}, episodes=[episode]) == {}
        shown = episode.get_observations(-1)
        assert shown in piece.observation_space
        assert shown["_orig_obs"] == step
        padded = np.concatenate([np.zeros((2, 2)), codes[:step]])
        assert (shown["prev_n_actions"] == padded[-2:].reshape(-1)).all()
        rewards = [0.0, 0.0, 0.0, 1.0, 2.0, 3.0][step : step + 3]
        assert shown["prev_n_rewards"].tolist() == rewards


def test_previous_actions_stand_in_the_episodes_of_a_runner():
    asked = config(
        env_to_module_connector=lambda env: [PrevActionsPrevRewards(), FlattenObservations()],
        module_to_env_connector=None,
    )
    runner = SingleAgentEnvRunner(config=asked)
    episode, *_ = runner.sample(num_episodes=1)
    runner.stop()
    shown, taken = episode.get_observations(), episode.get_actions()
    assert shown.shape == (8, 4 + 2 + 1)
    assert (shown[0, 4:] == 0.0).all()
    assert (shown[1:, 4:6] == np.eye(2)[taken]).all()
    assert (shown[1:, 6] == episode.get_rewards()).all()


def test_pipelines_can_be_put_together():
    pipeline = ConnectorPipelineV2(connectors=[RunningScale()])
    pipeline.prepend(FlattenObservations())
    pipeline.append(PreviousReward())
    pipeline.insert_after("FlattenObservations", FrameStacking(num_frames=2))
    pipeline.insert_before(PreviousReward, MeanStdFilter())
    pipeline.remove("MeanStdFilter")
    pipeline.connect(Sums.observation_space, Sums.action_space)
    assert [piece.name for piece in pipeline.connectors] == [
        "FlattenObservations",
        "FrameStacking",
        "RunningScale",
        "PreviousReward",
    ]
    assert pipeline.observation_space.shape == (9,)


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (lambda env: 3, "expected a ConnectorV2"),
        (lambda env, spaces: 1 / 0, "raised ZeroDivisionError"),
        (lambda: FrameStacking(num_frames=2), "FlattenObservations before"),
        ([FlattenObservations(), Marked()].copy, "same FlattenObservations"),
        (lambda: [FlattenObservations()] + [MeanStdFilter()] * 2, "same MeanStdFilter"),
    ],
)
def test_what_makes_no_pieces_is_told(made, told):
    with pytest.raises(TrainerError, match=told):
        SingleAgentEnvRunner(config=config(env_to_module_connector=made))


class Adding(ConnectorV2):
    """Adds a column to the batch."""

    def __init__(self, **columns):
        super().__init__()
        self.columns = columns

    def __call__(self, *, batch, **_):
        return {**batch, **self.columns}


@pytest.mark.parametrize(
    ("side", "column", "told"),
    [
        ("env_to_module", {"prev_actions": [1]}, "'prev_actions' into the batch"),
        ("env_to_module", {"obs": []}, r"left \[\] under 'obs'"),
        ("env_to_module", {"obs": {"sum": 0.0}}, r"left \{'sum': 0.0\} under 'obs'"),
        ("module_to_env", {"actions_for_env": 1}, "left 1 under 'actions_for_env'"),
        ("module_to_env", {"actions": []}, r"left \[\] under 'actions'"),
    ],
)
def test_columns_that_pieces_spoil_are_told(side, column, told):
    made = config(**{f"{side}_connector": lambda env: Adding(**column)})
    runner = SingleAgentEnvRunner(config=made)
    with pytest.raises(ConfigError, match=told):
        runner.sample(num_timesteps=2)
    runner.stop()


def test_what_pieces_cannot_do_is_told():
    with config().build_algo() as algorithm, pytest.raises(ConfigError, match="pieces see"):
        algorithm.compute_single_action(Sums().reset()[0])


class Halved(SingleAgentObservationPreprocessor):
    """Forgets to say of which space its observations are."""

    def preprocess(self, observation, episode):
        return np.ravel(observation)[:0]


def test_a_piece_whose_observation_has_another_shape_is_named():
    made = config(env_to_module_connector=lambda env: Halved()).environment("CartPole-v1")
    runner = SingleAgentEnvRunner(config=made)
    with pytest.raises(ConfigError, match=r"Halved\.preprocess\(\).*recompute_output_observation"):
        runner.sample(num_timesteps=2)
    runner.stop()
