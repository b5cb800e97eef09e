"""Attention maps of one sentence and its translation, with their tokens, as JSON that other tools can read."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..data.whole_files import write_whole
from ..translation.alignments import AlignmentHeads, split_words, word_weights, words_of

KINDS = ("encoder", "decoder", "cross")
FORMAT, VERSION = "vanilla_transformer.attention", 1
# What the first visualizer of this family, Transformer_Attention, called them.
FORMER_KINDS = {"encoder": "encoder_self", "decoder": "decoder_masked_self", "cross": "decoder_encdec"}


@dataclass(frozen=True, eq=False)
class AttentionMaps:
    """The softmax weights of equation 1 in every head of every layer; each row sums to 1.

    Attributes:
        encoder: (L, H, S, S), a source token looks at the source; `None` where the model has no such stack.
        decoder: (L, H, T, T), a target token looks at itself and those before it.
        cross: (L, H, T, S), a target token looks at the source.
        source_tokens: S pieces of text, spaces included, special tokens by their names.
        target_tokens: T of them, what the decoder reads: the start token, then the translation.
        next_tokens: T of them, what it says there: the translation, then `</s>`.
        source, target: both texts.
        model: its name or folder.
        score: of the translation in a beam search, log-probability / length ** length_penalty.
    """

    source_tokens: list[str]
    target_tokens: list[str]
    next_tokens: list[str]
    encoder: np.ndarray | None = None
    decoder: np.ndarray | None = None
    cross: np.ndarray | None = None
    source: str = ""
    target: str = ""
    model: str = ""
    score: float | None = None

    def __post_init__(self):
        sides = {"source": len(self.source_tokens), "target": len(self.target_tokens)}
        problems = []
        for kind, (query, key) in SIDES.items():
            weights = getattr(self, kind)
            if weights is not None and (weights.ndim != 4 or weights.shape[2:] != (sides[query], sides[key])):
                expected = f"(layers, heads, {sides[query]} {query} tokens, {sides[key]} {key} tokens)"
                problems.append(f"{kind} has the shape {weights.shape}, expected {expected}")
        if len(self.next_tokens) != len(self.target_tokens):
            problems.append(f"{len(self.target_tokens)} tokens are read and {len(self.next_tokens)} said")
        if problems:
            raise ValueError("attention maps that do not fit their tokens: " + "; ".join(problems))

    def kinds(self) -> dict[str, np.ndarray]:
        """Those of the three that the model has."""
        return {kind: getattr(self, kind) for kind in KINDS if getattr(self, kind) is not None}

    def tokens(self, kind: str) -> tuple[list[str], list[str]]:
        """Of the rows and of the columns of a map."""
        query, key = SIDES[kind]
        return getattr(self, f"{query}_tokens"), getattr(self, f"{key}_tokens")

    def words(self, heads: AlignmentHeads, special: Iterable[str]) -> tuple[np.ndarray, list[str], list[str]]:
        """What `heads` of the cross-attention say of words: (target words, source words) weights, and these words.

        Args:
            special: the names of tokens that are no text.

        Raises:
            ValueError: without a word on either side, for maps without cross-attention or without those heads.
        """
        if self.cross is None:
            raise ValueError("these maps hold no cross-attention, which links the words of both sides")
        layers, number = self.cross.shape[:2]
        if missing := heads.beyond(layers, number):
            raise ValueError(f"no heads {', '.join(missing)} in maps of {layers} layers of {number} heads")
        special = set(special)
        said, read = self.next_tokens[:-1], self.source_tokens  # nothing is said after the last one, </s>
        targets, sources = (
            split_words("".join(token for token in side if token not in special)) for side in (said, read)
        )
        if not targets or not sources:
            raise ValueError(f"got {self.source!r} and its translation {self.target!r}: expected words on both sides")
        weights = word_weights(heads.weights(self.cross), words_of(said, special), words_of(read, special))
        return weights, targets, sources

    def to_dict(self) -> dict[str, Any]:
        """What `to_json` writes. Weights are rounded to six digits: [layer][head][query][key]."""
        heads = {kind: list(weights.shape[:2]) for kind, weights in self.kinds().items()}
        return {
            "format": FORMAT,
            "version": VERSION,
            "model": self.model,
            "source": self.source,
            "target": self.target,
            "score": self.score,
            "layers": {kind: layers for kind, (layers, _) in heads.items()},
            "heads": {kind: number for kind, (_, number) in heads.items()},
            "source_tokens": self.source_tokens,
            "target_tokens": self.target_tokens,
            "next_tokens": self.next_tokens,
            **{f"{kind}_attentions": np.round(w.astype(float), 6).tolist() for kind, w in self.kinds().items()},
        }

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), ensure_ascii=False)

    def save(self, file: Path) -> None:
        write_whole(file, self.to_json())

    def to_bertviz(self) -> dict[str, Any]:
        """The arguments of BertViz's `model_view` and `head_view` for an encoder-decoder: `head_view(**...)`.

        Tuples of (1, H, queries, keys) tensors, one for each layer, and both sides' tokens.
        """
        import torch

        attentions = {
            f"{kind}_attention": tuple(torch.from_numpy(layer[None].copy()) for layer in weights)
            for kind, weights in self.kinds().items()
        }
        return {**attentions, "encoder_tokens": self.source_tokens, "decoder_tokens": self.target_tokens}


SIDES = {"encoder": ("source", "source"), "decoder": ("target", "target"), "cross": ("target", "source")}


def load_attention_json(file: str | Path) -> AttentionMaps:
    """Attention maps from a file that `AttentionMaps.save` wrote, or the exporter of Transformer_Attention, whose
    tokens have no text and get their places as names.

    Raises:
        ValueError: for anything else.
    """
    try:
        data = json.loads(Path(file).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{file} is no JSON: {error}") from None
    if isinstance(data, dict) and isinstance(former := data.get("attentions"), dict):
        return from_former(data, former, file)
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ValueError(f'{file} holds no attention maps: expected "format": "{FORMAT}", or {{"attentions": ...}}')
    if data.get("version") != VERSION:
        raise ValueError(f"{file} has version {data.get('version')!r} of its format, and this package reads {VERSION}")
    names = ("source_tokens", "target_tokens", "next_tokens", "source", "target", "model", "score")
    if missing := [name for name in names if name not in data]:
        raise ValueError(f"{file} lacks {', '.join(missing)}")
    given: dict[str, Any] = {name: data[name] for name in names}
    for kind in KINDS:
        if f"{kind}_attentions" in data:
            given[kind] = np.asarray(data[f"{kind}_attentions"], np.float32)
    return AttentionMaps(**given)


def from_former(data: dict, former: dict, file: str | Path) -> AttentionMaps:
    weights: dict[str, Any] = {
        kind: np.asarray(former[key], np.float32) for kind, key in FORMER_KINDS.items() if key in former
    }
    if not weights:
        raise ValueError(f"{file} has no attentions: expected any of {', '.join(FORMER_KINDS.values())}")
    lengths: dict[str, int] = {}
    for kind, array in weights.items():
        if array.ndim != 4:
            raise ValueError(f"{file}: {FORMER_KINDS[kind]} has {array.ndim} axes, expected [layer][head][query][key]")
        lengths |= dict(zip(SIDES[kind], array.shape[2:], strict=True))
    # One list of tokens for both sides is all that this format knows.
    named = {
        side: data["tokens"] if len(data.get("tokens") or ()) == length else [str(place) for place in range(length)]
        for side, length in lengths.items()
    }
    target = named.get("target", [])
    return AttentionMaps(named.get("source", []), target, [*target[1:], ""][: len(target)], **weights)
