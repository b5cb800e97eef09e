"""The report's page, as a reader sees it."""

import pytest
from chromium import find, requests, shot
from tiny import ENGLISH, FRENCH

from vanilla_transformer.inspection import report as reports

pytestmark = pytest.mark.browser


def test_attention_is_dark_where_it_is_strong(browser, model_dir, tmp_path):
    for name, lines in (("source", ENGLISH), ("reference", FRENCH)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    report = reports.make_report(str(model_dir), tmp_path / "source", tmp_path / "reference", beams=(1, 2))
    (tmp_path / "report.html").write_text(reports.to_html(report), encoding="utf-8")
    place = (tmp_path / "report.html").as_uri()
    browser.get(place)
    cells = find(browser, ".map td.cell")
    assert cells
    for cell in cells[:: len(cells) // 5]:
        colour, weight = cell.value_of_css_property("background-color"), float(cell.get_attribute("title"))
        numbers = [float(part) for part in colour[colour.index("(") + 1 : -1].replace("/", ",").split(",")]
        assert numbers[:3] in ([13, 71, 161], [125, 190, 255])
        assert (numbers[3] if len(numbers) > 3 else 1) == pytest.approx(weight, abs=0.01)
    shot(browser, "report")
    assert requests(browser, place) == [place]
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
