# Copyright 2026 The vanilla_transformer authors. MIT License.
"""Greedy and beam search without detours: the tokens that transformers' own loops find, in less time and memory.

What is saved: the beams of a sentence read one copy of its keys and values; a step is a few calls, with no cache
objects, masks and arguments to be made for each; sentences that are done leave the batch; beams are kept as pointers
to their parents, and written out once, at the end.

`search` is what `generate` calls (as `custom_generate`) where `is_known` says that all is asked for is known here;
whatever else is asked for, or was done to the model, goes to transformers' own loops.
"""

import inspect
from types import SimpleNamespace

import torch
from torch.nn.modules import module as module_hooks
from transformers import GenerationConfig, GenerationMixin
from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled
from transformers.integrations.fsdp import is_fsdp_managed_module

from .linear import is_untouched
from .steps import Steps

NEVER = -1.0e9  # the score of what must not be chosen, as in transformers


# What a call may say; all that changes the scores comes as processors, which are heard.
INPUTS = {"input_ids", "attention_mask", "encoder_outputs", "inputs_embeds", "decoder_input_ids"}
SETTINGS = {"max_length", "max_new_tokens", "min_length", "min_new_tokens", "num_beams", "num_return_sequences"}
SETTINGS |= {"length_penalty", "early_stopping", "use_cache", "repetition_penalty", "no_repeat_ngram_size"}
SETTINGS |= {"bad_words_ids", "suppress_tokens", "begin_suppress_tokens", "renormalize_logits", "logits_processor"}
SETTINGS |= {f"{name}_token_id" for name in ("pad", "bos", "eos", "decoder_start", "forced_bos", "forced_eos")}
KERNELS = {"eager", "sdpa"}
NOTES = {"transformers_version", "alignment_heads", "alignment_shifted"}  # in the settings, and no part of a search
# What Seq2SeqTrainer writes into a model's settings; where transformers call it otherwise, this road alone is lost.
USUAL: dict = getattr(GenerationConfig, "_get_default_generation_params", dict)()
# What can be said to `generate`: False asks for nothing there, and in a name that is misspelt it does.
NAMES = vars(GenerationConfig()).keys() | inspect.signature(GenerationMixin.generate).parameters.keys()


def asked_for(model, generation_config, kwargs: dict) -> set[str]:
    """The names of all that this call and the model's own settings ask for."""
    places = [kwargs, *(vars(config) for config in (model.generation_config, generation_config) if config is not None)]
    return {
        name
        for place in places
        for name, value in place.items()
        if value is not None and name not in NOTES and not name.startswith("_")
        if value is not False or name not in NAMES
        if name not in USUAL or value != USUAL[name]
    }


def is_known(model, asked: set[str]) -> bool:
    """Whether this asks for tokens alone, the most probable ones or those of beams, of a model as it was made."""
    return asked <= INPUTS | SETTINGS and is_as_made(model) and not is_sharded(model)


def is_sharded(model) -> bool:
    """Whether each process holds a part of the weights, so that all have to ask for them together."""
    several = torch.distributed.is_available() and torch.distributed.is_initialized()
    return several and (is_deepspeed_zero3_enabled() or any(is_fsdp_managed_module(part) for part in model.modules()))


def is_as_made(model) -> bool:
    """Whether calling a part of the model is all that the model does with it: no hooks, no other methods."""
    return (
        not model.training
        and type(model).__name__ == "VanillaTransformerForSeq2SeqLM"
        and model.config._attn_implementation in KERNELS
        and not (module_hooks._global_forward_hooks or module_hooks._global_forward_pre_hooks)
        and all(
            is_untouched(part) and "prepare_inputs_for_generation" not in part.__dict__ for part in model.modules()
        )
        and not torch.is_autocast_enabled(model.device.type)  # which knows not all products that are used here
    )


# What transformers need not prepare: sources of ids, and settings that make no processor.
PLAIN = {"input_ids", "attention_mask", "use_cache", "max_length", "max_new_tokens"}
PLAIN |= {"num_beams", "num_return_sequences", "length_penalty", "early_stopping"}
PLAIN |= {f"{name}_token_id" for name in ("pad", "bos", "eos", "decoder_start")}


