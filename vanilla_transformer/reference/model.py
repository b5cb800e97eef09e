"""`NumpyTransformer`: a checkpoint's files, put together with the functions of this folder."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .attention import Array, Weights
from .load import decode, encode, read_config, read_search, read_tokenizer, read_weights
from .names import DECODER_ONLY, ENCODER_DECODER, ENCODER_ONLY
from .search import Hypothesis, NextLogProbs, beam_search, greedy_search
from .transformer import (
    decoder,
    decoder_only,
    encoder,
    encoder_only,
    label_smoothed_loss,
    log_softmax,
    logits,
    shift_right,
)

EXTRA_TOKENS = 50  # "we set the maximum output length during inference to input length + 50" (section 6.1)
CONTINUED_TOKENS = 50  # how far a decoder-only model goes on


@dataclass(frozen=True)
class NumpyTransformer:
    """One of the three models, with its weights."""

    config: dict
    weights: Weights
    folder: Path

    @classmethod
    def from_pretrained(cls, folder: str | Path, dtype: type = np.float64) -> "NumpyTransformer":
        """A checkpoint of any architecture and precision, which computes in `dtype`: np.float64 or np.float32.

        Raises:
            FileNotFoundError: if there is no whole checkpoint.
            ValueError: for a configuration or weights that are unknown here, all reasons at once.
        """
        if dtype not in (np.float64, np.float32):
            raise ValueError(f"got dtype={dtype!r}, expected numpy.float64 or numpy.float32")
        folder = Path(folder)
        config = read_config(folder)
        return cls(config, read_weights(folder, config, dtype), folder)

    def __call__(self, input_ids, attention_mask=None, decoder_input_ids=None, decoder_attention_mask=None) -> Array:
        """Ids and masks (B, S), for an encoder-decoder also (B, T) for its decoder -> logits (B, S or T, V).

        Masks have 1 for tokens and 0 for padding, on either side; without one all are tokens.
        """
        ids, mask = with_mask(input_ids, attention_mask)
        if self.config["model_type"] == ENCODER_DECODER:
            memory = encoder(self.config, self.weights, ids, mask)
            target, target_mask = with_mask(decoder_input_ids, decoder_attention_mask)
            x = decoder(self.config, self.weights, target, target_mask, memory, mask)
        elif self.config["model_type"] == DECODER_ONLY:
            x = decoder_only(self.config, self.weights, ids, mask)
        else:
            x = encoder_only(self.config, self.weights, ids, mask)
        return logits(self.config, self.weights, x)

    def loss(self, input_ids, labels, attention_mask=None, label_smoothing: float = 0.0) -> float:
        """Nats per target token; labels (B, T) are -100 where there are none.

        An encoder-decoder is fed with its labels, one place later. A decoder-only model has the labels in its own
        input, one place earlier. An encoder-only model says what stands behind the masks, at their places.
        """
        labels = np.asarray(labels)
        if self.config["model_type"] == ENCODER_DECODER:
            fed = shift_right(labels, self.config["decoder_start_token_id"], self.config["pad_token_id"])
            return label_smoothed_loss(self(input_ids, attention_mask, fed), labels, label_smoothing)
        found = self(input_ids, attention_mask)
        if self.config["model_type"] == DECODER_ONLY:
            found, labels = found[:, :-1], labels[:, 1:]
        return label_smoothed_loss(found, labels, label_smoothing)

    def next_log_probs(self, source: list[int] | None = None) -> NextLogProbs:
        """What a search asks: the log-probabilities of all tokens behind each of n sequences, given one source (S)."""
        if self.config["model_type"] == ENCODER_ONLY:
            raise ValueError(f"{self.folder} is encoder-only: it fills gaps, and neither translates nor continues")
        if self.config["model_type"] == ENCODER_DECODER:
            ids, source_mask = with_mask([source])
            memory = encoder(self.config, self.weights, ids, source_mask)  # once, for all beams and steps

        def ask(ids: Array) -> Array:
            if self.config["model_type"] == ENCODER_DECODER:
                repeated = np.repeat(memory, len(ids), axis=0)  # (1, S, D) -> (n, S, D)
                x = decoder(self.config, self.weights, *with_mask(ids), repeated, source_mask)
            else:
                x = decoder_only(self.config, self.weights, *with_mask(ids))
            return log_softmax(logits(self.config, self.weights, x[:, -1]))  # (n, t, D) -> (n, V)

        return ask

    def search(
        self, prompt: list[int], source: list[int] | None = None, max_new: int = CONTINUED_TOKENS, **settings
    ) -> list[Hypothesis]:
        """What may follow `prompt`, best first: by greedy search if `num_beams` is 1, which is the default, else by
        beam search with its `length_penalty`, `early_stopping` and `best`."""
        ends = settings.pop("eos_token_id", self.config["eos_token_id"])
        ends = ends if isinstance(ends, list) else [ends]
        ask = self.next_log_probs(source)
        if settings.get("num_beams", 1) == 1:
            return [greedy_search(ask, prompt, ends, max_new)]
        return beam_search(ask, prompt, ends, max_new, **settings)

    def translate(self, text: str) -> str:
        """The text that `pipeline("translation")` gives: searched as generation_config.json says, for no more tokens
        than the source has, `</s>` included, and 50 on top  (section 6.1)."""
        if self.config["model_type"] != ENCODER_DECODER:
            raise ValueError(f"{self.folder} is a {self.config['model_type']}: only {ENCODER_DECODER} translates")
        if not text.strip():
            return ""
        tokenizer, settings = read_tokenizer(self.folder), dict(read_search(self.folder))
        source = encode(tokenizer, text)
        start = settings.pop("decoder_start_token_id", self.config["decoder_start_token_id"])
        longest = [settings.pop("max_length", None)]  # with the start token
        longest += [self.config["max_position_embeddings"]] if self.config["positions"] == "learned" else []
        max_new = min([len(source) + EXTRA_TOKENS, *(total - 1 for total in longest if total is not None)])
        max_new = settings.pop("max_new_tokens", max_new)
        return decode(tokenizer, self.search([start], source, max_new, **settings)[0].tokens)

    def go_on(self, text: str) -> str:
        """The text and what a decoder-only model writes behind it, by greedy search."""
        if self.config["model_type"] != DECODER_ONLY:
            raise ValueError(f"{self.folder} is a {self.config['model_type']}: only {DECODER_ONLY} can go on")
        tokenizer = read_tokenizer(self.folder)
        prompt = encode(tokenizer, text, special=False)
        if not prompt:
            raise ValueError("got an empty text: there is nothing to go on with")
        return decode(tokenizer, prompt + self.search(prompt)[0].tokens)


def with_mask(ids, mask=None) -> tuple[Array, Array]:
    """Ids and mask as arrays (B, L); without a mask all are tokens.

    Raises:
        ValueError: for what is no batch of ids.
    """
    ids = np.asarray(ids)
    if ids.ndim != 2 or 0 in ids.shape or not np.issubdtype(ids.dtype, np.integer):
        raise ValueError(f"got ids of shape {ids.shape} and type {ids.dtype}, expected whole numbers (B, L)")
    mask = np.ones_like(ids) if mask is None else np.asarray(mask)
    if mask.shape != ids.shape:
        raise ValueError(f"got a mask of shape {mask.shape} for ids of shape {ids.shape}: expected the same")
    return ids, mask
