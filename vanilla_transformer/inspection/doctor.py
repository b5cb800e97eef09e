"""Is this checkpoint sound? What must hold of every encoder-decoder, tried out on one, with the remedy where it fails.

Each check is a function of a `Patient` that raises `Fault` with what it saw, or returns a remark, or nothing.
"""

import copy
import inspect
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..model.decoding import LIBRARY_LENGTH, is_of_family, position_limit
from ..model.loss import IGNORED_LABEL
from ..translation.alignments import kernel, pieces

SENTENCES = ("The old man is reading a new book.", "How many?", "Does it cost 3.50, or 12,000?")
NEAR = 1e-4  # how far two ways to compute the same logits may be apart, as a share of their size


# What a broken model may raise where a sound one computes.
CRASHES = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


class Fault(Exception):
    """What a check found wrong."""


@dataclass(frozen=True)
class Finding:
    check: str
    verdict: Literal["PASS", "FAIL"]
    told: str
    remedy: str = ""

    def __str__(self) -> str:
        remedy = f"\n      remedy: {self.remedy}" if self.remedy else ""
        return f"{self.verdict}  {self.check.replace('_', ' ')}" + (f": {self.told}" if self.told else "") + remedy


class Patient:
    """A model, its tokenizer, and sentences of random tokens to try it on: three of six tokens, said in five."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None):
        self.model, self.tokenizer, self.config = model.eval(), tokenizer, model.config
        self.generator = torch.Generator().manual_seed(0)
        self.source, self.target = self.tokens(3, 6), self.tokens(3, 5)

    @cached_property
    def vocabulary(self) -> torch.Tensor:
        """All ids that are not special."""
        size = min(self.model.get_input_embeddings().num_embeddings, self.model.get_output_embeddings().out_features)
        names = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id", "unk_token_id")
        special = {getattr(self.config, name, None) for name in names}
        if self.tokenizer is not None:
            special |= set(self.tokenizer.all_special_ids)
        return torch.tensor([token for token in range(size) if token not in special])

    def tokens(self, rows: int, length: int) -> torch.Tensor:
        """Random ids (B, L), none of them special."""
        drawn = torch.randint(len(self.vocabulary), (rows, length), generator=self.generator)
        return self.vocabulary[drawn].to(self.model.device)

    def other(self, ids: torch.Tensor, column: int) -> torch.Tensor:
        """The same, with other tokens in one column."""
        changed = ids.clone()
        while bool((changed[:, column] == ids[:, column]).any()):
            changed[:, column] = self.tokens(len(ids), 1)[:, 0]
        return changed

    @torch.no_grad()
    def logits(self, source: torch.Tensor | None = None, target: torch.Tensor | None = None, **more) -> torch.Tensor:
        """Of what is said after each token of `target`, (B, T, V); both sentences are the patient's own by default."""
        source = self.source if source is None else source
        given = {"input_ids": source, "attention_mask": torch.ones_like(source)}
        target = self.target if target is None else target
        return self.model(**{**given, "decoder_input_ids": target, "use_cache": False, **more}).logits

    @cached_property
    def usual(self) -> torch.Tensor:
        return self.logits()

    @property
    def size(self) -> float:
        """What differences of logits are measured by: their spread over the vocabulary."""
        return max(self.usual.std().item(), 1e-3)

    def near(self, one: torch.Tensor, two: torch.Tensor, what: str) -> None:
        """Raises: Fault, unless two ways to compute the same logits agree."""
        far = (one - two).abs().max().item() / self.size
        if not far <= NEAR:  # NaN is not near anything
            raise Fault(f"{what}: logits differ by {far:.2g} of their spread")

    def apart(self, one: torch.Tensor, two: torch.Tensor, what: str) -> None:
        """Raises: Fault, if what should change something changes nothing, in any row."""
        far = (one - two).abs().flatten(1).amax(-1).min().item() / self.size
        if not far > 1e-5:
            raise Fault(f"{what}: logits differ by no more than {far:.2g} of their spread")


