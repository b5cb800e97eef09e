"""Pictures for people who read papers: attention, masks, positions, embeddings, by matplotlib (the extra `viz`).

Each function draws into a file, PNG or SVG by its name, and needs no display.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..translation.alignments import AlignmentHeads, links
from .maps import AttentionMaps

COLORS = "Blues"
# What a row of the three kinds of attention is: in the decoder, that of a token says the token behind it.
ROWS = {"encoder": "token", "decoder": "token read, to say the next", "cross": "token read, to say the next"}
# Fonts that have the signs which matplotlib's own lacks, as Linux, Windows and macOS call them; those that are
# installed are asked in this order.
WIDE_FONTS = (
    "Noto Sans CJK JP",
    "Noto Sans CJK SC",
    "WenQuanYi Zen Hei",
    "Yu Gothic",
    "Microsoft YaHei",
    "Malgun Gothic",
    "Hiragino Sans",
    "PingFang SC",
    "Apple SD Gothic Neo",
    "Arial Unicode MS",
    "Noto Sans Devanagari",
    "Nirmala UI",
)


def new_figure(width: float, height: float):
    """A figure of that many inches that is drawn in memory.

    Raises:
        ImportError: without matplotlib.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("pictures need matplotlib: pip install 'vanilla-transformer[viz]'") from error
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)  # no display is asked for
    return figure


def save(figure, file: str | Path) -> Path:
    """Raises: ValueError, if the name says no kind of picture that matplotlib draws."""
    file = Path(file)
    kinds = figure.canvas.get_supported_filetypes()
    if file.suffix.removeprefix(".").lower() not in kinds:
        raise ValueError(f"got {file.name!r} for a picture, expected a name that ends in .png or .svg")
    use_wide_fonts(figure)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=150)
    return file


def use_wide_fonts(figure) -> None:
    """Tokens of any language: what the usual font lacks is taken from those of `WIDE_FONTS` that are installed."""
    from matplotlib.font_manager import get_font_names
    from matplotlib.text import Text

    installed = set(get_font_names())
    wide = [name for name in WIDE_FONTS if name in installed]
    for text in figure.findobj(Text):
        text.set_fontfamily([*text.get_fontfamily(), *wide])


def label(token: str) -> str:
    """A token as a picture shows it: an open box for spaces, a dot for the first bytes of a character, what cannot be
    printed by its code, and `$` as it is, which matplotlib would take for a formula."""
    text = token.strip() or ("\N{OPEN BOX}" if token else "\N{MIDDLE DOT}")
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text).replace("$", r"\$")


def room(tokens: Sequence[str] | None) -> float:
    """Inches that the longest label takes."""
    return 0.08 * max((len(label(token)) for token in tokens or ()), default=0)


def draw_matrix(
    axes, weights: np.ndarray, rows: Sequence[str] | None, columns: Sequence[str] | None, title: str | None
):
    from matplotlib.colors import PowerNorm

    # By their square roots: a sixtieth, which each of 60 tokens has of an even row, can be told from nothing.
    image = axes.imshow(weights, aspect="auto", cmap=COLORS, norm=PowerNorm(0.5, 0, 1))
    for axis, tokens in ((axes.yaxis, rows), (axes.xaxis, columns)):
        if tokens is not None:
            axis.set_ticks(range(len(tokens)), [label(token) for token in tokens], fontsize=8)
    axes.tick_params(axis="x", labelrotation=90)
    if title:
        axes.set_title(title, fontsize="medium")
    return image


def plot_attention_matrix(
    matrix: np.ndarray,
    tokens: Sequence[str] | None = None,
    title: str | None = None,
    outpath: str | Path = "attention.png",
    *,
    row_tokens: Sequence[str] | None = None,
    col_tokens: Sequence[str] | None = None,
) -> Path:
    """One head: (queries, keys) weights with the names of rows and columns; `tokens` names both of a square one.

    Raises:
        ValueError: if tokens and matrix do not fit.
    """
    matrix = np.asarray(matrix, dtype=float)
    if matrix.ndim != 2:
        raise ValueError(f"got a matrix of shape {matrix.shape}, expected (queries, keys): choose a layer and a head")
    sides = {"row": row_tokens or tokens, "column": col_tokens or tokens}
    for (side, names), length in zip(sides.items(), matrix.shape, strict=True):
        if names is not None and len(names) != length:
            raise ValueError(f"got {len(names)} {side} tokens {list(names)} for a matrix of shape {matrix.shape}")
    rows, columns = matrix.shape
    figure = new_figure(1.7 + room(sides["row"]) + 0.19 * columns, 1.1 + room(sides["column"]) + 0.19 * rows)
    image = draw_matrix(figure.add_subplot(), matrix, sides["row"], sides["column"], title)
    figure.colorbar(image, shrink=0.8)
    return save(figure, outpath)


