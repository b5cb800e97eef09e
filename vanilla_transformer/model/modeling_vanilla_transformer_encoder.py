# Copyright 2026 The vanilla_transformer authors. MIT License.
"""Encoder-only: the paper's encoder (section 3.1), and a head that says what stands behind a masked token.

| step | where | shape |
|---|---|---|
| embed times sqrt(d_model), plus position, dropout | `Stack.embed`, `positions` | (B, S) -> (B, S, D) |
| N times: self-attention, feed-forward | `VanillaTransformerEncoderModel`, `layers` | (B, S, D) |
| logits by the tied embedding | `VanillaTransformerForMaskedLM` | (B, S, V) |
"""

from typing import Unpack

from transformers.modeling_outputs import MaskedLMOutput
from transformers.utils import TransformersKwargs, can_return_tuple

from .configuration_vanilla_transformer import VanillaTransformerEncoderConfig
from .head import LanguageModel
from .stacks import Encoder, VanillaTransformerPreTrainedModel


class EncoderOnly(VanillaTransformerPreTrainedModel):
    """Configuration and code of both models in this file."""

    config_class = VanillaTransformerEncoderConfig
    auto_map = {
        "AutoConfig": "configuration_vanilla_transformer.VanillaTransformerEncoderConfig",
        "AutoModel": "modeling_vanilla_transformer_encoder.VanillaTransformerEncoderModel",
        "AutoModelForMaskedLM": "modeling_vanilla_transformer_encoder.VanillaTransformerForMaskedLM",
    }


class VanillaTransformerEncoderModel(EncoderOnly, Encoder):
    """The paper's encoder by itself: (B, S) -> last_hidden_state (B, S, D)  (section 3.1, "Encoder")."""


class VanillaTransformerForMaskedLM(LanguageModel, EncoderOnly):
    """p(masked token | all other tokens): the encoder's stack and the projection to logits  (sections 3.1 and 3.4;
    the task is BERT's, Devlin et al. 2019)."""

    def __init__(self, config: VanillaTransformerEncoderConfig):
        super().__init__(config)
        self.model = VanillaTransformerEncoderModel(config)
        self.add_head(config.vocab_size)

    @can_return_tuple
    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        inputs_embeds=None,
        labels=None,
        skip_logits: bool = False,
        num_items_in_batch=None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> MaskedLMOutput:
        """input_ids: (B, S) -> logits (B, S, V), and the loss.

        Args:
            labels: the tokens behind the masks, -100 everywhere else; nothing is shifted.
            label_smoothing, skip_logits, num_items_in_batch: see `LanguageModel.logits_and_loss`.
        """
        label_smoothing = kwargs.pop("label_smoothing", 0.0)
        self.check_keywords(kwargs)
        outputs = self.model(input_ids=input_ids, attention_mask=attention_mask, inputs_embeds=inputs_embeds, **kwargs)
        logits, loss = self.logits_and_loss(
            outputs.last_hidden_state,
            labels,
            label_smoothing=label_smoothing,
            skip_logits=skip_logits,
            num_items_in_batch=num_items_in_batch,
        )
        return MaskedLMOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )
