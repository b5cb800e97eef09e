"""The attention of one sentence in a file: a page, a picture or JSON, as the file's name says."""

from pathlib import Path
from typing import Literal

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..data.whole_files import write_whole
from ..translation.alignments import stored_heads, textless
from .collect import attention_to, candidate_attention
from .figures import layers_of, plot_heads, plot_layers, plot_words
from .page import attention_page

PICTURES = (".png", ".svg", ".pdf")


def show_attention(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    source: str,
    output: Path,
    *,
    target: str | None = None,
    kind: Literal["encoder", "decoder", "cross", "words"] | None = None,
    layer: int | None = None,
    n_best: int | None = None,
    num_beams: int | None = None,
) -> Path:
    """Write `output`: .html, the page with the `n_best` candidates of a beam search (all, by default) side by side;
    .json, the maps of the best one; .png or .svg, a picture of `kind` (cross-attention, by default): the heads of one
    `layer`, or each layer's mean; of the kind "words", the words that belong together, by the heads that align.

    Args:
        target: a translation that is given, instead of a search.
        layer: from 1 on.

    Raises:
        ValueError: for any other name, and for settings that the file does not show.
    """
    suffix = output.suffix.lower()
    if suffix not in (".html", ".json", *PICTURES):
        raise ValueError(f"got {output.name!r} to write attention to, expected a name in .html, .json, .png or .svg")
    if suffix != ".html" and (n_best or 1) > 1:
        raise ValueError(
            f"got n_best={n_best} for {output.name}, which shows one translation: a page (.html) shows more"
        )
    if suffix not in PICTURES and (layer or kind):
        raise ValueError(f"got a layer or a kind for {output.name}, which holds them all: a picture (.png) shows one")
    if target is not None and (n_best or num_beams):
        raise ValueError("got a target, and settings of a search for one: give either")
    if kind == "words" and layer is not None:
        raise ValueError(f"got layer {layer} for a picture of words: they belong together by the heads that align")
    if target is not None:
        candidates = [attention_to(model, tokenizer, source, target)]
    else:
        beams = num_beams or model.generation_config.num_beams or 1
        number = n_best or (beams if suffix == ".html" else 1)
        candidates = candidate_attention(model, tokenizer, source, n_best=number, num_beams=beams)
    best = candidates[0]
    output.parent.mkdir(parents=True, exist_ok=True)
    if suffix == ".html":
        write_whole(output, attention_page(candidates))
    elif suffix == ".json":
        best.save(output)
    elif kind == "words":
        plot_words(best, stored_heads(model), textless(tokenizer), output)
    elif layer is None:
        plot_layers(best, kind or "cross", output)
    else:
        count = len(layers_of(best, kind or "cross"))
        if not 1 <= layer <= count:
            raise ValueError(f"got layer {layer}, expected 1 to {count}")
        plot_heads(best, kind or "cross", layer - 1, output)
    return output
