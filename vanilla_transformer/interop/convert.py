"""From one folder to another: model and tokenizer, ready for `translate`, the pipeline and the Auto classes."""

import tempfile
from pathlib import Path
from typing import Literal

from transformers import PreTrainedModel

from .loading import load_tokenizer
from .marian import from_marian, to_marian

DIRECTIONS = {"vanilla": from_marian, "marian": to_marian}


def convert(
    source: str | Path, output: Path, *, to: Literal["vanilla", "marian"] = "vanilla", overwrite: bool = False
) -> PreTrainedModel:
    """Convert the model at `source` and save it in the folder `output`, with its tokenizer beside it.

    Args:
        source: a folder or a Hub id; a Marian checkpoint for `to="vanilla"`, one of ours for `to="marian"`.
        overwrite: replace the folder `output`, with all of its files, once the new model is complete.

    Raises:
        FileExistsError: if `output` has content that must not be replaced: the source, folders such as checkpoints or
            `.git`, or no model.
        OSError: if there is no such model, or no tokenizer beside it.
        ValueError: if it cannot be converted; all reasons at once.
    """
    if to not in DIRECTIONS:
        raise ValueError(f"got to={to!r}: expected one of {', '.join(DIRECTIONS)}")
    output = Path(output).resolve()
    check_output(Path(source).resolve(), output, overwrite)
    model = DIRECTIONS[to](source)
    tokenizer = load_tokenizer(source)
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"tmp-{output.name}-", dir=output.parent) as folder:
        half = Path(folder) / output.name
        model.save_pretrained(half)
        tokenizer.save_pretrained(half)
        if output.exists():
            output.rename(Path(folder) / "before")  # and is deleted with it
        half.rename(output)
    return model


def check_output(source: Path, output: Path, overwrite: bool) -> None:
    """Raise, before any work, for a folder that must not be replaced."""
    if output.exists() and not output.is_dir():
        raise FileExistsError(f"{output} is a file: name a folder")
    if not output.is_dir() or not any(output.iterdir()):
        return
    if source.exists() and source.is_relative_to(output):
        raise FileExistsError(f"{output} holds the source itself: choose another folder with -o")
    if not overwrite:
        raise FileExistsError(f"{output} exists: replace it with --overwrite, or choose another folder with -o")
    if not (output / "config.json").exists():
        raise FileExistsError(f"{output} holds something that is no model: choose another folder with -o")
    if folders := sorted(path.name for path in output.iterdir() if path.is_dir()):
        raise FileExistsError(
            f"{output} holds more than a model ({', '.join(folders)}): choose another folder with -o"
        )
