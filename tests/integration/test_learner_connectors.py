"""Connector pieces before the learner: what they change, what they remember, exactness."""

import logging
from collections import Counter

import numpy as np
import pytest

from checkpoints import CheckpointMismatchError, encode
from tests.small_runs import killing, small_ppo
from trainer import (
    Algorithm,
    ConfigError,
    ConnectorPipelineV2,
    ConnectorV2,
    DQNConfig,
    EpisodeError,
    PGConfig,
    PPOLearner,
)
from trainer.connectors import ComputeReturnsToGo
from trainer.testing.envs import CountdownEnv
from trainer.testing.multi_agent_envs import MultiAgentCartPole


class ByCount(ConnectorV2):
    """Pays more for what was seen less; its count has no `get_state`."""

    def __init__(self):
        super().__init__()
        self._counts = Counter()
        self.num_calls = 0

    def __call__(self, *, batch, episodes, **_):
        self.num_calls += 1
        for episode in self.single_agent_episode_iterator(episodes=episodes):
            for place, obs in enumerate(episode.get_observations(slice(None, -1))):
                key = tuple(np.ravel(obs))
                self._counts[key] += 1
                reward = episode.get_rewards(place) + 1.0 / self._counts[key]
                episode.set_rewards(new_data=reward, at_indices=place)
        return batch


class Drifting(ConnectorV2):
    """Says itself what it remembers."""

    def __init__(self):
        super().__init__()
        self.drift, self.forgets = 0.0, False

    def __call__(self, *, batch, episodes, **_):
        for episode in episodes:
            self.drift += 0.01 * len(episode)
            episode.set_rewards(new_data=episode.get_rewards() * (1.0 + self.drift))
        return batch

    def get_state(self, *_, **__):
        return {"drift": self.drift}

    def set_state(self, state):
        self.drift = state["drift"]


class Forgetful(Drifting):
    """A negative control: what it remembers is lost."""

    def set_state(self, state):
        self.drift = 0.0


def connected(num_env_runners=0, *pieces, **settings):
    kinds = pieces or (ByCount, Drifting)
    return small_ppo(
        num_env_runners,
        learner_connector=lambda obs_space, act_space: [kind() for kind in kinds],
        **settings,
    )


def two_policies(*pieces):
    made = connected(0, *pieces).environment(MultiAgentCartPole, env_config={"num_agents": 2})
    return made.multi_agent(policies={"a", "b"}, policy_mapping_fn={0: "a", 1: "b"})


def run(config, num_iterations=3):
    with config.build_algo() as algo:
        for _ in range(num_iterations):
            result = algo.train()
        return result, encode(algo.get_state()["learner"])


# ---- what they change


def test_rewards_are_learnt_from_and_returns_stay_those_of_the_env():
    plain, with_pieces = run(small_ppo(), 1)[0], run(connected(), 1)[0]
    losses = [one["learners/default_policy/vf_loss_unclipped"] for one in (plain, with_pieces)]
    assert losses[1] > losses[0]
    shown = [one["env_runners/episode_return_mean"] for one in (plain, with_pieces)]
    assert shown[0] == shown[1]


def test_episodes_of_others_are_not_written_into():
    seen = []

    def on_sample_end(*, samples, **_):
        seen.extend(samples)

    class Spoiling(ConnectorV2):
        def __call__(self, *, batch, episodes, **_):
            for episode in episodes:
                episode.set_rewards(new_data=np.full(len(episode), 1e6))
            return batch

    with connected(0, Spoiling).callbacks(on_sample_end=on_sample_end).build_algo() as algo:
        algo.train()
        algo.train()
    assert seen
    assert max(episode.get_rewards().max() for episode in seen) < 1e3


