"""What holds for every episode: any length, look-back, cuts, kind of observations, lists or arrays.

Each is compared with plain Python lists, or with the same episode that took another way.
"""

import math

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoints import codec
from trainer.episodes import SingleAgentEpisode, nested
from trainer.errors import EpisodeIndexError

SPACES = {
    "number": spaces.Discrete(50),
    "vector": spaces.Box(-50, 50, (2,), np.float32),
    "dict": spaces.Dict({"a": spaces.Discrete(50), "b": spaces.Box(0, 50, (1, 2), np.float64)}),
    "tuple": spaces.Tuple(
        [spaces.MultiDiscrete([50, 3]), spaces.Dict({"c": spaces.Box(0, 255, (2,), np.uint8)})]
    ),
}
KINDS = st.sampled_from(sorted(SPACES))
REWARDS = st.lists(st.floats(-1e9, 1e9) | st.sampled_from([0.1, 1e16, -1e16]), max_size=8)
INDEX = st.integers(-12, 12)
INDICES = (
    st.none()
    | INDEX
    | st.lists(INDEX, max_size=4)
    | st.builds(slice, st.none() | INDEX, st.none() | INDEX, st.sampled_from([None, 1, 2, -1]))
)


def observation(kind, t):
    """The observation before step t."""
    if kind == "number":
        return t
    if kind == "vector":
        return np.array([t, -t], np.float32)
    if kind == "dict":
        return {"a": t, "b": np.array([[t, t / 2]])}
    return np.array([t, t % 3]), {"c": np.array([t, 255 - t], np.uint8)}


def outputs(t):
    return {"action_logp": np.float32(-t / 3), "action_dist_inputs": np.array([t, 1], np.float32)}


def started(kind):
    episode = SingleAgentEpisode(
        "e", observation_space=SPACES[kind], action_space=spaces.Discrete(3)
    )
    episode.add_env_reset(observation(kind, 0), {"t": 0})
    return episode


def play(episode, kind, rewards, *, done=False):
    for number, reward in enumerate(rewards, start=1):
        t = episode.t + 1
        episode.add_env_step(
            observation(kind, t),
            t % 3,
            reward,
            {"t": t},
            terminated=done and number == len(rewards),
            extra_model_outputs=outputs(t - 1),
        )
        episode.custom_data.setdefault("ts", []).append(t)
        episode.add_temporary_timestep_data("ts", t)
        episode.hist_data.setdefault("rewards", []).append(reward)


def chunk_of(kind, *, steps, lookback, numpy=False):
    """A chunk of `steps` steps with look-back, cut from an episode."""
    episode = started(kind)
    play(episode, kind, [float(t) for t in range(lookback)])
    chunk = episode.cut(lookback)
    play(chunk, kind, [float(t) for t in range(lookback, lookback + steps)])
    return chunk.to_numpy() if numpy else chunk


def as_bytes(episode):
    return codec.encode(episode.get_state())


@given(kind=KINDS, rewards=REWARDS, done=st.booleans(), data=st.data())
def test_cutting_and_joining_gives_the_same_bytes(kind, rewards, done, data):
    whole = started(kind)
    play(whole, kind, rewards, done=done)
    last_cut = max(0, len(rewards) - 1)  # an episode that is done cannot be cut
    cuts = sorted(data.draw(st.lists(st.integers(0, last_cut), max_size=4)))
    chunks, start = [started(kind)], 0
    for stop in cuts:
        play(chunks[-1], kind, rewards[start:stop])
        chunks.append(chunks[-1].cut(data.draw(st.integers(0, 3))))
        start = stop
    play(chunks[-1], kind, rewards[start:], done=done)
    assert sum(len(chunk) for chunk in chunks) == len(whole) == chunks[-1].t
    modes = [data.draw(st.booleans()) for _ in chunks]
    for chunk, is_numpy in zip(chunks, modes, strict=True):
        chunk.validate()
        if is_numpy:
            chunk.to_numpy()
    joined = chunks[0]
    for chunk in chunks[1:]:
        joined.concat_episode(chunk)
    joined.validate()
    assert joined.is_numpy is modes[0]
    if any(modes):  # the way through an array turns Python's numbers into NumPy's
        joined.to_numpy()
        whole.to_numpy()
    assert as_bytes(joined) == as_bytes(whole)


