"""Random episodes of several agents, cut anywhere: nothing is lost, nothing comes twice."""

import itertools
import math
import random
from collections import Counter

import pytest

from checkpoints import decode, encode
from tests.multi_agent_scripts import (
    FIRST_ACTION,
    chunks_of,
    played,
    random_script,
    rows_of_all,
)
from trainer import MultiAgentEpisode

SEED = 20_260_101
NUM_EPISODES = 10_000
NUM_BLOCKS = 8
NUM_SAMPLED = 25


def random_cuts(rng, script):
    return {t for t in range(len(script.steps)) if rng.random() < 0.4}


def check_nothing_is_lost(number):
    """E24: rows, rewards, returns and ends are those of the episode that was never cut."""
    rng = random.Random(SEED + number)
    script = random_script(rng)
    whole = played(script)
    chunks = list(chunks_of(script, random_cuts(rng, script), lookback=rng.randint(0, 3)))
    last = chunks[-1]
    for chunk in chunks:
        chunk.validate()
    paid = [reward for answer in script.steps for reward in answer.rewards.values()]
    assert whole.get_return() == last.get_return() == math.fsum(paid)
    assert whole.get_agent_returns() == last.get_agent_returns()
    for agent, total in whole.get_agent_returns().items():
        own = [answer.rewards[agent] for answer in script.steps if agent in answer.rewards]
        assert total == math.fsum(own)
    assert math.fsum(whole.get_agent_returns().values()) == pytest.approx(whole.get_return())
    assert whole.ended_agents == last.ended_agents
    assert whole.get_terminateds() == last.get_terminateds()
    assert whole.get_truncateds() == last.get_truncateds()
    assert dict(whole.reward_before_start) == dict(last.reward_before_start)
    assert sum(len(chunk) for chunk in chunks) == len(whole) == last.env_t
    assert sum(chunk.agent_steps() for chunk in chunks) == whole.agent_steps()
    cut_rows, whole_rows = rows_of_all(chunks), rows_of_all([whole])
    assert cut_rows.keys() == whole_rows.keys()
    for agent, all_rows in whole_rows.items():
        if agent in last.rewards_after_end:  # the last row went out before its reward did
            assert [row[:2] for row in all_rows] == [row[:2] for row in cut_rows[agent]]
        else:
            assert all_rows == cut_rows[agent]
    check_open_rows(chunks)


def check_open_rows(chunks):
    """What an agent waits with at a cut is what the next chunk completes or waits with."""
    for first, second in itertools.pairwise(chunks):
        assert first.num_agent_steps_carried_over == len(first.hanging)
        for agent, (_, action, _, _) in first.hanging.items():
            assert second.get_actions(0, agent, env_steps=False) == {agent: action}


def check_cut_and_join_is_the_identity(number):
    """E25, on the way also through plain data (E28)."""
    rng = random.Random(SEED + number)
    script = random_script(rng)
    chunks = list(chunks_of(script, random_cuts(rng, script), lookback=rng.randint(0, 3)))
    if rng.random() < 0.5:
        restored = [decode(encode(chunk.get_state())) for chunk in chunks]
        chunks = [MultiAgentEpisode.from_state(state) for state in restored]
    first, *others = chunks
    for chunk in others:
        first.concat_episode(chunk)
    assert encode(first.get_state()) == encode(played(script).get_state())


def check_slices_side_by_side_join(number):
    """Slices that are joined again show what the episode shows, wherever they were made."""
    rng = random.Random(SEED + number)
    script = random_script(rng)
    for chunk in chunks_of(script, random_cuts(rng, script), lookback=rng.randint(0, 3)):
        first, second = sorted(rng.randint(0, max(0, len(chunk) - 1)) for _ in range(2))
        parts = [
            chunk.slice(part, len_lookback_buffer=rng.randint(0, 3))
            for part in (slice(0, first), slice(first, second), slice(second, None))
        ]
        joined = parts[0]
        for part in parts[1:]:
            joined.concat_episode(part)
        joined.validate()
        assert rows_of_all([joined]) == rows_of_all([chunk])
        assert dict(joined.hanging) == dict(chunk.hanging)
        assert joined.get_agents_to_act() == chunk.get_agents_to_act()
        assert joined.ended_agents == chunk.ended_agents
        assert joined.agent_lengths() == chunk.agent_lengths()
        for getter in ("get_observations", "get_actions", "get_rewards"):
            theirs = getattr(chunk, getter)(return_list=True)
            assert getattr(joined, getter)(return_list=True) == theirs


