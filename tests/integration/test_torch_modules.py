"""Whole runs with networks in Torch: every algorithm, strategies, checkpoints, what is refused."""

import threading

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from checkpoints import load_weights  # noqa: E402
from tests.scripts import run_script  # noqa: E402
from tests.torch_modules import (  # noqa: E402
    DenseModule,
    NoisyConvolution,
    NoisyDense,
    TwinSAC,
    small_network,
)
from trainer import (  # noqa: E402
    Algorithm,
    DQNConfig,
    ModuleError,
    PGConfig,
    PPOConfig,
    RLModuleSpec,
    SACConfig,
    SerializationError,
    TorchRLModule,
    TrainedPolicy,
)
from trainer.testing.envs import TargetEnv  # noqa: E402


def config(made, env, module_class, **settings):
    made.environment(env, env_config=settings.pop("env_config", {}))
    made.env_runners(num_env_runners=0, num_envs_per_env_runner=2)
    made.rl_module(rl_module_spec=RLModuleSpec(module_class=module_class))
    if isinstance(made, PPOConfig):
        made.training(train_batch_size=64, minibatch_size=32, num_epochs=2)
    elif isinstance(made, PGConfig):
        made.training(train_batch_size=64)
    else:
        made.training(num_steps_sampled_before_learning_starts=20, train_batch_size=16)
        made.reporting(min_sample_timesteps_per_iteration=30)
    return made.update_from_dict(settings).debugging(seed=3)


class Masked(TorchRLModule):
    """Reads the image of a `TargetEnv` with masks."""

    def setup(self):
        self.pi = torch.nn.Linear(2 * 5 * 5, self.action_distribution.num_inputs)
        self.vf = torch.nn.Linear(2 * 5 * 5, 1)

    def _forward(self, batch, **kwargs):
        assert batch["obs"]["action_mask"].shape[1] == 4
        features = batch["obs"]["observations"].flatten(1) / 255.0
        return {
            "action_dist_inputs": self.pi(features),
            "vf_preds": self.vf(features).squeeze(-1),
        }


MASKED = {"env_config": {"size": 5, "mask": True}}


@pytest.mark.parametrize(
    ("made", "env", "module_class", "settings"),
    [
        (PPOConfig, "Pendulum-v1", DenseModule, {}),
        (PPOConfig, TargetEnv, NoisyConvolution, {"env_config": {"size": 5}}),
        (PPOConfig, TargetEnv, Masked, MASKED),
        (PPOConfig, "CartPole-v1", NoisyDense, {"exploration_config": {"type": "ParameterNoise"}}),
        (PPOConfig, "CartPole-v1", DenseModule, {"observation_filter": "MeanStdFilter"}),
        (PGConfig, "CartPole-v1", NoisyDense, {}),
        (DQNConfig, "CartPole-v1", NoisyDense, {"target_network_update_freq": 10, "tau": 0.5}),
        (DQNConfig, TargetEnv, Masked, MASKED),
        (SACConfig, "Pendulum-v1", TwinSAC, {}),
        (SACConfig, "CartPole-v1", TwinSAC, {}),
    ],
)
def test_an_iteration_changes_the_weights_and_restores(made, env, module_class, settings, tmp_path):
    with config(made(), env, module_class, **settings).build_algo() as algo:
        before = algo.get_module().get_state()
        algo.train()
        after = algo.get_module().get_state()
        assert any(not np.array_equal(before[name], after[name]) for name in before)
        path = algo.save_to_path(str(tmp_path / "saved"))
        expected = algo.train()["learners/default_policy"]
    spec = RLModuleSpec(module_class=module_class)
    given = {} if isinstance(env, str) else {"env": env}
    with Algorithm.from_checkpoint(path, rl_module_spec=spec, **given) as algo:
        assert algo.train()["learners/default_policy"] == expected


def test_runners_act_with_the_statistics_that_were_learnt():
    with config(PPOConfig(), "CartPole-v1", NoisyDense).build_algo() as algo:
        for _ in range(2):
            algo.train()
        learnt, acting = algo.get_module().get_state(), algo.env_runner.module.get_state()
    assert learnt["body.1.num_batches_tracked"] == 8
    for name in learnt.keys() & acting.keys():
        assert np.array_equal(learnt[name], acting[name]), name
    assert {"body.1.running_mean", "body.1.running_var", "pi.weight"} <= acting.keys()


def test_a_trained_policy_and_weights_are_read_from_a_checkpoint(tmp_path):
    with config(PPOConfig(), "CartPole-v1", NoisyDense).build_algo() as algo:
        algo.train()
        path = algo.save_to_path(str(tmp_path / "saved"))
        obs = np.array([0.1, -0.2, 0.05, 0.3], np.float32)
        action = algo.compute_single_action(obs, explore=False)
        state = algo.get_module().get_state()
    policy = TrainedPolicy.from_checkpoint(path, module_class=NoisyDense)
    assert policy.predict(obs) == action
    module = NoisyDense.from_checkpoint(f"{path}/learner/rl_module")
    assert {n: a.tobytes() for n, a in module.get_state().items()} == {
        n: a.tobytes() for n, a in state.items()
    }
    weights = load_weights(path)
    assert any(np.array_equal(array, state["pi.weight"]) for array in weights.values())


