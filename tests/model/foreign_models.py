"""Tiny random translation models of transformers, and every form of call of the translation pipeline.

Runs under transformers 4.57 (`scripts/record_translation_pipeline.py`) and under transformers 5 (the tests), so that
both ask the same questions. Nothing is downloaded: the tokenizers are learnt from the few sentences below.
"""

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import sentencepiece
import torch
from tokenizers import Tokenizer, decoders, pre_tokenizers, processors
from tokenizers.models import BPE, Unigram
from transformers import (
    AutoTokenizer,
    M2M100Config,
    M2M100ForConditionalGeneration,
    M2M100Tokenizer,
    MarianConfig,
    MarianMTModel,
    MarianTokenizer,
    MBartConfig,
    MBartForConditionalGeneration,
    T5Config,
    T5ForConditionalGeneration,
    pipeline,
)
from transformers.models.m2m_100.tokenization_m2m_100 import FAIRSEQ_LANGUAGE_CODES
from transformers.pipelines.pt_utils import KeyDataset

ONE = "a small house stands by the river"
TWO = "the cat sleeps"
THREE = "we drink tea in the morning"
SENTENCES = [ONE, TWO, THREE, "das kleine haus steht am fluss", "die katze schläft", "le chat dort dans la maison"]
LETTERS = "▁abcdefghijklmnopqrstuvwxyzäé"
POSITIONS = 64  # the size of every table of positions below


def _sentencepiece(path: Path) -> list[str]:
    """Learn a tiny model into `path` and return its pieces."""
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES * 4),
        model_writer=written,
        vocab_size=60,
        character_coverage=1.0,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    path.write_bytes(written.getvalue())
    model = sentencepiece.SentencePieceProcessor(model_proto=written.getvalue())
    return [model.id_to_piece(i) for i in range(model.get_piece_size())]


def _tokenizer_json(folder: Path, model, special: list[str], settings: dict[str, Any]) -> None:
    """Write tokenizer.json and tokenizer_config.json of a tokenizer whose sources end in `</s>`."""
    tokenizer = Tokenizer(model)
    tokenizer.add_special_tokens(special)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    end = ("</s>", tokenizer.token_to_id("</s>"))
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[end])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def _marian(folder: Path):
    pieces = _sentencepiece(folder / "both.spm")
    names = ["</s>", "<unk>", *(p for p in pieces if p not in ("<unk>", "<s>", "</s>")), "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(names)}))
    spm = str(folder / "both.spm")
    tokenizer = MarianTokenizer(spm, spm, str(folder / "vocab.json"), source_lang="en", target_lang="de")
    config = MarianConfig(
        vocab_size=len(names),
        pad_token_id=len(names) - 1,
        eos_token_id=0,
        forced_eos_token_id=None,
        decoder_start_token_id=len(names) - 1,
        max_position_embeddings=POSITIONS,
        **_bart_sizes(),
    )
    return MarianMTModel(config), tokenizer


def _t5(folder: Path):
    vocabulary = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *((letter, -2.0) for letter in LETTERS)]
    vocabulary += [(f"▁{word}", -3.0) for word in sorted(set(" ".join(SENTENCES).split()))]
    _tokenizer_json(
        folder,
        Unigram(vocabulary, unk_id=2),
        ["<pad>", "</s>", "<unk>"],
        {"tokenizer_class": "T5Tokenizer", "extra_ids": 0, "additional_special_tokens": []},
    )
    tokenizer = AutoTokenizer.from_pretrained(folder)
    config = T5Config(
        vocab_size=len(tokenizer),
        d_model=16,
        d_kv=8,
        d_ff=32,
        num_layers=1,
        num_heads=2,
        decoder_start_token_id=0,
    )
    return T5ForConditionalGeneration(config), tokenizer


