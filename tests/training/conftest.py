import pytest
from tiny import SMALL

from vanilla_transformer.training.recipe import load_recipe
from vanilla_transformer.training.train import train


@pytest.fixture
def small_recipe():
    return lambda *settings: load_recipe("copy", [*SMALL, *settings])


@pytest.fixture
def finished(small_recipe, tmp_path):
    """A run that was never interrupted."""
    return train(small_recipe(), tmp_path / "whole")
