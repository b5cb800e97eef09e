"""Floor 4: how good translations are."""

from .metrics import Score, TranslationMetric, exact_match, translation_scores

__all__ = ["Score", "TranslationMetric", "exact_match", "translation_scores"]