def _m2m100(folder: Path):
    pieces = _sentencepiece(folder / "both.spm")
    names = ["<s>", "<pad>", "</s>", "<unk>", *(p for p in pieces if p not in ("<unk>", "<s>", "</s>"))]
    (folder / "vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(names)}))
    codes = [f"__{code}__" for code in FAIRSEQ_LANGUAGE_CODES["m2m100"]]  # special in all published checkpoints
    tokenizer = M2M100Tokenizer(
        str(folder / "vocab.json"), str(folder / "both.spm"), additional_special_tokens=codes, num_madeup_words=0
    )
    config = M2M100Config(
        vocab_size=len(tokenizer), max_position_embeddings=POSITIONS, decoder_start_token_id=2, **_bart_sizes()
    )
    return M2M100ForConditionalGeneration(config), tokenizer


def _nllb(folder: Path):
    vocabulary = {piece: i for i, piece in enumerate(["<s>", "<pad>", "</s>", "<unk>", *LETTERS, "▁t", "▁th", "▁the"])}
    _tokenizer_json(
        folder,
        BPE(vocabulary, [("▁", "t"), ("▁t", "h"), ("▁th", "e")], unk_token="<unk>"),
        ["<s>", "<pad>", "</s>", "<unk>"],
        {"tokenizer_class": "NllbTokenizer"},
    )
    tokenizer = AutoTokenizer.from_pretrained(folder)
    config = M2M100Config(
        vocab_size=len(tokenizer), max_position_embeddings=POSITIONS, decoder_start_token_id=2, **_bart_sizes()
    )
    return M2M100ForConditionalGeneration(config), tokenizer


def _mbart(folder: Path):
    vocabulary = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *((x, -2.0) for x in LETTERS)]
    _tokenizer_json(
        folder,
        Unigram(vocabulary, unk_id=3),
        ["<s>", "<pad>", "</s>", "<unk>"],
        {"tokenizer_class": "MBartTokenizer"},
    )
    tokenizer = AutoTokenizer.from_pretrained(folder)
    config = MBartConfig(
        vocab_size=len(tokenizer),
        max_position_embeddings=POSITIONS,
        decoder_start_token_id=2,
        forced_eos_token_id=None,
        **_bart_sizes(),
    )
    return MBartForConditionalGeneration(config), tokenizer


def _bart_sizes() -> dict[str, Any]:
    sides = ("encoder", "decoder")
    return {
        "d_model": 16,
        "dropout": 0.0,
        **{f"{side}_layers": 1 for side in sides},
        **{f"{side}_attention_heads": 2 for side in sides},
        **{f"{side}_ffn_dim": 32 for side in sides},
    }


@dataclass(frozen=True)
class Architecture:
    build: Callable[[Path], tuple]
    source: str | None = None  # language codes, where the tokenizer wants them
    target: str | None = None
    other_target: str | None = None

    @property
    def languages(self) -> dict[str, str]:
        return {"src_lang": self.source, "tgt_lang": self.target} if self.source else {}


ARCHITECTURES = {
    "marian": Architecture(_marian),
    "t5": Architecture(_t5),
    "m2m100": Architecture(_m2m100, "en", "fr", "de"),
    "nllb": Architecture(_nllb, "eng_Latn", "fra_Latn", "deu_Latn"),
    "mbart": Architecture(_mbart, "en_XX", "fr_XX", "de_DE"),
}


def build(name: str, folder: Path) -> Path:
    """Write a checkpoint of that architecture into `folder`, as its users have it on disk."""
    raw, checkpoint = folder / "raw", folder / "checkpoint"
    raw.mkdir(parents=True)
    model, tokenizer = ARCHITECTURES[name].build(raw)
    _fill(model, tokenizer.all_special_ids)
    model.eval().save_pretrained(checkpoint)
    tokenizer.save_pretrained(checkpoint)
    return checkpoint


@torch.no_grad()
def _fill(model: torch.nn.Module, special: list[int]) -> None:
    """Random weights that depend on their names alone, so that all versions of transformers translate alike."""
    for path, weight in model.named_parameters():
        if weight.requires_grad and weight.ndim == 2:
            numbers = torch.randn(weight.shape, generator=torch.Generator().manual_seed(crc32(path.encode())))
            # A random model repeats its last token: let it hear its source ...
            weight.copy_(numbers * (2.0 if "encoder_attn." in path or "EncDecAttention." in path else 0.5))
    model.get_input_embeddings().weight[special] *= 0.25  # ... and speak in letters


