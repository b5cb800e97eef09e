"""Weights of 8 bits: matrices a quarter of the size, products two to four times as fast on a CPU, nearly the same.

A row of W (an output) has one scale, a row of x (a token) another, so that what a token becomes does not depend on the
batch that it is in (LLM.int8, Dettmers et al. 2022, section 2.1, without its outliers):

    y = x W^T + b  ~  s_x s_W (round(x / s_x) round(W / s_W)^T) + b,    s = max |row| / 127
"""

import torch
from torch import nn
from transformers import PreTrainedModel

from ..model.search import best

SMALLEST = 2**18  # numbers of a matrix; rounding costs more than it saves on smaller ones
CHUNK = 2**18  # whole numbers of 32 bits that are held at a time: they stay in the cache
EXACT = 16  # tokens of each row whose logits are computed as ever: as many as 8 beams choose from


class Int8Linear(nn.Module):
    """`nn.Linear` by whole numbers of 8 bits; not to be trained, and not to be saved."""

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


class Int8Head(Int8Linear):
    """The projection to logits, (..., D) -> (..., V), those of the `EXACT` best tokens computed again in full: which
    one is the best, and by how much, is decided by exact numbers, and the rest only adds up to the denominator."""

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


def quantize(model: PreTrainedModel) -> PreTrainedModel:
    """Replace the large `nn.Linear` of a model on a CPU by modules of 8 bits, in place; embeddings stay as they are.

    Raises:
        ValueError: for a model that is not on a CPU, or not in float32.
    """
    if model.device.type != "cpu" or model.dtype != torch.float32:
        raise ValueError(
            f"got a model in {model.dtype} on {model.device}: 8 bits are for float32 models on a CPU here"
        )
    head = model.get_output_embeddings()
    for path, module in list(model.named_modules()):
        if type(module) is nn.Linear and module.weight.numel() >= SMALLEST:
            parent, _, name = path.rpartition(".")
            setattr(model.get_submodule(parent), name, Int8Head(module) if module is head else Int8Linear(module))
    return model
