"""Word alignments: which words of the source a word of the translation comes from, read off the cross-attention.

A word is what stands between plain spaces (`split_words`), as in Pharaoh files. Which layer and heads tell most is
chosen on sentences whose links nobody has to know: those where each side's best choices agree with the other side's
(`choose_heads`).
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from ..model.decoding import is_of_family

logger = logging.get_logger(__name__)

SPACE = "\N{LOWER ONE EIGHTH BLOCK}"  # of SentencePiece, which decodes it to nothing where no text follows
Links = list[tuple[int, int]]  # (source word, target word), from 0 on, sorted


@dataclass(frozen=True)
class AlignmentHeads:
    """Where to read: the mean of these heads, in the row in which a target token is said, or the one in which it is
    read (one later; "Shift-Att", Chen et al. 2020, which is better in most models)."""

    heads: tuple[tuple[int, int], ...]  # (layer, head), from 0 on
    shifted: bool

    def weights(self, cross: np.ndarray) -> np.ndarray:
        """cross: (L, H, 1 + T, S), of the start token and what is said after it -> (T, S), a row for what is said"""
        return rows_of(np.stack([cross[pair] for pair in self.heads]).mean(0), self.shifted)

    @classmethod
    def parse(cls, text: str) -> "AlignmentHeads":
        """`3:1,3:2` are two heads of layer 3, counted from 1; `3:1@read` looks where a token is read, not said.

        Raises:
            ValueError: for anything else.
        """
        pairs, _, row = text.partition("@")
        match = re.fullmatch(r"[1-9]\d*:[1-9]\d*(,[1-9]\d*:[1-9]\d*)*", pairs)
        if not match or row not in ("", "said", "read"):
            raise ValueError(
                f"got {text!r} for the heads that align, expected LAYER:HEAD,..., counted from 1, and @read behind "
                "them where a token is to be looked at one step later, such as 3:1,3:2@read"
            )
        heads = (tuple(int(number) - 1 for number in pair.split(":")) for pair in pairs.split(","))
        return cls(tuple(heads), row == "read")  # type: ignore[arg-type]

    def check(self, model: PreTrainedModel) -> None:
        """Raises: ValueError, if the model has no such heads."""
        layers, heads = decoder_size(model)
        if missing := self.beyond(layers, heads):
            raise ValueError(
                f"no heads {', '.join(missing)} in a decoder of {layers} layers of {heads}: they are counted from 1"
            )

    def beyond(self, layers: int, heads: int) -> list[str]:
        """Those that so many layers of so many heads have not, as `parse` reads them."""
        return [f"{layer + 1}:{head + 1}" for layer, head in self.heads if layer >= layers or head >= heads]

    def store(self, config: GenerationConfig) -> None:
        """In `generation_config.json`, under the name that Whisper gave such a list."""
        config.alignment_heads = [list(pair) for pair in self.heads]
        config.alignment_shifted = self.shifted


def rows_of(cross: np.ndarray, shifted: bool) -> np.ndarray:
    """(..., 1 + T, S) -> (..., T, S), see `AlignmentHeads`"""
    return cross[..., 1:, :] if shifted else cross[..., :-1, :]


def stored_heads(model: PreTrainedModel) -> AlignmentHeads:
    """What the model's training has chosen; else all heads of the last layer but one (Garg et al. 2019)."""
    config = model.generation_config
    pairs = getattr(config, "alignment_heads", None)
    if pairs:
        return AlignmentHeads(tuple((layer, head) for layer, head in pairs), bool(config.alignment_shifted))
    layers, heads = decoder_size(model)
    layer = max(0, layers - 2)
    logger.warning_once(
        f"this model names no heads for alignments: the mean of layer {layer + 1}'s is read, where each token is said"
    )
    return AlignmentHeads(tuple((layer, head) for head in range(heads)), shifted=False)


def decoder_size(model: PreTrainedModel) -> tuple[int, int]:
    """Layers and heads of the decoder, by whichever names its configuration has for them."""
    config = getattr(model.config, "decoder", model.config)  # of a pair of models, that of the second
    layers = ("decoder_layers", "num_decoder_layers", "num_hidden_layers")
    heads = ("decoder_attention_heads", "num_attention_heads")
    return tuple(next(getattr(config, name) for name in names if hasattr(config, name)) for names in (layers, heads))