class Maker:
    """Pipelines on one checkpoint: `pipe` has the languages set, `make` takes any task and settings; `None` unsets."""

    def __init__(self, name: str, checkpoint: Path):
        self.architecture, self.checkpoint = ARCHITECTURES[name], checkpoint
        self.pipe = self.make("translation", **self.architecture.languages)

    def make(self, task: str, **settings: Any):
        settings = {name: value for name, value in {"max_new_tokens": 6, **settings}.items() if value is not None}
        return pipeline(task, model=str(self.checkpoint), device="cpu", **settings)


def _key_dataset() -> KeyDataset:
    return KeyDataset([{"en": ONE}, {"en": TWO}, {"en": THREE}], "en")


def _column():
    """A column as `datasets` gives it: a list up to its version 3, a `datasets.Column` since."""
    from datasets import Dataset

    return Dataset.from_dict({"en": [ONE, TWO, THREE]})["en"]


def _source_and_target(make: Maker) -> dict[str, str]:
    return make.architecture.languages or {"src_lang": "en", "tgt_lang": "de"}


FORMS: dict[str, Callable[[Maker], Any]] = {
    "str": lambda m: m.pipe(ONE),
    "list of 1": lambda m: m.pipe([ONE]),
    "list of 2": lambda m: m.pipe([ONE, TWO]),
    "list of 3, batch_size=2": lambda m: m.pipe([ONE, TWO, THREE], batch_size=2),
    "list of 3, batch_size=2 by constructor": lambda m: m.make(
        "translation", batch_size=2, **m.architecture.languages
    )([ONE, TWO, THREE]),
    "generator": lambda m: m.pipe(text for text in [ONE, TWO]),
    "generator of 3, batch_size=2": lambda m: m.pipe((text for text in [ONE, TWO, THREE]), batch_size=2),
    "KeyDataset": lambda m: m.pipe(_key_dataset()),
    "KeyDataset, batch_size=2": lambda m: m.pipe(_key_dataset(), batch_size=2),
    "datasets column": lambda m: m.pipe(_column()),
    "datasets column, batch_size=2": lambda m: m.pipe(_column(), batch_size=2),
    "list inside list": lambda m: m.pipe([[ONE, TWO], [THREE]]),
    "list inside list of 1": lambda m: m.pipe([[ONE]]),
    "str, num_beams=2": lambda m: m.pipe(ONE, num_beams=2),
    "list of 2, num_beams=1": lambda m: m.pipe([ONE, TWO], num_beams=1),
    "str, num_return_sequences=2": lambda m: m.pipe(ONE, num_return_sequences=2),
    "list of 1, num_return_sequences=2": lambda m: m.pipe([ONE], num_return_sequences=2),
    "list of 2, num_return_sequences=2": lambda m: m.pipe([ONE, TWO], num_return_sequences=2),
    "list of 3, num_return_sequences=2, batch_size=2": lambda m: m.pipe(
        [ONE, TWO, THREE], num_return_sequences=2, batch_size=2
    ),
    "generator, num_return_sequences=2": lambda m: m.pipe((t for t in [ONE, TWO]), num_return_sequences=2),
    "num_return_sequences=2 by constructor": lambda m: m.make(
        "translation", num_return_sequences=2, **m.architecture.languages
    )(ONE),
    "str, return_tensors=True": lambda m: m.pipe(ONE, return_tensors=True),
    "list of 2, return_tensors=True": lambda m: m.pipe([ONE, TWO], return_tensors=True),
    "list of 2, return_tensors=True, batch_size=2": lambda m: m.pipe([ONE, TWO], return_tensors=True, batch_size=2),
    "generator, return_tensors=True": lambda m: m.pipe((t for t in [ONE, TWO]), return_tensors=True),
    "str, return_tensors=True, num_return_sequences=2": lambda m: m.pipe(
        ONE, return_tensors=True, num_return_sequences=2
    ),
    "return_tensors=True by constructor": lambda m: m.make(
        "translation", return_tensors=True, **m.architecture.languages
    )(ONE),
    "str, return_tensors=False": lambda m: m.pipe(ONE, return_tensors=False),
    "str, return_text=False": lambda m: m.pipe(ONE, return_text=False),
    "str, return_text=True, return_tensors=True": lambda m: m.pipe(ONE, return_text=True, return_tensors=True),
    "str, clean_up_tokenization_spaces=True": lambda m: m.pipe(ONE, clean_up_tokenization_spaces=True),
    "str, truncation=True": lambda m: m.pipe(ONE, truncation=True),
    "str, truncation='only_first'": lambda m: m.pipe(ONE, truncation="only_first"),
    "str, stop_sequence": lambda m: m.pipe(ONE, stop_sequence="tea"),
    "str, max_length=5": lambda m: m.make("translation", max_new_tokens=None, **m.architecture.languages)(
        ONE, max_length=5
    ),
    "str, do_sample=True": lambda m: m.pipe(ONE, do_sample=True, num_beams=1),
    "str, languages in the call": lambda m: m.make("translation")(ONE, **_source_and_target(m)),
    "list of 2, languages in the call": lambda m: m.make("translation")([ONE, TWO], **_source_and_target(m)),
    "str, languages by constructor": lambda m: m.make("translation", **_source_and_target(m))(ONE),
    "str, languages by the task": lambda m: m.make(
        "translation_{src_lang}_to_{tgt_lang}".format(**_source_and_target(m))
    )(ONE),
    "str, no languages": lambda m: m.make("translation")(ONE),
    "str, source language only": lambda m: m.make("translation")(ONE, src_lang=_source_and_target(m)["src_lang"]),
    "no such task": lambda m: m.make("translation_en_fr")(ONE),
    "empty list": lambda m: m.pipe([]),
    "empty generator": lambda m: m.pipe(text for text in []),
    "empty str": lambda m: m.pipe(""),
    "empty str in list": lambda m: m.pipe([ONE, "", TWO]),
    "empty str in list, batch_size=3": lambda m: m.pipe([ONE, "", TWO], batch_size=3),
    "int": lambda m: m.pipe(5),
    "None": lambda m: m.pipe(None),
    "dict": lambda m: m.pipe({"en": ONE}),
    "tuple": lambda m: m.pipe((ONE, TWO)),
    "list of int": lambda m: m.pipe([5, 6]),
    "list of str and int": lambda m: m.pipe([ONE, 6]),
    "generator of int": lambda m: m.pipe(number for number in [5]),
    "unknown setting": lambda m: m.pipe(ONE, no_such_setting=1),
    "second positional": lambda m: m.pipe(ONE, TWO),
}


