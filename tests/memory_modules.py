"""A network with memory in NumPy that several tests use."""

import numpy as np

from trainer.modules import StatefulRLModule
from trainer.nn import matmul_rows

KEPT = 0.8


_SMALL = {"fcnet_hiddens": [8], "lstm_cell_size": 8, "max_seq_len": 5}
MODELS = {
    "gru": {**_SMALL, "use_gru": True, "vf_share_layers": True},
    "lstm": {
        **_SMALL,
        "use_lstm": True,
        "lstm_use_prev_action": True,
        "lstm_use_prev_reward": True,
    },
}
"""The ready-made ones; "lstm" has two towers."""


class RunningMean(StatefulRLModule):
    """Linear in a running mean of the observations."""

    def parameter_shapes(self):
        return {
            "pi": (self.obs_size, self.action_distribution.num_inputs),
            "vf/0": (self.obs_size,),
        }

    def initialize(self, rng):
        for view in self.parameters.views.values():
            view[...] = 0.5 * rng.standard_normal(view.shape)

    def get_initial_state(self):
        return {"mean": np.zeros(self.obs_size, np.float32)}

    def forward_step(self, batch):
        mean = KEPT * batch["state_in"]["mean"] + (1.0 - KEPT) * batch["obs"]
        inputs = matmul_rows(mean, self.parameters.views["pi"])
        return {"action_dist_inputs": inputs, "state_out": {"mean": mean}}

    def forward_sequences(self, batch):
        mean, means = batch["state_in"]["mean"], []
        for step in range(batch["obs"].shape[1]):
            mean = KEPT * mean + (1.0 - KEPT) * batch["obs"][:, step]
            means.append(mean)
        self._means = np.stack(means, axis=1)
        w = self.parameters.views
        return {"action_dist_inputs": self._means @ w["pi"], "vf_preds": self._means @ w["vf/0"]}

    def backward_sequences(self, *, d_action_dist_inputs, d_vf_preds):
        means, g = self._means.reshape(-1, self.obs_size), self.gradients.views
        g["pi"][:] = means.T @ d_action_dist_inputs.reshape(len(means), -1)
        g["vf/0"][:] = means.T @ d_vf_preds.reshape(-1)
