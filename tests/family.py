"""The members of the family: every architecture, every combination of choices, and which of them make all pairs."""

from itertools import combinations, product
from typing import get_args

import pytest
import torch
from tiny import random_ids

from vanilla_transformer import (
    VanillaTransformerConfig,
    VanillaTransformerDecoderConfig,
    VanillaTransformerEncoderConfig,
    VanillaTransformerForCausalLM,
    VanillaTransformerForMaskedLM,
    VanillaTransformerForSeq2SeqLM,
)
from vanilla_transformer.model import configuration_vanilla_transformer as words

CHOICES = {
    "residual": get_args(words.Residual),
    "norm": get_args(words.Norm),
    "positions": get_args(words.Positions),
    "feed_forward": get_args(words.FeedForward),
}
ARCHITECTURES = {
    "encoder-decoder": (VanillaTransformerConfig, VanillaTransformerForSeq2SeqLM),
    "decoder-only": (VanillaTransformerDecoderConfig, VanillaTransformerForCausalLM),
    "encoder-only": (VanillaTransformerEncoderConfig, VanillaTransformerForMaskedLM),
}
GENERATING = ["encoder-decoder", "decoder-only"]
SEARCHES = {
    "greedy": dict(num_beams=1, do_sample=False),
    "sample": dict(num_beams=1, do_sample=True, top_k=0),
    "beam": dict(num_beams=4, do_sample=False),
    "beam_sample": dict(num_beams=3, do_sample=True, top_k=0),
    "n_best": dict(num_beams=4, do_sample=False, num_return_sequences=3),
}


def pairs_of(choice: dict) -> set:
    return set(combinations(choice.items(), 2))


def combinations_marked() -> list:
    """All combinations of choices; those that the pairs do not need are marked `full`, for `make test-full`."""
    rest = [dict(zip(CHOICES, values, strict=True)) for values in product(*CHOICES.values())]
    wanted = set().union(*map(pairs_of, rest))
    marked = []
    while rest:
        best = max(rest, key=lambda choice: len(pairs_of(choice) & wanted))
        rest.remove(best)
        marks = () if pairs_of(best) & wanted else pytest.mark.full
        wanted -= pairs_of(best)
        marked.append(pytest.param(best, id="-".join(best.values()), marks=marks))
    return marked


def every_member():
    """Parametrises a test with `architecture` and `choice`."""
    return lambda test: pytest.mark.parametrize("architecture", ARCHITECTURES)(
        pytest.mark.parametrize("choice", combinations_marked())(test)
    )


def build(architecture: str, **choice):
    """A tiny model with random weights in evaluation mode."""
    config_class, model_class = ARCHITECTURES[architecture]
    attn = choice.pop("attn_implementation", None)
    sizes = config_class.preset("tiny").stack_size("encoder")._replace(vocab_size=50, layers=2, heads=2, ffn_dim=32)
    fields = {
        field: value
        for term, value in sizes._asdict().items()
        for field in config_class.size_fields.get(term, (term,))
    }
    config = config_class(**{**fields, "d_model": 16, **choice})
    return model_class._from_config(config, attn_implementation=attn).eval()


def ids_of(model) -> str:
    """The argument that a causal or masked stack reads: its own ids, or those of the decoder."""
    return "decoder_input_ids" if model.config.is_encoder_decoder else "input_ids"


def padded(ids: torch.Tensor, left: list[int], right: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Padding of so many tokens around each row (B, L): ids and mask, both (B, L + most)."""
    width = ids.shape[1] + max(a + b for a, b in zip(left, right, strict=True))
    out, mask = torch.zeros(len(ids), width, dtype=torch.long), torch.zeros(len(ids), width, dtype=torch.long)
    for row, (before, tokens) in enumerate(zip(left, ids, strict=True)):
        out[row, before : before + len(tokens)] = tokens
        mask[row, before : before + len(tokens)] = 1
    return out, mask


def batch(architecture: str, rows: int = 3, source: int = 6, target: int = 5) -> dict:
    """What the model needs for logits, without padding."""
    ids = {"input_ids": random_ids(rows, source)}
    return ids | {"decoder_input_ids": random_ids(rows, target)} if architecture == "encoder-decoder" else ids


def with_labels(architecture: str, rows: int = 3) -> dict:
    """What the model needs for a loss; one row has padding."""
    inputs = batch(architecture, rows)
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    inputs["attention_mask"][-1, -2:] = 0
    labels = inputs.pop("decoder_input_ids", inputs["input_ids"]).clone()
    labels[-1, -2:] = -100
    return inputs | {"labels": labels}
