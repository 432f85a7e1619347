"""The page of roformer serve in Chromium: each control shows what the routes answer."""

import json
import re

import numpy as np
import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

import browser_case
import tolerances
from cli_support import results
from engine_case import change_config, make_causal
from rotary_decoders import make_decoder
from sentence_model import save_encoder, save_modules
from server_case import make_folders, serving

LINES = ["abc de", "the cat", "<img src=x onerror=alert(1)>", "dog", "bad cab"]
# The least contrast of text and background (WCAG 2, level AA), in the page: what is below, with its text.
LOW_CONTRAST = """
const numbers = color => color.startsWith("color(srgb")
  ? color.match(/[\\d.e-]+/g).slice(0, 3).map(Number) : color.match(/[\\d.]+/g).slice(0, 3).map(x => x / 255);
const luminance = color => numbers(color).map(x => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4)
  .reduce((sum, x, i) => sum + x * [0.2126, 0.7152, 0.0722][i], 0);
const isClear = color => /^rgba\\(.*, 0\\)$/.test(color);
const below = node => isClear(getComputedStyle(node).backgroundColor) && node.parentElement
  ? below(node.parentElement) : getComputedStyle(node).backgroundColor;
const low = [];
for (const node of document.querySelectorAll("body *")) {
  if (!node.checkVisibility() || node.tagName === "OPTION") continue;
  if (![...node.childNodes].some(child => child.nodeType === 3 && child.data.trim()) && !("value" in node)) continue;
  const style = getComputedStyle(node);
  const pair = [luminance(node.tagName === "text" ? style.fill : style.color), luminance(below(node))];
  const contrast = (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
  if (contrast < 4.5) low.push([node.tagName, node.textContent.slice(0, 40), contrast]);
}
return low;
"""
TEXTS = """
const isShown = node => node.tagName === "OPTION" || node.checkVisibility({visibilityProperty: true});
return [...arguments[0].querySelectorAll(arguments[1])].map(node => isShown(node) ? node.innerText.trim() : "");
"""


def save_models(root):
    folders = make_folders(root, "writer", "layers")
    save_encoder(folders["dense"], "RoFormer", hidden_size=64, embedding_size=64, max_position_embeddings=512)
    save_modules(folders["dense"], normalize=True, prompts={"query": "q "})
    change_config(folders["dense"], dtype="bfloat16")  # which the doctor notes
    results("vocab", "--bytes", "--output", folders["writer"])
    make_causal("RoFormer", folders["writer"], vocab_size=261, max_position_embeddings=30000)
    results("vocab", "--bytes", "--output", folders["layers"])
    make_decoder("gemma3", folders["layers"], vocab_size=261)  # two kinds of layers
    return folders


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return save_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def server(folders):
    with serving("--model", *(f"{name}={folder}" for name, folder in folders.items())) as server:
        yield server


@pytest.fixture(scope="module")
def chromium():
    with browser_case.chromium("1000,900", "browser", "performance") as browser:
        yield browser


@pytest.fixture
def browser(chromium):
    """Checks at the end that the page asked no other host, and that the console only has errors of refused requests."""
    yield chromium
    chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    events = [json.loads(entry["message"])["message"] for entry in chromium.get_log("performance")]
    asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert asked and all(re.match(r"http://127\.0\.0\.1:|data:|about:|chrome", url) for url in asked), asked
    messages = [entry["message"] for entry in chromium.get_log("browser")]
    assert all("Failed to load resource" in message for message in messages), messages


