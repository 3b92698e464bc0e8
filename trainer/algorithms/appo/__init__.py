"""PPO and actor-critic on samples that are older than the policy: APPO and IMPALA."""

from trainer.algorithms.appo.appo import APPO, IMPALA, APPOConfig, APPOLearner, IMPALAConfig
from trainer.algorithms.appo.torch_learner import APPOTorchLearner

__all__ = ["APPO", "IMPALA", "APPOConfig", "APPOLearner", "APPOTorchLearner", "IMPALAConfig"]
