"""The table of Ray's names: what it says is here is here, and the page of imports says the same."""

import ast
import re
from pathlib import Path

import pytest

import trainer
from trainer.name_resolution import PROGRAM, imported, imported_module
from trainer.old_names import OLD_NAMES
from trainer.rllib_names import torch_names
from trainer.rllib_scripts.names_of_ray import Home, home, home_of_module, modules, public_names

PAGE = Path(__file__).parents[2] / "docs" / "coming-from-rllib.md"


OURS = frozenset(
    {
        *("ActionChoice", "AgentIndicator", "AimLogger", "AlgorithmStoppedError"),
        *("BestCheckpoint", "CQLLearner", "CSVLogger", "CallbackError", "CheckpointError"),
        *("CommonReward",),
        *("ConfigError", "DebuggerError", "EarlyStopping", "EnvContractError", "EnvCreationError"),
        *("EpisodeError", "EpisodeIndexError", "EpisodeRecorder", "EvaluationError"),
        *("FrozenConfigError", "JSONLinesLogger", "MLflowLogger", "Matchups", "MetricsError"),
        *("ModuleError", "NonFiniteError", "NonFiniteGuard", "PGLearner", "PadObservations"),
        *("PeriodicCheckpoint", "ProgressPrinter", "RandomRLModule", "RemoteError", "ResultDict"),
        *("ResultLogger", "ResultSink", "RunnerError", "RunnerFailedError", "RunnerLostError"),
        *("SerializationError", "StateDependentNoise", "StatefulEnv", "StatefulRLModule"),
        *("TD3Learner", "TaskError", "TaskLadder", "TensorBoardLogger", "TorchSACModule"),
        *(
            "TrackerLogger",
            "TrackerService",
            "TrackioLogger",
            "TrainedPolicy",
            "TrainerError",
            "TrainerDeprecationWarning",
        ),
        *("UnknownModuleError", "UnknownOutputError", "UnknownSettingError", "VideoRecorder"),
        *(
            "WandbLogger",
            "actors",
            "compute_advantages",
            "export_onnx",
            "export_policy",
            "export_torch",
        ),
        *("SB3Policy", "load_sb3_policy"),
        *("latest_checkpoint", "load_episode", "make_replay_buffer", "uniforms_per_row"),
    }
)
"""What `trainer` offers and RLlib does not, or under another name with another meaning."""


def not_found():
    """Names that the table says are here and that cannot be imported from there."""
    missing = []
    for module, places in modules().items():
        for key, place in places.items():
            try:
                if key.startswith("*"):
                    assert public_names(key[1:])
                elif ":" in place:
                    imported(place, source=PROGRAM, place=module)
                else:
                    imported_module(place, source=PROGRAM, place=module)
            except ImportError:
                missing.append((module, key))
    return missing


@pytest.fixture
def rows():
    """The table, to which a test may add."""
    before = list(OLD_NAMES.homes)
    yield OLD_NAMES.homes
    OLD_NAMES.homes[:] = before
    modules.cache_clear()


def test_every_name_that_is_said_to_be_here_can_be_imported():
    assert len(modules()) > 80
    assert not not_found()


def test_a_name_that_is_not_here_is_found(rows):
    rows += [("ray.rllib.wrong", "trainer", "PPO Nothing"), ("ray.more", "trainer.nowhere", "*")]
    modules.cache_clear()
    assert not_found() == [("ray.rllib.wrong", "Nothing"), ("ray.more", "*trainer.nowhere")]


def test_what_is_not_here_is_said_to_be_here_nowhere():
    for table in (OLD_NAMES.not_here, OLD_NAMES.other_ways):
        for dotted in table:
            module, _, name = dotted.rpartition(".")
            assert name not in modules().get(module, {}), dotted
    assert not OLD_NAMES.not_here.keys() & OLD_NAMES.other_ways.keys()


def test_every_name_of_rllib_that_the_package_offers_has_a_home():
    listed = set()
    for places in modules().values():
        for key, place in places.items():
            listed |= public_names(key[1:]) if key[0] == "*" else {place.partition(":")[2]}
    assert set(trainer.__all__) - listed == OURS


