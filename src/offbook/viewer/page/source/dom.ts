// Elements are made here, and only with text: nothing of a trace is ever parsed as HTML.

type Child = Node | string | null | undefined | false;
type Properties = {
  class?: string; id?: string; title?: string; role?: string; type?: string; value?: string; for?: string;
  tabindex?: number; open?: boolean; disabled?: boolean; placeholder?: string; hidden?: boolean; scope?: string;
  autocomplete?: string; spellcheck?: string; colspan?: number;
  aria?: { [name: string]: string | number | boolean };
  data?: { [name: string]: string | number };
  on?: { [event: string]: (event: Event) => void };
};

export function h<K extends keyof HTMLElementTagNameMap>(tag: K, properties: Properties = {}, ...children: Child[]): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === false) continue;
    if (name === "aria") for (const [key, text] of Object.entries(value)) element.setAttribute(`aria-${key}`, String(text));
    else if (name === "data") for (const [key, text] of Object.entries(value)) element.dataset[key] = String(text);
    else if (name === "on") for (const [key, listener] of Object.entries(value)) element.addEventListener(key, listener as (event: Event) => void);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((child): child is Node | string => Boolean(child)));
  return element;
}

export function button(label: string, onClick: () => void, properties: Properties = {}): HTMLButtonElement {
  return h("button", { type: "button", ...properties, on: { click: onClick } }, label);
}

export function clear(element: Element, ...children: Child[]): void {
  element.replaceChildren(...children.filter((child): child is Node | string => Boolean(child)));
}

const UNSAFE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/;

/** Control characters as symbols: a text can neither hide nor reorder what is beside it. */
export function visible(text: string): string {
  if (!UNSAFE.test(text)) return text;
  return text
    .replace(/\r\n/g, "\n")
    .replace(/[\u0000-\u0008\u000b-\u001f]/g, (char) => String.fromCharCode(0x2400 + char.charCodeAt(0)))
    .replace(/\u007f/g, "\u2421")
    .replace(/[\u0080-\u009f]/g, "\ufffd")
    .replace(/[\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, (char) => `⟨U+${char.charCodeAt(0).toString(16).toUpperCase()}⟩`);
}

/** A name that breaks between its words: a long one would break inside of a word. */
export function breakable(name: string): Child[] {
  return name.split(/(?<=::|[_/])/).flatMap((part, at) => (at ? [h("wbr"), part] : [part]));
}

const LONG = 20_000;

/** A text as it is, in a block; a long one is shown in parts. */
export function textBlock(text: string, className = "text"): HTMLElement {
  const shown = visible(text);
  if (shown.length <= LONG) return h("pre", { class: className, tabindex: 0 }, shown);
  const block = h("pre", { class: className, tabindex: 0 }, shown.slice(0, LONG));
  const more = button(`Show all ${shown.length.toLocaleString("en")} characters`, () => {
    block.textContent = shown;
    more.remove();
  }, { class: "more" });
  return h("div", {}, block, more);
}

export function duration(ms: number): string {
  if (ms < 0) return "";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 2 : 1)} s`;
  const minutes = Math.floor(ms / 60_000);
  if (minutes < 60) return `${minutes} min ${Math.round((ms % 60_000) / 1000)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

export function money(dollars: number): string {
  return dollars > 0 ? `$${dollars < 0.01 ? dollars.toFixed(4) : dollars.toFixed(2)}` : "";
}

export function count(number: number, noun: string): string {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}

/** Make an element's children with a function when it is opened. */
export function disclosure(summary: Child[], fill: (body: HTMLElement) => void, open = false, className = ""): HTMLDetailsElement {
  const body = h("div", { class: "body" });
  const element = h("details", { class: className }, h("summary", {}, ...summary), body);
  let filled = false;
  const fillOnce = () => {
    if (!filled && element.open) {
      filled = true;
      fill(body);
    }
  };
  element.addEventListener("toggle", fillOnce);
  if (open) {
    element.open = true;
    fillOnce();
  }
  return element;
}

/** A button that copies a text; its label says what came of it. */
export function copyButton(label: string, make: () => string | Promise<string>): HTMLButtonElement {
  const element: HTMLButtonElement = button(label, () => void (async () => {
    const text = await make();
    try {
      await navigator.clipboard.writeText(text);
      element.textContent = "Copied";
    } catch { // a page from disk may have no clipboard: the text can be selected
      element.after(textBlock(text));
      element.hidden = true;
    }
    window.setTimeout(() => { element.textContent = label; }, 2000);
  })(), { class: "more" });
  return element;
}
