# Copyright 2026 The vanilla_transformer authors. MIT License.
"""Decoder-only: the paper's decoder (section 3.1) without the sub-layer that attends to an encoder, a language model.

| step | where | shape |
|---|---|---|
| embed times sqrt(d_model), plus position, dropout | `Stack.embed`, `positions` | (B, T) -> (B, T, D) |
| N times: causal self-attention, feed-forward | `VanillaTransformerDecoderModel`, `layers` | (B, T, D) |
| logits by the tied embedding | `VanillaTransformerForCausalLM` | (B, T, V) |
"""

from typing import Unpack

import torch
from transformers import GenerationMixin
from transformers.cache_utils import Cache, DynamicCache
from transformers.masking_utils import create_causal_mask, create_sliding_window_causal_mask
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast
from transformers.utils import TransformersKwargs, can_return_tuple
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from .attention import MultiHeadAttention
from .configuration_vanilla_transformer import VanillaTransformerDecoderConfig
from .head import LanguageModel
from .layers import EncoderLayer
from .loss import shift_left
from .stacks import Stack, VanillaTransformerPreTrainedModel


class DecoderOnly(VanillaTransformerPreTrainedModel):
    """Configuration and code of both models in this file."""

    config_class = VanillaTransformerDecoderConfig
    auto_map = {
        "AutoConfig": "configuration_vanilla_transformer.VanillaTransformerDecoderConfig",
        "AutoModel": "modeling_vanilla_transformer_decoder.VanillaTransformerDecoderModel",
        "AutoModelForCausalLM": "modeling_vanilla_transformer_decoder.VanillaTransformerForCausalLM",
    }


class VanillaTransformerDecoderModel(DecoderOnly, Stack):
    """N layers of causal self-attention and feed-forward network  (section 3.1, "Decoder", without its second
    sub-layer)."""

    side = "decoder"
    layer_class = EncoderLayer  # the layer with two sub-layers
    is_causal = True
    _can_record_outputs = {
        "hidden_states": EncoderLayer,
        "attentions": OutputRecorder(MultiHeadAttention, index=1, layer_name="self_attn"),
    }

    def create_mask(self, position_ids, **kwargs):
        """A token sees itself and those before it, or with a sliding window the last W of these. Where positions begin
        anew, so does a text: several that are packed into a row, without a mask or cache, do not see each other."""
        create = create_causal_mask if self.config.sliding_window is None else create_sliding_window_causal_mask
        return create(position_ids=position_ids, **kwargs)

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        position_ids=None,
        past_key_values: Cache | None = None,
        inputs_embeds=None,
        use_cache: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPast:
        """input_ids: (B, T) -> last_hidden_state (B, T, D) and the cache; `attention_mask` covers cached tokens too,
        (B, past + T), with 1 for tokens.

        Raises:
            ValueError: for neither or both of ids and embeddings, and for rows of a sliding window without positions.
        """
        if self.positions.opens_bias and "cache" in kwargs:
            raise ValueError(
                f"generate_batch adds nothing to scores, as positions={self.config.positions!r} does: use generate"
            )
        self.check_keywords(kwargs)
        if use_cache and past_key_values is None:
            past_key_values = DynamicCache(config=self.config)
        if self.config.sliding_window and position_ids is None and getattr(attention_mask, "ndim", 2) == 4:
            raise ValueError(
                "got an attention_mask of rows (B, 1, T, keys) and no position_ids: rows of a sliding window do not "
                "tell how many tokens came before; give position_ids as well"
            )
        config = self.config_of_call(kwargs)
        x, shared, everywhere = self.enter(
            input_ids, inputs_embeds, attention_mask, position_ids, past_key_values, config
        )
        # A flash kernel makes its mask of these.
        everywhere |= dict(position_ids=position_ids, sliding_window=self.config.sliding_window)
        for layer in self.layers:
            x = layer(x, *shared, **everywhere, **kwargs)
        return BaseModelOutputWithPast(
            last_hidden_state=self.norm(x), past_key_values=past_key_values if use_cache else None
        )


class VanillaTransformerForCausalLM(LanguageModel, DecoderOnly, GenerationMixin):
    """p(token | tokens before it): the decoder's stack and the projection to logits  (sections 3.1 and 3.4)."""

    keywords = ("label_smoothing", "shift_labels")

    def __init__(self, config: VanillaTransformerDecoderConfig):
        super().__init__(config)
        self.model = VanillaTransformerDecoderModel(config)
        self.add_head(config.vocab_size)

    @can_return_tuple
    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        position_ids=None,
        past_key_values: Cache | None = None,
        inputs_embeds=None,
        labels=None,
        use_cache: bool | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        skip_logits: bool = False,
        num_items_in_batch: int | torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> CausalLMOutputWithPast:
        """input_ids: (B, T) -> logits (B, T, V) of the token that follows each, and the loss.

        Args:
            labels: the same ids as `input_ids`, -100 for padding; they are shifted here.
            shift_labels: shifted already, in place of `labels`, as trainings that split a sequence have them.
            logits_to_keep, label_smoothing, skip_logits, num_items_in_batch: see `LanguageModel.logits_and_loss`.
        """
        label_smoothing = kwargs.pop("label_smoothing", 0.0)
        shift_labels = kwargs.pop("shift_labels", None)
        self.check_keywords(kwargs)
        if shift_labels is None and labels is not None:
            shift_labels = shift_left(labels)
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            use_cache=False if shift_labels is not None else use_cache,
            **kwargs,
        )
        logits, loss = self.logits_and_loss(
            outputs.last_hidden_state,
            shift_labels,
            logits_to_keep,
            label_smoothing,
            skip_logits,
            num_items_in_batch,
        )
        return CausalLMOutputWithPast(
            loss=loss,
            logits=logits,
            past_key_values=outputs.past_key_values,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )
