"""Batches by token budget (section 5.1: sentence pairs batched together by approximate length)."""

from collections.abc import Iterator

import numpy as np
from torch.utils.data import Sampler


def token_budget_batches(lengths: np.ndarray, max_tokens: int, order: np.ndarray) -> list[np.ndarray]:
    """Cut `order` into runs whose padded size, number of pairs times longest pair, is at most `max_tokens`.

    Worked example: lengths 3, 3, 4, 9 in this order with max_tokens=12 give [0, 1, 2] (3 pairs of 4 = 12) and [3].
    """
    cuts, start, longest = [], 0, 0
    for place, length in enumerate(lengths[order].tolist()):
        longest = max(longest, length)
        if place > start and longest * (place - start + 1) > max_tokens:
            cuts.append(place)
            start, longest = place, length
    return np.split(order, cuts) if len(order) else []


class TokenBudgetSampler(Sampler[list[int]]):
    """A batch sampler: pairs of like length together, at most `max_tokens` padded tokens on either side.

    Every epoch has an order of its own that depends on nothing but `seed` and the epoch's number: a training that
    resumes in the middle of an epoch skips what it has seen and meets the very same batches after it.

    Args:
        lengths: (pairs, 2) or (pairs,), lengths in tokens; a pair counts with its longer side.
        max_tokens: budget of padded tokens a side.
        multiple: of what the number of batches is to be: of those that make one update of all processes. Some large
            batches are halved for it; where all are of one pair, an epoch ends with some that it began with.

    Raises:
        ValueError: for a pair that alone exceeds the budget.
    """

    # Read by accelerate, which shards a batch sampler across processes.
    batch_size = None
    drop_last = False

    def __init__(self, lengths, max_tokens: int, seed: int, multiple: int = 1):
        lengths = np.asarray(lengths)
        self.lengths = lengths.max(axis=1) if lengths.ndim == 2 else lengths
        longest = int(self.lengths.argmax())
        if self.lengths[longest] > max_tokens:
            raise ValueError(
                f"pair {longest} has {self.lengths[longest]} tokens on a side, more than a whole batch of "
                f"max_tokens={max_tokens}: raise the budget, or lower the corpus's max_length"
            )
        self.max_tokens = max_tokens
        self.seed = seed
        self.multiple = multiple
        self.set_epoch(0)

    def set_epoch(self, epoch: int) -> None:
        rng = np.random.default_rng((self.seed, epoch))
        shuffled = rng.permutation(len(self.lengths))  # pairs of one length meet other neighbours in each epoch
        by_length = shuffled[np.argsort(self.lengths[shuffled], kind="stable")]
        batches = token_budget_batches(self.lengths, self.max_tokens, by_length)
        while len(batches) % self.multiple:
            largest = max(range(len(batches)), key=lambda i: len(batches[i]))
            if len(batches[largest]) == 1:
                break
            batches[largest : largest + 1] = np.array_split(batches[largest], 2)
        order = rng.permutation(len(batches))
        self.batches = [batches[i] for i in np.resize(order, -(-len(order) // self.multiple) * self.multiple)]

    def __iter__(self) -> Iterator[list[int]]:
        return (batch.tolist() for batch in self.batches)

    def __len__(self) -> int:
        return len(self.batches)
