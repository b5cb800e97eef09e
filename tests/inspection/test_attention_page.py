"""The page: whole in one file, data as data, and small."""

import html.parser
import json
import re

import numpy as np
import pytest
from tiny import ENGLISH

from vanilla_transformer.cli import main
from vanilla_transformer.inspection import AttentionMaps
from vanilla_transformer.inspection.page import attention_page

NASTY = "</script><script>alert(1)</script> & <b>\u2028"


def maps(tokens=5, layers=2, heads=3, **more) -> AttentionMaps:
    rng = np.random.default_rng(0)

    def random(rows, columns, hidden=0):
        weights = rng.random((layers, heads, rows, columns)) * (1 - hidden * np.triu(np.ones((rows, columns)), 1))
        return (weights / weights.sum(-1, keepdims=True)).astype(np.float32)

    source, target = [f"s{i}" for i in range(tokens)], ["<s>", *(f"t{i}" for i in range(tokens))]
    weights = {"encoder": random(tokens, tokens), "decoder": random(tokens + 1, tokens + 1, 1)}
    weights["cross"] = random(tokens + 1, tokens)
    return AttentionMaps(source, target, [*target[1:], "</s>"], **{**weights, "score": -0.5, **more})


def data_of(page: str) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])


def unpacked(packed: dict) -> np.ndarray:
    import base64

    numbers = np.frombuffer(base64.b64decode(packed["weights"]), np.uint8) / 255
    shape = packed["layers"], packed["heads"], packed["rows"], packed["columns"]
    if not packed["causal"]:
        return numbers.reshape(shape)
    whole = np.zeros(shape)
    whole[..., np.tril(np.ones(shape[2:], bool))] = numbers.reshape(*shape[:2], -1)
    return whole


def test_data_comes_back_to_a_255th():
    given = [maps(), maps(score=-1.0)]
    data = data_of(attention_page(given))
    assert [c["score"] for c in data["candidates"]] == [-0.5, -1.0]
    assert data["candidates"][0]["decoder"]["causal"] and not data["encoder"]["causal"]
    for kind in ("decoder", "cross"):
        assert np.abs(unpacked(data["candidates"][0][kind]) - getattr(given[0], kind)).max() <= 0.5 / 255 + 1e-6


def test_text_is_never_markup():
    nasty = AttentionMaps(
        [NASTY], [NASTY], [NASTY], cross=np.ones((1, 1, 1, 1)), source=NASTY, target=NASTY, model=NASTY
    )
    page = attention_page([nasty])
    assert data_of(page)["source"] == NASTY

    class Scripts(html.parser.HTMLParser):
        found = 0

        def handle_starttag(self, tag, attributes):
            Scripts.found += tag == "script"

    Scripts().feed(page)
    assert Scripts.found == 2 and "alert(1)</script>" not in page and "\u2028" not in page


def test_no_request_to_any_network():
    page = attention_page([maps()])
    assert "default-src 'none'" in page
    assert not re.findall(r"(?:src|href|url|import|fetch)\s*[=(]\s*[\"']?(?!data:)[a-z]*:?//", page)
    assert re.findall(r"https?://[^\"' ]+", page) == ["http://www.w3.org/2000/svg"]  # a name, and nothing to load


def test_a_page_of_the_base_model_is_below_1_mb():
    """40 tokens of 6 layers of 8 heads, four translations."""
    given = [maps(40, 6, 8) for _ in range(4)]
    assert len(attention_page(given).encode()) < 1_000_000


def test_nothing_to_show():
    with pytest.raises(ValueError, match="no attention maps"):
        attention_page([])
    with pytest.raises(ValueError, match="different sources"):
        attention_page([maps(), maps(tokens=4)])


def test_the_command(model_dir, tmp_path, capsys):
    page, numbers, picture = (tmp_path / name for name in ("a.html", "a.json", "a.png"))
    assert main(["attention", str(model_dir), ENGLISH[0], "-o", str(page), "--beams", "3", "--threads", "1"]) == 0
    assert len(data_of(page.read_text())["candidates"]) == 3
    assert main(["attention", str(model_dir), ENGLISH[0], "-o", str(numbers), "--target", "Un livre."]) == 0
    assert json.loads(numbers.read_text())["target"] == "Un livre."
    for more in ([], ["--kind", "encoder", "--layer", "2"], ["--kind", "words"]):
        assert main(["attention", str(model_dir), ENGLISH[0], "-o", str(picture), "--overwrite", *more]) == 0
        assert picture.read_bytes().startswith(b"\x89PNG")
    capsys.readouterr()
    for words, told in (
        (["-o", str(page)], "--overwrite"),
        (["-o", str(tmp_path / "a.txt")], "expected a name in .html"),
        (["-o", str(tmp_path / "b.json"), "--n-best", "2", "--beams", "2"], "shows one translation"),
        (["-o", str(tmp_path / "b.html"), "--layer", "1"], "a picture"),
        (["-o", str(tmp_path / "b.png"), "--layer", "3"], "got layer 3, expected 1 to 2"),
        (["-o", str(tmp_path / "b.html"), "--target", "x", "--beams", "2"], "give either"),
        (["-o", str(tmp_path / "b.png"), "--kind", "words", "--layer", "1"], "by the heads that align"),
        (["-o", str(tmp_path / "b.html"), "--kind", "words"], "a picture"),
    ):
        assert main(["attention", str(model_dir), ENGLISH[0], *words]) == 1
        assert told in capsys.readouterr().err
