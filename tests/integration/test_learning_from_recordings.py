"""BC and MARWIL as a whole; exactness of runs that go on is in `tests/contract`."""

import numpy as np
import pytest

from callbacks import CallbackConfigError
from checkpoints import (
    CheckpointMismatchError,
    latest_checkpoint,
    read_checkpoint,
    read_manifest,
    write_checkpoint,
)
from checkpoints.policy import load_policy
from tests.exact_runs import MaskedEnv, NestedEnv
from tests.small_runs import known, small_ppo
from trainer import (
    Algorithm,
    BCConfig,
    CQLConfig,
    EarlyStopping,
    EpisodeRecorder,
    MARWILConfig,
    PeriodicCheckpoint,
    PPOConfig,
    RLModuleSpec,
    TrainedPolicy,
    export_policy,
    load_episode,
)
from trainer.cli.main import main
from trainer.errors import ConfigError, EpisodeError
from trainer.testing.envs import TargetEnv

pytestmark = pytest.mark.process


def recorded(folder, env="CartPole-v1", *, num_iterations=2, **settings):
    """Episodes that a policy at its beginning has played."""
    made = small_ppo(env=env, **settings).callbacks([EpisodeRecorder(folder)])
    with made.build_algo() as algo:
        for _ in range(num_iterations):
            algo.train()
    return folder


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory):
    return recorded(tmp_path_factory.mktemp("cartpole"), num_iterations=4)


def config(folder, kind=MARWILConfig, env="CartPole-v1", **settings):
    made = (
        kind()
        .environment(env)
        .training(train_batch_size=60, lr=1e-2, model={"fcnet_hiddens": [8]})
        .offline_data(input_=folder)
        .evaluation(evaluation_duration=4, evaluation_seed=3)
        .debugging(seed=5)
    )
    return made.update_from_dict(settings)


# ---- what is learnt


def expert(folder):
    """Episodes of CartPole in which the cart follows the pole."""
    chosen = small_ppo(env="CartPole-v1").callbacks([EpisodeRecorder(folder)])
    with chosen.build_algo() as algo:
        algo.train()
    for file in folder.glob("*.npz"):
        arrays = dict(load_episode(file))
        falls = arrays["observations"][:-1]
        arrays["actions"] = (falls[:, 2] + falls[:, 3] > 0.0).astype(np.int64)
        np.savez(file, **arrays)
    return folder


def test_cloning_learns_what_was_done_everywhere(tmp_path):
    folder = expert(tmp_path)
    settings = {"shuffle_batch_per_epoch": True, "minibatch_size": 20, "num_epochs": 4}
    made = config(folder, BCConfig, **settings, evaluation_config={"explore": False})
    with made.build_algo() as algo:
        before = algo.evaluate()["env_runners/episode_return_mean"]
        for _ in range(40):
            algo.train()
        assert algo.evaluate()["env_runners/episode_return_mean"] > max(100.0, 3 * before)


def test_a_result_says_what_was_read_and_learnt_and_that_nothing_was_played(cartpole):
    with config(cartpole, BCConfig, dataset_num_iters_per_learner=2).build_algo() as algo:
        recordings = algo.reader.recordings
        result = algo.train()
        assert result["env_runners/num_env_steps_sampled_lifetime"] == 0
        learnt = result["learners/__all_modules__/num_env_steps_trained_lifetime"]
        assert learnt == result["num_env_steps_sampled_lifetime"] >= 2 * 60
        assert result["recordings/num_env_steps_read"] == learnt
        second = algo.train()
        assert second["num_env_steps_sampled_lifetime"] > learnt
        assert second["recordings/num_env_steps_read"] == (
            second["num_env_steps_sampled_lifetime"] - learnt
        )
        assert result["recordings/num_episodes"] == len(recordings)
        assert result["recordings/num_env_steps"] == recordings.num_steps
    one_pass = {"dataset_num_iters_per_learner": None, "num_epochs": 1}
    with config(cartpole, BCConfig, **one_pass).build_algo() as algo:
        for number in range(1, 3):
            result = algo.train()
            assert result["recordings/num_passes_lifetime"] == number
        assert result["timers/offline_sampling_timer"] > 0.0


