"""Work that is divided among the processes of one launch, and put together again."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from accelerate import PartialState

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_shares(work: Callable[[list[Item]], list[Result]], items: Sequence[Item]) -> list[Result]:
    """`work(items)`, one result for each item, of which each process does every n-th; all get all, in order.

    Example:
        Of three processes the second does items 1, 4, 7, ...
    """
    processes = PartialState()
    number, rank = processes.num_processes, processes.process_index
    if number == 1:
        return work(list(items))
    shares: list = [None] * number
    torch.distributed.all_gather_object(shares, work(list(items[rank::number])))
    results: list = [None] * len(items)
    for rank, share in enumerate(shares):
        results[rank::number] = share
    return results