class Panel:
    """A section of the page, opened anew."""

    def __init__(self, browser, server, name):
        self.browser = browser
        browser.get("about:blank")
        browser.get(f"{server.url}/#{name}")
        self.section = browser.find_element(By.ID, name)
        self.wait(self.section.is_displayed)

    def wait(self, condition):
        WebDriverWait(self.browser, 60, poll_frequency=0.02).until(lambda _: condition())

    def find(self, selector):
        return self.section.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector):
        return self.section.find_elements(By.CSS_SELECTOR, selector)

    def texts(self, selector):
        """What is seen of each element, asked for at once."""
        return self.browser.execute_script(TEXTS, self.section, selector)

    def start(self, **fields):
        """Submits the form with these fields."""
        for name, value in fields.items():
            field = self.find(f"[name={name}]")
            if field.tag_name == "select":
                Select(field).select_by_visible_text(value)
            else:
                self.browser.execute_script("arguments[0].value = arguments[1]", field, str(value))
        self.find("[type=submit]").click()

    def submit(self, **fields):
        self.start(**fields)
        self.finish()

    def is_busy(self):
        return self.section.get_attribute("aria-busy") == "true"

    def finish(self):
        self.wait(lambda: not self.is_busy())

    def cancel(self):
        self.wait(self.find(".cancel").is_displayed)
        self.find(".cancel").click()
        self.finish()
        assert self.status == "Cancelled."

    @property
    def status(self):
        return self.find("[role=status]").text

    @property
    def error(self):
        return self.find(".error").text


def numbers(texts):
    return [float(text) for text in texts]


def assert_ranking(panel, texts, scores):
    order = np.argsort(-np.array(scores), kind="stable")
    assert panel.error == "" and panel.status.startswith(f"{len(texts)} texts ranked.")
    assert [text.strip() for text in panel.texts("tbody td:nth-child(2)")] == [texts[i] for i in order]
    shown = numbers(panel.texts("tbody td:nth-child(3)"))
    np.testing.assert_allclose(shown, np.round(np.array(scores)[order], 4), atol=tolerances.SCORE_F32)


def test_similarity(browser, server):
    panel = Panel(browser, server, "similarity")
    assert [option.text for option in Select(panel.find("select")).options] == ["dense", "masked", "sparse"]
    panel.submit(texts="\n".join(LINES))
    assert panel.status.startswith("5 texts compared.") and panel.error == ""
    rows = [panel.texts(f"tbody tr:nth-child({i + 1}) td") for i in range(len(LINES))]
    expected = [server.post("/similarity", {"inputs": {"source_sentence": text, "sentences": LINES}}) for text in LINES]
    np.testing.assert_allclose([numbers(row) for row in rows], np.round(expected, 2), atol=tolerances.SCORE_F32)
    assert panel.texts("tbody th") == [f"{i + 1}. {text}" for i, text in enumerate(LINES)]
    assert panel.find("thead th:nth-child(3)").get_attribute("aria-label") == "2: the cat"
    assert panel.all("img") == []
    panel.submit(texts="one")
    assert panel.error == "The map compares 2 to 40 texts, one per line, got 1." and panel.all("table") == []


def sparse_scores(server, query, texts):
    result = server.post("/embed_sparse", {"inputs": [query, *texts], "model": "sparse"})
    asked, *rows = ({each["index"]: each["value"] for each in row} for row in result)
    return [sum(value * asked.get(index, 0) for index, value in row.items()) for row in rows]


def test_search(browser, server):
    panel = Panel(browser, server, "search")
    query = "the cat"
    panel.submit(query=query, texts="\n".join(LINES))
    asked = server.post("/embed", {"inputs": query, "prompt_name": "query"})[0]
    assert_ranking(panel, LINES, np.array(server.post("/embed", {"inputs": LINES})) @ asked)
    panel.submit(model="sparse")
    assert_ranking(panel, LINES, sparse_scores(server, query, LINES))
    panel.submit(model="late")
    ranked = server.post("/rerank", {"query": query, "texts": LINES, "model": "late"})
    assert_ranking(panel, LINES, [each["score"] for each in sorted(ranked, key=lambda each: each["index"])])


def test_rerank(browser, server):
    panel = Panel(browser, server, "rerank")
    assert [option.text for option in Select(panel.find("select")).options] == ["late", "rerank"]
    many = [f"{a}{b} cat" for a in "abcdefghij" for b in "klmnopqrst"]  # more than one request
    for model, texts in (("rerank", LINES), ("late", LINES), ("rerank", many)):
        panel.submit(model=model, query="the cat", texts="\n".join(texts))
        ranked = server.post("/v1/rerank", {"query": "the cat", "documents": texts, "model": model})["results"]
        scores = {each["index"]: each["relevance_score"] for each in ranked}
        assert_ranking(panel, texts, [scores[i] for i in range(len(texts))])