def test_a_piece_adds_a_column_that_losses_and_callbacks_see():
    seen = {}

    class Reading(PPOLearner):
        def compute_loss(self, batch, outputs, coefficients):
            seen["in the loss"] = batch["returns_to_go"].dtype
            return super().compute_loss(batch, outputs, coefficients)

    def on_learn_on_batch(*, train_batch, **_):
        seen["in a callback"] = np.array(train_batch["returns_to_go"])

    made = small_ppo(
        learner_class=Reading,
        learner_connector=lambda *_: ComputeReturnsToGo(gamma=0.5),
        batch_mode="complete_episodes",
    )
    with made.callbacks(on_learn_on_batch=on_learn_on_batch).build_algo() as algo:
        algo.train()
    assert seen["in the loss"] == np.float32
    assert len(seen["in a callback"]) >= 60


def test_returns_to_go_are_those_that_were_derived_by_hand():
    class Checking(ConnectorV2):
        def __call__(self, *, batch, episodes, **_):
            lengths = [len(episode) for episode in episodes]
            rewards = np.split(
                np.concatenate([e.get_rewards() for e in episodes]), np.cumsum(lengths)
            )
            found = np.split(np.array(batch["returns_to_go"]), np.cumsum(lengths))
            for mine, theirs in zip(rewards, found, strict=True):
                expected = [
                    sum(0.5**k * r for k, r in enumerate(mine[t:])) for t in range(len(mine))
                ]
                np.testing.assert_allclose(theirs, expected, rtol=1e-6)
            return batch

    def pieces(*_):
        return [ComputeReturnsToGo(gamma=0.5), ConnectorPipelineV2(connectors=[Checking()])]

    run(small_ppo(learner_connector=pieces), 1)


def test_a_learner_of_ones_own_adds_pieces():
    class Adding(PPOLearner):
        def build(self):
            super().build()
            self.learner_connector.prepend(ComputeReturnsToGo())

        def compute_loss(self, batch, outputs, coefficients):
            assert "returns_to_go" in batch
            return super().compute_loss(batch, outputs, coefficients)

    run(small_ppo(learner_class=Adding), 1)


def test_pg_takes_pieces_and_replay_refuses_them():
    made = PGConfig().environment(CountdownEnv).env_runners(num_env_runners=0)
    made.training(train_batch_size=40, learner_connector=lambda *_: ByCount())
    with made.build_algo() as algo:
        algo.train()
        assert algo.learner.learner_connector[0].num_calls == 1
    with pytest.raises(ConfigError, match=r"learner_connector.*reads single steps"):
        DQNConfig().environment(CountdownEnv).training(learner_connector=ByCount).validate()


# ---- what they remember


def test_a_restored_run_goes_on_with_what_they_remember(tmp_path):
    with connected().build_algo() as algo:
        algo.train()
        algo.save_to_path(tmp_path / "half")
        algo.train()
        algo.train()
        expected = encode(algo.get_state()["learner"])
    given = {"learner_connector": connected().learner_connector}
    with Algorithm.from_checkpoint(tmp_path / "half", **given) as algo:
        piece = algo.learner.learner_connector[0]
        assert type(piece._counts) is Counter
        assert sum(piece._counts.values()) == 60
        algo.train()
        algo.train()
        assert encode(algo.get_state()["learner"]) == expected


def test_a_piece_that_forgets_changes_the_run(tmp_path):
    outcomes = []
    for piece in (Drifting, Forgetful):
        with connected(0, piece).build_algo() as algo:
            algo.train()
            state = algo.get_state()
            algo.set_state(state)
            algo.train()
            outcomes.append(encode(algo.get_state()["learner"]["rl_module"]))
    assert outcomes[0] != outcomes[1]


def test_a_failed_update_undoes_what_they_remember():
    class Failing(ByCount):
        fails = True

        def __call__(self, **given):
            batch = super().__call__(**given)
            if self.num_calls == 2 and type(self).fails:
                self.mistake = self.num_calls
                type(self).fails = False
                raise InterruptedError("in the second update")
            return batch

    with connected(0, Failing).build_algo() as algo:
        algo.train()
        with pytest.raises(InterruptedError):
            algo.train()
        piece = algo.learner.learner_connector[0]
        assert piece.num_calls == 1
        assert not hasattr(piece, "mistake")
        assert sum(piece._counts.values()) == 60
        algo.train()
        algo.train()
        undone = encode(algo.get_state()["learner"])
    assert undone == run(connected(0, ByCount))[1]


