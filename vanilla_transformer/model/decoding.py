# Copyright 2026 The vanilla_transformer authors. MIT License.
"""How long a translation may get (section 6.1), and a `generate` that keeps to it and says when it had to cut."""

import copy
import sys
from typing import Any

import torch
from torch import nn
from transformers import GenerationConfig, GenerationMixin
from transformers.utils import logging

from .search import asked_for, is_known, search, search_at_once

logger = logging.get_logger(__name__)

EXTRA_TOKENS = 50  # "we set the maximum output length during inference to input length + 50" (section 6.1)

# What `generate` falls back to. Seq2SeqTrainer of transformers 5 writes it into generation configs that set no
# length, so that 20 in a checkpoint says the same as nothing: transformers 4 never saved it at all.
LIBRARY_LENGTH = 20


def paper_generation_config(config) -> GenerationConfig:
    """Beam search with 4 beams (section 6.1). transformers divides a beam's score by length ** length_penalty, the
    paper by ((5 + length) / 6) ** 0.6: 1.0 is the library's own value."""
    return GenerationConfig(
        max_length=512,
        num_beams=4,
        length_penalty=1.0,
        early_stopping=True,
        pad_token_id=config.pad_token_id,
        bos_token_id=config.bos_token_id,
        eos_token_id=config.eos_token_id,
        decoder_start_token_id=config.decoder_start_token_id,
    )


def position_limit(stack: nn.Module, config) -> int | None:
    """How many tokens an encoder or decoder, of ours or of transformers, can number; `None` for no limit.

    What ends is a table: an `nn.Embedding` that is called position. Relative positions, rotations and sinusoids made
    on demand (T5, M2M100, NLLB) have none, and FSMT's table, which has `make_weight`, grows. Some tables begin with
    unused rows: BART's family declares them as `offset`, RoBERTa's counts from behind the padding id.
    """
    scheme = getattr(config, "positions", None)
    if isinstance(scheme, str):  # our own config says it
        return config.max_position_embeddings if scheme == "learned" else None
    limits = []
    for path, module in stack.named_modules():
        name = path.rsplit(".", 1)[-1]
        if not isinstance(module, nn.Embedding) or "position" not in name or "relative" in name:
            continue
        if not hasattr(module, "make_weight"):
            behind_padding = 0 if module.padding_idx is None else module.padding_idx + 1
            limits.append(module.num_embeddings - getattr(module, "offset", behind_padding))
    return min(limits, default=None)


def token_limit(stack: nn.Module) -> int:
    """How many tokens an encoder or decoder has embeddings for; `sys.maxsize` where it makes them in another way, as
    CANINE does."""
    try:
        table = stack.get_input_embeddings()  # type: ignore[operator]
    except NotImplementedError:
        return sys.maxsize
    return getattr(table, "num_embeddings", sys.maxsize)


def length_of_checkpoint(config, max_length: int | None) -> int | None:
    """`max_length` of a generation config, unless it is only what a trainer has left there."""
    return None if max_length == LIBRARY_LENGTH and not is_of_family(config) else max_length


def is_of_family(config) -> bool:
    return getattr(config, "model_type", "").startswith("vanilla_transformer")


def output_limit(model, longest_source: int, prompt_length: int = 1) -> int:
    """Tokens that an output may have: longest source + `EXTRA_TOKENS` behind the decoder's prompt (the start token),
    and at most `generation_config.max_length`; or else its `max_new_tokens`. And as many as the decoder has positions
    for."""
    new, longest = model.generation_config.max_new_tokens, model.generation_config.max_length
    limits = [
        prompt_length + (longest_source + EXTRA_TOKENS if new is None else new),
        length_of_checkpoint(model.config, longest) if new is None else None,
        position_limit(model.get_decoder(), model.config),
    ]
    return min(limit for limit in limits if limit is not None)


def count_capped(sequences: torch.Tensor, limit: int, eos_token_id, pad_token_id, forced_eos_token_id=None) -> int:
    """How many of the sequences (N, T) ended because `limit` tokens leave no room for more."""
    if sequences.shape[1] < limit:
        return 0
    # Marian, BART and mBART write </s> themselves when they run out of length: there it says nothing.
    ends = eos_token_id if forced_eos_token_id is None else None
    natural = [*(ends if isinstance(ends, list) else [ends]), pad_token_id]
    return sum(last not in natural for last in sequences[:, -1].tolist())


def check_source(source) -> None:
    """Raise for what is no batch of sources: (B, S) token ids, or (B, S, D) embeddings."""
    if source is None:
        return
    if not isinstance(source, torch.Tensor):
        raise TypeError(
            f"got a source of type {type(source).__name__}, expected a tensor of token ids (B, S): "
            'tokenizer(texts, padding=True, return_tensors="pt") makes one'
        )
    if source.ndim < 2 or 0 in source.shape[:2]:
        raise ValueError(
            f"got a source of shape {tuple(source.shape)}, expected (B, S) with at least one sentence and one token: "
            "a single sentence is a batch of one, ids[None]"
        )


