"""The shipped recipes of the two language models learn something within a minute, and resume like the translators."""

import json
import math
from collections import Counter

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer, pipeline

from vanilla_transformer.data.vocabulary import learn_tokenizer
from vanilla_transformer.training.recipe import load_recipe
from vanilla_transformer.training.splits import load_splits
from vanilla_transformer.training.tasks import ContinuationCollator, MaskCollator
from vanilla_transformer.training.train import train


def trigram_nats(training: list[str], texts: list[str]) -> float:
    """Nats per character of an interpolated trigram model of characters (Witten and Bell 1991)."""
    seen, followers, total = Counter(), Counter(), Counter()
    alphabet = len(set("".join(training))) + 1

    def grams(text):
        text = f"\2\2{text}\3"
        return ((text[end - 2 : end], text[end]) for end in range(2, len(text)))

    for text in training:
        for history, letter in grams(text):
            for context in (history, history[1:], ""):
                followers[context] += not seen[context, letter]
                seen[context, letter] += 1
                total[context] += 1

    def probability(context, letter):
        if not total[context]:
            return probability(context[1:], letter)
        lower = probability(context[1:], letter) if context else 1 / alphabet
        return (seen[context, letter] + followers[context] * lower) / (total[context] + followers[context])

    nats = [-math.log(probability(*gram)) for text in texts for gram in grams(text)]
    return sum(nats) / len(nats)


def test_trigram_by_hand():
    """Of 8 letters 5 are a, 1 is b, 2 are ends: P(a) = (5 + 3/3) / (8 + 3) = 6/11, P(b) = 2/11, P(end) = 3/11. After
    one a, seen 5 times with 3 kinds: P(a|a) = (3 + 3 P(a)) / 8 = 51/88, P(b|a) = 17/88, P(end|a) = 20/88. After two,
    seen with each kind once: P(a|aa) = (1 + 3 P(a|a)) / 6 = 241/528, P(b|aa) = 139/528, P(end|aa) = 148/528."""

    def probability(text: str) -> float:
        return math.exp(-trigram_nats(["aab", "aaa"], [text]) * (len(text) + 1))

    begins = 94 / 99 * 227 / 264  # P(a|start start) P(a|start a), of 2 each and 1 kind
    assert probability("aa") == pytest.approx(begins * 148 / 528)
    assert probability("aaa") == pytest.approx(begins * 241 / 528 * 148 / 528)
    assert probability("aab") == pytest.approx(begins * 139 / 528 * 9 / 11)


def test_something_is_hidden_in_every_batch():
    """A batch of few words might have nothing to be learned, and a mean over nothing is no number."""
    tokenizer = learn_tokenizer(["a b c"], 260, template="masked", show_progress=False)
    collate = MaskCollator(tokenizer, mlm_probability=0.15)
    batches = [collate([{"input_ids": [1, token, 2]}]) for token in range(10, 40)]
    hidden = [batch["labels"] != -100 for batch in batches]
    assert all(mask.any() for mask in hidden) and not any(mask[0, [0, 2]].any() for mask in hidden)
    for token, batch, mask in zip(range(10, 40), batches, hidden, strict=True):
        assert batch["labels"][mask].tolist() == [token]


def test_the_end_of_a_text_is_learned_where_it_is_the_token_of_its_beginning():
    """As for OPT. A text that is padded on the left begins later, and nothing before it predicts that."""
    tokenizer = learn_tokenizer(["a b c"], 260, template="causal", show_progress=False)
    tokenizer.bos_token = tokenizer.eos_token
    end = tokenizer.eos_token_id
    batch = ContinuationCollator(tokenizer, mlm=False)([{"input_ids": [end, *text, end]} for text in ([10, 11], [12])])
    assert batch["input_ids"].tolist() == [[end, 10, 11, end], [tokenizer.pad_token_id, end, 12, end]]
    assert batch["labels"].tolist() == [[-100, 10, 11, end], [-100, -100, 12, end]]


