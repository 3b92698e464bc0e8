"""Several agents learn what RLlib's tuned examples ask, within their budgets of env steps.

The table is `benchmarks/multi_agent_tasks.py`; what was measured stands beside each test.
"""

import pytest

from benchmarks.multi_agent_tasks import PETTINGZOO, TASKS, play_rock_paper_scissors
from benchmarks.self_play import (
    MAX_LOST,
    NUM_COPIES,
    connect_four_league,
    play_connect_four,
    play_tic_tac_toe,
    tic_tac_toe_league,
)
from benchmarks.tasks import solve
from checkpoints import encode
from tests.multi_agent_runs import told, whole_state

pytestmark = pytest.mark.learning

QUICK = ("L7", "L9")
SEEDS = (0, 1, 2)


def cases():
    """Every task with every seed; the first seed of the quick ones is in the default run."""
    return [
        pytest.param(name, seed, marks=() if (name in QUICK and seed == 0) else pytest.mark.slow)
        for name in TASKS
        for seed in SEEDS
    ]


@pytest.mark.filterwarnings("ignore")  # of PettingZoo's envs
@pytest.mark.parametrize(("name", "seed"), cases())
def test_the_bound_is_reached_within_the_budget(name, seed):
    if name in PETTINGZOO:
        pytest.importorskip("mpe2")
    task = TASKS[name]
    _, env_steps, mean = solve(task, seed)
    assert mean >= task.wanted_return
    assert env_steps <= task.max_env_steps


def test_l6_random_play_stays_random_and_a_frozen_module_as_it_was():
    """The learner improves; the one beside it earns what random play earns, and has no weights."""
    with TASKS["L6"].config().debugging(seed=0).build_algo() as algo:
        before = encode(algo.learners["random"].get_state())
        for _ in range(3):
            runners = algo.train()["env_runners"]
        assert encode(algo.learners["random"].get_state()) == before
    earned = runners["module_episode_return_mean"]
    assert 18.0 < earned["random"] < 26.0
    assert earned["main"] > 1.5 * earned["random"]


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2))])
def test_l8_equals_against_each_other_stay_equal(seed):
    """Two learners: neither gets away, and what one wins the other one loses, in every episode."""
    with play_rock_paper_scissors().debugging(seed=seed).build_algo() as algo:
        while algo.counters.num_env_steps_sampled < 15 * 700:
            algo.train()
        records = algo.episode_statistics.get_state()["records"][-500:]
    returns = [[agent["episode_return"] for agent in record["agents"]] for record in records]
    assert len(returns) == 500
    assert all(first + second == 0.0 for first, second in returns)
    means = [sum(column) / len(returns) for column in zip(*returns, strict=True)]
    assert max(map(abs, means)) <= 1.5


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of PettingZoo's envs
@pytest.mark.parametrize("seed", SEEDS)
def test_l10_noughts_and_crosses_against_frozen_copies(seed):
    """A copy has joined, and few games are lost to random play; a forbidden move would raise."""
    pytest.importorskip("pettingzoo")
    played = play_tic_tac_toe(seed)
    assert played.joined_at
    assert max(played.lost) <= MAX_LOST
    assert played.env_steps <= 1_000_000


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of PettingZoo's envs
@pytest.mark.parametrize("seed", SEEDS)
def test_l11_a_league_at_connect_four(seed):
    """RLlib's league has three players: the learner, random play and one copy; here are two."""
    pytest.importorskip("pettingzoo")
    played = play_connect_four(seed)
    assert len(played.joined_at) >= NUM_COPIES
    assert played.env_steps <= 2_000_000


CONFIGS = {name: task.config for name, task in TASKS.items()}
CONFIGS |= {"L10": tic_tac_toe_league, "L11": connect_four_league}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of PettingZoo's envs
@pytest.mark.parametrize("name", CONFIGS)
def test_a_run_that_was_stopped_in_the_middle_learns_the_same(name, tmp_path):
    if name in (*PETTINGZOO, "L10", "L11"):
        pytest.importorskip("mpe2")
    make = CONFIGS[name]
    with make().debugging(seed=1).build_algo() as algo:
        results = [told(algo.train()) for _ in range(4)]
        undisturbed = encode([whole_state(algo), results])
    with make().debugging(seed=1).build_algo() as algo:
        results = [told(algo.train()) for _ in range(2)]
        algo.save_to_path(tmp_path / "c")
    with make().debugging(seed=1).build_algo() as algo:
        algo.restore_from_path(tmp_path / "c")
        results += [told(algo.train()) for _ in range(2)]
        assert encode([whole_state(algo), results]) == undisturbed


def test_negative_control_without_learning_the_bound_is_not_reached():
    task = TASKS["L9"]
    with task.config().training(lr=0.0).debugging(seed=0).build_algo() as algo:
        for _ in range(4):
            mean = algo.train()[task.measure]
    assert mean < task.wanted_return - 1.0
