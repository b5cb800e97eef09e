# Copyright 2026 The vanilla_transformer authors. MIT License.
"""y = x W^T + b, and the library that computes it.

torch hands products of float32 on a CPU to MKL, which on an AMD processor leaves the AVX-512 units unused. There the
large ones go to oneDNN, the other library that torch brings, in half of the time. Sums are then added up in another
order, and nothing else differs; `torch.backends.mkldnn.flags(enabled=False)` leaves all of them to MKL.
"""

from collections.abc import Mapping
from typing import TypeGuard

import torch
from torch import nn

# Where oneDNN is faster though a call of it takes longer: so many multiplications, or a matrix of so many numbers,
# which comes from memory and not from a cache.
FEWEST, LARGE = 2**20, 3 * 2**16


def mkl_is_slow() -> bool:
    """Whether this processor has AVX-512 units that MKL leaves unused."""
    capabilities: Mapping = getattr(torch.cpu, "get_capabilities", dict)()  # torch 2.6 cannot tell
    is_amd = str(capabilities.get("cpu_name", "")).startswith("AMD")
    return is_amd and bool(capabilities.get("avx512_f")) and torch.backends.mkldnn.is_available()


MKL_IS_SLOW = mkl_is_slow()


def goes_to_onednn(x: torch.Tensor, weight: torch.Tensor) -> bool:
    """x: (..., D), weight: (F, D). Whatever is not two plain tensors of float32 on a CPU is left to torch."""
    return (
        MKL_IS_SLOW
        and not torch.jit.is_tracing()
        and (x.numel() * weight.shape[0] >= FEWEST or weight.numel() >= LARGE)
        and x.dtype == weight.dtype == torch.float32
        and type(x) in (torch.Tensor, nn.Parameter)
        and type(weight) in (torch.Tensor, nn.Parameter)
        and x.device.type == weight.device.type == "cpu"
        and x.dim() > 1
        and bool(torch.backends.mkldnn.enabled)
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
    )


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """x W^T + b, x: (..., D), W: (F, D), b: (F,) -> (..., F)"""
    if not goes_to_onednn(x, weight):
        return nn.functional.linear(x, weight, bias)
    if torch.is_grad_enabled():
        return OneDNNLinear.apply(x, weight, bias)
    return OneDNNLinear.forward(x, weight, bias)


class OneDNNLinear(torch.autograd.Function):
    """x W^T + b by oneDNN. All of its derivatives are such products again."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, weight, bias):
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs[:2])
        ctx.save_for_forward(*inputs[:2])

    @staticmethod
    def backward(ctx, grad):
        """grad: (..., F) -> grad W, (..., D); grad^T x, (F, D); the sum of grad, (F,)"""
        x, weight = ctx.saved_tensors
        for_x, for_weight, for_bias = ctx.needs_input_grad
        rows = grad.flatten(0, -2)  # (N, F)
        return (
            linear(grad, weight.T) if for_x else None,
            linear(rows.T, x.flatten(0, -2).T) if for_weight else None,
            rows.sum(0) if for_bias else None,
        )

    @staticmethod
    def jvp(ctx, x_tangent, weight_tangent, bias_tangent):
        x, weight = ctx.saved_tensors
        change = torch.zeros((), dtype=x.dtype)
        if x_tangent is not None:
            change = change + linear(x_tangent, weight)
        if weight_tangent is not None:
            change = change + linear(x, weight_tangent)
        return change if bias_tangent is None else change + bias_tangent


OBSERVER = "transformers.utils.output_capturing"  # whose hooks are idle but in a call that asks for outputs


class Linear(nn.Linear):
    """y = x W^T + b, x: (..., in) -> (..., out)"""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return linear(x, self.weight, self.bias)


def is_plain(module: nn.Module) -> TypeGuard[nn.Linear]:
    """Whether a module computes x W^T + b and nothing else: no adapter, no rounded matrix (torchao's is a weight of
    another type)."""
    return type(module) in (nn.Linear, Linear) and type(module.weight) in (torch.Tensor, nn.Parameter)


def is_untouched(module: nn.Module) -> bool:
    """Whether calling a module is its own `forward` and nothing else: no other method in its place, and no hooks but
    those that transformers leaves behind for good where a call has asked for attention or hidden states."""
    hooks = (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
    return "forward" not in module.__dict__ and all(getattr(hook, "__module__", "") == OBSERVER for hook in hooks)
