"""The command line `local-trainer`: train, resume, evaluate; inspect, verify, diff, export."""

from trainer.cli.main import main

__all__ = ["main"]
