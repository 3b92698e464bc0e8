"""The command line: `local-trainer train | resume | evaluate | inspect`."""

from trainer.cli.main import main

__all__ = ["main"]
