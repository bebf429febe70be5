// Google's own client for Node.
import { GoogleGenAI } from "@google/genai";
import { about, google, model, prompt, schema, stream, tell, weather } from "./told.mjs";

const client = new GoogleGenAI({ apiKey: "none", httpOptions: { baseUrl: google } });
const contents = [{ role: "user", parts: [{ text: prompt }] }];
const config = {
  tools: [{ functionDeclarations: [{ name: "get_weather", description: about, parametersJsonSchema: schema }] }],
};

async function ask() {
  if (!stream) return (await client.models.generateContent({ model, contents, config })).candidates[0].content.parts;
  const parts = [];
  for await (const chunk of await client.models.generateContentStream({ model, contents, config }))
    parts.push(...(chunk.candidates?.[0]?.content?.parts ?? []));
  return parts;
}

for (;;) {
  const parts = await ask();
  const calls = parts.filter((part) => part.functionCall).map((part) => part.functionCall);
  if (!calls.length) {
    tell(parts.map((part) => part.text ?? "").join(""), "@google/genai");
    break;
  }
  contents.push({ role: "model", parts });
  contents.push({
    role: "user",
    parts: calls.map(({ id, name, args }) => ({ functionResponse: { id, name, response: { output: weather(args) } } })),
  });
}