@given(
    kind=KINDS,
    steps=st.integers(0, 5),
    lookback=st.integers(0, 3),
    numpy=st.booleans(),
    indices=INDICES,
)
def test_a_state_through_the_codec_gives_an_equal_episode(kind, steps, lookback, numpy, indices):
    episode = chunk_of(kind, steps=steps, lookback=lookback, numpy=numpy)
    episode.custom_data["mixed"] = [1, (2.5, np.ones(2)), {"k": None}, {"z"}]
    encoded = as_bytes(episode)
    restored = SingleAgentEpisode.from_state(
        codec.decode(encoded),
        observation_space=episode.observation_space,
        action_space=episode.action_space,
    )
    restored.validate()
    assert as_bytes(restored) == encoded
    first, second = answers(episode, indices, fill=0), answers(restored, indices, fill=0)
    assert codec.encode(first) == codec.encode(second)  # types and bits
    if numpy and steps:
        restored.set_rewards(new_data=np.full(steps, 5.0))  # what was decoded can be written
        assert restored.get_rewards().tolist() == [5.0] * steps
    assert as_bytes(episode) == encoded


def answers(episode, indices, **options):
    """What all getters say; the word "outside" where they refuse."""
    getters = {
        "observations": episode.get_observations,
        "actions": episode.get_actions,
        "rewards": episode.get_rewards,
        "infos": episode.get_infos,
        "outputs": lambda *args, **kwargs: episode.get_extra_model_outputs(None, *args, **kwargs),
    }
    found = {}
    for name, getter in getters.items():
        own = dict(options)
        if name not in ("observations", "actions"):
            own.pop("one_hot_discrete", None)
        try:
            found[name] = getter(indices, **own)
        except EpisodeIndexError:
            found[name] = "outside"
    return found


def unbatched(value, count):
    """A batch as a list of `count` items; None for a single item."""
    if count is None or isinstance(value, list | str):
        return value
    return nested.unstack(value, count)


def assert_same(first, second):
    if isinstance(first, list):
        assert len(first) == len(second)
        for one, other in zip(first, second, strict=True):
            assert_same(one, other)
    elif isinstance(first, dict | tuple):
        assert nested.equal(first, second)
    else:
        assert np.array_equal(np.asarray(first), np.asarray(second))


@settings(max_examples=150)
@given(
    kind=KINDS,
    steps=st.integers(1, 4),
    lookback=st.integers(0, 3),
    indices=INDICES,
    as_lookback=st.booleans(),
    fill=st.sampled_from([None, 0, 3, -1]),
    one_hot=st.booleans(),
)
def test_getters_agree_before_and_after_to_numpy(
    kind, steps, lookback, indices, as_lookback, fill, one_hot
):
    options = {"neg_index_as_lookback": as_lookback, "fill": fill, "one_hot_discrete": one_hot}
    episode = chunk_of(kind, steps=steps, lookback=lookback)
    before = answers(episode, indices, **options)
    after = answers(episode.to_numpy(), indices, **options)
    for name, items in before.items():
        if name == "outputs" and isinstance(items, dict):
            for key, column in items.items():
                count = len(column) if isinstance(column, list) else None
                assert_same(column, unbatched(after[name][key], count))
            continue
        count = len(items) if isinstance(items, list) else None
        assert_same(items, unbatched(after[name], count))


