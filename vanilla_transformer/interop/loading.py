"""A checkpoint from a folder or the Hub, or an error that says what is there instead."""

import hashlib
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from huggingface_hub.errors import HFValidationError
from safetensors import SafetensorError
from transformers import AutoConfig, AutoTokenizer, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from ..model.decoding import is_of_family

# What the tokenizers of transformers' translation models are saved as.
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "source.spm", "sentencepiece.bpe.model", "spiece.model")


def load_model(source: str | Path | PreTrainedModel, kind: Any) -> Any:
    """The model of class `kind` at `source`, in evaluation mode and the type of its file; a model stays as it is.

    Raises:
        OSError: if there is no model, or if its weights are damaged or incomplete.
        ValueError: if it is one of another type.
    """
    expected = kind.config_class.model_type
    if isinstance(source, PreTrainedModel):
        if not isinstance(source, kind):
            raise ValueError(
                f"got a {type(source).__name__} (model type {source.config.model_type!r}): expected a "
                f"{kind.__name__} ({expected!r})"
            )
        return source
    check_folder(Path(source))
    config = read_config(source)
    if config.model_type != expected:
        raise ValueError(f"{source} is a model of type {config.model_type!r}: expected {expected!r} ({kind.__name__})")
    return load_weights(source, kind)


def digest_of_weights(source: str | Path) -> str | None:
    """SHA-256 of the weights in a folder, by which results tell of which model they are; None for one of the Hub."""
    digest = hashlib.sha256()
    files = sorted(Path(source).glob("*.safetensors"))
    for path in files:
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest() if files else None


def read_config(source: str | Path) -> PreTrainedConfig:
    """Raises `OSError` if there is none at `source`, a folder or a Hub id."""
    try:
        return AutoConfig.from_pretrained(str(source))
    except (OSError, HFValidationError) as error:
        raise OSError(
            f"there is no folder {str(source)!r}, and the Hub gives no such model ({error!s:.200})"
        ) from error


def load_weights(source: str | Path, kind: Any, **options) -> Any:
    """`kind.from_pretrained` in evaluation mode, which accepts no checkpoint whose tensors are not those of its
    config.json; of a model that is not ours, it may have others beside them.

    Raises:
        OSError: if the weights are damaged or incomplete, or do not fit.
    """
    options |= dict(output_loading_info=True, ignore_mismatched_sizes=True)
    try:
        model, report = kind.from_pretrained(str(source), **options)
    except SafetensorError as error:
        raise OSError(f"the weights in {source} are damaged ({error}): copy or download them again") from error
    if report["mismatched_keys"]:
        name, found, wanted = min(report["mismatched_keys"])
        raise OSError(
            f"the weights in {source} do not fit its config.json: {name} is {tuple(found)} there, and "
            f"{tuple(wanted)} by the configuration: copy both from one model"
        )
    if report["unexpected_keys"] and is_of_family(model.config):
        others = sorted(report["unexpected_keys"])
        raise OSError(
            f"the weights in {source} have {len(others)} tensors that its config.json has no place for, such as "
            f"{others[0]}: copy both from one model"
        )
    if report["missing_keys"]:
        missing = sorted(report["missing_keys"])
        raise OSError(
            f"the weights in {source} lack {len(missing)} tensors that {type(model).__name__} has, such as "
            f"{missing[0]}: are they those of another model?"
        )
    return model.eval()


def check_folder(folder: Path) -> None:
    """Raise `OSError` for a folder without a model; transformers takes what is no folder for a Hub id."""
    expected = "expected the folder of a saved model, such as RUN/model"
    if not folder.exists():
        if folder.is_absolute() or len(folder.parts) > 2:
            raise FileNotFoundError(f"{folder} does not exist: {expected}")
        return
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file: {expected}")
    if not (folder / "config.json").exists():
        inner = f"; {folder / 'model'} has one" if (folder / "model" / "config.json").exists() else ""
        raise OSError(f"{folder} has no config.json: {expected}{inner}")


def load_tokenizer(source: str | Path) -> PreTrainedTokenizerBase:
    """The tokenizer beside the model at `source`.

    Raises:
        OSError: if there is none at `source`, a folder or a Hub id, of which transformers may make an empty one, or if
            files of it are missing or damaged.
        ImportError: if Marian's, which stands in SentencePiece files, lacks that library.
    """
    folder = Path(source)
    check_tokenizer(folder)
    if (folder / "source.spm").exists() and find_spec("sentencepiece") is None:
        raise ImportError(f"the tokenizer of {source} needs SentencePiece: pip install 'vanilla-transformer[marian]'")
    try:
        return AutoTokenizer.from_pretrained(str(source))
    except (json.JSONDecodeError, KeyError) as error:
        raise OSError(
            f"the tokenizer beside the model in {source} is damaged ({error!r}): copy its .json files again"
        ) from error
    except (OSError, HFValidationError) as error:
        raise OSError(f"there is no tokenizer at {str(source)!r} ({error!s:.200})") from error
    except TypeError as error:  # that of a tokenizer in several files, one of which is not there
        raise OSError(f"the tokenizer beside the model in {source} lacks files ({error}): copy all of them") from error


def check_tokenizer(folder: Path) -> None:
    """Raise `OSError` for the folder of a model that has no tokenizer beside it."""
    if folder.is_dir() and not any((folder / file).exists() for file in TOKENIZER_FILES):
        raise OSError(
            f"{folder} has a model but no tokenizer ({', '.join(TOKENIZER_FILES[:3])}): save it there with "
            f"tokenizer.save_pretrained({str(folder)!r})"
        )