def weights_are_numbers(patient: Patient) -> None:
    wrong = [name for name, weight in patient.model.state_dict().items() if not bool(weight.isfinite().all())]
    if wrong:
        raise Fault(f"NaN or infinity in {', '.join(wrong[:5])}" + (f" and {len(wrong) - 5} more" * (len(wrong) > 5)))


def tied_weights_are_one(patient: Patient) -> str | None:
    model = patient.model
    head, embedding = model.get_output_embeddings().weight, model.get_decoder().get_input_embeddings().weight
    if not patient.config.tie_word_embeddings:
        return "not tied"
    if head.data_ptr() != embedding.data_ptr():
        raise Fault("the config ties the embedding and the projection to logits, and they are two matrices")
    return None


def the_future_is_hidden(patient: Patient) -> None:
    changed = patient.logits(target=patient.other(patient.target, 3))
    patient.near(changed[:, :3], patient.usual[:, :3], "a later token changes what was said before it")
    patient.apart(changed[:, 3:], patient.usual[:, 3:], "a token changes nothing of what follows it")


def labels_are_shifted_once(patient: Patient) -> None:
    def said(labels):
        with torch.no_grad():
            return patient.model(input_ids=patient.source, labels=labels).logits

    before, after = said(patient.target), said(patient.other(patient.target, 2))
    patient.near(after[:, :3], before[:, :3], "a label is seen where it is to be predicted")
    patient.apart(after[:, 3:4], before[:, 3:4], "a label is not seen in the step after it")


def the_source_is_read(patient: Patient) -> None:
    patient.apart(patient.logits(source=patient.source.roll(1, 0)), patient.usual, "another source changes nothing")


def the_encoder_sees_both_ways(patient: Patient) -> None:
    encoder = patient.model.get_encoder()
    with torch.no_grad():
        states = [encoder(ids).last_hidden_state for ids in (patient.source, patient.other(patient.source, 4))]
    still = ((states[0] - states[1]).abs().amax(-1) < 1e-5 * states[0].std()).any(0)
    if still.any():
        raise Fault(f"a change of the fifth token does not reach the places {still.nonzero().flatten().tolist()}")


def padding_changes_nothing(patient: Patient) -> str | None:
    """On the right; on the left as well where positions are counted without padding, as ours are."""
    pad = patient.config.pad_token_id
    ours = patient.config.model_type.startswith("vanilla_transformer")
    for left, right in ((0, 3), (2, 1)) if ours else ((0, 3),):
        around = (left, right)
        source, mask = (
            torch.nn.functional.pad(ids, around, value=fill)
            for ids, fill in ((patient.source, pad), (torch.ones_like(patient.source), 0))
        )
        padded = patient.logits(source=source, attention_mask=mask)
        patient.near(padded, patient.usual, f"{left} tokens of padding before the source and {right} behind it")
    if ours:
        target, mask = (
            torch.nn.functional.pad(ids, (2, 0), value=fill)
            for ids, fill in ((patient.target, pad), (torch.ones_like(patient.target), 0))
        )
        padded = patient.logits(target=target, decoder_attention_mask=mask)[:, 2:]
        patient.near(padded, patient.usual, "2 tokens of padding before the target")
    return None if ours else "on the right; on the left, positions are not counted without it"


def a_sentence_is_the_same_in_a_batch(patient: Patient) -> None:
    alone = torch.cat([patient.logits(patient.source[i : i + 1], patient.target[i : i + 1]) for i in range(3)])
    patient.near(alone, patient.usual, "a sentence by itself")


def kernels_agree(patient: Patient) -> None:
    outputs = []
    for name in ("eager", "sdpa"):
        with kernel(patient.model, name):
            outputs.append(patient.logits())
    patient.near(outputs[0], outputs[1], "attention by eager and by sdpa")


def an_empty_row_is_finite(patient: Patient) -> None:
    mask = torch.ones_like(patient.source)
    mask[1] = 0
    for name in ("eager", patient.config._attn_implementation):
        with kernel(patient.model, name):
            if not bool(patient.logits(attention_mask=mask).isfinite().all()):
                raise Fault(f"a row of padding alone makes NaN, under {name}")