def plot_heads(
    maps: AttentionMaps, kind: Literal["encoder", "decoder", "cross"], layer: int, outpath: str | Path
) -> Path:
    """The heads of a layer (from 0 on), side by side."""
    weights = layers_of(maps, kind)
    if not 0 <= layer < len(weights):
        raise ValueError(f"got layer={layer}, expected 0 to {len(weights) - 1}")
    titles = [f"head {number + 1}" for number in range(weights.shape[1])]
    return draw_grid(maps, kind, weights[layer], titles, f"{kind} attention, layer {layer + 1}", outpath)


def plot_layers(maps: AttentionMaps, kind: Literal["encoder", "decoder", "cross"], outpath: str | Path) -> Path:
    """The mean of the heads of each layer, side by side."""
    weights = layers_of(maps, kind)
    titles = [f"layer {number + 1}" for number in range(len(weights))]
    return draw_grid(maps, kind, weights.mean(1), titles, f"{kind} attention, mean of the heads", outpath)


def plot_words(maps: AttentionMaps, heads: AlignmentHeads, special: Iterable[str], outpath: str | Path) -> Path:
    """Words of the translation (rows) and of the source, as those `heads` of the cross-attention weigh them, and a box
    around each link that `translate --alignments` writes.

    Args:
        special: names of the special tokens, which are no words.

    Raises:
        ValueError: see `AttentionMaps.words`.
    """
    weights, rows, columns = maps.words(heads, special)
    figure = new_figure(2.0 + room(rows) + 0.3 * len(columns), 1.4 + room(columns) + 0.3 * len(rows))
    axes = figure.add_subplot()
    title = "words, by layer:head " + ", ".join(f"{layer + 1}:{head + 1}" for layer, head in heads.heads)
    image = draw_matrix(axes, weights, rows, columns, title)
    for source, target in links(weights):
        axes.add_patch(box(source, target))
    figure.colorbar(image, shrink=0.8)
    return save(figure, outpath)


def box(column: int, row: int):
    """The outline of a cell."""
    from matplotlib.patches import Rectangle

    return Rectangle((column - 0.46, row - 0.46), 0.92, 0.92, fill=False, edgecolor="tab:orange", linewidth=2)


def layers_of(maps: AttentionMaps, kind: str) -> np.ndarray:
    if kind not in maps.kinds():
        words = [] if maps.cross is None else ["words"]
        raise ValueError(f"got kind={kind!r}, expected one of {', '.join([*maps.kinds(), *words])}")
    return maps.kinds()[kind]


