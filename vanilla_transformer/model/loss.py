# Copyright 2026 The vanilla_transformer authors. MIT License.
"""Teacher forcing and its loss (section 5.4)."""

import torch
from torch import nn

IGNORED_LABEL = -100  # the label of padding, which no loss counts


def shift_right(labels: torch.Tensor, start_token_id: int, pad_token_id: int) -> torch.Tensor:
    """Decoder inputs for teacher forcing: (B, T) labels, one place later, behind the start token  (Figure 1).

    With start 1 and padding 0: [[7, 8, 2], [9, 2, -100]] -> [[1, 7, 8], [1, 9, 2]].
    """
    start = labels.new_full((labels.shape[0], 1), start_token_id)
    shifted = torch.cat([start, labels[:, :-1]], dim=1)
    return shifted.masked_fill(shifted == IGNORED_LABEL, pad_token_id)


def shift_left(labels: torch.Tensor) -> torch.Tensor:
    """What a causal language model predicts at each position, the next token: (B, T) labels, one place earlier.

    [[1, 7, 8, 2]] -> [[7, 8, 2, -100]]; nothing follows the last one.
    """
    return nn.functional.pad(labels[:, 1:], (0, 1), value=IGNORED_LABEL)


def cross_entropy(logits, labels, label_smoothing=0.0, num_items_in_batch=None) -> torch.Tensor:
    """(1 - eps) (-log p(y)) + eps/V sum_v (-log p(v)), in nats per target token  (section 5.4, label smoothing).

    logits: (B, T, V); labels: (B, T), -100 where there is none. The sum is divided by the batch's own number of
    labels, or by `num_items_in_batch` where the batch is one of several that are accumulated.
    """
    total = nn.functional.cross_entropy(
        logits.flatten(0, 1).float(),
        labels.flatten().to(logits.device),
        ignore_index=IGNORED_LABEL,
        label_smoothing=label_smoothing,
        reduction="sum",
    )
    return per_item(total, labels, num_items_in_batch)


def per_item(total: torch.Tensor, labels: torch.Tensor, num_items_in_batch) -> torch.Tensor:
    """The mean, over the batch's own labels or the number that is given."""
    if num_items_in_batch is None:
        num_items_in_batch = (labels != IGNORED_LABEL).sum().clamp(min=1)
    elif isinstance(num_items_in_batch, torch.Tensor):
        num_items_in_batch = num_items_in_batch.to(total.device)
    return total / num_items_in_batch


def linear_cross_entropy(linear: nn.Linear, x, labels, label_smoothing=0.0, num_items_in_batch=None) -> torch.Tensor:
    """`cross_entropy(linear(x), labels, ...)`, x: (B, T, D), labels: (B, T), without the logits of all positions."""
    kept = labels != IGNORED_LABEL  # what is not predicted needs no logits at all
    x, targets = x[kept], labels[kept]
    total = LinearCrossEntropy.apply(x, linear.weight, linear.bias, targets, label_smoothing)
    return per_item(total, labels, num_items_in_batch)


CHUNK = 2**22  # logits that are held at a time


class LinearCrossEntropy(torch.autograd.Function):
    """The sum of `cross_entropy` over logits x W^T + b that are never held all at once  (section 5.4): a chunk of rows
    after the other is computed, summed up and turned into its gradient, softmax(logits) - target."""

    @staticmethod
    def forward(ctx, x, weight, bias, labels, label_smoothing: float) -> torch.Tensor:
        """x: (N, D), weight: (V, D), bias: (V,) or None, labels: (N,), all of them tokens -> loss, a number in nats"""
        wanted = ctx.needs_input_grad[:3]
        exact = torch.promote_types(weight.dtype, torch.float32)  # chunks are added up in float32 at least
        grads = [
            torch.zeros_like(part, dtype=exact) if want else None
            for part, want in zip((x, weight, bias), wanted, strict=True)
        ]
        total = torch.zeros((), dtype=torch.float32, device=x.device)
        rows = max(1, CHUNK // len(weight))
        for start in range(0, len(x), rows):
            part, right = x[start : start + rows], labels[start : start + rows, None]
            logits = nn.functional.linear(part, weight, bias).float()  # logits: (rows, V)
            log_z = logits.logsumexp(-1, keepdim=True)
            mean = logits.mean(-1, keepdim=True) if label_smoothing else 0.0
            total += (log_z - (1 - label_smoothing) * logits.gather(1, right) - label_smoothing * mean).sum()
            if any(wanted):
                grad = logits.sub_(log_z).exp_()  # the softmax
                if label_smoothing:
                    grad -= label_smoothing / len(weight)
                grad.scatter_add_(1, right, torch.full_like(log_z, label_smoothing - 1))
                grad = grad.to(part.dtype)
                if grads[0] is not None:
                    grads[0][start : start + rows] = grad @ weight
                if grads[1] is not None:
                    grads[1] += grad.T @ part
                if grads[2] is not None:
                    grads[2] += grad.sum(0)
        ctx.save_for_backward(
            *(
                None if grad is None else grad.to(part.dtype)
                for grad, part in zip(grads, (x, weight, bias), strict=True)
            )
        )
        return total

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_output):
        return *(None if grad is None else grad * grad_output for grad in ctx.saved_tensors), None, None