def attention_rows_sum_to_one(patient: Patient) -> None:
    model, kinds = patient.model, ("encoder_attentions", "decoder_attentions", "cross_attentions")
    try:
        for training in (False, True)[: 1 + is_of_family(model.config)]:  # others' weights have been through dropout
            with torch.no_grad(), kernel(model.train(training), "eager"):
                output = model(
                    input_ids=patient.source, decoder_input_ids=patient.target, output_attentions=True, use_cache=False
                )
            for kind in kinds:
                layers = getattr(output, kind)
                if not layers or any(layer is None for layer in layers):
                    raise Fault(f"no {kind} are returned")
                far = max((layer.sum(-1) - 1).abs().max().item() for layer in layers)
                if not far < 1e-3:
                    raise Fault(f"rows of {kind} sum to 1 ± {far:.2g}" + (" in training" if training else ""))
    finally:
        model.eval()


def the_cache_changes_nothing(patient: Patient) -> None:
    for beams in (1, 3):
        options: dict[str, Any] = dict(num_beams=beams, max_new_tokens=6, min_new_tokens=4, do_sample=False)
        options |= dict(output_logits=True, return_dict_in_generate=True, early_stopping=beams > 1)
        options |= dict(decoder_input_ids=patient.target[:, :3], attention_mask=torch.ones_like(patient.source))
        found = [patient.model.generate(patient.source, use_cache=cached, **options) for cached in (True, False)]
        for cached, uncached in zip(found[0].logits, found[1].logits, strict=False):
            patient.near(cached, uncached, f"{beams} beams with a cache and without" if beams > 1 else "with a cache")
        if not torch.equal(found[0].sequences, found[1].sequences):
            raise Fault(f"{beams} beams find other tokens with a cache than without")
        if is_of_family(patient.config):  # whose own search takes over where no logits are asked for
            for name in ("output_logits", "return_dict_in_generate", "decoder_input_ids"):
                options.pop(name)
            own, stock = (patient.model.generate(patient.source, fast=fast, **options) for fast in (True, False))
            if not torch.equal(own, stock):
                raise Fault(f"{beams} beams find other tokens with fast=False")


def every_weight_learns(patient: Patient) -> None:
    model = patient.model
    try:
        model.train(is_of_family(model.config)).zero_grad()  # others may leave out whole layers in training
        model(input_ids=patient.source, labels=patient.target).loss.backward()
        still = [
            name
            for name, weight in model.named_parameters()
            if weight.requires_grad
            and (weight.grad is None or not bool(weight.grad.any()))
            # which moves all scores of a query alike; of positions, those that are not there
            and not name.endswith(("k_proj.bias", "positions.weight"))
        ]
    finally:
        model.eval().zero_grad()
    if still:
        raise Fault(f"no gradient for {', '.join(still[:5])}" + f" and {len(still) - 5} more" * (len(still) > 5))


def a_batch_is_its_parts(patient: Patient) -> str | None:
    """The loss of a batch is the sum of its parts', each divided by the labels of all, with padding and smoothing."""
    model = patient.model
    known = {*inspect.signature(model.forward).parameters, *getattr(model, "keywords", ())}
    if not {"num_items_in_batch", "label_smoothing"} <= known:
        return "left out: the loss of this model does not know the labels of other parts"
    labels = patient.target.clone()
    labels[0, 2:] = IGNORED_LABEL
    total = (labels != IGNORED_LABEL).sum()

    def loss(rows):
        given = dict(input_ids=patient.source[rows], labels=labels[rows], num_items_in_batch=total)
        with torch.no_grad():
            return model(**given, label_smoothing=0.1).loss

    whole, parts = loss(slice(None)), loss(slice(0, 1)) + loss(slice(1, 3))
    with torch.no_grad():
        logits = model(input_ids=patient.source, labels=labels).logits
    logs = logits.log_softmax(-1)[labels != IGNORED_LABEL]
    right = labels[labels != IGNORED_LABEL][:, None]
    expected = -(0.9 * logs.gather(-1, right).sum() + 0.1 * logs.mean(-1).sum()) / total
    for name, value in (("its parts", parts), ("its formula", expected)):
        if not abs(value - whole) <= NEAR * abs(whole):
            raise Fault(f"the loss of a batch is {whole:.5f}, and of {name} {value:.5f}")
    return None