@torch.inference_mode()
def read_again(model: PreTrainedModel, inputs: Mapping[str, torch.Tensor], said: torch.Tensor):
    """What the model computes while it reads `inputs` and `said`, (B, T), behind the start token: an output with
    encoder_attentions, decoder_attentions and cross_attentions, one (B, H, queries, keys) a layer.

    Raises:
        ValueError: if the model returns no attention.
    """
    read = torch.cat([said.new_full((len(said), 1), start_token(model)), said], dim=1)
    was_training = model.training
    try:
        with returning_attention(model.eval()):
            output = model(**inputs, decoder_input_ids=read, output_attentions=True, use_cache=False)
    finally:
        model.train(was_training)
    if not output.cross_attentions or any(layer is None for layer in output.cross_attentions):
        raise ValueError(f"{type(model).__name__} returns no attention: load it with attn_implementation='eager'")
    return output


def start_token(model: PreTrainedModel) -> int:
    chosen = model.generation_config.decoder_start_token_id
    return model.config.decoder_start_token_id if chosen is None else chosen


@contextmanager
def returning_attention(model: PreTrainedModel) -> Iterator[None]:
    """Models of transformers have weights to return under "eager" only; ours see to that in the call."""
    with nullcontext() if is_of_family(model.config) else kernel(model, "eager"):
        yield


@contextmanager
def kernel(model: PreTrainedModel, name: str) -> Iterator[None]:
    """Attention by that kernel within the block."""
    before = model.config._attn_implementation
    model.set_attn_implementation(name)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def stacked(layers: Sequence[torch.Tensor], sentence: int) -> np.ndarray:
    """(L, H, queries, keys) of one sentence of the batch"""
    return torch.stack([layer[sentence] for layer in layers]).float().cpu().numpy()


def pieces(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], source: bool = False) -> list[str]:
    """The text of each token: what it adds to that of those before it.

    A character of several tokens is the last one's text, and those before it are "". Special tokens have their names.

    Args:
        source: whether it is the source side, which may have a vocabulary of its own.
    """
    special, names = set(tokenizer.all_special_ids), tokenizer.convert_ids_to_tokens(list(ids))
    decode: Callable[[list[int]], str] = partial(
        tokenizer.decode, skip_special_tokens=False, clean_up_tokenization_spaces=False
    )
    if source and getattr(tokenizer, "separate_vocabs", False):  # Marian's, which decodes by that of the target alone
        words = {number: word for word, number in tokenizer.encoder.items()}
        names, decode = (
            [words[token] for token in ids],
            lambda run: tokenizer.spm_source.decode([words[i] for i in run]),
        )
    texts: list[str] = []
    run: list[int] = []  # ids that are not special, whose text is `before`
    before = ""
    for place, token in enumerate(ids):
        if token in special:
            begins_a_word = token == tokenizer.unk_token_id and place > 0 and names[place - 1] == SPACE
            texts.append(" " * begins_a_word + names[place])
            continue
        run.append(token)
        text = decode(run)
        whole = text.rstrip("\N{REPLACEMENT CHARACTER}")
        texts.append(whole[len(before) :])
        before = whole if len(whole) > len(before) else before
    return texts


def textless(tokenizer: PreTrainedTokenizerBase) -> set[str]:
    """The names of the special tokens that stand for no text, as the unknown one does."""
    return set(tokenizer.all_special_tokens) - {tokenizer.unk_token}


def split_words(text: str) -> list[str]:
    """What stands between plain spaces; others, such as that before a French "?", are part of a word."""
    return [word for word in text.split(" ") if word]


def words_of(tokens: Sequence[str], special: Iterable[str]) -> list[int]:
    """The number of the word of `split_words` that each token belongs to, the last one if there are several; -1 for
    special tokens and for spaces by themselves.

    ["The", " un", "true", " story", "</s>"] -> [0, 1, 1, 2, -1]
    """
    special = set(special)
    numbers: list[int] = []
    text, waiting = "", 0  # tokens that are the beginning of a character
    for token in tokens:
        if token in special:
            numbers.append(-1)
        elif not token:
            numbers.append(-1)
            waiting += 1
        elif not token.strip(" "):
            text += token
            numbers.append(-1)
        else:
            text += token
            number = len(split_words(text)) - 1
            numbers[len(numbers) - waiting :] = [number] * waiting
            numbers.append(number)
            waiting = 0
    return numbers


