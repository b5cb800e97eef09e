"""Parallel text in: files, folders and Hub ids that users have, read into `datasets.Dataset(source, target)`."""

import csv
import glob
import gzip
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
from datasets import Dataset, DatasetDict, Features, Translation, Value, load_dataset, load_from_disk
from datasets.exceptions import DatasetGenerationError
from datasets.fingerprint import Hasher

from .checks import CorpusReport
from .columns import rows

# What a compressed file begins with, and who makes text of it.
COMPRESSED = {
    b"\x1f\x8b": "gunzip",
    b"BZh": "bunzip2",
    b"\xfd7zXZ": "unxz",
    b"\x28\xb5\x2f\xfd": "unzstd",
    b"PK\x03\x04": "unzip",
}
TABLES = {".jsonl": "json", ".json": "json", ".csv": "csv", ".parquet": "parquet"}
SIDES = ("source", "target")


def read_corpus(
    where: str | list[str],
    source_lang: str,
    target_lang: str,
    *,
    split: str = "train",
    config_name: str | None = None,
    max_pairs: int | None = None,
    report: CorpusReport | None = None,
) -> Dataset:
    """Read pairs of sentences into the columns `source` and `target`; pairs with an empty side are dropped.

    They are not held in memory, but in a file that is mapped into it (`store`).

    Args:
        where: two parallel text files `[source, target]`, or one of: a .tsv file (source TAB target), a .jsonl, .csv
            or .parquet file, a folder saved by `datasets`, an id on the Hub such as `wmt/wmt14`. Text, TSV, JSONL and
            CSV may be gzipped (.gz). Tables and datasets hold a column `translation` with one entry a language, a
            column a language, or the columns `source` and `target`.
        split, config_name: of a saved folder or of a dataset on the Hub.
        max_pairs: read no further than this.
        report: is told what was dropped.

    Raises:
        ValueError: sides of unequal length, text that is not UTF-8, missing columns, an empty corpus.
        FileNotFoundError, IsADirectoryError: a file that is not one.
    """
    if isinstance(where, str):
        where = [where]
    if len(where) not in (1, 2):
        raise ValueError(f"got {len(where)} places for one corpus ({where}): expected one, or two parallel text files")
    report = report or CorpusReport()
    name = " and ".join(where)
    languages = source_lang, target_lang
    pairs: Callable[[], Iterator[tuple[str, str]]]
    if len(where) == 2:
        check_no_tables(where)
        check_language_suffixes(where, languages)
        pairs, version = partial(read_parallel_files, *map(Path, where)), [state_of_text(path) for path in where]
    elif suffix_of(where[0]) == ".tsv":
        pairs, version = partial(read_tsv, Path(where[0])), [state_of_text(where[0])]
    else:
        table = read_table(where[0], split, config_name)
        pairs, version = partial(rows_of, table, where[0], *languages), [table._fingerprint]
    stored = store(pairs, max_pairs, name, Hasher.hash([where, languages, version, max_pairs]))

    whole = np.ones(len(stored), dtype=bool)
    for row, (source, target) in enumerate(rows(stored, *SIDES)):
        if not is_pair(source, target):
            report.drop("empty side", f"{name}, line {row + 1}")
            whole[row] = False
    return stored if whole.all() else stored.select(np.flatnonzero(whole))


def is_pair(source: str, target: str) -> bool:
    return bool(source.strip() and target.strip())


def whole_lines(source: Path, reference: Path) -> list[int]:
    """The numbers, from 1 on, of the lines that are a pair in two parallel files."""
    pairs = zip(read_lines(source), read_lines(reference), strict=True)
    return [number for number, pair in enumerate(pairs, start=1) if is_pair(*pair)]


def state_of_text(path: str) -> tuple:
    """What tells that a file is another one than it was."""
    check_text_file(Path(path))
    if not os.path.isfile(path):
        raise ValueError(
            f"{path} is a pipe, say, and can be read but once, and a corpus is read again, by --resume for one: save "
            "it to a file"
        )
    found = os.stat(path)
    return os.path.realpath(path), found.st_size, found.st_mtime_ns