def test_schedules_count_steps_that_were_learnt_from(cartpole):
    with config(cartpole, lr=[[0, 1e-2], [100, 0.0]]).build_algo() as algo:
        results = [algo.train() for _ in range(2)]
    key = "learners/default_policy/default_optimizer_learning_rate"
    rates = [result[key] for result in results]
    learnt = 100 * (1.0 - rates[1] / 1e-2)
    assert rates[0] == 1e-2
    assert 60 <= round(learnt) <= 100


# ---- how far a run is


def train(folder, path, *options):
    words = ["train", "--algo", "BC", "--env", "CartPole-v1", "--set", f"input_={folder}"]
    words += ["--set", "train_batch_size=60", "--run-dir", str(path), "--lines", *options]
    return main(words)


def test_a_run_is_stopped_after_so_many_recorded_steps_and_shows_how_far_it_is(
    cartpole, tmp_path, capsys
):
    assert train(cartpole, tmp_path / "run", "--stop-env-steps", "200") == 0
    shown = capsys.readouterr().out
    steps = [int(line.split()[3].replace(",", "")) for line in shown.splitlines() if " │ " in line]
    assert 60 <= steps[0] < 200 <= steps[-1] < 500
    assert f"Stopped after {steps[-1]} env steps." in shown
    assert " passes │ " in shown
    assert " 0 steps/s" not in shown
    saved = latest_checkpoint(tmp_path / "run" / "checkpoints")
    assert read_manifest(saved).metadata["num_env_steps_sampled_lifetime"] == steps[-1]


def test_the_return_of_training_is_no_goal(cartpole, tmp_path, capsys):
    assert train(cartpole, tmp_path / "run", "--stop-return", "100") != 0
    assert "--stop-return 100 never comes true" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    made = config(cartpole).callbacks([EarlyStopping(at_least=100)])
    named = pytest.raises(CallbackConfigError, match="'evaluation/env_runners/episode_return_m")
    with made.build_algo() as algo, named:
        algo.train()
    evaluated = {"evaluation_interval": 1, "evaluation_duration": 1}
    goal = EarlyStopping("evaluation/env_runners/episode_return_mean", at_least=1.0)
    with config(cartpole, **evaluated).callbacks([goal]).build_algo() as algo:
        assert algo.train()["done"]


def test_saving_every_so_many_steps_counts_recorded_ones(cartpole, tmp_path):
    saver = PeriodicCheckpoint(tmp_path / "saved", every=100, unit="env_steps")
    with config(cartpole).callbacks([saver]).build_algo() as algo:
        for _ in range(4):
            result = algo.train()
    assert result["num_env_steps_sampled_lifetime"] >= 240
    assert len([*(tmp_path / "saved").iterdir()]) >= 2


SMALL = {"size": 5, "mask": True}


@pytest.mark.parametrize("kind", [BCConfig, MARWILConfig])
@pytest.mark.parametrize(
    ("env", "settings"),
    [
        (NestedEnv, {}),
        (MaskedEnv, {"env_config": {"multi": True}}),
        ("Pendulum-v1", {}),
        ("CartPole-v1", {"model": {"use_lstm": True, "lstm_cell_size": 4, "max_seq_len": 8}}),
        (TargetEnv, {"env_config": SMALL, "model": {"conv_filters": [[2, 2, 2]]}}),
    ],
    ids=["nested actions", "masks", "continuous", "memory", "images"],
)
def test_every_space_and_network_that_ppo_has(tmp_path, kind, env, settings):
    batch = {"batch": 400} if env == "Pendulum-v1" else {}
    with_env = {name: settings[name] for name in settings if name == "env_config"}
    folder = recorded(tmp_path, env, num_slots=2, **batch, **with_env)
    moved = {"evaluation_duration": 1, "moving_average_sqd_adv_norm_start": 1e4}
    with config(folder, kind, env, **settings, **moved).build_algo() as algo:
        before = algo.get_module().get_state()
        result = algo.train()
        after = algo.get_module().get_state()
        assert any(not np.array_equal(before[name], after[name]) for name in before)
        assert np.isfinite(result["learners/default_policy/total_loss"])
        assert algo.evaluate()["env_runners/num_episodes"] == 1


