"""The attention page in Chromium, by its driver: what a reader does with the mouse and the keyboard.

`make test-browser` runs these, and leaves screenshots in build/screenshots.
"""

import pytest
from chromium import find, hover, press, requests, shot
from test_attention_page import NASTY, maps

from vanilla_transformer.inspection.page import attention_page

pytestmark = pytest.mark.browser


@pytest.fixture
def page(browser, tmp_path):
    """Opens a page of two translations; afterwards, nothing stands in the console, and nothing has been requested."""
    given = [
        maps(7, target="one way", source="The source"),
        maps(7, target="another", source="The source", score=-0.75),
    ]
    (tmp_path / "page.html").write_text(attention_page(given), encoding="utf-8")
    place = (tmp_path / "page.html").as_uri()
    browser.get(place)
    browser.given = given
    yield browser
    assert [entry for entry in browser.get_log("browser") if entry["level"] != "INFO"] == []
    sent = requests(browser, place)
    assert sent and all(url.startswith(("file:", "data:")) for url in sent)


def selected(browser):
    return [tab.text for tab in find(browser, "[role=tab][aria-selected=true]")]


def test_hovering_a_token_lights_its_row(page):
    assert selected(page) == ["Cross"] and len(find(page, ".cell")) == 8 * 7
    row = find(page, ".token[data-side=row]")[3]
    hover(page, row)
    assert "lit" in row.get_attribute("class")
    weights = page.given[0].cross[0].mean(0)[3]
    best = int(weights.argmax())
    told = find(page, "#told")[0].text
    assert told.startswith(f"“t2” looks at “s{best}” {weights[best]:.2f}") and told.endswith("the next token is “t3”")
    faint = [cell for cell in find(page, ".cell") if cell.value_of_css_property("opacity") != "1"]
    assert len(faint) == 7 * 7 and all(cell.get_attribute("data-row") != "3" for cell in faint)
    assert find(page, ".row-mark")[0].get_attribute("visibility") == "visible"
    shot(page, "matrix-hovered")
    hover(page, find(page, "h1")[0])
    assert find(page, "#told")[0].text == ""


def test_tabs_layers_heads(page):
    from selenium.webdriver.support.ui import Select

    for name, cells in (("Encoder", 7 * 7), ("Decoder", 8 * 8), ("Cross", 8 * 7)):
        next(tab for tab in find(page, "[role=tab]") if tab.text == name).click()
        assert selected(page) == [name] and len(find(page, ".cell")) == cells

    def opacities():
        return [float(cell.get_attribute("fill-opacity")) for cell in find(page, ".cell")]

    def wanted(weights):
        return pytest.approx((weights**0.5).flatten().tolist(), abs=0.05)

    cross = page.given[0].cross
    assert opacities() == wanted(cross[0].mean(0))
    Select(find(page, "#layer")[0]).select_by_visible_text("2")
    assert opacities() == wanted(cross[1].mean(0))
    Select(find(page, "#head")[0]).select_by_visible_text("3")
    assert opacities() == wanted(cross[1, 2])
    Select(find(page, "#head")[0]).select_by_visible_text("all, side by side")
    assert len(find(page, ".grid canvas")) == 2 * 3
    shot(page, "all-heads")
    find(page, ".grid button")[1].click()
    assert opacities() == wanted(cross[0, 1])


def test_lines(page):
    from selenium.webdriver.support.ui import Select

    Select(find(page, "#mode")[0]).select_by_visible_text("lines")
    edges = find(page, ".edge")
    assert edges and all(float(edge.get_attribute("data-weight")) >= 0.02 for edge in edges)
    hover(page, find(page, ".token[data-side=row]")[2])
    seen = {e.get_attribute("data-row") for e in edges if e.value_of_css_property("stroke-opacity") != "0"}
    assert seen == {"2"}
    shot(page, "lines-hovered")


def test_candidates_side_by_side(page):
    buttons = find(page, "[data-candidate]")
    assert [b.text.split(maxsplit=1) for b in buttons] == [["1.", "-0.500 one way"], ["2.", "-0.750 another"]]
    assert len(find(page, "[data-candidate] canvas")) == 2
    buttons[1].click()
    pressed = [b.get_attribute("aria-pressed") for b in find(page, "[data-candidate]")]
    assert pressed == ["false", "true"]


def test_keyboard_alone(page):
    from selenium.webdriver.common.keys import Keys

    press(page, "e")
    assert selected(page) == ["Encoder"]
    press(page, "c", "]", ".")
    assert find(page, "#layer")[0].get_attribute("value") == "1"
    assert find(page, "#head")[0].get_attribute("value") == "0"
    press(page, "v")
    assert find(page, ".edge")
    press(page, "v", "n")
    assert find(page, "[data-candidate='1']")[0].get_attribute("aria-pressed") == "true"
    for _ in range(12):  # through the page to the first token
        press(page, Keys.TAB)
        if "token" in (page.switch_to.active_element.get_attribute("class") or ""):
            break
    press(page, Keys.ARROW_DOWN)
    lit = find(page, ".token.lit")
    assert len(lit) == 1 and lit[0].get_attribute("data-place") == "1"
    assert find(page, "#told")[0].text


def test_light_and_dark(page):
    def colour():
        return find(page, "body")[0].value_of_css_property("background-color")

    before = colour()
    find(page, "#theme")[0].click()
    assert colour() != before
    shot(page, "other-theme")


def test_text_is_shown_and_not_run(browser, tmp_path):
    import numpy as np
    from selenium.common.exceptions import NoAlertPresentException

    from vanilla_transformer.inspection import AttentionMaps

    nasty = AttentionMaps(
        [NASTY], [NASTY], [NASTY], cross=np.ones((1, 1, 1, 1)), source=NASTY, target=NASTY, model=NASTY
    )
    (tmp_path / "nasty.html").write_text(attention_page([nasty]), encoding="utf-8")
    browser.get((tmp_path / "nasty.html").as_uri())
    with pytest.raises(NoAlertPresentException):
        _ = browser.switch_to.alert
    assert "<script>alert(1)</script>" in find(browser, "#source")[0].text
    assert len(find(browser, "script")) == 2
    assert selected(browser) == ["Cross"]


def test_a_translation_without_spaces_stays_in_its_box(browser, tmp_path):
    given = [maps(3, target="x" * 400, source="The source"), maps(3, target="one way", source="The source")]
    (tmp_path / "page.html").write_text(attention_page(given), encoding="utf-8")
    browser.get((tmp_path / "page.html").as_uri())
    boxes = find(browser, ".candidates button")
    assert len(boxes) == 2
    for box in boxes:
        assert box.get_property("scrollWidth") <= box.get_property("clientWidth")
    # The texts of all begin at the same height, whatever their lengths.
    first_lines = (
        "const r = document.createRange(); r.selectNodeContents(arguments[0]); return r.getClientRects()[0].top"
    )
    assert len({browser.execute_script(first_lines, box) for box in boxes}) == 1


def test_a_token_keeps_the_focus_when_the_layer_changes(page):
    row = find(page, ".token[data-side=row]")[2]
    page.execute_script("arguments[0].focus()", row)
    for key in ("]", ".", "v"):
        press(page, key)
        focused = page.switch_to.active_element
        assert (focused.get_attribute("data-side"), focused.get_attribute("data-place")) == ("row", "2")
