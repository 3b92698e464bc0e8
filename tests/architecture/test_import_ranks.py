"""Who may import whom: the ranks of the rooms, and the order of the four packages."""

import sys

import pytest

from tests.architecture.import_statements import all_imports, imports_of
from tests.architecture.source_tree import (
    PACKAGES,
    expect_clean,
    made_tree,
    project_tree,
)

RANKS = {
    0: frozenset(
        {
            "agent_ids",
            "blas",
            "errors",
            "types",
            "seeding",
            "spaces",
            "old_names",
            "own_attributes",
            "name_resolution",
        }
    ),
    1: frozenset({"nn", "metrics", "runtime"}),
    2: frozenset({"episodes", "exploration", "actors", "ray_engine"}),
    3: frozenset({"envs", "modules", "connectors", "replay"}),
    4: frozenset({"env_runners", "learners", "offline"}),
    5: frozenset({"runner_group"}),
    6: frozenset({"config"}),
    7: frozenset({"evaluation"}),
    8: frozenset({"algorithms"}),
    9: frozenset({"tune", "reports"}),
    10: frozenset({"rllib_scripts"}),
    # `rllib_names` is installed from outside; nothing but the next line imports it.
    11: frozenset({"cli", "train", "ray_adapter", "rllib_names"}),
    12: frozenset({""}),  # trainer/__init__.py, which offers what users need
}
"""A room of `trainer` imports rooms of lower ranks and itself, nothing else."""

OPEN_TO_ALL = frozenset({"errors", "types"})
"""Rooms that their own rank may import, too: they hold names only and import nothing of ours."""

TESTING = "testing"
HIGHEST_RANK_FOR_TESTING = 4
"""`trainer/testing` stands beside the ranks: it imports these, and no room imports it."""

PACKAGE_ORDER = {
    "trainer_toolkit": {"trainer_toolkit"},
    "checkpoints": {"checkpoints", "trainer_toolkit"},
    "callbacks": {"callbacks", "checkpoints", "trainer_toolkit"},
    "trainer": {"trainer", "callbacks", "checkpoints", "trainer_toolkit"},
}
"""What each package may import of the four."""

DEPENDENCIES = frozenset({"cloudpickle", "gymnasium", "numpy", "ormsgpack", "platformdirs"})
"""The distributions that we stand on; everything else is optional and needs an exception."""

WITHOUT_ENVS = frozenset({"nn", "metrics", "runtime"})
"""Rooms that know nothing of reinforcement learning."""

WITH_PROCESSES = frozenset({"runtime", "actors", "ray_engine", "testing"})
"""Rooms that may know how processes are made; all others know `trainer.runtime.engine`."""

OF_PROCESSES = (
    *("multiprocessing", "concurrent", "subprocess", "ctypes"),
    *("trainer.runtime.local_engine", "trainer.runtime.process_start"),
)
"""What engines alone deal with: executors, process ids, shared memory, futures."""

ENGINE_EXCEPTIONS = {
    "trainer.algorithms.building -> trainer.runtime.local_engine": (
        "the one place that chooses the engine of an algorithm's runners"
    ),
    "trainer.blas -> ctypes": "functions of NumPy's BLAS have no other door",
    "trainer.nn.kernels -> ctypes": "loads the file in C, which has no Python in it",
    "trainer.cli.seeds -> subprocess": (
        "every seed is a run of the command line of its own, which has its own engine"
    ),
    "trainer.runner_group.repair -> trainer.runtime.process_start": (
        "messages about lost runners name files that hide modules from new processes"
    ),
}
RANK_EXCEPTIONS = {}
DEPENDENCY_EXCEPTIONS = {}


def rank_of(room):
    """The rank of a room of `trainer`; None for a room that has none."""
    for rank, rooms in RANKS.items():
        if room in rooms:
            return rank
    return None


def room_of(module):
    """The room of a dotted name in `trainer`."""
    return ".".join(module.split(".")[1:2])


