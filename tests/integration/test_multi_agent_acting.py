"""Acting outside of training with several modules: by agent, by module, as ONNX, on the shell."""

import numpy as np
import pytest

from tests.command_line import run
from tests.multi_agent_runs import gaps
from trainer import MultiAgentEpisode, PPOConfig, export_onnx
from trainer.errors import ConfigError, EnvContractError
from trainer.testing.multi_agent_envs import RockPaperScissors

OBS = np.array([0.3, -0.2, 0.9], np.float32)


def by_agent(**policies):
    mapping = {"a": "odd", 3: "even", "late": "even"}
    config = gaps(0, 1, **policies).multi_agent(policy_mapping_fn=mapping)
    return config.env_runners(observation_filter="NoFilter")


def test_the_module_of_each_agent_acts():
    observations = {"a": OBS, 3: OBS, "late": -OBS}
    with by_agent().build_algo() as algo:
        algo.train()
        chosen = algo.compute_actions(observations, explore=False)
        for agent, observation in observations.items():
            module = "odd" if agent == "a" else "even"
            greedy = algo.compute_single_action(observation, policy_id=module, explore=False)
            assert chosen[agent] == greedy
            single = algo.compute_single_action(observation, agent_id=agent, explore=False)
            assert single == greedy
        all_odd = algo.compute_actions(observations, policy_id="odd", explore=False)
        named = dict.fromkeys(observations, "odd")
        assert algo.compute_actions(observations, policy_ids=named, explore=False) == all_odd
        _, _, fetched = algo.compute_actions(observations, full_fetch=True, explore=False)
        assert (fetched["a"]["action_dist_inputs"] != fetched[3]["action_dist_inputs"]).any()


def test_an_episode_says_more_than_its_number():
    def turned(agent_id, episode, **_):
        return "odd" if (episode.number % 2 == 0) == (agent_id == "a") else "even"

    with gaps(0, 1).multi_agent(policy_mapping_fn=turned).build_algo() as algo:
        later = MultiAgentEpisode("e", number=1, possible_agents=[3, "a", "late"])
        for episode, module in ((None, "odd"), (later, "even")):
            one = algo.compute_actions({"a": OBS}, episode=episode, full_fetch=True)
            other = algo.compute_actions({"a": OBS}, policy_id=module, full_fetch=True)
            np.testing.assert_array_equal(
                one[2]["a"]["action_dist_inputs"], other[2]["a"]["action_dist_inputs"]
            )


def test_whom_nobody_knows_is_refused():
    with by_agent().build_algo() as algo:
        with pytest.raises(ConfigError, match=r"no agent 'lat'.*'late'"):
            algo.compute_actions({"lat": OBS})
        with pytest.raises(ConfigError, match=r"no such module.*'odd'"):
            algo.compute_actions({"a": OBS}, policy_ids={"a": "od"})
        with pytest.raises(ConfigError, match="says nothing of 3, of which there is"):
            algo.compute_actions({"a": OBS, 3: OBS}, policy_ids={"a": "odd"})
        with pytest.raises(EnvContractError, match=r"the shape \[4\]"):
            algo.compute_actions({"a": OBS, 3: np.zeros(4, np.float32)})
        with pytest.raises(ConfigError, match="none was named"):
            algo.compute_single_action(OBS)
        assert algo.counters.num_actions_computed == 0
    single = PPOConfig().environment("CartPole-v1").env_runners(num_env_runners=0)
    with (
        single.build_algo() as algo,
        pytest.raises(ConfigError, match="env of this run has one agent"),
    ):
        algo.compute_single_action(np.zeros(4, np.float32), agent_id="a")


def test_one_module_is_exported(tmp_path):
    pytest.importorskip("onnx")
    reference = pytest.importorskip("onnx.reference")
    config = gaps(0, 1).multi_agent(policy_mapping_fn={"a": "odd", 3: "even", "late": "even"})
    with config.build_algo() as algo:  # with observations normalised for each module
        algo.train()
        files = {}
        for module in ("odd", "even"):
            files[module] = export_onnx(algo, tmp_path / f"{module}.onnx", module_id=module)
            session = reference.ReferenceEvaluator(str(files[module]))
            inputs, action = session.run(None, {"obs": OBS[None]})
            expected, _, fetched = algo.compute_single_action(
                OBS, policy_id=module, explore=False, full_fetch=True
            )
            np.testing.assert_allclose(inputs[0], fetched["action_dist_inputs"], atol=1e-5)
            assert action[0] == expected
        assert files["odd"].read_bytes() != files["even"].read_bytes()
        with pytest.raises(ConfigError, match="none was named"):
            export_onnx(algo, tmp_path / "x.onnx")
        with pytest.raises(ConfigError, match=r"no such module.*'odd'"):
            export_onnx(algo, tmp_path / "x.onnx", module_id="od")


def rps():
    config = PPOConfig().environment(RockPaperScissors).env_runners(num_env_runners=0)
    config.training(train_batch_size=30, minibatch_size=15, num_epochs=1).debugging(seed=3)
    config.rl_module(model_config={"fcnet_hiddens": [8]})
    return config.multi_agent(
        policies={"p", "q"}, policy_mapping_fn={"player_0": "p", "player_1": "q"}
    )


@pytest.mark.process
def test_the_command_line_shows_evaluates_and_exports_a_run(tmp_path):
    with rps().build_algo() as algo:
        algo.train()
        path = str(algo.save_to_path(tmp_path / "c"))
    for command in ("inspect", "verify"):
        assert run(command, path, folder=tmp_path).stdout
    env = ("--env", "trainer.testing.multi_agent_envs.RockPaperScissors")
    evaluated = run("evaluate", path, *env, "--episodes", "3", folder=tmp_path)
    for line in ("agent player_0", "agent player_1", "module p", "module q"):
        assert f"return of {line} " in evaluated.stdout
    refused = run("export", path, "p.onnx", *env, folder=tmp_path, code=1)
    assert "--module got None" in refused.stderr
    assert "'p', 'q'" in refused.stderr
    run("export", path, "p.onnx", *env, "--module", "p", folder=tmp_path)
    assert (tmp_path / "p.onnx").exists()
