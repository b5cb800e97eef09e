"""How good word alignments are, where somebody knows the true links."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..translation import Translator
from ..translation.alignments import AlignmentHeads, Links, split_words


@dataclass(frozen=True)
class AlignmentScore:
    """Alignment error rates, 0 (all links found, no other) to 1, over all sentences and over those whose links cross;
    each beside that of the diagonal, which has read nothing."""

    error_rate: float
    diagonal: float
    crossing_error_rate: float
    crossing_diagonal: float
    sentences: int
    crossing_sentences: int

    def __str__(self) -> str:
        return (
            f"alignment error rate {self.error_rate:.3f} (diagonal {self.diagonal:.3f}), "
            f"of {self.crossing_sentences} of {self.sentences} sentences whose links cross "
            f"{self.crossing_error_rate:.3f} ({self.crossing_diagonal:.3f})"
        )


def score_alignments(
    translator: Translator,
    sources: Sequence[str],
    targets: Sequence[str],
    sure: Sequence[Links],
    heads: AlignmentHeads | None = None,
) -> AlignmentScore:
    """Align each source with its target, and compare with the true links."""
    found = translator.align(list(zip(sources, targets, strict=True)), heads)
    lengths = [[len(split_words(text)) for text in pair] for pair in zip(sources, targets, strict=True)]
    straight = [diagonal(*pair) for pair in lengths]
    sure = [[(source, target) for source, target in links] for links in sure]
    crossing = [i for i, links in enumerate(sure) if crosses(links)]

    def rate(links: Sequence[Links], rows: Sequence[int]) -> float:
        return error_rate([links[i] for i in rows], [sure[i] for i in rows])

    everything = range(len(sure))
    return AlignmentScore(
        rate(found, everything),
        rate(straight, everything),
        rate(found, crossing),
        rate(straight, crossing),
        sentences=len(sure),
        crossing_sentences=len(crossing),
    )


def error_rate(found: Sequence[Links], sure: Sequence[Links]) -> float:
    """1 - 2 |A & S| / (|A| + |S|), of all links found, A, and all true ones, S  (Och and Ney 2003)."""
    both = sum(len(set(a) & set(s)) for a, s in zip(found, sure, strict=True))
    return 1 - 2 * both / max(1, sum(len(set(a)) + len(set(s)) for a, s in zip(found, sure, strict=True)))


def diagonal(sources: int, targets: int) -> Links:
    """Each target word comes from the place that is as far along: of 4 and 2 words, 0-0 2-1."""
    return [(target * sources // targets, target) for target in range(targets)]


def crosses(links: Links) -> bool:
    """Whether some word comes later in the target than another, and earlier in the source."""
    return any(a[0] < b[0] and a[1] > b[1] for a in links for b in links)
