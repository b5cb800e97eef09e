"""The contenders of one size, and what they are given to do."""

import contextlib
import copy
import os
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from torch import nn
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, pipeline

from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForSeq2SeqLM
from vanilla_transformer.data.batching import token_budget_batches
from vanilla_transformer.data.corpora import read_corpus
from vanilla_transformer.interop import to_marian
from vanilla_transformer.model.decoding import output_limit
from vanilla_transformer.model.linear import linear
from vanilla_transformer.processor import computes_in_bfloat16
from vanilla_transformer.training.trainer import layers_of
from vanilla_transformer.translation import Translator
from vanilla_transformer.translation.packing import PACKINGS, lacking, pack

from .peers import TorchTransformer, ctranslate2_peer, numpy_peer
from .table import Row, interleaved, timed

SIZES = {
    "tiny": VanillaTransformerConfig.preset("tiny", vocab_size=8000, dropout=0.1),
    "small": VanillaTransformerConfig.preset("small", vocab_size=8000, dropout=0.1),
    "base": VanillaTransformerConfig.preset("base", vocab_size=32000),
}
OF_THE_SOURCE = ("cross_attn.k_proj", "cross_attn.v_proj")
PACKED = "ours packed "  # float32, bfloat16, int8: `--packed` of the command line
SOURCE, NEW = 25, 40  # tokens of each random source, and of each output to it
DATA = Path(os.environ.get("VANILLA_TRANSFORMER_DATA", "../shared/data"))


