"""Evaluation: sampling with another spec, by tickets that anyone may play."""

from trainer.evaluation.evaluations import Subject

__all__ = ["Subject"]
