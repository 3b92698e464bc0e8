"""`rllib-check`: what becomes of scripts written for RLlib, and running one of them here."""

from __future__ import annotations

import argparse
import runpy
import sys

from trainer.rllib_scripts.import_hook import ray_answered


def rllib_check(arguments: argparse.Namespace) -> int:
    with ray_answered():
        sys.argv = [arguments.scripts[0], *arguments.words_of_script]
        runpy.run_path(arguments.scripts[0], run_name="__main__")
    return 0
