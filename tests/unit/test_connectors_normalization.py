"""Running moments and what they do to observations and rewards."""

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from trainer.connectors import (
    Normalization,
    NormalizationSettings,
    NormalizationStatistics,
    ObservationEncoder,
    ObservationNormalizer,
    RewardTransform,
    RunningMoments,
)
from trainer.episodes import SingleAgentEpisode
from trainer.errors import EpisodeError

PLANE = spaces.Box(-1e9, 1e9, (2,))


def merged(parts):
    moments = RunningMoments.empty(parts[0].shape[1])
    for part in parts:
        moments = moments.merged(RunningMoments.of(part))
    return moments


@given(
    numbers=st.lists(st.tuples(*[st.floats(-1e6, 1e6, width=32)] * 2), min_size=1, max_size=40),
    cuts=st.lists(st.integers(0, 40), max_size=5),
)
def test_merging_any_parts_gives_the_moments_of_the_whole(numbers, cuts):
    rows = np.array(numbers)
    moments = merged(np.split(rows, sorted(cut for cut in cuts if cut <= len(rows))))
    assert moments.count == len(rows)
    scale = np.abs(rows).max() + 1e-30
    np.testing.assert_allclose(moments.mean, rows.mean(axis=0), atol=1e-12 * scale)
    variance = moments.squares / moments.count
    np.testing.assert_allclose(variance, rows.var(axis=0), atol=1e-12 * scale**2)


def test_a_negative_control_without_the_difference_of_the_means_is_seen():
    first, second = np.zeros((3, 1)), np.ones((3, 1))
    moments = merged([first, second])
    forgetful = RunningMoments.of(first).squares + RunningMoments.of(second).squares
    assert forgetful[0] == 0.0
    assert moments.squares[0] == pytest.approx(1.5)


def test_what_never_changed_is_not_scaled():
    assert merged([np.array([[1.0], [3.0]]), np.array([[8.0]])]).std[0] == (26.0 / 3.0) ** 0.5
    rows = np.full((50, 3), [0.1, 1e6, 0.0])
    assert merged([rows[:7], rows[7:]]).std.tolist() == [1.0, 1.0, 1.0]
    rows[0] = [0.1 + 1e-6, 1e6 + 1.0, 1e-9]
    assert (RunningMoments.of(rows).std < 1.0).all(), "small changes are changes"


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused(value):
    with pytest.raises(EpisodeError, match=r"not finite; the env gave some, at \[1\]"):
        RunningMoments.of(np.array([[0.0, value], [0.0, 1.0]]))


def normalizer(rows, is_normalized=None):
    chosen = np.ones(rows.shape[1], np.bool_) if is_normalized is None else is_normalized
    return ObservationNormalizer.of(RunningMoments.of(rows), is_normalized=chosen)


def test_observations_get_mean_0_and_deviation_1_and_are_clipped():
    rows = np.array([[99.0, 0.001], [101.0, 0.003]])
    scale = normalizer(rows)
    np.testing.assert_allclose(scale(rows.astype(np.float32)), [[-1, -1], [1, 1]], rtol=1e-4)
    far = scale(np.array([[1e9, -1e9]], np.float32))
    assert far.dtype == np.float32
    assert far.tolist() == [[10.0, -10.0]]


def test_large_offsets_leave_what_is_left():
    rows = (1e6 + np.arange(8.0)[:, None] % 4).astype(np.float32)
    np.testing.assert_allclose(normalizer(rows)(rows).std(axis=0), 1.0, rtol=1e-6)


def test_before_anything_was_seen_observations_are_only_clipped():
    empty = ObservationNormalizer.of(RunningMoments.empty(2), is_normalized=np.array([True, False]))
    assert empty(np.array([[3.0, 3.0], [99.0, 99.0]], np.float32)).tolist() == [[3, 3], [10, 99]]


def test_every_row_is_normalised_by_itself():
    rows = np.random.default_rng(0).normal(5.0, 3.0, (33, 7)).astype(np.float32)
    scale = normalizer(rows)
    together = scale(rows)
    for index, row in enumerate(rows):
        assert scale(row[None]).tobytes() == together[index].tobytes()


