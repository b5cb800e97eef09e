"""Floor 6: what a model attends to, as numbers, as pictures and as one page."""

from .collect import collect_attention
from .maps import AttentionMaps, load_attention_json

__all__ = ["AttentionMaps", "collect_attention", "load_attention_json"]
