# Copyright 2026 The vanilla_transformer authors. MIT License.
"""The encoder's and the decoder's stack of layers (section 3.1), and what all models of the family share."""

import copy
import inspect
from typing import Unpack

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask
from transformers.modeling_outputs import BaseModelOutput, BaseModelOutputWithPastAndCrossAttentions
from transformers.utils import TransformersKwargs, logging
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from .attention import CrossAttention, MultiHeadAttention, attention_function
from .configuration_vanilla_transformer import FamilyConfig, reject_near_misses
from .layers import RESIDUALS, DecoderLayer, Dropout, EncoderLayer
from .positions import POSITIONS, LearnedPositions, Sinusoids, key_positions, token_positions

logger = logging.get_logger(__name__)

# What a `forward` need not know by name: `use_cache` comes from the configuration, also to an encoder. But nothing
# behind it reads `position_ids`.
PASSED_ON = (TransformersKwargs.__annotations__.keys() | {"use_cache"}) - {"position_ids"}


class VanillaTransformerPreTrainedModel(PreTrainedModel):
    """What all models of the family share: their configuration, abilities and initialisation."""

    base_model_prefix = "model"
    # Where a process without this package finds the classes: in the files that `save_pretrained` copies.
    auto_map: dict[str, str] = {}  # of what an Auto class can load: a stack alone is none of them
    supports_gradient_checkpointing = True
    _no_split_modules = ["EncoderLayer", "DecoderLayer"]
    _skip_keys_device_placement = ["past_key_values"]
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _can_compile_fullgraph = True
    # What `forward` knows and has no parameter for: transformers' `Trainer` takes each parameter with "label" in its
    # name for labels that every batch must have, and evaluates without a loss where one is missing.
    keywords: tuple[str, ...] = ()

    def __init__(self, config: FamilyConfig, *args, **kwargs):
        config.validate_architecture()  # fields may have been set since the configuration was made
        super().__init__(config, *args, **kwargs)

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
        elif isinstance(module, Sinusoids):
            init.copy_(module.table, module.compute(module.table.shape[0]))
        else:
            super()._init_weights(module)

    def post_init(self):
        super().post_init()
        # Each process of a distributed training grows its tables of sinusoids by itself: they are not broadcast.
        self._ddp_params_and_buffers_to_ignore = [
            name for name, _ in self.named_buffers() if name.endswith("positions.table")
        ]

    def _check_and_adjust_attn_implementation(self, attn_implementation, *args, **kwargs):
        if POSITIONS[self.config.positions].opens_bias and "flash" in (attn_implementation or ""):
            raise ValueError(
                f"attn_implementation={attn_implementation!r} adds nothing to scores, as positions="
                f"{self.config.positions!r} does: choose 'eager', 'sdpa' or 'flex_attention'"
            )
        return super()._check_and_adjust_attn_implementation(attn_implementation, *args, **kwargs)

    def check_keywords(self, kwargs: dict) -> None:
        """What no parameter of `forward` took, and is not for the attention kernels either, is not passed over.

        Raises:
            ValueError: for a keyword that is nearly the name of a parameter; any other is warned of once.
        """
        unknown = [name for name in kwargs if name not in PASSED_ON]
        if unknown:
            reject_near_misses(unknown, (*inspect.signature(self.forward).parameters, *self.keywords))
            logger.warning_once(f"forward does not know {', '.join(unknown)}: ignored")

    def save_pretrained(self, save_directory, **kwargs):
        """As in transformers; `config.json` also names the code of every Auto class, not only of the saved one."""
        self.config.auto_map = {**self.auto_map, **(getattr(self.config, "auto_map", None) or {})}
        super().save_pretrained(save_directory, **kwargs)


# How tensor parallelism shards the projections of a layer: by heads and by columns of the inner layer.
SHARDS = {"fc1": "colwise", "gate": "colwise", "fc2": "rowwise", "o_proj": "rowwise"}
SHARDS |= dict.fromkeys(["q_proj", "k_proj", "v_proj"], "colwise")


