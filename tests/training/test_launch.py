"""What `train` starts itself when a recipe asks for several processes."""

import os
import signal
import time
from pathlib import Path

import pytest
import torch

from vanilla_transformer.training.launch import launch, processes_to_start


def note(folder: Path, code: int) -> int:
    rank, number = os.environ["RANK"], os.environ["WORLD_SIZE"]
    (folder / rank).write_text(f"{number} {torch.get_num_threads()}")
    return code if rank == "1" else 0


def fall(folder: Path) -> int:
    if os.environ["RANK"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(1)
    return 0


@pytest.mark.parametrize("code", [0, 3])
def test_all_work_and_the_code_is_of_the_one_that_fails(tmp_path, code):
    before = torch.get_num_threads()
    torch.set_num_threads(5)
    try:
        assert launch(note, (tmp_path, code), 2) == code
    finally:
        torch.set_num_threads(before)
    assert [(tmp_path / rank).read_text() for rank in "01"] == ["2 2", "2 2"]
    assert "WORLD_SIZE" not in os.environ
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_one_that_was_killed_is_told_of(tmp_path, capsys):
    assert launch(fall, (tmp_path,), 2) == 128 + signal.SIGKILL
    assert "process 1 terminated with signal SIGKILL" in capsys.readouterr().err


def test_one_process_where_several_would_not_help(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1}, raising=False)
    assert [processes_to_start(wanted) for wanted in (1, 2, 3)] == [1, 2, 1]
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert processes_to_start(2) == 1
    monkeypatch.delenv("WORLD_SIZE")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert processes_to_start(2) == 1
