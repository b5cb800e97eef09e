# Copyright 2026 The vanilla_transformer authors. MIT License.
"""From the last layer to logits and loss: what the three language models of the family share."""

import torch
from torch import nn
from transformers.utils import TransformersKwargs

from .linear import Linear, is_plain, is_untouched
from .loss import cross_entropy, linear_cross_entropy
from .stacks import VanillaTransformerPreTrainedModel


class LossKwargs(TransformersKwargs, total=False):
    """Keywords of `forward` beside its parameters: see `VanillaTransformerPreTrainedModel.keywords`."""

    label_smoothing: float
    shift_labels: torch.Tensor


class LanguageModel(VanillaTransformerPreTrainedModel):
    """logits = Linear(x), by the matrix of the embeddings where they are tied  (section 3.4)."""

    _tp_plan = {"lm_head": "colwise_gather_output"}
    _fsdp_plan = {"lm_head": "keep_full_weight"}
    embeddings = "model.embed_tokens.weight"  # the matrix that the head is tied to
    keywords: tuple[str, ...] = ("label_smoothing",)

    def add_head(self, vocab_size: int):
        """Called by constructors, once `self.model` is there."""
        self.lm_head: nn.Linear = Linear(self.config.d_model, vocab_size, bias=self.config.output_bias)
        if self.config.tie_word_embeddings:
            self._tied_weights_keys = {"lm_head.weight": self.embeddings}
        self.post_init()

    def get_output_embeddings(self) -> nn.Linear:
        return self.lm_head

    def set_output_embeddings(self, value: nn.Linear):
        self.lm_head = value

    def logits_and_loss(
        self, hidden, labels, logits_to_keep=0, label_smoothing=0.0, skip_logits=False, num_items_in_batch=None
    ) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """hidden: (B, T, D) -> logits (B, T, V), and the loss where there are labels (B, T).

        Args:
            labels: token ids, -100 where nothing is to be predicted.
            logits_to_keep: only the last so many positions get logits (0: all), or the positions of a 1-D tensor.
            label_smoothing: epsilon_ls of section 5.4; 0.1 in the paper, for training only.
            skip_logits: return the loss alone, whose logits need not be held for all positions.
            num_items_in_batch: what the summed loss is divided by, the labels of all accumulated batches.

        Raises:
            ValueError: if the loss needs what was not given, or what is not kept.
        """
        if labels is not None and not (isinstance(logits_to_keep, int) and logits_to_keep == 0):
            raise ValueError("got labels and logits_to_keep: a loss needs the logits of all positions; give one")
        if skip_logits:
            if labels is None:
                raise ValueError("skip_logits=True without labels leaves nothing to return: give labels, or drop it")
            if is_plain(self.lm_head) and is_untouched(self.lm_head):
                return None, linear_cross_entropy(self.lm_head, hidden, labels, label_smoothing, num_items_in_batch)
            logits = self.lm_head(hidden)  # of an adapter, say, which is no plain matrix
            return None, cross_entropy(logits, labels, label_smoothing, num_items_in_batch)
        keep = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.lm_head(hidden[:, keep])  # (B, T, D) -> (B, T, V)
        if labels is None:
            return logits, None
        return logits, cross_entropy(logits, labels, label_smoothing, num_items_in_batch)
