"""What a translator does well and badly on a test set: one HTML page that needs no network, and the same as JSON."""

import dataclasses
import html
import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sacrebleu.significance import PairedTest
from tqdm.auto import tqdm

from ..data.checks import CorpusReport
from ..data.corpora import is_table, read_corpus, read_lines, whole_lines
from ..evaluation.metrics import METRICS, Score, translation_scores
from ..interop.loading import digest_of_weights
from ..model.decoding import output_limit
from ..translation import Translation, Translator, load_translator
from ..translation.alignments import split_words, stored_heads, word_weights
from .analysis import SEEN, Group, Sentence, by_frequency, by_length, coverage, entropy, examine_sentence, words
from .memory import Peak

BEAMS = (1, 2, 4, 5, 10)
TESTED = ("BLEU", "chrF2", "TER")
WORST = 20  # sentences that are shown
PROBED = 32  # sentences whose time is split
MOST = 8  # words named of each fault


@dataclass(frozen=True)
class Decoding:
    """One way to search: its scores, what they cost, and how sure it is that they differ from the greedy ones."""

    num_beams: int
    scores: list[Score]
    p_values: dict[str, float | None]  # metric -> of the paired bootstrap against greedy search
    ms_per_sentence: float
    tokens_per_second: float
    peak_mb: float | None  # by which the process grew at most; None where the system does not tell


@dataclass(frozen=True)
class Fault:
    """What is wrong with some translations, and the words concerned, those that are so most often first."""

    sentences: int
    words: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Head:
    """A head of the cross-attention, by its place from 1 on, over all sentences: see `entropy` and `coverage`."""

    layer: int
    head: int
    aligns: bool  # whether links of words are read off it
    entropy: float
    coverage: float


@dataclass(frozen=True)
class Report:
    model: str
    weights: str | None  # see `digest_of_weights`
    source: str
    reference: str
    pairs: int
    training: str | None
    decodings: list[Decoding]
    seconds: dict[str, float]  # of a batch: encoder, first step, later steps
    controls: dict[str, float]  # BLEU of the model's own search, and of what should be bad
    lengths: list[Group]
    longest_in_training: int | None  # words of the longest line of `training`
    frequencies: list[Group]
    length_ratio: float
    found: dict[str, Fault]
    worst: list[Sentence]
    attention: list[list[list[float]]]  # of each of the worst: (target words, source words)
    heads: list[Head]

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=2, ensure_ascii=False)


def make_report(
    model: str,
    source: Path,
    reference: Path,
    *,
    training: Path | None = None,
    beams: Sequence[int] = BEAMS,
    truncation: bool = False,
    progress: bool = False,
    src_lang: str | None = None,
    tgt_lang: str | None = None,
) -> Report:
    """Translate `source` in each way of `beams`, compare with `reference`, and look at the model's own way closely.

    Args:
        training: the target side of the training set, by which words are rare or common; the reference, by default.
        truncation: cut sources that are longer than the model's positions (and say so), instead of an error.
        src_lang, tgt_lang: those of `load_translator`.

    Raises:
        ValueError: for what `read_corpus` and `load_translator` refuse, and if `training` is the source side.
    """
    if training and is_table(str(training)):
        raise ValueError(f"got the table {training}, expected text, a sentence a line: the target side of training")
    told = CorpusReport()
    pairs = read_corpus([str(source), str(reference)], "source", "reference", report=told)
    told.warn()
    numbers = whole_lines(source, reference)
    translator = load_translator(model, src_lang=src_lang, tgt_lang=tgt_lang)
    sources, references = list(pairs["source"]), list(pairs["target"])
    counts: Counter[str] = Counter()
    longest = 0
    for line in read_lines(training) if training else references:
        counts.update(words(line))
        longest = max(longest, len(line.split()))
    if not counts:
        raise ValueError(f"{training} has no words: expected the target side of the training set for --training")
    check_side(counts, sources, references, training)
    own = translator.model.generation_config.num_beams or 1
    names = [f"{source}, line {number}" for number in numbers]
    outputs = {}
    costs = {}
    for number in tqdm(sorted({1, own, *beams}), desc="searching", unit="search", disable=not progress):
        outputs[number], costs[number] = search(translator, sources, number, truncation=truncation, names=names)
    decodings = compare(outputs, costs, references)
    best = [answer.text for answer in outputs[own]]
    maps, heads = word_attention(translator, sources, outputs[own])
    found = [
        examine_sentence(number, *row, attention=weights, known=counts if training else None)
        for number, weights, *row in zip(numbers, maps, sources, references, best, strict=True)
    ]
    worst = sorted(range(len(found)), key=lambda place: found[place].chrf)[:WORST]
    return Report(
        model=model,
        weights=digest_of_weights(model),
        source=str(source),
        reference=str(reference),
        pairs=len(pairs),
        training=str(training) if training else None,
        decodings=decodings,
        seconds=split_time(translator, sources[:PROBED], own),
        controls=controls(sources, best, references),
        lengths=by_length(best, references, longest if training else None),
        longest_in_training=longest if training else None,
        frequencies=by_frequency(best, references, counts),
        length_ratio=sum(len(words(o)) for o in best) / max(1, sum(len(words(r)) for r in references)),
        found=count_faults(found),
        worst=[found[place] for place in worst],
        attention=[[] if weights is None else weights.round(3).tolist() for weights in map(maps.__getitem__, worst)],
        heads=heads,
    )