def test_tokens(browser, server):
    text = "abc \U0001f642 de"
    panel = Panel(browser, server, "tokens")
    panel.submit(text=text)
    tokens = server.post("/tokenize", {"inputs": text})[0]
    assert panel.texts(".tokens button") == [each["text"] for each in tokens]
    assert panel.status.startswith(f"{len(tokens)} tokens for 8 characters.")
    place = next(i for i, each in enumerate(tokens) if each["text"] == "d")
    ActionChains(browser).move_to_element(panel.all(".tokens button")[place]).perform()
    facts = f"Token {place + 1} of {len(tokens)}, “d”, id {tokens[place]['id']}, characters 6 to 7: “d”"
    assert panel.find(".output [role=status]").text == facts
    assert panel.find("mark").text == "d" and panel.find(".output .text").text == text
    panel.find("[name=specials]").click()
    panel.submit()
    without = server.post("/tokenize", {"inputs": text, "add_special_tokens": False})[0]
    assert panel.texts(".tokens button") == [each["text"] for each in without]


def test_fill_mask(browser, server):
    panel = Panel(browser, server, "mask")
    assert panel.find("textarea").get_attribute("value").count("[MASK]") == 1
    panel.find("textarea").send_keys(Keys.END, " a ")
    panel.find("#insert-mask").click()
    text = panel.find("textarea").get_attribute("value")
    assert text.endswith(" a [MASK]")
    panel.submit(count=3)
    masks = server.post("/fill-mask", {"inputs": text, "top_k": 3, "model": "masked"})[0]
    assert panel.status.startswith("2 masks filled.")
    assert panel.texts("td:first-child") == [each["token_str"] for mask in masks for each in mask]
    assert panel.texts("td:last-child") == [f"{each['score']:.4f}" for mask in masks for each in mask]
    panel.submit(text="no gap")
    status, refused = server.call("POST", "/fill-mask", {"inputs": "no gap", "model": "masked"})
    assert panel.error == f"{status}: {refused['error']}" and panel.status == "" and panel.all("table") == []
    panel.submit(text=text)
    assert panel.error == ""


def test_classify(browser, server):
    panel = Panel(browser, server, "classify")
    for second, given in (("", [["abc de"]]), ("the cat", [["abc de", "the cat"]])):
        panel.submit(text="abc de", second=second)
        labels = server.post("/predict", {"inputs": given, "model": "classes"})[0]
        assert panel.texts("td:first-child") == [each["label"] for each in labels]
        assert panel.texts("td:last-child") == [f"{each['score']:.4f}" for each in labels]
        assert f"most probably {labels[0]['label']}" in panel.status


def test_write(browser, server):
    panel = Panel(browser, server, "write")
    panel.submit(prompt="abc", max_tokens=20, temperature=0.7, seed=5)
    body = {"prompt": "abc", "max_tokens": 20, "temperature": 0.7, "seed": 5, "model": "writer"}
    choice = server.post("/v1/completions", body)["choices"][0]
    assert panel.find(".added").get_property("textContent") == choice["text"]
    assert panel.find(".prompt").text == "abc"
    assert ("limit" if choice["finish_reason"] == "length" else "ended") in panel.status
    # The text appears while it is written.
    panel.start(max_tokens=25000, temperature=0)
    panel.wait(lambda: panel.all(".added") and len(panel.find(".added").get_property("textContent")) > 50)
    assert panel.is_busy()
    panel.cancel()
    assert panel.find(".added").is_displayed()


def decay(frequencies, distance):
    turned = np.exp(1j * distance * np.array(frequencies))
    return turned.real.mean(), np.abs(np.cumsum(turned)).mean() / ((len(frequencies) + 1) / 2)


