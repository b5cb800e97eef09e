"""What a reader does in Chromium with the mouse and the keyboard."""

import json

from tiny import ROOT

SCREENSHOTS = ROOT / "build" / "screenshots"


def find(browser, selector):
    return browser.find_elements("css selector", selector)


def hover(browser, element):
    from selenium.webdriver import ActionChains

    ActionChains(browser).move_to_element(element).perform()


def press(browser, *keys):
    from selenium.webdriver import ActionChains

    ActionChains(browser).send_keys(*keys).perform()


def shot(browser, name):
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    browser.save_screenshot(str(SCREENSHOTS / f"{name}.png"))


def requests(browser, place: str) -> list[str]:
    """What the page at `place` has asked for since the last call."""
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = [event["params"] for event in events if event["method"] == "Network.requestWillBeSent"]
    return [s["request"]["url"] for s in sent if s["documentURL"] == place]  # Chromium has pages of its own
