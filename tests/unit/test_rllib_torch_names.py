"""What RLlib's Torch modules import besides their base class."""

import numpy as np
import pytest
from gymnasium import spaces

from trainer import Columns, DQNConfig, FrameStacking, RLModuleSpec, TorchRLModule
from trainer.rllib_names.torch_names import (
    TARGET_NETWORK_ACTION_DIST_INPUTS,
    FrameStackingEnvToModule,
    FrameStackingLearner,
    TargetNetworkAPI,
    ValueFunctionAPI,
    convert_to_numpy,
    make_target_network,
    normc_initializer,
    one_hot,
    override,
    same_padding,
    try_import_torch,
    valid_padding,
)

pytest.importorskip("torch")

torch, nn = try_import_torch()


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "zeros", "outputs"),
    [
        ((42, 42), 4, 2, (1, 1, 1, 1), (21, 21)),
        ((84, 84), 8, 4, (2, 2, 2, 2), (21, 21)),
        ((7, 10), (3, 2), (1, 3), (0, 1, 1, 1), (7, 4)),
        ((5, 5), 1, 2, (0, 0, 0, 0), (3, 3)),
    ],
)
def test_padding_gives_the_outputs_that_it_says(size, kernel, stride, zeros, outputs):
    assert same_padding(size, kernel, stride) == (zeros, outputs)
    layer = nn.Sequential(nn.ZeroPad2d(zeros), nn.Conv2d(1, 1, kernel, stride))
    assert tuple(layer(torch.zeros(1, 1, *size)).shape[2:]) == outputs
    plain = nn.Conv2d(1, 1, kernel, stride)(torch.zeros(1, 1, *size))
    assert valid_padding(size, kernel, stride) == tuple(plain.shape[2:])


def test_rows_drawn_by_normc_have_the_length_that_was_asked_for():
    weight = nn.Linear(5, 3).weight
    normc_initializer(0.01)(weight)
    np.testing.assert_allclose(weight.detach().norm(dim=1).numpy(), 0.01, rtol=1e-5)


def test_target_networks_are_copies_that_are_not_learnt():
    network = nn.Linear(2, 2)
    target = make_target_network(network)
    assert target.weight is not network.weight
    assert not target.weight.requires_grad


class InTheManner(TorchRLModule, ValueFunctionAPI, TargetNetworkAPI):
    """Written as for RLlib: markers, `override`, columns by name, and no number of ours."""

    @override(TorchRLModule)
    def setup(self):
        self._encoder = nn.Sequential(nn.Linear(self.observation_space.shape[0], 16), nn.ReLU())
        self._pi = nn.Linear(16, self.action_space.n)
        self._vf = nn.Linear(16, 1)

    @override(TorchRLModule)
    def _forward(self, batch, **kwargs):
        return {Columns.ACTION_DIST_INPUTS: self._pi(self._encoder(batch[Columns.OBS]))}

    @override(TorchRLModule)
    def _forward_train(self, batch, **kwargs):
        embeddings = self._encoder(batch[Columns.OBS])
        return {
            Columns.ACTION_DIST_INPUTS: self._pi(embeddings),
            Columns.EMBEDDINGS: embeddings,
        }

    @override(ValueFunctionAPI)
    def compute_values(self, batch, embeddings=None):
        if embeddings is None:
            embeddings = self._encoder(batch[Columns.OBS])
        return self._vf(embeddings).squeeze(-1)

    # What belongs to target networks: learners here make their own, so it is never called.

    @override(TargetNetworkAPI)
    def make_target_networks(self):
        self._target_pi = make_target_network(self._pi)

    @override(TargetNetworkAPI)
    def get_target_network_pairs(self):
        return [(self._pi, self._target_pi)]

    @override(TargetNetworkAPI)
    def forward_target(self, batch, **kwargs):
        features = self._encoder(batch[Columns.OBS])
        return {TARGET_NETWORK_ACTION_DIST_INPUTS: self._target_pi(features)}


def test_a_module_with_target_networks_in_the_manner_of_rllib_is_trained():
    config = DQNConfig().environment("CartPole-v1").env_runners(num_env_runners=0)
    config.rl_module(rl_module_spec=RLModuleSpec(module_class=InTheManner))
    config.training(train_batch_size=16, num_steps_sampled_before_learning_starts=10)
    config.reporting(min_sample_timesteps_per_iteration=20)
    with config.build_algo() as algo:
        before = algo.get_module().get_state()
        algo.train()
        after = algo.get_module().get_state()
    assert (before["_pi.weight"] != after["_pi.weight"]).any()
    assert not any("target" in name for name in after)


def test_a_module_in_the_manner_of_rllib_is_made_and_called_as_there():
    module = InTheManner(
        observation_space=spaces.Box(-1.0, 1.0, (4,)), action_space=spaces.Discrete(3)
    )
    batch = {Columns.OBS: torch.ones(5, 4)}
    assert module.forward_exploration(batch)[Columns.ACTION_DIST_INPUTS].shape == (5, 3)
    outputs = module.forward_train({Columns.OBS: np.ones((5, 4), np.float32)})
    values = module.compute_values(batch).detach().numpy()
    np.testing.assert_allclose(outputs[Columns.VF_PREDS], values, rtol=1e-6)


def test_one_hot_codes_of_choices():
    codes = one_hot(torch.tensor([1, 3]), spaces.Discrete(3, start=1))
    assert codes.tolist() == [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    codes = one_hot(torch.tensor([[1, 0]]), spaces.MultiDiscrete([2, 3]))
    assert codes.tolist() == [[0.0, 1.0, 1.0, 0.0, 0.0]]


def test_tensors_become_arrays_nested_as_they_are():
    found = convert_to_numpy({"a": [torch.ones(2, requires_grad=True)], "b": (3,)})
    assert isinstance(found["a"][0], np.ndarray)
    assert found["b"] == (3,)


def test_the_learners_half_of_stacking_changes_nothing():
    assert FrameStackingLearner(num_frames=4)(batch={"a": 1}, episodes=[]) == {"a": 1}
    assert FrameStackingEnvToModule is FrameStacking
