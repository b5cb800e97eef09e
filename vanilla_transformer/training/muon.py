"""Muon (Jordan et al. 2024; not in the paper, whose optimizer is Adam, section 5.3)."""

import torch
from torch import nn
from torch.optim import AdamW, Optimizer
from transformers import PreTrainedModel, TrainingArguments


def muon_with_adam(model: PreTrainedModel, args: TrainingArguments) -> Optimizer:
    """Muon for the matrices of the layers; Adam, as `args` have it, for embeddings, gains and biases.

    The step of a matrix is its momentum with all singular values made nearly 1: directions that gradients seldom take
    count as much as those that all of them take. Its size is what Adam's would be (Liu et al. 2025, section 2.2), so
    that one learning rate serves both.

    Raises:
        ValueError: for a torch that has no Muon.
    """
    check_muon()
    tables = {id(part.weight) for part in model.modules() if isinstance(part, nn.Embedding)}
    tables.add(id(model.get_output_embeddings().weight))
    matrices: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for parameter in model.parameters():
        (matrices if parameter.dim() == 2 and id(parameter) not in tables else others).append(parameter)
    rate, betas = args.learning_rate, (args.adam_beta1, args.adam_beta2)
    return Together(
        torch.optim.Muon(matrices, rate, weight_decay=0.0, adjust_lr_fn="match_rms_adamw"),
        AdamW(others, rate, betas, args.adam_epsilon, weight_decay=0.0, fused=True),
    )


def check_muon() -> None:
    """Raises: ValueError, for a torch that has no Muon."""
    if not hasattr(torch.optim, "Muon"):
        raise ValueError(
            f"training.optimizer=muon needs torch 2.9, and this is {torch.__version__}: get a newer one, or train "
            "with --set training.optimizer=adam"
        )


class Together(Optimizer):
    """Several optimizers, each for parameters of its own, as one: their groups and states are kept here."""

    def __init__(self, *parts: Optimizer):
        self.parts = parts
        super().__init__([group for part in parts for group in part.param_groups], {})

    def step(self, closure=None):
        groups = iter(self.param_groups)  # those of a checkpoint, if one was loaded
        for part in self.parts:
            part.state, part.param_groups = self.state, [next(groups) for _ in part.param_groups]
            part.step()
