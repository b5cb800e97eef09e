"""Learning the joint vocabulary of both languages (section 5.1: byte-pair encoding, shared by source and target)."""

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging

from ..model.tokenization_vanilla_transformer import VanillaTransformerTokenizer

logger = logging.get_logger(__name__)

SPECIAL_TOKENS = ("<pad>", "<s>", "</s>")  # ids 0, 1 and 2, as the model's configuration has them
MASK = "<mask>"
# What is put around a text: translators and readers learn where it ends, a causal model begins with <s> and goes on.
Template = Literal["translation", "causal", "masked"]
TEMPLATES: dict[Template, str] = {"translation": "{} </s>", "causal": "<s> {}", "masked": "<s> {} </s>"}
ALPHABET = pre_tokenizers.ByteLevel.alphabet()  # one character for each of the 256 bytes, hence no <unk>


def learn_tokenizer(
    texts: Iterable[str],
    vocab_size: int,
    *,
    template: Template = "translation",
    model_max_length: int = 512,
    show_progress: bool = True,
) -> VanillaTransformerTokenizer:
    """A byte-level BPE of `vocab_size` tokens: `decode(encode(x)) == NFC(x)` for every text.

    Args:
        texts: sentences of both languages.
        vocab_size: tokens in all, the 3 special ones and the 256 bytes included.
        template: what is put around a text, see `TEMPLATES`; "masked" has a token <mask> as well.
        model_max_length: longest sequence in training, in tokens; a figure for the user, nothing is cut to it.

    Raises:
        ValueError: if the vocabulary is smaller than its alphabet.
    """
    check_vocab_size(vocab_size, template)
    mask = mask_of(template)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[*SPECIAL_TOKENS, *mask],
        initial_alphabet=ALPHABET,
        show_progress=show_progress,
    )
    lines = 0

    def counted():
        nonlocal lines
        for lines, text in enumerate(texts, start=1):  # noqa: B007
            yield text

    tokenizer.train_from_iterator(counted(), trainer)
    if not lines:
        raise ValueError("got no text to learn a vocabulary from: expected files with sentences in both languages")
    around = TEMPLATES[template]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=around.format("$A"),
        pair=f"{around.format('$A')} {around.format('$B')}",
        special_tokens=[(token, SPECIAL_TOKENS.index(token)) for token in ("<s>", "</s>")],
    )
    if tokenizer.get_vocab_size() < vocab_size:
        logger.warning(
            f"the text yields only {tokenizer.get_vocab_size()} tokens, {vocab_size} were asked for: every word of it "
            "is a token already"
        )
    return VanillaTransformerTokenizer(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        mask_token=mask[0] if mask else None,
        padding_side="left" if template == "causal" else "right",  # text goes on at the right
        model_max_length=model_max_length,
        # "</s>" in a user's text is text. Only where a text must be able to say <mask>, it can say the others too.
        split_special_tokens=not mask,
        clean_up_tokenization_spaces=False,
    )


def mask_of(template: Template) -> list[str]:
    return [MASK] if template == "masked" else []


def check_vocab_size(vocab_size: int, template: Template) -> None:
    """Raise `ValueError` for a vocabulary that is smaller than its alphabet."""
    special = len(SPECIAL_TOKENS) + len(mask_of(template))
    if vocab_size < special + len(ALPHABET):
        raise ValueError(
            f"got vocab_size={vocab_size}, expected at least {special + len(ALPHABET)}: {len(ALPHABET)} bytes and "
            f"{special} special tokens"
        )


def special_ids(tokenizer: PreTrainedTokenizerBase, template: Template) -> dict[str, int | None]:
    """What a model's configuration says of padding, beginning and end, as the tokenizer has them."""
    first, last = tokenizer.bos_token_id, tokenizer.eos_token_id
    if template == "masked" and first is None:  # BERT's ends have names of their own
        first, last = tokenizer.cls_token_id, tokenizer.sep_token_id
    return {"pad_token_id": tokenizer.pad_token_id, "bos_token_id": first, "eos_token_id": last}


def check_template(tokenizer: PreTrainedTokenizerBase, template: Template) -> None:
    """Raise `ValueError` for a tokenizer, of whatever origin, that puts other tokens around a text than `template`
    does, or lacks one that a training needs."""
    pad, first, last = special_ids(tokenizer, template).values()
    needed = {"pad_token": pad}
    if template == "masked":
        needed["mask_token"] = tokenizer.mask_token_id
    needed["eos_token"] = last
    ends = {"<s>": first, "</s>": last}
    missing = [name for name, token in needed.items() if token is None]
    if missing:
        raise ValueError(f"the tokenizer has no {' and no '.join(missing)}: give another one, or have one learned")
    if template == "causal" and pad == last:
        raise ValueError(
            f"the tokenizer pads with {tokenizer.pad_token}, its end of a text, which is never learned where padding "
            "is not: give it a pad_token of its own, or have one learned"
        )
    for side in ("text", "text_target"):  # a tokenizer may have one vocabulary for each
        bare = tokenizer(**{side: "a"}, add_special_tokens=False)["input_ids"]
        found = tokenizer(**{side: "a"})["input_ids"]
        words = TEMPLATES[template].split()
        if found != [token for word in words for token in (bare if word == "{}" else [ends[word]])]:
            raise ValueError(
                f"the tokenizer makes {' '.join(map(str, tokenizer.convert_ids_to_tokens(found)))!r} of the text 'a', "
                f"expected {TEMPLATES[template].format('a')!r} for a {template} model: give another one, or have one "
                "learned (leave tokenizer.path out)"
            )


SAVED = {"tokenizer.json", "tokenizer_config.json"}  # what a tokenizer leaves in its folder


def check_new_folder(folder: Path, *, overwrite: bool = False) -> None:
    """Raise `FileExistsError`, before any work, for a folder that has content, unless `overwrite` is set and there is
    nothing but a tokenizer in it: a model would have another one than it was trained with."""
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder} is a file: name a folder")
    if not folder.is_dir() or not (content := {path.name for path in folder.iterdir()}):
        return
    if not overwrite:
        raise FileExistsError(f"{folder} exists: replace it with --overwrite, or choose another folder with -o")
    if more := sorted(content - SAVED):
        raise FileExistsError(
            f"{folder} holds more than a tokenizer ({', '.join(more)}): choose another folder with -o"
        )