def store(pairs: Callable[[], Iterator[tuple[str, str]]], max_pairs: int | None, name: str, version: str) -> Dataset:
    """The pairs, up to `max_pairs` that have two sides, in a file of the cache of `datasets`, which is mapped into
    memory and read again when the very same `version` is asked for."""

    def written():
        full = 0
        for source, target in pairs():
            if max_pairs is not None and full >= max_pairs:
                break
            source, target = source.strip("\r\n"), target.strip("\r\n")
            full += is_pair(source, target)
            yield dict(zip(SIDES, (source, target), strict=True))
        if not full:
            raise ValueError(
                f"no pair of sentences in {name}: the corpus is empty, or all of its lines have an empty side"
            )

    with causes_told():
        return Dataset.from_generator(
            written, features=Features({side: Value("string") for side in SIDES}), fingerprint=version
        )


@contextmanager
def causes_told() -> Iterator[None]:
    """What went wrong in the reading of a table, such as a full disk, in the place of that it did."""
    try:
        yield
    except DatasetGenerationError as error:
        raise error.__cause__ or error from None


def suffix_of(path: str) -> str:
    """The suffix that tells the format, seen through `.gz`: `pairs.tsv.gz` -> `.tsv`."""
    return Path(path.removesuffix(".gz")).suffix


def is_table(path: str) -> bool:
    return suffix_of(path) in (".tsv", *TABLES)


def read_lines(path: Path) -> Iterator[str]:
    """Lines of a UTF-8 file, gzipped or not, without their line ends. Only \\n ends a line, as for `wc -l`."""
    check_text_file(path)
    with gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb") as file:
        for number, line in enumerate(whole(file, path), start=1):
            try:
                yield line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise not_utf8(path, error, number) from None


def not_utf8(path: str | Path, error: UnicodeDecodeError, line: int) -> ValueError:
    byte = error.object[error.start]
    probably = "utf-16" if error.start == 0 and byte in (0xFE, 0xFF) else "latin1"  # which begins with such a byte
    advice = f"convert it, for instance with `iconv -f {probably} -t utf-8`"
    for begins, program in COMPRESSED.items():
        if line == 1 and error.object.startswith(begins):
            advice = (
                f"it looks compressed: make text of it with `{program}`; what `gzip` made is read by a name in .gz"
            )
    return ValueError(f"{path}, line {line} is not UTF-8 (byte {error.start} is 0x{byte:02x}): {advice}")


def check_text_file(path: Path) -> None:
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a directory: expected a text file with one sentence a line")
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: expected a text file with one sentence a line")


NO_WHOLE_GZIP = (EOFError, gzip.BadGzipFile, zlib.error)


def whole(file: Iterable[bytes], path: Path) -> Iterator[bytes]:
    try:
        yield from file
    except NO_WHOLE_GZIP as error:
        raise ValueError(f"{path} is no whole gzip file ({error}): copy or compress it again") from None


def read_parallel_files(source: Path, target: Path) -> Iterator[tuple[str, str]]:
    sides = [read_lines(source), read_lines(target)]
    number = 0
    while True:
        lines = [next(side, None) for side in sides]
        if None in lines:
            break
        number += 1
        yield lines[0], lines[1]  # type: ignore[misc]
    if lines != [None, None]:
        rest = 1 + sum(1 for _ in sides[0]) + sum(1 for _ in sides[1])  # one of the two is exhausted
        longer, shorter = (source, target) if lines[1] is None else (target, source)
        raise ValueError(
            f"{longer} has {number + rest} lines, but {shorter} has {number}: line N of the one must translate line N "
            f"of the other; look where they part, from line {number + 1} backwards"
        )


def read_tsv(path: Path) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(read_lines(path), start=1):
        fields = line.split("\t")
        if len(fields) != 2:
            raise ValueError(
                f"{path}, line {number} has {len(fields)} tab-separated fields: expected 2, source TAB target"
            )
        yield fields[0], fields[1]


