"""Translating the lines of files or of standard input: one line in, one line out."""

import hashlib
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from functools import partial
from io import TextIOWrapper
from itertools import islice
from pathlib import Path

from tqdm.auto import tqdm

from ..data.corpora import check_text_file, not_utf8, read_lines
from ..data.whole_files import check_output, held, write_whole
from .alignments import AlignmentHeads, pharaoh
from .packing import Packing
from .parts import PART, Parts
from .shares import processes_of_launch
from .translate import MAX_TOKENS, Translation, load_translator

STDIN = Path("-")


def translate_files(
    model: str,
    files: list[Path],
    output: Path | None = None,
    *,
    overwrite: bool = False,
    dtype: str = "float32",
    packed: Packing | None = None,
    src_lang: str | None = None,
    tgt_lang: str | None = None,
    n_best: int = 1,
    scores: bool = False,
    alignments: bool | AlignmentHeads = False,
    truncation: bool = False,
    max_tokens: int = MAX_TOKENS,
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
        dtype, packed, src_lang, tgt_lang: those of `load_translator`.
        truncation, max_tokens, options: those of `Translator.candidates`.

    Raises:
        FileExistsError: if `output` exists, unless `overwrite` is set.
        ValueError: if there are parts of another translation, or another process writes to `output`; if several
            processes have no files to divide, or no `output` to put them together in.
    """
    check_output(output, overwrite)
    processes = processes_of_launch()
    files = files or [STDIN]
    if files.count(STDIN) > 1:
        raise ValueError(f"got - {files.count(STDIN)} times, expected it once: standard input can be read but once")
    for file in files:
        if file != STDIN:
            check_text_file(file)
    if processes.num_processes > 1 and (output is None or not all(file.is_file() for file in files)):
        raise ValueError("several processes divide files and write one: name the files, and an output with -o")
    # What can be read but once (standard input, a pipe) is kept.
    kept = {file: list(lines_of(file)) for file in files if not file.is_file()}

    def lines() -> Iterator[tuple[str, str]]:
        """Where each line stands, and its text."""
        for file in files:
            name = "standard input" if file == STDIN else str(file)
            for number, line in enumerate(kept[file] if file in kept else lines_of(file), start=1):
                yield f"{name}, line {number}", line

    load = partial(load_translator, model, dtype, packed=packed, src_lang=src_lang, tgt_lang=tgt_lang)
    settings = dict(n_best=n_best, scores=scores, return_alignments=alignments, truncation=truncation, **options)
    if output is None:
        names, texts = sides(lines())
        translator = load()
        candidates = translator.candidates(texts, names=names, progress=progress, max_tokens=max_tokens, **settings)
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")  # as files are written, whatever the locale says
        sys.stdout.write(text_of(candidates, scores, bool(alignments)))
        return
    translator = load()
    digest, count = hashlib.sha256(), 0
    every_line = lines()
    while some := list(islice(every_line, PART)):  # what cannot be translated is told before any work
        names, texts = sides(some)
        count += len(texts)
        digest.update("".join(f"{text}\n" for text in texts).encode(errors="surrogatepass"))
        if not truncation and translator.source_limit < sys.maxsize:
            translator.check_lengths(translator.encode(texts), names)
    asked: dict = {
        "model": digests_of(Path(model)) or model,
        "text": digest.hexdigest(),
        "dtype": dtype,
        "packed": packed,
        "languages": [src_lang, tgt_lang],
        **settings,
        "return_alignments": str(alignments),
    }
    counts: Counter[str] = Counter()  # of all parts
    busy = f"another process is writing {output}: let it come to its end, or choose another name with -o"
    with held(output, busy) if processes.is_main_process else nullcontext():
        check_output(output, overwrite)  # which may have come to its end meanwhile
        parts = Parts(output, asked, count, processes)
        try:
            with tqdm(total=parts.open_lines(), unit="text", desc="translating", disable=not progress) as bar:
                for part, some in parts.chunks(lines()):
                    names, texts = sides(some)
                    found = translator.candidates(texts, names=names, max_tokens=max_tokens, counts=counts, **settings)
                    write_whole(part, text_of(found, scores, bool(alignments)))
                    bar.update(len(texts))
        finally:  # also of one that is interrupted
            translator.warn(counts)
        parts.join()


def sides(lines: Iterable[tuple[str, str]]) -> tuple[list[str], list[str]]:
    names, texts = zip(*lines, strict=True) if (lines := list(lines)) else ((), ())
    return list(names), list(texts)


def lines_of(file: Path) -> Iterable[str]:
    return read_stdin() if file == STDIN else read_lines(file)


def digests_of(model: Path) -> dict[str, str]:
    """What tells that a model has been trained anew, wherever its folder is; of a Hub id nothing."""
    digests = {}
    for path in sorted(model.iterdir()) if model.is_dir() else ():
        if path.is_file() and path.suffix != ".md":  # what is written about it decides nothing
            with path.open("rb") as file:
                digests[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return digests


def read_stdin() -> list[str]:
    lines = []
    for number, line in enumerate(sys.stdin.buffer, start=1):
        try:
            lines.append(line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n"))
        except UnicodeDecodeError as error:
            raise not_utf8("standard input", error, number) from None
    return lines


def text_of(candidates: list[list[Translation]], scores: bool, alignments: bool) -> str:
    return "".join(as_line(candidate, scores, alignments) for best in candidates for candidate in best)


def as_line(translation: Translation, with_score: bool, with_links: bool) -> str:
    text, space = translation.text, " "
    if with_score or with_links:  # a TAB would be one column more, and a plain space one word more than links have
        text, space = text.replace("\t", "\n"), "\u00a0"
    columns = [space.join(text.splitlines())]  # a line stays a line, whatever the model says
    if with_score:
        columns.append("" if translation.score is None else f"{translation.score:.4f}")
    if with_links:
        columns.append(pharaoh(translation.links or []))
    return "\t".join(columns) + "\n"
