"""Evaluation: sampling with another spec, by tickets that anyone may play."""

from trainer.evaluation.evaluator import EvaluationSettings, Evaluator

__all__ = ["EvaluationSettings", "Evaluator"]
