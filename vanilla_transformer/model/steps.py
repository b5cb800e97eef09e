# Copyright 2026 The vanilla_transformer authors. MIT License.
"""The decoder during a search: the newest token of every hypothesis in, the logits of what follows it out.

The formulas are those of `layers.py` and `attention.py`; what differs is what is kept between the steps. The beams of
a sentence read one copy of the source's keys and values, and one memory of what they have said, a tree: an entry that
several beams descend from is there once, and a beam sees its own ancestors in it. To follow another beam is then to
copy a row of that mask, and no keys and values.
"""

from collections.abc import Callable
from types import MethodType

import torch
from torch import nn

from .attention import CrossAttention, MultiHeadAttention
from .layers import FEED_FORWARDS, RESIDUALS, DecoderLayer, Dropout, LayerNorm
from .linear import OneDNNLinear, goes_to_onednn, is_plain, linear
from .positions import rotate

ROOM = 16  # for how many steps more the memory is made larger
LARGE = 2**17  # numbers of a matrix that is not copied
PART = 2**13  # tokens whose logits are computed at a time where that takes memory of its own
FORMULAS = (*FEED_FORWARDS.values(), *RESIDUALS.values())
WRITTEN_OUT = {part: part.forward for part in (DecoderLayer, MultiHeadAttention, CrossAttention)}


def is_written_out(layer: nn.Module) -> bool:
    """Whether a layer and its attentions are what `LayerStep` computes by itself: no other class, method or scale."""
    parts = (layer, DecoderLayer), (layer.self_attn, MultiHeadAttention), (layer.cross_attn, CrossAttention)
    return all(type(part) is known and known.forward is WRITTEN_OUT[known] for part, known in parts) and all(
        part.scaling == part.head_dim**-0.5 for part in (layer.self_attn, layer.cross_attn)
    )


class Steps:
    """The decoder as a function of the newest tokens: (N,) ids -> (N, V) logits, N = B k hypotheses of B sentences.
    The logits of a step take the place of those of the step before.

    Args:
        model: a `VanillaTransformerForSeq2SeqLM`.
        source: (B, S, D), the encoder's output, one row a sentence.
        mask: (B, S), 1 for tokens, or `None`.
        beams: k.
    """

    def __init__(self, model, source: torch.Tensor, mask: torch.Tensor | None, beams: int):
        stack, self.beams, self.lowest = model.model.decoder, beams, torch.finfo(source.dtype).min
        self.positions, self.embed, self.length = stack.positions, with_lean_parts(stack, "embed"), 0
        self.layers = [LayerStep(layer, source, beams) for layer in stack.layers]
        self.norm, self.write_logits = lean(stack.norm), head(model.lm_head)
        self.logits = source.new_empty(0, getattr(model.lm_head, "out_features", 0))  # an adapter has its own
        self.source_mask = None
        if mask is not None and not bool(mask.all()):  # as numbers, once: a kernel would make them in every call
            self.source_mask = source.new_zeros(mask.shape).masked_fill(mask == 0, self.lowest)[:, None, None, :]
        # The memory of every layer has `used` entries, (B, u), of `room`. The number of an entry is 0 for the beams
        # that descend from it and the lowest for others, as the kernel adds it to scores: (B, k, room).
        self.used, self.room = 0, 0
        self.unseen = source.new_empty(source.shape[0], beams, 0)
        self.itself = source.new_full((beams, beams), self.lowest).fill_diagonal_(0)
        self.places = torch.empty(
            source.shape[0], 0, dtype=torch.long, device=source.device
        )  # of entries, in the text

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        if self.used + self.beams > self.room:
            self.make_room()
        here = torch.tensor([[self.length]], device=ids.device)
        self.length += 1
        new = slice(self.used, self.used + self.beams)
        self.unseen[:, :, new] = self.itself
        self.places[:, new] = self.length - 1
        self.used += self.beams
        mask = self.unseen[:, None, :, : self.used] if self.beams > 1 else None  # (B, 1, k, u)
        if self.positions.opens_bias:
            bias = self.positions.bias(here, self.places[:, : self.used])  # bias: (B, H, 1, u)
            mask = bias.contiguous() if mask is None else bias + mask
        rotation = self.positions.rotation(here, self.length)
        x = self.embed(ids[:, None], None, here, self.length)[:, 0]  # x: (N, D)
        for layer in self.layers:
            x = layer(x, mask, self.source_mask, rotation, self.used)
        if len(self.logits) != len(x):  # a page that a process gets for the first time is a slow one: keep them
            self.logits = self.logits.new_empty(len(x), self.logits.shape[1])
        return self.write_logits(self.norm(x), self.logits)

    def make_room(self) -> None:
        """Drop the entries that no beam descends from; where that leaves less than half of the memory free, enlarge
        it."""
        seen = (self.unseen[:, :, : self.used] == 0).any(1)  # (B, u)
        self.used = int(seen.sum(-1).max()) if self.used else 0
        kept = seen.byte().argsort(dim=-1, descending=True, stable=True)[:, : self.used]  # (B, u')
        if self.used > self.room // 2 or not self.room:
            self.room = self.used + ROOM * self.beams
        self.unseen = moved(self.unseen.transpose(1, 2), kept, self.room).transpose(1, 2).contiguous()
        self.places = moved(self.places[:, :, None], kept, self.room)[:, :, 0]
        for layer in self.layers:  # one after the other, so that one at most is there twice
            layer.remember(moved(layer.past, kept, self.room))

    def follow(self, parents: torch.Tensor) -> None:
        """Hypothesis n goes on from what was hypothesis parents[n], (N,), of the same sentence."""
        self.unseen = self.unseen.flatten(0, 1).index_select(0, parents).view_as(self.unseen)

    def keep(self, rows: torch.Tensor) -> None:
        """Go on with these sentences only, (B',) numbers of those that are left."""
        self.unseen, self.places = self.unseen[rows], self.places[rows]
        if self.source_mask is not None:
            self.source_mask = self.source_mask[rows]
        for layer in self.layers:
            layer.keys, layer.values = layer.keys[rows], layer.values[rows]
            layer.remember(layer.past[rows])