def check_getters_agree(number):
    """The list over env steps and the dict by agent hold the same items."""
    rng = random.Random(SEED + number)
    script = random_script(rng)
    for chunk in chunks_of(script, random_cuts(rng, script), lookback=2):
        for name in ("observations", "actions", "rewards", "infos"):
            getter = getattr(chunk, f"get_{name}")
            by_step = getter(return_list=True)
            assert by_step == [getter(index) for index in range(len(by_step))]
            gathered = {}
            for row in by_step:
                for agent, item in row.items():
                    gathered.setdefault(agent, []).append(item)
            assert getter() == gathered


def written_down(script):
    """Observations and actions by env step, and the env step of each end, without an episode."""
    seen = []
    acted = []
    ended = {}
    newest = {}
    numbers = Counter()
    for t, answer in enumerate(script.steps):
        ends_all = any(by.get("__all__") for by in (answer.terminateds, answer.truncateds))
        now = dict(answer.observations)
        for agent in {*newest, *now} - ended.keys():
            if ends_all or answer.terminateds.get(agent) or answer.truncateds.get(agent):
                ended[agent] = t
                now.setdefault(agent, newest.get(agent))  # the last one stands in
        newest.update(now)
        seen.append(now)
        acted.append({agent: FIRST_ACTION + numbers[agent] for agent in now.keys() - ended.keys()})
        numbers.update(now.keys())
    return seen, acted, ended


def without(gone, row):
    return {agent: item for agent, item in row.items() if agent not in gone}


def check_each_item_stands_at_its_own_env_step(number):
    """By env step, every chunk shows exactly the env steps that it has, look-back included."""
    rng = random.Random(SEED + number)
    script = random_script(rng)
    seen, acted, ended = written_down(script)
    lookback = rng.randint(0, 4)
    first = 0
    for chunk in chunks_of(script, random_cuts(rng, script), lookback=lookback):
        start, stop = chunk.env_t_started, chunk.env_t
        first = max(first, start - lookback)
        gone = {agent for agent, t in ended.items() if t <= start}
        observed = [without(gone, row) for row in seen[first : stop + 1]]
        whole = {"indices": slice(first - start, None), "neg_index_as_lookback": True}
        assert chunk.get_observations(**whole, return_list=True) == observed
        assert chunk.get_actions(**whole, return_list=True) == [
            without(gone, row) for row in acted[first:stop]
        ]
        assert chunk.get_observations(-1) == observed[-1]
        assert chunk.get_observations(-1).keys() == chunk.get_agents_that_stepped()


CHECKS = [
    check_nothing_is_lost,
    check_cut_and_join_is_the_identity,
    check_slices_side_by_side_join,
    check_getters_agree,
    check_each_item_stands_at_its_own_env_step,
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_sample_of_random_episodes(check):
    for number in range(NUM_SAMPLED):
        check(number)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(NUM_BLOCKS))
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_ten_thousand_random_episodes(check, block):
    for number in range(block, NUM_EPISODES, NUM_BLOCKS):
        check(number)


def test_random_scripts_have_all_cases_of_a_step():
    """A control of the generator: what it never makes would be tested nowhere."""
    found = Counter()
    for number in range(200):
        rng = random.Random(SEED + number)
        script = random_script(rng)
        chunks = list(chunks_of(script, random_cuts(rng, script)))
        found["cut in a gap"] += any(chunk.hanging for chunk in chunks[:-1])
        found["before its start"] += bool(chunks[-1].reward_before_start)
        found["after its end"] += any(chunk.num_rewards_after_end for chunk in chunks)
        found["unlearnt"] += any(chunk.num_rewards_after_end_unlearnt for chunk in chunks)
        found["truncated unseen"] += any(
            chunk.num_truncations_without_observation for chunk in chunks
        )
        found["empty step"] += any(chunk.num_empty_steps for chunk in chunks)
        found["done"] += chunks[-1].is_done
        found["running"] += not chunks[-1].is_done
        found["never came"] += any(
            agent not in chunks[-1].get_terminateds() for agent in script.agents
        )
    assert min(found.values()) >= 5, found
