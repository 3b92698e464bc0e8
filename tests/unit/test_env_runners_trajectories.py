"""Chunks as columns that callbacks rewrite, and what becomes of the rewrite."""

import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.env_runners.trajectories import (
    FIXED,
    all_observations,
    rewrite_of,
    sealed_copy,
    trajectory_columns,
)
from trainer.episodes import SingleAgentEpisode
from trainer.errors import EpisodeError


def logp(_, inputs, actions):
    return inputs[np.arange(len(actions)), actions]


def chunk(rewards=(1.0, 2.0, 4.0), **more):
    """Steps 5, 6, 7 of an episode, with one step of look-back before them."""
    steps = len(rewards) + 1
    arguments = {
        "observations": [np.array([10.0 * t, -t], np.float32) for t in range(steps + 1)],
        "infos": [{"t": t} for t in range(steps + 1)],
        "actions": [np.int64(t % 2) for t in range(steps)],
        "rewards": [100.0, *rewards],
        "extra_model_outputs": {
            "action_dist_inputs": [np.array([-t, -2 * t], np.float32) for t in range(steps)]
        },
        "len_lookback_buffer": 1,
        "t_started": 5,
    }
    return SingleAgentEpisode("e", **{**arguments, **more})


def shown(episode):
    batch = trajectory_columns(episode, logp=logp)
    return batch, sealed_copy(batch)


def rewritten(batch, before):
    rewrite = rewrite_of(batch, before=before)
    assert rewrite is not None
    return rewrite


def test_columns_have_rllibs_names_and_one_row_per_step_without_look_back():
    batch = trajectory_columns(chunk(terminated=True), logp=logp)
    expected = {
        "obs": [[10, -1], [20, -2], [30, -3]],
        "new_obs": [[20, -2], [30, -3], [40, -4]],
        "actions": [1, 0, 1],
        "rewards": [1, 2, 4],
        "terminateds": [False, False, True],
        "truncateds": [False, False, False],
        "infos": [{"t": 2}, {"t": 3}, {"t": 4}],
        "eps_id": ["e", "e", "e"],
        "unroll_id": [5, 5, 5],
        "agent_index": [0, 0, 0],
        "t": [5, 6, 7],
        "action_dist_inputs": [[-1, -2], [-2, -4], [-3, -6]],
        "action_logp": [-2, -2, -6],
    }
    prob = batch.pop("action_prob")
    assert {name: column.tolist() for name, column in batch.items()} == expected
    np.testing.assert_allclose(prob, np.exp([-2.0, -2.0, -6.0]), rtol=1e-6)
    assert batch["rewards"].dtype == np.float64
    assert batch.count == len(batch) == 3
    assert all_observations(batch).tolist() == [[10, -1], [20, -2], [30, -3], [40, -4]]


@pytest.mark.parametrize("flags", [(True, False), (False, True), (False, False)])
def test_the_last_step_tells_how_the_episode_ended(flags):
    terminated, truncated = flags
    batch = trajectory_columns(chunk(terminated=terminated, truncated=truncated), logp=logp)
    assert batch["terminateds"].tolist() == [False, False, terminated]
    assert batch["truncateds"].tolist() == [False, False, truncated]


def test_columns_share_no_memory_with_the_episode():
    episode = chunk()
    batch = trajectory_columns(episode, logp=logp)
    batch["obs"][:] = 0.0
    batch["new_obs"][:] = 0.0
    batch["rewards"][:] = 0.0
    assert episode.get_observations(0).tolist() == [10.0, -1.0]
    assert episode.get_rewards(0) == 1.0
    assert batch["obs"].base is not batch["new_obs"]


def test_who_changes_nothing_rewrites_nothing():
    batch, before = shown(chunk(rewards=(math.nan, 2.0)))
    batch["rewards"] = batch["rewards"].copy()
    batch["obs"] += 0.0
    assert rewrite_of(batch, before=before) is None