def draw_grid(maps, kind: str, panels: np.ndarray, titles: list[str], title: str, outpath: str | Path) -> Path:
    rows, columns = maps.tokens(kind)
    wide = min(4, len(panels))
    high = -(-len(panels) // wide)
    size = 0.9 + room(rows) + 0.16 * len(columns), 0.8 + room(columns) + 0.16 * len(rows)
    figure = new_figure(wide * size[0], high * size[1] + 0.4)
    figure.suptitle(title)
    figure.supylabel(ROWS[kind], fontsize="medium")
    for place, (weights, name) in enumerate(zip(panels, titles, strict=True), 1):
        image = draw_matrix(figure.add_subplot(high, wide, place), weights, rows, columns, name)
    figure.colorbar(image, ax=figure.axes, shrink=0.6)
    return save(figure, outpath)


def plot_causal_mask(tokens: Sequence[str], outpath: str | Path = "causal-mask.png") -> Path:
    """Who may look at whom (section 3.2.3): a decoder's token at itself and those before it, an encoder's at all, and
    what softmax makes of equal scores once those of the future are -inf."""
    length = len(tokens)
    seen = np.tril(np.ones((length, length)))
    even = seen / seen.sum(-1, keepdims=True)
    figure = new_figure(3 * max(2.2, 1.4 + 0.18 * length), 1.7 + 0.18 * length)
    for place, (weights, title) in enumerate(
        (
            (np.ones_like(seen), "encoder:\nall tokens are visible"),
            (seen, "decoder:\nthe future is hidden"),
            (even, "softmax of equal scores:\nwhat is visible shares"),
        ),
        1,
    ):
        draw_matrix(figure.add_subplot(1, 3, place), weights, tokens, tokens, title)
    return save(figure, outpath)


def plot_positional_encoding(
    model: PreTrainedModel,
    outpath: str | Path = "positions.png",
    length: int = 64,
    dimensions: Sequence[int] = (4, 5, 6, 7),
) -> Path:
    """The vectors that stand for places (section 3.5): all as a heat map, (length, D), and some dimensions as curves.

    Raises:
        ValueError: for a model whose positions are no vectors (rotary, relative, none), and for other models.
    """
    positions = getattr(getattr(model.get_encoder(), "positions", None), "embed", None)
    if positions is None:
        raise ValueError(f"got {type(model).__name__}, expected a model of this package")
    places = torch.arange(length, device=model.device)[None]
    with torch.inference_mode():
        zeros = torch.zeros(1, length, model.config.d_model, device=model.device)
        vectors = positions(zeros, places, length)[0].cpu().numpy()  # (length, D)
    if not vectors.any():
        raise ValueError(f"positions={model.config.positions!r} adds no vector to the embeddings: nothing to plot")
    figure = new_figure(11, 4)
    heat, curves = figure.subplots(1, 2)
    image = heat.imshow(vectors.T, aspect="auto", cmap="RdBu", vmin=-1, vmax=1, origin="lower")
    heat.set(xlabel="position", ylabel="dimension", title="PE(pos, i)")
    figure.colorbar(image, ax=heat)
    for dimension in dimensions:
        curves.plot(vectors[:, dimension], label=f"dimension {dimension}")
    curves.set(xlabel="position", title="some dimensions")
    curves.grid(alpha=0.3)
    curves.legend(fontsize="small")
    return save(figure, outpath)


Projection = Literal["pca", "tsne"]


def plot_embeddings(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    words: Sequence[str],
    outpath: str | Path = "embeddings.png",
    method: Projection = "pca",
) -> Path:
    """Words in the plane: the mean of the input embeddings of each one's tokens, projected by PCA or t-SNE.

    Raises:
        ImportError: without scikit-learn.
        ValueError: for an unknown method, for fewer than three words.
    """
    if method not in get_args(Projection):
        raise ValueError(f"got method={method!r}, expected one of {', '.join(get_args(Projection))}")
    if len(set(words)) < 3:
        raise ValueError(f"got {len(set(words))} different words: a map of them needs three")
    try:
        from sklearn.decomposition import PCA
        from sklearn.manifold import TSNE
    except ImportError as error:
        raise ImportError("maps of words need scikit-learn: pip install 'vanilla-transformer[viz]'") from error
    table = model.get_input_embeddings().weight.detach().float().cpu()
    ids = tokenizer([f" {word}" for word in words], add_special_tokens=False)["input_ids"]
    vectors = torch.stack([table[row].mean(0) for row in ids]).numpy()
    projections: dict[str, Any] = {
        "pca": lambda: PCA(2, random_state=0),
        "tsne": lambda: TSNE(2, perplexity=min(30, (len(words) - 1) / 3), init="pca", random_state=0),
    }
    points = projections[method]().fit_transform(vectors)
    figure = new_figure(8, 6)
    axes = figure.add_subplot()
    axes.scatter(*points.T, s=14)
    for word, point in zip(words, points, strict=True):
        axes.annotate(label(word), point, xytext=(3, 3), textcoords="offset points", fontsize=8)
    axes.set_title(f"embeddings of {len(words)} words, {method.upper() if method == 'pca' else 't-SNE'}")
    axes.grid(alpha=0.3)
    return save(figure, outpath)