def search_at_once(model, asked: set[str], source, kwargs: dict, max_length: int) -> torch.Tensor | None:
    """The answer to a call that `is_known`, without transformers' preparations, which take as long as two tokens; or
    `None` if it asks for more than is `PLAIN` (and for what is wrong, which transformers tell)."""
    own, mask = model.generation_config, kwargs.get("attention_mask")

    def setting(name: str, default=None):
        value = kwargs[name] if kwargs.get(name) is not None else getattr(own, name, None)
        return default if value is None else value

    beams, best, penalty = setting("num_beams", 1), setting("num_return_sequences", 1), setting("length_penalty", 1.0)
    pad, start, ends = (setting(f"{name}_token_id") for name in ("pad", "decoder_start", "eos"))
    early_stopping, numbers = setting("early_stopping", False), (beams, best, pad, start, max_length)
    if (
        not asked <= PLAIN
        or not isinstance(source, torch.Tensor)
        or source.ndim != 2
        or source.dtype != torch.long
        or not isinstance(mask, torch.Tensor)
        or mask.shape != source.shape
        or any(type(number) is not int for number in numbers)
        or not 1 <= best <= beams
        or max_length < 2
        or type(penalty) not in (int, float)
        or early_stopping not in (True, False, "never")
        or not setting("use_cache", True)
        or not bool(mask.any(-1).all())  # see `search`
    ):
        return None
    memory = model.get_encoder()(input_ids=source, attention_mask=mask).last_hidden_state
    prompts = source.new_full((len(source) * beams, 1), start)
    config = SimpleNamespace(
        num_beams=beams,
        num_return_sequences=best,
        length_penalty=penalty,
        early_stopping=early_stopping,
        max_length=max_length,
        _pad_token_tensor=torch.tensor(pad),
        _eos_token_tensor=None if ends is None else torch.tensor(ends, device=source.device).view(-1),
    )
    find = greedy if beams == 1 else beam_search
    return find(Steps(model, memory, mask, beams), prompts, config, [])


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


def few_enough(left: int, rows: int) -> bool:
    """To go on without the sentences that are done costs a copy of the others: not for every one."""
    return left <= 0.75 * rows


BLOCK, FEW = 64, 2**14  # tokens; scores that are looked through as they are