def check_side(counts: Counter[str], sources: list[str], references: list[str], training: Path | None) -> None:
    """Raises: ValueError, if the words of `training` are rather those of the sources."""
    shares = []
    for lines in (sources, references):
        said = [word for line in lines for word in words(line)]
        shares.append(100 * sum(word in counts for word in said) / max(1, len(said)))
    if shares[0] > 2 * shares[1]:
        raise ValueError(
            f"{training} has {shares[0]:.0f} % of the words of the source and {shares[1]:.0f} % of those of the "
            "reference: expected the target side of the training set for --training"
        )


def search(translator: Translator, sources: list[str], num_beams: int, **options) -> tuple[list[Translation], dict]:
    """The translations, and what they cost; the options are those of `Translator.candidates`."""
    translator(sources[:PROBED], num_beams=num_beams, **options)  # what a first call costs is not of this search
    with Peak(translator.model.device) as peak:
        start = time.perf_counter()
        outputs = translator(sources, num_beams=num_beams, **options)
        seconds = time.perf_counter() - start
    tokens = sum(len(answer.tokens) for answer in outputs)
    cost = dict(ms_per_sentence=1000 * seconds / len(sources), tokens_per_second=tokens / seconds, peak_mb=peak.mb)
    return outputs, cost


def compare(outputs: dict[int, list[Translation]], costs: dict[int, dict], references: list[str]) -> list[Decoding]:
    """Scores of each search; greedy search is what the others are tested against (Koehn 2004)."""
    named: list[tuple[str, Sequence[str]]] = [
        (str(number), [answer.text for answer in answers]) for number, answers in sorted(outputs.items())
    ]
    metrics = {name: METRICS[name](references=[references]) for name in TESTED}
    tested: dict = PairedTest(named, metrics, None, test_type="bs")()[1] if len(named) > 1 else {}
    return [
        Decoding(
            int(number),
            translation_scores(texts, references),
            {name: p_value(tested[name], place) for name in metrics if tested and place},
            **costs[int(number)],
        )
        for place, (number, texts) in enumerate(named)
    ]


def p_value(tested: Sequence[Any], place: int) -> float:
    """Of equal scores, which sacrebleu calls the surest difference, 1: no draw is nearer to each other than these."""
    return 1.0 if tested[place].score == tested[0].score else tested[place].p_value


