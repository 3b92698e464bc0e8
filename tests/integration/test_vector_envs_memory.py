"""Networks with memory play vector envs that step all their sub-envs in one call."""

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from checkpoints import encode
from tests.integration.test_vector_envs import counters
from tests.integration.test_vector_envs import ppo as vector_ppo
from tests.memory_modules import MODELS
from tests.small_runs import killing
from trainer.connectors import ObservationEncoder, PreviousSteps
from trainer_toolkit.plain_classes import to_plain

MODES = list(AutoresetMode)


def ppo(name, env="CartPole-v1", *, num_env_runners=0, num_envs=4):
    config = vector_ppo(env, num_env_runners, num_envs)
    config.training(train_batch_size=61, minibatch_size=24, num_epochs=2, lr=3e-3)
    return config.rl_module(model_config=MODELS[name])


def learnt_state(config, iterations):
    with config.build_algo() as algo:
        for _ in range(iterations):
            algo.train()
        return encode(algo.get_state(["learner"]))


def by_name(state, path=""):
    """The arrays of a state, nested or not."""
    if not isinstance(state, dict):
        return {path: np.asarray(state)}
    found = {}
    for key, part in state.items():
        found |= by_name(part, f"{path}/{key}")
    return found


def replayed(module, observations, actions, rewards):
    """The states before all steps, if one network plays this episode alone from its beginning."""
    encoder = ObservationEncoder(module.observation_space)
    previous = PreviousSteps(module.action_space, module.model_config)
    state = module.get_initial_state()
    states = []
    for step in range(len(rewards)):
        states.append(state)
        before = previous.columns(
            [actions[step - 1] if step else None], [rewards[step - 1] if step else 0.0]
        )
        batch = {"obs": encoder.encode([observations[step]]), **before}
        batched = {"state_in": _map(state, lambda leaf: leaf[None])}
        after = module.forward_exploration({**batch, **batched})["state_out"]
        state = _map(after, lambda leaf: leaf[0])
    return states


def _map(state, function):
    if isinstance(state, dict):
        return {key: _map(part, function) for key, part in state.items()}
    return function(np.asarray(state))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", MODELS)
def test_every_episode_begins_with_the_initial_state_and_goes_on_by_itself(name, mode):
    config = ppo(name, counters, num_envs=3)
    config.environment(counters, env_config={"mode": mode.value})
    with config.build_algo() as algo:
        module = algo.get_module()
        chunks = [c for _ in range(4) for c in algo.env_runner.sample(num_timesteps=7)]
        whole = {}
        for chunk in chunks:
            if chunk.id_ in whole:
                whole[chunk.id_].concat_episode(chunk)
            else:
                whole[chunk.id_] = chunk
        assert sum(episode.is_done for episode in whole.values()) > 6
        for episode in whole.values():
            given = episode.get_extra_model_outputs("state_in")
            expected = replayed(
                module, episode.get_observations(), episode.get_actions(), episode.get_rewards()
            )
            for step, state in enumerate(expected):
                found = by_name(_map(given, lambda leaf, step=step: leaf[step]))
                wanted = by_name(state)
                assert found.keys() == wanted.keys()
                for part, array in wanted.items():
                    assert found[part].tobytes() == array.tobytes(), (episode.id_, step, part)


@pytest.mark.parametrize("name", MODELS)
def test_a_restored_run_goes_on_with_the_same_bytes(name, tmp_path):
    undisturbed = learnt_state(ppo(name), 3)
    with ppo(name).build_algo() as algo:
        algo.train()
        algo.save_to_path(tmp_path / "c")
    with ppo(name).build_algo() as algo:
        algo.restore_from_path(tmp_path / "c")
        for _ in range(2):
            algo.train()
        assert encode(algo.get_state(["learner"])) == undisturbed


def test_a_state_forgotten_in_positions_is_found(tmp_path, monkeypatch):
    def forgetting(position):
        return {key: value for key, value in to_plain(position).items() if key != "memory"}

    undisturbed = learnt_state(ppo("gru"), 3)
    monkeypatch.setattr("trainer.runner_group.slot_states.to_plain", forgetting)
    with ppo("gru").build_algo() as algo:
        algo.train()
        algo.save_to_path(tmp_path / "c")
    with ppo("gru").build_algo() as algo:
        algo.restore_from_path(tmp_path / "c")
        for _ in range(2):
            algo.train()
        assert encode(algo.get_state(["learner"])) != undisturbed


@pytest.mark.process
def test_a_runner_that_is_killed_gives_the_same_bytes(tmp_path):
    file = tmp_path / "kills"
    file.touch()

    def config():
        return ppo("lstm", num_env_runners=2, num_envs=2)

    killed = learnt_state(config().callbacks(on_episode_step=killing(file, at_step=9)), 2)
    assert not file.exists()
    assert killed == learnt_state(config(), 2)
