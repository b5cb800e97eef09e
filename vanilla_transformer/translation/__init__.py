"""Floor 3: text in, text out."""

from .translate import Translation, Translator, load_translator

__all__ = ["Translation", "Translator", "load_translator"]