def word_attention(
    translator: Translator, sources: list[str], outputs: list[Translation]
) -> tuple[list[np.ndarray | None], list[Head]]:
    """(target words, source words) of each pair, by the heads that align; `None` where nothing was said. And what
    each head of the cross-attention is like."""
    chosen = stored_heads(translator.model)
    found: list[np.ndarray | None] = [None] * len(sources)
    pairs = [(source, answer.text) for source, answer in zip(sources, outputs, strict=True)]
    sums, entropies = [], []
    for place, cross, targets, words_of_source in translator.read_pairs(pairs, [answer.tokens for answer in outputs]):
        found[place] = word_weights(chosen.weights(cross), targets, words_of_source)
        rows = cross[:, :, :-1]  # that of the last token, </s>, says nothing
        sums.append(coverage(rows))
        entropies.append(entropy(rows))
    if not sums:
        return found, []
    covered, spread = np.mean(sums, 0), np.mean(entropies, 0)  # (L, H) each
    return found, [
        Head(place[0] + 1, place[1] + 1, place in chosen.heads, float(spread[place]), float(covered[place]))
        for place in np.ndindex(covered.shape)
    ]


@torch.inference_mode()
def split_time(translator: Translator, sources: list[str], num_beams: int) -> dict[str, float]:
    """Seconds of one batch: in the encoder, in the first step of the decoder, and in all later ones."""
    model = translator.model
    batch = translator.tokenizer.pad({"input_ids": translator.cut(translator.encode(sources))}, return_tensors="pt")
    batch = batch.to(model.device)
    settings: dict = dict(num_beams=num_beams, do_sample=False)
    settings |= {"length_penalty": None, "early_stopping": None} if num_beams == 1 else {}
    limit = output_limit(model, longest_source=batch["input_ids"].shape[1])

    def seconds(work) -> float:
        times = []
        for _ in range(3):
            start = time.perf_counter()
            work()
            if model.device.type == "cuda":
                torch.cuda.synchronize()
            times.append(time.perf_counter() - start)
        return sorted(times)[1]

    encoder = seconds(lambda: model.get_encoder()(**batch))
    first = seconds(lambda: model.generate(**batch, **settings, max_new_tokens=1))
    whole = seconds(lambda: model.generate(**batch, **settings, max_new_tokens=limit - 1, max_length=None))
    return {"encoder": encoder, "first step": max(0.0, first - encoder), "later steps": max(0.0, whole - first)}


def controls(sources: list[str], outputs: list[str], references: list[str]) -> dict[str, float]:
    """BLEU of the translations, of the sources in their place, and of translations of other sentences."""
    named = {
        "the model's translations": outputs,
        "the sources, copied": sources,
    }
    if len(outputs) > 1:
        named["translations of other sentences"] = [*outputs[1:], *outputs[:1]]
    return {name: translation_scores(texts, references, ["BLEU"])[0].score for name, texts in named.items()}


def count_faults(found: Sequence[Sentence]) -> dict[str, Fault]:
    def of_words(lists: Sequence[Sequence[str]]) -> Fault:
        counted = Counter(word for part in lists for word in words(" ".join(part)))
        return Fault(sum(map(bool, lists)), dict(counted.most_common(MOST)))

    faults = {
        "says something again at once": Fault(sum(sentence.loops > 0 for sentence in found)),
        "copies words of the source": of_words([sentence.copied for sentence in found]),
        "leaves words of the source out": of_words([sentence.left_out for sentence in found]),
        "is shorter than 2/3 of the reference": Fault(sum(sentence.length_ratio < 2 / 3 for sentence in found)),
        "is longer than 3/2 of the reference": Fault(sum(sentence.length_ratio > 3 / 2 for sentence in found)),
    }
    made_up = [sentence.made_up for sentence in found if sentence.made_up is not None]
    return faults | ({"makes words up": of_words(made_up)} if made_up else {})