class Stack(VanillaTransformerPreTrainedModel):
    """Embeddings, positions and N equal layers: what the encoder and the decoder have in common."""

    side: str  # whose sizes it reads in a configuration of two stacks
    inputs = "input_ids and inputs_embeds"  # the names that a user knows them by
    layer_class: type[nn.Module]
    is_causal: bool

    def __init__(self, config: FamilyConfig):
        super().__init__(config)
        size = config.stack_size(self.side)
        self.embed_tokens = nn.Embedding(size.vocab_size, config.d_model)
        self.embed_scale = config.d_model**0.5 if config.scale_embedding else 1.0
        self.positions = POSITIONS[config.positions](config, size.heads, self.is_causal)
        self.dropout = Dropout(config.dropout)
        self.layers = nn.ModuleList(
            self.layer_class(config, size.heads, size.ffn_dim, layer_idx, self.is_causal)
            for layer_idx in range(size.layers)
        )
        self.norm = RESIDUALS[config.residual].final_norm(config)
        self.gradient_checkpointing = False
        self.post_init()
        self._tp_plan = {"embed_tokens": "embedding_rowwise"} | {
            f"layers.*.{name}": SHARDS[kind]
            for name, _ in self.layers[0].named_modules()
            # A bias has a number for every head, and so needs all of them in one place.
            if (kind := name.rpartition(".")[2]) in SHARDS and not ("attn" in name and self.positions.opens_bias)
        }

    def get_input_embeddings(self) -> nn.Embedding:
        return self.embed_tokens

    def set_input_embeddings(self, value: nn.Embedding):
        self.embed_tokens = value

    def embed(self, input_ids, inputs_embeds, positions, length: int) -> torch.Tensor:
        """Dropout(E[ids] sqrt(d_model) + PE(positions))  (sections 3.4, 3.5 and 5.4): (B, L) -> (B, L, D)"""
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)
        return self.dropout(self.positions.embed(inputs_embeds * self.embed_scale, positions, length))

    def create_mask(self, position_ids, **kwargs):
        """Which keys a query may attend to: for encoders all tokens, for decoders those before it and itself.
        `position_ids` are those of the call, if it gave any."""
        return create_causal_mask(**kwargs) if self.is_causal else create_bidirectional_mask(**kwargs)

    def enter(self, input_ids, inputs_embeds, attention_mask, position_ids, past_key_values, config):
        """What the first layer reads, x (B, L, D), and what all layers do, their mask and bias by position:
        gradient checkpointing differentiates only such arguments."""
        inputs = one_of(input_ids, inputs_embeds, self.inputs)
        past, keys, dropped = 0, inputs.shape[1], 0
        if past_key_values is not None:
            past = past_key_values.get_seq_length()
            keys, dropped = past_key_values.get_mask_sizes(inputs.shape[1], 0)
        total = past + inputs.shape[1]
        # No position reaches `length`. Of a static cache it is the size: to ask for the number stops compilation.
        length = past_key_values.get_max_length() if isinstance(total, torch.Tensor) else total
        given = position_ids
        if position_ids is None:
            position_ids = token_positions(attention_mask, past, inputs.shape[1], inputs.device, self.is_causal)
        elif not torch.compiler.is_compiling():
            length = int(position_ids.max()) + 1
        x = self.embed(input_ids, inputs_embeds, position_ids, length)  # x: (B, L, D)
        mask = self.create_mask(
            given, config=config, inputs_embeds=x, attention_mask=attention_mask, past_key_values=past_key_values
        )
        bias = None
        if self.positions.opens_bias:
            where = position_ids  # of the keys, which are the queries unless some are cached
            if past_key_values is not None:
                where = key_positions(attention_mask, position_ids, total, keys, dropped)
            bias = self.positions.bias(position_ids, where)
            bias = bias.expand(x.shape[0], -1, -1, -1)  # type: ignore[union-attr]  # bias: (B, H, L, keys)
        everywhere = dict(
            rotation=self.positions.rotation(position_ids, length),
            past_key_values=past_key_values,
            attention_interface=attention_function(config),
        )
        return x, (mask, bias), everywhere

    def config_of_call(self, kwargs: dict):
        """The configuration that masks and kernel of this call follow. Only the formula itself ("eager") has weights
        to return: a call that asks for them gets an eager copy, and the shared configuration stays as it is."""
        wanted = kwargs.get("output_attentions", self.config.output_attentions)
        if not wanted or self.config._attn_implementation == "eager":
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

    side = "encoder"
    layer_class = EncoderLayer
    is_causal = False
    _can_record_outputs = {
        "hidden_states": EncoderLayer,
        "attentions": OutputRecorder(MultiHeadAttention, index=1, layer_name="self_attn"),
    }

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self, input_ids=None, attention_mask=None, inputs_embeds=None, **kwargs: Unpack[TransformersKwargs]
    ) -> BaseModelOutput:
        """input_ids: (B, S), attention_mask: (B, S) with 1 for tokens -> last_hidden_state (B, S, D)"""
        self.check_keywords(kwargs)
        if input_ids is not None:
            self.warn_if_padding_and_no_attention_mask(input_ids, attention_mask)
        config = self.config_of_call(kwargs)
        x, shared, everywhere = self.enter(input_ids, inputs_embeds, attention_mask, None, None, config)
        for layer in self.layers:
            x = layer(x, *shared, **everywhere, **kwargs)
        return BaseModelOutput(last_hidden_state=self.norm(x))


