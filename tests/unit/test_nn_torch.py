"""The ready-made networks on Torch: the same weights, acting and gradients as in NumPy."""

import sys

import numpy as np
import pytest
from gymnasium import spaces

pytest.importorskip("torch")

from tests.sac_updates import BOX as NUMBERS
from tests.sac_updates import CHOICE, replayed_rows, sac_learner
from tests.small_runs import small_ppo
from trainer import ConfigError, RLModuleSpec
from trainer.modules import ActorCriticModule, PolicyModule, QModule
from trainer.nn import ACTIVATIONS
from trainer.testing.checks import encoded_samples

BOX = spaces.Box(-1.0, 1.0, (3,))
TWO = spaces.Discrete(2)
IMAGE = spaces.Box(0, 255, (9, 8, 3), np.uint8)
PLANES = spaces.Box(0, 255, (3, 9, 9), np.uint8)
MIXED = spaces.Dict({"a": IMAGE, "b": BOX, "c": PLANES})
SMALL = {"fcnet_hiddens": [7, 5]}
OF_FEATURES = {**SMALL, "free_log_std": True, "log_std_by_feature": True}
FILTERS = {"conv_filters": [[4, 3, 2], [5, [2, 3], 1, "valid"]], **SMALL}


def both(module_class, space, actions, **config):
    modules = []
    for backend in ("numpy", "torch"):
        spec = RLModuleSpec(module_class, space, actions, {**config, "backend": backend})
        modules.append(spec.build(np.random.default_rng(0)))
    return modules


@pytest.mark.parametrize(
    ("module_class", "space", "actions", "config"),
    [
        *[
            (ActorCriticModule, BOX, TWO, {**SMALL, "fcnet_activation": name, "vf_share_layers": s})
            for name, s in zip(sorted(ACTIVATIONS), [True, False] * 9, strict=False)
        ],
        (ActorCriticModule, BOX, spaces.Box(-1.0, 1.0, (2,)), {**SMALL, "free_log_std": True}),
        (ActorCriticModule, BOX, spaces.Box(-1.0, 1.0, (2,)), OF_FEATURES),
        (ActorCriticModule, IMAGE, spaces.Box(-1.0, 1.0, (2,)), {**FILTERS, **OF_FEATURES}),
        (ActorCriticModule, IMAGE, TWO, FILTERS),
        (ActorCriticModule, PLANES, TWO, {**FILTERS, "vf_share_layers": False}),
        (ActorCriticModule, MIXED, TWO, FILTERS),
        (PolicyModule, IMAGE, TWO, {**FILTERS, "conv_activation": "elu"}),
        (QModule, BOX, TWO, {**SMALL, "num_atoms": 3}),
        (QModule, MIXED, TWO, {**FILTERS, "dueling": True}),
    ],
)
def test_weights_acting_outputs_and_gradients_are_those_of_numpy(
    module_class, space, actions, config
):
    ours, theirs = both(module_class, space, actions, **config)
    assert ours.parameters.flat.tobytes() == theirs.parameters.flat.tobytes()
    obs = encoded_samples(space, seed=1)
    assert ours.forward_acting(obs).tobytes() == theirs.forward_acting(obs).tobytes()
    rng = np.random.default_rng(2)
    outputs = [module.forward_train({"obs": obs}) for module in (ours, theirs)]
    assert outputs[0].keys() == outputs[1].keys()
    given = {n: rng.standard_normal(o.shape).astype(np.float32) for n, o in outputs[0].items()}
    for name, output in outputs[0].items():
        np.testing.assert_allclose(outputs[1][name], output, rtol=1e-5, atol=1e-6)
    for module in (ours, theirs):
        module.gradients.flat[:] = 9.0
        module.backward(
            d_action_dist_inputs=given["action_dist_inputs"],
            d_vf_preds=given.get("vf_preds", np.zeros(len(obs), np.float32)),
        )
    for name, gradient in ours.gradients.views.items():
        error = np.abs(theirs.gradients.views[name] - gradient).max()
        assert error <= 1e-5 * np.abs(gradient).max() + 1e-9, name


@pytest.mark.parametrize("actions", [NUMBERS, CHOICE])
def test_losses_of_sac_are_those_of_numpy(actions):
    found = []
    for backend in ("numpy", "torch"):
        subject = sac_learner(actions, model={**SMALL, "backend": backend})
        losses = subject.losses(replayed_rows(actions), rng=np.random.default_rng(2))
        found.append((losses.total, subject.module.gradients.flat.copy()))
    assert found[1][0] == pytest.approx(found[0][0], rel=1e-5)
    np.testing.assert_allclose(found[1][1], found[0][1], rtol=1e-4, atol=1e-6)


def test_checkpoints_fit_both_and_five_iterations_are_the_same(tmp_path):
    def config(backend):
        made = small_ppo(env="CartPole-v1", batch=128, num_epochs=2, lr=1e-3)
        return made.rl_module(model_config={"fcnet_hiddens": [16], "backend": backend})

    losses = {}
    for backend in ("numpy", "torch"):
        with config(backend).build_algo() as algo:
            results = [algo.train()["learners/default_policy"] for _ in range(5)]
            losses[backend] = [(r["total_loss"], r["policy_loss"], r["vf_loss"]) for r in results]
            algo.save_to_path(str(tmp_path / backend))
    np.testing.assert_allclose(losses["torch"], losses["numpy"], rtol=1e-5, atol=1e-8)
    with config("torch").build_algo() as algo:
        algo.restore_from_path(str(tmp_path / "numpy"))
        assert np.isfinite(algo.train()["learners/default_policy/total_loss"])


def test_only_what_learns_needs_torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    config = {"fcnet_hiddens": [4], "backend": "torch"}
    RLModuleSpec(ActorCriticModule, BOX, TWO, config, inference_only=True).build()
    with pytest.raises(ImportError) as caught:
        RLModuleSpec(ActorCriticModule, BOX, TWO, config).build()
    assert "needs the package `torch`" in str(caught.value)
    assert 'local-trainer[torch]"' in str(caught.value)


def test_another_backend_is_refused():
    with pytest.raises(ConfigError, match="`backend='jax'` must be one of numpy, torch"):
        RLModuleSpec(None, BOX, TWO, {"backend": "jax"}).build()
