"""Between envs, networks and learners: observations in, actions out, advantages from rewards."""

from trainer.connectors.advantages import (
    AdvantageEstimate,
    Chunks,
    compute_advantages,
    discounted_returns,
    estimate_advantages,
    explained_variance,
    generalized_advantages,
    standardize,
)
from trainer.connectors.encoding import (
    ActionDecoder,
    Normalization,
    NormalizationSettings,
    NormalizationStatistics,
    ObservationEncoder,
    ObservationNormalizer,
    RewardTransform,
    RunningMoments,
    before_decoding,
)
from trainer.connectors.learner_pieces import (
    ComputeReturnsToGo,
    LearnerPipeline,
    made_learner_pipeline,
)
from trainer.connectors.pieces import (
    ConnectedLayer,
    ConnectorFactories,
    ConnectorPipelineV2,
    ConnectorV2,
    MeanStdFilter,
    SingleAgentObservationPreprocessor,
)
from trainer.connectors.previous_steps import PreviousSteps
from trainer.connectors.ready_made_pieces import (
    FlattenObservations,
    FrameStacking,
    MultiAgentObservationPreprocessor,
    PrevActionsPrevRewards,
)
from trainer.connectors.sample_batch import SampleBatch
