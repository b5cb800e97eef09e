"""Muon (Jordan et al. 2024; not in the paper, whose optimizer is Adam, section 5.3)."""

from collections import defaultdict
from typing import cast

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer
from transformers import PreTrainedModel, TrainingArguments

from ..processor import computes_in_bfloat16

MOMENTUM = 0.95
ITERATIONS = 5
TOGETHER = 2**22  # numbers in the matrices that are computed together: what an update needs of memory is bounded
A, B, C = 3.4445, -4.7750, 2.0315  # of Jordan: the steepest rise at 0; singular values end between 0.7 and 1.2


def muon_with_adam(model: PreTrainedModel, args: TrainingArguments) -> Optimizer:
    """Muon for the matrices of the layers; Adam, as `args` have it, for embeddings, gains and biases.

    Muon computes in bfloat16 where the training does and the machine has it. Emulated, its iteration takes some thirty
    times as long as in float32, and more than all the rest of an update.
    """
    tables = {id(part.weight) for part in model.modules() if isinstance(part, nn.Embedding)}
    tables.add(id(model.get_output_embeddings().weight))
    matrices: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for parameter in model.parameters():
        (matrices if parameter.dim() == 2 and id(parameter) not in tables else others).append(parameter)
    rate, betas = args.learning_rate, (args.adam_beta1, args.adam_beta2)
    return Together(
        Muon(matrices, rate, torch.bfloat16 if args.bf16 and computes_in_bfloat16() else torch.float32),
        AdamW(others, rate, betas, args.adam_epsilon, weight_decay=0.0, fused=True),
    )


class Muon(Optimizer):
    """Steps whose singular values are all nearly 1: directions that gradients seldom take count as much as the others.

        M ← μ M + (1 - μ) G                            the momentum of the gradient G
        O = orthogonal(μ M + (1 - μ) G)                Nesterov's look ahead
        W ← W - γ · 0.2 · √max(rows, columns) · O

    The factor gives a step the size that Adam's has (Liu et al. 2025, section 2.2), so that one learning rate γ serves
    both. `torch.optim.Muon(adjust_lr_fn="match_rms_adamw", weight_decay=0)` has the same steps, one matrix after the
    other and in bfloat16 everywhere; here matrices of one shape are computed together.

    Args:
        matrices: parameters of two dimensions.
        rate: the learning rate γ.
        dtype: what the orthogonal steps are computed in.
    """

    def __init__(self, matrices: list[nn.Parameter], rate: float, dtype: torch.dtype):
        super().__init__(matrices, {"lr": rate})
        self.dtype = dtype

    @torch.no_grad()
    def step(self, closure=None):
        loss = loss_of(closure)
        for group in self.param_groups:
            alike: dict[torch.Size, list[nn.Parameter]] = defaultdict(list)
            for weight in group["params"]:
                if weight.grad is not None:
                    alike[weight.shape].append(weight)
            for shape, weights in alike.items():
                size, together = group["lr"] * 0.2 * max(shape) ** 0.5, max(1, TOGETHER // shape.numel())
                for first in range(0, len(weights), together):
                    self.move(weights[first : first + together], size)
        return loss

    def move(self, weights: list[nn.Parameter], size: float) -> None:
        """Take a step of this size, by weights of one shape."""
        gradients, momenta = [cast(Tensor, weight.grad) for weight in weights], [self.momentum(w) for w in weights]
        torch._foreach_lerp_(momenta, gradients, 1 - MOMENTUM)  # one call for all: on a GPU calls are what takes time
        ahead = torch._foreach_lerp(gradients, momenta, MOMENTUM)
        steps = orthogonal(torch.stack(ahead).to(self.dtype)).to(weights[0].dtype)
        torch._foreach_add_(cast(list[Tensor], weights), list(steps), alpha=-size)

    def momentum(self, weight: nn.Parameter) -> Tensor:
        """The mean of the gradients up to now."""
        state = self.state[weight]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(weight)
        return state["momentum_buffer"]


@torch.enable_grad()
def loss_of(closure):
    """What a closure computes anew, with its gradients, as torch's optimizers have it; `None` without one."""
    return None if closure is None else closure()


def orthogonal(x: Tensor) -> Tensor:
    """U Vᵀ of X = U S Vᵀ, nearly: X ← a X + (b X Xᵀ + c (X Xᵀ)²) X takes each singular value s to a s + b s³ + c s⁵.

    Args:
        x: (matrices, rows, columns).
    """
    if x.size(-2) > x.size(-1):  # X Xᵀ is the smaller product of a matrix that is not tall
        return orthogonal(x.mT).mT
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)  # singular values of at most 1; a gradient may be 0
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        gram = torch.baddbmm(gram, gram, gram, beta=B, alpha=C)
        x = torch.baddbmm(x, gram, x, beta=A)
    return x


class Together(Optimizer):
    """Several optimizers, each for parameters of its own, as one: their groups and states are kept here."""

    def __init__(self, *parts: Optimizer):
        self.parts = parts
        super().__init__([group for part in parts for group in part.param_groups], {})

    def step(self, closure=None):
        loss = loss_of(closure)
        groups = iter(self.param_groups)  # those of a checkpoint, if one was loaded
        for part in self.parts:
            part.state, part.param_groups = self.state, [next(groups) for _ in part.param_groups]
            part.step()
        return loss
