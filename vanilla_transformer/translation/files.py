"""Translating the lines of files or of standard input: one line in, one line out."""

import sys
from pathlib import Path

from ..data.corpora import read_lines
from .packing import Packing
from .translate import Translation, load_translator

STDIN = Path("-")


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
    **options,
) -> None:
    """Write a translation for every line of `files` (standard input without any), in their order; blank lines stay.

    Args:
        output: where to write; standard output if `None`.
        n_best: so many lines for each line of the input, best first.
        scores: append TAB and the score of each translation.
        dtype, packed: those of `load_translator`.
        options: those of `Translator.candidates`.

    Raises:
        FileExistsError: if `output` exists, unless `overwrite` is set.
    """
    check_output(output, overwrite)
    lines = [line for file in files or [STDIN] for line in (read_stdin() if file == STDIN else read_lines(file))]
    translator = load_translator(model, dtype, packed=packed)
    candidates = translator.candidates(lines, n_best=n_best, scores=scores, **options)
    text = "".join(as_line(candidate, scores) for best in candidates for candidate in best)
    if output is None:
        sys.stdout.write(text)
    else:
        output.write_text(text, encoding="utf-8")


def check_output(output: Path | None, overwrite: bool) -> None:
    """Raise, before any work, for a file that cannot or must not be written."""
    if output is None:
        return
    if output.is_dir():
        raise IsADirectoryError(f"{output} is a folder: name a file to write")
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


def as_line(translation: Translation, with_score: bool) -> str:
    text = " ".join(translation.text.splitlines())  # a line stays a line, whatever the model says
    score = "" if translation.score is None else f"{translation.score:.4f}"
    return f"{text}\t{score}\n" if with_score else f"{text}\n"
