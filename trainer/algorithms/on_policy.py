"""What algorithms that learn from each sample once share."""

from __future__ import annotations

from trainer.algorithms.algorithm import Algorithm
from trainer.algorithms.building import batch_listener
from trainer.learners import EpisodeLearner, LearnerGroup
from trainer.runner_group import GroupSample


class OnPolicyAlgorithm(Algorithm):
    """Samples with the current weights, learns from that sample alone, and samples again."""

    learners: LearnerGroup[EpisodeLearner]

    def training_step(self) -> None:
        """Samples one train batch and makes one update from it."""
        self.learn(self.sample_env_steps(self.config.total_train_batch_size))

    def learn(self, sample: GroupSample) -> None:
        """Makes an update from sampled episodes and hands the new weights to the runners."""
        result = self._iteration
        before = self.counters.num_env_steps_sampled - sample.num_env_steps
        with result.time("learner_update_timer"):
            metrics = self.learners.update(
                self.trained(self.chunks_of(sample)),
                num_env_steps_sampled_before=before,
                on_batch=batch_listener(self.callbacks),
            )
        self.counters.num_env_steps_trained += sample.num_env_steps
        result.add_update(metrics, num_env_steps=sample.num_env_steps)
        with result.time("synch_weights"):
            self._send_weights()
