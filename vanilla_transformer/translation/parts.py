"""A long output in parts, a file each in OUTPUT.parts/ until all of them are there: whoever is killed loses one part,
and several processes write different ones."""

import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TypeVar

from accelerate import PartialState
from tqdm.auto import tqdm

from ..data.whole_files import TMP, write_whole

PART = 2000  # lines of the input at most
SIZE, WHOLE = "lines of a part", "whole"
Line = TypeVar("Line")


def parts_of(output: Path) -> Path:
    """Where its parts are, in the same file system."""
    return output.with_name(f"{output.name}.parts")


class Parts:
    """The parts of `output`, of which this process does every n-th that is not there yet.

    Args:
        asked: what decides about the output, as JSON knows it: parts that were written for anything else do not count.
        lines: of the input.
        processes: that divide the work.

    Raises:
        ValueError: if there are parts of another translation, or something else than parts.
    """

    def __init__(self, output: Path, asked: dict, lines: int, processes: PartialState):
        self.processes, self.output, self.lines = processes, output.resolve(), lines  # of a link, where it leads to
        self.folder = parts_of(self.output)
        note, asked = self.folder / "asked.json", json.loads(json.dumps(asked))
        if self.processes.is_main_process:
            if foreign := sorted({path.name for path in self.entries()} - {path.name for path in self.own()}):
                raise ValueError(
                    f"{self.folder} holds something else than parts of a translation ({', '.join(foreign)}): write to "
                    "another file"
                )
            before = json.loads(note.read_text("utf-8")) if note.exists() else {}  # what nobody knows of is another's
            size = min(PART, max(1, -(-lines // processes.num_processes)))  # something for everybody
            begun = any(self.folder.glob(f"{'[0-9]' * 6}.txt"))
            asked[SIZE] = before.get(SIZE, size) if begun else size  # others may go on with it
            if begun and before != asked:
                other = sorted(name for name in {*before, *asked} if before.get(name) != asked.get(name))
                raise ValueError(
                    f"{self.folder} holds parts of another translation, which differs in {', '.join(other)}: delete "
                    "that folder, or write to another file"
                )
            self.folder.mkdir(exist_ok=True)
            if before != asked:
                write_whole(note, json.dumps(asked, indent=2))
        self.processes.wait_for_everyone()
        self.size = json.loads(note.read_text("utf-8"))[SIZE]
        count = -(-lines // self.size)
        self.all = [self.folder / f"{number:06}.txt" for number in range(count)]
        self.names = self.all[self.processes.process_index :: self.processes.num_processes]
        self.there = {name for name in self.all if name.exists()}
        if self.there and self.processes.is_main_process:
            tqdm.write(f"{len(self.there)} of {count} parts are there already")

    def entries(self) -> list[Path]:
        return list(self.folder.iterdir()) if self.folder.exists() else []

    def own(self) -> list[Path]:
        """Of what is in the folder, that which this class puts there; the rest is not touched."""
        names = rf"(?:{TMP})?(?:\d{{6}}\.txt|asked\.json)|{WHOLE}"
        return [path for path in self.entries() if path.is_file() and re.fullmatch(names, path.name)]

    def open_lines(self) -> int:
        """How many lines this process has before it."""
        starts = (int(name.stem) * self.size for name in self.names if name not in self.there)
        return sum(min(self.size, self.lines - start) for start in starts)

    def chunks(self, lines: Iterable[Line]) -> Iterator[tuple[Path, list[Line]]]:
        """The parts to be written by this process, each with its lines of the whole input.

        Raises:
            ValueError: if the input has become shorter.
        """
        lines, mine = iter(lines), set(self.names) - self.there
        for number, name in enumerate(self.all):
            chunk = list(islice(lines, self.size))
            if len(chunk) != min(self.size, self.lines - number * self.size):
                raise ValueError("the input has changed while it was translated: leave it alone, and begin again")
            if name in mine:
                yield name, chunk

    def join(self) -> None:
        """Put them together in the place of `output` when all processes are done."""
        self.processes.wait_for_everyone()
        if self.processes.is_main_process:
            whole = self.folder / WHOLE
            with whole.open("wb") as file:
                for part in self.all:
                    with part.open("rb") as text:
                        shutil.copyfileobj(text, file)
                file.flush()
                os.fsync(file.fileno())  # before the parts are gone
            os.replace(whole, self.output)
            for path in self.own():
                path.unlink()
            if not self.entries():
                self.folder.rmdir()
        self.processes.wait_for_everyone()
