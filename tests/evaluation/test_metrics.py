import json
import math

import pytest
import sacrebleu
from tiny import ENGLISH, FRENCH
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from vanilla_transformer.evaluation import TranslationMetric, exact_match, translation_scores
from vanilla_transformer.evaluation.evaluate_files import evaluate_files
from vanilla_transformer.evaluation.metrics import moses_bleu

HYPOTHESES = [FRENCH[0], FRENCH[2], *FRENCH[2:5], "Ma sœur voit le chien ."]


def test_scores_are_sacrebleus_with_signatures():
    bleu, chrf, ter = translation_scores(HYPOTHESES, FRENCH)
    assert bleu.score == sacrebleu.corpus_bleu(HYPOTHESES, [FRENCH]).score
    assert chrf.score == sacrebleu.corpus_chrf(HYPOTHESES, [FRENCH]).score
    assert ter.score == sacrebleu.corpus_ter(HYPOTHESES, [FRENCH]).score
    assert "tok:13a" in bleu.signature and "case:mixed" in bleu.signature and "version:" in ter.signature
    assert translation_scores(FRENCH, FRENCH)[0].score == pytest.approx(100)


def test_length_of_translations_by_that_of_references():
    assert translation_scores(["Ein Hund rennt."], ["Ein Hund."])[0].length_ratio == 4 / 3
    of_corpus, *others = translation_scores(["a", "a b"], ["a b c", "a b c"])
    assert of_corpus.length_ratio == 0.5 and [score.length_ratio for score in others] == [None, None]
    assert moses_bleu(["Ein Hund rennt."], ["Ein Hund."], "de").length_ratio == 4 / 3


def test_exact_match():
    assert exact_match(["a", "b", "c", "d"], ["a", "b", "c", "x"]) == 75


@pytest.mark.parametrize("hypotheses", [[], FRENCH[:2]])
def test_unequal_lists(hypotheses):
    with pytest.raises(ValueError, match=rf"got {len(hypotheses)} hypotheses and 3 references"):
        translation_scores(hypotheses, FRENCH[:3])


def test_metric_of_evaluate_works_offline():
    result = TranslationMetric().compute(predictions=HYPOTHESES, references=FRENCH)
    assert result["bleu"] == sacrebleu.corpus_bleu(HYPOTHESES, [FRENCH]).score
    assert "tok:13a" in result["bleu_signature"] and result["chrf2"] > 0 and result["ter"] > 0
    batches = TranslationMetric()
    for h, r in zip(HYPOTHESES, FRENCH, strict=True):
        batches.add_batch(predictions=[h], references=[r])
    assert batches.compute() == result


def test_a_model_is_scored_on_files(model_dir, tmp_path):
    source, reference = tmp_path / "test.en", tmp_path / "test.fr"
    source.write_text("\n".join([*ENGLISH, ""]) + "\n", encoding="utf-8")
    reference.write_text("\n".join([*FRENCH, "vide"]) + "\n", encoding="utf-8")
    evaluation = evaluate_files(str(model_dir), source, reference, num_beams=2, length_penalty=0.5)
    assert evaluation.pairs == 6
    texts = [example.translation for example in evaluation.examples]
    assert evaluation.scores == translation_scores(texts, FRENCH)
    assert [example.source for example in evaluation.examples] == ENGLISH
    assert "6 sentences, beam 2, score / length ** 0.5" in evaluation.table() and "nrefs:1" in evaluation.table()
    read = json.loads(evaluation.to_json())
    assert read["scores"][0]["name"] == "BLEU" and read["settings"]["num_beams"] == 2
    assert read["settings"]["truncation"] is False
    ratio = sacrebleu.corpus_bleu(texts, [FRENCH]).ratio
    assert read["scores"][0]["length_ratio"] == ratio and f"length     {ratio:6.3f}  tokens" in evaluation.table()


def test_a_penalty_that_nobody_sets_is_told_as_it_is(model_dir, tmp_path):
    """`generate` takes 1.0 for a generation config without one, as OPUS-MT's are and those of greedy recipes."""
    model = AutoModelForSeq2SeqLM.from_pretrained(model_dir)
    model.generation_config.length_penalty = None
    model.save_pretrained(tmp_path / "model")
    AutoTokenizer.from_pretrained(model_dir).save_pretrained(tmp_path / "model")
    for name, texts in (("a.en", ENGLISH), ("a.fr", FRENCH)):
        (tmp_path / name).write_text("\n".join(texts) + "\n", encoding="utf-8")
    evaluation = evaluate_files(str(tmp_path / "model"), tmp_path / "a.en", tmp_path / "a.fr", num_beams=2)
    assert evaluation.settings["length_penalty"] == 1.0 and "length ** 1.0" in evaluation.table()


def test_bleu_of_papers_is_on_lower_cased_tokens_of_moses():
    """By hand: pairs that are equal but for case, quotes and spaces; then 4 tokens of 6."""
    hypotheses = ["Zwei Hunde spielen im Schnee.", "Ein Mann sagt \u201eHallo\u201c & geht."]
    references = ["zwei Hunde spielen im Schnee .", 'ein mann sagt "Hallo" & geht.']
    score = moses_bleu(hypotheses, references, "de")
    assert score.score == pytest.approx(100.0)
    assert "lang:de" in score.signature and "tok:none" in score.signature
    found = moses_bleu(["Zwei Hunde spielen."], ["Zwei Hunde spielen im Schnee."], "de")
    # p1 = 4/4, p2 = 2/3, p3 = 1/2, p4 = smoothed 1/2 / 1 = 1/2; brevity exp(1 - 6/4)
    assert found.score == pytest.approx(100 * math.exp(1 - 6 / 4) * (1 * 2 / 3 * 1 / 2 * 1 / 2) ** 0.25, abs=0.01)
    # l' homme porte un t-shirt bleu . beside un homme porte un t-shirt rouge .
    french = moses_bleu(["L'homme porte un T-shirt bleu."], ["Un homme porte un T-shirt rouge."], "fr")
    assert french.score == pytest.approx(100 * (5 / 7 * 3 / 6 * 2 / 5 * 1 / 4) ** 0.25, abs=0.01)
    thousands = ["Plus de 20\u00a0000 personnes regardent."], ["Plus de 20,000 personnes regardent."]
    assert moses_bleu(*thousands, "fr").score == pytest.approx(100.0)
    with pytest.raises(ValueError, match="as many"):
        moses_bleu(["a"], [], "de")
    with pytest.raises(ValueError, match=r"got 'german' for the language of Moses's tokens, expected one of .*, de, "):
        moses_bleu(["a"], ["a"], "german")
