# Copyright 2026 The vanilla_transformer authors. MIT License.
"""Greedy and beam search without detours: the tokens that transformers' own loops find, in less time and memory.

What is saved: the beams of a sentence read one copy of its keys and values; a step is a few calls, with no cache
objects, masks and arguments to be made for each; sentences that are done leave the batch; beams are kept as pointers
to their parents, and written out once, at the end.

`search` is what `generate` calls (as `custom_generate`) where `is_known` says that all is asked for is known here;
whatever else is asked for, or was done to the model, goes to transformers' own loops.
"""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn.modules import module as module_hooks

from .attention import CrossAttention, MultiHeadAttention
from .positions import rotate

ROOM = 8  # by how many tokens the buffers of keys and values grow
NEVER = -1.0e9  # the score of what must not be chosen, as in transformers


class Steps:
    """The decoder as a function of the newest tokens: (N,) ids -> (N, V) logits, N = B k hypotheses of B sentences.

    Args:
        model: a `VanillaTransformerForSeq2SeqLM`.
        memory: (B, S, D), the encoder's output, one row a sentence.
        mask: (B, S), 1 for tokens, or `None`.
        beams: k.
    """

    def __init__(self, model, memory: torch.Tensor, mask: torch.Tensor | None, beams: int):
        self.stack, self.lm_head, self.beams = model.model.decoder, model.lm_head, beams
        self.length = 0
        readers = [layer.cross_attn for layer in self.stack.layers]
        self.sources = [  # keys and values of each layer, (B, H, S, K)
            (attn.split_heads(attn.k_proj(memory)), attn.split_heads(attn.v_proj(memory))) for attn in readers
        ]
        self.mask = None
        if mask is not None and not bool(mask.all()):  # as numbers, once: a kernel would make them in every call
            lowest = torch.finfo(memory.dtype).min
            self.mask = torch.zeros(mask.shape, dtype=memory.dtype, device=mask.device)
            self.mask = self.mask.masked_fill(mask == 0, lowest)[:, None, None, :]  # (B, 1, 1, S)
        width = 2 * memory.shape[-1]
        rows = memory.shape[0] * beams
        self.past = [memory.new_empty(rows, ROOM, width) for _ in self.stack.layers]  # [K | V]: (N, room, 2 D)
        self.packed = [pack(layer.self_attn) for layer in self.stack.layers]

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        stack, device = self.stack, ids.device
        here = torch.tensor([[self.length]], device=device)
        if self.length == self.past[0].shape[1]:
            for number, past in enumerate(self.past):  # one after the other, so that one at most is there twice
                self.past[number] = nn.functional.pad(past, (0, 0, 0, ROOM))
        self.length += 1
        rotation = stack.positions.rotation(here, self.length)
        bias = None
        if stack.positions.opens_bias:
            bias = stack.positions.bias(here, torch.arange(self.length, device=device)[None])  # (1, H, 1, t)
        x = stack.embed(ids[:, None], None, here, self.length)[:, 0]  # x: (N, D)
        for number, layer in enumerate(stack.layers):
            x = layer.self_attn_residual(
                x, lambda x, n=number, at=layer.self_attn: self.read_past(at, x, n, rotation, bias)
            )
            x = layer.cross_attn_residual(x, lambda x, n=number, at=layer.cross_attn: self.read_source(at, x, n))
            x = layer.feed_forward_residual(x, layer.feed_forward)
        return self.lm_head(stack.norm(x))

    def read_past(self, attn: MultiHeadAttention, x, number: int, rotation, bias) -> torch.Tensor:
        """Self-attention of one token (N, D) to itself and those before it."""
        query, key, value = self.packed[number](x)
        if rotation is not None:
            query, key = (rotate(attn.split_heads(part[:, None]), rotation).flatten(1) for part in (query, key))
        past = self.past[number]
        d_model = x.shape[-1]
        past[:, self.length - 1, :d_model] = key
        past[:, self.length - 1, d_model:] = value
        keys, values = (attn.split_heads(part) for part in past[:, : self.length].split(d_model, dim=-1))
        heads = nn.functional.scaled_dot_product_attention(
            attn.split_heads(query[:, None]), keys, values, attn_mask=bias, scale=attn.scaling
        )
        return attn.o_proj(heads.flatten(1))  # heads: (N, H, 1, K) -> (N, D)

    def read_source(self, attn: CrossAttention, x, number: int) -> torch.Tensor:
        """Attention of the beams of a sentence (N, D) to its one copy of keys and values."""
        query = attn.split_heads(attn.q_proj(x).unflatten(0, (-1, self.beams)))  # (N, D) -> (B, H, k, K)
        keys, values = self.sources[number]
        heads = nn.functional.scaled_dot_product_attention(
            query, keys, values, attn_mask=self.mask, scale=attn.scaling
        )
        return attn.o_proj(heads.transpose(1, 2).flatten(2).flatten(0, 1))  # heads: (B, H, k, K) -> (N, D)

    def follow(self, parents: torch.Tensor) -> None:
        """Hypothesis n goes on from what was hypothesis parents[n], (N,), of the same sentence."""
        moved = (parents != torch.arange(len(parents), device=parents.device)).nonzero()[:, 0]
        if len(moved):
            for past in self.past:
                past[moved, : self.length] = past[parents[moved], : self.length]

    def keep(self, rows: torch.Tensor) -> None:
        """Go on with these sentences only, (B',) numbers of those that are left."""
        self.sources = [(keys[rows], values[rows]) for keys, values in self.sources]
        self.mask = self.mask[rows] if self.mask is not None else None
        self.past = [past.unflatten(0, (-1, self.beams))[rows].flatten(0, 1) for past in self.past]


