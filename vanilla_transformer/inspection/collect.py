"""From a model and a sentence to attention maps."""

from collections.abc import Sequence
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..model.decoding import position_limit
from ..translation import Translator
from ..translation.alignments import pieces, read_again, stacked, start_token
from .maps import KINDS, AttentionMaps


def collect_attention(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, source: str, target: str | None = None, **search: Any
) -> AttentionMaps:
    """The attention of every head while the model reads `source` and says `target`, which it finds itself by default.

    Any encoder-decoder of transformers will do, whichever kernel it was loaded with.

    Args:
        search: for `Translator.candidates`, such as `num_beams=1`, where no target is given.

    Raises:
        ValueError: for a blank source, for sides that are longer than the model's positions, and for a model that is
            no encoder-decoder or returns no attention.
    """
    if target is not None and search:
        raise ValueError(f"got a target, and {', '.join(search)} to search for one: give either")
    if target is None:
        return candidate_attention(model, tokenizer, source, n_best=1, **search)[0]
    return attention_to(model, tokenizer, source, target)


def candidate_attention(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, source: str, *, n_best: int, **search: Any
) -> list[AttentionMaps]:
    """The maps of the `n_best` candidates of a beam search, best first, with their scores."""
    check(model, source)
    beams = search.get("num_beams") or model.generation_config.num_beams or 1
    found = Translator(model, tokenizer).candidates([source], n_best=n_best, scores=beams > 1, **search)[0]
    return [attention_to(model, tokenizer, source, answer.text, answer.score, answer.tokens) for answer in found]


def check(model: PreTrainedModel, source: str) -> None:
    if not model.config.is_encoder_decoder:
        raise ValueError(f"got a model of type {model.config.model_type!r}, expected an encoder-decoder")
    if not source.strip():
        raise ValueError("got a blank source: attention needs a sentence")


def attention_to(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    source: str,
    target: str,
    score: float | None = None,
    tokens: Sequence[int] | None = None,
) -> AttentionMaps:
    """The maps of a source and a target that is given, as text, and as the `tokens` that a model has said if known."""
    check(model, source)
    batch = tokenizer([source], return_tensors="pt", verbose=False).to(model.device)
    if tokens is None:
        tokens = tokenizer(text_target=[target], verbose=False)["input_ids"][0]
    else:
        end, limit = tokenizer.eos_token_id, position_limit(model.get_decoder(), model.config)
        # The last word of a translation that was cut is read as well.
        if end is not None and end not in tokens[-1:] and len(tokens) != limit:
            tokens = [*tokens, end]
    said = batch["input_ids"].new_tensor([list(tokens)])  # (1, T)
    sides = ("source", batch["input_ids"], model.get_encoder()), ("target", said, model.get_decoder())
    for side, ids, stack in sides:
        limit = position_limit(stack, model.config)
        if limit is not None and ids.shape[1] > limit:
            raise ValueError(f"the {side} has {ids.shape[1]} tokens, but the model's positions end at {limit}")
    output = read_again(model, batch, said[:, :-1])  # after the last one, </s>, there is nothing to be said
    return AttentionMaps(
        pieces(tokenizer, batch["input_ids"][0].tolist(), source=True),
        pieces(tokenizer, [start_token(model), *said[0, :-1].tolist()]),
        pieces(tokenizer, said[0].tolist()),
        **{kind: stacked(getattr(output, f"{kind}_attentions"), 0) for kind in KINDS},
        source=source,
        target=target,
        model=str(model.config._name_or_path),
        score=score,
    )
