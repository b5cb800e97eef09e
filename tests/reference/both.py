"""A model in torch and its twin in NumPy, of the same files."""

from pathlib import Path

import numpy as np
import torch
from family import batch, build, padded

from vanilla_transformer.reference import NumpyTransformer

AROUND = dict(left=[2, 0, 1], right=[0, 3, 1])  # padding of three rows


def randomised(model, size: float = 1.0):
    """No weight is zero or one: not the biases, nor the gains of norms. In float64."""
    for name, parameter in model.double().named_parameters():
        if "norm" in name:
            torch.nn.init.normal_(parameter, mean=float(name.endswith("weight")), std=0.3)
        elif parameter.ndim == 1:
            torch.nn.init.normal_(parameter, std=0.3)
        elif name.endswith("positions.weight"):
            torch.nn.init.normal_(parameter)
        else:
            torch.nn.init.normal_(parameter, std=size * parameter.shape[1] ** -0.5)
    return model


def twins(folder: Path, architecture: str, dtype=np.float64, **choice):
    model = randomised(build(architecture, **choice))
    model.save_pretrained(folder)
    return model, NumpyTransformer.from_pretrained(folder, dtype)


def padded_batch(architecture: str) -> dict[str, torch.Tensor]:
    """Ids and masks, with padding on the left, on the right, and on both sides."""
    given = {}
    for name, mask in (("input_ids", "attention_mask"), ("decoder_input_ids", "decoder_attention_mask")):
        ids = batch(architecture).get(name)
        if ids is not None:
            given[name], given[mask] = padded(ids, **AROUND)
    return given


def difference(model, twin: NumpyTransformer, given: dict[str, torch.Tensor]) -> float:
    """The greatest difference of any logit of a token; what is said behind padding nobody reads."""
    with torch.no_grad():
        expected = model(**given).logits
    found = twin(**{name: tensor.numpy() for name, tensor in given.items()})
    if found.shape != tuple(expected.shape):
        raise ValueError(f"got logits of shape {found.shape}, expected {tuple(expected.shape)}")
    mask = given.get("decoder_attention_mask" if "decoder_input_ids" in given else "attention_mask")
    kept = np.ones(found.shape[:2], bool) if mask is None else mask.numpy() == 1
    return float(np.abs(found - expected.numpy())[kept].max())
