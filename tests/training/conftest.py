import pytest
from tiny import SMALL

from vanilla_transformer.training.recipe import load_recipe


@pytest.fixture
def small_recipe():
    return lambda *settings: load_recipe("copy", [*SMALL, *settings])