def test_actions_of_the_env_and_of_the_module_are_learnt_alike(tmp_path):
    folder = recorded(tmp_path / "ours", "Pendulum-v1", batch=400, num_slots=2)
    (tmp_path / "env").mkdir()
    for file in folder.glob("*.npz"):
        arrays = dict(load_episode(file))
        arrays["actions"] = 2.0 * arrays["actions"]  # the bounds of the pendulum are ±2
        np.savez(tmp_path / "env" / file.name, **arrays)

    def weights(name, **settings):
        with config(tmp_path / name, BCConfig, "Pendulum-v1", **settings).build_algo() as algo:
            algo.train()
            return algo.get_module().get_state()["pi/0/kernel"]

    assert np.array_equal(weights("ours"), weights("env", actions_in_input_normalized=False))
    assert not np.array_equal(weights("ours"), weights("env"))  # the negative control


def test_normalisation_is_that_of_the_recordings_from_the_first_update_on(cartpole):
    settings = {"observation_filter": "MeanStdFilter", "normalize_rewards": True}
    with config(cartpole, **settings).build_algo() as algo:
        folder = algo.reader.recordings
        every = [folder.episode(number).get_observations() for number in range(len(folder))]
        mean = np.concatenate(every).mean(axis=0)
        np.testing.assert_allclose(algo.normalization.observations.mean, mean, rtol=1e-4, atol=1e-6)
        factor = algo.normalization.rewards.factor
        algo.train()
        assert algo.normalization.rewards.factor == factor


# ---- steps of recordings in a buffer


def test_cql_learns_from_all_recorded_steps_and_saves_none(tmp_path):
    folder = recorded(tmp_path / "r", "Pendulum-v1", batch=400, num_slots=2)
    made = config(folder, CQLConfig, "Pendulum-v1", lr=None, actor_lr=1e-3, clip_rewards=1.0)
    made.training(train_batch_size=16, num_actions=2, bc_iters=1)
    made.offline_data(dataset_num_iters_per_learner=2).evaluation(evaluation_duration=1)
    with made.build_algo() as algo:
        assert len(algo.buffer) == algo.reader.recordings.num_steps == 800
        sampled = algo.buffer.sample(100)
        assert np.abs(sampled.actions).max() <= 1.0
        assert np.abs(sampled.rewards).max() <= 1.0
        result = algo.train()
        learnt = result["learners/default_policy"]
        assert learnt["num_module_steps_trained"] == 32
        assert np.isfinite(learnt["cql_loss"])
        assert algo.evaluate()["env_runners/num_episodes"] == 1
        assert "replay_buffer" not in algo.get_state()
        before = known(algo)
        path = algo.save_to_path(tmp_path / "cql")
    with made.build_algo() as algo:
        algo.restore_from_path(path)
        assert known(algo) == before
    one_pass = made.copy(copy_frozen=False).offline_data(dataset_num_iters_per_learner=None)
    with one_pass.build_algo() as algo:
        assert algo.train()["learners/default_policy/num_module_steps_trained"] == 800
    falling = made.copy(copy_frozen=False).training(critic_lr=[[0, 1e-3], [64, 0.0]])
    with falling.build_algo() as algo:
        rate = "learners/default_policy/default_optimizer_learning_rate"
        assert [algo.train()[rate] for _ in range(2)] == pytest.approx([1e-3, 5e-4])
        (played,) = algo.env_runner_group.foreach_env_runner(lambda one: one.module.get_state())
        weights = algo.get_weights()["default_policy"]
        assert all(np.array_equal(played[name], weights[name]) for name in played)


# ---- going on


def test_other_recordings_are_refused_at_a_restore_and_nothing_changes(cartpole, tmp_path):
    with config(cartpole).build_algo() as algo:
        algo.train()
        path = algo.save_to_path(tmp_path / "saved")
    others = recorded(tmp_path / "others", num_iterations=1)
    with config(others).build_algo() as algo:
        before = known(algo)
        with pytest.raises(CheckpointMismatchError, match="was learning from other recordings"):
            algo.restore_from_path(path)
        assert known(algo) == before