def moved(entries: torch.Tensor, kept: torch.Tensor, room: int) -> torch.Tensor:
    """entries (B, u, W), those at `kept` (B, u') first, in rooms for more: (B, room, W)"""
    rows, _, width = entries.shape
    result = entries.new_empty(rows, room, width)
    result[:, : kept.shape[1]] = entries.gather(1, kept[:, :, None].expand(-1, -1, width))
    return result


class LayerStep:
    """A decoder layer for one token of each hypothesis, (N, D) -> (N, D)."""

    def __init__(self, layer: DecoderLayer, source: torch.Tensor, beams: int):
        self.around_past, self.around_source = lean(layer.self_attn_residual), lean(layer.cross_attn_residual)
        self.around_feed_forward, self.feed_forward = lean(layer.feed_forward_residual), lean(layer.feed_forward)
        self.project, self.past_output = pack(layer.self_attn), lean(layer.self_attn.o_proj)
        reader = layer.cross_attn
        self.source_query, self.source_output = lean(reader.q_proj), lean(reader.o_proj)
        self.keys, self.values = (reader.split_heads(part(source)) for part in (reader.k_proj, reader.v_proj))
        self.scaling, self.head_dim, self.beams = reader.scaling, reader.head_dim, beams  # of equation 1, both alike
        self.past = source.new_empty(len(source), 0, 2 * source.shape[-1])  # `Steps.make_room` makes room in it

    def remember(self, past: torch.Tensor) -> None:
        """past: (B, room, 2 D), keys and values of what has been said, in the order that `Steps` keeps."""
        self.past = past
        self.past_heads = self.split(past).unflatten(1, (2, -1)).transpose(0, 1)  # (2, B, H, room, K)

    def split(self, x: torch.Tensor) -> torch.Tensor:
        """(B, L, H K) -> (B, H, L, K)"""
        return x.view(*x.shape[:2], -1, self.head_dim).transpose(1, 2)

    def __call__(self, x, mask, source_mask, rotation, used: int) -> torch.Tensor:
        x = self.around_past(x, lambda x: self.read_past(x, mask, rotation, used))
        x = self.around_source(x, lambda x: self.read_source(x, source_mask))
        return self.around_feed_forward(x, self.feed_forward)

    def read_past(self, x, mask, rotation, used: int) -> torch.Tensor:
        """Self-attention of the newest token of each hypothesis (N, D) to itself and its ancestors."""
        query, new = (part.view(-1, self.beams, part.shape[-1]) for part in self.project(x))  # (B, k, D), (B, k, 2 D)
        query = self.split(query)
        if rotation is not None:
            key, value = new.chunk(2, dim=-1)
            query, key = rotate(query, rotation), rotate(self.split(key), rotation)
            new = torch.cat([key.transpose(1, 2).flatten(2), value], dim=-1)
        self.past.narrow(1, used - self.beams, self.beams).copy_(new)
        keys, values = self.past_heads.narrow(3, 0, used).unbind()
        return self.past_output(self.attend(query, keys, values, mask))

    def read_source(self, x, mask) -> torch.Tensor:
        """Attention of the hypotheses of a sentence (N, D) to its one copy of keys and values."""
        query = self.split(self.source_query(x).view(-1, self.beams, x.shape[-1]))
        return self.source_output(self.attend(query, self.keys, self.values, mask))

    def attend(self, query, keys, values, mask) -> torch.Tensor:
        """query: (B, H, k, K), keys and values: (B, H, u or S, K) -> (N, D)  (equation 1)"""
        heads = nn.functional.scaled_dot_product_attention(query, keys, values, attn_mask=mask, scale=self.scaling)
        return heads.transpose(1, 2).reshape(-1, query.shape[1] * self.head_dim)


