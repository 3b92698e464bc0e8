"""The code blocks of RLlib's pages that run through Tune, with nothing but their imports changed.

(a) is the source of the page "Advanced Python APIs", (b) the page of Ray 2.10. A comma that both
lack behind `with_resources(…)` is added: without it they are no Python.
"""

from tests.document_blocks_advanced import NEXT_TASK, TASKS_BY_A_CALLBACK

_LOOP = (
    NEXT_TASK
    + """
num_gpus = 0
num_workers = 2

ray.init()
tune.Tuner(
    tune.with_resources(NAME, resources=tune.PlacementGroupFactory(
        [{"CPU": 1}, {"GPU": num_gpus}] + [{"CPU": 1}] * num_workers
    ),),
    param_space={
        "num_gpus": num_gpus,
        "num_workers": num_workers,
    },
).fit()
"""
)

FUNCTION_WITH_REPORTER = """\
from trainer import actors as ray
from trainer import tune
from trainer import PPO

def train(config, reporter):
    algo = PPO(config=config, env=YourEnv)
    while True:
        result = algo.train()
        reporter(**result)
""" + _LOOP.replace("NAME", "train")
"""In (a)."""

FUNCTION_THAT_REPORTS = """\
from trainer import actors as ray
from trainer import train, tune
from trainer import PPO

def train_fn(config):
    algo = PPO(config=config, env=YourEnv)
    while True:
        result = algo.train()
        train.report(result)
""" + _LOOP.replace("NAME", "train_fn")
"""In (b)."""

BY_NAME_WITH_CALLBACKS = (
    """\
from trainer import actors as ray
from trainer import tune
"""
    + TASKS_BY_A_CALLBACK.replace("from trainer", "from callbacks")
    + """
ray.init()
tune.Tuner(
    "PPO",
    param_space={
        "env": YourEnv,
        "callbacks": MyCallbacks,
    },
).fit()
"""
)
"""In (a) and (b)."""