@pytest.mark.parametrize("as_numpy", [False, True])
def test_every_change_is_written_into_the_chunk_and_nothing_else(as_numpy):
    episode = chunk()
    batch, before = shown(episode)
    batch["obs"][1] = [7.0, 7.0]
    batch["new_obs"][2] = [8.0, 8.0]
    batch["actions"] = [0, 0, 1]
    batch["rewards"][2] += 0.5
    batch["infos"] = [{"mine": t} for t in range(3)]
    batch["action_logp"] = np.array([-1.0, -2.0, -3.0])
    batch["advantages"] = np.array([0.5, 0.25, 0.125])
    batch["curiosity"] = np.ones((3, 2), np.float32)
    if as_numpy:
        episode.to_numpy()
    rewritten(batch, before).write_to(episode)
    episode.to_numpy()
    assert episode.get_observations().tolist() == [[10, -1], [7, 7], [30, -3], [8, 8]]
    assert episode.get_observations().dtype == np.float32
    assert episode.get_actions().tolist() == [0, 0, 1]
    assert episode.get_actions().dtype == np.int64
    assert episode.get_rewards().tolist() == [1.0, 2.0, 4.5]
    assert episode.get_infos() == [{"t": 1}, {"mine": 0}, {"mine": 1}, {"mine": 2}]
    outputs = episode.get_extra_model_outputs()
    assert outputs["action_logp"].tolist() == [-1.0, -2.0, -3.0]
    assert outputs["action_logp"].dtype == np.float32
    assert outputs["advantages"].tolist() == [0.5, 0.25, 0.125]
    assert outputs["curiosity"].shape == (3, 2)
    assert outputs["action_dist_inputs"].tolist() == before["action_dist_inputs"].tolist()
    episode.validate()
    lookback = slice(-1, 0)
    assert episode.get_rewards(lookback, neg_index_as_lookback=True).tolist() == [100.0]
    assert episode.get_observations(lookback, neg_index_as_lookback=True).tolist() == [[0, 0]]


def test_changes_inside_an_info_are_the_episodes_own():
    episode = chunk()
    batch, before = shown(episode)
    batch["infos"][0]["late"] = True
    assert rewrite_of(batch, before=before) is None
    assert episode.get_infos(1) == {"t": 2, "late": True}


def test_only_what_changed_becomes_an_output():
    batch, before = shown(chunk())
    batch["rewards"] *= 2.0
    rewrite = rewritten(batch, before)
    assert rewrite.outputs == {}
    assert rewrite.actions is rewrite.observations is rewrite.infos is None


finite = st.floats(-1e6, 1e6)


@given(
    before=st.lists(finite, max_size=4),
    paid=st.lists(finite, min_size=1, max_size=6),
    data=st.data(),
)
def test_the_return_stays_what_the_env_paid_to_the_last_bit(before, paid, data):
    episode = SingleAgentEpisode("e", observations=[0.0])
    for reward in before:
        episode.add_env_step(0.0, 0, reward)
    if before:
        episode = episode.cut()
    for reward in paid:
        episode.add_env_step(0.0, 0, reward)
    batch, untouched = shown(episode)
    batch["rewards"] = np.array(data.draw(st.lists(finite, min_size=len(paid), max_size=len(paid))))
    rewrite = rewrite_of(batch, before=untouched)
    if rewrite is not None:
        rewrite.write_to(episode)
    for form in (episode, episode.to_numpy(), pickle.loads(pickle.dumps(episode))):
        assert form.get_return() == math.fsum(before + paid)
        assert form.get_rewards().tolist() == batch["rewards"].tolist()


def test_an_observation_may_be_changed_where_it_is_seen_before_or_after_a_step():
    for column, row in (("obs", 1), ("new_obs", 0)):
        batch, before = shown(chunk())
        batch[column][row] = [5.0, 5.0]
        assert rewritten(batch, before).observations.tolist() == (
            [[10, -1], [5, 5], [30, -3], [40, -4]]
        )
    batch, before = shown(chunk())
    batch["obs"] *= 0.5
    batch["new_obs"] *= 0.5
    assert rewritten(batch, before).observations[:, 0].tolist() == [5, 10, 15, 20]


