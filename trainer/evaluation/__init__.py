"""Evaluation: sampling with another spec, by tickets that anyone may play."""

from trainer.evaluation.evaluations import (
    EvaluationSettings,
    Evaluator,
    RunningEvaluation,
    Subject,
    call_evaluation_function,
)

__all__ = [
    "EvaluationSettings",
    "Evaluator",
    "RunningEvaluation",
    "Subject",
    "call_evaluation_function",
]
