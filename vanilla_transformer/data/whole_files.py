"""Files that are whole or not there at all, whatever happens while they are written."""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from datasets.config import HF_DATASETS_CACHE

TMP = "tmp-"  # before the name of what is being written


def write_whole(file: Path, text: str | Iterable[str]) -> None:
    """Text, or its pieces one after another, under its name at once: contents to disk first, then the name."""
    pieces = [text] if isinstance(text, str) else text
    if file.exists() and not file.is_file():  # /dev/stdout, say, whose name is not to be taken
        with file.open("w", encoding="utf-8") as out:
            out.writelines(pieces)
        return
    aside = file.with_name(f"{TMP}{file.name}")
    with aside.open("w", encoding="utf-8") as out:
        out.writelines(pieces)
        out.flush()
        os.fsync(out.fileno())
    os.replace(aside, file)


def sync(path: Path) -> None:
    """What was written to a file or folder is on the disk, and stays through a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def room_left(place: Path) -> str:
    """What is told of a full disk: what is left at `place`, which need not exist, and where `datasets` writes."""

    def left(place: Path) -> str:
        folder = next(folder for folder in (place, *place.parents) if folder.is_dir())
        return f"{shutil.disk_usage(folder).free / 1e6:.0f} MB left in {folder}"

    return (
        f"{left(place.absolute())}, {left(Path(HF_DATASETS_CACHE))}, where `datasets` keeps what it has read: make "
        "room, or move the latter with HF_DATASETS_CACHE=DIR, and give the same command again, `train` with --resume"
    )