# ---- the page ------------------------------------------------------------------------------------------------------
STYLE = """
:root { color-scheme: light dark; --ink: light-dark(#1b1f24, #e7eaf0); --paper: light-dark(#fff, #14171c);
  --line: light-dark(#d5d9e0, #39404d); }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 70rem;
  margin: 1rem auto 4rem; padding: 0 1rem; }
table { border-collapse: collapse; margin: .6rem 0 1.4rem; }
th, td { border-bottom: 1px solid var(--line); padding: .25rem .6rem; text-align: right; }
th:first-child, td:first-child { text-align: left; }
.map td { padding: 0 .3rem; font: 12px ui-monospace, monospace; border: 0; }
.map td.cell { background: light-dark(rgb(13 71 161 / var(--w)), rgb(125 190 255 / var(--w)));
  min-width: 1.3rem; height: 1.3rem; }
.map thead td { writing-mode: vertical-rl; }
.worst { border-top: 1px solid var(--line); padding-top: .6rem; margin-top: 1rem; overflow-x: auto; }
.worst dt { float: left; clear: left; width: 6rem; opacity: .7; } .worst dd { margin-left: 6.5rem; }
.bar { display: inline-block; height: .8rem; background: rgb(90 140 210); }
"""


def to_html(report: Report) -> str:
    """The report as one page; all text in it is text, whatever it holds."""
    text = html.escape
    title = f"{report.model} on {report.source}"
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        "<meta http-equiv='Content-Security-Policy' content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>{text(title)}</title><style>{STYLE}</style></head><body><h1>{text(title)}</h1>",
        f"<p>{report.pairs} sentences, reference {text(report.reference)}.</p>",
        "<h2>Searches</h2>",
        decodings_table(report.decodings),
        "<p>p: how likely the paired bootstrap (Koehn 2004) makes a difference to greedy search by chance.</p>",
        *(f"<p><small>{text(s.name)}: {text(s.signature)}</small></p>" for s in report.decodings[0].scores),
        "<p>Peak memory: what a search takes on top of the model.</p>",
        f"<h2>Where the time goes</h2><p>Of the first {min(PROBED, report.pairs)} sentences, translated together by "
        "the model's own settings.</p>",
        bars(report.seconds, lambda seconds: f"{1000 * seconds:.0f} ms"),
        "<h2>Controls</h2><p>BLEU beside that of what should be bad; a model that is near it does not translate.</p>",
        bars(report.controls, lambda score: f"{score:.1f} BLEU"),
        "<h2>By length of the reference</h2>",
        group_table(report.lengths, "BLEU"),
        f"<p>No line of the training text has more than {report.longest_in_training} words.</p>"
        * bool(report.longest_in_training),
        "<h2>By how often training has a word</h2>",
        group_table(report.frequencies, "percent of the reference's words found"),
        f"<p>Counted in {text(report.training or 'the reference, since no training text was given')}.</p>",
        "<h2>What is wrong</h2>",
        faults_table(report.found),
        f"<p>A source word counts as left out where all words of the translation together look at it by less than "
        f"{SEEN}; articles and prepositions often are, and rightly.</p>",
        f"<p>Outputs have {report.length_ratio:.3f} times the words of the references.</p>",
        f"<h2>The {len(report.worst)} worst sentences, by chrF</h2>",
        *(worst_part(s, weights) for s, weights in zip(report.worst, report.attention, strict=True)),
        "<h2>The heads of the cross-attention</h2>",
        heads_table(report.heads),
        f"<p>Entropy of a row in nats, 0 for one that looks at a single token; coverage, the percent of source tokens "
        f"that all rows together look at by {SEEN} or more. Words are linked by the heads that are marked.</p>",
        "</body></html>",
    ]
    return "\n".join(parts)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def row(cells: Sequence[str], kind: str) -> str:
        return "<tr>" + "".join(f"<{kind}>{html.escape(cell)}</{kind}>" for cell in cells) + "</tr>"

    return f"<table>{row(heads, 'th')}{''.join(row(cells, 'td') for cells in rows)}</table>"


def faults_table(found: dict[str, Fault]) -> str:
    rows = [
        [kind, str(fault.sentences), ", ".join(f"{word} ({count})" for word, count in fault.words.items())]
        for kind, fault in found.items()
    ]
    return table(["a translation that", "sentences", "most often"], rows)


