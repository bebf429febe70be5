// The arguments, the tool and the result line of every script here.
import { readFileSync } from "node:fs";
import { join } from "node:path";

export const [variant, mode, prompt] = process.argv.slice(2);
export const stream = mode === "stream";
export const model = "offbook-1";
export const { OPENAI_BASE_URL: openai, ANTHROPIC_BASE_URL: anthropic, GOOGLE_GEMINI_BASE_URL: google } = process.env;
export const schema = {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
  additionalProperties: false,
};
export const description = "Get the weather.";

export const weather = ({ city }) => `21 degrees in ${city}`;

export function printResult(text, ...packages) {
  const versions = packages.map((name) => {
    const manifest = join(process.env.PREFIX, "node_modules", name, "package.json");
    return `${name} ${JSON.parse(readFileSync(manifest)).version}`;
  });
  console.log(JSON.stringify({ text, versions: versions.join(" ") }));
}
