"""APPO and IMPALA: PPO's update from samples that are some updates old."""

import contextlib
import dataclasses
import functools
import os
import signal
import threading

import numpy as np
import pytest

from callbacks import RLlibCallback
from checkpoints import encode
from tests.small_runs import known, small_ppo, trained
from trainer import Algorithm, APPOConfig, ConfigError, IMPALAConfig, PPOConfig
from trainer.algorithms.appo.appo import BEHAVIOUR_LOGP, APPOLearner
from trainer.episodes.episode_columns import ACTION_LOGP, ADVANTAGES, VF_PREDS

COMMON = {"lr": 1e-2, "num_epochs": 2, "minibatch_size": 40, "lambda_": 0.9}


def made(config=APPOConfig, **settings):
    """A small run with PPO's settings, so that both can be compared."""
    ppo = small_ppo(0, env="CartPole-v1", num_slots=4, seed=3)
    own = config().update_from_dict({**ppo.to_dict(), **COMMON})
    return own.training(train_batch_size=120).update_from_dict(settings)


class Keeps(RLlibCallback):
    """Keeps the batch that was learnt from last."""

    batches: list[dict[str, np.ndarray]] = []

    def on_learn_on_batch(self, *, train_batch, **_):
        names = (ACTION_LOGP, ADVANTAGES, BEHAVIOUR_LOGP, VF_PREDS)
        self.batches.append({name: np.array(train_batch[name]) for name in names})


def weights_after(config, num_iterations):
    with config.build_algo() as algo:
        for _ in range(num_iterations):
            result = algo.train()
        return algo.learner.module.get_state(), result["learners"]["default_policy"]


def test_without_a_lag_it_is_ppo():
    found, metrics = weights_after(made(sample_ahead=0), 3)
    expected, _ = weights_after(made(PPOConfig), 3)
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-3, atol=1e-5, err_msg=name)
    assert metrics["mean_importance_ratio"] == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("lag", [1, 3])
def test_with_a_lag_v_trace_makes_a_difference_and_says_how_old_samples_are(lag):
    corrected, metrics = weights_after(made(sample_ahead=lag), 4)
    plain, others = weights_after(made(sample_ahead=lag, vtrace=False), 4)
    assert any(not np.allclose(corrected[name], plain[name]) for name in plain)
    assert abs(metrics["mean_importance_ratio"] - 1.0) > 1e-4
    assert 0.0 < metrics["clipped_importance_ratios"] < 1.0
    assert "mean_importance_ratio" not in others


def test_actions_that_the_policy_takes_less_now_weigh_less():
    Keeps.batches = []
    config = made(sample_ahead=2, standardize_advantages=None).callbacks(Keeps)
    with config.build_algo() as algo:
        for _ in range(4):
            algo.train()
    with made(sample_ahead=2, standardize_advantages=None, vtrace_clip_pg_rho_threshold=1e-9)\
            .callbacks(Keeps).build_algo() as algo:  # fmt: skip
        algo.train()
    first, last, control = Keeps.batches[0], Keeps.batches[3], Keeps.batches[4]
    np.testing.assert_allclose(first[ACTION_LOGP], first[BEHAVIOUR_LOGP], atol=1e-5)
    assert np.abs(last[ACTION_LOGP] - last[BEHAVIOUR_LOGP]).max() > 0.01
    # The same sample: only its weights differ.
    np.testing.assert_allclose(control[ADVANTAGES], 1e-9 * first[ADVANTAGES], rtol=1e-4)


def test_impala_makes_one_gradient_step_per_sample():
    with IMPALAConfig().environment("CartPole-v1").debugging(seed=1).build_algo() as algo:
        result = algo.train()["learners"]["default_policy"]
        assert result["num_module_steps_trained"] == algo.config.train_batch_size == 500
        assert result["clip_fraction"] == 0.0
    config = IMPALAConfig().environment("CartPole-v1").training(num_epochs=2, minibatch_size=50)
    with pytest.raises(ConfigError, match=r"num_epochs=2.*one gradient step") as error:
        config.validate()
    assert "minibatch_size=50" in str(error.value)


MODELS = {
    "plain": {"fcnet_hiddens": [8]},
    "memory": {"fcnet_hiddens": [8], "use_lstm": True, "lstm_cell_size": 6, "max_seq_len": 7},
}


class KeepsColumns(APPOLearner):
    """Keeps what it learnt from last, as the policy before the update sees it."""

    def estimate(self, chunks, columns):
        self.kept = (chunks, columns)
        return super().estimate(chunks, columns)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("lag", [0, 3])
def test_values_and_probabilities_are_of_the_policy_before_the_update(model, lag):
    config = made(sample_ahead=lag, model_config=MODELS[model])
    with config.training(learner_class=KeepsColumns).build_algo() as algo:
        for _ in range(3):
            algo.train()
        before = algo.learner.module.get_state()
        algo.train()
        chunks, columns = algo.learner.kept
        old, logp = columns.extras[BEHAVIOUR_LOGP], columns.action_logp
        assert np.allclose(old, logp, atol=1e-5) == (lag == 0)
        algo.learner.module.set_state(before)
        expected = algo.learner.batching.values(
            algo.learner.module, dataclasses.replace(columns, vf_preds=None)
        )
        np.testing.assert_allclose(chunks.values, expected[: len(old)], rtol=1e-4, atol=1e-6)
        given_while_acting = dataclasses.replace(columns, vf_preds=np.zeros_like(logp))
        assert algo.learner._of_policy_of_now(given_while_acting).vf_preds is None


