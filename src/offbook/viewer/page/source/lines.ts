// The data of the page: lines of JSON, compressed with gzip, in base 85.
//
// A line that is an object is a record: the page itself, a trace that begins, its damaged lines,
// a case of an eval run. A line that is an array is an event of the last trace:
//   [ms since the event before, name, data, {seq, id, context, parent}?]

const ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%,()*+-;.=:?@^_`{|}~";

const PART = 80_000; // characters of a part: a multiple of five

/** Yield the bytes of a text in base 85, four for five characters, in parts. */
export function* decodeBase85(text: string): Generator<Uint8Array<ArrayBuffer>> {
  const values = new Uint8Array(128).fill(255);
  for (let i = 0; i < 85; i++) values[ALPHABET.charCodeAt(i)] = i;
  for (let start = 0; start < text.length; start += PART) {
    const part = text.slice(start, start + PART);
    const groups = Math.ceil(part.length / 5);
    const missing = groups * 5 - part.length;
    const padded = part.padEnd(groups * 5, "~");
    const bytes = new Uint8Array(groups * 4 - missing);
    let at = 0;
    for (let group = 0; group < groups; group++) {
      let value = 0;
      for (let i = 0; i < 5; i++) value = value * 85 + (values[padded.charCodeAt(group * 5 + i)] ?? 0);
      for (let shift = 24; shift >= 0 && at < bytes.length; shift -= 8) {
        bytes[at++] = (value >>> shift) & 255;
      }
    }
    yield bytes;
  }
}

/** Yield the decompressed parts of gzip data. */
export async function* gunzip(parts: Generator<Uint8Array<ArrayBuffer>>): AsyncGenerator<Uint8Array> {
  const compressed = new ReadableStream<Uint8Array<ArrayBuffer>>({
    pull(controller) {
      const { done, value } = parts.next();
      if (done) controller.close();
      else controller.enqueue(value);
    },
  });
  const reader = compressed.pipeThrough(new DecompressionStream("gzip")).getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    yield value;
  }
}

/** Splits parts of a stream into lines, as bytes: most of them are never decoded twice. */
export class LineSplitter {
  private pending: Uint8Array[] = [];

  constructor(private readonly onLine: (line: Uint8Array) => void) {}

  add(part: Uint8Array): void {
    let start = 0;
    for (let end = part.indexOf(10); end >= 0; end = part.indexOf(10, start)) {
      const line = part.subarray(start, end);
      this.onLine(this.pending.length ? join([...this.pending, line]) : line);
      this.pending = [];
      start = end + 1;
    }
    if (start < part.length) this.pending.push(part.slice(start));
  }

  end(): void {
    if (this.pending.length) this.onLine(join(this.pending));
    this.pending = [];
  }
}

function join(parts: Uint8Array[]): Uint8Array {
  const whole = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}
