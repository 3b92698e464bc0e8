"""Sizes of samples in agent steps: exact in the long run, whatever disturbs the run."""

import pytest

from checkpoints import encode
from tests.integration.test_golden_episodes_played import config as scripted
from tests.integration.test_golden_episodes_played import state_of
from tests.multi_agent_runs import everything, gaps, told, whole_state
from tests.multi_agent_scripts import G17, play_step, started
from tests.small_runs import small_ppo, told_and_known
from trainer import DQNConfig, RLModuleSpec
from trainer.env_runners.env_slot import EnvSlot
from trainer.testing.multi_agent_envs import MultiAgentCartPole


def learning(num_env_runners=0, num_envs=1, **settings):
    """Three agents that always act, and ten agent steps per iteration."""
    made = scripted(G17, num_envs, num_env_runners=num_env_runners, **settings)
    made.rl_module(rl_module_spec=RLModuleSpec(model_config={"fcnet_hiddens": [4]}))
    made.training(train_batch_size=10, minibatch_size=5, num_epochs=1)
    return made.multi_agent(count_steps_by="agent_steps")


def agent_steps(result):
    return sum(result["env_runners"]["num_agent_steps_sampled"].values())


def ahead(algo):
    """The agent steps that each slot made too many."""
    slots = algo.get_state("env_runners")["env_runners"]["slots"]
    return [slot.get("steps_ahead", 0) for slot in slots]


# ---- G17


def test_g17_by_hand_and_by_a_runner():
    episode, answers, credit = started(G17), iter(G17.steps[1:]), 0
    by_hand = []
    for _ in range(3):
        while episode.agent_steps() < 10 - credit:
            play_step(episode, next(answers))
        credit += episode.agent_steps() - 10
        by_hand.append(episode)
        episode = episode.cut(len_lookback_buffer=1)  # as runners do
    assert [chunk.env_steps() for chunk in by_hand] == [4, 3, 3]
    assert [chunk.agent_steps() for chunk in by_hand] == [12, 9, 9]
    with scripted(G17).build_algo() as algo:
        samples = [algo.env_runner_group.sample_agent_steps(10) for _ in range(3)]
    chunks = [chunk for sample in samples for chunk in sample.episodes]
    assert [state_of(chunk) for chunk in chunks] == [state_of(chunk) for chunk in by_hand]


def test_g17_iterations_play_4_3_and_3_env_steps():
    with learning().build_algo() as algo:
        results, too_many = [], []
        for _ in range(3):
            results.append(algo.train())
            too_many += ahead(algo)
    assert [result["env_runners"]["num_env_steps_sampled"] for result in results] == [4, 3, 3]
    assert [agent_steps(result) for result in results] == [12, 9, 9]
    assert too_many == [2, 1, 0]
    learnt = results[-1]["learners"]
    assert learnt["__all_modules__"]["num_agent_steps_trained"] == 9
    assert learnt["__all_modules__"]["num_agent_steps_trained_lifetime"] == 30
    totals = {key: results[-1][key] for key in ("timesteps_total", "timesteps_this_iter")}
    assert totals == {"timesteps_total": 30, "timesteps_this_iter": 9}
    assert results[-1]["num_steps_trained_this_iter"] == 9


@pytest.mark.process
def test_g17_in_three_slots_is_the_same_however_they_are_spread():
    def outcome(num_env_runners, num_envs):
        with learning(num_env_runners, num_envs).build_algo() as algo:
            results = [algo.train() for _ in range(3)]
            return list(map(agent_steps, results)), encode([whole_state(algo), *map(told, results)])

    alone = outcome(0, 3)
    assert alone[0] == [12, 9, 9]
    assert outcome(1, 3) == alone
    assert outcome(3, 1) == alone


def test_a_slot_that_is_far_ahead_plays_nothing():
    with scripted(G17).build_algo() as algo:
        samples = [algo.env_runner_group.sample_agent_steps(1) for _ in range(4)]
    assert [sample.num_env_steps for sample in samples] == [1, 0, 0, 1]


