"""R-Drop (Liang et al. 2021, equation 4, of which this is one half): each pair goes through two dropouts, and the two
distributions P and Q of a token are to be alike.

    (CE(P) + CE(Q)) / 2 + alpha / 4 (KL(P | Q) + KL(Q | P))
"""

import torch
from torch import nn

from ..model.linear import linear
from ..model.loss import (
    add_at_labels,
    add_product,
    log_normalizer,
    predicted,
    rounded,
    rows_of_a_chunk,
    smoothing,
)


def r_drop_loss(head: nn.Linear, x, labels, label_smoothing: float, alpha: float) -> torch.Tensor:
    """The sum of the above over all tokens, in nats.

    Args:
        head: the projection to logits over V tokens.
        x: (2 B, T, D), last hidden states of B pairs under one dropout, then of the same pairs under another.
        labels: (B, T), -100 where there is none.
    """
    rows, targets = predicted(labels)
    p, q = (half.flatten(0, 1)[rows] for half in x.chunk(2))  # (N or more, D) each
    return RDrop.apply(p, q, head.weight, head.bias, targets, label_smoothing, alpha)


class RDrop(torch.autograd.Function):
    """A chunk of rows after the other, of which neither logits nor probabilities outlive their gradients:

    d CE(P) / d logits = P - (1 - eps) onehot(label) - eps/V
    d (KL(P | Q) + KL(Q | P)) / d logits of P = P - Q + P (log P - log Q - KL(P | Q))

    log P - log Q is the difference of the logits and a number for each row, so that no logarithm of V numbers is
    taken.
    """

    @staticmethod
    def forward(ctx, p, q, weight, bias, labels, label_smoothing: float, alpha: float) -> torch.Tensor:
        """p, q: (N or more, D), weight: (V, D), bias: (V,) or None, labels: (N,) -> loss, a number in nats; rows
        without a label count for nothing."""
        exact = torch.promote_types(weight.dtype, torch.float32)  # chunks are added up in float32 at least
        grad_x = torch.zeros(2, *p.shape, dtype=exact, device=p.device)
        grad_weight = torch.zeros_like(weight, dtype=exact)
        grad_bias = None if bias is None else torch.zeros_like(bias, dtype=exact)
        total = torch.zeros((), dtype=exact, device=p.device)
        kept, half = 1 - label_smoothing, alpha / 4
        rounded_p, rounded_q, rounded_weight, rounded_bias = rounded(p, q, weight, bias)
        rows = rows_of_a_chunk(rounded_p, weight) // 2
        with torch.autocast(p.device.type, enabled=False):
            for start in range(0, len(p), rows):
                x = torch.stack([part[start : start + rows] for part in (rounded_p, rounded_q)])  # (2, rows, D)
                right = labels[start : start + rows, None].expand(2, -1, 1)
                told = right.shape[1]  # rows with a label
                logits = linear(x, rounded_weight, rounded_bias)  # (2, rows, V)
                chances = logits.softmax(-1)  # P, Q
                log_z = torch.zeros_like(chances[..., :1], dtype=exact)  # (2, rows, 1)
                log_z[:, :told] = log_normalizer(logits[:, :told], chances[:, :told], right)
                apart = logits[0] - logits[1]  # log P - log Q + log_z[0] - log_z[1]
                shift = log_z[0] - log_z[1]
                weighted = chances * apart
                mean = weighted.sum(-1, True, dtype=exact)  # of `apart`, by P and by Q
                divergence = torch.stack([mean[0] - shift, shift - mean[1]])  # (2, rows, 1): KL(P | Q) and KL(Q | P)
                total += (log_z[:, :told] - kept * logits[:, :told].gather(-1, right)).sum() / 2
                total += half * divergence[:, :told].sum()
                grad = logits  # whose place it takes
                for side, sign in ((0, 1), (1, -1)):
                    factor = 0.5 + half * (1 - sign * shift - divergence[side])  # (rows, 1)
                    torch.mul(chances[side], factor.to(grad.dtype), out=grad[side])
                    grad[side].add_(weighted[side], alpha=sign * half).sub_(chances[1 - side], alpha=half)
                    add_at_labels(grad[side, :told], right[side], -kept / 2)
                    grad[side, told:] = 0
                if grad_bias is not None:
                    grad_bias += grad.sum((0, 1))
                grad_x[:, start : start + rows] = linear(grad, rounded_weight.T)
                add_product(grad_weight, grad.flatten(0, 1).T, x.flatten(0, 1))
                del logits, chances, apart, weighted, grad  # see LinearCrossEntropy
        if label_smoothing:
            sum_x = sum(part[: len(labels)].sum(0, dtype=exact) for part in (p, q))
            sums = smoothing(sum_x, 2 * len(labels), weight, bias, label_smoothing / 2)
            for part, more in zip((total, grad_x, grad_weight, grad_bias), sums, strict=True):
                if part is not None:
                    part += more
            grad_x[:, len(labels) :] = 0
        grads = (*grad_x, grad_weight, grad_bias)
        parts = (p, q, weight, bias)
        ctx.save_for_backward(
            *(None if grad is None else grad.to(x.dtype) for grad, x in zip(grads, parts, strict=True))
        )
        return total

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_output):
        return *(None if grad is None else grad * grad_output for grad in ctx.saved_tensors), None, None, None
