"""Networks in Torch learn what those in NumPy learn, with as many env steps."""

import pytest

pytest.importorskip("torch")

from torch import nn

from trainer import PPOConfig, RLModuleSpec, TorchRLModule

pytestmark = [pytest.mark.learning, pytest.mark.slow]

MOST_ENV_STEPS = 120_000


class Towers(TorchRLModule):
    """Policy and values apart, 64 x 64 each, drawn as the ready-made network is."""

    def setup(self):
        self.pi = self._tower(self.action_distribution.num_inputs, gain=0.01)
        self.vf = self._tower(1, gain=1.0)

    def _tower(self, width, *, gain):
        sizes = ((self.obs_size, 64, 2**0.5), (64, 64, 2**0.5), (64, width, gain))
        layers = []
        for inputs, outputs, layer_gain in sizes:
            layer = nn.Linear(inputs, outputs)
            nn.init.orthogonal_(layer.weight, layer_gain)
            nn.init.zeros_(layer.bias)
            layers += [layer, nn.Tanh()]
        return nn.Sequential(*layers[:-1])

    def _forward(self, batch, **kwargs):
        return {"action_dist_inputs": self.pi(batch["obs"])}

    def compute_values(self, batch, embeddings=None):
        return self.vf(batch["obs"]).squeeze(-1)


def env_steps_to_450(seed, **network):
    config = (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=0, num_envs_per_env_runner=8)
        .training(
            train_batch_size=2048,
            minibatch_size=64,
            num_epochs=10,
            lr=3e-4,
            lambda_=0.95,
            clip_param=0.2,
            vf_clip_param=float("inf"),
            use_kl_loss=False,
            grad_clip=0.5,
            vf_loss_coeff=0.5,
        )
        .rl_module(**network)
        .debugging(seed=seed)
    )
    with config.build_algo() as algo:
        while algo.counters.num_env_steps_sampled < MOST_ENV_STEPS:
            if algo.train()["env_runners/episode_return_mean"] >= 450:
                return algo.counters.num_env_steps_sampled
    return MOST_ENV_STEPS + 1


NETWORKS = {
    "NumPy": {"model_config": {"fcnet_hiddens": [64, 64]}},
    "backend": {"model_config": {"fcnet_hiddens": [64, 64], "backend": "torch"}},
    "TorchRLModule": {"rl_module_spec": RLModuleSpec(module_class=Towers)},
}


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("network", list(NETWORKS))
def test_cartpole_is_solved(network, seed):
    assert env_steps_to_450(seed, **NETWORKS[network]) <= MOST_ENV_STEPS
