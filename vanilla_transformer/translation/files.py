"""Translating the lines of files or of standard input: one line in, one line out."""

import hashlib
import sys
from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path

from tqdm.auto import tqdm

from ..data.corpora import read_lines, state_of
from .alignments import AlignmentHeads, pharaoh
from .packing import Packing
from .parts import Parts
from .shares import processes_of_launch
from .translate import Translation, load_translator

STDIN = Path("-")
PATIENCE = timedelta(days=30)  # that a process which is done waits for the others


def translate_files(
    model: str,
    files: list[Path],
    output: Path | None = None,
    *,
    overwrite: bool = False,
    dtype: str = "float32",
    packed: Packing | None = None,
    n_best: int = 1,
    scores: bool = False,
    alignments: bool | AlignmentHeads = False,
    progress: bool = False,
    **options,
) -> None:
    """Write a translation for every line of `files` (standard input without any), in their order; blank lines stay.

    Where there is an `output`, it is written part by part: a translation that was killed goes on when it is asked for
    again, and the processes of `accelerate launch` divide the parts among them.

    Args:
        output: where to write; standard output if `None`.
        n_best: so many lines for each line of the input, best first.
        scores: append TAB and the score of each translation.
        alignments: append TAB and the links of its words, `0-0 1-2` (source and target word, from 0 on).
        progress: show a bar on stderr.
        dtype, packed: those of `load_translator`.
        options: those of `Translator.candidates`.

    Raises:
        FileExistsError: if `output` exists, unless `overwrite` is set.
        ValueError: if there are parts of another translation; if several processes have no files to divide, or no
            `output` to put them together in.
    """
    check_output(output, overwrite)
    processes = processes_of_launch(PATIENCE)
    files = files or [STDIN]
    if processes.num_processes > 1 and (output is None or not all(file.is_file() for file in files)):
        raise ValueError("several processes divide files and write one: name the files, and an output with -o")
    # What can be read but once (standard input, a pipe) is kept.
    kept = {file: list(lines_of(file)) for file in files if not file.is_file()}

    def lines() -> Iterator[str]:
        for file in files:
            yield from kept[file] if file in kept else lines_of(file)

    if output is None:
        sources = list(lines())
        translator = load_translator(model, dtype, packed=packed)
        candidates = translator.candidates(
            sources, n_best=n_best, scores=scores, return_alignments=alignments, progress=progress, **options
        )
        sys.stdout.write(text_of(candidates, scores, bool(alignments)))
        return
    digest, count = hashlib.sha256(), 0
    for count, line in enumerate(lines(), start=1):  # what is no text is told before any work  # noqa: B007
        digest.update(f"{line}\n".encode(errors="surrogatepass"))
    asked: dict = {
        "model": str(model),
        "model's files": files_of(Path(model)),
        "text": digest.hexdigest(),
        "dtype": dtype,
    }
    asked |= {"packed": packed, "n_best": n_best, "scores": scores, "alignments": str(alignments), **options}
    translator = load_translator(model, dtype, packed=packed)
    parts = Parts(output, asked, count, processes)
    with tqdm(total=parts.open_lines(), unit="text", desc="translating", disable=not progress) as bar:
        for part, first, chunk in parts.chunks(lines()):
            candidates = translator.candidates(
                chunk, n_best=n_best, scores=scores, return_alignments=alignments, first=first, **options
            )
            parts.write(part, text_of(candidates, scores, bool(alignments)))
            bar.update(len(chunk))
    parts.join()


def lines_of(file: Path) -> Iterable[str]:
    return read_stdin() if file == STDIN else read_lines(file)


def files_of(model: Path) -> list[tuple]:
    """What tells that a model has been trained anew; of a Hub id nothing."""
    return sorted(map(state_of, model.iterdir())) if model.is_dir() else []


def check_output(output: Path | None, overwrite: bool) -> None:
    """Raise, before any work, for a file that cannot or must not be written."""
    if output is None:
        return
    if output.is_dir():
        raise IsADirectoryError(f"{output} is a folder: name a file to write")
    if output.exists() and not output.is_file():
        raise ValueError(
            f"{output} is a device or a pipe, which cannot be replaced by a file: write to standard output"
        )
    if output.exists() and not overwrite:
        raise FileExistsError(f"{output} exists: replace it with --overwrite, or choose another name")
    if not output.parent.is_dir():
        raise FileNotFoundError(f"{output.parent} is no folder: create it, or choose another one")


def read_stdin() -> list[str]:
    lines = []
    for number, line in enumerate(sys.stdin.buffer, start=1):
        try:
            lines.append(line.decode("utf-8").rstrip("\r\n"))
        except UnicodeDecodeError:
            raise ValueError(f"standard input, line {number} is not UTF-8: convert it with iconv first") from None
    return lines


def text_of(candidates: list[list[Translation]], scores: bool, alignments: bool) -> str:
    return "".join(as_line(candidate, scores, alignments) for best in candidates for candidate in best)


def as_line(translation: Translation, with_score: bool, with_links: bool) -> str:
    columns = [" ".join(translation.text.splitlines())]  # a line stays a line, whatever the model says
    if with_score:
        columns.append("" if translation.score is None else f"{translation.score:.4f}")
    if with_links:
        columns.append(pharaoh(translation.links or []))
    return "\t".join(columns) + "\n"
