"""The languages of a model that knows many (M2M100, NLLB, mBART, T5): which one it reads, and which one it says."""

from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from ..model.language_tokens import languages, name_of, token_of
from .alignments import start_token

logger = logging.get_logger(__name__)


def set_languages(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, src_lang: str | None, tgt_lang: str | None
) -> None:
    """The tokenizer marks sources as `src_lang`; the model begins with the token of `tgt_lang`. Without them, both
    stay as they were saved, but for the tokenizer's language of targets, which is the one that the model says. T5 and
    Marian are told by what each source begins with: a warning says so.

    Raises:
        ValueError: for languages that the tokenizer has no token for, or that are told otherwise, and if a model that
            has to be told which one to say is not.
    """
    if not (hasattr(tokenizer, "src_lang") and languages(tokenizer)):  # FSMT's only knows what its one pair is called
        told = beginning(model, tokenizer)
        if src_lang or tgt_lang:
            raise ValueError(
                f"got the languages {src_lang} and {tgt_lang}, but a {type(tokenizer).__name__} knows none: "
                + (told or "the model translates from one to one")
                + ", so leave --src-lang and --tgt-lang out"
            )
        if told:
            logger.warning(f"{told}, as texts are read as they are")
        return
    if src_lang:
        tokenizer.src_lang = name_of(token_of(tokenizer, src_lang))
    if tgt_lang:
        model.generation_config.forced_bos_token_id = tokenizer.convert_tokens_to_ids(token_of(tokenizer, tgt_lang))
    first = model.generation_config.forced_bos_token_id
    said = language_said(tokenizer, start_token(model) if first is None else first)  # the former by mBART of one pair
    if said:
        tokenizer.tgt_lang = said  # of texts that are given as translations; what was saved with it may be another one
    elif first is None:
        raise ValueError(
            f"this model translates between many languages, from {tokenizer.src_lang} as it was saved, and was not "
            f"told into which: name them, such as --src-lang {tokenizer.src_lang} --tgt-lang {languages(tokenizer)[0]}"
        )


def beginning(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> str | None:
    """How a source has to begin, for a model that is told its languages in this way."""
    if codes := getattr(tokenizer, "supported_language_codes", None):  # Marian, such as opus-mt-en-ROMANCE
        return f"sources say which language is wanted by what they begin with, such as {codes[0]!r}: begin each so"
    tasks = getattr(model.config, "task_specific_params", None) or {}
    for name, task in tasks.items():
        if name.startswith("translation") and "prefix" in task:  # T5
            return (
                f"sources begin with a task, such as {task['prefix']!r}: begin each so, or use pipeline({name!r}), "
                "which does it"
            )
    return None


def language_said(tokenizer: PreTrainedTokenizerBase, token: int | None) -> str | None:
    """The language that a translation is in which begins with this token, if it is that of one."""
    name = None if token is None else name_of(tokenizer.convert_ids_to_tokens(token))
    return name if name in languages(tokenizer) else None
