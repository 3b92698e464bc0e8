"""APPO and IMPALA with losses in Torch: the same numbers as on arrays, and exactness."""

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from checkpoints import encode
from tests.integration.test_own_losses_in_torch import dense, masked
from tests.integration.test_torch_exactness import fork_server_with_torch as fork_server_with_torch
from tests.torch_cells import config, outcome, spread
from tests.torch_modules import NoisyConvolution
from trainer import (
    Algorithm,
    APPOConfig,
    APPOTorchLearner,
    ConfigError,
    IMPALAConfig,
    PPOTorchLearner,
    RLModuleSpec,
    export_torch,
)
from trainer.testing.envs import TargetEnv


class WithoutAdvantages(APPOTorchLearner):
    """The negative control: its loss leaves out what V-trace says."""

    def compute_loss_for_module(self, *, batch, **given):
        batch = {**batch, "advantages": batch["advantages"] * 0.0}
        return super().compute_loss_for_module(batch=batch, **given)


def late(made, kind=APPOConfig, **settings):
    """The same run from samples that are two updates old."""
    own = kind().update_from_dict(made.given_settings())
    if kind is IMPALAConfig:
        own.training(num_epochs=1, minibatch_size=None, use_kl_loss=False)
    return own.training(sample_ahead=2, **settings)


def images():
    """A convolution with dropout and batch normalisation."""
    spec = RLModuleSpec(module_class=NoisyConvolution)
    return dense(TargetEnv, env_config={"size": 6}).rl_module(rl_module_spec=spec)


def results_of(made, learner_class, count):
    with made.training(learner_class=learner_class).build_algo() as algo:
        return [algo.train()["learners/default_policy"] for _ in range(count)]


@pytest.mark.parametrize("kind", [APPOConfig, IMPALAConfig])
@pytest.mark.parametrize(
    ("make", "count"),
    [
        (dense, 5),
        (lambda: dense("Pendulum-v1"), 5),
        (lambda: config("memory"), 4),
        (masked, 4),
        (images, 1),  # normalises small batches: what differs grows
    ],
    ids=["discrete", "box", "memory", "masked", "images"],
)
def test_the_loss_in_torch_is_the_same_to_the_last_digits(kind, make, count):
    mine, theirs = (results_of(late(make(), kind), one, count) for one in (None, APPOTorchLearner))
    for number, (one, other) in enumerate(zip(mine, theirs, strict=True)):
        assert other.keys() == one.keys()
        for name in ("policy_loss", "vf_loss", "gradients_default_optimizer_global_norm"):
            assert other[name] == pytest.approx(one[name], rel=1e-5, abs=1e-6), (number, name)
    assert count < 4 or abs(theirs[-1]["mean_importance_ratio"] - 1.0) > 1e-6


def test_a_loss_without_v_trace_is_another_one():
    mine, others = (results_of(late(dense()), one, 1) for one in (None, WithoutAdvantages))
    assert mine[0]["policy_loss"] != pytest.approx(others[0]["policy_loss"], rel=1e-2, abs=1e-3)


def test_a_loss_for_ppo_is_none_for_appo():
    with pytest.raises(ConfigError, match="APPO learns by a APPOLearner"):
        late(dense()).training(learner_class=PPOTorchLearner).build_algo()


@pytest.mark.parametrize("name", ["dense", "memory"])
def test_a_restored_run_gives_the_same_bytes(name, tmp_path):
    made = late(config(name)).training(learner_class=APPOTorchLearner)
    with made.build_algo() as algo:
        outcome(algo, 2)
        path = algo.save_to_path(tmp_path / "saved")
        expected = outcome(algo, 2)
    spec = {"rl_module_spec": made.rl_module_spec, "learner_class": APPOTorchLearner}
    with Algorithm.from_checkpoint(path, **spec) as algo:
        assert isinstance(algo.learner, APPOTorchLearner)
        assert outcome(algo, 2) == expected


def test_a_policy_learnt_in_torch_is_exported(tmp_path):
    made = late(dense()).rl_module(rl_module_spec=None, model_config={"fcnet_hiddens": [8]})
    with made.training(learner_class=APPOTorchLearner).build_algo() as algo:
        before = encode(algo.learner.module.get_state())
        algo.train()
        assert encode(algo.learner.module.get_state()) != before
        file = export_torch(algo, tmp_path / "policy.pt2")
        obs = np.array([0.1, -0.2, 0.05, 0.3], np.float32)
        expected = algo.compute_single_action(obs, explore=False)
    outputs = torch.export.load(file).module()(torch.from_numpy(obs[None]))
    assert int(outputs["action"][0]) == expected


@pytest.mark.process
@pytest.mark.usefixtures("fork_server_with_torch")
def test_killed_and_spread_runs_give_the_same_bytes(tmp_path):
    alone, made = (
        late(config("dense", count)).training(learner_class=APPOTorchLearner) for count in (0, 2)
    )
    assert spread(made, tmp_path) == spread(alone)
    assert not list(tmp_path.iterdir()), "a runner was not killed"