def pack(attn: MultiHeadAttention) -> Callable[[torch.Tensor], tuple[torch.Tensor, ...]]:
    """x W^Q, x W^K, x W^V in one product; modules that are no plain matrices (adapters, int8) are called."""
    projections: list[nn.Module] = [attn.q_proj, attn.k_proj, attn.v_proj]
    biases: list = [part.bias for part in projections if type(part) is nn.Linear and part.bias is not None]
    if any(type(project) is not nn.Linear for project in projections) or len(biases) not in (0, 3):
        return lambda x: tuple(project(x) for project in projections)
    weight = torch.cat([project.weight for project in projections])
    bias = torch.cat(biases) if biases else None
    return lambda x: nn.functional.linear(x, weight, bias).chunk(3, dim=-1)


# What a call may say; all that changes the scores comes as processors, which are heard.
INPUTS = {"input_ids", "attention_mask", "encoder_outputs", "inputs_embeds", "decoder_input_ids", "labels"}
SETTINGS = {"max_length", "max_new_tokens", "min_length", "min_new_tokens", "num_beams", "num_return_sequences"}
SETTINGS |= {"length_penalty", "early_stopping", "use_cache", "repetition_penalty", "no_repeat_ngram_size"}
SETTINGS |= {"bad_words_ids", "suppress_tokens", "begin_suppress_tokens", "renormalize_logits", "logits_processor"}
SETTINGS |= {f"{name}_token_id" for name in ("pad", "bos", "eos", "decoder_start", "forced_bos", "forced_eos")}
KERNELS = {"eager", "sdpa"}


def is_known(model, generation_config, kwargs: dict) -> bool:
    """Whether this call asks for tokens alone, the most probable ones or those of beams, of a model as it was made."""
    places = [kwargs, *(vars(config) for config in (model.generation_config, generation_config) if config is not None)]
    asked = {
        name
        for place in places
        for name, value in place.items()
        if value is not None and value is not False and not name.startswith("_")
    }
    alone = not torch.distributed.is_available() or not torch.distributed.is_initialized()
    return asked <= INPUTS | SETTINGS | {"transformers_version"} and alone and is_as_made(model)


def is_as_made(model) -> bool:
    """Whether calling a part of the model is all that the model does with it: no hooks, no other methods."""
    own = ("forward", "prepare_inputs_for_generation")
    return (
        not model.training
        and type(model).__name__ == "VanillaTransformerForSeq2SeqLM"
        and model.config._attn_implementation in KERNELS
        and not (module_hooks._global_forward_hooks or module_hooks._global_forward_pre_hooks)
        and not any(
            part._forward_hooks or part._forward_pre_hooks or any(name in vars(part) for name in own)
            for part in model.modules()
        )
    )