def test_the_divergence_is_from_the_policy_before_the_update():
    settings = {"num_epochs": 1, "minibatch_size": None, "use_kl_loss": True}
    _, metrics = weights_after(made(sample_ahead=3, **settings), 5)
    assert metrics["mean_kl_loss"] == pytest.approx(0.0, abs=1e-9)
    _, of_old = weights_after(made(sample_ahead=3, vtrace=False, **settings), 5)
    assert of_old["mean_kl_loss"] > 1e-6  # control: from the policy that acted


def test_a_state_of_a_larger_lag_gives_the_newest_policies():
    with made(sample_ahead=3).build_algo() as source, made(sample_ahead=1).build_algo() as algo:
        for _ in range(4):
            source.train()
        state = source.get_state()
        algo.set_state(state)
        (newest,) = algo.get_state()["sample_ahead"]["acting"]
        assert encode(newest) == encode(state["sample_ahead"]["acting"][-1])
        assert encode(newest) != encode(state["sample_ahead"]["acting"][0])


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"use_kl_loss": True}, "use_kl_loss=True"),
        ({"vtrace": False}, "vtrace=False"),
        ({"minibatch_size": 100}, "minibatch_size=100"),
    ],
)
def test_what_is_not_impala_is_refused_by_name(settings, why):
    config = IMPALAConfig().environment("CartPole-v1")
    config.copy(copy_frozen=False).training(minibatch_size=500).validate()
    with pytest.raises(ConfigError, match=why):
        config.training(**settings).validate()


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"use_critic": False}, "V-trace needs values"),
        ({"use_gae": False}, "V-trace needs values"),
        ({"standardize_advantages": "minibatch"}, "weighs advantages"),
        ({"sample_ahead": 65}, "sample_ahead"),
        ({"sample_ahead": -1}, "sample_ahead"),
        ({"vtrace_clip_rho_threshold": 0.0}, "vtrace_clip_rho_threshold"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(settings, why):
    with pytest.raises(ConfigError, match=why):
        APPOConfig().environment("CartPole-v1").training(**settings).validate()


@pytest.mark.learning
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_it_learns_from_old_samples(seed):
    config = APPOConfig().environment("CartPole-v1").debugging(seed=seed)
    config.env_runners(num_env_runners=0, num_envs_per_env_runner=8)
    config.training(
        train_batch_size=256, minibatch_size=256, num_epochs=20, lr=[[0, 1e-3], [100_000, 0.0]],
        clip_param=[[0, 0.2], [100_000, 1e-4]], gamma=0.98, lambda_=0.8, entropy_coeff=0.0,
        grad_clip=0.5, vf_clip_param=None, sample_ahead=2,
    )  # fmt: skip
    config.rl_module(
        model_config={
            "fcnet_hiddens": [64, 64],
            "fcnet_activation": "tanh",
            "initializer": "orthogonal",
        }
    )
    with config.build_algo() as algo:
        returns = []
        while algo.counters.num_env_steps_sampled < 100_000:
            returns.append(algo.train()["env_runners"]["episode_return_mean"])
    assert max(returns) > 450.0


# ---- exactness


def exact(num_env_runners, *, num_slots=8):
    """Eight sub-envs on so many runners."""
    config = APPOConfig().environment("CartPole-v1").debugging(seed=5)
    config.env_runners(
        num_env_runners=num_env_runners,
        num_envs_per_env_runner=num_slots // max(1, num_env_runners),
        observation_filter="MeanStdFilter",
    )
    config.rl_module(model_config={"fcnet_hiddens": [16]})
    return config.training(
        sample_ahead=3, train_batch_size=90, minibatch_size=30, num_epochs=2, lr=1e-2
    )


@functools.cache
def undisturbed(num_iterations):
    with exact(0).build_algo() as algo:
        return trained(algo, num_iterations), known(algo)


@pytest.mark.process
@pytest.mark.parametrize(
    "num_env_runners", [1, 2, *(pytest.param(n, marks=pytest.mark.slow) for n in (4, 8))]
)
def test_the_number_of_runners_changes_no_bytes(num_env_runners):
    with exact(num_env_runners).build_algo() as algo:
        assert (trained(algo, 8), known(algo)) == undisturbed(8)


def kill_if_there(pid):
    with contextlib.suppress(ProcessLookupError):  # killed before, and not made again yet
        os.kill(pid, signal.SIGKILL)


@pytest.mark.process
@pytest.mark.parametrize(
    ("num_env_runners", "num_kills"), [(2, 4), pytest.param(4, 50, marks=pytest.mark.slow)]
)
def test_kills_at_any_time_change_no_bytes(num_env_runners, num_kills, tmp_path):
    num_iterations = 2 * num_kills
    rng = np.random.default_rng(num_kills)
    results = []
    with exact(num_env_runners).build_algo() as algo:
        for number in range(num_iterations):
            if number % 2:
                pids = [*algo.env_runner_group.env_runner_pids().values()]
                timer = threading.Timer(rng.random() * 0.02, kill_if_there, [rng.choice(pids)])
                timer.start()
            results += trained(algo, 1)
            if number % 2:
                timer.join()
            if number == num_iterations // 2:
                path = algo.save_to_path(tmp_path / "checkpoint")
        assert (results, known(algo)) == undisturbed(num_iterations)
        assert algo.env_runner_group.num_restarts > num_kills // 8  # others hit who was gone
    with Algorithm.from_checkpoint(path, num_env_runners=0, num_envs_per_env_runner=8) as again:
        left = trained(again, num_iterations // 2 - 1)
        assert (left, known(again)) == (
            results[num_iterations // 2 + 1 :],
            undisturbed(num_iterations)[1],
        )
