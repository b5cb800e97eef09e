"""Files that are whole or not there at all, whatever happens while they are written."""

import os
from collections.abc import Iterable
from pathlib import Path

TMP = "tmp-"  # before the name of what is being written


def write_whole(file: Path, text: str | Iterable[str]) -> None:
    """Text, or its pieces one after another, under its name at once: contents to disk first, then the name."""
    aside = file.with_name(f"{TMP}{file.name}")
    with aside.open("w", encoding="utf-8") as out:
        out.writelines([text] if isinstance(text, str) else text)
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
