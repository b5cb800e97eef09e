"""The report: faults are counted as they are planted, groups add up, text is never markup."""

import json
import resource
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from test_attention_page import NASTY
from tiny import ENGLISH, FRENCH, tiny_model

from vanilla_transformer.cli import main
from vanilla_transformer.inspection import report as reports
from vanilla_transformer.inspection.analysis import (
    by_frequency,
    by_length,
    copied,
    coverage,
    entropy,
    examine_sentence,
    left_out,
    repetitions,
    words,
)
from vanilla_transformer.inspection.memory import Peak, resident
from vanilla_transformer.translation import Translation
from vanilla_transformer.translation.alignments import split_words


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("test-set")
    for name, lines in (("source", ENGLISH), ("reference", FRENCH)):
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def report(model_dir, files):
    return reports.make_report(str(model_dir), files / "source", files / "reference", beams=(1, 2))


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("a b c", 0),
        ("a a b", 1),
        ("a b a b a b", 2),
        ("x a b c a b c", 1),
        ("the the the the", 3),
        ("", 0),
        ("a b a", 0),
    ],
)
def test_what_is_said_again(text, count):
    assert repetitions(text.split()) == count


def test_words_that_are_copied():
    source, reference = words("The small Hund, in Berlin."), words("Der kleine Hund in Berlin.")
    assert copied(source, words("Der small Hund in Berlin"), reference) == ["small"]
    assert copied(source, words("The 12 in Berlin"), reference) == []  # too short to tell


def test_words_that_are_left_out():
    attention = np.array([[0.9, 0.05, 0.05], [0.9, 0.02, 0.08]])
    assert left_out("one two three", attention) == ["two"]
    assert left_out("one ! three", attention) == []
    assert left_out("one two three", None) == []
    assert left_out(" one  two three", attention) == ["two"]
    assert examine_sentence(1, "the old man !", "le vieil homme", "").left_out == ["the", "old", "man"]


def test_heads_that_look_at_much_and_at_little():
    weights = np.array([[[[1.0, 0, 0, 0], [1, 0, 0, 0]], [[0.25] * 4] * 2]])  # (1 layer, 2 heads, 2 rows, 4 columns)
    np.testing.assert_allclose(entropy(weights), [[0, np.log(4)]], atol=1e-6)
    np.testing.assert_allclose(coverage(weights), [[0.25, 1]])


def test_equal_outputs_do_not_differ():
    same, other = [Translation(line) for line in FRENCH], [Translation("rien")] * 6
    cost = dict(ms_per_sentence=1.0, tokens_per_second=1.0, peak_mb=None)
    found = reports.compare({1: same, 2: same, 4: other}, dict.fromkeys((1, 2, 4), cost), FRENCH)
    assert found[1].p_values == dict.fromkeys(("BLEU", "chrF2", "TER"), 1.0)
    assert all(p < 0.05 for p in found[2].p_values.values())


def test_lines_keep_their_numbers(model_dir, tmp_path):
    (tmp_path / "s").write_text("The man reads.\n\nThe dog eats.\n")
    (tmp_path / "t").write_text("L'homme lit.\nRien.\nLe chien mange.\n")
    found = reports.make_report(str(model_dir), tmp_path / "s", tmp_path / "t", beams=(1,))
    assert found.pairs == 2 and sorted(sentence.number for sentence in found.worst) == [1, 3]


def test_the_source_side_is_no_training_text(model_dir, files):
    given = (str(model_dir), files / "source", files / "reference")
    with pytest.raises(ValueError, match="100 % of the words of the source"):
        reports.make_report(*given, training=files / "source", beams=(1,))
    assert reports.make_report(*given, training=files / "reference", beams=(1,)).training
    (files / "empty").touch()
    with pytest.raises(ValueError, match="empty has no words: expected the target side"):
        reports.make_report(*given, training=files / "empty", beams=(1,))
    with pytest.raises(ValueError, match=r"got the table .*both.tsv, expected text"):
        reports.make_report(*given, training=files / "both.tsv", beams=(1,))


def test_a_sentence():
    found = examine_sentence(3, "The old man", "Le vieil homme", "Le Le man")
    assert (found.number, found.loops, found.copied, found.length_ratio) == (3, 1, [], 1.0)
    assert examine_sentence(1, "a", "Le Le man", "Le Le man").loops == 0  # the reference says it, too


def test_words_that_are_made_up():
    def made_up(known):
        return examine_sentence(1, "A Boot in Bern", "Ein Boot", "Ein Schuhboot in Bern.", known=known).made_up

    assert made_up(None) is None
    assert made_up({"ein": 3, "schuh": 1}) == ["schuhboot"]
    assert made_up({"ein", "schuhboot"}) == []


def test_faults_are_counted_with_their_words():
    sentences = [examine_sentence(n, "the big dog", "le chien", "le big big", known={"le"}) for n in (1, 2)]
    found = reports.count_faults([*sentences, examine_sentence(3, "a", "un", "", known={"un"})])
    assert found["says something again at once"] == reports.Fault(2)
    assert found["leaves words of the source out"] == reports.Fault(1, {"a": 1})
    assert found["is shorter than 2/3 of the reference"] == reports.Fault(1)
    assert found["makes words up"] == reports.Fault(0) and "big (4)" not in reports.faults_table(found)
    copied = [
        examine_sentence(1, "a Sweatshirt", "ein Pullover", f"ein {word}") for word in ("Sweatshirt.", "sweatshirt")
    ]
    faults = reports.count_faults(copied)
    assert (
        faults["copies words of the source"] == reports.Fault(2, {"sweatshirt": 2}) and "makes words up" not in faults
    )
    assert "sweatshirt (2)" in reports.faults_table(faults)


