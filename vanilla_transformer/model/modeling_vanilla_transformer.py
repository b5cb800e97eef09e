# Copyright 2026 The vanilla_transformer authors. MIT License.
"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017), from token ids to logits.

The main road (B batch, S source length, T target length, D d_model, V vocabulary, k beams):

| step | where | shape |
|---|---|---|
| text to ids | tokenizer | str -> (B, S) |
| batch, in training | `data` collator | (B, S), (B, T); labels padded with -100 |
| embed times sqrt(d_model), plus position, dropout | `Stack.embed`, `positions` | (B, S, D) |
| encoder, N times: self-attention, feed-forward | `Encoder`, `layers`, `attention` | (B, S, D) |
| decoder, N times: causal self-attention, cross-attention, feed-forward | `Decoder`, `layers` | (B, T, D) |
| logits by the tied embedding | `VanillaTransformerForSeq2SeqLM` | (B, T, V) |
| beam search | `search`, called by `generate` | (B·k, t) -> (B, T) |
| ids to text | tokenizer | str |
"""

from pathlib import Path
from typing import Unpack

import torch
from torch import nn
from transformers import GenerationMixin
from transformers.cache_utils import Cache
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput, Seq2SeqModelOutput
from transformers.utils import GENERATION_CONFIG_NAME, TransformersKwargs, can_return_tuple

from .configuration_vanilla_transformer import VanillaTransformerConfig
from .decoding import LengthLimitMixin, paper_generation_config
from .head import LanguageModel
from .loss import shift_right
from .stacks import Decoder, Encoder, VanillaTransformerPreTrainedModel


class EncoderDecoder(VanillaTransformerPreTrainedModel):
    """What the two models of Figure 1 share, with and without the output projection: two vocabularies or one."""

    config_class = VanillaTransformerConfig
    auto_map = {
        "AutoConfig": "configuration_vanilla_transformer.VanillaTransformerConfig",
        "AutoModel": "modeling_vanilla_transformer.VanillaTransformerModel",
        "AutoModelForSeq2SeqLM": "modeling_vanilla_transformer.VanillaTransformerForSeq2SeqLM",
    }

    def __init__(self, config: VanillaTransformerConfig, *args, **kwargs):
        if config.share_encoder_decoder_embeddings:
            config.decoder_vocab_size = (
                config.vocab_size
            )  # which may have been set since: it counts those of both sides
        super().__init__(config, *args, **kwargs)

    def _resize_token_embeddings(self, new_num_tokens, pad_to_multiple_of=None, mean_resizing=True):
        """Called by `resize_token_embeddings`: both sides of one vocabulary, or the source side of two."""
        if self.config.share_encoder_decoder_embeddings:
            embeddings = super()._resize_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)
            self.config.decoder_vocab_size = embeddings.num_embeddings
            return embeddings
        embeddings = self._get_resized_embeddings(
            self.get_input_embeddings(), new_num_tokens, pad_to_multiple_of, mean_resizing
        )
        self.set_input_embeddings(embeddings)
        return embeddings


class VanillaTransformerModel(EncoderDecoder):
    """Encoder and decoder without the output projection  (Figure 1)."""

    def __init__(self, config: VanillaTransformerConfig):
        super().__init__(config)
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)
        if config.share_encoder_decoder_embeddings:
            self._tied_weights_keys = {"decoder.embed_tokens.weight": "encoder.embed_tokens.weight"}
        self.post_init()

    def get_expanded_tied_weights_keys(self, all_submodels: bool = False) -> dict[str, str]:
        # transformers asks `tie_word_embeddings` alone, which here speaks of the output projection only.
        if all_submodels:
            return super().get_expanded_tied_weights_keys(all_submodels=True)
        return dict(self._tied_weights_keys or {})

    def get_input_embeddings(self) -> nn.Embedding:
        return self.encoder.embed_tokens

    def set_input_embeddings(self, value: nn.Embedding):
        self.encoder.embed_tokens = value
        if self.config.share_encoder_decoder_embeddings:
            self.decoder.embed_tokens = value

    @can_return_tuple
    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        decoder_input_ids=None,
        decoder_attention_mask=None,
        encoder_outputs=None,
        past_key_values: Cache | None = None,
        inputs_embeds=None,
        decoder_inputs_embeds=None,
        decoder_position_ids=None,
        use_cache: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> Seq2SeqModelOutput:
        """input_ids: (B, S), decoder_input_ids: (B, T) -> last_hidden_state (B, T, D); masks have 1 for tokens.

        Raises:
            ValueError: if the inputs of a side are missing or given twice.
        """
        self.check_keywords(kwargs)
        kwargs.pop("position_ids", None)  # a source has none, and the decoder's are another argument
        if encoder_outputs is None:
            encoder_outputs = self.encoder(
                input_ids=input_ids, attention_mask=attention_mask, inputs_embeds=inputs_embeds, **kwargs
            )
        elif not isinstance(encoder_outputs, BaseModelOutput):
            encoder_outputs = BaseModelOutput(*encoder_outputs)
        decoder_outputs = self.decoder(
            input_ids=decoder_input_ids,
            attention_mask=decoder_attention_mask,
            encoder_hidden_states=encoder_outputs.last_hidden_state,
            encoder_attention_mask=attention_mask,
            past_key_values=past_key_values,
            inputs_embeds=decoder_inputs_embeds,
            position_ids=decoder_position_ids,
            use_cache=use_cache,
            **kwargs,
        )
        return Seq2SeqModelOutput(
            last_hidden_state=decoder_outputs.last_hidden_state,
            past_key_values=decoder_outputs.past_key_values,
            decoder_hidden_states=decoder_outputs.hidden_states,
            decoder_attentions=decoder_outputs.attentions,
            cross_attentions=decoder_outputs.cross_attentions,
            encoder_last_hidden_state=encoder_outputs.last_hidden_state,
            encoder_hidden_states=encoder_outputs.hidden_states,
            encoder_attentions=encoder_outputs.attentions,
        )


class VanillaTransformerForSeq2SeqLM(LengthLimitMixin, LanguageModel, EncoderDecoder, GenerationMixin):
    """The whole of Figure 1: encoder, decoder, and the projection to logits over the vocabulary."""

    def __init__(self, config: VanillaTransformerConfig):
        super().__init__(config)
        self.model = VanillaTransformerModel(config)
        side = "encoder" if config.share_encoder_decoder_embeddings else "decoder"
        self.embeddings = f"model.{side}.embed_tokens.weight"
        self.add_head(self.model.decoder.embed_tokens.num_embeddings)
        if self.generation_config._from_model_config:
            self.generation_config = paper_generation_config(config)

    def adjust_generation_fn(self, generation_config, from_auto_class, from_pipeline, checkpoint, **kwargs):
        """As in transformers, which calls it at the end of `from_pretrained`; the search of a checkpoint that says
        nothing of it is the paper's here, and not greedy.

        Raises:
            OSError: for a generation_config.json that cannot be read.
        """
        super().adjust_generation_fn(generation_config, from_auto_class, from_pipeline, checkpoint, **kwargs)
        if generation_config is None and self.generation_config._from_model_config:
            file = Path(checkpoint, kwargs.get("subfolder") or "", GENERATION_CONFIG_NAME)
            if file.is_file():
                raise OSError(f"{file} cannot be read as JSON: copy it again, or delete it for the paper's search")
            self.generation_config = paper_generation_config(self.config)

    def resize_decoder_token_embeddings(self, new_num_tokens: int, pad_to_multiple_of: int | None = None):
        """The target side of two vocabularies: the decoder's embedding and the output projection.

        Raises:
            ValueError: for a model with one vocabulary.
        """
        if self.config.share_encoder_decoder_embeddings:
            raise ValueError("source and target share one vocabulary: use resize_token_embeddings, which resizes both")
        decoder = self.model.decoder
        decoder.embed_tokens = self._get_resized_embeddings(decoder.embed_tokens, new_num_tokens, pad_to_multiple_of)
        self.lm_head = self._get_resized_lm_head(self.lm_head, decoder.embed_tokens.num_embeddings)
        self.config.decoder_vocab_size = decoder.embed_tokens.num_embeddings
        self.tie_weights()
        return decoder.embed_tokens

    def prepare_decoder_input_ids_from_labels(self, labels: torch.Tensor) -> torch.Tensor:
        """Called by `DataCollatorForSeq2Seq(tokenizer, model=model)`: (B, T) -> (B, T)"""
        start, pad = self.config.decoder_start_token_id, self.config.pad_token_id
        if start is None or pad is None:
            raise ValueError(
                f"got config.decoder_start_token_id={start} and config.pad_token_id={pad}: decoder inputs are made "
                "from labels with both; set them, or give decoder_input_ids"
            )
        return shift_right(labels, start, pad)

    @can_return_tuple
    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        decoder_input_ids=None,
        decoder_attention_mask=None,
        encoder_outputs=None,
        past_key_values: Cache | None = None,
        inputs_embeds=None,
        decoder_inputs_embeds=None,
        decoder_position_ids=None,
        labels=None,
        use_cache: bool | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        skip_logits: bool = False,
        num_items_in_batch: int | torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> Seq2SeqLMOutput:
        """input_ids: (B, S), decoder_input_ids or labels: (B, T) -> logits (B, T, V), and the loss.

        Args:
            labels: target ids that end with `</s>`, -100 for padding; the decoder's inputs are made from them.
            logits_to_keep, label_smoothing, skip_logits, num_items_in_batch: see `LanguageModel.logits_and_loss`.
        """
        label_smoothing = kwargs.pop("label_smoothing", 0.0)
        self.check_keywords(kwargs)
        if labels is not None:
            use_cache = False
            if decoder_input_ids is None and decoder_inputs_embeds is None:
                decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            decoder_input_ids=decoder_input_ids,
            decoder_attention_mask=decoder_attention_mask,
            encoder_outputs=encoder_outputs,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            decoder_inputs_embeds=decoder_inputs_embeds,
            decoder_position_ids=decoder_position_ids,
            use_cache=use_cache,
            **kwargs,
        )
        logits, loss = self.logits_and_loss(
            outputs.last_hidden_state, labels, logits_to_keep, label_smoothing, skip_logits, num_items_in_batch
        )
        return Seq2SeqLMOutput(
            loss=loss,
            logits=logits,
            past_key_values=outputs.past_key_values,
            decoder_hidden_states=outputs.decoder_hidden_states,
            decoder_attentions=outputs.decoder_attentions,
            cross_attentions=outputs.cross_attentions,
            encoder_last_hidden_state=outputs.encoder_last_hidden_state,
            encoder_hidden_states=outputs.encoder_hidden_states,
            encoder_attentions=outputs.encoder_attentions,
        )
