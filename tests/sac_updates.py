"""A small SAC learner and rows for it to learn from."""

import numpy as np
from gymnasium import spaces

from trainer.algorithms.sac.sac import SACConfig, SACLearner, SACSettings
from trainer.learners import ReplayBatch
from trainer.modules import RLModuleSpec, SACModule

OBSERVATIONS = spaces.Box(-1.0, 1.0, (3,))
BOX = spaces.Box(-2.0, 2.0, (2,))
CHOICE = spaces.Discrete(3)
MODEL = {"fcnet_hiddens": [5, 4], "fcnet_activation": "tanh"}
NUM_ROWS = 7


def sac_learner(
    actions=BOX, *, module_class=SACModule, observations=OBSERVATIONS, model=MODEL, **settings
):
    config = SACConfig().training(**{"gamma": 0.5, "train_batch_size": 16, **settings})
    return SACLearner(
        module_spec=RLModuleSpec(module_class, observations, actions, model),
        settings=SACSettings.from_config(config, lr=config.critic_lr),
        root_seed=3,
    )


def replayed_rows(actions=BOX, *, dtype=np.float32):
    """Random rows, of which the last one ends its episode."""
    rng = np.random.default_rng(8)
    chosen = np.tanh(rng.standard_normal((NUM_ROWS, 2))).astype(dtype)
    if isinstance(actions, spaces.Discrete):
        chosen = rng.integers(0, 3, NUM_ROWS)
    return ReplayBatch(
        obs=rng.standard_normal((NUM_ROWS, 3)).astype(dtype),
        actions=chosen,
        rewards=rng.normal(0, 2, NUM_ROWS).astype(dtype),
        next_obs=rng.standard_normal((NUM_ROWS, 3)).astype(dtype),
        discounts=np.array([0.5] * (NUM_ROWS - 1) + [0.0], dtype),
        weights=rng.random(NUM_ROWS).astype(dtype),
    )