def test_an_iteration_without_rows_makes_no_update():
    made = learning().training(train_batch_size=1, minibatch_size=1)
    with made.build_algo() as algo:
        updates = [algo.train()["learners"]["default_policy"] for _ in range(4)]
    assert [module["num_updates_lifetime"] for module in updates] == [1, 1, 1, 2]
    assert [module["num_module_steps_trained"] for module in updates] == [3, 0, 0, 3]
    assert [module["num_module_steps_trained_lifetime"] for module in updates] == [3, 3, 3, 6]


# ---- with gaps, deaths, late agents


def counting(num_env_runners=0, num_envs=2, **env_config):
    made = gaps(num_env_runners, num_envs, **env_config)
    return made.multi_agent(count_steps_by="agent_steps")


def test_what_is_played_and_what_is_asked_for_differ_by_what_slots_are_ahead():
    with counting(num_envs=3).build_algo() as algo:
        total = 0
        for number in range(1, 7):
            total += agent_steps(algo.train())
            assert total == 40 * number + sum(ahead(algo))
            assert all(0 <= credit <= 2 for credit in ahead(algo))


def test_what_slots_are_ahead_cannot_be_forgotten(monkeypatch):
    """A control of what `tests/contract` says of restored runs."""
    expected = everything(counting())
    note = EnvSlot.note_steps_ahead

    def forgetful(slot):
        note(slot)
        slot.steps_ahead = 0

    monkeypatch.setattr(EnvSlot, "note_steps_ahead", forgetful)
    assert everything(counting()) != expected


def test_whole_episodes_are_not_settled():
    with counting().env_runners(batch_mode="complete_episodes").build_algo() as algo:
        steps = [agent_steps(algo.train()) for _ in range(3)]
        assert ahead(algo) == [0, 0]
    assert min(steps) >= 40


# ---- what else counts


def test_a_runner_plays_a_fragment_of_agent_steps():
    made = scripted(G17).env_runners(rollout_fragment_length=10)
    with made.multi_agent(count_steps_by="agent_steps").build_algo() as algo:
        runner = algo.env_runner
        chunks = [runner.sample() for _ in range(2)]
        chunks.append(runner.sample(num_timesteps=2))
    assert [sum(map(len, chunk)) for chunk in chunks] == [4, 3, 2]


def test_an_evaluation_lasts_for_agent_steps():
    made = learning().evaluation(
        evaluation_duration=10, evaluation_duration_unit="timesteps", evaluation_num_env_runners=0
    )
    with made.build_algo() as algo:
        evaluations = [algo.evaluate()["env_runners"] for _ in range(2)]
    for found in evaluations:  # each is a new ticket
        assert found["num_env_steps_sampled"] == 4
        assert found["num_agent_steps_sampled"] == {"A": 4, "B": 4, "C": 4}
        assert found["num_module_steps_sampled"] == {"default_policy": 12}


def test_replay_begins_to_learn_after_so_many_agent_steps():
    def first_update(count_by):
        made = DQNConfig().environment(MultiAgentCartPole, env_config={"num_agents": 2})
        made.training(
            model={"fcnet_hiddens": [4]},
            train_batch_size=8,
            num_steps_sampled_before_learning_starts=20,
        )
        made.multi_agent(count_steps_by=count_by).env_runners(rollout_fragment_length=4)
        made.reporting(min_sample_timesteps_per_iteration=4).debugging(seed=1)
        with made.build_algo() as algo:
            while not algo.learner.num_updates:
                algo.train()
            return algo.counters.num_env_steps_sampled

    assert first_update("env_steps") == 20
    assert first_update("agent_steps") == 10


def test_an_iteration_makes_so_many_agent_steps():
    made = learning().reporting(min_sample_timesteps_per_iteration=20)
    with made.build_algo() as algo:
        assert agent_steps(algo.train()) == 21
    made = learning().reporting(min_train_timesteps_per_iteration=25)
    with made.build_algo() as algo:
        result = algo.train()
    assert result["learners"]["__all_modules__"]["num_agent_steps_trained"] == 30


def test_one_agent_makes_as_many_agent_steps_as_env_steps():
    def outcome(count_by):
        made = small_ppo(num_slots=1, batch=20).multi_agent(count_steps_by=count_by)
        with made.build_algo() as algo:
            return told_and_known(algo, [algo.train() for _ in range(2)])

    assert outcome("agent_steps") == outcome("env_steps")