def test_all_that_torch_modules_import_has_a_home():
    source = Path(torch_names.__file__).read_text("utf-8")
    names = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.ImportFrom):
            names |= {each.asname for each in node.names if each.asname}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
        names.add(getattr(node, "name", ""))
    public = {name for name in names if name and not name.startswith("_")}
    listed = {key for places in modules().values() for key in places}
    of_typing = {"EpisodeType", "ModuleID", "NetworkType", "TensorType"}
    assert public - listed - of_typing == {"OLD_ACTION_DIST_LOGITS_KEY"}


@pytest.mark.parametrize(
    ("module", "name", "expected"),
    [
        ("ray.rllib.algorithms.ppo", "PPOConfig", Home("trainer:PPOConfig")),
        ("ray.tune", "Tuner", Home("trainer.tune:Tuner")),
        ("ray.rllib.utils.typing", "AgentID", Home("typing:Any")),
        ("ray.air", "session", Home("trainer.train")),
        ("ray", "tune", Home(is_module=True)),
    ],
)
def test_known_answers(module, name, expected):
    assert home(module, name) == expected
    assert home(module, name).is_here


@pytest.mark.parametrize(
    ("module", "name", "told", "has_other"),
    [
        ("ray.rllib.algorithms.a3c", "A3CConfig", "PPO solves such tasks", False),
        ("ray.rllib.algorithms.iql", "IQLConfig", "BC, MARWIL and CQL", False),
        ("ray.tune.schedulers", "PB2", "PopulationBasedTraining", True),
        ("ray.rllib.models.catalog", "ModelCatalog", "TorchRLModule", False),
        ("ray.rllib.utils.numpy", "fc", "NumPy", True),
        ("ray.rllib.algorithms.ppo", "PPOConfg", "Did you mean 'PPOConfig'?", False),
    ],
)
def test_what_is_not_here_is_told_why(module, name, told, has_other):
    found = home(module, name)
    assert not found.is_here
    assert told in found.advice
    assert found.has_other is has_other


def test_a_module_of_which_nothing_is_known_is_told_so():
    found = home_of_module("ray.rllib.nowhere")
    assert not found.is_here
    assert found.advice == "nothing here has this name"


# ---- the page


def page_rows():
    """The rows of the table of imports: names of Ray (module, name), and the cell beside them."""
    text = PAGE.read_text("utf-8").partition("## Imports")[2].partition("\n## ")[0]
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) >= 4 and "`" in line:
            yield cells[1], cells[2]


def names_in(cell):
    """Pairs (module, name) of a cell such as "`ray.a.b`: `X`, `Y`; `ray.c.Z`, `…d.E`"."""
    module, before = "", ""
    for word in re.findall(r"`([^`]+)`", cell):
        dotted = word.removeprefix("from ").replace(" import ", ".").rstrip("()")
        if dotted.startswith("…"):  # a sibling of the module before
            dotted = f"{before.rpartition('.')[0]}.{dotted[1:]}"
        if dotted.startswith("ray."):
            module, _, name = dotted.removesuffix(".*").rpartition(".")
            if name[:1].isupper() or module == "ray":
                yield module, name
            else:
                module = f"{module}.{name}"
            before = module
        elif module and re.fullmatch(r"\w+", dotted):
            yield module, dotted


def answered_inside(module, name):
    """Whether a name is here in a module of Ray or in one inside of it."""
    inside = [key for key in modules() if f"{key}.".startswith(f"{module}.")]
    return home(module, name).is_here or any(name in modules()[key] for key in inside)


def test_the_page_names_nothing_that_the_table_does_not_have():
    pairs = [pair for cell, _ in page_rows() for pair in names_in(cell)]
    assert len(pairs) > 50
    assert [pair for pair in pairs if not answered_inside(*pair)] == []


def test_every_module_of_the_table_stands_on_the_page_or_under_one_that_does():
    rows = [cell for cell, _ in page_rows()]
    named = {
        word.removesuffix(".*") for word in re.findall(r"ray(?:\.\w+)+(?:\.\*)?", "".join(rows))
    }
    for module, name in [pair for cell in rows for pair in names_in(cell)]:
        named |= {module, f"{module}.{name}"}
    named.discard("ray")
    left_out = [
        module
        for module in modules()
        if module != "ray" and not any(f"{module}.".startswith(f"{each}.") for each in named)
    ]
    assert left_out == []
