"""Networks in Torch that several tests use. Importing this file imports Torch."""

import torch
from torch import nn

from trainer import TorchRLModule, TorchSACModule


class DenseModule(TorchRLModule):
    """Two towers of 16 units, as wide as blocks are exact for."""

    def setup(self):
        size, width = self.obs_size, self.action_distribution.num_inputs
        self.pi = nn.Sequential(nn.Linear(size, 16), nn.Tanh(), nn.Linear(16, width))
        if not self.inference_only:
            self.vf = nn.Sequential(nn.Linear(size, 16), nn.Tanh(), nn.Linear(16, 1))

    def _forward(self, batch, **kwargs):
        return {"action_dist_inputs": self.pi(batch["obs"].flatten(1))}

    def compute_values(self, batch, embeddings=None):
        return self.vf(batch["obs"].flatten(1)).squeeze(-1)


class NoisyConvolution(TorchRLModule):
    """A convolution with batch normalisation and dropout, for images [height, width, channels]."""

    def setup(self):
        height, width, channels = self.observation_space.shape
        self.body = nn.Sequential(
            nn.Conv2d(channels, 4, 3),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.Flatten(),
            nn.Dropout(0.25),
        )
        features = 4 * (height - 2) * (width - 2)
        self.pi = nn.Linear(features, self.action_distribution.num_inputs)
        self.vf = nn.Linear(features, 1)

    def _features(self, batch):
        return self.body(batch["obs"].permute(0, 3, 1, 2) / 255.0)

    def _forward(self, batch, **kwargs):
        return {"action_dist_inputs": self.pi(self._features(batch))}

    def _forward_train(self, batch, **kwargs):
        features = self._features(batch)
        return {"action_dist_inputs": self.pi(features), "embeddings": features}

    def compute_values(self, batch, embeddings=None):
        features = self._features(batch) if embeddings is None else embeddings
        return self.vf(features).squeeze(-1)


class NoisyDense(TorchRLModule):
    """Batch normalisation and dropout behind a dense layer."""

    def setup(self):
        self.body = nn.Sequential(
            nn.Linear(self.obs_size, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Dropout(0.25)
        )
        self.pi = nn.Linear(16, self.action_distribution.num_inputs)
        self.vf = nn.Linear(16, 1)

    def _forward(self, batch, **kwargs):
        features = self.body(batch["obs"].flatten(1))
        return {
            "action_dist_inputs": self.pi(features),
            "vf_preds": self.vf(features).squeeze(-1),
        }


def small_network():
    """A network that knows nothing of this library, with weights of its own."""
    with torch.random.fork_rng([]):
        torch.manual_seed(3)
        return nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))


class TwinSAC(TorchSACModule):
    """A policy and two critics with hidden layers of 5 and 4 units, as SAC's own in a test."""

    def setup(self):
        width = self.action_distribution.noise_width
        self.pi = _chain(self.obs_size, self.action_distribution.num_inputs)
        inputs = self.obs_size + (0 if self.is_discrete else width)
        outputs = width if self.is_discrete else 1
        self.qf = _chain(inputs, outputs)
        self.qf_twin = _chain(inputs, outputs)

    def _forward(self, batch, **kwargs):
        return {"action_dist_inputs": self.pi(batch["obs"])}

    def compute_q_values(self, batch):
        if self.is_discrete:
            return self.qf(batch["obs"]), self.qf_twin(batch["obs"])
        inputs = torch.cat([batch["obs"], batch["actions"]], dim=1)
        return self.qf(inputs).squeeze(-1), self.qf_twin(inputs).squeeze(-1)


def _chain(inputs, outputs):
    return nn.Sequential(
        nn.Linear(inputs, 5), nn.Tanh(), nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, outputs)
    )


class Remembering(TorchRLModule):
    """A dense layer, an LSTM, and two heads, written as in RLlib's example."""

    def setup(self):
        self.cell_size = self.model_config.get("cell_size", 16)
        self.body = nn.Linear(self.obs_size, self.cell_size)
        self.lstm = nn.LSTM(self.cell_size, self.cell_size, batch_first=True)
        self.pi = nn.Linear(self.cell_size, self.action_distribution.num_inputs)
        self.vf = nn.Linear(self.cell_size, 1)

    def get_initial_state(self):
        return {"h": torch.zeros(self.cell_size), "c": torch.zeros(self.cell_size)}

    def _forward(self, batch, **kwargs):
        embeddings, state = self._remembered(batch)
        return {"action_dist_inputs": self.pi(embeddings), "state_out": state}

    def _forward_train(self, batch, **kwargs):
        embeddings, state = self._remembered(batch)
        inputs = self.pi(embeddings)
        return {"action_dist_inputs": inputs, "state_out": state, "embeddings": embeddings}

    def _remembered(self, batch):
        state = batch["state_in"]
        before = tuple(state[name].unsqueeze(0) for name in ("h", "c"))
        embeddings, (h, c) = self.lstm(torch.tanh(self.body(batch["obs"])), before)
        return embeddings, {"h": h.squeeze(0), "c": c.squeeze(0)}

    def compute_values(self, batch, embeddings=None):
        if embeddings is None:
            embeddings, _ = self._remembered(batch)
        return self.vf(embeddings).squeeze(-1)
