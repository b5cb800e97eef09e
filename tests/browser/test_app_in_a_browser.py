"""The local page, served by the command as a user starts it."""

import re
import socket
import subprocess
import sys
import time

import pytest
from chromium import find, requests, shot
from tiny import ROOT

pytestmark = pytest.mark.browser
NASTY = "</textarea><script>alert(1)</script> A man."


@pytest.fixture(scope="module")
def address(model_dir):
    words = [sys.executable, "-u", "-m", "vanilla_transformer", "app", str(model_dir)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT)
    said = ""
    for line in process.stdout:
        said += line
        found = re.search(r"http://[\w.]+:\d+", line)
        if found:
            break
    else:
        pytest.fail(said)
    yield found[0]
    process.terminate()
    process.wait(30)


def until(condition, seconds=60):
    """What it returns, once that is true."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > end:
            pytest.fail(f"not within {seconds} s")
        time.sleep(0.2)
    return found


def translate(browser, text):
    box = until(lambda: find(browser, "#text textarea"))[0]
    box.clear()
    box.send_keys(text)
    until(lambda: find(browser, "#translate"))[0].click()  # Gradio builds the page bit by bit


def test_this_machine_alone_is_served(address):
    host, port = re.fullmatch(r"http://([\w.]+):(\d+)", address).groups()
    assert host == "127.0.0.1"
    socket.create_connection((host, port), 5).close()
    with pytest.raises(OSError):  # which a server on all addresses would answer
        socket.create_connection(("127.0.0.2", port), 5)


def test_text_in_translation_and_candidates_and_attention_out(browser, address):
    browser.get(f"{address}/")
    translate(browser, "The man reads.")
    until(lambda: find(browser, "#attention iframe"))
    best = find(browser, "#translation textarea")[0].get_attribute("value")
    shot(browser, "app")
    browser.switch_to.frame(find(browser, "#attention iframe")[0])
    assert len(find(browser, "[role=tab]")) == 3 and find(browser, ".cell")
    assert "The man reads." in find(browser, "#source")[0].text
    candidates = [button.text for button in find(browser, "[data-candidate]")]
    assert len(candidates) == 4 and all(re.match(r"\d\. -\d+\.\d{3}", text) for text in candidates)
    assert candidates[0].endswith(best.strip())
    browser.switch_to.default_content()
    sent = requests(browser, f"{address}/")
    assert sent and all(url.startswith((address, "data:", "blob:", "about:")) for url in sent), sent
    severe = [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    assert not severe


def test_text_is_no_markup(browser, address):
    browser.get(f"{address}/")
    translate(browser, NASTY)
    until(lambda: find(browser, "#attention iframe"))
    browser.switch_to.frame(find(browser, "#attention iframe")[0])
    assert "<script>alert(1)</script>" in until(lambda: find(browser, "#source"))[0].text
    browser.switch_to.default_content()


def test_one_of_several_sentences_is_looked_into(browser, address):
    browser.get(f"{address}/")
    translate(browser, "The man reads.\nThe dog eats.")
    until(lambda: find(browser, "#attention iframe"))
    assert find(browser, "#translation textarea")[0].get_attribute("value").count("\n") == 1
    chosen = until(lambda: find(browser, "#sentence input"))[0]
    chosen.click()
    option = until(lambda: [o for o in find(browser, "[role=option]") if "dog" in o.text])[0]
    option.click()
    until(lambda: "The dog eats." in find(browser, "#attention iframe")[0].get_attribute("srcdoc"))