def decodings_table(decodings: Sequence[Decoding]) -> str:
    names = [score.name for score in decodings[0].scores]
    heads = ["search", *names, *(f"p ({name})" for name in TESTED), "ms a sentence", "tokens a second", "peak memory"]
    rows = []
    for d in decodings:
        p_values = [d.p_values.get(name) for name in TESTED]
        rows.append([
            "greedy" if d.num_beams == 1 else f"{d.num_beams} beams",
            *(f"{score.score:.2f}" for score in d.scores),
            *("" if p is None else f"{p:.3f}" for p in p_values),
            f"{d.ms_per_sentence:.1f}",
            f"{d.tokens_per_second:,.0f}",
            "unknown" if d.peak_mb is None else f"{d.peak_mb:,.0f} MB",
        ])  # fmt: skip
    return table(heads, rows)


def heads_table(heads: Sequence[Head]) -> str:
    rows = [
        [f"{h.layer}:{h.head}", f"{h.entropy:.2f}", f"{100 * h.coverage:.0f}", "yes" if h.aligns else ""]
        for h in heads
    ]
    return table(["layer:head", "entropy", "coverage", "links words"], rows)


def group_table(groups: Sequence[Group], score: str) -> str:
    rows = [[g.name, str(g.size), "" if g.score is None else f"{g.score:.1f}"] for g in groups]
    return table(["group", "size", score], rows)


def bars(values: dict[str, float], told) -> str:
    most = max(values.values(), default=0) or 1
    rows = (
        f"<tr><td>{html.escape(name)}</td><td>{told(value)}</td>"
        f"<td style='text-align:left'><span class='bar' style='width:{18 * value / most:.1f}rem'></span></td></tr>"
        for name, value in values.items()
    )
    return f"<table>{''.join(rows)}</table>"


def worst_part(sentence: Sentence, weights: Sequence[Sequence[float]]) -> str:
    text = html.escape
    rows = {"source": sentence.source, "reference": sentence.reference, "output": sentence.output}
    remarks = [f"chrF {sentence.chrf:.1f}", f"{sentence.length_ratio:.2f} times the words of the reference"]
    remarks += [f"says something again {sentence.loops} times"] if sentence.loops else []
    remarks += [f"copies {', '.join(sentence.copied)}"] if sentence.copied else []
    remarks += [f"leaves out {', '.join(sentence.left_out)}"] if sentence.left_out else []
    remarks += [f"makes up {', '.join(sentence.made_up)}"] if sentence.made_up else []
    listed = "".join(f"<dt>{name}</dt><dd>{text(value)}</dd>" for name, value in rows.items())
    return (
        f"<div class='worst'><b>line {sentence.number}</b>: {text('; '.join(remarks))}<dl>{listed}</dl>"
        f"{attention_table(sentence, weights)}</div>"
    )


def attention_table(sentence: Sentence, weights: Sequence[Sequence[float]]) -> str:
    """Rows: words of the output; columns: words of the source."""
    if not weights:
        return ""
    text = html.escape
    heads = "".join(f"<td>{text(word)}</td>" for word in split_words(sentence.source))
    rows = (
        f"<tr><td>{text(word)}</td>"
        + "".join(f"<td class='cell' style='--w:{w:.2f}' title='{w:.2f}'></td>" for w in row)
        + "</tr>"
        for word, row in zip(split_words(sentence.output), weights, strict=False)
    )
    return f"<table class='map'><thead><tr><td></td>{heads}</tr></thead>{''.join(rows)}</table>"


WRITERS = {".html": to_html, ".json": Report.to_json}


def writer(output: Path):
    """What makes the text of that file, by its name; asked for before any work.

    Raises:
        ValueError: for a name that is neither .html nor .json.
    """
    if output.suffix not in WRITERS:
        raise ValueError(f"got {output.name!r} for a report, expected a name in .html or .json")
    return WRITERS[output.suffix]
