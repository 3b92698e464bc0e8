"""APPO's loss in Torch, for those who write one of their own."""

from __future__ import annotations

from trainer.algorithms.appo.appo import APPOLearner
from trainer.algorithms.ppo import PPOTorchLearner


class APPOTorchLearner(PPOTorchLearner, APPOLearner):
    """APPO and IMPALA whose loss is computed in Torch; autograd makes the gradients.

        config.training(learner_class=APPOTorchLearner)

    Everything is written as for `PPOTorchLearner`. V-trace's targets and weights are numbers that
    no gradient flows through: they are computed once per update, as by `APPOLearner`.
    """
