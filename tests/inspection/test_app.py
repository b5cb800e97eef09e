"""What the local page does, without the page: that one is tried in tests/browser."""

import html
import sys

import pytest

from vanilla_transformer.cli import main
from vanilla_transformer.inspection.app import look_inside, translate
from vanilla_transformer.translation import load_translator


@pytest.fixture(scope="module")
def translator(model_dir):
    return load_translator(model_dir)


def test_lines_are_translated_one_by_one(translator):
    lines = ["The man reads.", "", "The dog eats."]
    found = translate(translator, "\n".join(lines), 2, 0.5)
    assert found.split("\n") == [t.text for t in translator(lines, num_beams=2, length_penalty=0.5)]


@pytest.mark.parametrize(("beams", "asked", "shown"), [(1, 4, 1), (3, 2, 2), (3, 9, 3)])
def test_candidates_of_a_sentence(translator, beams, asked, shown):
    frame = look_inside(translator, "The man reads.", beams, 1.0, asked)
    page = html.unescape(frame[frame.index("srcdoc=") :])
    assert page.count('"next_tokens"') == shown
    assert 'sandbox="allow-scripts"' in frame and "<script" not in frame


def test_nothing_to_look_at(translator):
    assert look_inside(translator, None, 1, 1.0, 1) == ""


def test_without_gradio(model_dir, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "gradio", None)
    assert main(["app", str(model_dir)]) == 1
    assert "pip install 'vanilla-transformer[app]'" in capsys.readouterr().err
