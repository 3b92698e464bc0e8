"""What the tests of a file read is gone after them."""

import pytest

from tests.architecture.source_tree import project_tree


@pytest.fixture(autouse=True, scope="module")
def syntax_trees_are_forgotten():
    yield
    project_tree.cache_clear()
