# Copyright 2026 The vanilla_transformer authors. MIT License.
"""The tokens by which the tokenizers of many languages (M2M100, NLLB, mBART, PLBart, SeamlessM4T) know them."""

from difflib import get_close_matches

from transformers import PreTrainedTokenizerBase


def token_of(tokenizer: PreTrainedTokenizerBase, language: str) -> str:
    """Raises: ValueError, for a language that has none: transformers would take a piece of a word for it."""
    known = tokens(tokenizer)
    for token in (language, f"__{language}__"):  # M2M100 has "__en__" for "en"
        if token in known:
            return token
    names = languages(tokenizer)
    near = get_close_matches(language, names, cutoff=0.3) or names[:3]
    raise ValueError(f"the tokenizer knows no language {language!r}, but {len(names)}, such as {', '.join(near)}")


def languages(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    return [name for name in map(name_of, tokens(tokenizer)) if name[:1].isalpha()]


def name_of(token: str) -> str:
    return token.strip("_")


def tokens(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """All that are no pieces of words: a user's own special tokens take the place of the languages among those."""
    codes = getattr(tokenizer, "lang_code_to_token", {}).values()
    return list(dict.fromkeys([*codes, *tokenizer.all_special_tokens, *tokenizer.get_added_vocab()]))
