"""What a recipe can train, one class each: what it reads of a corpus, and how it is measured while it learns.

| task | model | reads | measured by |
|---|---|---|---|
| translation | encoder-decoder | both sides | loss, BLEU of greedy translations |
| causal-lm | decoder-only | one side | loss; shows how it goes on |
| masked-lm | encoder-only | one side, 15 % of it hidden | loss, share of hidden tokens found |
"""

import hashlib
import sys
from collections.abc import Iterable, Iterator, Sequence

import torch
from accelerate import PartialState
from datasets import Dataset
from transformers import (
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    DataCollatorForLanguageModeling,
    DataCollatorForSeq2Seq,
    PreTrainedTokenizerBase,
)

from ..data.columns import rows
from ..data.corpora import SIDES
from ..data.segmentation import BpeDropoutCollator
from ..evaluation.metrics import translation_scores
from ..model.decoding import position_limit
from ..model.loss import IGNORED_LABEL
from ..model.modeling_vanilla_transformer import VanillaTransformerForSeq2SeqLM
from ..model.modeling_vanilla_transformer_decoder import VanillaTransformerForCausalLM
from ..model.modeling_vanilla_transformer_encoder import VanillaTransformerForMaskedLM
from ..translation import Translation, Translator
from ..translation.shares import in_shares
from .recipe import TEMPLATE_OF, Recipe
from .splits import encode_pairs

SAMPLES = 3  # outputs shown at each evaluation
CONTINUED = 50  # tokens, at most, by which a language model goes on there
MASKED = 0.15  # of the tokens, as in BERT (Devlin et al. 2019, section 3.1), with its 80 / 10 / 10 percent


class TranslationTask:
    """From source to target, by teacher forcing."""

    auto_class = AutoModelForSeq2SeqLM
    predicted = "labels"  # the column of tokens that the loss is of
    model_class = VanillaTransformerForSeq2SeqLM
    template = TEMPLATE_OF["translation"]
    metric, greater_is_better = "bleu", True
    usage = "echo 'Some text.' | vanilla-transformer translate {shell}"  # told when a training is done

    def __init__(self, recipe: Recipe):
        self.recipe = recipe

    def texts(self, pairs: Dataset) -> Iterator[str]:
        """What a vocabulary is learned from."""
        return (text for side in SIDES for (text,) in rows(pairs, side))

    def encode(self, batch: dict, tokenizer: PreTrainedTokenizerBase) -> dict[str, list[list[int]]]:
        """Columns of token ids for sentences in the columns `source` and `target`."""
        return encode_pairs(batch, tokenizer)

    def collator(self, tokenizer: PreTrainedTokenizerBase):
        """Batches of tensors from rows of ids, as an evaluation reads them."""
        return DataCollatorForSeq2Seq(tokenizer)

    def training_collator(self, tokenizer: PreTrainedTokenizerBase):
        """Those that training reads; raises `ValueError` for a tokenizer that the recipe's training cannot use."""
        t, longest = self.recipe.training, self.recipe.corpus.max_length
        if t.source_dropout and tokenizer.pad_token_id == tokenizer.eos_token_id:
            raise ValueError(
                f"training.source_dropout={t.source_dropout} hides words as padding, and the tokenizer pads with "
                f"{tokenizer.pad_token}, its end of a text: give it a pad_token of its own, or have one learned"
            )
        if t.bpe_dropout:
            return BpeDropoutCollator(tokenizer, t.bpe_dropout, t.seed, longest)
        return self.collator(tokenizer)

    def generation_settings(self) -> dict:
        """What `generation_config.json` of the finished model will say."""
        decoding = self.recipe.decoding
        beams = decoding.num_beams > 1
        return {
            "max_length": decoding.max_length,
            "num_beams": decoding.num_beams,
            "length_penalty": decoding.length_penalty if beams else None,
            "early_stopping": True if beams else None,
        }

    def figure(self, scores: dict) -> float:
        """`metric`, of what `scores` returns and the loss."""
        return scores["BLEU"]["score"]

    def measure(self, model, tokenizer, pairs: Dataset, batches: Iterable[dict]) -> tuple[dict[str, float], list[str]]:
        """Numbers of an evaluation beside the loss, and some outputs to be shown.

        Args:
            pairs: some validation pairs, as text.
            batches: all of them, as the loss reads them.
        """
        sources, references = list(pairs["source"]), list(pairs["target"])
        translations = in_shares(lambda share: texts_of(Translator(model, tokenizer)(share, num_beams=1)), sources)
        shown = list(zip(sources, translations, references, strict=True))[:SAMPLES]
        bleu = translation_scores(translations, references, ["BLEU"])[0].score
        return {"bleu": bleu}, [f"{source}\n    -> {ours}\n     = {reference}" for source, ours, reference in shown]

    def scores(self, model, tokenizer, pairs: Dataset, batches: Iterable[dict]) -> dict:
        """What result.json says of a finished model: here the metrics of translation, by beam search."""
        progress = PartialState().is_main_process
        translations = in_shares(
            lambda share: texts_of(Translator(model, tokenizer)(share, progress=progress)), list(pairs["source"])
        )
        scores = translation_scores(translations, list(pairs["target"]))
        return {score.name: {"score": round(score.score, 2), "signature": score.signature} for score in scores}