def test_rotation(browser, server, folders):
    panel = Panel(browser, server, "rotation")  # shows the first model at once
    panel.wait(lambda: panel.all(".waves circle"))
    report = server.call("GET", "/rotation?model=dense")[1]
    frequencies = report["rotations"][0]["frequencies"]
    (line,) = results("doctor", folders["dense"])
    assert report == {key: line[key] for key in line if key != "path"} | {"model": "dense"}
    turns = sum(512 * np.array(frequencies) >= 2 * np.pi)
    assert f"{turns} of {len(frequencies)} pairs turn at least once" in panel.find(".waves figcaption").text
    assert len(panel.all("circle.turns")) == turns and len(panel.all(".dials svg")) == len(frequencies)
    assert report["findings"]
    for finding in report["findings"]:
        assert f"{finding['severity']}{finding['rule']} {finding['text']}" in panel.texts(".findings li")
    assert "512 tokens" in panel.find(".facts").text
    field = panel.find(".distance")
    for distance in (0, 1, 100, 512):
        field.clear()
        field.send_keys(str(distance))
        shown = numbers(re.findall(r"-?\d\.\d{4}", panel.find(".here-text").text))
        assert shown == [round(x, 4) for x in decay(frequencies, distance)]
        x, y = (float(panel.find(".dials .hand").get_attribute(name)) for name in ("x2", "y2"))
        np.testing.assert_allclose([x, y], [16 + 13 * np.cos(distance), 16 - 13 * np.sin(distance)])
    panel.find(".slider").send_keys(Keys.HOME)
    assert field.get_attribute("value") == "0" and panel.find(".slider").get_attribute("aria-valuetext") == "0 tokens"
    panel.find("summary").click()
    assert len(panel.texts("details tbody tr")) == len(frequencies)
    assert not panel.find("[name=layers]").is_displayed()
    Select(panel.find("[name=model]")).select_by_visible_text("layers")
    panel.wait(panel.find("[name=layers]").is_displayed)
    rotations = server.call("GET", "/rotation?model=layers")[1]["rotations"]
    assert panel.texts("[name=layers] option") == [each["layers"] for each in rotations] and len(rotations) == 2
    Select(panel.find("[name=layers]")).select_by_index(1)
    panel.wait(lambda: f"{rotations[1]['base']:,.0f}" in panel.find(".output").text)
    shown = numbers(re.findall(r"-?\d\.\d{4}", panel.find(".here-text").text))
    assert shown == [round(x, 4) for x in decay(rotations[1]["frequencies"], 16)]
    Select(panel.find("[name=model]")).select_by_visible_text("masked")
    panel.wait(lambda: panel.error)
    assert "must rotate queries and keys, got bert" in panel.error and panel.all("svg") == []


def test_a_slow_answer(browser, server):
    panel = Panel(browser, server, "search")
    panel.start(texts="\n".join(f"word {i:b} and {i}" for i in range(40000)))
    panel.wait(panel.find("progress").is_displayed)
    assert panel.status == "Computing …" and panel.is_busy()
    panel.wait(lambda: float(panel.find("progress").get_attribute("value") or 0) > 0)
    assert panel.find("progress").get_attribute("max") == "40000"
    panel.wait(lambda: re.fullmatch(r"[1-9]\d* s", panel.find(".seconds").text))
    panel.cancel()
    assert panel.error == "" and not panel.find("progress").is_displayed()
    assert browser.switch_to.active_element == panel.find("[type=submit]")
    panel.submit(texts="\n".join(LINES))
    assert panel.status.startswith("5 texts ranked.")


PANELS = ("similarity", "search", "rerank", "tokens", "mask", "classify", "write", "rotation")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_looks(browser, server, scheme):
    """Contrast in both schemes, and no horizontal scrolling from a phone to a desk."""
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    for name in PANELS:
        panel = Panel(browser, server, name)
        back = browser.execute_script("return getComputedStyle(document.documentElement).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", back))) > 384) == (scheme == "light")
        panel.submit()
        assert panel.error == "" and panel.find(".output").text
        assert browser.execute_script(LOW_CONTRAST) == [], name
        for field in panel.all("input, select, textarea, button") if scheme == "light" else ():
            assert not field.is_displayed() or field.accessible_name, field.get_attribute("outerHTML")
        for width in (320, 400, 1280):
            size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            wide = "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
            assert len(set(browser.execute_script(wide))) == 1, (name, width)


