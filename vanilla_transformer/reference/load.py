"""The files of a checkpoint: config.json, model.safetensors, generation_config.json, tokenizer.json.

The only file here that imports more than NumPy: `safetensors` reads the weights, `tokenizers` the vocabulary.
"""

import json
from itertools import groupby
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, deserialize
from tokenizers import Tokenizer

from .attention import Array, Weights
from .names import ADDED_LATER, ENCODER_DECODER, expected_weights, problems_of

# What our models have where a checkpoint has no generation_config.json.
PAPERS_SEARCH = {"num_beams": 4, "length_penalty": 1.0, "early_stopping": True, "max_length": 512}
# What the pipeline has where the file does not say it.
UNSAID = {"num_beams": 4, "length_penalty": 1.0, "early_stopping": False}
SEARCH = {*PAPERS_SEARCH, "max_new_tokens", "eos_token_id", "decoder_start_token_id"}
WITHOUT_EFFECT = {"pad_token_id", "bos_token_id", "use_cache", "transformers_version", "_from_model_config"}
WITHOUT_EFFECT |= {"alignment_heads", "alignment_shifted"}  # notes for whoever reads attention


def read_json(path: Path) -> dict:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(f"{path.parent} is no checkpoint: it has no {path.name}") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path} holds a {type(found).__name__}, expected an object of names and values")
    return found


def read_config(folder: Path) -> dict:
    """config.json as it is.

    Raises:
        ValueError: for what is missing or unknown here, all of it.
    """
    config = {**ADDED_LATER, **read_json(folder / "config.json")}
    problems = problems_of(config)
    if problems:
        raise ValueError(f"{folder / 'config.json'}: " + "; ".join(problems))
    return config


def read_search(folder: Path) -> dict:
    """How the checkpoint wants to be searched: `num_beams`, `length_penalty` and so on.

    Raises:
        ValueError: for settings that change a search and are unknown here, all of them.
    """
    if not (folder / "generation_config.json").exists():
        return PAPERS_SEARCH
    found = read_json(folder / "generation_config.json")
    said = {name: value for name, value in found.items() if value is not None}
    unknown = [f"{name}={value!r}" for name, value in said.items() if name not in SEARCH | WITHOUT_EFFECT and value]
    if unknown:
        raise ValueError(f"{folder / 'generation_config.json'}: unknown settings {', '.join(unknown)}")
    return UNSAID | {name: value for name, value in said.items() if name in SEARCH}


def read_weights(folder: Path, config: dict, dtype: type) -> Weights:
    """A tree of arrays of `dtype`: ["encoder"]["layers"]["0"]["self_attn"]["q_proj"]["weight"] is one of (D, D).

    Raises:
        ValueError: for weights that are missing, of another shape, or that the configuration does not know, all told.
    """
    tensors = read_tensors(folder)
    expected = dict(expected_weights(config))
    problems = [f"{name} is missing" for name in expected if name not in tensors]
    problems += [f"{name} is unknown" for name in tensors if name not in expected]
    for name in expected.keys() & tensors.keys():
        if tensors[name].shape != expected[name]:
            problems.append(f"{name} is {tensors[name].shape}, expected {expected[name]}")
    if problems:
        raise ValueError(f"the weights in {folder} do not fit its config.json: " + "; ".join(sorted(problems)))
    tree: Weights = {}
    for name, tensor in tensors.items():
        *path, last = name.split(".")
        branch = tree
        for part in path:
            branch = branch.setdefault(part, {})
        branch[last] = tensor.astype(dtype)
    if config["model_type"] == ENCODER_DECODER and config["share_encoder_decoder_embeddings"]:
        tree["decoder"]["embed_tokens"] = tree["encoder"]["embed_tokens"]
    return tree


def read_tensors(folder: Path) -> dict[str, Array]:
    """All tensors by name, of one file or of the several that an index names."""
    index, files = folder / "model.safetensors.index.json", {"model.safetensors"}
    if index.exists():
        files = set(read_json(index)["weight_map"].values())
    tensors = {}
    for file in sorted(files):
        if not (folder / file).is_file():
            raise FileNotFoundError(f"{folder} is no whole checkpoint: it has no {file}")
        try:
            found = deserialize((folder / file).read_bytes())
        except SafetensorError as error:
            raise ValueError(f"{folder / file} is damaged: {error}") from None
        for name, saved in found:
            tensors[name.removeprefix("model.")] = to_array(**saved)
    return tensors


def to_array(dtype: str, shape: list[int], data: bytes) -> Array:
    """The bytes of a tensor as numbers; a bfloat16, which NumPy does not know, is the upper half of a float32."""
    if dtype == "BF16":
        return (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4").reshape(shape)
    if dtype not in ("F64", "F32", "F16"):
        raise ValueError(f"got a weight of type {dtype}: expected F64, F32, F16 or BF16")
    return np.frombuffer(data, f"<f{int(dtype[1:]) // 8}").reshape(shape)


def read_tokenizer(folder: Path) -> Tokenizer:
    if not (folder / "tokenizer.json").exists():
        raise FileNotFoundError(f"{folder} has no tokenizer.json: without it there are ids, but no text")
    read_json(folder / "tokenizer.json")  # tokenizers' own error names no file
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.encode_special_tokens = True  # "</s>" in a user's text is text
    return tokenizer


def encode(tokenizer: Tokenizer, text: str, special: bool = True) -> list[int]:
    """The ids of a text, with `</s>` if `special`."""
    text.encode("utf-8")  # raises a ValueError for half characters, which the tokenizer would call no string
    return tokenizer.encode(text, add_special_tokens=special).ids


def decode(tokenizer: Tokenizer, ids: list[int]) -> str:
    """The text of ids without special tokens. A token that was added is its own text; all others spell bytes."""
    added, pieces = tokenizer.get_added_tokens_decoder(), []
    for is_added, run in groupby(ids, key=added.__contains__):
        if is_added:
            pieces += [added[i].content for i in run if not added[i].special]
        else:
            pieces.append(tokenizer.decode(list(run)))
    return "".join(pieces)
