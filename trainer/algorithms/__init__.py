"""Algorithms: what ties runners, learner, evaluation, metrics and checkpoints together.

Each algorithm has a folder of its own.
"""
