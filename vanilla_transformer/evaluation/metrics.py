"""BLEU, chrF2 and TER by sacreBLEU, each with the signature that makes it comparable (Post 2018)."""

from collections.abc import Sequence
from dataclasses import dataclass

import datasets
import evaluate
from sacrebleu.metrics import BLEU, CHRF, TER


@dataclass(frozen=True)
class Score:
    """A corpus score on a scale of 100, and the sacreBLEU signature of how it was computed.

    BLEU has a `length_ratio` as well, the tokens of the translations for each one of their references. Below 1 it
    loses to its brevity penalty, and well above to precision: a matter of the length penalty of beams.
    """

    name: str
    score: float
    signature: str
    length_ratio: float | None = None


METRICS = {"BLEU": BLEU, "chrF2": CHRF, "TER": TER}


def check_sides(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    if len(hypotheses) != len(references) or not hypotheses:
        raise ValueError(
            f"got {len(hypotheses)} hypotheses and {len(references)} references: expected as many of the one as of "
            "the other, and at least one"
        )


def translation_scores(
    hypotheses: Sequence[str], references: Sequence[str], names: Sequence[str] = tuple(METRICS)
) -> list[Score]:
    """Corpus scores of detokenised text: BLEU (13a) and chrF2, cased, the higher the better, and TER, which sacreBLEU
    takes of lower-cased text, the lower.

    Raises:
        ValueError: if there are no sentences, or not as many hypotheses as references.
    """
    check_sides(hypotheses, references)
    scores = []
    for name in names:
        metric = METRICS[name]()
        result = metric.corpus_score(list(hypotheses), [list(references)])
        scores.append(Score(name, result.score, str(metric.get_signature()), getattr(result, "ratio", None)))
    return scores


def moses_bleu(hypotheses: Sequence[str], references: Sequence[str], language: str) -> Score:
    """BLEU as papers on Multi30k give it (Wu et al. 2021, say): of lower-cased text in the tokens of Moses.

    Both sides are lower-cased, their punctuation is normalised and they are tokenised by sacremoses with its default
    flags; BLEU then splits at spaces alone. Not to be compared with 13a, which is some points lower.

    Args:
        language: of the text, such as "de", whose abbreviations and quotes Moses knows.

    Raises:
        ImportError, ValueError: those of `check_moses`.
        ValueError: if there are no sentences, or not as many hypotheses as references.
    """
    check_moses(language)
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    check_sides(hypotheses, references)
    normalizer, tokenizer = MosesPunctNormalizer(lang=language), MosesTokenizer(lang=language)

    def tokens(text: str) -> str:
        return tokenizer.tokenize(normalizer.normalize(text.lower()), return_str=True)

    metric = BLEU(tokenize="none", force=True)  # the text is in tokens, which sacreBLEU would warn of
    result = metric.corpus_score([tokens(text) for text in hypotheses], [[tokens(text) for text in references]])
    signature = f"lang:{language}|lower-cased, Moses|{metric.get_signature()}"
    return Score("BLEU-moses", result.score, signature, result.ratio)


def check_moses(language: str) -> None:
    """Raise, before any work, where `moses_bleu` cannot be had.

    Raises:
        ImportError: without sacremoses (the extra `moses`).
        ValueError: for a language without a list of abbreviations, which sacremoses would take for English.
    """
    try:
        from sacremoses.corpus import NonbreakingPrefixes
    except ImportError as error:
        raise ImportError(
            "BLEU on tokens of Moses needs sacremoses: pip install 'vanilla-transformer[moses]'"
        ) from error
    known = set(NonbreakingPrefixes().available_langs.values())
    if language not in known:
        raise ValueError(
            f"got {language!r} for the language of Moses's tokens, expected one of {', '.join(sorted(known))}"
        )


def exact_match(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Share of translations that equal their reference to the letter, in percent."""
    return 100 * sum(h == r for h, r in zip(hypotheses, references, strict=True)) / len(references)


class TranslationMetric(evaluate.Metric):
    """The same scores as an `evaluate.Metric`, which needs no download: `TranslationMetric().compute(predictions=...,
    references=...)` gives `{"bleu": ..., "bleu_signature": ..., "chrf2": ..., "ter": ..., ...}`."""

    def _info(self):
        return evaluate.MetricInfo(
            description="BLEU, chrF2 and TER by sacreBLEU, with signatures",
            citation="Post 2018, A Call for Clarity in Reporting BLEU Scores",
            features=datasets.Features(
                {"predictions": datasets.Value("string"), "references": datasets.Value("string")}
            ),
        )

    def _compute(self, predictions, references):
        result: dict[str, float | str] = {}
        for score in translation_scores(predictions, references):
            result |= {score.name.lower(): score.score, f"{score.name.lower()}_signature": score.signature}
        return result
