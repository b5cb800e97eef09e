"""Files that are whole or not there at all, whatever happens while they are written, and whoever else would write."""

import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile

from filelock import FileLock, Timeout

TMP = "tmp-"  # before the name of what is being written


def write_whole(file: Path, text: str | Iterable[str]) -> None:
    """Text, or its pieces one after another, under its name at once: contents to disk first, then the name."""
    pieces = [text] if isinstance(text, str) else text
    if file.exists() and not file.is_file():  # /dev/stdout, say, whose name is not to be taken
        with file.open("w", encoding="utf-8") as out:
            out.writelines(pieces)
        return
    file = file.resolve()  # of a link, where it leads to
    aside = file.with_name(f"{TMP}{file.name}")
    with aside.open("w", encoding="utf-8") as out:
        out.writelines(pieces)
        out.flush()
        os.fsync(out.fileno())
    os.replace(aside, file)


def check_output(output: Path | None, overwrite: bool) -> None:
    """Raise, before any work, for a file that cannot or must not be written."""
    if output is None:
        return
    if output.is_dir():
        raise IsADirectoryError(f"{output} is a folder: name a file to write")
    # /dev/stdout may lead to a file, which is not to be replaced while it is written to.
    if output.absolute().parent.parts[1:2] == ("proc",) or output.absolute().parent in (Path("/dev"), Path("/dev/fd")):
        raise ValueError(f"{output} is not a file of its own, which could be replaced: name a file")
    if output.exists() and not output.is_file():
        raise ValueError(
            f"{output} is a device or a pipe, which cannot be replaced by a file: write to standard output"
        )
    if output.exists() and not overwrite:
        raise FileExistsError(f"{output} exists: replace it with --overwrite, or choose another name")
    folder = output.resolve().parent  # of a link, where it leads to
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is no folder: create it, or choose another one")
    check_writable(folder)


def check_writable(folder: Path) -> None:
    """Raise `OSError` for a folder into which nothing can be written."""
    try:
        TemporaryFile(dir=folder).close()
    except OSError as error:
        raise OSError(
            error.errno, f"nothing can be written into {folder}, choose another -o: {error.strerror}"
        ) from error


@contextmanager
def held(output: Path, busy: str) -> Iterator[None]:
    """No other process writes to this file or folder: each would delete what the other has half-written.

    The lock lies where `datasets` keeps what it has read, and not in a folder that may be deleted. It ends with the
    process that has it, however that ends; this process may take it again.

    Raises:
        ValueError: that says `busy`, if there is one.
    """
    caches = caches_of_datasets()
    caches.mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256(os.fsencode(output.resolve())).hexdigest()
    lock = FileLock(caches / f"output-{name}.lock", is_singleton=True)
    try:
        lock.acquire(blocking=False)
    except Timeout as error:
        raise ValueError(busy) from error
    try:
        yield
    finally:
        lock.release()


def caches_of_datasets() -> Path:
    """Where `datasets`, which is not loaded by those who only write, keeps what it has read."""
    from datasets.config import HF_DATASETS_CACHE

    return Path(HF_DATASETS_CACHE)


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
        f"{left(place.absolute())}, {left(caches_of_datasets())}, where `datasets` keeps what it has read: make "
        "room, or move the latter with HF_DATASETS_CACHE=DIR, and give the same command again, `train` with --resume"
    )