def search(model, input_ids, logits_processor, stopping_criteria, generation_config, **kwargs):
    """What `generate` of transformers calls with everything prepared: its own loop, or one of those below.

    input_ids: (N, P), the decoder's prompts, each repeated for its beams -> (B num_return_sequences, T) ids.
    """
    beams, mask = generation_config.num_beams, kwargs.get("attention_mask")
    # A source without a token is attended to evenly by one kernel and not at all by another.
    if not kwargs.get("use_cache", True) or (mask is not None and not bool(mask.any(-1).all())):
        own = model._beam_search if beams > 1 else model._sample
        return own(
            input_ids,
            logits_processor=logits_processor,
            stopping_criteria=stopping_criteria,
            generation_config=generation_config,
            **kwargs,
        )
    memory = kwargs["encoder_outputs"][0][::beams]
    steps = Steps(model, memory, None if mask is None else mask[::beams], beams)
    find = greedy if beams == 1 else beam_search
    return find(steps, input_ids, generation_config, logits_processor)


def first_logits(steps: Steps, input_ids: torch.Tensor) -> torch.Tensor:
    """The prompts (N, P), token by token -> logits of what follows them, (N, V) in float32"""
    for column in input_ids.unbind(1):
        logits = steps(column)
    return logits.float()


def few_enough(live: torch.Tensor) -> bool:
    """To go on without the sentences that are done (B,) costs a copy of the others: not for every one."""
    return int(live.sum()) <= 0.75 * len(live)


def greedy(steps: Steps, input_ids: torch.Tensor, config, processors) -> torch.Tensor:
    """y_t = argmax_v p(v | y_<t), until `</s>` or `max_length`: (B, P) -> (B, T)"""
    ends, pad = config._eos_token_tensor, config._pad_token_tensor
    columns = list(input_ids.unbind(1))
    rows = torch.arange(len(input_ids), device=input_ids.device)  # which sentences the steps still compute
    live = torch.ones_like(rows, dtype=torch.bool)  # which of these have not ended
    logits = first_logits(steps, input_ids)
    while True:
        scores = processors(torch.stack(columns, 1), logits) if processors else logits  # all rows, in their order
        tokens = scores.argmax(-1)
        columns.append(torch.full_like(columns[0], 0 if pad is None else int(pad)))
        columns[-1][rows[live]] = tokens[live]
        if ends is not None:
            live = live & ~torch.isin(tokens, ends)
        if len(columns) == config.max_length or not bool(live.any()):
            return torch.stack(columns, 1)
        if not processors and few_enough(live):
            kept = live.nonzero()[:, 0]
            steps.keep(kept)
            rows, tokens, live = rows[kept], tokens[kept], live[kept]
        logits = steps(tokens).float()


