"""What results say of several agents: returns, lengths, counts, old keys."""

import json
import logging

import pytest

from tests.multi_agent_runs import gaps
from tests.multi_agent_scripts import G4, G11, G12, G13, G16
from trainer import PPOConfig
from trainer.testing import ScriptedMultiAgentEnv


def scripted(script, steps, **policies):
    """Plays a script again and again, in fragments of `steps` env steps."""
    config = PPOConfig().environment(ScriptedMultiAgentEnv, env_config={"script": script})
    config.env_runners(num_env_runners=0).debugging(seed=3)
    config.training(train_batch_size=steps, minibatch_size=steps, num_epochs=1)
    if policies:
        config.multi_agent(policies=set(policies.values()), policy_mapping_fn=policies)
    return config.rl_module(model_config={"fcnet_hiddens": [4]})


def results(config, iterations=1):
    with config.build_algo() as algo:
        return [algo.train() for _ in range(iterations)]


@pytest.mark.parametrize("fragment", [2, 1])
def test_agents_that_share_a_module_add_up_and_ids_keep_their_kind(fragment):
    length = len(G16.steps) - 1
    runners = results(scripted(G16, fragment), 2 * length)[-1]["env_runners"]
    assert runners["module_episode_return_mean"] == {"default_policy": 8.0}
    assert runners["module_agent_return_mean"] == {"default_policy": 4.0}
    assert runners["module_agent_return_min"] == {"default_policy": 3.0}
    assert runners["module_agent_return_max"] == {"default_policy": 5.0}
    assert runners["agent_episode_return_mean"] == {1: 3.0, 2: 5.0}
    assert runners["agent_episode_len_mean"] == {1: length, 2: length}


def test_lengths_are_rows_of_the_whole_episode_however_it_was_cut():
    for fragment in (1, 4, 8):
        runners = results(scripted(G4, fragment), 8 // fragment)[-1]["env_runners"]
        assert runners["agent_episode_len_mean"] == {"A": 4.0, "B": 2.0}
        assert runners["num_agent_steps_sampled_lifetime"] == {"A": 8, "B": 4}


def test_what_happened_to_agents_is_counted(caplog):
    cut = results(scripted(G4, 2))[0]["env_runners"]
    assert cut["num_agent_steps_carried_over"] == 1  # B waits for its second observation
    credited = results(scripted(G11, 3))[0]["env_runners"]
    assert (credited["num_rewards_after_end"], credited["num_rewards_after_end_unlearnt"]) == (1, 0)
    with scripted(G11, 2).build_algo() as algo:
        late = [algo.train()["env_runners"] for _ in range(2)][1]
    assert (late["num_rewards_after_end"], late["num_rewards_after_end_unlearnt"]) == (1, 1)
    assert late["agent_episode_return_mean"]["B"] == 3.0
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        truncated = results(scripted(G12, 3), 3)
    assert [one["env_runners"]["num_truncations_without_observation"] for one in truncated] == [
        1,
        1,
        1,
    ]
    assert sum("without a last observation" in text for text in caplog.messages) == 1
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        ended = results(scripted(G13, 3))[0]["env_runners"]
    assert ended["num_truncations_without_observation"] == 0
    assert not any("without a last observation" in text for text in caplog.messages)


def test_signs_of_learning_are_those_of_trained_modules_by_their_own_settings(caplog):
    own = {"odd": {"lr": 0.0}}
    config = gaps(0, 2).multi_agent(
        policies_to_train=["odd"], algorithm_config_overrides_per_module=own
    )
    with caplog.at_level(logging.WARNING):
        last = results(config.training(vf_clip_param=1e-9), 12)[-1]
    assert last["learning_signs"]["odd"]["learning_rate_is_zero"] == 0.0
    assert "even" not in last["learning_signs"]
    reported = [text for text in caplog.messages if text.startswith("Check of learning")]
    assert len([text for text in reported if "learning_rate_is_zero (odd, iter" in text]) == 1
    trained = results(gaps(0, 2).training(vf_clip_param=1e-9), 1)[-1]["learning_signs"]
    assert {"even", "odd"} <= set(trained)
    assert "learning_rate_is_zero" not in {*trained["even"], *trained["odd"]}


def test_modules_say_how_they_are_and_old_keys_resolve():
    config = gaps(0, 2).multi_agent(policies_to_train=["odd"])
    first, result = results(config, 2)
    learners = result["learners"]
    assert [learners[id_]["is_trained"] for id_ in ("even", "odd")] == [False, True]
    assert [learners[id_]["num_updates_lifetime"] for id_ in ("even", "odd")] == [0, 2]
    assert learners["even"] == {
        "is_trained": False,
        "num_updates_lifetime": 0,
        "num_module_steps_trained": 0,
        "num_module_steps_trained_lifetime": 0,
    }
    rows = [one["learners"]["odd"]["num_module_steps_trained"] for one in (first, result)]
    assert min(rows) > 0
    assert learners["odd"]["num_module_steps_trained_lifetime"] == sum(rows)
    together = learners["__all_modules__"]
    assert together["num_module_steps_trained"] == rows[1]
    assert together["num_module_steps_trained_lifetime"] == sum(rows)
    # Rows of all minibatches of two epochs, and the steps that they were made from.
    assert together["num_agent_steps_trained"] <= rows[1]
    assert result["num_agent_steps_trained"] == together["num_agent_steps_trained_lifetime"]
    runners = result["env_runners"]
    assert result["policy_reward_mean"] == runners["module_agent_return_mean"]
    assert result["policy_reward_min"] == runners["module_agent_return_min"]
    assert result["policy_reward_max"] == runners["module_agent_return_max"]
    assert runners["agent_episode_returns_mean"] == runners["agent_episode_return_mean"]
    assert runners["module_episode_returns_mean"] == runners["module_episode_return_mean"]
    assert runners["agent_steps"] == runners["agent_episode_len_mean"]
    paid = first["env_runners"]["hist_stats"]
    agents_of_episodes = len(paid["policy_odd_reward"]) + len(paid["policy_even_reward"])
    assert agents_of_episodes >= 2 * len(paid["episode_reward"])
    total = sum(paid["policy_odd_reward"]) + sum(paid["policy_even_reward"])
    assert total == pytest.approx(sum(paid["episode_reward"]))
    written = json.loads(json.dumps({"by_agent": dict(runners["agent_episode_len_mean"])}))
    assert {"3", "a"} <= written["by_agent"].keys()


def test_a_single_agent_run_has_none_of_these_keys():
    config = PPOConfig().environment("CartPole-v1").env_runners(num_env_runners=0)
    result = results(config.training(train_batch_size=40, minibatch_size=20, num_epochs=1))[0]
    assert "agent_episode_len_mean" not in dict(result["env_runners"])
    assert "num_agent_steps_carried_over" not in dict(result["env_runners"])
    assert "is_trained" not in result["learners"]["default_policy"]
