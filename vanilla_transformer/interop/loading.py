"""A checkpoint of one kind, from a folder or the Hub, or an error that says what is there instead."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from huggingface_hub.errors import HFValidationError
from safetensors import SafetensorError
from transformers import AutoConfig, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase


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
    name = str(source)
    check_folder(Path(name))
    try:
        config = AutoConfig.from_pretrained(name)
    except (OSError, HFValidationError) as error:
        raise OSError(f"there is no folder {name!r}, and the Hub gives no such model ({error!s:.200})") from error
    if config.model_type != expected:
        raise ValueError(f"{name} is a model of type {config.model_type!r}: expected {expected!r} ({kind.__name__})")
    try:
        model, report = kind.from_pretrained(name, output_loading_info=True)
    except SafetensorError as error:
        raise OSError(f"the weights in {name} are damaged ({error}): copy or download them again") from error
    if report["missing_keys"]:
        missing = sorted(report["missing_keys"])
        raise OSError(
            f"the weights in {name} lack {len(missing)} tensors that {kind.__name__} has, such as {missing[0]}: "
            "are they those of another model?"
        )
    return model.eval()


def check_folder(folder: Path) -> None:
    """transformers takes what is no folder for a Hub id, `ORGANISATION/NAME`."""
    if not folder.exists() and (folder.is_absolute() or len(folder.parts) > 2):
        raise FileNotFoundError(f"{folder} does not exist: expected the folder of a saved model, or a Hub id")
    if folder.exists() and not (folder / "config.json").exists():
        raise OSError(f"{folder} has no config.json: expected the folder of a saved model, or a Hub id")


def load_tokenizer(source: str | Path) -> PreTrainedTokenizerBase:
    """The tokenizer beside the model at `source`.

    Raises:
        OSError: if there is none.
        ImportError: if Marian's, which stands in SentencePiece files, lacks that library.
    """
    folder = Path(source)
    if folder.is_dir() and not any((folder / file).exists() for file in ("tokenizer.json", "source.spm")):
        raise OSError(
            f"{folder} has a model but no tokenizer (tokenizer.json, or source.spm and its like): copy it there, or "
            "convert the model alone with vanilla_transformer.interop"
        )
    if not (folder / "tokenizer.json").exists() and find_spec("sentencepiece") is None:
        raise ImportError(f"the tokenizer of {source} needs SentencePiece: pip install 'vanilla-transformer[marian]'")
    return AutoTokenizer.from_pretrained(str(source))