def rank_problems(tree):
    """Imports inside `trainer` that do not go to a lower rank or the same room."""
    problems = {}
    for found in _imports_between(tree, "trainer"):
        source, target = room_of(found.importer), room_of(found.imported)
        reason = None if source == target else _why_not(source, target)
        if reason is not None:
            problems[found.place] = f"{found.place} (line {found.line}): {reason}"
    return problems


def _why_not(source, target):
    if target == TESTING:
        return "trainer/testing is for tests, no room imports it"
    source_rank = HIGHEST_RANK_FOR_TESTING + 1 if source == TESTING else rank_of(source)
    target_rank = rank_of(target)
    if source_rank is None or target_rank is None:
        room = source if source_rank is None else target
        return f"the room {room!r} has no rank: give it one in RANKS"
    if target_rank < source_rank or (target_rank == source_rank and target in OPEN_TO_ALL):
        return None
    if source == TESTING:
        return f"trainer/testing may import ranks 0 to {HIGHEST_RANK_FOR_TESTING} only"
    return f"rank {source_rank} imports rank {target_rank}; lower ranks only"


def _imports_between(tree, package):
    # Imports for types are judged by test_import_places, which lists each of them.
    return [
        found
        for found in all_imports(tree)
        if not found.is_for_types
        and found.importer.split(".")[0] == package
        and found.imported.split(".")[0] == package
    ]


def package_problems(tree):
    """Imports against the order checkpoints <- callbacks <- trainer."""
    problems = {}
    for found in all_imports(tree):
        source, target = found.importer.split(".")[0], found.imported.split(".")[0]
        if target in PACKAGES and target not in PACKAGE_ORDER[source]:
            problems[found.place] = (
                f"{found.place} (line {found.line}): {source} may import "
                f"{', '.join(sorted(PACKAGE_ORDER[source]))} only"
            )
    return problems


def dependency_problems(tree):
    """Imports of anything but the standard library, our packages and the dependencies."""
    allowed = DEPENDENCIES | set(PACKAGES) | sys.stdlib_module_names
    problems = {}
    for found in all_imports(tree):
        distribution = found.imported.split(".")[0]
        where = f"{found.place} (line {found.line})"
        if distribution not in allowed:
            problems[found.place] = f"{where}: {distribution} is not among the dependencies"
        elif distribution == "gymnasium" and _knows_no_envs(found.importer):
            problems[found.place] = f"{where}: this room knows nothing of reinforcement learning"
    return problems


def _knows_no_envs(module):
    return not module.startswith("trainer.") or room_of(module) in WITHOUT_ENVS


def engine_problems(tree):
    """Imports of what belongs to processes, in rooms of `trainer` that are above engines."""
    return {
        found.place: f"{found.place} (line {found.line}): only engines deal with processes"
        for found in all_imports(tree)
        if found.importer.split(".")[0] == "trainer"
        and room_of(found.importer) not in WITH_PROCESSES
        and any(f"{found.imported}.".startswith(f"{name}.") for name in OF_PROCESSES)
    }


def reached_from(start, tree, *, room):
    """All modules of a room that a module of it imports, itself or through others of the room."""
    reached, to_look_at = {start}, [start]
    while to_look_at:
        importer = to_look_at.pop()
        for found in imports_of(tree[importer], tree):
            inside = found.imported in tree and found.imported.startswith(f"{room}.")
            if inside and found.imported not in reached:
                reached.add(found.imported)
                to_look_at.append(found.imported)
    return reached


def test_playing_with_one_agent_knows_nothing_of_several():
    tree, room = project_tree(), "trainer.env_runners"
    single = reached_from(f"{room}.single_agent_env_runner", tree, room=room)
    several = reached_from(f"{room}.multi_agent_env_runner", tree, room=room)
    assert f"{room}.single_agent_player" in single
    assert not {name for name in single if "multi_agent" in name}
    assert not {name for name in several if "single_agent" in name}
    assert f"{room}.episode_player" in single & several


def test_only_engines_and_actors_deal_with_processes():
    expect_clean(engine_problems(project_tree()), ENGINE_EXCEPTIONS)


