# Copyright 2026 The vanilla_transformer authors. MIT License.
"""Teacher forcing and its loss (section 5.4)."""

import torch
from torch import nn

from .linear import goes_to_onednn, linear

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
    if isinstance(num_items_in_batch, torch.Tensor):
        num_items_in_batch = num_items_in_batch.to(total.device)
    return total / num_items_in_batch


@torch.compiler.disable  # the number of tokens, and of chunks, differs from batch to batch: each would be compiled
def linear_cross_entropy(head: nn.Linear, x, labels, label_smoothing=0.0, num_items_in_batch=None) -> torch.Tensor:
    """`cross_entropy(head(x), labels, ...)`, x: (B, T, D), labels: (B, T), without the logits of all positions."""
    labels = labels.to(x.device)  # another one where a model is divided
    rows, targets = predicted(labels)
    parts = [x.flatten(0, 1)[rows], head.weight, head.bias]
    if not torch.is_grad_enabled():  # which a Function is not told of
        parts = [None if part is None else part.detach() for part in parts]
    total = LinearCrossEntropy.apply(*parts, targets, label_smoothing)
    return per_item(total, labels, num_items_in_batch)


def predicted(labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Where labels (B, T), laid out flat, have a token, the first such place again up to a multiple of `ROWS`; and the
    N tokens. What is not predicted needs no logits. But few numbers of rows do: oneDNN generates code for each that it
    meets on a CPU, and keeps it among tensors that find no room of their size any more. With N rows, steps took up to
    half as long again the longer a training went.
    """
    flat = labels.flatten()
    places = (flat != IGNORED_LABEL).nonzero().flatten()
    return torch.cat([places, places[:1].expand(-len(places) % ROWS)]), flat[places]


def rounded(x: torch.Tensor, *others: torch.Tensor | None) -> list:
    """The operands of products with x, as autocast would round each of them, but once and not for each product."""
    device = x.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
    return [None if part is None else part.to(dtype) for part in (x, *others)]


def add_product(total: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> None:
    """total += a b, without the product itself where all three are of one kind."""
    if goes_to_onednn(a, b.T):
        total += linear(a, b.T)
    elif a.dtype == b.dtype == total.dtype:
        total.addmm_(a, b)
    else:
        total += (a @ b).to(total.dtype)  # in one step with the sum it would take longer


def add_at_labels(grad: torch.Tensor, labels: torch.Tensor, number: float) -> None:
    """grad[..., v] += number where v is the label, grad: (..., V), contiguous, labels: (..., 1). `scatter_add_` would
    write all of a CPU's tensor anew."""
    rows = torch.arange(labels.numel(), device=labels.device)
    grad.view(-1, grad.shape[-1])[rows, labels.flatten()] += number


def log_normalizer(logits, chances, labels) -> torch.Tensor:
    """log sum exp of logits (..., V) with their softmax `chances`, by the label's alone, labels: (..., 1) -> (..., 1).

    chance = exp(logit) / Z of each token: no exponential is taken twice and no maximum looked for, unless the chance of
    some label is too small for a number.
    """
    if (chances.gather(-1, labels) < torch.finfo(chances.dtype).tiny).any():
        labels = chances.argmax(-1, True)
    exact = torch.promote_types(logits.dtype, torch.float32)
    return logits.gather(-1, labels).to(exact) - chances.gather(-1, labels).to(exact).log()


def smoothing(sum_x, count: int, weight, bias, label_smoothing: float) -> tuple:
    """What label smoothing adds to the summed loss of `count` positions, and to the gradients of each x (D,), of each
    row of W (D,), and of each b. It is the same for all v: the mean of W's rows does for it, and no logit is touched.
    """
    mean_bias = 0.0 if bias is None else bias.mean(dtype=sum_x.dtype)
    mean_weight = weight.mean(0, dtype=sum_x.dtype)  # by which the mean logit is x mean(W) + mean(b)
    loss = (sum_x * mean_weight).sum() + count * mean_bias
    share = label_smoothing / len(weight)
    return -label_smoothing * loss, -label_smoothing * mean_weight, -share * sum_x, -share * count


# Bytes of logits held at a time, and what their rows are a multiple of. A chunk should stay in a CPU's cache, but each
# of them adds to the gradient of all of W (with 2**22 the loss took a tenth more, a fifth in float32); and it should
# keep a GPU busy, which with 2**25 waited for the next chunk's calls (an H100, 25,600 tokens, compiled: 67 ms a step,
# 57 with 2**29).
CHUNKS, ROWS = {"cpu": 2**23, "cuda": 2**29}, 128


def rows_of_a_chunk(logits_of: torch.Tensor, weight: torch.Tensor) -> int:
    """How many rows x (N, D) `logits_of` are computed at a time, weight: (V, D)."""
    size = CHUNKS.get(logits_of.device.type, CHUNKS["cpu"])
    return max(1, size // (len(weight) * logits_of.element_size() * ROWS)) * ROWS


class LinearCrossEntropy(torch.autograd.Function):
    """The sum of `cross_entropy` over logits x W^T + b that are never held all at once  (section 5.4): a chunk of rows
    after the other is computed, summed up and turned into its gradient, softmax - (1 - eps) onehot(label) - eps/V.
    """

    @staticmethod
    def forward(ctx, x, weight, bias, labels, label_smoothing: float) -> torch.Tensor:
        """x: (N or more, D), weight: (V, D), bias: (V,) or None, labels: (N,), all of them tokens -> loss, a number in
        nats; rows of x without a label count for nothing."""
        wanted = ctx.needs_input_grad[:3]
        exact = torch.promote_types(weight.dtype, torch.float32)  # chunks are added up in float32 at least
        grad_x, grad_weight, grad_bias = (
            torch.zeros_like(part, dtype=exact) if want else None
            for part, want in zip((x, weight, bias), wanted, strict=True)
        )
        kept = 1 - label_smoothing
        total = torch.zeros((), dtype=torch.float32, device=x.device)
        rounded_x, rounded_weight, rounded_bias = rounded(x, weight, bias)
        rows = rows_of_a_chunk(rounded_x, weight)
        with torch.autocast(x.device.type, enabled=False):
            for start in range(0, len(x), rows):
                part, right = rounded_x[start : start + rows], labels[start : start + rows, None]
                logits = linear(part, rounded_weight, rounded_bias)  # logits: (rows, V)
                grad = logits.softmax(-1)
                told = len(right)  # rows with a label
                log_z = log_normalizer(logits[:told], grad[:told], right)
                total += (log_z - kept * logits[:told].gather(1, right)).sum()
                if any(wanted):
                    add_at_labels(grad[:told], right, -kept)
                    grad[told:] = 0
                if grad_x is not None:
                    grad_x[start : start + rows] = linear(grad, rounded_weight.T)
                if grad_weight is not None:
                    add_product(grad_weight, grad.T, part)
                if grad_bias is not None:
                    grad_bias += grad.sum(0)
                del logits, grad  # for the next chunk, while a CPU has their memory in its cache
        if label_smoothing:
            sums = smoothing(x[: len(labels)].sum(0, dtype=exact), len(labels), weight, bias, label_smoothing)
            for part, more in zip((total, grad_x, grad_weight, grad_bias), sums, strict=True):
                if part is not None:
                    part += more
            if grad_x is not None:
                grad_x[len(labels) :] = 0
        ctx.save_for_backward(
            *(
                None if grad is None else grad.to(part.dtype)
                for grad, part in zip((grad_x, grad_weight, grad_bias), (x, weight, bias), strict=True)
            )
        )
        return total

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_output):
        return *(None if grad is None else grad * grad_output for grad in ctx.saved_tensors), None, None