def test_pretrained_weights_are_given_to_an_algorithm():
    with config(PPOConfig(), "CartPole-v1", DenseModule).build_algo() as algo:
        pretrained = {n: t + 0.5 for n, t in algo.get_module().to_torch().items()}
        algo.get_module().from_torch(pretrained)
        algo.train()
        acted = algo.env_runner.module.get_state()
        # After one update with a small learning rate.
        np.testing.assert_allclose(acted["pi.0.weight"], pretrained["pi.0.weight"], atol=0.01)


def test_what_is_no_module_class_is_answered_with_wrapping():
    for given in (torch.nn.Linear, torch.nn.Linear(4, 2)):
        with pytest.raises(ModuleError, match=r"TorchRLModule\.wrapping\(network\)"):
            RLModuleSpec(module_class=given)
    with pytest.raises(ModuleError, match=r"the class Linear.*wrapping\(Linear\(\.\.\.\)\)"):
        config(PGConfig(), "CartPole-v1", TorchRLModule.wrapping(torch.nn.Linear)).build_algo()
    with pytest.raises(ModuleError, match=r"a Module without `forward`\. Write one that takes"):
        config(PGConfig(), "CartPole-v1", TorchRLModule.wrapping(torch.nn.Module())).build_algo()


@pytest.mark.process
def test_a_wrapped_network_is_restored_in_another_process(tmp_path):
    module_class = TorchRLModule.wrapping(small_network())
    with config(PGConfig(), "CartPole-v1", module_class).build_algo() as algo:
        path = algo.save_to_path(tmp_path / "saved")
    script = (
        "import sys\n"
        "from trainer import PG, TrainedPolicy\n"
        "TrainedPolicy.from_checkpoint(sys.argv[1]).predict([0.0] * 4)\n"
        "with PG.from_checkpoint(sys.argv[1]) as algo:\n"
        "    print(algo.train()['training_iteration'])\n"
    )
    assert run_script(script, path).stdout.split() == ["1"]


@pytest.mark.process
def test_a_module_that_cannot_travel_is_named():
    lock = threading.Lock()

    class HoldsALock(DenseModule):
        def _forward(self, batch, **kwargs):
            with lock:
                return super()._forward(batch)

    made = config(PPOConfig(), "CartPole-v1", HoldsALock)
    made.env_runners(num_env_runners=1)
    with pytest.raises(SerializationError, match="lock"):
        made.build_algo()


# ---- beside NumPy


class Towers(TorchRLModule):
    """The ready-made dense network of 16 units, written in Torch."""

    def setup(self):
        self.pi = self._tower(self.action_distribution.num_inputs)
        self.vf = self._tower(1)

    def _tower(self, width):
        nn = torch.nn
        return nn.Sequential(nn.Linear(self.obs_size, 16), nn.Tanh(), nn.Linear(16, width))

    def _forward(self, batch, **kwargs):
        return {"action_dist_inputs": self.pi(batch["obs"])}

    def compute_values(self, batch, embeddings=None):
        return self.vf(batch["obs"]).squeeze(-1)


KINDS = {"weight": "kernel", "bias": "bias"}
NAMES = [f"{tower}.{layer}.{kind}" for tower in ("pi", "vf") for layer in (0, 2) for kind in KINDS]


def as_in_numpy(name):
    """What the ready-made network calls a tensor of `Towers`, which is the transpose of it."""
    tower, layer, kind = name.split(".")
    return f"{tower}/{int(layer) // 2}/{KINDS[kind]}"


def five_iterations(network, seed, weights=None):
    """First weights; losses and gradients of every iteration."""
    made = PPOConfig().environment("CartPole-v1").debugging(seed=seed).rl_module(**network)
    made.env_runners(num_env_runners=0, num_envs_per_env_runner=4)
    made.training(train_batch_size=128, minibatch_size=64, num_epochs=2, lr=1e-3)
    losses, gradients = [], []
    with made.build_algo() as algo:
        module = algo.learner.module
        if weights is not None:
            module.set_state(weights)
        first = module.get_state()
        for _ in range(5):
            result = algo.train()["learners/default_policy"]
            losses.append([result[name] for name in ("total_loss", "policy_loss", "vf_loss")])
            gradients.append({n: g.copy() for n, g in module.gradients.views.items()})
    return first, losses, gradients


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2))])
def test_five_iterations_give_the_losses_and_gradients_of_numpy(seed):
    model = {"fcnet_hiddens": [16]}
    weights, losses, gradients = five_iterations({"model_config": model}, seed)
    in_torch = {"model_config": {**model, "backend": "torch"}}
    found = [five_iterations(in_torch, seed)[1:]]
    given = {name: np.ascontiguousarray(weights[as_in_numpy(name)].T) for name in NAMES}
    spec = RLModuleSpec(module_class=Towers)
    own_losses, own = five_iterations({"rl_module_spec": spec}, seed, given)[1:]
    found.append((own_losses, [{as_in_numpy(n): g.T for n, g in of.items()} for of in own]))
    for their_losses, their_gradients in found:
        np.testing.assert_allclose(their_losses, losses, rtol=1e-5, atol=1e-8)
        for theirs, ours in zip(their_gradients, gradients, strict=True):
            for name, gradient in ours.items():
                error = np.abs(theirs[name] - gradient).max()
                assert error <= 1e-5 * np.abs(gradient).max(), name