@pytest.mark.parametrize(
    "text",
    [
        "from concurrent.futures import Future",
        "import multiprocessing.pool",
        "from trainer.runtime import local_engine",
        "from trainer.runtime.local_engine import LocalPlace",
    ],
)
def test_a_room_that_deals_with_processes_is_found(tmp_path, text):
    files = {
        "trainer/runner_group/runners.py": text,
        "trainer/actors/handles.py": text,
        "trainer/runtime/local_engine.py": "",
    }
    problems = engine_problems(made_tree(tmp_path, files))
    assert [place.split(" -> ")[0] for place in problems] == ["trainer.runner_group.runners"]


def test_rooms_import_lower_ranks_only():
    expect_clean(rank_problems(project_tree()), RANK_EXCEPTIONS)


def test_packages_import_in_one_direction_only():
    expect_clean(package_problems(project_tree()))


def test_nothing_but_the_dependencies_is_imported():
    expect_clean(dependency_problems(project_tree()), DEPENDENCY_EXCEPTIONS)


def test_every_room_has_a_rank():
    rooms = {
        module.room for name, module in project_tree().items() if name.split(".")[0] == "trainer"
    }
    assert {room for room in rooms if rank_of(room) is None} <= {TESTING}


@pytest.mark.parametrize(
    ("path", "text", "place"),
    [
        (
            "trainer/nn/layers.py",
            "from trainer.envs import x",
            "trainer.nn.layers -> trainer.envs",
        ),
        (
            "trainer/env_runners/acting.py",
            "import trainer.learners.learner",
            "trainer.env_runners.acting -> trainer.learners.learner",
        ),
        (
            "trainer/learners/learner.py",
            "def f():\n    from trainer.env_runners.messages import x",
            "trainer.learners.learner -> trainer.env_runners.messages",
        ),
        (
            "trainer/config/algorithm_config.py",
            "from trainer import PPO",
            "trainer.config.algorithm_config -> trainer",
        ),
        (
            "trainer/seeding.py",
            "import trainer.rllib_names",
            "trainer.seeding -> trainer.rllib_names",
        ),
        (
            "trainer/testing/envs.py",
            "import trainer.config",
            "trainer.testing.envs -> trainer.config",
        ),
        ("trainer/envs/made.py", "import trainer.testing", "trainer.envs.made -> trainer.testing"),
        ("trainer/envs/made.py", "from ..config import x", "trainer.envs.made -> trainer.config"),
        ("trainer/cli/main.py", "import trainer.attic", "trainer.cli.main -> trainer.attic"),
    ],
)
def test_an_import_against_the_ranks_is_found(tmp_path, path, text, place):
    assert list(rank_problems(made_tree(tmp_path, {path: text}))) == [place]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("trainer/envs/made.py", "from trainer.nn import x\nimport trainer.envs.env_factory"),
        ("trainer/seeding.py", "from trainer.types import Array"),
        ("trainer/testing/envs.py", "import trainer.env_runners"),
        ("trainer/__init__.py", "import trainer.cli"),
    ],
)
def test_an_import_along_the_ranks_is_allowed(tmp_path, path, text):
    assert not rank_problems(made_tree(tmp_path, {path: text}))


@pytest.mark.parametrize(
    ("package", "imported"),
    [("checkpoints", "callbacks"), ("checkpoints", "trainer"), ("callbacks", "trainer")],
)
def test_an_import_against_the_order_of_packages_is_found(tmp_path, package, imported):
    tree = made_tree(tmp_path, {f"{package}/x.py": f"from {imported}.errors import y"})
    assert list(package_problems(tree)) == [f"{package}.x -> {imported}.errors"]


def test_an_import_of_something_else_is_found(tmp_path):
    files = {
        "trainer/envs/made.py": "import gymnasium, json\nimport torch.nn\n",
        "trainer/nn/layers.py": "import gymnasium\n",
        "callbacks/chain.py": "from gymnasium import spaces\nfrom tests import conftest\n",
    }
    assert list(dependency_problems(made_tree(tmp_path, files))) == [
        "callbacks.chain -> gymnasium",
        "callbacks.chain -> tests",
        "trainer.envs.made -> torch.nn",
        "trainer.nn.layers -> gymnasium",
    ]
