"""Chunks that travel together, and what a learner makes of them."""

import pickle

import numpy as np
import pytest
from gymnasium import spaces

from checkpoints import encode
from trainer.connectors import ObservationEncoder
from trainer.episodes import SingleAgentEpisode
from trainer.episodes.episode_block import TravellingEpisodes, row_sources
from trainer.episodes.fragment import Fragment, FragmentEpisode, RowRange, own_memory
from trainer.learners.columns import columns_from_episodes

OBSERVATIONS = spaces.Box(-9.0, 9.0, (3,), np.float32)
ACTIONS = spaces.Discrete(4)


def chunk(number, *, length, lookback=0):
    """A chunk as a runner hands it out; it goes on from others if it has look-back."""
    rng = np.random.default_rng(number)
    total = length + lookback
    episode = SingleAgentEpisode(
        f"training-0-{number}",
        observations=rng.random((total + 1, 3), np.float32),
        observation_space=OBSERVATIONS,
        actions=rng.integers(4, size=total),
        action_space=ACTIONS,
        rewards=rng.random(total),
        terminated=number % 2 == 1,
        extra_model_outputs={
            "action_dist_inputs": rng.random((total, 4), np.float32),
            "action_logp": rng.random(total, np.float32),
        },
        t_started=7 if lookback else 0,
        len_lookback_buffer=lookback,
    )
    episode.earlier_return = [2.5, 1e-17] if lookback else []
    return episode


def chunks():
    return [
        chunk(0, length=5, lookback=2),
        chunk(1, length=1),
        chunk(2, length=9),
        chunk(3, length=4, lookback=1),
    ]


def travelled(episodes):
    return pickle.loads(pickle.dumps(TravellingEpisodes(episodes)))


def learnt_from(episodes):
    columns = columns_from_episodes(episodes, encoder=ObservationEncoder(OBSERVATIONS))
    names = ("observations", "actions", "action_logp", "action_dist_inputs", "rewards")
    more = ("terminateds", "lengths", "is_terminated")
    return encode({name: getattr(columns, name) for name in (*names, *more)})


def test_chunks_arrive_as_they_were():
    sent, arrived = chunks(), travelled(chunks())
    assert row_sources(arrived) is not None
    for before, after in zip(sent, arrived, strict=True):
        assert after.get_return() == before.get_return()
        assert encode(after.get_state()) == encode(before.get_state())
        assert after.observation_space == OBSERVATIONS
        after.validate()


def test_a_learner_gets_the_same_bytes_from_rows_and_from_chunks():
    arrived, looked_at = travelled(chunks()), travelled(chunks())
    for episode in looked_at:
        assert episode.custom_data == {}
    assert row_sources(looked_at) is None
    assert learnt_from(chunks()) == learnt_from(looked_at) == learnt_from(arrived)
    assert learnt_from(travelled(chunks()[:2]) + travelled(chunks()[2:])) == learnt_from(chunks())


@pytest.mark.parametrize(
    "change",
    [
        lambda one: one.custom_data.update(note=1),
        lambda one: one.add_temporary_timestep_data("seen", 1),
        lambda one: one.infos.data[1].update(seen=1),
        lambda one: setattr(one, "task", "hard"),
        lambda one: one.note_rewrite([0.0] * len(one)),
        lambda one: one.set_extra_model_outputs(key="more", new_data=np.zeros(len(one))),
        lambda one: one.to_lists(),
    ],
)
def test_what_a_block_cannot_hold_arrives_all_the_same(change):
    sent = chunks()
    change(sent[2])
    for before, after in zip(sent, travelled(sent), strict=True):
        assert encode(after.get_state()) == encode(before.get_state())
        assert after.task == before.task


def fragment():
    rng = np.random.default_rng(5)
    made = Fragment(np.zeros((2, 3), np.float32), num_rows=8)
    made.open_actions(np.zeros(2, np.int64), {"action_dist_inputs": np.zeros((2, 4), np.float32)})
    for row in range(8):
        outputs = {"action_dist_inputs": rng.random((2, 4), np.float32)}
        made.write_step(row, rng.integers(4, size=2), rng.random(2), outputs)
        made.write_observations(row + 1, rng.random((2, 3), np.float32))
    made.outputs["action_logp"] = rng.random((2, 8), np.float32)
    return made


def parts(source):
    spans = [RowRange(0, 1, 2, 5), RowRange(0, 6, 6, 8), RowRange(1, 0, 0, 8)]
    return [
        FragmentEpisode.of(
            source,
            span,
            (OBSERVATIONS, ACTIONS),
            {"id_": str(span), "is_terminated": False, "is_truncated": False, "t_started": 3},
        )
        for span in spans
    ]


def test_parts_of_a_fragment_travel_without_being_filled():
    source = fragment()
    sent = parts(source)
    arrived = travelled(sent)
    assert all(one.is_untouched for one in sent)
    assert learnt_from(sent) == learnt_from(arrived)
    assert all(one.is_untouched for one in arrived)
    for before, after in zip(parts(source), arrived, strict=True):
        assert encode(after.get_state()) == encode(before.get_state())
        assert after.is_untouched
    filled = parts(source)
    assert [one.is_numpy for one in filled] == [True] * 3
    assert learnt_from(filled) == learnt_from(sent)


def test_what_goes_on_after_a_cut_shares_no_memory_with_the_chunk():
    source = fragment()
    tail, part = source.tail(8, 2, but={"action_logp"}), parts(source)[2]
    expected = part.cut(len_lookback_buffer=1)
    del expected.extra_model_outputs["action_logp"]
    own_memory(expected)
    told = {"id_": part.id_, "is_terminated": False, "is_truncated": False, "t_started": part.t}
    resting = FragmentEpisode.resting(
        tail,
        RowRange(1, 1, 2, 2),
        (OBSERVATIONS, ACTIONS),
        {**told, "earlier_return": expected.earlier_return},
    )
    for column in (part.observations, part.actions, part.rewards):
        column.data[:] = 0
    assert encode(resting.get_state()) == encode(expected.get_state())
    assert resting.is_untouched
    for episode in (resting, expected):
        outputs = {"action_dist_inputs": np.zeros(4, np.float32)}
        episode.add_env_step(np.ones(3, np.float32), 1, 1.0, extra_model_outputs=outputs)
    assert encode(resting.get_state()) == encode(expected.get_state())


def test_a_chunk_that_is_kept_keeps_no_rows_of_others_alive():
    source = fragment()
    sent = parts(source)
    for kept in (sent[1], travelled(sent * 2)[1]):
        columns = [kept.observations.data, kept.actions.data, kept.rewards.data]
        columns += [column.data for column in kept.extra_model_outputs.values()]
        assert all(column.base is None or column.base.size <= column.size for column in columns)
        assert encode(kept.get_state()) == encode(parts(source)[1].get_state())
    large = sent[2]
    assert np.shares_memory(large.rewards.data, source.rewards), "half of it is no waste"
