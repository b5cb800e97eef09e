"""Greedy search and beam search (section 6.1), for one sentence, on top of any `log_probs` of the next token."""

from collections.abc import Callable, Collection
from typing import Literal, NamedTuple

import numpy as np

from .attention import Array

# (n, t), n sequences of t tokens -> (n, V), the logarithm of the probability of each token that may follow.
NextLogProbs = Callable[[Array], Array]


class Hypothesis(NamedTuple):
    """What a search found: the tokens behind the prompt, `</s>` included where it came so far."""

    tokens: list[int]
    score: float


def greedy_search(next_log_probs: NextLogProbs, prompt: list[int], ends: Collection[int], max_new: int) -> Hypothesis:
    """y_t = argmax_v p(v | y_<t), until one of `ends`, or `max_new` tokens; its score is the sum of log p(y_t)."""
    tokens: list[int] = []
    score = 0.0
    while len(tokens) < max_new and not (tokens and tokens[-1] in ends):
        log_p = next_log_probs(np.array([prompt + tokens]))[0]  # log_p: (V,)
        tokens.append(int(log_p.argmax()))
        score += float(log_p[tokens[-1]])
    return Hypothesis(tokens, score)


def beam_search(
    next_log_probs: NextLogProbs,
    prompt: list[int],
    ends: Collection[int],
    max_new: int,
    num_beams: int = 4,
    length_penalty: float = 1.0,
    early_stopping: bool | Literal["never"] = True,
    best: int = 1,
) -> list[Hypothesis]:
    """The `best` of `num_beams` hypotheses, which maximise

        sum_t log p(y_t | y_<t) / len(y)^length_penalty,    </s> counted in len(y)

    as in `generate` of transformers, token by token. The paper (section 6.1, after Wu et al. 2016) divides by
    ((5 + len(y)) / 6)^alpha instead, with alpha = 0.6: that is no value of `length_penalty`.

    Each of the k beams is continued by all V tokens. The k best continuations of all decide what has ended: those of
    them that end with one of `ends` are put by, ranked by their score. The k best that have not ended live on. What
    ends at rank k + 1 or lower is neither: this keeps a bad early end from being put by for want of a better.

    Args:
        early_stopping: when k hypotheses are put by, True ends the search. False goes on while the best living beam,
            scored at its present length, would beat the worst of the k; "never" scores it at the greatest length that
            it may yet have, if longer ones are favoured, and so misses nothing.
    """
    living = [Hypothesis([], 0.0)]  # scores of the living are plain sums
    ended: list[Hypothesis] = []  # the k best so far, best first, by the score above
    for length in range(1, max_new + 1):
        log_p = next_log_probs(np.array([prompt + beam.tokens for beam in living]))  # log_p: (k, V), in the end
        sums = log_p + np.array([beam.score for beam in living])[:, None]
        # With e ends, k e of the candidates can be ends: there are k more to live on.
        candidates = []
        for place in np.argsort(-sums, axis=None, kind="stable")[: num_beams * max(2, 1 + len(ends))]:
            beam, token = np.unravel_index(place, sums.shape)
            candidates.append(Hypothesis([*living[beam].tokens, int(token)], float(sums[beam, token])))

        is_over = [length == max_new or candidate.tokens[-1] in ends for candidate in candidates]
        ended += [
            Hypothesis(candidate.tokens, candidate.score / length**length_penalty)
            for candidate, over in zip(candidates[:num_beams], is_over, strict=False)
            if over
        ]
        ended = sorted(ended, key=lambda found: -found.score)[:num_beams]
        living = [candidate for candidate, over in zip(candidates, is_over, strict=True) if not over]
        living = living[:num_beams]
        if not living or (len(ended) == num_beams and early_stopping is True):
            break
        reach = max_new if early_stopping == "never" and length_penalty > 0 else length
        if len(ended) == num_beams and living[0].score / reach**length_penalty <= ended[-1].score:
            break
    return ended[:best]