def read_table(where: str, split: str, config_name: str | None) -> Dataset:
    path, suffix = Path(where), suffix_of(where)
    if path.is_dir():
        table = load_from_disk(where)
    elif suffix in TABLES:
        if not path.exists():
            raise FileNotFoundError(f"{where} does not exist")
        table = load_table(where, TABLES[suffix])
    elif path.exists():
        raise ValueError(
            f"{where} alone is no parallel corpus: give two text files, or one file that ends in .tsv, "
            f"{', '.join(TABLES)} (and .gz)"
        )
    else:
        with causes_told():
            try:
                table = load_dataset(where, config_name, split=split)
            except RuntimeError as error:  # one that is read by a script of its own, which `datasets` runs no more
                raise ValueError(
                    f"{where} cannot be read ({error}): give its files, or another copy of it, in Parquet for one"
                ) from error
    if isinstance(table, DatasetDict):
        if split not in table:
            raise ValueError(f"{where} has no split {split!r}: it has {', '.join(table)}")
        table = table[split]
    return table


def load_table(where: str, form: str) -> Dataset:
    options: dict = {}
    if form == "csv":  # text stays text: "NA" is a word, and "007" has three letters
        try:
            names = next(csv.reader(f"{line}\n" for line in read_lines(Path(where))), [])
        except csv.Error as error:
            raise ValueError(f"{where}, its first line cannot be read as csv ({error})") from error
        options = {"keep_default_na": False, "features": Features({name: Value("string") for name in names if name})}
    try:
        # The name of one file, and no pattern of several.
        return load_dataset(form, data_files=glob.escape(os.path.abspath(where)), split="train", **options)
    except (DatasetGenerationError, StopIteration, *NO_WHOLE_GZIP) as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno:  # a full disk, and no damaged file
            raise error.__cause__ from None
        reason = error.__cause__ or error or "it is empty"
        raise ValueError(
            f"{where} cannot be read as {form} ({' '.join(str(reason).split()) or 'it is empty'})"
        ) from error


def rows_of(table: Dataset, where: str, source_lang: str, target_lang: str) -> Iterator[tuple[str, str]]:
    names = table.column_names
    translation = table.features.get("translation")
    if isinstance(translation, (Translation, dict)):
        languages = list(translation.languages if isinstance(translation, Translation) else translation)
        missing = [lang for lang in (source_lang, target_lang) if lang not in languages]
        if missing:
            raise ValueError(f"{where} has no translation in {missing}: its languages are {', '.join(languages)}")
        entries = (entry or {} for (entry,) in rows(table, "translation"))
        pairs: Iterable = ((entry.get(source_lang), entry.get(target_lang)) for entry in entries)
    else:
        for columns in ((source_lang, target_lang), SIDES):
            if set(columns) <= set(names):
                break
        else:
            raise ValueError(
                f"{where} has the columns {', '.join(names)}: expected `translation`, or `{source_lang}` and "
                f"`{target_lang}`, or `source` and `target`"
            )
        pairs = rows(table, *columns)
    for number, (source, target) in enumerate(pairs, start=1):
        for side in (source, target):
            if side is not None and not isinstance(side, str):
                raise ValueError(f"{where}, row {number} holds a {type(side).__name__}, expected text: {side!r}")
        yield source or "", target or ""


def check_no_tables(sides: list[str]) -> None:
    """Each of them holds pairs; as two sides they would be lines that translate each other, commas, tabs and all."""
    if any(map(is_table, sides)):
        raise ValueError(
            f"got {' and '.join(sides)}, of which a suffix tells of a table, expected two sides of parallel text, a "
            "sentence a line: give one table, put together of both, or name the text files otherwise"
        )


def check_language_suffixes(paths: list[str], languages: tuple[str, str]) -> None:
    """`train.fr train.en` for English to French is a slip that no score would explain."""
    endings = tuple(suffix_of(path).removeprefix(".") for path in paths)
    if endings == languages[::-1] and languages[0] != languages[1]:
        raise ValueError(
            f"the two sides look swapped: got {paths[0]} as source and {paths[1]} as target of a translation from "
            f"{languages[0]} to {languages[1]}: exchange the files or the languages"
        )
