"""Scoring a model on a source file and its reference translation."""

import dataclasses
import json
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from ..data.checks import CorpusReport
from ..data.corpora import read_corpus, whole_lines
from ..interop.loading import digest_of_weights
from ..translation import load_translator
from ..translation.packing import Packing
from ..translation.shares import in_shares, processes_of_launch
from .metrics import Score, check_moses, moses_bleu, translation_scores


def search_of(settings: dict) -> str:
    """How was decoded, in words."""
    beams = settings["num_beams"]
    return "greedy" if beams == 1 else f"beam {beams}, score / length ** {settings['length_penalty']}"


@dataclass(frozen=True)
class Example:
    source: str
    translation: str
    reference: str


@dataclass(frozen=True)
class Evaluation:
    """Scores of one model on one test set, with what they depend on."""

    model: str
    weights: str | None  # see `digest_of_weights`
    source: str
    reference: str
    pairs: int
    seconds: float
    settings: dict
    scores: list[Score]
    examples: list[Example]

    def table(self) -> str:
        rows = [f"{score.name:<10} {score.score:6.2f}  {score.signature}" for score in self.scores]
        rows.append(f"{'length':<10} {self.scores[0].length_ratio:6.3f}  tokens (13a) for each of the reference")
        return "\n".join([f"{self.pairs} sentences, {search_of(self.settings)}, {self.seconds:.1f} s", *rows])

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=2, ensure_ascii=False)


def evaluate_files(
    model: str,
    source: Path,
    reference: Path,
    *,
    dtype: str = "float32",
    packed: Packing | None = None,
    src_lang: str | None = None,
    tgt_lang: str | None = None,
    moses: str | None = None,
    **options,
) -> Evaluation:
    """Translate `source` and compare with `reference`, line by line; `options` are those of `Translator.candidates`,
    `dtype`, `packed` and languages those of `load_translator`. With a language for `moses`, the scores of
    `moses_bleu` are there as well.

    Pairs with an empty side are left out, and counted aloud. The processes of `accelerate launch` divide the rest.
    """
    if moses:
        check_moses(moses)
    processes = processes_of_launch()
    options["progress"] = options.get("progress", False) and processes.is_main_process
    report = CorpusReport()
    pairs = read_corpus([str(source), str(reference)], "source", "reference", report=report)
    report.warn()
    translator = load_translator(model, dtype, packed=packed, src_lang=src_lang, tgt_lang=tgt_lang)
    sources, references = list(pairs["source"]), list(pairs["target"])
    names = [f"{source}, line {number}" for number in whole_lines(source, reference)]
    start = time.perf_counter()

    def work(share: list[tuple[str, str]]) -> list[str]:
        texts, places = ([row[side] for row in share] for side in (0, 1))
        return [translation.text for translation in translator(texts, names=places, **options)]

    translations = in_shares(work, list(zip(sources, names, strict=True)))
    seconds = time.perf_counter() - start
    defaults = translator.model.generation_config
    settings = {
        "dtype": dtype,
        "packed": packed,
        "src_lang": src_lang,
        "tgt_lang": tgt_lang,
        "device": str(translator.model.device),
        "processes": processes.num_processes,
        "threads": torch.get_num_threads(),
        "num_beams": options.get("num_beams") or defaults.num_beams or 1,
        "length_penalty": next(
            penalty for penalty in (options.get("length_penalty"), defaults.length_penalty, 1.0) if penalty is not None
        ),
        "truncation": options.get("truncation", False),
    }
    scores = translation_scores(translations, references)
    scores += [moses_bleu(translations, references, moses)] if moses else []
    return Evaluation(
        model=model,
        weights=digest_of_weights(model),
        source=str(source),
        reference=str(reference),
        pairs=len(pairs),
        seconds=seconds,
        settings=settings,
        scores=scores,
        examples=[Example(*row) for row in zip(sources, translations, references, strict=True)],
    )
