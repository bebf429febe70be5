// A page of a server: `<meta name="offbook-live" content="URL">` names a stream of server-sent
// events. Each message has lines of the page's data, in the format of lines.ts. The server names
// each message with an id, and after an interruption continues after the id that the browser sends.

import { ask } from "./client.ts";
import type { PageInfo } from "./store.ts";

const PAUSE = 100; // ms between two updates of the page

export function startLive(url: string, onInfo: (info: PageInfo) => void, onState: (text: string) => void): void {
  const source = new EventSource(url);
  let lines: string[] = [];
  let timer = 0;
  const flush = () => {
    timer = 0;
    const fresh = lines;
    lines = [];
    void ask<PageInfo>({ ask: "feed", lines: fresh }).then(onInfo);
  };
  source.onmessage = ({ data }: MessageEvent<string>) => {
    lines.push(...data.split("\n"));
    if (!timer) timer = window.setTimeout(flush, PAUSE);
  };
  source.onopen = () => onState("Live");
  source.onerror = () => onState(source.readyState === EventSource.CLOSED ? "The server has ended the stream." : "Waiting for the server …");
  source.addEventListener("end", () => {
    source.close();
    if (lines.length) flush();
    onState("The run has ended.");
  });
}