def test_characters_beat_a_trigram(tmp_path):
    recipe = load_recipe("char-lm")
    result = train(recipe, tmp_path / "run")
    texts = {name: list(split["target"]) for name, split in result.splits.items()}
    baseline = trigram_nats(texts["train"], texts["validation"])
    tokenizer, model = AutoTokenizer.from_pretrained(result.model), AutoModelForCausalLM.from_pretrained(result.model)
    nats = characters = 0.0
    for text in texts["validation"]:
        ids = torch.tensor([[*tokenizer(text)["input_ids"], tokenizer.eos_token_id]])
        with torch.no_grad():
            nats += model.eval()(ids, labels=ids).loss.item() * (ids.shape[1] - 1)
        characters += len(text) + 1
    assert nats / characters < 0.8 * baseline
    told = json.loads((tmp_path / "run" / "result.json").read_text())["validation"]["mean"]["loss"]
    assert told == pytest.approx(nats / sum(len(text.encode()) + 1 for text in texts["validation"]), rel=1e-3)
    answer = pipeline("text-generation", model=str(result.model))("Est-ce que", max_new_tokens=40, do_sample=False)
    assert answer[0]["generated_text"].startswith("Est-ce que")
    assert len(set(answer[0]["generated_text"].split())) >= 4


def test_masked_tokens_are_found_five_times_as_often_as_by_the_commonest(tmp_path):
    result = train(load_recipe("mlm"), tmp_path / "run")
    tokenizer = AutoTokenizer.from_pretrained(result.model)
    ids = [i for text in result.splits["validation"]["target"] for i in tokenizer(text)["input_ids"][1:-1]]
    unigram = 100 * Counter(ids).most_common(1)[0][1] / len(ids)
    accuracy = json.loads((tmp_path / "run" / "result.json").read_text())["validation"]["mean"]["accuracy"]
    assert accuracy > 5 * unigram
    best = pipeline("fill-mask", model=str(result.model))("Est-ce que le roi<mask> un livre ?", top_k=1)
    assert "<mask>" not in best[0]["sequence"]
    assert type(AutoModelForMaskedLM.from_pretrained(result.model)).__name__ == "VanillaTransformerForMaskedLM"


SMALL = [
    "corpus.sizes={train: 300, validation: 20, test: 10}",
    "tokenizer.vocab_size=300",
    "model.d_model=16",
    "model.num_attention_heads=2",
    "model.ffn_dim=32",
    "model.dropout=0.1",
    "training.max_tokens=512",
    "training.max_steps=12",
    "training.warmup_steps=4",
    "training.lr_scheduler_type=inverse_sqrt",
    "training.eval_steps=5",
    "training.eval_pairs=4",
]


@pytest.mark.parametrize("name", ["char-lm", "mlm"])
def test_a_killed_run_goes_on_with_the_very_same_batches_and_masks(name, tmp_path):
    train(load_recipe(name, SMALL), tmp_path / "whole")
    train(load_recipe(name, [*SMALL, "training.max_steps=5"]), tmp_path / "parts")
    train(load_recipe(name, SMALL), tmp_path / "parts", resume=True)
    auto = {"char-lm": AutoModelForCausalLM, "mlm": AutoModelForMaskedLM}[name]
    whole, parts = (auto.from_pretrained(tmp_path / run / "model").state_dict() for run in ("whole", "parts"))
    differences = {key: (whole[key] - parts[key]).abs().max().item() for key in whole}
    assert max(differences.values()) < 1e-6, differences


def test_which_checkpoint_is_best_is_a_matter_of_the_loss(tmp_path):
    settings = [*SMALL, "training.average=best", "training.average_checkpoints=1", "training.learning_rate=0.5"]
    train(load_recipe("char-lm", settings), tmp_path / "run")
    state = json.loads(next((tmp_path / "run").glob("checkpoint-12/trainer_state.json")).read_text())
    losses = {entry["step"]: entry["eval_loss"] for entry in state["log_history"] if "eval_loss" in entry}
    chosen = json.loads((tmp_path / "run" / "result.json").read_text())["mean_of"]
    assert chosen == [f"checkpoint-{min(losses, key=losses.get)}"]


def test_learned_positions_that_end_soon(tmp_path):
    """An evaluation lets the model go on for 50 tokens, where there are as many."""
    few = ["model.positions=learned", "model.max_position_embeddings=55", "corpus.max_length=40"]
    settings = [*SMALL, *few, "training.max_steps=2", "training.eval_steps=2"]
    assert train(load_recipe("char-lm", settings), tmp_path / "run").step == 2


def test_a_language_model_reads_one_side_and_no_decoding():
    columns = ["source", "target", "family", "links"]
    assert load_splits(load_recipe("mlm", SMALL).corpus)["train"].column_names == columns
    with pytest.raises(ValueError, match="decoding is read by task=translation only, and the task is causal-lm"):
        load_recipe("char-lm", ["decoding.num_beams=2"])
    with pytest.raises(ValueError, match="task: got 'poetry', expected one of translation, causal-lm, masked-lm"):
        load_recipe("char-lm", ["task=poetry"])
