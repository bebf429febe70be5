// The page's side of the worker: one promise for each question.

import type { Question } from "./worker.ts";

type Waiting = { resolve: (value: unknown) => void; reject: (error: Error) => void };

interface Policy { createScriptURL(url: string): unknown }
declare const trustedTypes: { createPolicy(name: string, rules: { createScriptURL: (url: string) => string }): Policy } | undefined;

let worker: Worker | null = null;
let count = 0;
const waiting = new Map<number, Waiting>();

/** Start the worker from the page's own script: the only script that the policy permits. */
export function connect(script: string): void {
  const url = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
  const trusted = typeof trustedTypes === "undefined" ? url
    : trustedTypes.createPolicy("offbook", { createScriptURL: (given) => (given === url ? given : "") }).createScriptURL(url);
  worker = new Worker(trusted as string);
  worker.onmessage = ({ data }: MessageEvent<{ id: number; value?: unknown; error?: string }>) => {
    const entry = waiting.get(data.id);
    waiting.delete(data.id);
    if (data.error === undefined) entry?.resolve(data.value);
    else entry?.reject(new Error(data.error));
  };
  worker.onerror = (event) => {
    for (const entry of waiting.values()) entry.reject(new Error(event.message || "the worker failed"));
    waiting.clear();
  };
}

export function ask<T>(question: Question): Promise<T> {
  return new Promise((resolve, reject) => {
    const id = ++count;
    waiting.set(id, { resolve: resolve as (value: unknown) => void, reject });
    worker!.postMessage({ id, question });
  });
}