def texts_of(translations: Sequence[Translation]) -> list[str]:
    return [translation.text for translation in translations]


class ContinuationCollator(DataCollatorForLanguageModeling):
    """Nothing is to predict <s>: a text that is padded on the left has something before it.

    It is the first token of a text, and told by that: some tokenizers end a text with the very same one.
    """

    def torch_call(self, examples):
        batch = super().torch_call(examples)
        begins = (batch["attention_mask"].cumsum(1) == 1) & (batch["attention_mask"] == 1)  # (B, T)
        batch["labels"][begins] = IGNORED_LABEL
        return batch


class CausalTask(TranslationTask):
    """One side of the corpus, each token from those before it."""

    auto_class = AutoModelForCausalLM
    predicted = "input_ids"
    model_class = VanillaTransformerForCausalLM
    template = TEMPLATE_OF["causal-lm"]
    metric, greater_is_better = "loss", False
    usage = 'pipeline("text-generation", {python})("Some text")'

    def texts(self, pairs):
        return (text for (text,) in rows(pairs, self.recipe.corpus.side))

    def encode(self, batch, tokenizer):
        encoded = tokenizer(batch[self.recipe.corpus.side], verbose=False)
        return {"input_ids": [[*ids, tokenizer.eos_token_id] for ids in encoded["input_ids"]]}

    def collator(self, tokenizer):
        return ContinuationCollator(tokenizer, mlm=False)

    def generation_settings(self):
        return {}

    def figure(self, scores):
        return scores["loss"]

    def measure(self, model, tokenizer, pairs, batches):
        beginnings = [text[: len(text) // 3] for text in pairs[self.recipe.corpus.side][:SAMPLES]]
        encoded = tokenizer(beginnings, padding=True, return_tensors="pt").to(model.device)
        limit = position_limit(model, model.config) or sys.maxsize
        new_tokens = max(1, min(CONTINUED, limit - encoded["input_ids"].shape[1]))
        output = model.generate(**encoded, do_sample=False, max_new_tokens=new_tokens)
        texts = tokenizer.batch_decode(output, skip_special_tokens=True)
        return {}, [f"{begun} -> {text}" for begun, text in zip(beginnings, texts, strict=True)]

    def scores(self, model, tokenizer, pairs, batches):
        return self.measure(model, tokenizer, pairs, batches)[0]


class MaskCollator(DataCollatorForLanguageModeling):
    """Which tokens are hidden depends on the batch alone, so that a training that resumes hides the very same ones."""

    def torch_call(self, examples):
        ids = [token for example in examples for token in example["input_ids"]]
        digest = hashlib.sha256(str(ids).encode()).digest()
        self.generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
        batch = super().torch_call(examples)
        if (batch["labels"] == IGNORED_LABEL).all():  # a batch of few words, and nothing in it to be learned
            middle = len(examples[0]["input_ids"]) // 2
            batch["labels"][0, middle] = examples[0]["input_ids"][middle]
            batch["input_ids"][0, middle] = self.tokenizer.mask_token_id
        return batch


class MaskedTask(CausalTask):
    """One side of the corpus, hidden tokens from all others."""

    auto_class = AutoModelForMaskedLM
    model_class = VanillaTransformerForMaskedLM
    template = TEMPLATE_OF["masked-lm"]
    usage = 'pipeline("fill-mask", {python})("Some<mask> text")'

    def encode(self, batch, tokenizer):
        return {"input_ids": tokenizer(batch[self.recipe.corpus.side], verbose=False)["input_ids"]}

    def collator(self, tokenizer):
        return MaskCollator(tokenizer, mlm_probability=MASKED)

    @torch.no_grad()
    def measure(self, model, tokenizer, pairs, batches):
        """`accuracy`: percent of the hidden tokens of `batches` that are found."""
        found = hidden = 0
        shown: list[str] = []
        for batch in batches:
            best = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits.argmax(-1)
            masked = batch["labels"] != IGNORED_LABEL
            found += int((best == batch["labels"])[masked].sum())
            hidden += int(masked.sum())
            for row in range(len(best) if len(shown) < SAMPLES else 0):
                kept = batch["attention_mask"][row].bool()
                filled = torch.where(masked[row], best[row], batch["input_ids"][row])
                before, after = (without_ends(tokenizer, ids[kept]) for ids in (batch["input_ids"][row], filled))
                shown.append(f"{before}\n    -> {after}")
        return {"accuracy": 100 * found / max(hidden, 1)}, shown[:SAMPLES]


def without_ends(tokenizer, ids: torch.Tensor) -> str:
    """The text of ids (L,) with <mask> and without <s> and </s>."""
    ends = {tokenizer.bos_token_id, tokenizer.eos_token_id}
    return tokenizer.decode([i for i in ids.tolist() if i not in ends])


TASKS = {"translation": TranslationTask, "causal-lm": CausalTask, "masked-lm": MaskedTask}
