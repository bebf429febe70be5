// Google's SDK for Node.
import { GoogleGenAI } from "@google/genai";
import { description, google, model, prompt, schema, stream, printResult, weather } from "./harness.mjs";

const client = new GoogleGenAI({ apiKey: "none", httpOptions: { baseUrl: google } });
const contents = [{ role: "user", parts: [{ text: prompt }] }];
const config = {
  tools: [{ functionDeclarations: [{ name: "get_weather", description, parametersJsonSchema: schema }] }],
};

async function send() {
  if (!stream) return (await client.models.generateContent({ model, contents, config })).candidates[0].content.parts;
  const parts = [];
  for await (const chunk of await client.models.generateContentStream({ model, contents, config }))
    parts.push(...(chunk.candidates?.[0]?.content?.parts ?? []));
  return parts;
}

for (;;) {
  const parts = await send();
  const calls = parts.filter((part) => part.functionCall).map((part) => part.functionCall);
  if (!calls.length) {
    printResult(parts.map((part) => part.text ?? "").join(""), "@google/genai");
    break;
  }
  contents.push({ role: "model", parts });
  contents.push({
    role: "user",
    parts: calls.map(({ id, name, args }) => ({ functionResponse: { id, name, response: { output: weather(args) } } })),
  });
}