def beam_search(steps: Steps, input_ids: torch.Tensor, config, processors) -> torch.Tensor:
    """The best of k hypotheses by sum_t log p(y_t | y_<t) / length ** length_penalty: (B k, P) -> (B best, T)

    In each step the best C = 2 k continuations of a sentence's k beams are its candidates. Those of the best k that
    end are put by, if they beat what has been put by; the best k that do not end are the next beams. A hypothesis is
    known by its place, step C + candidate, and read back from there, parent by parent.
    """
    k, penalty, device = config.num_beams, config.length_penalty, input_ids.device
    ends, prompt = config._eos_token_tensor, input_ids.shape[1]
    longest = config.max_length - prompt
    sentences = len(input_ids) // k
    choices = max(2, 1 + (0 if ends is None else len(ends))) * k  # C
    sequences = input_ids  # (B k, t), written out for processors alone
    candidates = input_ids.new_zeros(3, longest, sentences, choices)  # parents, tokens and next beams of every step
    places = input_ids.new_full((sentences, k), -1)  # of what has been put by, best first
    put_by = torch.full((sentences, k), NEVER, device=device)  # their scores
    full = torch.zeros(sentences, k, dtype=torch.bool, device=device)  # which of them are there

    rows = torch.arange(sentences, device=device)  # which sentences the steps still compute
    hopeful = torch.ones(sentences, 1, dtype=torch.bool, device=device)  # whether their beams can still win
    beams = torch.full((sentences, k), NEVER, device=device)  # sums of log p; at first all beams are the same one
    beams[:, 0] = 0
    log_p = first_logits(steps, input_ids).log_softmax(-1)  # log_p: (N, V)
    for step in range(longest):
        if processors:
            log_p = processors(sequences, log_p)
        vocabulary = log_p.shape[-1]
        sums = log_p.view(-1, k, vocabulary).add_(beams[:, :, None])  # in place: it is large, and of this step
        sums, order = sums.flatten(1).topk(choices)  # (B', k V) -> (B', C)
        parents, tokens = order // vocabulary, order % vocabulary
        ended = torch.full_like(tokens, step + 1 == longest, dtype=torch.bool)
        if ends is not None:
            ended |= torch.isin(tokens, ends)
        going_on = (sums + ended * NEVER).topk(k)[1]  # (B', k)
        beams = (sums + ended * NEVER).gather(1, going_on)
        for table, values in zip(candidates, (parents, tokens, going_on), strict=True):
            table[step, rows, : values.shape[1]] = values

        finished = ended & (torch.arange(choices, device=device) < k)
        frozen = full[rows].all(-1, keepdim=True) if config.early_stopping is True else torch.zeros_like(hopeful)
        scores = sums / (step + 1) ** penalty + (frozen.float() + (~hopeful).float() + (~finished).float()) * NEVER
        put_by[rows], best = torch.cat([put_by[rows], scores], 1).topk(k)
        here = torch.arange(step * choices, (step + 1) * choices, device=device).expand_as(tokens)
        places[rows] = torch.cat([places[rows], here], 1).gather(1, best)
        full[rows] = torch.cat([full[rows], finished], 1).gather(1, best)

        reach = longest if config.early_stopping == "never" and penalty > 0 else step + 1
        worst = torch.where(full[rows], put_by[rows].amin(1, keepdim=True), NEVER)
        hopeful = hopeful & (beams[:, :1] / reach**penalty > worst).any(-1, keepdim=True)
        live = hopeful[:, 0] & ~(full[rows].all(-1) & (config.early_stopping is True))
        if step + 1 == longest or not bool(live.any()):
            break
        parents, tokens = parents.gather(1, going_on), tokens.gather(1, going_on)
        if not processors and few_enough(live):
            kept = live.nonzero()[:, 0]
            steps.keep(kept)
            rows, beams, hopeful, parents, tokens = (part[kept] for part in (rows, beams, hopeful, parents, tokens))
        parents = (parents + torch.arange(len(parents), device=device)[:, None] * k).flatten()
        steps.follow(parents)
        if processors:
            sequences = torch.cat([sequences[parents], tokens.view(-1, 1)], 1)
        log_p = steps(tokens.flatten()).float().log_softmax(-1)
    return read_back(candidates.cpu(), places[:, : config.num_return_sequences].cpu(), input_ids, config)


def read_back(candidates: torch.Tensor, places: torch.Tensor, input_ids: torch.Tensor, config) -> torch.Tensor:
    """The tokens of the hypotheses at `places` (B, best), behind their prompts: (B best, T), filled up as
    transformers does it."""
    choices, prompt = candidates.shape[-1], input_ids.shape[1]
    step, candidate = places // choices, places % choices
    longest = int(step.max()) + 1
    pad, ends = config._pad_token_tensor, config._eos_token_tensor
    fill = -1 if ends is None else int(pad if pad else ends[0])
    found = torch.full((*places.shape, prompt + longest), fill)
    found[:, :, :prompt] = input_ids.view(len(places), -1, prompt)[:, : places.shape[1]].cpu()
    rows = torch.arange(len(places))[:, None]
    beam = torch.zeros_like(places)
    for t in range(longest - 1, -1, -1):
        parents, tokens, going_on = candidates[:, t]
        slot = torch.where(step == t, candidate, going_on[rows, beam])  # from where it ended, down to its root
        alive = step >= t
        found[:, :, prompt + t] = torch.where(alive, tokens[rows, slot], found[:, :, prompt + t])
        beam = torch.where(alive, parents[rows, slot], beam)
    return found.flatten(0, 1).to(input_ids.device)