def texts(make: Maker) -> dict[str, list[str]]:
    """Translations as such: greedy, by beam search, and two of each; in batches, and into the other language."""
    other = make.architecture.other_target
    forms = {
        "greedy": dict(num_beams=1),
        "beams": dict(num_beams=3),
        "two": dict(num_beams=2, num_return_sequences=2),
        "batch": dict(batch_size=3),
    }
    if other:
        forms["other language"] = dict(make.architecture.languages, tgt_lang=other)
    found = {}
    for name, settings in forms.items():
        answers = make.pipe([ONE, TWO, THREE], **settings)
        flat = [x for answer in answers for x in (answer if isinstance(answer, list) else [answer])]
        found[name] = [answer["translation_text"] for answer in flat]
    return found


def shape(answer: Any) -> Any:
    """Nesting, types, keys and lengths of an answer, as JSON."""
    if isinstance(answer, dict):
        return {key: shape(value) for key, value in sorted(answer.items())}
    if isinstance(answer, list):
        return [shape(part) for part in answer]
    if isinstance(answer, torch.Tensor):
        return f"tensor {answer.ndim}-D {answer.dtype}".replace("torch.", "")
    if isinstance(answer, str | int | None):
        return type(answer).__name__
    try:  # an iterator of its own kind
        length = len(answer)
    except TypeError:
        length = None
    return {"lazy": [shape(part) for part in answer], "len": length}


def ask(make: Maker, form: str) -> Any:
    """The shape of the answer to one form of call, or the name of the exception."""
    try:
        return shape(FORMS[form](make))
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
        return {"raises": type(error).__name__}