def test_an_iteration_that_fails_in_reading_is_undone(cartpole, monkeypatch):
    with config(cartpole, dataset_num_iters_per_learner=2).build_algo() as algo:
        algo.train()
        before = known(algo)
        episodes = [algo.reader.next_episodes]

        def fail(*args, **kwargs):
            if len(episodes) > 1:
                raise EpisodeError("on purpose")
            episodes.append(None)
            return episodes[0](*args, **kwargs)

        monkeypatch.setattr(algo.reader, "next_episodes", fail)
        with pytest.raises(EpisodeError, match="on purpose"):
            algo.train()
        assert known(algo) == before


def test_recordings_of_another_env_are_told_before_anything_is_learnt(cartpole):
    with pytest.raises(EpisodeError, match=r"'observations' has the shape \(\d+, 4\)"):
        config(cartpole, env="Acrobot-v1").build_algo()


def test_evaluations_are_the_same_wherever_they_are_played(cartpole):
    found = []
    for number in (0, 2):
        made = config(cartpole, evaluation_num_env_runners=number, evaluation_interval=1)
        with made.build_algo() as algo:
            result = [algo.train() for _ in range(2)][-1]["evaluation/env_runners"]
            found.append([result["episode_return_mean"], result["episode_len_mean"]])
    assert found[0] == found[1]


def test_a_run_goes_on_from_another_folder(cartpole, tmp_path, monkeypatch):
    monkeypatch.chdir(cartpole.parent)
    with config(cartpole.name).build_algo() as algo:
        saved = algo.save_to_path(tmp_path / "saved")
    monkeypatch.chdir(tmp_path)
    with Algorithm.from_checkpoint(saved) as algo:
        algo.train()


def test_a_strangers_checkpoint_does_not_say_what_is_read_here(cartpole, tmp_path, monkeypatch):
    with config(cartpole).build_algo() as algo:
        algo.train()
        saved = algo.save_to_path(tmp_path / "saved")
        found = read_checkpoint(saved)
    with Algorithm.from_checkpoint(saved) as algo:  # what was saved here is the user's own
        algo.train()
    path = write_checkpoint(
        tmp_path / "unsigned", components=found.components, metadata=found.manifest.metadata
    )
    with pytest.raises(ConfigError, match="nothing was read, because it may be a stranger's"):
        Algorithm.from_checkpoint(path)
    monkeypatch.chdir(cartpole.parent)
    with Algorithm.from_checkpoint(path, input_=cartpole.name) as algo:
        algo.train()


# ---- what comes of it


def test_ppo_goes_on_with_what_was_cloned(cartpole, tmp_path):
    model = {"fcnet_hiddens": [8], "vf_share_layers": False}
    with config(cartpole, model=model).build_algo() as algo:
        algo.train()
        module = algo.get_module().get_state()
        path = algo.save_to_path(tmp_path / "marwil")
    spec = RLModuleSpec(load_state_path=f"{path}/learner/rl_module")
    ppo = PPOConfig().environment("CartPole-v1").env_runners(num_env_runners=0)
    ppo.training(train_batch_size=60, minibatch_size=30, num_epochs=1)
    with ppo.rl_module(rl_module_spec=spec, model_config=model).build_algo() as algo:
        begun = algo.get_module().get_state()
        assert all(np.array_equal(begun[name], module[name]) for name in module)
        algo.train()
    with config(cartpole, BCConfig, model=model).build_algo() as algo:
        algo.train()
        cloned = algo.get_weights()["default_policy"]
    ppo = ppo.copy(copy_frozen=False).rl_module(rl_module_spec=None, model_config=model)
    with ppo.build_algo() as algo:  # BC has no value network: that of PPO stays as it is drawn
        own = algo.get_weights()["default_policy"]
        algo.set_weights({"default_policy": {**own, **cloned}})
        algo.train()


def test_a_cloned_policy_is_exported_and_acts_without_its_recordings(cartpole, tmp_path):
    with config(cartpole, BCConfig).build_algo() as algo:
        algo.train()
        path = algo.save_to_path(tmp_path / "bc")
        obs = np.array([0.01, -0.2, 0.03, 0.4], np.float32)
        expected = algo.compute_single_action(obs, explore=False)
        export_policy(algo, tmp_path / "policy.npz")
    assert load_policy(tmp_path / "policy.npz").predict(obs) == expected
    assert TrainedPolicy.from_checkpoint(path).predict(obs) == expected
