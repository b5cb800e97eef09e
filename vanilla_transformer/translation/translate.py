"""Translating many texts: sorted by length into batches of like size, answered in the order of the question."""

import math
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from tqdm.auto import tqdm
from transformers import AutoModelForSeq2SeqLM, GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from ..data.batching import token_budget_batches
from ..interop.loading import (
    check_folder,
    check_tokenizer,
    load_tokenizer,
    load_weights,
    read_config,
)
from ..model.decoding import count_capped, output_limit, position_limit, token_limit, too_many_tokens
from ..model.tokenization_vanilla_transformer import reject_surrogates
from ..processor import emulates
from .alignments import (
    AlignmentHeads,
    Links,
    as_split,
    pieces,
    read_again,
    stacked,
    stored_heads,
    textless,
    word_weights,
    words_of,
)
from .alignments import links as links_of
from .languages import set_languages
from .packing import Packing, pack

logger = logging.get_logger(__name__)

MAX_TOKENS = 4096  # padded source tokens times beams in one batch


@dataclass(frozen=True)
class Translation:
    """One translation, and where asked for its score, log-probability of the tokens / length ** length_penalty, and
    its links, (source word, target word), from 0 on. `tokens` are the ids as the model has said them, `</s>` included
    where it came: the text, cut into tokens again, may be others."""

    text: str
    score: float | None = None
    links: Links | None = None
    tokens: tuple[int, ...] = field(default=(), repr=False, compare=False)


def load_translator(
    model: str | Path,
    dtype: str = "float32",
    device: str | None = None,
    packed: Packing | None = None,
    *,
    src_lang: str | None = None,
    tgt_lang: str | None = None,
) -> "Translator":
    """Load model and tokenizer from a folder or a Hub id.

    Args:
        dtype: of the weights, `"auto"` for that of the file.
        device: the GPU if there is one, by default, and the CPU if `packed`.
        packed: matrices of a float32 model rewritten in float32, bfloat16 or int8 for a CPU, see `packing.py`.
        src_lang, tgt_lang: languages, for a model that knows many, by the names that its tokenizer has for them.

    Raises:
        OSError: if there is no model, no tokenizer beside it, or if its weights are damaged or incomplete.
        ValueError: if it is no encoder-decoder, for what cannot be packed, and for languages, see `set_languages`.
    """
    check_folder(Path(model))
    check_tokenizer(Path(model))
    config = read_config(model)
    if not config.is_encoder_decoder:
        raise ValueError(
            f"{model} is a model of type {config.model_type!r}: expected an encoder-decoder, to translate"
        )
    if device is None:
        device = "cuda" if torch.cuda.is_available() and not packed else "cpu"
    network = load_weights(model, AutoModelForSeq2SeqLM, dtype=dtype).to(device)
    if network.device.type == "cpu" and emulates(network.dtype):
        logger.warning(
            f"this processor emulates products in {network.dtype}, which takes many times as long as float32: "
            "load the model in float32"
        )
    tokenizer = load_tokenizer(model)
    set_languages(network, tokenizer, src_lang, tgt_lang)
    return Translator(pack(network, packed) if packed else network, tokenizer)


