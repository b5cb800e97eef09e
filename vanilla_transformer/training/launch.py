"""Several processes on the cores of one machine, without a launcher: two of one thread each keep two cores busier than
one of two threads does, which wait for each other at the end of every small product."""

import os
import signal
import socket
import sys
from collections.abc import Callable

import torch
from torch.multiprocessing import ProcessExitedException, start_processes

PATIENCE = 60  # seconds that the others have to end by themselves once one has ended badly


def processes_to_start(wanted: int) -> int:
    """`wanted`, or 1: on a GPU, where there are fewer cores, and for what a launcher has started already."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return 1 if "WORLD_SIZE" in os.environ or torch.cuda.is_available() or cores < wanted else wanted


def launch(work: Callable[..., int], arguments: tuple, number: int) -> int:
    """`work(*arguments)` in `number` new processes that know of each other, as those of `torchrun` do.

    Each has its share of this one's threads. Ctrl-C and SIGTERM are for them to answer.

    Returns:
        Their exit code: of the first that failed, if any did.
    """
    threads = max(1, torch.get_num_threads() // number)
    start = (number, free_port(), threads, work, arguments)
    group = start_processes(as_rank, start, number, join=False, start_method="spawn")

    def pass_on(signum, frame):
        for process in group.processes:
            process.terminate()

    answers: dict[int, Callable | signal.Handlers] = {
        signal.SIGINT: signal.SIG_IGN,
        signal.SIGTERM: pass_on,
    }  # a terminal's Ctrl-C reaches all by itself
    before = {signum: signal.signal(signum, answer) for signum, answer in answers.items()}
    try:
        while not group.join(grace_period=PATIENCE):
            pass
    except ProcessExitedException as error:
        if error.exit_code < 0:
            print(f"{error}: it was stopped from outside, for want of memory perhaps", file=sys.stderr)
            return 128 - error.exit_code
        return error.exit_code
    finally:
        for signum, answer in before.items():
            signal.signal(signum, answer)
    return 0


def as_rank(rank: int, number: int, port: int, threads: int, work: Callable[..., int], arguments: tuple) -> None:
    """What each of the new processes does."""
    names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": number, "LOCAL_WORLD_SIZE": number, "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in names.items()}, MASTER_ADDR="127.0.0.1")
    torch.set_num_threads(threads)
    raise SystemExit(work(*arguments))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
