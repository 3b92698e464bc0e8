"""Algorithms: what ties runners, learner, evaluation, metrics and checkpoints together, and one folder for each."""
