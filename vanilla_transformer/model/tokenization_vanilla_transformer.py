# Copyright 2026 The vanilla_transformer authors. MIT License.
"""The tokenizer's class. What it does to a text stands in `tokenizer.json`, so that any process can load it alone."""

from transformers import TokenizersBackend

IGNORED_LABEL = -100


class VanillaTransformerTokenizer(TokenizersBackend):
    """Byte-level BPE that loses nothing, for both languages at once (section 5.1).

    It has no `__init__`, so that transformers loads `tokenizer.json` as it is.
    """

    model_input_names = ["input_ids", "attention_mask"]

    def _decode(self, token_ids, *args, **kwargs):
        """Labels are padded with -100, which is no token: it is left out."""
        if hasattr(token_ids, "tolist"):
            token_ids = token_ids.tolist()
        if isinstance(token_ids, int):
            token_ids = [token_ids]
        return super()._decode([i for i in token_ids if i != IGNORED_LABEL], *args, **kwargs)