def test_a_later_failure_of_the_iteration_undoes_them_too():
    def on_train_result(*, algorithm, **_):
        if algorithm.learner.learner_connector[0].num_calls == 2 and not seen:
            seen.append(1)
            raise InterruptedError

    seen = []
    with connected().callbacks(on_train_result=on_train_result).build_algo() as algo:
        algo.train()
        with pytest.raises(Exception, match="InterruptedError"):
            algo.train()
        assert algo.learner.learner_connector[0].num_calls == 1
        algo.train()
        algo.train()
        assert encode(algo.get_state()["learner"]) == run(connected())[1]


def test_what_cannot_be_saved_is_named_once(caplog):
    class Holding(ByCount):
        def __init__(self):
            super().__init__()
            self.rng = np.random.default_rng(0)

    with caplog.at_level(logging.WARNING), connected(0, Holding).build_algo() as algo:
        algo.train()
        algo.train()
    assert (
        sum("connector Holding leaves out its attribute `rng`" in one for one in caplog.messages)
        == 1
    )


@pytest.mark.parametrize("spoilt", [{}, {"0": {}}, {"0": {}, "1": 3}, {"0": {}, "2": {}}])
def test_a_state_of_other_pieces_is_refused_and_changes_nothing(spoilt):
    with connected().build_algo() as algo:
        algo.train()
        state = algo.get_state()
        before = encode(state["learner"])
        state["learner"]["learner_connector"] = spoilt
        with pytest.raises(CheckpointMismatchError, match="learner_connector"):
            algo.set_state(state)
        assert encode(algo.get_state()["learner"]) == before


# ---- several learners, processes


def test_each_learner_has_pieces_of_its_own():
    with two_policies(ByCount).build_algo() as algo:
        algo.train()
        pieces = [one.learner_connector[0] for one in algo.learners.values()]
        assert pieces[0] is not pieces[1]
        assert all(piece.num_calls == 1 for piece in pieces)


@pytest.mark.parametrize("is_within", [False, True])
def test_one_piece_for_two_learners_is_refused(is_within):
    shared = ByCount()

    def made_pieces(*_):
        return ConnectorPipelineV2(connectors=[shared]) if is_within else shared

    made = two_policies().training(learner_connector=made_pieces)
    with pytest.raises(ConfigError, match="the same ByCount a second time"):
        made.build_algo()


@pytest.mark.process
def test_killed_and_spread_runs_give_the_same_bytes(tmp_path):
    file = tmp_path / "kill"
    file.touch()
    killed = connected(2).callbacks(on_episode_step=killing(file, at_step=3))
    assert run(connected())[1] == run(killed)[1]
    assert not file.exists(), "no runner was killed"


# ---- wrong pieces


@pytest.mark.parametrize(
    ("made", "match"),
    [
        (lambda *_: 3, "made 3; expected a ConnectorV2"),
        (lambda *_: 1 / 0, "raised ZeroDivisionError"),
        (lambda first, second, *, third: third, "raised TypeError"),
    ],
)
def test_what_is_no_piece_is_refused(made, match):
    with pytest.raises(ConfigError, match=match):
        small_ppo(learner_connector=made).build_algo()


@pytest.mark.parametrize(
    ("column", "rows", "error", "match"),
    [
        ("rewards", [1.0], ConfigError, "Write it there"),
        ("advantages", [1.0] * 60, ConfigError, "which the learner writes itself"),
        ("mine", [1.0], EpisodeError, "one row for each of the 60 steps"),
        ("mine", ["a"] * 60, EpisodeError, "expected numbers"),
        ("mine", [[1.0], [1.0, 2.0]], EpisodeError, "rows of different shapes"),
    ],
)
def test_a_column_that_cannot_be_learnt_from_is_told(column, rows, error, match):
    class Putting(ConnectorV2):
        def __call__(self, *, batch, **_):
            batch[column] = rows
            return batch

    with connected(0, Putting).build_algo() as algo, pytest.raises(error, match=match):
        algo.train()