class Translator:
    """Translates lists of texts with a sequence-to-sequence model and its tokenizer.

    Example:
        >>> translator = load_translator("runs/phrasebook/model")
        >>> [t.text for t in translator(["The old man is reading a new book."])]
        ['Le vieil homme lit un nouveau livre.']
    """

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase):
        self.model = model
        self.tokenizer = tokenizer

    def __call__(self, texts: Sequence[str], **options) -> list[Translation]:
        """The best translation of each text, in the order of `texts`; the options are those of `candidates`."""
        return [best[0] for best in self.candidates(texts, **options)]

    def candidates(
        self,
        texts: Sequence[str],
        *,
        num_beams: int | None = None,
        length_penalty: float | None = None,
        n_best: int = 1,
        scores: bool = False,
        return_alignments: bool | AlignmentHeads = False,
        max_tokens: int = MAX_TOKENS,
        truncation: bool = False,
        progress: bool = False,
        names: Sequence[str] | None = None,
        counts: Counter[str] | None = None,
    ) -> list[list[Translation]]:
        """The `n_best` candidates of each text; blank texts have blank translations.

        Args:
            num_beams, length_penalty: `None` takes the model's generation config. A beam's score is divided by
                length ** length_penalty.
            scores: fill in the scores, for which the logits of a whole batch are kept; beam search only.
            return_alignments: fill in the links, by the heads that the model names, or by those that are given.
            max_tokens: padded source tokens times beams that one batch may hold.
            truncation: cut sources that are longer than the model's positions (and say so), instead of an error.
            progress: show a bar on stderr.
            names: what messages call each text; "line 1" and so on, by default.
            counts: of what is to be warned of, to be added to: the caller gives it to `warn` once all is translated.

        Raises:
            ValueError: for beams and candidates that do not fit, and for sources that are too long.
        """
        if num_beams is None:
            num_beams = self.model.generation_config.num_beams or 1
        if num_beams < 1:
            raise ValueError(f"got num_beams={num_beams}, expected at least 1 (1 is greedy search)")
        if not 1 <= n_best <= num_beams:
            raise ValueError(f"got n_best={n_best} with num_beams={num_beams}: expected 1 <= n_best <= num_beams")
        heads = None
        if return_alignments:  # before any work
            heads = stored_heads(self.model) if return_alignments is True else return_alignments
            heads.check(self.model)
        results: list[list[Translation]] = [[Translation("")] * n_best] * len(texts)
        filled = [i for i, text in enumerate(texts) if text.strip()]
        sources = self.encode([texts[i] for i in filled])
        told: Counter[str] = Counter() if counts is None else counts
        if truncation:
            sources = self.cut(sources, told)
        else:
            self.check_lengths(sources, [names[i] if names else f"line {i + 1}" for i in filled])
        told["sources"] += len(sources)
        told["longer"] += sum(len(ids) > self.tokenizer.model_max_length for ids in sources)
        lengths = torch.tensor([len(ids) for ids in sources])
        settings = {"num_beams": num_beams, "num_return_sequences": n_best, "do_sample": False}
        settings |= dict.fromkeys(("output_scores", "return_dict_in_generate"), scores and num_beams > 1)
        if length_penalty is not None:
            settings["length_penalty"] = length_penalty
        if length_penalty is not None and not math.isfinite(length_penalty):
            raise ValueError(f"got length_penalty={length_penalty}, expected a finite number")
        if num_beams == 1 and (scores or length_penalty is not None):
            what = "scores are those" if scores else f"length_penalty={length_penalty} is a matter"
            raise ValueError(f"{what} of beam search: got num_beams=1, expected at least 2")
        if num_beams == 1:
            settings |= {"length_penalty": None, "early_stopping": None}  # unused, and generate would warn of them

        longest_first = lengths.argsort(descending=True, stable=True)  # out of memory shows at once, not at the end
        batches = token_budget_batches(lengths.numpy() * num_beams, max_tokens, longest_first.numpy())
        with tqdm(total=len(filled), unit="text", desc="translating", disable=not progress) as bar:
            for batch in batches:
                answers, cut = self.generate([sources[i] for i in batch], settings)
                told["capped"] += cut
                for i, answer in zip(batch, answers, strict=True):
                    results[filled[i]] = answer
                bar.update(len(batch))
        told["translations"] += len(filled) * n_best
        if heads:
            flat = [(text, answer) for text, answers in zip(texts, results, strict=True) for answer in answers]
            pairs, said = [(text, answer.text) for text, answer in flat], [answer.tokens for _, answer in flat]
            again: Counter[str] = Counter()  # of sources that `told` has counted already
            links = iter(self.align(pairs, heads, said=said, max_tokens=max_tokens, progress=progress, counts=again))
            told["unread"] += again["unread"]
            results = [[replace(answer, links=next(links)) for answer in answers] for answers in results]
        if counts is None:
            self.warn(told)
        return results

    def warn(self, counts: Counter[str]) -> None:
        """Say what `candidates`, `align` and `cut` have counted."""
        if counts["cut"]:
            logger.warning(
                f"{counts['cut']} sources were cut to {self.source_limit} tokens, the end of the model's positions"
            )
        if counts["longer"]:
            logger.warning(
                f"{counts['longer']} of {counts['sources']} sources are longer than the "
                f"{self.tokenizer.model_max_length} tokens that training admits: they are translated whole, but "
                "expect worse translations"
            )
        if counts["capped"]:
            logger.warning(
                f"{counts['capped']} of {counts['translations']} translations were cut at their length limit (source "
                "length + 50 tokens, section 6.1 of the paper, or what generation_config says) before they ended: "
                "they may repeat themselves"
            )
        if counts["unread"]:
            end = self.target_limit - 1  # the start token stands before them
            logger.warning(f"{counts['unread']} translations are aligned up to token {end}, the end of the positions")

    def align(
        self,
        pairs: Sequence[tuple[str, str]],
        heads: AlignmentHeads | None = None,
        *,
        said: Sequence[Sequence[int]] | None = None,
        least: float = 0.0,
        max_tokens: int = MAX_TOKENS,
        progress: bool = False,
        counts: Counter[str] | None = None,
    ) -> list[Links]:
        """The words of each source that the words of its translation come from; see `alignments.py`.

        Args:
            heads: where to look; `None` for those that the model names.
            said: the tokens of each translation, where they are known; else its text is cut into some.
            least: weight that a link has at least, 0 to 1.
            max_tokens, progress, counts: as for `candidates`.
        """
        if heads is None:
            heads = stored_heads(self.model)
        heads.check(self.model)
        found: list[Links] = [[] for _ in pairs]
        with tqdm(total=len(pairs), unit="pair", desc="aligning", disable=not progress) as bar:
            for i, cross, targets, sources in self.read_pairs(pairs, said, max_tokens, counts):
                found[i] = links_of(word_weights(heads.weights(cross), targets, sources), least)
                bar.update()
        return found

    def read_pairs(
        self,
        pairs: Sequence[tuple[str, str]],
        said: Sequence[Sequence[int]] | None = None,
        max_tokens: int = MAX_TOKENS,
        counts: Counter[str] | None = None,
    ) -> Iterator[tuple[int, np.ndarray, list[int], list[int]]]:
        """Of each pair without a blank side, in some order: its place, the cross-attention (L, H, 1 + T, S), and the
        words that target and source tokens belong to. What is beyond the model's positions is cut off, with a warning,
        or counted for `warn`.
        """
        told: Counter[str] = Counter() if counts is None else counts
        places = [i for i, pair in enumerate(pairs) if all(text.strip() for text in pair)]
        sources = self.cut(self.encode([pairs[i][0] for i in places]), told)
        if said is not None:
            targets = [list(said[i]) for i in places]
        else:
            targets = self.tokenizer(text_target=[pairs[i][1] for i in places])["input_ids"] if places else []
        limit = self.target_limit
        told["unread"] += sum(len(target) >= limit for target in targets)
        targets = [target[: limit - 1] for target in targets]
        if counts is None:
            self.warn(told)
        lengths = np.array([max(len(s), len(t)) for s, t in zip(sources, targets, strict=True)])
        special = textless(self.tokenizer)
        # An unknown word of a text is one of its words; one that the model has said is left out of its text.
        unsaid = special if said is None else set(self.tokenizer.all_special_tokens)
        for batch in token_budget_batches(lengths, max_tokens, lengths.argsort(kind="stable")):
            inputs, read = (
                self.tokenizer.pad({"input_ids": [side[i] for i in batch]}, return_tensors="pt", padding_side="right")
                for side in (sources, targets)
            )
            output = read_again(self.model, inputs.to(self.model.device), read["input_ids"].to(self.model.device))
            for row, i in enumerate(batch):
                source, target = pairs[places[i]]
                of_source = words_of(pieces(self.tokenizer, sources[i], source=True), special)
                of_target = words_of(pieces(self.tokenizer, targets[i]), unsaid)
                cross = stacked(output.cross_attentions, row)[:, :, : 1 + len(targets[i]), : len(sources[i])]
                yield places[i], cross, as_split(of_target, target), as_split(of_source, source)

    def encode(self, texts: list[str]) -> list[list[int]]:
        """Token ids of each text. Raises: ValueError, for a tokenizer of another model."""
        for text in texts:
            reject_surrogates(text)
        sources = self.tokenizer(texts, verbose=False)["input_ids"] if texts else []
        known = token_limit(self.model.get_encoder())
        if (largest := max((max(ids, default=0) for ids in sources), default=0)) >= known:
            raise too_many_tokens(
                f"the tokenizer, of {len(self.tokenizer)} tokens, makes the token {largest} of a text", known
            )
        return sources

    @property
    def source_limit(self) -> int:
        """Tokens that a source may have."""
        return position_limit(self.model.get_encoder(), self.model.config) or sys.maxsize

    @property
    def target_limit(self) -> int:
        """Tokens that a translation may have, with the start token before it."""
        return position_limit(self.model.get_decoder(), self.model.config) or sys.maxsize

    def check_lengths(self, sources: list[list[int]], names: Sequence[str]) -> None:
        """Raises: ValueError, for sources that are longer than the model's positions."""
        too_long = [i for i, ids in enumerate(sources) if len(ids) > self.source_limit]
        if too_long:
            first = too_long[0]
            raise ValueError(
                f"{names[first]} has {len(sources[first])} tokens, but positions end at {self.source_limit} "
                f"({len(too_long)} such lines): split the sentences, or cut them with `translate --truncate`, "
                "truncation=True in Python"
            )

    def cut(self, sources: list[list[int]], counts: Counter[str] | None = None) -> list[list[int]]:
        """Sources without what is beyond the model's positions, with a warning, or counted for `warn`."""
        limit = self.source_limit
        told: Counter[str] = Counter() if counts is None else counts
        told["cut"] += sum(len(ids) > limit for ids in sources)
        if counts is None:
            self.warn(told)
        special = set(self.tokenizer.all_special_ids) - {self.tokenizer.unk_token_id}

        def cut(ids: list[int]) -> list[int]:
            text = len(ids)
            while text and ids[text - 1] in special:  # what closes a source stays: </s>, of mBART the language as well
                text -= 1
            closing = ids[text:][-limit:]
            return ids[: limit - len(closing)] + closing

        return [ids if len(ids) <= limit else cut(ids) for ids in sources]

    @torch.inference_mode()
    def generate(self, batch: list[list[int]], settings: dict) -> tuple[list[list[Translation]], int]:
        """Candidates of one batch, and how many of them were cut."""
        inputs = self.tokenizer.pad({"input_ids": batch}, return_tensors="pt").to(self.model.device)
        limit = output_limit(self.model, longest_source=max(len(ids) for ids in batch))
        # Of the two, the one that is heard where a checkpoint sets the other.
        output = self.model.generate(**inputs, **settings, max_new_tokens=limit - 1, max_length=None)
        sequences = output if isinstance(output, torch.Tensor) else output.sequences  # with scores, where asked for
        # As the pipeline and `pieces` do it: saved tokenizers may ask for "Vrai?" in place of "Vrai ?", a word fewer.
        texts = self.tokenizer.batch_decode(sequences, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        scores = getattr(output, "sequences_scores", None)
        scores = [None] * len(texts) if scores is None else scores.tolist()
        config = self.model.generation_config
        said = [tokens_said(row, config) for row in sequences.tolist()]
        flat = [Translation(text, score, tokens=ids) for text, score, ids in zip(texts, scores, said, strict=True)]
        n_best = settings["num_return_sequences"]
        answers = [flat[i : i + n_best] for i in range(0, len(flat), n_best)]
        ends = (config.eos_token_id, config.pad_token_id, config.forced_eos_token_id)
        return answers, count_capped(sequences, limit, *ends)


def tokens_said(row: list[int], config: GenerationConfig) -> tuple[int, ...]:
    """A row of `generate` without the start token before it and the padding behind it."""
    ends = config.eos_token_id if isinstance(config.eos_token_id, list) else [config.eos_token_id]
    said = row[1:]
    last = next((place for place, token in enumerate(said) if token in ends), None)
    if last is None:
        while said and said[-1] == config.pad_token_id:
            said.pop()
        return tuple(said)
    return tuple(said[: last + 1])