class Bench:
    """The contenders of one size, and what they work on."""

    def __init__(self, size: str, folder: Path | None, arguments):
        self.size, self.folder, self.arguments, self.rounds = size, folder, arguments, arguments.rounds
        self.device, self.dtype = torch.device(arguments.device), getattr(torch, arguments.dtype)
        torch.manual_seed(0)
        if folder is None:
            ours = VanillaTransformerForSeq2SeqLM(SIZES[size])
        else:
            folder = self.folder = folder / "model" if (folder / "model").is_dir() else folder
            ours = AutoModelForSeq2SeqLM.from_pretrained(folder)
            self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.models = {"ours": ours.eval(), "marian": to_marian(ours).eval()}
        self.models = {name: model.to(self.device, self.dtype) for name, model in self.models.items()}
        self.batch_of_training = self.training_batch()

    def packings(self) -> list[str]:
        """Those of our faster modes that this machine has."""
        return [name for name in PACKINGS if not lacking(name)] if self.plain() else []

    def packed(self) -> dict:
        """Our faster modes on a CPU: the same weights in another order, or rounded."""
        return {f"{PACKED}{name}": pack(self.like_ours(), name) for name in self.packings()}

    def plain(self) -> bool:
        """In the mode that other modes are compared with."""
        return self.device.type == "cpu" and self.dtype == torch.float32

    def like_ours(self):
        copy = VanillaTransformerForSeq2SeqLM(self.models["ours"].config)
        copy.load_state_dict(self.models["ours"].state_dict())
        copy.generation_config = self.models["ours"].generation_config
        return copy.eval().to(self.device, self.dtype)

    # ------------------------------------------------------------------------------------------------- inputs

    def pairs(self) -> tuple[list[str], list[str]]:
        files = [str(DATA / f"multi30k/test_2016_flickr.{language}.gz") for language in ("en", "de")]
        rows = read_corpus(files, "source", "target")
        return list(rows["source"]), list(rows["target"])

    def batches(self, size: int) -> list[dict[str, torch.Tensor]]:
        """Batches of `size` sources: test sentences in their order, or random ids; fewer where a batch is one."""
        if self.folder is None:
            batch = random_sources(self.models["ours"].config, size)
            return [{"input_ids": batch.to(self.device), "attention_mask": torch.ones_like(batch).to(self.device)}]
        texts = self.pairs()[0][: max(2 * size, 8)]
        groups = [texts[i : i + size] for i in range(0, len(texts), size)]
        return [self.tokenizer(group, padding=True, return_tensors="pt").to(self.device) for group in groups]

    def training_batch(self) -> dict[str, torch.Tensor]:
        """`--tokens` padded tokens a side, as the recipes make batches, or in random pairs of 32 tokens."""
        if self.folder is None:
            ids = random_sources(self.models["ours"].config, self.arguments.tokens // 32, 32).to(self.device)
            return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids.roll(1, 0)}
        pairs = self.tokenizer(*self.pairs()[:1], text_target=self.pairs()[1])
        lengths = [max(len(s), len(t)) for s, t in zip(pairs["input_ids"], pairs["labels"], strict=True)]
        order = sorted(range(len(lengths)), key=lengths.__getitem__)
        groups = token_budget_batches(np.array(lengths), self.arguments.tokens, np.array(order))
        group = groups[len(groups) // 2]
        batch = self.tokenizer.pad({"input_ids": [pairs["input_ids"][i] for i in group]}, return_tensors="pt")
        labels = [torch.tensor(pairs["labels"][i]) for i in group]
        batch["labels"] = nn.utils.rnn.pad_sequence(labels, batch_first=True, padding_value=-100)
        return {name: value.to(self.device) for name, value in batch.items()}

    # --------------------------------------------------------------------------------------------- decoding

    def decoding(self, size: int, beams: int) -> Row:
        """Generated tokens a second, ours and theirs being the same ones."""
        models = self.models | self.packed()
        settings = dict(num_beams=beams, do_sample=False, max_new_tokens=NEW)
        if self.folder is not None:
            settings["max_new_tokens"] = 100
        settings |= {"early_stopping": True} if beams > 1 else {}
        batches = self.batches(size)
        with endless(models.values()) if self.folder is None else contextlib.nullcontext():
            outputs = {n: [m.generate(**b, **settings).cpu() for b in batches] for n, m in models.items()}
            amount = tokens_of(outputs["ours"], self.models["ours"])
            equal = {name: agreement(outputs["ours"], found) for name, found in outputs.items()}
            if equal["marian"] < 0.95:
                raise SystemExit(f"{self.size}, {beams} beams: MarianMT's outputs are others: nothing to compare")
            runs = {
                name: timed(
                    lambda model=model: sum(len(model.generate(**b, **settings)) > 0 for b in batches) and amount
                )
                for name, model in models.items()
            }
            if self.plain() and (
                peer := ctranslate2_peer(
                    self.models["marian"], batches, beams, exact=NEW if self.folder is None else None
                )
            ):
                equal["ctranslate2"] = agreement(outputs["ours"], peer())
                runs["ctranslate2"] = timed(lambda: len(peer()) and amount)
            if size == beams == 1 and self.folder is not None and self.size == "tiny":
                runs["numpy"] = timed(numpy_peer(self.folder, batches[0]))
            values = interleaved(runs, self.rounds)
        how = "greedy" if beams == 1 else f"beam {beams}"
        others = [f"{name}: {share:.0%} of the outputs are equal" for name, share in equal.items() if share < 1]
        flops = 2 * beams * step_size(self.models["ours"])
        row = Row(self.size, f"{how}, batch {size}", "tokens/s", True, values, flops=flops, note=", ".join(others))
        if self.folder is None:
            shares = {name: self.top1(models["ours"], models[name]) for name in models if name.startswith(PACKED)}
            row.note += f"{'; ' if row.note else ''}the same best token, teacher-forced: "
            row.note += ", ".join(f"{name} {share:.1%}" for name, share in shares.items())
        return row

    def top1(self, one, other) -> float:
        """How often two models find the same token the most probable one, teacher-forced."""
        batch = self.batch_of_training
        with torch.no_grad():
            best = [model(**batch).logits.argmax(-1) for model in (one, other)]
        return (best[0] == best[1]).float().mean().item()

    # --------------------------------------------------------------------------------------------- training

    def training(self) -> Row:
        """One step of forward, backward and fused AdamW: target tokens a second, padding not counted. On processors
        that compute in bfloat16, steps in mixed precision as well, and on a CPU with plain attention, which is faster
        there. What is compiled of ours is each layer, as `training.torch_compile` has it."""
        batch = self.batch_of_training
        models = copy.deepcopy(self.models)  # other measures go on with the weights as they were
        models["torch.nn"] = TorchTransformer(self.models["ours"].config).to(self.device, self.dtype)
        exact = self.dtype == torch.float32
        mixed = [f"{name} bfloat16" for name in self.models if exact and computes_in_bfloat16()]
        models |= {name: copy.deepcopy(models[name.split()[0]]) for name in mixed}
        for name in mixed if self.device.type == "cpu" else ():
            models[name].set_attn_implementation("eager")
        if self.arguments.compile:
            compiled = {f"{name} compiled": copy.deepcopy(models[name]) for name in [*self.models, *mixed]}
            for part in chain.from_iterable(layers_of(model) or [model] for model in compiled.values()):
                part.compile(dynamic=True)
            models |= compiled
            mixed += [f"{name} compiled" for name in mixed]
        tokens = int((batch["labels"] != -100).sum())

        def step(name: str, model):
            options = {"skip_logits": True} if "ours" in name else {}
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)

            def work() -> int:
                model.train()
                optimizer.zero_grad()
                with torch.autocast(self.device.type, torch.bfloat16, enabled=name in mixed):
                    loss = model(**batch, **options).loss
                loss.backward()
                optimizer.step()
                return tokens

            return timed(work)

        runs = {name: step(name, model) for name, model in models.items()}
        values = interleaved(runs, self.rounds)
        flops = 6 * training_size(self.models["ours"])
        return Row(self.size, "training step", "tokens/s", True, values, flops=flops)

    # ----------------------------------------------------------------------------------------------- corpora

    def corpus(self, name: str, beams: int) -> Row:
        """Whole test sets, sentences a second: our Translator, and the pipeline on MarianMT in batches of 32 and one
        by one, which take hours: they get every 4th or 25th line of the two test sets, and the last every 50th."""
        files = {"Multi30k": "multi30k/test_2016_flickr", "newstest2014": "wmt14/newstest2014"}
        rows = read_corpus([str(DATA / f"{files[name]}.{language}.gz") for language in ("en", "de")], "s", "t")
        texts = list(rows["s" if "s" in rows.column_names else "source"])
        marian = pipeline("translation", model=self.models["marian"], tokenizer=self.tokenizer)
        longest = max(map(len, self.tokenizer(texts)["input_ids"]))
        options = {"num_beams": beams, "do_sample": False, "max_length": output_limit(self.models["ours"], longest)}
        greedy = {"length_penalty": None, "early_stopping": None} if beams == 1 else {}
        ours = Translator(self.models["ours"], self.tokenizer)
        packed = {name: Translator(model, self.tokenizer) for name, model in self.packed().items()}

        def run(work: Callable[[list[str]], object], share: list[str]) -> list[float]:
            return [timed(lambda: work(share) is not None and len(share))()]

        stride = 25 if name == "newstest2014" else 4
        found: dict[str, list[str]] = {}

        def mine(texts: list[str]) -> list[str]:
            return found.setdefault("ours", [answer.text for answer in ours(texts, num_beams=beams)])

        def theirs(texts: list[str]) -> list[str]:
            answers = marian(texts, batch_size=32, **options, **greedy)
            return found.setdefault("marian", [answer["translation_text"] for answer in answers])

        values = {
            "ours": run(mine, texts),
            "marian": run(theirs, texts[::stride]),
            **{n: run(lambda t, fast=fast: fast(t, num_beams=beams), texts) for n, fast in packed.items()},
            "marian one by one": run(lambda t: [marian(s, **options, **greedy) for s in t], texts[::50]),
        }
        how = "greedy" if beams == 1 else f"beam {beams}"
        row = Row(self.size, f"{name}, {len(texts)} lines, {how}", "sentences/s", True, values)
        row.note = f"ours is {row.ratio('ours', 'marian one by one'):.1f} x one by one"
        equal = [a == b for a, b in zip(found["ours"][::stride], found["marian"], strict=True)]
        row.note += f"; {sum(equal) / len(equal):.0%} of marian's outputs are equal"
        return row


