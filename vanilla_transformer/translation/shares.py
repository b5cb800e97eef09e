"""Work that is divided among the processes of one launch, and put together again."""

import atexit
import shlex
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TypeVar

import torch
from accelerate import PartialState

Item = TypeVar("Item")
Result = TypeVar("Result")


PATIENCE = timedelta(days=30)  # that processes wait for the last one, or for the one that tokenizes a large corpus


def processes_of_launch() -> PartialState:
    """The processes that `accelerate launch` has started together, or this one alone."""
    processes = PartialState(cpu=not torch.cuda.is_available(), timeout=PATIENCE)
    atexit.register(leave)
    return processes


def command_line(words: Sequence[str], processes: int) -> str:
    """What to type for `vanilla-transformer WORDS` in so many processes."""
    launch = ["accelerate", "launch", "--multi_gpu", "--num_processes", str(processes), "-m", "vanilla_transformer"]
    return shlex.join([*(launch if processes > 1 else ["vanilla-transformer"]), *words])


def leave() -> None:
    """Ends the group. The threads of a group that is left to the end of the interpreter may abort it, and a launcher
    then kills the other processes at their work."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        time.sleep(0.2)  # a thread of torch 2.6 needs the interpreter's lock to end its last work, and is waited for
        torch.distributed.destroy_process_group()


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