def saving_keeps_every_bit(patient: Patient) -> None:
    with tempfile.TemporaryDirectory() as folder:
        patient.model.save_pretrained(folder)
        again = type(patient.model).from_pretrained(folder, dtype=patient.model.dtype).to(patient.model.device)
        output = Patient(again, patient.tokenizer).logits(patient.source, patient.target)
    if not torch.equal(output, patient.usual):
        far = (output - patient.usual).abs().max().item() / patient.size
        raise Fault(f"saved and loaded again, logits differ by {far:.2g} of their spread")


def positions_go_on(patient: Patient) -> str | None:
    limit = getattr(patient.config, "max_position_embeddings", None)
    if limit is None:
        return "left out: the model names no limit"
    if limit > 4096:
        return f"left out: the model knows {limit} positions"
    end = position_limit(patient.model.get_encoder(), patient.config)
    if end is not None:  # on a GPU, what looks beyond it in a table ends all other work as well
        return f"they end at {end}"
    long = patient.tokens(1, limit + 4)
    while long[0, limit + 1] == long[0, limit + 2]:
        long = patient.other(long, limit + 2)
    exchanged = long.clone()
    exchanged[0, [limit + 1, limit + 2]] = long[0, [limit + 2, limit + 1]]
    before, after = (patient.logits(ids, patient.target[:1]) for ids in (long, exchanged))
    if getattr(patient.config, "positions", "") != "none":
        patient.apart(before, after, f"two tokens beyond place {limit} exchanged")
    return None


def positions_leave_tokens_in_sight(patient: Patient) -> str | None:
    stack = patient.model.get_encoder()
    embed = getattr(getattr(stack, "positions", None), "embed", None)
    if embed is None or not hasattr(stack, "embed_scale"):
        return "left out: for models of this package"
    with torch.no_grad():
        tokens = stack.embed_tokens(patient.tokens(1, 50)) * stack.embed_scale
        places = embed(torch.zeros_like(tokens), torch.arange(50, device=tokens.device)[None], 50)
    if not bool(places.any()):
        return "no positions are added"
    ratio = (places.std() / tokens.std()).item()
    if not ratio < 4:  # the other way round there is no fault: tokens grow in training
        raise Fault(f"positions have {ratio:.2g} times the size of tokens, and drown them")
    return None


def outputs_have_a_limit_and_an_end(patient: Patient) -> None:
    settings, problems = patient.model.generation_config, []
    # Where nothing is said, ours end at the longest source + 50 tokens.
    unsaid = (LIBRARY_LENGTH,) if is_of_family(patient.config) else (None, LIBRARY_LENGTH)
    if settings.max_new_tokens is None and settings.max_length in unsaid:
        problems.append(f"no max_length is set, and transformers stops after {LIBRARY_LENGTH} tokens")
    start, configured = settings.decoder_start_token_id, patient.config.decoder_start_token_id
    if start is None and (settings.bos_token_id is None or configured is not None):  # bos is what generate takes then
        problems.append("decoder_start_token_id is not set")
    elif start is not None and configured not in (None, start):
        problems.append(f"decoder_start_token_id is {start} there and {configured} in config")
    for name in ("eos_token_id", "pad_token_id"):
        if getattr(settings, name) is None:
            problems.append(f"{name} is not set")
        elif getattr(patient.config, name, None) not in (None, getattr(settings, name)):
            problems.append(f"{name} is {getattr(settings, name)} there and {getattr(patient.config, name)} in config")
    if problems:
        raise Fault("generation_config: " + "; ".join(problems))