def test_controls_stand_beside_the_model():
    others = ["le chat noir dort ici", "un homme lit son livre"]
    found = reports.controls(["the black cat sleeps here", "a man reads his book"], others, others)
    assert found["the model's translations"] == pytest.approx(100)
    assert max(found["the sources, copied"], found["translations of other sentences"]) < 10


def test_groups_add_up():
    references = ["le chien mange bien"] * 3 + ["la vie est belle " * 3] * 2
    lengths = by_length(references, references)
    assert [(group.name, group.size) for group in lengths] == [("0 to 5 words", 3), ("11 to 15 words", 2)]
    assert all(group.score == pytest.approx(100) for group in lengths)
    groups = by_frequency(["le chat noir"], ["le chat gris gris"], Counter(le=50, chat=3))
    assert [(g.name, g.size, g.score) for g in groups] == [
        ("0 times", 2, 0),
        ("2 to 4 times", 1, 100),
        ("20 to 99 times", 1, 100),
    ]


def test_lengths_beyond_those_of_training():
    references = [" ".join(["mot"] * length) for length in (4, 12, 13, 40)]
    assert [(group.name, group.size) for group in by_length(references, references, longest=12)] == [
        ("0 to 5 words", 1),
        ("11 to 12 words", 1),
        ("over 12 words", 2),
    ]


def test_one_sentence_has_no_others():
    assert "translations of other sentences" not in reports.controls(["a"], ["b"], ["b"])


def test_what_is_too_long_is_named_or_cut(tmp_path, tokenizer):
    model = tiny_model(vocab_size=len(tokenizer), positions="learned", max_position_embeddings=12)
    model.generation_config.max_length = 12
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    (tmp_path / "s").write_text("The man.\n\n" + "The man reads. " * 9 + "\n")
    (tmp_path / "t").write_text("L'homme.\nRien.\nRien.\n")
    given = (str(tmp_path / "model"), tmp_path / "s", tmp_path / "t")
    with pytest.raises(ValueError, match="s, line 3 has"):
        reports.make_report(*given, beams=(1,))
    assert reports.make_report(*given, beams=(1,), truncation=True).pairs == 2


def test_what_a_report_holds(report):
    assert [d.num_beams for d in report.decodings] == [1, 2, 4]  # the model's own is there as well
    assert report.decodings[0].p_values == {} and set(report.decodings[1].p_values) == {"BLEU", "chrF2", "TER"}
    assert [(h.layer, h.head, h.aligns) for h in report.heads] == [
        (1, 1, True),
        (1, 2, True),
        (2, 1, False),
        (2, 2, False),
    ]
    assert all(d.ms_per_sentence > 0 and d.tokens_per_second > 0 for d in report.decodings)
    assert {score.name for score in report.decodings[0].scores} == {"BLEU", "chrF2", "TER"}
    assert set(report.seconds) == {"encoder", "first step", "later steps"} and report.seconds["encoder"] > 0
    assert sum(group.size for group in report.lengths) == report.pairs == 6
    assert sum(group.size for group in report.frequencies) == sum(len(words(line)) for line in FRENCH)
    assert [s.chrf for s in report.worst] == sorted(s.chrf for s in report.worst) and len(report.worst) == 6
    shapes = [(len(w), len(w[0])) for w in report.attention if w]
    assert shapes == [(len(split_words(s.output)), len(split_words(s.source))) for s, w in
                      zip(report.worst, report.attention, strict=True) if w]  # fmt: skip


def test_text_is_never_markup(report):
    import dataclasses

    worst = [dataclasses.replace(sentence, source=NASTY, output=NASTY, copied=[NASTY]) for sentence in report.worst]
    page = reports.to_html(dataclasses.replace(report, worst=worst, model=NASTY, source=NASTY))
    assert "<script" not in page and "&lt;script&gt;alert(1)" in page and "default-src 'none'" in page


def test_the_command(model_dir, files, tmp_path, capsys):
    words = ["report", str(model_dir), "--source", str(files / "source"), "--reference", str(files / "reference")]
    both = ["-o", str(tmp_path / "r.html"), "-o", str(tmp_path / "r.json")]
    assert main([*words, *both, "--training", str(files / "reference"), "--threads", "1"]) == 0
    data = json.loads((tmp_path / "r.json").read_text())
    assert [d["num_beams"] for d in data["decodings"]] == [1, 2, 4, 5, 10] and data["training"]
    page = (tmp_path / "r.html").read_text()
    assert all(text in page for text in ("greedy", "10 beams", "Controls", "worst sentences"))
    assert main([*words, *both]) == 1 and "--overwrite" in capsys.readouterr().err
    assert main([*words, "-o", str(tmp_path / "r.txt")]) == 1
    assert "expected a name in .html or .json" in capsys.readouterr().err


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="of Linux")
def test_memory_is_told_in_millions_of_bytes():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    assert resident("VmRSS") == pytest.approx(pages * resource.getpagesize() / 1e6, rel=0.01)


def test_the_peak_of_a_cpu_is_measured_beside_a_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with Peak(torch.device("cpu")) as peak:
        torch.ones(10_000_000)
    assert peak.mb is None or peak.mb > 30  # 40, which systems without /proc do not tell