def test_keyboard_only(browser, server):
    panel = Panel(browser, server, "similarity")
    browser.get("about:blank")
    browser.get(server.url)
    WebDriverWait(browser, 20).until(lambda _: browser.find_element(By.TAG_NAME, "nav").is_displayed())

    def press(*keys):
        ActionChains(browser).send_keys(*keys).perform()
        active = browser.switch_to.active_element
        is_shown = active.value_of_css_property("outline-style") != "none" or active.tag_name == "h2"
        assert is_shown, active.get_attribute("outerHTML")
        return active

    assert press(Keys.TAB).text == "Skip to the content"
    links = [press(Keys.TAB).text for _ in range(len(PANELS))]
    assert links[0] == "Similarity" and links[-1] == "Rotation"
    while browser.switch_to.active_element.text != "Tokens":
        ActionChains(browser).key_down(Keys.SHIFT).send_keys(Keys.TAB).key_up(Keys.SHIFT).perform()
    assert press(Keys.ENTER).text == "Tokens" and browser.title == "Tokens · roformer serve"
    panel.section = browser.find_element(By.ID, "tokens")
    names = [press(Keys.TAB).get_attribute("name") for _ in range(3)]
    assert names == ["model", "text", "specials"]
    ActionChains(browser).key_down(Keys.SHIFT).send_keys(Keys.TAB).key_up(Keys.SHIFT).perform()
    ActionChains(browser).key_down(Keys.CONTROL).send_keys(Keys.ENTER).key_up(Keys.CONTROL).perform()
    panel.wait(lambda: panel.all(".tokens button"))
    assert press(Keys.TAB).get_attribute("name") == "specials"
    assert press(Keys.TAB).text == "Tokenize" and press(Keys.TAB).text == "[CLS]"
    assert press(Keys.ARROW_RIGHT).text == "r" and press(Keys.END).text == "[SEP]"
    assert "Token" in panel.find(".output [role=status]").text
    assert press(Keys.TAB).text == "openapi.json"  # the tokens are one stop


def test_key(browser, folders, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("secret\n")
    with serving("--model", folders["masked"], "--api-key-file", keys) as server:
        browser.get("about:blank")
        browser.get(server.url)
        wait = WebDriverWait(browser, 20)
        field = browser.find_element(By.NAME, "key")
        failure = browser.find_element(By.ID, "failure")
        wait.until(lambda _: field.is_displayed())
        assert browser.switch_to.active_element == field and not browser.find_element(By.TAG_NAME, "nav").is_displayed()
        field.send_keys("wrong", Keys.ENTER)
        wait.until(lambda _: failure.text == "401: a valid key must be sent as Authorization: Bearer KEY")
        field.clear()
        field.send_keys("secret", Keys.ENTER)
        wait.until(lambda _: browser.find_element(By.TAG_NAME, "nav").is_displayed())
        assert failure.text == "" and not field.is_displayed()
        panel = Panel(browser, server, "mask")  # with the kept key
        panel.submit()
        assert panel.status.startswith("1 mask filled.")
        # What no model does is not offered.
        assert not browser.find_element(By.ID, "write").is_displayed()
        missing = browser.find_element(By.ID, "missing").text
        assert "Write on (a causal language model)" in missing and "Fill a mask" not in missing
        server.stop()
        panel.submit()
        assert panel.error.startswith("The server could not be reached: ")


def test_headers(server):
    status, text = server.call("GET", "/")
    assert status == 200 and server.headers["Content-Type"] == "text/html; charset=utf-8"
    assert server.headers["X-Content-Type-Options"] == "nosniff"
    assert server.headers["Referrer-Policy"] == "no-referrer"
    policy = server.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
    assert "innerHTML" not in text and not re.search(r"(src|href)=.?https?:", text)
    assert server.call("GET", "/rotation?a=b&model=wr%69ter")[1]["model"] == "writer"
    assert server.call("GET", "/rotation?model=%")[0] == 404