def as_split(numbers: Sequence[int], text: str) -> list[int]:
    """`words_of` a text as numbers of its `split_words`: they are more where the tokenizer has made plain spaces of
    others, as SentencePiece does.

    Those of "Est-ce vrai\u00a0?", three for its tokens: [0, 1, 2] -> [0, 1, 1]
    """
    parts = [number for number, word in enumerate(split_words(text)) for _ in word.split()]
    if max(numbers, default=-1) + 1 != len(parts):
        return list(numbers)
    return [number if number < 0 else parts[number] for number in numbers]


def word_weights(weights: np.ndarray, targets: Sequence[int], sources: Sequence[int]) -> np.ndarray:
    """(..., T, S) of tokens -> (..., target words, source words): the greatest weight between two tokens of theirs,
    since one piece of a word often links all of it. A word that shares a token with the next one has zeros."""
    return greatest(greatest(weights, targets, -2), sources, -1)


def greatest(weights: np.ndarray, words: Sequence[int], axis: int) -> np.ndarray:
    """The maximum of each word's tokens along an axis; 0 for words without any."""
    numbers = np.asarray(words, int)
    count = max(words, default=-1) + 1
    parts = [weights.compress(numbers == word, axis).max(axis, initial=0.0) for word in range(count)]
    return np.stack(parts, axis) if parts else weights.take([], axis)


LEAST = 0.05  # of a target word's attention, for a source word to count as one that it looks at, too


def choices(weights: np.ndarray) -> set[tuple[int, int]]:
    """Each target word with the source word that it looks at most."""
    best = weights.argmax(1)
    return {(int(best[target]), int(target)) for target in np.flatnonzero(weights.max(1) > 0)}


def links(weights: np.ndarray, least: float = 0.0) -> Links:
    """Each target word's source word; and source words that no target word has chosen, such as the first of "is
    eating", with the target word that looks at them most: (target words, source words) -> links

    Args:
        least: what a link must weigh; those of the second kind `LEAST` anyway.
    """
    if not weights.size:
        return []
    chosen = choices(weights)
    left = set(range(weights.shape[1])) - {source for source, _ in chosen}
    more = {(source, int(weights[:, source].argmax())) for source in left}
    found = [link for link in chosen if weights[link[::-1]] >= least]
    found += [link for link in more if weights[link[::-1]] >= max(least, LEAST)]
    return sorted(found)


def pharaoh(found: Links) -> str:
    """`0-0 1-2`: source and target words, from 0 on, as GIZA++, fast_align and Moses write them."""
    return " ".join(f"{source}-{target}" for source, target in found)


def agreement(weights: np.ndarray) -> tuple[int, int]:
    """How many choices of target words are also those of the source words, and how many could be."""
    if not weights.size:
        return 0, 0
    backward = {(source, int(target)) for source, target in enumerate(weights.argmax(0))}
    return len(choices(weights) & backward), min(weights.shape)


def choose_heads(sentences: Sequence[tuple[np.ndarray, Sequence[int], Sequence[int]]]) -> AlignmentHeads:
    """The heads whose mean has two directions that agree most often: the best one, and as long as the agreement grows
    the one that adds most to it; in the row in which a token is said or the one in which it is read.

    Args:
        sentences: of each, cross-attention (L, H, 1 + T, S), and `words_of` both sides; no links are needed.
    """
    if not sentences:
        raise ValueError("got no sentences: expected some whose attention shows which heads align")
    layers, heads = sentences[0][0].shape[:2]
    everything = tuple((layer, head) for layer in range(layers) for head in range(heads))

    def greedily(shifted: bool) -> tuple[float, AlignmentHeads]:
        words = [
            word_weights(rows_of(cross, shifted), targets, sources) for cross, targets, sources in sentences
        ]  # of each sentence (L, H, target words, source words)

        def share(pairs) -> float:
            counts = [agreement(sum(weights[pair] for pair in pairs)) for weights in words]
            return sum(agreed for agreed, _ in counts) / max(1, sum(possible for _, possible in counts))

        chosen: tuple[tuple[int, int], ...] = ()
        reached = -1.0
        while len(chosen) < len(everything):
            shares = {pair: share((*chosen, pair)) for pair in everything if pair not in chosen}
            pair = max(shares, key=lambda pair: shares[pair])
            if shares[pair] <= reached:
                break
            reached, chosen = shares[pair], (*chosen, pair)
        return reached, AlignmentHeads(chosen, shifted)

    return max((greedily(shifted) for shifted in (False, True)), key=lambda found: found[0])[1]