def test_an_observation_that_was_changed_in_two_ways_is_refused():
    batch, before = shown(chunk())
    batch["obs"][1] = 5.0
    batch["new_obs"][0] = 6.0
    with pytest.raises(EpisodeError, match="'obs' row 1 and 'new_obs' row 0 are one observation"):
        rewrite_of(batch, before=before)


def test_nested_observations_are_rewritten_part_by_part():
    observations = [{"a": np.array([t], np.float32), "b": (t, np.zeros(2))} for t in range(3)]
    episode = SingleAgentEpisode(
        "e", observations=observations, actions=[0, 1], rewards=[1.0, 1.0], len_lookback_buffer=0
    )
    batch, before = shown(episode)
    assert batch["new_obs"]["b"][0].tolist() == [1, 2]
    batch["obs"]["b"][0][1] = 9
    rewritten(batch, before).write_to(episode)
    episode.to_numpy()
    assert episode.get_observations()["b"][0].tolist() == [0, 9, 2]
    assert episode.get_observations()["a"].tolist() == [[0], [1], [2]]
    batch["obs"] = {"a": batch["obs"]["a"]}
    with pytest.raises(EpisodeError, match="structure"):
        rewrite_of(batch, before=before)


@pytest.mark.parametrize("column", sorted(FIXED))
def test_what_tells_what_happened_can_only_be_read(column):
    batch, before = shown(chunk())
    with pytest.raises(ValueError, match="read-only"):
        batch[column][0] = batch[column][1]
    batch[column] = np.array(batch[column])
    assert rewrite_of(batch, before=before) is None
    batch[column] = ["x" if column == "eps_id" else 2] * 3
    with pytest.raises(EpisodeError, match=f"column '{column}' was changed"):
        rewrite_of(batch, before=before)


def test_the_copy_from_before_is_read_only():
    _, before = shown(chunk())
    with pytest.raises(ValueError, match="read-only"):
        before["rewards"][0] = 5.0


@pytest.mark.parametrize(
    ("column", "given", "words"),
    [
        ("rewards", [1.0, 2.0], "'rewards' has 2 rows now, but the others have 3"),
        ("rewards", [1.0, 2.0, math.nan], "'rewards' holds nan in row 2"),
        ("rewards", [1.0, 2.0, "x"], "array of numbers"),
        ("rewards", [[1.0], [2.0], [4.0]], r"shape \(1,\) now, but had \(\)"),
        ("actions", [0.5, 0.5, 0.5], "float64 now, which int64 cannot hold"),
        ("obs", np.zeros((3, 3)), r"shape \(3,\) now, but had \(2,\)"),
        ("infos", [{}], "'infos' has 1 rows now; expected 3 dicts"),
        ("mine", [1.0, 2.0], "'mine' has 2 rows"),
        ("mine", [1.0, math.inf, 2.0], "'mine' holds inf in row 1"),
        ("mine", 3.0, "'mine' is float now"),
        ("action_logp", None, "'action_logp' was removed"),
    ],
)
def test_what_cannot_be_learnt_from_is_named(column, given, words):
    batch, before = shown(chunk())
    batch[column] = given
    if given is None:
        del batch[column]
    with pytest.raises(EpisodeError, match=words):
        rewrite_of(batch, before=before)


def test_values_alone_cannot_be_rewritten():
    batch, _ = shown(chunk())
    for name in ("vf_preds", "advantages", "value_targets"):
        batch[name] = np.zeros(3)
    before = sealed_copy(batch)
    batch["vf_preds"] += 1.0
    with pytest.raises(EpisodeError, match="'vf_preds' was changed, which alone changes nothing"):
        rewrite_of(batch, before=before)
    batch["advantages"] -= 1.0
    assert set(rewritten(batch, before).outputs) == {"advantages"}


def test_steps_that_no_module_chose_have_no_probabilities():
    batch = trajectory_columns(chunk(extra_model_outputs=None), logp=logp)
    assert not {"action_logp", "action_prob", "action_dist_inputs"} & batch.keys()


def test_the_observation_of_a_single_step_may_be_changed():
    batch, before = shown(chunk()[:1])
    batch["obs"][0] += 1
    assert rewritten(batch, before).observations.tolist() == [[11, 0], [20, -2]]