def pack(attn: MultiHeadAttention) -> Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    """x -> x W^Q and [x W^K | x W^V], in one product where the matrices are so small that a call costs more than the
    copy of them; what is no plain matrix (an adapter, int8) is called."""
    projections = (attn.q_proj, attn.k_proj, attn.v_proj)
    biases: list = [part.bias for part in projections if is_plain(part) and part.bias is not None]
    plain = all(is_plain(part) for part in projections) and len(biases) in (0, 3)
    if not plain or attn.q_proj.weight.numel() > LARGE:
        query, key, value = (lean(part) for part in projections)
        return lambda x: (query(x), torch.cat([key(x), value(x)], dim=-1))
    width, weight = attn.q_proj.out_features, torch.cat([part.weight for part in projections])
    bias = torch.cat(biases) if biases else None
    project = matrix(weight, bias)
    return lambda x: project(x).tensor_split((width,), dim=-1)  # type: ignore[return-value]


def lean(module: nn.Module) -> Callable:
    """What calling a module computes, without what the call itself costs: at a few rows, a third of a step.

    A part that torch or this package makes becomes the function that it calls; a formula of ours stays the one in its
    `forward`, which then finds such functions for its parts. Anything else (an adapter, an int8 layer) stays as it is.
    """
    if is_plain(module):
        return matrix(module.weight, module.bias)
    if type(module) is LayerNorm:
        shape, gamma, beta, eps = module.normalized_shape, module.weight, module.bias, module.eps
        return lambda x: torch.layer_norm(x, shape, gamma, beta, eps)
    if type(module) is nn.Embedding and not (module.max_norm or module.scale_grad_by_freq or module.sparse):
        table = module.weight
        return lambda ids: nn.functional.embedding(ids, table)
    if type(module) in (Dropout, nn.Identity):
        return lambda x: x
    return with_lean_parts(module, "forward") if type(module) in FORMULAS else module


def matrix(weight: torch.Tensor, bias: torch.Tensor | None) -> Callable[[torch.Tensor], torch.Tensor]:
    """x -> x W^T + b: of one row alone, a product of matrix and vector, which reads W up to a quarter faster."""

    def one_row(x: torch.Tensor) -> torch.Tensor:
        return (weight.mv(x[0]) if bias is None else torch.addmv(bias, weight, x[0]))[None]

    if goes_to_onednn(weight[:1], weight):  # asked once for a search, whose steps are all alike

        def one_row(x: torch.Tensor) -> torch.Tensor:
            return OneDNNLinear.forward(x, weight, bias)

    return lambda x: linear(x, weight, bias) if len(x) > 1 else one_row(x)


def head(module: nn.Module) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """The projection to logits, written into the memory of earlier ones where it can be."""
    if is_plain(module):
        weight, bias = module.weight, module.bias

        def write(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
            if goes_to_onednn(x, weight):  # which knows no `out`, and copies W meanwhile: a part after the other
                for part, rows in zip(out.split(PART, dim=1), weight.split(PART), strict=True):
                    part.copy_(linear(x, rows))
                return out if bias is None else out.add_(bias)
            return torch.mm(x, weight.T, out=out) if bias is None else torch.addmm(bias, x, weight.T, out=out)

        return write
    return getattr(module, "write", lambda x, out: module(x))


class Parts:
    """Stands in for a module, as `self` of one of its methods, with lean parts in the place of its own."""

    def __init__(self, module: nn.Module):
        self._module = module
        for name, child in module.named_children():
            setattr(self, name, lean(child))

    def __getattr__(self, name: str):
        return getattr(self._module, name)


def with_lean_parts(module: nn.Module, method: str) -> Callable:
    """A module's method, calling lean parts."""
    return MethodType(getattr(type(module), method), Parts(module))