def best(scores: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The `count` largest of each row, (N, V) -> values and tokens (N, count), best first.

    They are in the `count` blocks of tokens with the largest maxima: to look for those takes a tenth of the time.
    """
    whole = scores.shape[1] // BLOCK
    if whole <= 2 * count or scores.numel() <= FEW:
        return largest(scores, count)
    blocks = scores[:, : whole * BLOCK].unflatten(1, (whole, BLOCK))
    found = largest(blocks.amax(-1), count)[1]  # found: (N, count)
    within = torch.arange(BLOCK, device=scores.device)
    tokens = (found[:, :, None] * BLOCK + within).flatten(1)
    if rest := scores.shape[1] - whole * BLOCK:
        tokens = torch.cat([tokens, (whole * BLOCK + within[:rest]).expand(len(tokens), -1)], 1)
    values, order = largest(scores.gather(1, tokens), count)
    return values, tokens.gather(1, order)


def largest(scores: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """`topk`; of equals, the one largest is the first, as with `argmax`."""
    if count > 1:
        return scores.topk(count)
    first = scores.argmax(-1, keepdim=True)
    return scores.gather(1, first), first


def greedy(steps: Steps, input_ids: torch.Tensor, config, processors) -> torch.Tensor:
    """y_t = argmax_v p(v | y_<t), until `</s>` or `max_length`: (B, P) -> (B, T)"""
    ends, pad = config._eos_token_tensor, 0 if config._pad_token_tensor is None else int(config._pad_token_tensor)
    columns = list(input_ids.unbind(1))  # the tokens of the sentences that the steps still compute
    rows = torch.arange(len(input_ids), device=input_ids.device)  # which ones these are
    live = torch.ones_like(rows, dtype=torch.bool)  # which of these have not ended
    written = []  # sentences and their tokens, up to a step at which some of them left
    logits = first_logits(steps, input_ids)
    while True:
        scores = processors(torch.stack(columns, 1), logits) if processors else logits  # all rows, in their order
        tokens = best(scores, 1)[1][:, 0]
        columns.append(tokens.where(live, pad))
        if ends is not None:
            live = live & (tokens[:, None] != ends).all(-1)
        left = int(live.sum())
        if len(columns) == config.max_length or not left:
            break
        if not processors and few_enough(left, len(live)):
            kept = live.nonzero()[:, 0]
            steps.keep(kept)
            written.append((rows, torch.stack(columns, 1)))
            rows, live, *columns = (part[kept] for part in (rows, live, *columns))
            tokens = columns[-1]
        logits = steps(tokens).float()
    found = input_ids.new_full((len(input_ids), len(columns)), pad)
    for numbers, texts in (*written, (rows, torch.stack(columns, 1))):  # those who stayed are written once more
        found[numbers, : texts.shape[1]] = texts
    return found


def best_log_p(logits, count: int, sequences, processors) -> tuple[torch.Tensor, torch.Tensor]:
    """What goes on best from each hypothesis: logits (N, V), which are used up -> log p and tokens (N, count)."""
    if processors:
        return best(processors(sequences, logits.log_softmax(-1)), count)
    values, tokens = best(logits, count)
    top = values[:, :1]
    return values - top - logits.sub_(top).exp_().sum(-1, keepdim=True).log_(), tokens


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
    candidates = []  # of every step: parents, tokens and next beams, (3, B, C)
    places = input_ids.new_full((sentences, k), -1)  # of what has been put by, best first
    put_by = torch.full((sentences, k), NEVER, device=device)  # their scores
    full = torch.zeros(sentences, k, dtype=torch.bool, device=device)  # which of them are there

    rows = torch.arange(sentences, device=device)  # which sentences the steps still compute
    hopeful = torch.ones(sentences, 1, dtype=torch.bool, device=device)  # whether their beams can still win
    beams = torch.full((sentences, k), NEVER, device=device)  # sums of log p; at first all beams are the same one
    beams[:, 0] = 0
    logits = first_logits(steps, input_ids)  # logits: (N, V)
    for step in range(longest):
        log_p, tokens = best_log_p(logits, min(choices, logits.shape[1]), sequences, processors)  # (N, C)
        width = tokens.shape[1]
        sums, order = (log_p.view(-1, k, width) + beams[:, :, None]).flatten(1).topk(choices)  # (B', k C) -> (B', C)
        parents, tokens = order // width, tokens.view(-1, k * width).gather(1, order)
        ended = torch.full_like(tokens, step + 1 == longest, dtype=torch.bool)
        if ends is not None:
            ended |= torch.isin(tokens, ends)
        going_on = (sums + ended * NEVER).topk(k)[1]  # (B', k)
        beams = (sums + ended * NEVER).gather(1, going_on)
        candidates.append(input_ids.new_zeros(3, sentences, choices))
        for table, values in zip(candidates[-1], (parents, tokens, going_on), strict=True):
            table[rows, : values.shape[1]] = values

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
        left = int(live.sum())
        if step + 1 == longest or not left:
            break
        parents, tokens = parents.gather(1, going_on), tokens.gather(1, going_on)
        if not processors and few_enough(left, len(live)):
            kept = live.nonzero()[:, 0]
            steps.keep(kept)
            rows, beams, hopeful, parents, tokens = (part[kept] for part in (rows, beams, hopeful, parents, tokens))
        parents = (parents + torch.arange(len(parents), device=device)[:, None] * k).flatten()
        steps.follow(parents)
        if processors:
            sequences = torch.cat([sequences[parents], tokens.view(-1, 1)], 1)
        logits = steps(tokens.flatten()).float()
    return read_back(
        torch.stack(candidates, 1).cpu(), places[:, : config.num_return_sequences].cpu(), input_ids, config
    )


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
