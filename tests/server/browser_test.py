"""The page in a real browser, Debian's chromium."""
import contextlib
import http.client
import http.server
import json
import shutil
import threading
import urllib.parse

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

SECONDS = 60  # a test waits for what it wants to see, at most so long
BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(not BROWSER or not DRIVER, reason="chromium and chromium-driver are not installed")


class Page:
    """The page of a server in a tab of its own, as a browser shows it that was never there."""

    def __init__(self, driver: webdriver.Chrome, url: str, width: int = 1280, height: int = 860, scheme: str = "light"):
        self.driver = driver
        before = driver.current_window_handle
        driver.switch_to.new_window("tab")  # with a sessionStorage of its own
        new = driver.current_window_handle
        driver.switch_to.window(before)
        driver.close()
        driver.switch_to.window(new)
        driver.execute_cdp_cmd("Storage.clearDataForOrigin", {"origin": url.rstrip("/"), "storageTypes": "all"})
        for log in ("browser", "performance"):
            driver.get_log(log)  # of earlier tests
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.scheme(scheme)
        self.url, self.requested = url, []
        self.driver.get(url)
        self.driver.execute_script("localStorage.clear()")  # what the tab before stored may have come after clearDataForOrigin
        self.driver.get(url)
        self.until(lambda: self["words"].is_enabled() or self["key"].is_displayed())

    def scheme(self, name: str) -> None:
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": name}]})

    def __getitem__(self, name: str):
        return self.driver.find_element(By.ID, name)

    def until(self, what):
        return WebDriverWait(self.driver, SECONDS, 0.05).until(lambda _: what())

    def set(self, name: str, value: str) -> None:
        script = "const e = document.getElementById(arguments[0]); e.value = arguments[1]; e.dispatchEvent(new Event('input', {bubbles: true}))"
        self.driver.execute_script(script, name, value)

    def write(self, words: str) -> None:
        self["words"].send_keys(words + Keys.ENTER)

    def answer(self) -> str:
        return self.driver.execute_script("return [...document.querySelectorAll('.model-turn .words')].at(-1)?.textContent || ''")

    def count(self, selector: str) -> int:
        return len(self.driver.find_elements(By.CSS_SELECTOR, selector))

    def idle(self) -> bool:
        return self["go"].text != "Stop"

    def errors(self) -> list[str]:
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]

    def strangers(self) -> list[str]:
        """Requests to anywhere but the server."""
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                self.requested.append(message["params"]["request"]["url"])
        own = urllib.parse.urlsplit(self.url).netloc
        return [url for url in self.requested if not url.startswith("data:") and urllib.parse.urlsplit(url).netloc != own]


@pytest.fixture(scope="module")
def driver():
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking", "--hide-scrollbars"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    driver.set_page_load_timeout(SECONDS)
    yield driver
    driver.quit()


@pytest.fixture
def browse(driver, server, artefacts, request):
    def open_page(url: str = "", **options) -> Page:
        return Page(driver, url or f"{server.url}/", **options)

    yield open_page
    driver.save_screenshot(str(artefacts / f"{request.node.name}.png"))


def test_streams_an_answer_without_an_error_or_a_stranger(browse, server, artefacts):
    page = browse()
    page.driver.save_screenshot(str(artefacts / "page_empty.png"))
    page.set("max_tokens", "40")
    page.set("temperature", "0")
    page.write("Once upon a time")
    page.until(lambda: page.count(".token") > 2)
    page.until(page.idle)
    answer = page.answer()
    _, _, body = server.request("POST", "/v1/completions", {"prompt": "Once upon a time", "max_tokens": 40, "temperature": 0, "top_p": 0.95})
    assert answer == json.loads(body)["choices"][0]["text"]
    assert page.count(".token") > 20, "token by token"
    assert "tokens/s" in page["ended"].text
    page.until(lambda: " of " in page["pages"].text)
    assert page.errors() == []
    assert page.strangers() == []
    assert any(url.endswith("/v1/completions") for url in page.requested)