def text_comes_back(patient: Patient) -> str | None:
    tokenizer = patient.tokenizer
    if tokenizer is None:
        return "left out: no tokenizer"
    problems = []
    if len(tokenizer) > patient.model.get_input_embeddings().num_embeddings:
        problems.append(
            f"{len(tokenizer)} tokens and {patient.model.get_input_embeddings().num_embeddings} embeddings"
        )
    for name in ("pad_token_id", "eos_token_id"):
        if getattr(tokenizer, name) != getattr(patient.config, name, None):
            problems.append(
                f"{name} is {getattr(tokenizer, name)} of the tokenizer, and {getattr(patient.config, name)}"
            )
    lowered = False
    for text in SENTENCES:
        ids = tokenizer(text)["input_ids"]
        special = [token in tokenizer.all_special_ids and token != tokenizer.unk_token_id for token in ids]
        told = zip(pieces(tokenizer, ids, source=True), special, strict=True)
        back = "".join(piece for piece, is_special in told if not is_special).lstrip(" ")
        if back == text.lower() != text:
            lowered = True
        elif back != text:
            problems.append(f"{text!r} comes back as {back!r}")
        text_ends = max((place for place, is_special in enumerate(special, 1) if not is_special), default=0)
        if tokenizer.eos_token_id is not None and tokenizer.eos_token_id not in ids[text_ends:]:
            problems.append(f"{text!r} does not end with {tokenizer.eos_token}")
    if problems:
        raise Fault("; ".join(problems[:4]))
    return "in small letters" if lowered else None


def float16_is_finite(patient: Patient) -> None:
    half = Patient(copy.deepcopy(patient.model).half(), patient.tokenizer)
    if not bool(half.logits(patient.source, patient.target).isfinite().all()):
        raise Fault("NaN or infinity in float16")


# Check -> what to do where it fails.
CHECKS: dict[Callable[[Patient], str | None], str] = {
    weights_are_numbers: "the training has diverged: take an earlier checkpoint, and a lower learning rate",
    tied_weights_are_one: "call model.tie_weights() after loading, and save the model again",
    the_future_is_hidden: "give the decoder a causal mask; nothing that it has learned without one is of use",
    labels_are_shifted_once: "decoder inputs are the labels one place later: shift them in the collator or in the "
    "model, not in both",
    the_source_is_read: "its training has not taught it: check that the lines of the corpus belong together; check "
    "the cross-attention",
    the_encoder_sees_both_ways: "the encoder must have no causal mask",
    padding_changes_nothing: "mask padding in encoder and cross-attention, and count positions without it",
    a_sentence_is_the_same_in_a_batch: "something is computed over the batch: look at the norms and at the mask",
    kernels_agree: "load with attn_implementation='eager', and compare the scaling and the masks of the kernels",
    an_empty_row_is_finite: "mask by the smallest finite number instead of -inf",
    attention_rows_sum_to_one: "return the softmax, before its dropout",
    the_cache_changes_nothing: "translate with use_cache=False meanwhile; check positions behind a cache, and that "
    "beams take their caches along",
    every_weight_learns: "look for detach(), no_grad() and parameters that forward does not use",
    a_batch_is_its_parts: "divide the summed loss by num_items_in_batch, and leave padding out of the smoothing, too",
    saving_keeps_every_bit: "a buffer is neither saved nor computed when the model is loaded",
    positions_go_on: "compute the table of positions for any length, or refuse longer texts",
    positions_leave_tokens_in_sight: "scale embeddings of variance 1 / d_model by sqrt(d_model)",
    outputs_have_a_limit_and_an_end: "set them: model.generation_config.max_length = 512, and so on; then save it",
    text_comes_back: "save the tokenizer that the model was trained with beside it",
    float16_is_finite: "use bfloat16 or float32",
}


def examine(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None = None) -> list[Finding]:
    """All checks of one encoder-decoder, whatever the first of them finds.

    Raises:
        ValueError: for a model that is no encoder-decoder.
    """
    if not model.config.is_encoder_decoder:
        raise ValueError(f"got a model of type {model.config.model_type!r}, expected an encoder-decoder")
    patient = Patient(model, tokenizer)
    return [finding(check, remedy, patient) for check, remedy in CHECKS.items()]


def finding(check: Callable[[Patient], str | None], remedy: str, patient: Patient) -> Finding:
    try:
        return Finding(check.__name__, "PASS", check(patient) or "")
    except Fault as fault:
        return Finding(check.__name__, "FAIL", str(fault), remedy)
    except CRASHES as error:
        return Finding(check.__name__, "FAIL", f"{type(error).__name__}: {' '.join(str(error).split())}", remedy)