class LengthLimitMixin(GenerationMixin):
    """`generate` for an encoder-decoder whose outputs may be as long as its inputs plus `EXTRA_TOKENS`."""

    @torch.no_grad()
    def generate(self, inputs=None, generation_config=None, *args, fast: bool = True, **kwargs):
        """transformers' `generate` with what an encoder-decoder needs on top of it.

        - The mask of source padding is inferred from `pad_token_id` when it is not given.
        - When the call sets no length, an output may have min(generation_config.max_length, S + 50) tokens, where S
          is the batch's longest source (section 6.1), and outputs that this cuts are counted in a warning.
        - Greedy and beam search are those of `search.py`, which find the same tokens; `fast=False` for the library's.

        Returns:
            (B * num_return_sequences, T) ids, decoder start token included, or a dictionary, as in transformers.

        Raises:
            TypeError, ValueError: for a source that is no batch of ids (B, S), and for `num_beams` below 1.
        """

        kwargs.pop("labels", None)  # which Seq2SeqTrainer leaves in a batch

        def of_call(name: str):
            value = kwargs.get(name)
            return value if value is not None else getattr(generation_config, name, None)

        def setting(name: str):
            value = of_call(name)
            return value if value is not None else getattr(self.generation_config, name)

        beams = setting("num_beams")
        if beams is not None and beams < 1:
            raise ValueError(f"got num_beams={beams}, expected at least 1 (1 is greedy search)")
        source: Any = inputs if inputs is not None else kwargs.get("input_ids")
        check_source(source)
        asked = asked_for(self, generation_config, kwargs)
        fast = fast and not args and is_known(self, asked)
        pad, ends = setting("pad_token_id"), setting("eos_token_id")
        is_ids = isinstance(source, torch.Tensor) and source.ndim == 2 and not source.is_floating_point()
        if is_ids and pad is not None and kwargs.get("attention_mask") is None:
            mask = source.ne(pad)
            if pad in (ends if isinstance(ends, list) else [ends]):  # the first one behind a source is its end
                mask[:, 1:] = mask[:, 1:] | mask[:, :-1].clone()
            kwargs["attention_mask"] = mask.long()

        prompt_length = self.prompt_length(kwargs.get("decoder_input_ids"), setting("decoder_start_token_id"))
        longest_source = self.longest_source(source, kwargs)
        new_tokens = of_call("max_new_tokens")
        limit = None
        if self.generation_config.max_new_tokens is None:  # else the checkpoint itself says how long
            if new_tokens is not None:
                limit = prompt_length + new_tokens
            elif of_call("max_length") is None and longest_source is not None:
                limit = output_limit(self, longest_source, prompt_length)
        sequences = None
        one_source = inputs is None or kwargs.get("input_ids") is None  # two are told apart by transformers
        if fast and limit is not None and generation_config is None and one_source:
            sequences = outputs = search_at_once(self, asked, source, kwargs, limit)
        if fast and sequences is None:
            kwargs["custom_generate"] = search
        if limit is None:
            return super().generate(inputs, generation_config, *args, **kwargs)

        if sequences is None:
            # As a total length, in one place: transformers would warn of new tokens beside the length of our config.
            kwargs = {name: value for name, value in kwargs.items() if name not in ("max_new_tokens", "max_length")}
            if generation_config is None:
                kwargs["max_length"] = limit
            else:
                generation_config = copy.deepcopy(generation_config)
                generation_config.max_length, generation_config.max_new_tokens = limit, None
            outputs = super().generate(inputs, generation_config, *args, **kwargs)
            sequences = outputs if isinstance(outputs, torch.Tensor) else outputs.sequences
        capped = 0
        if new_tokens is None:
            capped = count_capped(sequences, limit, ends, pad, setting("forced_eos_token_id"))
        if capped:
            logger.warning(
                f"{capped} of {len(sequences)} outputs were cut at {limit} tokens, before they ended: the limit is "
                f"the longest source + {EXTRA_TOKENS}, and at most generation_config.max_length="
                f"{self.generation_config.max_length}; pass max_new_tokens to allow more"
            )
        return outputs

    def generate_batch(self, *args, **kwargs):
        raise NotImplementedError(
            "continuous batching serves decoder-only models, and an encoder-decoder would get empty answers from it: "
            "use generate() on padded batches, or the translation pipeline with batch_size"
        )

    @staticmethod
    def prompt_length(decoder_input_ids: torch.Tensor | None, start_token_id: int | None) -> int:
        """Tokens before the first generated one: the start token, which `generate` sets before a prompt without it."""
        if decoder_input_ids is None:
            return 1
        first = decoder_input_ids[:, 0]
        has_start = start_token_id is None or bool((first == first.new_tensor(start_token_id)).any())
        return decoder_input_ids.shape[1] + (0 if has_start else 1)

    @staticmethod
    def longest_source(source: torch.Tensor | None, kwargs) -> int | None:
        """S in tokens, from whichever form of the source the call gives; `None` if it gives none."""
        mask = kwargs.get("attention_mask")
        if mask is not None and mask.ndim == 2:
            return int(mask.sum(-1).max())
        if source is None:
            source = kwargs.get("inputs_embeds")
        if source is None and kwargs.get("encoder_outputs") is not None:
            source = kwargs["encoder_outputs"][0]
        return None if source is None else source.shape[1]
