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
| beam search | `generate` of transformers | (B·k, t) -> (B, T) |
| ids to text | tokenizer | str |
"""

import copy

import torch
from torch import nn
from transformers import GenerationMixin, PreTrainedModel
from transformers import initialization as init
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask
from transformers.modeling_outputs import (
    BaseModelOutput,
    BaseModelOutputWithPastAndCrossAttentions,
    Seq2SeqLMOutput,
    Seq2SeqModelOutput,
)
from transformers.utils import can_return_tuple
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from .attention import CrossAttention, MultiHeadAttention, attention_function
from .configuration_vanilla_transformer import VanillaTransformerConfig
from .decoding import LengthLimitMixin, paper_generation_config
from .layers import RESIDUALS, DecoderLayer, EncoderLayer
from .loss import IGNORED_LABEL, cross_entropy, shift_right
from .positions import POSITIONS, LearnedPositions, SinusoidalPositions, token_positions


class VanillaTransformerPreTrainedModel(PreTrainedModel):
    """What all models of the family share: their configuration, abilities and initialisation."""

    config_class = VanillaTransformerConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ["EncoderLayer", "DecoderLayer"]
    _skip_keys_device_placement = ["past_key_values"]
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _can_compile_fullgraph = True

    @torch.no_grad()
    def _init_weights(self, module):
        """Xavier-uniform matrices; embeddings N(0, 1/d_model), so that times sqrt(d_model) they have variance 1."""
        if isinstance(module, nn.Linear):
            init.xavier_uniform_(module.weight)
            if module.bias is not None:
                init.zeros_(module.bias)
        elif isinstance(module, LearnedPositions):
            init.normal_(module.weight, std=0.5**0.5)  # the root mean square of a sinusoid, whose place it takes
        elif isinstance(module, nn.Embedding):
            init.normal_(module.weight, std=self.config.d_model**-0.5)
        elif isinstance(module, SinusoidalPositions):
            init.copy_(module.table, module.compute(module.table.shape[0]))
        else:
            super()._init_weights(module)

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

    def save_pretrained(self, save_directory, **kwargs):
        """As in transformers; `config.json` also names the code of every Auto class, not only of the saved one."""
        self.config.auto_map = {**AUTO_MAP, **(getattr(self.config, "auto_map", None) or {})}
        super().save_pretrained(save_directory, **kwargs)


class Stack(VanillaTransformerPreTrainedModel):
    """Embeddings, positions and N equal layers: what the encoder and the decoder have in common."""

    layer_class: type[nn.Module]
    is_causal: bool
    _tp_plan = {
        "layers.*.*_attn.q_proj": "colwise",
        "layers.*.*_attn.k_proj": "colwise",
        "layers.*.*_attn.v_proj": "colwise",
        "layers.*.*_attn.o_proj": "rowwise",
        "layers.*.feed_forward.fc1": "colwise",
        "layers.*.feed_forward.fc2": "rowwise",
    }

    def __init__(self, config, vocab_size: int | None, num_layers: int, num_heads: int, ffn_dim: int):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(vocab_size, config.d_model)  # type: ignore[arg-type]  # the config fills it
        self.embed_scale = config.d_model**0.5 if config.scale_embedding else 1.0
        self.positions = POSITIONS[config.positions](config)
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(
            self.layer_class(config, num_heads, ffn_dim, layer_idx, self.is_causal) for layer_idx in range(num_layers)
        )
        self.norm = RESIDUALS[config.residual].final_norm(config)
        self.gradient_checkpointing = False
        self.post_init()

    def embed(self, input_ids, inputs_embeds, positions, length: int) -> torch.Tensor:
        """Dropout(E[ids] sqrt(d_model) + PE(positions))  (sections 3.4, 3.5 and 5.4): (B, L) -> (B, L, D)"""
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)
        return self.dropout(self.positions(inputs_embeds * self.embed_scale, positions, length))

    def config_of_call(self, output_attentions: bool | None):
        """The configuration that masks and kernel of this call follow. Only the formula itself ("eager") has weights
        to return: a call that asks for them gets an eager copy, and the shared configuration stays as it is."""
        if not output_attentions or self.config._attn_implementation == "eager":
            return self.config
        eager = copy.copy(self.config)
        eager._attn_implementation = "eager"
        return eager


def one_of(input_ids, inputs_embeds, names: str) -> torch.Tensor:
    if (input_ids is None) == (inputs_embeds is None):
        raise ValueError(f"got {'neither' if input_ids is None else 'both'} of {names}: give exactly one")
    return input_ids if input_ids is not None else inputs_embeds


class Encoder(Stack):
    """N layers of self-attention and feed-forward network  (section 3.1): (B, S) -> (B, S, D)"""

    layer_class = EncoderLayer
    is_causal = False
    _can_record_outputs = {
        "hidden_states": EncoderLayer,
        "attentions": OutputRecorder(MultiHeadAttention, index=1, layer_name="self_attn"),
    }

    def __init__(self, config: VanillaTransformerConfig):
        super().__init__(
            config, config.vocab_size, config.encoder_layers, config.encoder_attention_heads, config.encoder_ffn_dim
        )

    @merge_with_config_defaults
    @capture_outputs
    def forward(self, input_ids=None, attention_mask=None, inputs_embeds=None, **kwargs) -> BaseModelOutput:
        """input_ids: (B, S), attention_mask: (B, S) with 1 for tokens -> last_hidden_state (B, S, D)"""
        inputs = one_of(input_ids, inputs_embeds, "input_ids and inputs_embeds")
        if input_ids is not None:
            self.warn_if_padding_and_no_attention_mask(input_ids, attention_mask)
        length = inputs.shape[1]
        x = self.embed(
            input_ids, inputs_embeds, token_positions(attention_mask, 0, length, inputs.device), length
        )  # x: (B, S, D)

        config = self.config_of_call(kwargs.get("output_attentions"))
        mask = create_bidirectional_mask(config=config, inputs_embeds=x, attention_mask=attention_mask)
        for layer in self.layers:
            x = layer(x, mask, attention_interface=attention_function(config), **kwargs)
        return BaseModelOutput(last_hidden_state=self.norm(x))


class Decoder(Stack):
    """N layers of causal self-attention, cross-attention and feed-forward network  (section 3.1)."""

    layer_class = DecoderLayer
    is_causal = True
    _can_record_outputs = {
        "hidden_states": OutputRecorder(DecoderLayer, num_hidden_layers_key="decoder_layers"),
        "attentions": OutputRecorder(MultiHeadAttention, index=1, layer_name="self_attn"),
        "cross_attentions": OutputRecorder(CrossAttention, index=1, layer_name="cross_attn"),
    }

    def __init__(self, config: VanillaTransformerConfig):
        super().__init__(
            config,
            config.decoder_vocab_size,
            config.decoder_layers,
            config.decoder_attention_heads,
            config.decoder_ffn_dim,
        )

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        encoder_hidden_states=None,
        encoder_attention_mask=None,
        past_key_values: EncoderDecoderCache | None = None,
        inputs_embeds=None,
        position_ids=None,
        use_cache: bool | None = None,
        **kwargs,
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        """input_ids: (B, T), encoder_hidden_states: (B, S, D) -> last_hidden_state (B, T, D) and the cache.

        `attention_mask` covers cached and new tokens, (B, past + T). Keys and values of the T new tokens are added to
        the cache, so that the next call passes only what comes after them.
        """
        inputs = one_of(input_ids, inputs_embeds, "decoder_input_ids and decoder_inputs_embeds")
        if use_cache and past_key_values is None:
            past_key_values = EncoderDecoderCache(DynamicCache(config=self.config), DynamicCache(config=self.config))
        if past_key_values is not None and not isinstance(past_key_values, EncoderDecoderCache):
            raise TypeError(
                f"got past_key_values of type {type(past_key_values).__name__}, expected an EncoderDecoderCache: "
                "wrap it, EncoderDecoderCache(your_cache, DynamicCache(config=model.config))"
            )
        past = past_key_values.get_seq_length() if past_key_values is not None else 0
        if position_ids is None:
            position_ids = token_positions(attention_mask, past, inputs.shape[1], inputs.device)
            length = past + inputs.shape[1]
            if isinstance(length, torch.Tensor):  # of a static cache, whose size is an upper bound
                length = past_key_values.get_max_length()  # type: ignore[union-attr]
        else:
            length = int(position_ids.max()) + 1
        x = self.embed(input_ids, inputs_embeds, position_ids, length)  # x: (B, T, D)

        config = self.config_of_call(kwargs.get("output_attentions"))
        mask = create_causal_mask(
            config=config, inputs_embeds=x, attention_mask=attention_mask, past_key_values=past_key_values
        )
        memory_mask = create_bidirectional_mask(
            config=config,
            inputs_embeds=x,
            attention_mask=encoder_attention_mask,
            encoder_hidden_states=encoder_hidden_states,
        )
        for layer in self.layers:
            x = layer(
                x,
                mask,
                encoder_hidden_states,  # by position: gradient checkpointing differentiates only such arguments
                memory_mask=memory_mask,
                past_key_values=past_key_values,
                attention_interface=attention_function(config),
                **kwargs,
            )
        return BaseModelOutputWithPastAndCrossAttentions(
            last_hidden_state=self.norm(x), past_key_values=past_key_values if use_cache else None
        )


class VanillaTransformerModel(VanillaTransformerPreTrainedModel):
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
        **kwargs,
    ) -> Seq2SeqModelOutput:
        """input_ids: (B, S), decoder_input_ids: (B, T) -> last_hidden_state (B, T, D); masks have 1 for tokens.

        Raises:
            ValueError: if the inputs of a side are missing or given twice.
        """
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


class VanillaTransformerForSeq2SeqLM(LengthLimitMixin, VanillaTransformerPreTrainedModel, GenerationMixin):
    """The whole of Figure 1: encoder, decoder, and the projection to logits over the vocabulary."""

    _tp_plan = {"lm_head": "colwise_gather_output"}
    _fsdp_plan = {"lm_head": "keep_full_weight"}

    def __init__(self, config: VanillaTransformerConfig):
        super().__init__(config)
        self.model = VanillaTransformerModel(config)
        self.lm_head = nn.Linear(config.d_model, self.model.decoder.embed_tokens.num_embeddings, config.output_bias)
        if config.tie_word_embeddings:
            side = "encoder" if config.share_encoder_decoder_embeddings else "decoder"
            self._tied_weights_keys = {"lm_head.weight": f"model.{side}.embed_tokens.weight"}
        self.post_init()
        if self.generation_config._from_model_config:
            self.generation_config = paper_generation_config(config)

    def get_output_embeddings(self) -> nn.Linear:
        return self.lm_head

    def set_output_embeddings(self, value: nn.Linear):
        self.lm_head = value

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
        return shift_right(labels, self.config.decoder_start_token_id, self.config.pad_token_id)

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
        label_smoothing: float = 0.0,
        skip_logits: bool = False,
        num_items_in_batch: int | torch.Tensor | None = None,
        **kwargs,
    ) -> Seq2SeqLMOutput:
        """input_ids: (B, S), decoder_input_ids or labels: (B, T) -> logits (B, T, V), and the loss.

        Args:
            labels: target ids that end with `</s>`, -100 for padding; the decoder's inputs are made from them.
            logits_to_keep: only the last so many positions get logits (0: all), or the positions of a 1-D tensor.
            label_smoothing: epsilon_ls of section 5.4; 0.1 in the paper, for training only.
            skip_logits: return the loss alone, whose logits need not be held for all positions.
            num_items_in_batch: what the summed loss is divided by, the labels of all accumulated batches.
        """
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
        hidden = outputs.last_hidden_state
        if skip_logits:
            if labels is None:
                raise ValueError("skip_logits=True without labels leaves nothing to return: give labels, or drop it")
            kept = labels != IGNORED_LABEL  # padding needs no logits at all
            loss = cross_entropy(
                self.lm_head(hidden[kept])[None], labels[kept][None], label_smoothing, num_items_in_batch
            )
            logits = None
        else:
            keep = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
            logits = self.lm_head(hidden[:, keep])  # (B, T, D) -> (B, T, V)
            loss = None
            if labels is not None:
                loss = cross_entropy(logits, labels, label_smoothing, num_items_in_batch)
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


AUTO_MAP = {
    "AutoConfig": "configuration_vanilla_transformer.VanillaTransformerConfig",
    "AutoModel": "modeling_vanilla_transformer.VanillaTransformerModel",
    "AutoModelForSeq2SeqLM": "modeling_vanilla_transformer.VanillaTransformerForSeq2SeqLM",
}