@settings(max_examples=100)
@given(
    steps=st.integers(1, 5),
    lookback=st.integers(0, 3),
    numpy=st.booleans(),
    indices=INDICES,
    as_lookback=st.booleans(),
    batch=st.booleans(),
)
def test_what_is_set_is_what_is_got_and_nothing_else_changes(
    steps, lookback, numpy, indices, as_lookback, batch
):
    flag = {"neg_index_as_lookback": as_lookback}
    episode = chunk_of("vector", steps=steps, lookback=lookback, numpy=numpy)
    positions = chunk_of("vector", steps=steps, lookback=lookback)
    total = lookback + steps
    positions.rewards.data = list(range(total))
    try:
        places = positions.get_rewards(indices, **flag)
    except EpisodeIndexError:
        with pytest.raises(EpisodeIndexError):
            episode.set_rewards(new_data=[0.5], at_indices=indices, **flag)
        return
    model = [float(t) for t in range(total)]
    chosen = [places] if isinstance(places, int) else places
    new = [100.5 + number for number in range(len(chosen))]
    for place, value in zip(chosen, new, strict=True):
        model[place] = value
    data = new[0] if isinstance(places, int) else np.array(new) if batch else new
    episode.set_rewards(new_data=data, at_indices=indices, **flag)
    episode.validate()
    assert list(episode.get_rewards(slice(-total, None))) == model
    assert episode.chunk_return() == math.fsum(model[lookback:])


@given(
    kind=KINDS,
    rewards=REWARDS,
    lookback=st.integers(0, 3),
    start=st.none() | INDEX,
    stop=st.none() | INDEX,
    numpy=st.booleans(),
)
def test_a_slice_holds_what_lists_hold(kind, rewards, lookback, start, stop, numpy):
    episode = started(kind)
    play(episode, kind, rewards)
    if numpy:
        episode.to_numpy()
    part = episode.slice(slice(start, stop), len_lookback_buffer=lookback)
    part.validate()
    first, last, _ = slice(start, stop).indices(len(rewards))
    last = max(first, last)
    assert list(part.get_rewards()) == rewards[first:last]
    assert [info["t"] for info in part.get_infos()] == list(range(first, last + 1))
    for t in range(first - part.lookback, last + 1):
        seen = part.get_observations(t - first, neg_index_as_lookback=True)
        assert nested.equal(seen, observation(kind, t))
    assert part.lookback == min(lookback, first)
    assert (part.is_numpy, part.t_started, part.t) == (numpy, first, last)


@given(kind=KINDS, rewards=REWARDS, terminated=st.booleans(), numpy=st.booleans())
def test_growing_and_constructing_give_the_same_bytes(kind, rewards, terminated, numpy):
    grown = started(kind)
    play(grown, kind, rewards, done=terminated)
    steps = len(rewards)
    constructed = SingleAgentEpisode(
        "e",
        observations=[observation(kind, t) for t in range(steps + 1)],
        observation_space=SPACES[kind],
        infos=[{"t": t} for t in range(steps + 1)],
        actions=[t % 3 for t in range(1, steps + 1)],
        rewards=rewards,
        terminated=terminated and steps > 0,
        extra_model_outputs={
            key: [outputs(t)[key] for t in range(steps)] for key in (outputs(0) if steps else ())
        },
        len_lookback_buffer=0,
    )
    for name in ("custom_data", "temporary_data", "hist_data"):
        setattr(constructed, name, getattr(grown, name))
    if numpy:
        grown.to_numpy()
        constructed.to_numpy()
    assert as_bytes(grown) == as_bytes(constructed)


@given(rewards=REWARDS, cut_after=st.lists(st.booleans(), min_size=8, max_size=8))
def test_counts_and_returns_are_those_of_a_list(rewards, cut_after):
    episode, chunk_start = started("number"), 0
    for t, reward in enumerate(rewards, start=1):
        play(episode, "number", [reward])
        assert (episode.t, episode.t_started) == (t, chunk_start)
        own = rewards[chunk_start:t]
        assert len(episode) == episode.env_steps() == episode.agent_steps() == len(own)
        assert episode.chunk_return() == math.fsum(own)
        assert episode.get_return() == math.fsum(rewards[:t])
        if cut_after[t - 1]:
            episode, chunk_start = episode.cut(1), t
    assert episode.custom_data.get("ts", []) == list(range(1, len(rewards) + 1))
    assert episode.get_temporary_timestep_data("ts") == list(range(1, len(rewards) + 1))
