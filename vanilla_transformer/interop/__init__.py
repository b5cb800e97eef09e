"""Floor 2: models of other libraries in and out. Imports from `model` only."""

from .convert import convert
from .marian import from_marian, to_marian

__all__ = ["convert", "from_marian", "to_marian"]
