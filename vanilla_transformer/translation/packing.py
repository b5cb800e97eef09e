"""Matrices rewritten once for the products of decoding on a CPU; chosen by whoever loads a model, never by default.

| packed | a matrix is | a product | the same numbers |
|---|---|---|---|
| float32 | in the order in which oneDNN reads it | up to 2.3 times as fast | but for the order of summing |
| bfloat16 | that, most of them in 16 bits | up to 4 times, where AVX-512 has bfloat16 | nearly |
| int8 | in 8 bits, a quarter of the size | up to 6 times, where AVX-512 has VNNI | nearly |

What stands between the products stays float32 in all of them, and so do the logits that decide (`PackedHead`). A
packed model is not to be trained, and not to be saved.
"""

import re
from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

import torch
from torch import nn
from transformers import PreTrainedModel

from ..model.linear import is_plain
from ..model.search import best
from ..processor import has_units

Packing = Literal["float32", "bfloat16", "int8"]
ROWS = 128  # that the order of a packed matrix is best for; any other number is as right
CHUNK = 2**18  # whole numbers of 32 bits that are held at a time: they stay in the cache
EXACT = 16  # tokens of each row whose logits are computed as ever: as many as 8 beams choose from


class PackedLinear(nn.Module):
    """`nn.Linear` with W in the order in which oneDNN reads it, x W^T rounded to W's type, float32 in and out."""

    def __init__(self, linear: nn.Linear, dtype: torch.dtype):
        super().__init__()
        self.in_features, self.out_features, self.dtype = linear.in_features, linear.out_features, dtype
        self.bias = None if linear.bias is None else linear.bias.detach().to(dtype)
        weight = linear.weight.detach().to(dtype)
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight, ROWS)  # opaque: no parameter, no buffer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (..., in) -> (..., out)"""
        product = torch.ops.mkldnn._linear_pointwise
        return product(x.to(self.dtype), self.weight, self.bias, "none", [], "").to(x.dtype)


class Int8Linear(nn.Module):
    """`nn.Linear` by whole numbers of 8 bits.

    A row of W (an output) has one scale, a row of x (a token) another, so that what a token becomes does not depend on
    the batch that it is in (LLM.int8, Dettmers et al. 2022, section 2.1, without its outliers):

        y = x W^T + b  ~  s_x s_W (round(x / s_x) round(W / s_W)^T) + b,    s = max |row| / 127
    """

    def __init__(self, linear: nn.Linear):
        super().__init__()
        self.in_features, self.out_features, self.bias = linear.in_features, linear.out_features, linear.bias
        weight, scale = rounded(linear.weight.detach().float())
        self.weight, self.scale = nn.Buffer(weight), nn.Buffer(scale.T)  # (out, in), (1, out)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (..., in) -> (..., out)"""
        y = x.new_empty(*x.shape[:-1], self.out_features)
        self.write(x.reshape(-1, self.in_features), y.view(-1, self.out_features))
        return y

    def write(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """x: (N, in), and y: (N, out), which is filled."""
        rows, scale = rounded(x)
        width = max(1, CHUNK // max(1, len(rows)))
        for part, weight in zip(y.split(width, dim=1), self.weight.split(width), strict=True):
            part.copy_(torch._int_mm(rows, weight.T))
        y.mul_(scale).mul_(self.scale)
        return y if self.bias is None else y.add_(self.bias)


class PackedHead(Int8Linear):
    """The projection to logits, (..., D) -> (..., V), by 8 bits, those of the `EXACT` best tokens computed again in
    full: which one is the best, and by how much, is decided by exact numbers, and the rest only adds up to the
    denominator."""

    def __init__(self, linear: nn.Linear):
        super().__init__(linear)
        self.embedding = (linear.weight,)  # in a tuple, so that it is no second parameter: it is the embedding's

    def write(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        tokens = best(super().write(x, y), min(EXACT, self.out_features))[1]
        exact = (nn.functional.embedding(tokens, self.embedding[0]) @ x[:, :, None])[..., 0]  # (N, EXACT)
        return y.scatter_(-1, tokens, exact if self.bias is None else exact + self.bias[tokens])


def rounded(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(N, D) -> whole numbers from -127 to 127, (N, D), and what to multiply them by, (N, 1)"""
    scale = rows.abs().amax(-1, keepdim=True).clamp_(min=1e-12).div_(127)
    return (rows / scale).round_().to(torch.int8), scale


def full(linear: nn.Linear) -> PackedLinear:
    return PackedLinear(linear, torch.float32)


def half(linear: nn.Linear) -> PackedLinear:
    return PackedLinear(linear, torch.bfloat16)


class Makers(NamedTuple):
    """What takes the place of a matrix, of one whose rounding changes most, and of the projection to logits; and the
    smallest matrix that gains by it, in numbers."""

    matrix: Callable[[nn.Linear], nn.Module]
    delicate: Callable[[nn.Linear], nn.Module]
    head: Callable[[nn.Linear], nn.Module]
    smallest: int


PACKINGS = {
    "float32": Makers(full, full, full, 2**16),
    "bfloat16": Makers(half, full, PackedHead, 2**16),
    "int8": Makers(Int8Linear, Int8Linear, PackedHead, 2**18),
}
# What the source goes through, once for all steps, and what attention adds to the stream: three quarters of the tokens
# that bfloat16 changes in a base model are changed there.
DELICATE = re.compile(r"encoder|cross_attn\.[kv]_proj|\bo(ut)?_proj$")


def lacking(packing: str) -> str | None:
    """What a packing needs and this machine has not. Without VNNI torch multiplies whole numbers one by one, in thirty
    times the time of float32, and `PackedHead` of bfloat16 does as well."""
    if not torch.backends.mkldnn.is_available():
        return "oneDNN, and this torch was built without it"
    if packing != "float32" and not has_units("vnni"):
        return "a processor with AVX-512 VNNI, and this one is none"
    return None


def pack(model: PreTrainedModel, packing: Packing) -> PreTrainedModel:
    """Replace the large `nn.Linear` of a model, in place; embeddings stay as they are.

    Raises:
        ValueError: for an unknown packing, a model that is not on a CPU or not in float32, a build of torch without
            oneDNN, a processor without what makes it faster.
    """
    if packing not in PACKINGS:
        raise ValueError(f"got packed={packing!r}, expected one of {', '.join(get_args(Packing))}")
    if model.device.type != "cpu" or model.dtype != torch.float32:
        raise ValueError(
            f"got a model in {model.dtype} on {model.device}: packing is for float32 models on a CPU; load it so, or "
            "leave packed out"
        )
    if lacks := lacking(packing):
        other = "" if lacking("float32") else "take float32, or "
        raise ValueError(f"packed={packing!r} needs {lacks}: {other}leave it out")
    head = model.get_output_embeddings()
    makers = PACKINGS[packing]
    for path, module in list(model.named_modules()):
        if is_plain(module) and module.weight.numel() >= makers.smallest:
            parent, _, name = path.rpartition(".")
            make = makers.head if module is head else makers.delicate if DELICATE.search(path) else makers.matrix
            setattr(model.get_submodule(parent), name, make(module))
    return model