def test_codes_bits_and_masks_stay_as_they_are():
    space = spaces.Dict(
        {
            "action_mask": spaces.Box(0, 1, (2,), np.int8),
            "bits": spaces.MultiBinary(2),
            "kind": spaces.Discrete(3),
            "speed": spaces.Box(-100.0, 100.0, (1,)),
        }
    )
    encoder = ObservationEncoder(space)
    assert encoder.is_scalable.tolist() == [False] * 5 + [True] + [False] * 2
    speeds = np.array([[10.0], [30.0]], np.float32)
    batch = {
        "action_mask": np.array([[0, 1], [1, 1]], np.int8),
        "bits": np.array([[0, 1], [1, 1]], np.int8),
        "kind": np.array([2, 0]),
        "speed": speeds,
    }
    plain = encoder.encode(batch)
    encoder.normalizer = normalizer(plain, encoder.is_scalable)
    changed = encoder.encode(batch)
    np.testing.assert_allclose(changed[:, 5], [-1.0, 1.0])
    kept = [0, 1, 2, 3, 4, 6, 7]
    assert changed[:, kept].tobytes() == plain[:, kept].tobytes()
    one_by_one = [{name: part[row] for name, part in batch.items()} for row in range(2)]
    assert encoder.encode(one_by_one).tobytes() == changed.tobytes()


@pytest.mark.parametrize(
    ("clip", "expected"),
    [
        (None, [-3.0, 0.0, 0.25, 7.0]),
        (False, [-3.0, 0.0, 0.25, 7.0]),
        (True, [-1.0, 0.0, 1.0, 1.0]),
        (0.5, [-0.5, 0.0, 0.25, 0.5]),
        (1, [-1.0, 0.0, 0.25, 1.0]),
    ],
)
def test_rewards_are_clipped_as_rllib_says(clip, expected):
    transform = RewardTransform(clip)
    rewards = np.array([-3.0, 0.0, 0.25, 7.0])
    assert transform(rewards).tolist() == expected
    assert transform.does_clip == (clip not in (None, False))


def test_rewards_are_clipped_scaled_and_clipped_again_never_shifted():
    transform = RewardTransform(50.0, factor=0.5)
    assert transform(np.array([0.0, 4.0, 19.0, 1000.0])).tolist() == [0.0, 2.0, 9.5, 10.0]
    assert transform.scaled(np.array([4.0], np.float32)).dtype == np.float32


# ---- statistics of episodes


def episode(rewards, *, seed=0, terminated=True, id_="e"):
    observations = np.random.default_rng(seed).normal(50.0, 9.0, (len(rewards) + 1, 2))
    return SingleAgentEpisode(
        id_,
        observations=list(observations.astype(np.float32)),
        actions=[0] * len(rewards),
        rewards=rewards,
        terminated=terminated,
        len_lookback_buffer=0,
    )


def statistics(**options):
    chosen = NormalizationSettings(**{"observations": True, "rewards": True, **options})
    return NormalizationStatistics(chosen, ObservationEncoder(PLANE))


def test_rewards_are_divided_by_the_deviation_of_the_discounted_return():
    subject = statistics(gamma=0.5)
    subject.add([episode([1.0, 1.0, 4.0]).to_numpy(), episode([8.0], id_="f").to_numpy()])
    returns = [1.0, 1.5, 4.75, 8.0]  # begins anew with every episode
    assert subject.current().rewards.factor == pytest.approx(1.0 / np.std(returns))


def test_returns_and_observations_are_those_of_clipped_rewards_and_raw_observations():
    subject, given = statistics(clip_rewards=True, gamma=1.0), episode([5.0, -3.0, 9.0]).to_numpy()
    subject.add([given])
    assert subject.current().rewards.factor == pytest.approx(1.0 / np.std([1.0, 0.0, 1.0]))
    state = subject.get_state()["observations"]
    assert state["count"] == 4
    np.testing.assert_allclose(state["mean"], given.get_observations().mean(axis=0, dtype=float))


