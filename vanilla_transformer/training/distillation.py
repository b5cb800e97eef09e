"""Word-level knowledge distillation (Hinton et al. 2015; Kim and Rush 2016, section 3.1): beside the next token y, a
model learns how likely its teachers find each token v. Their distributions together are the renormalised product:

    Q = softmax(mean of the teachers' logits)
    (1 - lambda) ((1 - eps) (-log P(y)) + eps/V sum_v (-log P(v))) + lambda sum_v Q(v) (-log P(v))
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import nn

from ..interop.loading import load_weights
from ..model.linear import linear
from ..model.loss import LinearCrossEntropy
from ..model.modeling_vanilla_transformer import VanillaTransformerForSeq2SeqLM

Chances = Callable[[slice], torch.Tensor]


class Teachers:
    """Finished models of the student's vocabulary.

    Args:
        folders: of the models.
        share: lambda.
        options: of `from_pretrained`. bfloat16 does as `dtype` where the student's products are in it.
    """

    def __init__(self, folders: Sequence[Path], share: float, device: torch.device, **options):
        self.share = share
        self.models = [
            load_weights(folder, VanillaTransformerForSeq2SeqLM, **options).to(device) for folder in folders
        ]

    @torch.no_grad()
    def read(self, inputs: dict, kept) -> Chances:
        """Q of the N positions at which `kept` (B, T) is true: a slice of them -> (rows, V)"""
        parts = [  # (N, D), (V, D), (V,) or None of each teacher
            (model.model(**inputs, use_cache=False).last_hidden_state[kept], model.lm_head.weight, model.lm_head.bias)
            for model in self.models
        ]

        def chances(rows: slice) -> torch.Tensor:
            logits = torch.stack([linear(x[rows], weight, bias) for x, weight, bias in parts])
            return logits.mean(0).softmax(-1)

        return chances


def distillation_loss(head: nn.Linear, x, labels, label_smoothing: float, share: float, chances: Chances):
    """The sum of the above over all tokens, in nats.

    Args:
        head: the projection to logits over V tokens.
        x: (N, D), last hidden states.
        labels: (N,), all of them tokens.
        share: lambda, that of the teachers.
        chances: what `Teachers.read` returns, of the same positions.
    """
    return LinearCrossEntropy.apply(x, head.weight, head.bias, labels, label_smoothing, chances, share)
