"""Networks that value observations while they act: PPO takes those values, and computes no more."""

import numpy as np
import pytest
from gymnasium import spaces

pytest.importorskip("torch")

from checkpoints import encode
from tests.torch_modules import DenseModule, NoisyDense, Remembering
from trainer import PPOConfig, RLModuleSpec
from trainer.modules import ActorCriticModule
from trainer.testing.checks import check_module, encoded_samples
from trainer.testing.envs import TargetEnv

IMAGES = {
    "conv_filters": [[4, 3, 2, "valid"]],
    "fcnet_hiddens": [8],
    "vf_share_layers": True,
    "backend": "torch",
}
NETWORKS = {
    "TorchRLModule": {"rl_module_spec": RLModuleSpec(module_class=NoisyDense)},
    "ready-made": {"model_config": IMAGES},
}


def config(network, num_envs=4):
    made = PPOConfig().rl_module(**NETWORKS[network]).debugging(seed=5)
    made.environment(TargetEnv, env_config={"size": 5})
    made.env_runners(num_env_runners=0, num_envs_per_env_runner=num_envs)
    return made.training(train_batch_size=61, minibatch_size=32, num_epochs=2)


def learnt(made):
    with made.build_algo() as algo:
        for _ in range(2):
            algo.train()
        return encode(algo.get_state()["learner"])


@pytest.mark.parametrize("network", list(NETWORKS))
def test_only_what_follows_a_chunk_is_valued_by_the_learner(network):
    with config(network).build_algo() as algo:
        module = algo.learner.module
        compute, given = module.compute_values, []

        def counted(batch):
            given.append(len(batch["obs"]))
            return compute(batch)

        module.__dict__["compute_values"] = counted
        samples = algo.env_runner.sample(num_timesteps=61)
        learner = algo.learner
        learner.update(samples, num_env_steps_sampled_before=0)
    assert given == [len(samples)]


@pytest.mark.parametrize("network", list(NETWORKS))
def test_they_are_the_values_that_the_learner_would_compute(network):
    with config(network).build_algo() as algo:
        for _ in range(2):  # running statistics, too
            algo.train()
        samples = algo.env_runner.sample(num_timesteps=40)
        rows = [chunk.get_observations()[:-1].reshape(len(chunk), -1) for chunk in samples]
        recorded = np.concatenate([c.get_extra_model_outputs("vf_preds") for c in samples])
        obs = np.concatenate(rows).astype(np.float32)
        expected = algo.learner.module.compute_values({"obs": obs})
    assert recorded.dtype == np.float32
    np.testing.assert_allclose(recorded, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("network", list(NETWORKS))
def test_who_only_listens_changes_no_byte(network):
    seen = []
    listened = config(network).callbacks(
        on_postprocess_trajectory=lambda *, postprocessed_batch, **_: seen.append(
            postprocessed_batch.copy()
        ),
        on_learn_on_batch=lambda **_: None,
    )
    assert learnt(listened) == learnt(config(network))
    assert all(np.isfinite(batch["advantages"]).all() for batch in seen)


def test_values_of_observations_that_were_rewritten_are_computed_anew():
    def on_postprocess_trajectory(*, postprocessed_batch, **_):
        postprocessed_batch["obs"][:] = 0
        postprocessed_batch["new_obs"][:] = 0

    outputs = []
    made = config("ready-made").callbacks(
        on_postprocess_trajectory=on_postprocess_trajectory,
        on_learn_on_batch=lambda *, train_batch, **_: outputs.append(train_batch["vf_preds"]),
    )
    with made.build_algo() as algo:
        algo.train()
    assert len(set(outputs[0].round(4).tolist())) == 1


@pytest.mark.parametrize(
    ("strategy", "expected"), [("StochasticSampling", True), ("EpsilonGreedy", False)]
)
def test_values_are_recorded_where_nothing_but_the_module_chooses(strategy, expected):
    made = config("TorchRLModule").env_runners(exploration_config={"type": strategy})
    with made.build_algo() as algo:
        assert ("vf_preds" in algo.env_runner._player.policy.outputs) is expected
        samples = algo.env_runner.sample(num_timesteps=8)
        assert all(("vf_preds" in s.extra_model_outputs) is expected for s in samples)


def test_it_makes_no_difference_how_many_act_together():
    def columns(num_envs):
        found = {}
        with config("ready-made", num_envs).build_algo() as algo:
            for _ in range(4 // num_envs):
                for chunk in algo.env_runner.sample(num_episodes=num_envs):
                    found[chunk.id_] = chunk.get_extra_model_outputs("vf_preds").tobytes()
        return found

    alone, together = columns(1), columns(4)
    common = alone.keys() & together.keys()
    assert common
    assert all(alone[id_] == together[id_] for id_ in common)


def test_acting_has_the_bits_of_numpy_and_its_module_the_head_of_the_values():
    space, actions = TargetEnv({"size": 5}).observation_space, TargetEnv({"size": 5}).action_space
    obs = encoded_samples(space, seed=1)
    found = []
    for backend in ("numpy", "torch"):
        spec = RLModuleSpec(ActorCriticModule, space, actions, {**IMAGES, "backend": backend})
        whole = spec.build(np.random.default_rng(0))
        actor = RLModuleSpec(
            ActorCriticModule, space, actions, {**IMAGES, "backend": backend}, inference_only=True
        ).build()
        actor.set_state(whole.get_state(inference_only=True))
        found.append(actor.forward_exploration({"obs": obs}))
        assert actor.gives_values is (backend == "torch")
    assert found[0].keys() == {"action_dist_inputs"}
    assert found[0]["action_dist_inputs"].tobytes() == found[1]["action_dist_inputs"].tobytes()
    expected = whole.compute_values({"obs": obs})
    np.testing.assert_allclose(found[1]["vf_preds"], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("module_class", [DenseModule, Remembering])
def test_values_by_a_method_of_ones_own_or_with_memory_are_left_to_learning(module_class):
    space, actions = spaces.Box(-1.0, 1.0, (3,)), spaces.Discrete(2)
    assert not RLModuleSpec(module_class, space, actions).build().gives_values
    assert RLModuleSpec(NoisyDense, space, actions).build().gives_values


class ValuesOtherwise(NoisyDense):
    """While it acts, its values are those of another scale."""

    def _forward_exploration(self, batch, **kwargs):
        outputs = self._forward(batch)
        return {**outputs, "vf_preds": outputs["vf_preds"] * 2.0 + 1.0}


def test_the_check_of_modules_finds_other_values_while_acting():
    space, actions = spaces.Box(-1.0, 1.0, (3,)), spaces.Discrete(2)
    with pytest.raises(AssertionError, match="gives other 'vf_preds' than `compute_values`"):
        check_module(ValuesOtherwise, observation_space=space, action_space=actions)