@contextlib.contextmanager
def below_a_path(server, path: str):
    """A proxy that shows the server below a path, and nothing elsewhere. The address of the page."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def forward(self):
            if not self.path.startswith(path):
                return self.send_error(404)
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            inner = http.client.HTTPConnection(server.host, server.port, timeout=SECONDS)
            inner.request(self.command, self.path.removeprefix(path), body or None, {"Content-Type": "application/json"})
            answer = inner.getresponse()
            self.send_response(answer.status)
            for name in ("Content-Type", "Content-Security-Policy"):
                if name in answer.headers:
                    self.send_header(name, answer.headers[name])
            self.end_headers()
            while part := answer.read1(65536):
                self.wfile.write(part)
            inner.close()

        do_GET = do_POST = forward

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as proxy:
        threading.Thread(target=proxy.serve_forever).start()
        yield f"http://127.0.0.1:{proxy.server_port}{path}/"
        proxy.shutdown()


def test_the_page_works_below_a_path(browse, server):
    with below_a_path(server, "/a/path") as url:
        page = browse(url)
        page.set("max_tokens", "5")
        page.write("Once upon a time")
        page.until(lambda: page["ended"].text.startswith("5 tokens"))
        page.until(lambda: " of " in page["pages"].text)
        assert page.errors() == [] and page.strangers() == []


def test_the_stop_button_stops_the_server_too(browse, server):
    page = browse()
    page["endless"].click()
    page.write("Once upon a time")
    page.until(lambda: page.count(".token") > 30)
    assert server.metrics()["tessera_sequences_running"] == 1
    page["go"].click()
    page.until(page.idle)
    page.until(lambda: server.metrics()["tessera_sequences_running"] == 0)
    assert "stopped by you" in page["ended"].text
    length = len(page.answer())
    assert length > 0
    page.write("")  # Continue goes on from there
    page.until(lambda: not page.idle())
    page["words"].send_keys(Keys.ESCAPE)
    page.until(page.idle)
    assert page.errors() == []


def test_settings_are_sent_and_kept(browse, server):
    page = browse()
    page.set("max_tokens", "5")
    page.set("temperature", "0")
    assert page["temperature-out"].text == "greedy"
    page.write("The dog")
    page.until(page.idle)
    page.until(lambda: page["ended"].text.startswith("5 tokens"))
    page.driver.refresh()
    page.until(lambda: page["words"].is_enabled())
    assert page["max_tokens"].get_attribute("value") == "5"
    assert page.count(".turn") == 2, "the text survives a reload"
    page["endless"].click()
    before = page["cost"].text
    page.set("window", "128")
    assert page["cost"].text != before and "132 tokens" in page["cost"].text
    page.set("window", "-3")
    page.write("")
    assert page.idle() and page.driver.switch_to.active_element.get_attribute("id") == "window"


def test_probabilities_by_mouse_and_by_keyboard(browse):
    page = browse()
    page.set("max_tokens", "12")
    page.set("temperature", "0")
    page.write("Once upon a time")
    page.until(lambda: page["go"].text == "Continue")
    token = page.driver.find_elements(By.CSS_SELECTOR, ".token")[3]
    ActionChains(page.driver).move_to_element(token).perform()
    page.until(lambda: page["card"].is_displayed())
    assert "%" in page["card"].text and page.count("#card li") >= 5
    ActionChains(page.driver).send_keys(Keys.ESCAPE).perform()
    assert not page["card"].is_displayed()
    page.driver.execute_script("document.querySelector('.model-turn .words').focus()")
    ActionChains(page.driver).send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT).perform()
    page.until(lambda: page["card"].is_displayed())
    assert "%" in page["spoken-token"].get_attribute("textContent")
    assert page.errors() == []


def test_text_is_never_markup(browse):
    page = browse()
    page.set("max_tokens", "2")
    page.write("<img src=x onerror=alert(1)><script>window.hurt = 1</script>")
    page.until(page.idle)
    page.until(lambda: page.count(".turn") == 2)
    assert page.count("#text img") == 0 and page.count("#text script") == 0
    assert "<img src=x" in page["text"].text
    assert page.driver.execute_script("return window.hurt") is None
    assert page.errors() == []


def test_what_a_screen_reader_hears(browse):
    page = browse()
    assert page.driver.execute_script(
        "return [...document.querySelectorAll('input, textarea, button')].filter(e => !e.labels?.length && !e.textContent.trim() && !e.ariaLabel).map(e => e.id)") == []
    headings = page.driver.execute_script("return [...document.querySelectorAll('aside h2')].map(e => e.textContent)")
    assert headings == ["Right now", "Sampling", "Endless stream", "API key"], "no words of buttons"
    for name, value, words in (("temperature", "0", "greedy"), ("temperature", "0.5", "0.50"), ("top_p", "1", "off")):
        page.set(name, value)
        assert page[name].get_attribute("aria-valuetext") == words == page[f"{name}-out"].text
    page.set("max_tokens", "30")
    page.write("Once upon a time")
    page.until(page.idle)
    spoken = page["spoken"].get_attribute("textContent")
    assert spoken.startswith("Writing.") and "Finished: " in spoken
    assert page.count("#spoken p") < 12, "sentences, not tokens"


def test_a_refusal_is_said_in_plain_words(browse):
    page = browse()
    page.set("max_tokens", "2")
    page.set("words", "word " * 1000)
    page.write("")
    page.until(lambda: page.count(".notice") == 1)
    assert "Endless stream" in page.driver.find_element(By.CSS_SELECTOR, ".notice p").text, "it says what to do on this page"


def test_a_key_is_asked_for_and_used(browse, start, artefacts):
    guarded = start("guarded", "--api-key", "a-secret-of-tests")
    page = browse(f"{guarded.url}/")
    page.driver.save_screenshot(str(artefacts / "page_key.png"))
    page["key"].send_keys("wrong" + Keys.ENTER)
    page.until(lambda: "not accepted" in page["gate-words"].text)
    page["key"].send_keys("a-secret-of-tests" + Keys.ENTER)
    page.until(lambda: page["words"].is_enabled())
    page.set("max_tokens", "3")
    page.write("Once")
    page.until(lambda: page["ended"].text.startswith("3 tokens"))
    assert "a-secret-of-tests" not in page.driver.execute_script("return JSON.stringify(localStorage)")


@pytest.mark.parametrize(("width", "scheme"), [(1280, "dark"), (390, "light"), (320, "dark")])
def test_no_width_and_no_scheme_breaks_it(browse, width, scheme):
    page = browse(width=width, height=800, scheme=scheme)
    page.set("max_tokens", "60")
    page.write("Once upon a time")
    page.until(page.idle)
    assert page.driver.execute_script("return document.documentElement.scrollWidth <= innerWidth"), "nothing to scroll sideways"
    assert page.driver.execute_script("return document.documentElement.dataset.theme") == scheme
    if width < 600:
        page["open-panel"].click()
        page.until(lambda: page["temperature"].is_displayed())
        page["close-panel"].click()
        page.until(lambda: not page["temperature"].is_displayed())
    assert page.errors() == []


def test_the_theme_button(browse):
    page = browse(scheme="dark")

    def theme() -> tuple[str, str]:
        return page["theme"].text, page.driver.execute_script("return document.documentElement.dataset.theme")

    assert theme() == ("Automatic", "dark")
    page["theme"].click()
    assert theme() == ("Light", "light") and "light" in page["theme"].get_attribute("aria-label")
    page.driver.refresh()
    page.until(lambda: page["words"].is_enabled())
    assert theme() == ("Light", "light"), "a reload keeps it"
    page["theme"].click()
    assert theme() == ("Dark", "dark")
    page["theme"].click()
    assert theme() == ("Automatic", "dark")
    page.scheme("light")  # the system's own changes
    page.until(lambda: theme() == ("Automatic", "light"))
    assert page.errors() == []


def settings_of(page) -> dict:
    script = "return Object.fromEntries([...document.querySelectorAll('#panel input, #panel textarea')].map(e => [e.id, e.type === 'checkbox' ? e.checked : e.value]))"
    return page.driver.execute_script(script)


def test_defaults(browse):
    page = browse()
    before = settings_of(page)
    assert before["temperature"] == "0.8" and before["max_tokens"] == "200" and before["endless"] is False
    page["endless"].click()
    page["shades"].click()
    changed = {"temperature": "0.3", "top_p": "0.5", "max_tokens": "7", "seed": "5", "top_k": "9", "min_p": "0.1", "presence_penalty": "1", "frequency_penalty": "1", "stop": "a\nb",
               "attention_sinks": "8", "window": "99"}
    for name, value in changed.items():
        page.set(name, value)
    assert settings_of(page) == before | changed | {"endless": True, "shades": True}
    page["defaults"].click()
    assert settings_of(page) == before and page["temperature-out"].text == "0.80"
    page.driver.refresh()
    page.until(lambda: page["words"].is_enabled())
    assert settings_of(page) == before


def test_the_server_s_own_window_is_a_default(browse, start):
    windowed = start("page-window", "--attention-sinks", "2", "--window", "96")
    page = browse(f"{windowed.url}/")
    assert (settings_of(page)["attention_sinks"], settings_of(page)["window"]) == ("2", "96")
    assert "98 tokens at a time" in page["cost"].text, "without the switch too: it is the server's"
    page["endless"].click()
    page.set("window", "32")
    assert "34 tokens at a time" in page["cost"].text
    page["defaults"].click()
    assert (settings_of(page)["attention_sinks"], settings_of(page)["window"]) == ("2", "96")


def test_copy(browse, server):
    page = browse()
    page.driver.execute_cdp_cmd("Browser.grantPermissions", {"origin": server.url, "permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]})
    page.set("max_tokens", "8")
    page.write("Once upon a time")
    page.until(lambda: page["go"].text == "Continue")
    page["copy"].click()
    page.until(lambda: page["toast"].is_displayed())
    assert page["toast-words"].text == "Copied." and not page["toast-undo"].is_displayed()
    copied = page.driver.execute_async_script("navigator.clipboard.readText().then(arguments[0], e => arguments[0](String(e)))")
    assert copied == "Once upon a time" + page.answer()
    assert page.errors() == []


def test_start_over_and_undo(browse):
    page = browse()
    page.set("max_tokens", "5")
    page.write("Once upon a time")
    page.until(lambda: page["go"].text == "Continue")
    text = page["text"].text
    page["clear"].click()
    assert page.count(".turn") == 0 and page["empty"].is_displayed() and page["toast-words"].text == "Started over."
    page["toast-undo"].click()
    assert page["text"].text == text and page.count(".turn") == 2 and not page["toast"].is_displayed()
    page.driver.refresh()
    page.until(lambda: page["words"].is_enabled())
    assert page["text"].text == text, "what was brought back is kept"
    page["clear"].click()
    page.driver.refresh()
    page.until(lambda: page["words"].is_enabled())
    assert page.count(".turn") == 0


def test_new_words_end_the_undo(browse):
    """The old text and the new one must not be mixed."""
    page = browse()
    page.set("max_tokens", "2")
    page.write("Once upon a time")
    page.until(lambda: page["go"].text == "Continue")
    page["clear"].click()
    page.write("The dog")
    page.until(lambda: page["go"].text == "Continue")
    assert page.count(".turn") == 2 and page.driver.find_element(By.CSS_SELECTOR, ".you .words").text == "The dog"
    assert not page["toast"].is_displayed()


# Of each text that is shown, and of each placeholder: its contrast with what lies behind it (WCAG 2.2, 1.4.3), if that is
# low. Disabled controls are exempt, gradients and images are not used.
CONTRASTS = """
const ink = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
const known = new Map();
const read = (color) => { ink.clearRect(0, 0, 1, 1); ink.fillStyle = color; ink.fillRect(0, 0, 1, 1); const [r, g, b, a] = ink.getImageData(0, 0, 1, 1).data; return [r, g, b, a / 255]; };
const rgba = (color) => { if (!known.has(color)) known.set(color, read(color)); return known.get(color); };
const over = ([r, g, b, a], below) => [r, g, b].map((c, i) => c * a + below[i] * (1 - a)).concat(1);
const behind = (node) => { const own = rgba(getComputedStyle(node).backgroundColor); return own[3] === 1 ? own : over(own, node.parentElement ? behind(node.parentElement) : [255, 255, 255, 1]); };
const part = (c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
const light = ([r, g, b]) => 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
const ratio = (a, b) => { const [low, high] = [light(a), light(b)].sort((x, y) => x - y); return (high + 0.05) / (low + 0.05); };
const found = [];
for (const node of document.body.querySelectorAll('*')) {
  if (!node.checkVisibility({opacityProperty: true, visibilityProperty: true}) || node.disabled || node.closest('script, :disabled, .unseen')) continue;
  const looks = [], name = `${node.tagName}#${node.id}.${node.className} ${node.textContent.trim().slice(0, 30)}`;
  if ([...node.childNodes].some((child) => child.nodeType === Node.TEXT_NODE && child.data.trim()) || (node.matches('textarea, input:not([type=checkbox], [type=range])') && node.value)) looks.push([name, getComputedStyle(node)]);
  if (node.placeholder && !node.value) looks.push([`${name} placeholder`, getComputedStyle(node, '::placeholder')]);
  const back = behind(node);
  for (const [what, look] of looks) found.push([what, ratio(over(rgba(look.color), back), back)]);
}
return found;
"""


def low_contrasts(page, seen: set) -> list:
    found = page.driver.execute_script(CONTRASTS)
    seen.update(name for name, _ in found)
    return [(name, round(ratio, 2)) for name, ratio in found if ratio < 4.5]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_stands_out(browse, server, chat_server, scheme):
    """4.5 to 1 in both themes: before the first words, beside a text, in a chat, on the card of a token, in a notice."""
    page, seen = browse(scheme=scheme), set()
    page.driver.execute_script("document.querySelector('details').open = true")
    low = low_contrasts(page, seen)
    for step in ("shades", "endless"):
        page[step].click()
    page.set("max_tokens", "12")
    page.set("window", "200")
    page["endless"].click()
    page.write("Once upon a time")
    page.until(lambda: page["go"].text == "Continue")
    page.driver.execute_script("document.querySelectorAll('.token').forEach((token, i) => { token.dataset.odds = i % 5; })")
    ActionChains(page.driver).move_to_element(page.driver.find_elements(By.CSS_SELECTOR, ".token")[2]).perform()
    page.until(lambda: page["card"].is_displayed())
    low += low_contrasts(page, seen)
    page.set("words", "word " * 1000)
    page.write("")
    page.until(lambda: page.count(".notice") == 1)
    low += low_contrasts(page, seen)
    page["clear"].click()
    low += low_contrasts(page, seen)
    page = browse(f"{chat_server.url}/", scheme=scheme)
    low += low_contrasts(page, seen)
    page["endless"].click()
    page.write("Tell me about a dog.")
    page.until(lambda: page.count(".token") > 2)
    low += low_contrasts(page, seen)
    page["go"].click()
    page.until(page.idle)
    assert not low, low
    assert len(seen) > 60, "texts were looked at"
    for part in ("toast-words", "B#. ", "Try again", "token", "primary stop", "placeholder"):
        assert any(part in name for name in seen), (part, seen)


# ---- a model with a chat template ----


@pytest.fixture(scope="module")
def chat_server(start, chat_model):
    return start("chat-page", "--model", str(chat_model))


def answer_to(server, *messages: tuple[str, str], max_tokens: int) -> str:
    """What the API answers to the conversation, with the page's other settings."""
    turns = [{"role": role, "content": words} for role, words in messages]
    asked = {"messages": turns, "max_tokens": max_tokens, "temperature": 0, "top_p": 0.95}
    status, _, body = server.request("POST", "/v1/chat/completions", asked)
    assert status == 200, body
    return json.loads(body)["choices"][0]["message"]["content"]


def say(page, words: str) -> str:
    """Sends a message and waits for the whole answer."""
    turns = page.count(".turn")
    page.write(words)
    page.until(lambda: page.count(".turn") == turns + 2)
    page.until(page.idle)
    return page.answer()


def test_a_chat_turn_by_turn(browse, chat_server, artefacts):
    page = browse(f"{chat_server.url}/")
    page.driver.save_screenshot(str(artefacts / "page_chat_empty.png"))
    assert page["empty-title"].text == "What would you like to know?" and page["system-field"].is_displayed()
    assert page["go"].text == "Send" and not page["go"].is_enabled(), "there is nothing to send yet"
    page.set("max_tokens", "24")
    page.set("temperature", "0")
    first = say(page, "Tell me about a dog.")
    speakers = [node["name"]["value"] for node in page.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"] if node.get("role", {}).get("value") == "StaticText"]
    assert "You" in speakers and "stories-chat" in speakers, "a screen reader says who speaks"
    assert first == answer_to(chat_server, ("user", "Tell me about a dog."), max_tokens=24)
    assert page.count(".token") > 12, "token by token"
    second = say(page, "And then?")
    conversation = [("user", "Tell me about a dog."), ("assistant", first), ("user", "And then?")]
    assert second == answer_to(chat_server, *conversation, max_tokens=24), "the page sends what was said before"
    assert page["text"].get_attribute("class").split()[0] == "chat" and page.count(".turn") == 4
    assert page.driver.find_element(By.CSS_SELECTOR, ".you .words").text == "Tell me about a dog."
    assert page["go"].text == "Send", "a chat has no Continue"
    page.driver.refresh()
    page.until(lambda: page["words"].is_enabled())
    assert page.count(".turn") == 4 and page.answer() == second, "the conversation survives a reload"
    assert page.errors() == []
    assert page.strangers() == []
    assert any(url.endswith("/v1/chat/completions") for url in page.requested)
    assert not any(url.endswith("/v1/completions") for url in page.requested)


def test_a_system_message_trying_again_and_taking_back(browse, chat_server):
    page = browse(f"{chat_server.url}/")
    page.set("max_tokens", "16")
    page.set("temperature", "0")
    page.set("system", "Tell a story.")
    said = [("system", "Tell a story."), ("user", "About a cat.")]
    answer = say(page, "About a cat.")
    assert answer == answer_to(chat_server, *said, max_tokens=16)
    assert page.count(".turn") == 2, "the system message is no turn"
    page["again"].click()
    page.until(lambda: page.idle() and page.answer() == answer)
    page["back"].click()
    assert page.count(".turn") == 0 and page["words"].get_attribute("value") == "About a cat."
    assert page.errors() == []


def test_probabilities_and_the_stop_button_in_a_chat(browse, chat_server):
    page = browse(f"{chat_server.url}/")
    page["endless"].click()
    page.write("Tell me a very long story.")
    page.until(lambda: page.count(".token") > 20)
    page["go"].click()
    page.until(page.idle)
    page.until(lambda: chat_server.metrics()["tessera_sequences_running"] == 0)
    assert "stopped by you" in page["ended"].text
    token = page.driver.find_elements(By.CSS_SELECTOR, ".token")[2]

    def shows_a_card():  # a long answer is still scrolling when the mouse arrives
        page.driver.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", token)
        ActionChains(page.driver).move_to_element(page["go"]).move_to_element(token).perform()
        return page["card"].is_displayed()

    page.until(shows_a_card)
    assert "%" in page["card"].text and page.count("#card li") >= 5
    assert page.errors() == []


def test_words_of_a_chat_are_never_markup(browse, chat_server):
    page = browse(f"{chat_server.url}/", width=390, height=800)
    page.set("max_tokens", "2")
    say(page, "<img src=x onerror=alert(1)><script>window.hurt = 1</script>")
    assert page.count("#text img") == 0 and page.count("#text script") == 0
    assert page.driver.execute_script("return window.hurt") is None
    assert page.driver.execute_script("return document.documentElement.scrollWidth <= innerWidth"), "nothing to scroll sideways"
    assert page.errors() == []
