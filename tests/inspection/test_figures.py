"""Pictures are drawn without a display, of the right size, and refuse what does not fit."""

import struct

import numpy as np
import pytest
from test_attention_page import maps
from tiny import tiny_model

from vanilla_transformer.inspection import figures


def size(file) -> tuple[int, int]:
    """Of a PNG, in pixels."""
    head = file.read_bytes()[:24]
    assert head.startswith(b"\x89PNG")
    return struct.unpack(">II", head[16:24])


def test_a_matrix_of_two_sentences(tmp_path):
    matrix = np.random.default_rng(0).dirichlet(np.ones(4), size=3)
    file = figures.plot_attention_matrix(
        matrix, title="a head", outpath=tmp_path / "m.svg", row_tokens=["<s>", " un", "$x$"], col_tokens=list("abcd")
    )
    text = file.read_text()
    assert text.count("<image") >= 1 and "a head" in text.replace("<!-- ", "")
    assert figures.plot_attention_matrix(matrix[:, :3], list("abc"), outpath=tmp_path / "m.png").exists()


def test_60_tokens_can_be_read(tmp_path):
    """A row of text for each token: at 150 dots an inch, 8-point letters are 17 dots high."""
    matrix = np.full((60, 60), 1 / 60)
    tokens = [f"token{i}" for i in range(60)]
    width, height = size(figures.plot_attention_matrix(matrix, tokens, outpath=tmp_path / "m.png"))
    assert width > 60 * 17 and height > 60 * 17


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (dict(matrix=np.ones((2, 2, 2))), "choose a layer and a head"),
        (dict(matrix=np.ones((2, 3)), tokens=["a", "b"]), "2 column tokens"),
        (dict(matrix=np.ones((2, 3)), row_tokens=["a"]), "1 row tokens"),
        (dict(matrix=np.ones((2, 2)), outpath="x.what"), "ends in .png or .svg"),
    ],
)
def test_what_does_not_fit(arguments, told, tmp_path):
    given = {"outpath": "x.png", **arguments}
    given["outpath"] = tmp_path / given["outpath"]
    with pytest.raises(ValueError, match=told):
        figures.plot_attention_matrix(**given)
    assert not list(tmp_path.iterdir())


def test_heads_and_layers(tmp_path):
    given = maps(layers=2, heads=5)
    for kind in ("encoder", "decoder", "cross"):
        heads = size(figures.plot_heads(given, kind, 1, tmp_path / f"{kind}-heads.png"))
        layers = size(figures.plot_layers(given, kind, tmp_path / f"{kind}-layers.png"))
        assert heads[0] > layers[0] and heads[1] > layers[1]  # five panels in two rows, two in one
    with pytest.raises(ValueError, match="expected 0 to 1"):
        figures.plot_heads(given, "cross", 2, tmp_path / "x.png")
    with pytest.raises(ValueError, match="expected one of encoder, decoder, cross, words"):
        figures.plot_layers(given, "self", tmp_path / "x.png")


def test_masks_and_positions(tmp_path):
    assert figures.plot_causal_mask(["<s>", " a", " b"], tmp_path / "mask.png").exists()
    assert figures.plot_positional_encoding(tiny_model(), tmp_path / "positions.png").exists()
    with pytest.raises(ValueError, match="positions='rotary' adds no vector"):
        figures.plot_positional_encoding(tiny_model(positions="rotary"), tmp_path / "x.png")


@pytest.mark.parametrize("method", ["pca", "tsne"])
def test_words_in_the_plane(method, tokenizer, tmp_path):
    model = tiny_model(vocab_size=len(tokenizer))
    words = ["cat", "dog", "book", "bread", "apple", "child", "brother", "sister", "letter"]
    assert figures.plot_embeddings(model, tokenizer, words, tmp_path / "words.png", method).exists()


def test_words_that_make_no_map(tokenizer, tmp_path):
    model = tiny_model(vocab_size=len(tokenizer))
    with pytest.raises(ValueError, match="expected one of pca, tsne"):
        figures.plot_embeddings(model, tokenizer, ["a", "b", "c"], tmp_path / "x.png", "umap")
    with pytest.raises(ValueError, match="needs three"):
        figures.plot_embeddings(model, tokenizer, ["a", "b", "a"], tmp_path / "x.png")


def test_signs_that_the_usual_font_lacks_are_drawn_by_others(tmp_path, monkeypatch, recwarn):
    """As Chinese is, where a font of `WIDE_FONTS` is installed; matplotlib warns of a sign that it cannot draw."""
    from matplotlib.font_manager import findfont, get_font

    usual, other = (set(get_font(findfont(name)).get_charmap()) for name in ("DejaVu Sans", "STIXGeneral"))
    sign = chr(min(code for code in other - usual if chr(code).isprintable()))
    for fonts, missing in ((("no such font",), True), (("no such font", "STIXGeneral"), False)):
        monkeypatch.setattr(figures, "WIDE_FONTS", fonts)
        recwarn.clear()
        figures.plot_attention_matrix(np.eye(1), [sign], outpath=tmp_path / "sign.png")
        assert any("missing from font" in str(warning.message) for warning in recwarn) is missing


def test_long_names_get_their_room(tmp_path, recwarn):
    """Matplotlib warns, and squeezes nothing in, where labels leave no room; unprintable signs become four each."""
    names = ["\x07" * 30, "Donaudampfschifffahrtsgesellschaft"]
    file = figures.plot_attention_matrix(np.eye(2), names, outpath=tmp_path / "m.png")
    assert min(size(file)) > 150 * 0.08 * 120  # pixels, at 150 an inch
    assert not [warning for warning in recwarn if "constrained_layout" in str(warning.message)]