# By which a negative index into the hidden states is counted; transformers 5.22 knows no such indexes.
has_depth = "num_hidden_layers_key" in inspect.signature(OutputRecorder).parameters
DEPTH = {"num_hidden_layers_key": "decoder_layers"} if has_depth else {}


class Decoder(Stack):
    """N layers of causal self-attention, cross-attention and feed-forward network  (section 3.1)."""

    side = "decoder"
    inputs = "decoder_input_ids and decoder_inputs_embeds"
    layer_class = DecoderLayer
    is_causal = True
    _can_record_outputs = {
        "hidden_states": OutputRecorder(DecoderLayer, **DEPTH),
        "attentions": OutputRecorder(MultiHeadAttention, index=1, layer_name="self_attn"),
        "cross_attentions": OutputRecorder(CrossAttention, index=1, layer_name="cross_attn"),
    }

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
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        """input_ids: (B, T), encoder_hidden_states: (B, S, D) -> last_hidden_state (B, T, D) and the cache.

        `attention_mask` covers cached and new tokens, (B, past + T). Keys and values of the T new tokens are added to
        the cache, so that the next call passes only what comes after them.
        """
        self.check_keywords(kwargs)
        if use_cache and past_key_values is None:
            past_key_values = EncoderDecoderCache(DynamicCache(config=self.config), DynamicCache(config=self.config))
        if past_key_values is not None and not isinstance(past_key_values, EncoderDecoderCache):
            raise TypeError(
                f"got past_key_values of type {type(past_key_values).__name__}, expected an EncoderDecoderCache: "
                "wrap it, EncoderDecoderCache(your_cache, DynamicCache(config=model.config))"
            )
        config = self.config_of_call(kwargs)
        x, shared, everywhere = self.enter(
            input_ids, inputs_embeds, attention_mask, position_ids, past_key_values, config
        )
        memory_mask = create_bidirectional_mask(
            config=config,
            inputs_embeds=x,
            attention_mask=encoder_attention_mask,
            encoder_hidden_states=encoder_hidden_states,
        )
        for layer in self.layers:
            x = layer(x, *shared, encoder_hidden_states, memory_mask=memory_mask, **everywhere, **kwargs)
        return BaseModelOutputWithPastAndCrossAttentions(
            last_hidden_state=self.norm(x), past_key_values=past_key_values if use_cache else None
        )