def random_sources(config, rows: int, length: int = SOURCE) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(3, config.vocab_size, (rows, length), generator=generator)
    ids[:, -1] = config.eos_token_id
    return ids


@contextlib.contextmanager
def endless(models):
    """Nothing ends before its time, and no processor has to see to it."""
    kept = [
        (m.generation_config, m.generation_config.eos_token_id, m.generation_config.forced_eos_token_id)
        for m in models
    ]
    for config, *_ in kept:
        config.eos_token_id = config.forced_eos_token_id = None
    yield
    for config, eos, forced in kept:
        config.eos_token_id, config.forced_eos_token_id = eos, forced


def stripped(outputs: list[torch.Tensor], model) -> list[list[int]]:
    """Every sentence without its start, end and padding."""
    special = {model.config.pad_token_id, model.config.eos_token_id}
    return [[token for token in row[1:] if token not in special] for ids in outputs for row in ids.tolist()]


def tokens_of(outputs: list[torch.Tensor], model) -> int:
    ends = model.generation_config.eos_token_id is not None
    return sum(len(row) + ends for row in stripped(outputs, model))


def agreement(one: list, other: list) -> float:
    """The share of sentences with the same tokens: in float32 two hypotheses may be equal to the last bit."""
    rows = [
        [[t for t in row if t > 2] for ids in side for row in (ids.tolist() if torch.is_tensor(ids) else ids)]
        for side in (one, other)
    ]
    return sum(a == b for a, b in zip(*rows, strict=True)) / len(rows[0])


def step_size(model) -> int:
    """Weights that one new token is multiplied by: the decoder's, but for keys and values of the source, and V D."""
    parts = model.model.decoder.layers.named_parameters()
    decoder = sum(p.numel() for name, p in parts if not name.split(".", 1)[1].startswith(OF_THE_SOURCE))
    return decoder + model.lm_head.weight.numel()


def training_size(model) -> int:
    """Weights that a pair of tokens is multiplied by in training: all, the embedding once."""
    return sum(p.numel() for p in model.parameters())


def gemm(d_model: int, bench: Bench) -> Row:
    """The floor: 128 rows times a matrix, in GFLOP/s, by torch and by the library that our model takes for it. Of a
    GPU the peak: a product in bfloat16 that fills it."""
    (rows, inner, columns), dtype = (128, d_model, 4 * d_model), bench.dtype
    if bench.device.type == "cuda":
        rows, inner, columns, dtype = 8192, 8192, 8192, torch.bfloat16
    x, w = (torch.randn(shape, device=bench.device, dtype=dtype) for shape in ((rows, inner), (columns, inner)))

    def work(product: Callable) -> float:
        for _ in range(200):
            product(x, w)
        return 200 * 2 * rows * inner * columns / 1e9

    runs = {"torch": timed(lambda: work(nn.functional.linear)), "ours": timed(lambda: work(linear))}
    with torch.no_grad():
        return Row(bench.size, "matrix product", "GFLOP/s", True, interleaved(runs, bench.rounds))
