"""The languages of a model that knows many (M2M100, NLLB, mBART, T5): which one it reads, and which one it says."""

from difflib import get_close_matches

from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from .alignments import start_token

logger = logging.get_logger(__name__)


def set_languages(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, src_lang: str | None, tgt_lang: str | None
) -> None:
    """The tokenizer marks sources as `src_lang`; the model begins with the token of `tgt_lang`. Without them, both
    stay as they were saved. T5 is told in words, by what each source begins with: a warning says so.

    Raises:
        ValueError: for languages that the tokenizer has no token for, and if a model that has to be told which one to
            say is not.
    """
    if not (hasattr(tokenizer, "src_lang") and languages(tokenizer)):  # FSMT's only knows what its one pair is called
        if src_lang or tgt_lang:
            raise ValueError(
                f"got the languages {src_lang} and {tgt_lang}, but a {type(tokenizer).__name__} knows none: the model "
                "translates from one to one, so leave --src-lang and --tgt-lang out"
            )
        tasks = getattr(model.config, "task_specific_params", None) or {}
        for name, task in tasks.items():
            if name.startswith("translation") and "prefix" in task:
                logger.warning(
                    f"this model was trained on sources that begin with a task, such as {task['prefix']!r}, and texts "
                    f"are read as they are: begin each of them so, or use pipeline({name!r}), which does it"
                )
                break
        return
    if src_lang:
        token_of(tokenizer, src_lang)
        tokenizer.src_lang = src_lang
    if tgt_lang:
        model.generation_config.forced_bos_token_id = tokenizer.convert_tokens_to_ids(token_of(tokenizer, tgt_lang))
        tokenizer.tgt_lang = tgt_lang
    begins = says_language(tokenizer, start_token(model))  # as mBART of one pair does
    if model.generation_config.forced_bos_token_id is None and not begins:
        raise ValueError(
            f"this model translates between many languages, from {tokenizer.src_lang} as it was saved, and was not "
            f"told into which: name them, such as --src-lang {tokenizer.src_lang} --tgt-lang {languages(tokenizer)[0]}"
        )


def says_language(tokenizer: PreTrainedTokenizerBase, token: int | None) -> bool:
    return token is not None and tokenizer.convert_ids_to_tokens(token) in languages(tokenizer)


def token_of(tokenizer: PreTrainedTokenizerBase, language: str) -> str:
    token = getattr(tokenizer, "lang_code_to_token", {}).get(language, language)  # M2M100 has "__en__" for "en"
    if token not in tokenizer.all_special_tokens:
        known = languages(tokenizer)
        near = get_close_matches(language, known, cutoff=0.3) or known[:3]
        raise ValueError(f"the tokenizer knows no language {language!r}, but {len(known)}, such as {', '.join(near)}")
    return token


def languages(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    codes = list(getattr(tokenizer, "lang_code_to_token", {}))
    return codes or [token for token in tokenizer.all_special_tokens if token[:1].isalpha()]
