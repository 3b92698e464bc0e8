"""Metrics: logging, exact merging, statistics of episodes, and the result of `train()`."""

from trainer.metrics.episode_statistics import AgentRecord, EpisodeRecord, EpisodeStatistics
from trainer.metrics.logger import MetricsLogger
from trainer.metrics.result import ResultDict, comparable
from trainer.metrics.statistic import Delta
