"""RLlib's constants for the names of columns: `batch[SampleBatch.REWARDS]`."""

from __future__ import annotations

from typing import Final


class SampleBatchNames:
    """Adds the constants to a batch; the names are those of `trainer.episodes.episode_columns`."""

    OBS: Final = "obs"
    CUR_OBS: Final = "obs"
    NEXT_OBS: Final = "new_obs"
    ACTIONS: Final = "actions"
    REWARDS: Final = "rewards"
    TERMINATEDS: Final = "terminateds"
    TRUNCATEDS: Final = "truncateds"
    INFOS: Final = "infos"
    EPS_ID: Final = "eps_id"
    UNROLL_ID: Final = "unroll_id"
    AGENT_INDEX: Final = "agent_index"
    T: Final = "t"
    VF_PREDS: Final = "vf_preds"
    ACTION_DIST_INPUTS: Final = "action_dist_inputs"
    ACTION_PROB: Final = "action_prob"
    ACTION_LOGP: Final = "action_logp"
    SEQ_LENS: Final = "seq_lens"