@given(cuts=st.sets(st.integers(1, 9)), lookback=st.integers(0, 3))
def test_however_an_episode_is_cut_every_step_counts_once(cuts, lookback):
    rewards = [float(number**2 % 7) for number in range(10)]
    whole, cut = statistics(gamma=0.9), statistics(gamma=0.9)
    given = episode(rewards)
    whole.add([episode(rewards).to_numpy()])
    observations = given.get_observations()
    chunk = SingleAgentEpisode("e", observations=[observations[0]], len_lookback_buffer=0)
    for step, reward in enumerate(rewards):
        chunk.add_env_step(observations[step + 1], 0, reward, terminated=step == 9)
        if step + 1 in cuts and step < 9:
            following = chunk.cut(len_lookback_buffer=lookback)
            cut.add([chunk.to_numpy()])
            chunk = following
    cut.add([chunk.to_numpy()])
    expected, found = whole.get_state(), cut.get_state()
    assert found["running"] == expected["running"] == {}
    for name in ("observations", "returns"):
        assert found[name]["count"] == expected[name]["count"]
        np.testing.assert_allclose(found[name]["mean"], expected[name]["mean"], rtol=1e-12)
        np.testing.assert_allclose(found[name]["squares"], expected[name]["squares"], rtol=1e-9)


def test_returns_of_running_episodes_go_on_and_survive_a_restore():
    subject, restored = statistics(gamma=0.5), statistics(gamma=0.5)
    subject.add([episode([4.0, 4.0], terminated=False).to_numpy()])
    state = subject.get_state()
    assert state["running"] == {"e": 6.0}
    restored.set_state(state)
    assert restored.current().rewards == subject.current().rewards
    for each in (subject, restored):
        each.add([episode([1.0], id_="f").to_numpy()])
        assert each.get_state()["running"] == {"e": 6.0}, "another episode's end is not its own"
    assert restored.get_state()["returns"] == subject.get_state()["returns"]


def test_episodes_that_were_given_up_are_forgotten():
    subject = statistics(num_slots=2)
    for number in range(5):
        subject.add([episode([1.0], terminated=False, id_=f"e{number}").to_numpy()])
    assert list(subject.get_state()["running"]) == ["e3", "e4"]


def test_what_is_not_finite_changes_nothing():
    subject = statistics()
    subject.add([episode([1.0, 2.0]).to_numpy()])
    before = subject.get_state()
    with pytest.raises(EpisodeError, match="not finite"):
        subject.add([episode([1.0, np.nan]).to_numpy()])
    after = subject.get_state()
    assert after["observations"]["count"] == before["observations"]["count"] == 3
    assert after["returns"]["squares"].tolist() == before["returns"]["squares"].tolist()


def test_nothing_is_done_unless_it_is_asked_for():
    subject = statistics(observations=False, rewards=False)
    subject.add([episode([1.0, 5.0]).to_numpy()])
    assert subject.current() == Normalization()
    assert not subject.has_state
    assert not subject.has_effect
    assert statistics(observations=False, rewards=False, clip_rewards=True).has_effect


def test_replay_gets_copies_with_clipped_rewards():
    given = episode([5.0, -3.0, 0.5]).to_numpy()
    subject = statistics(clip_rewards=1.0)
    stored = subject.with_clipped_rewards([given])[0]
    assert stored.get_rewards().tolist() == [1.0, -1.0, 0.5]
    assert given.get_rewards().tolist() == [5.0, -3.0, 0.5]
    assert given.get_return() == 2.5
    assert stored.observations is given.observations
    assert statistics().with_clipped_rewards([given])[0] is given


def test_spaces_without_quantities_are_left_alone():
    encoder = ObservationEncoder(spaces.Discrete(3))
    subject = NormalizationStatistics(NormalizationSettings(observations=True), encoder)
    played = SingleAgentEpisode(
        "e", observations=[0, 1, 2], actions=[0, 0], rewards=[1.0, 1.0], len_lookback_buffer=0
    )
    subject.add([played.to_numpy()])
    encoder.normalizer = subject.current().observations
    assert encoder.encode([2]).tolist() == [[0.0, 0.0, 1.0]]
