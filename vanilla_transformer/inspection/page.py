"""Attention maps as one HTML page that needs no network: tabs, layers, heads, hovering, beam candidates."""

import base64
import json
from collections.abc import Sequence
from importlib import resources
from typing import Any

import numpy as np

from .maps import AttentionMaps

TEMPLATE = resources.files(__package__) / "page.html"


def attention_page(candidates: Sequence[AttentionMaps]) -> str:
    """The page of one source and its translations, best first; `collect_attention` finds one of them.

    Weights are rounded to 1/255: a page of 40 tokens and four translations by the base model stays below 1 MB.
    """
    if not candidates:
        raise ValueError("got no attention maps: expected those of at least one translation")
    first = candidates[0]
    if any(other.source_tokens != first.source_tokens for other in candidates):
        raise ValueError("got attention maps of different sources: a page shows the translations of one")
    data = {
        "model": first.model,
        "source": first.source or "".join(first.source_tokens),
        "source_tokens": first.source_tokens,
        "encoder": packed(first.encoder, causal=False),
        "candidates": [
            {
                "target": maps.target or "".join(maps.next_tokens),
                "score": maps.score,
                "target_tokens": maps.target_tokens,
                "next_tokens": maps.next_tokens,
                "decoder": packed(maps.decoder, causal=True),
                "cross": packed(maps.cross, causal=False),
            }
            for maps in candidates
        ],
    }
    return TEMPLATE.read_text(encoding="utf-8").replace("{{data}}", embedded(data))


def packed(weights: np.ndarray | None, causal: bool) -> dict[str, Any] | None:
    """(L, H, queries, keys) as bytes; of causal rows, the part that is not always zero."""
    if weights is None:
        return None
    layers, heads, rows, columns = weights.shape
    future = np.triu_indices(rows, 1, columns)
    causal = causal and not weights[..., future[0], future[1]].any()
    numbers = np.rint(weights * 255).astype(np.uint8)
    if causal:
        numbers = numbers[..., np.tril(np.ones((rows, columns), bool))]
    text = base64.b64encode(numbers.tobytes()).decode("ascii")
    return {"layers": layers, "heads": heads, "rows": rows, "columns": columns, "causal": causal, "weights": text}


def embedded(data: Any) -> str:
    """JSON that may stand in a <script>: nothing in it ends the element, or a line of old JavaScript."""
    text = json.dumps(data)  # all that is not ASCII, U+2028 too, is escaped
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
