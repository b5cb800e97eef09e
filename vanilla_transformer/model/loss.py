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
    if num_items_in_batch is None:
        num_items_in_batch = (labels != IGNORED_LABEL).sum().clamp(min=1)
    elif isinstance(num_items_in_batch, torch.Tensor):
        num_items_in_batch = num_items_in_batch.to(total.device)
    return total / num_items_in_batch
