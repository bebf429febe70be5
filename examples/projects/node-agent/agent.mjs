// An agent in Node without packages: it calls a model over HTTP, and runs its tools.
// usage: node agent.mjs "Refund order 7"
const url = `${process.env.OPENAI_BASE_URL ?? "https://api.openai.com/v1"}/chat/completions`;
const orders = { 7: "a kettle, 30 EUR" };
const seen = new Set();

const tools = {
  find_order: ({ order }) => {
    if (!orders[order]) return `there is no order ${order}`;
    seen.add(order);
    return `order ${order}: ${orders[order]}`;
  },
  refund: ({ order }) => (seen.has(order) ? `refunded order ${order}` : "look up the order first"),
};
const parameters = {
  type: "object",
  properties: { order: { type: "integer" } },
  required: ["order"],
};
const offered = Object.keys(tools).map((name) => ({
  type: "function",
  function: { name, description: name.replace("_", " "), parameters },
}));

// What the model writes is input: unknown tools and invalid arguments are results, not exceptions.
function runTool({ name, arguments: text }) {
  if (!Object.hasOwn(tools, name)) return `there is no tool ${name}`;
  try {
    const values = JSON.parse(text);
    if (!Number.isInteger(values?.order)) return "order must be an integer";
    return tools[name](values);
  } catch (error) {
    return `invalid arguments: ${error.message}`;
  }
}

const messages = [{ role: "user", content: process.argv[2] }];
for (;;) {
  const response = await fetch(url, {
    method: "POST",
    headers: {
      "content-type": "application/json",
      authorization: `Bearer ${process.env.OPENAI_API_KEY}`,
    },
    body: JSON.stringify({ model: "gpt-4.1-mini", messages, tools: offered }),
  });
  if (!response.ok) throw new Error(`${response.status}: ${await response.text()}`);
  const { message } = (await response.json()).choices[0];
  messages.push(message);
  if (!message.tool_calls?.length) {
    console.log(message.content);
    break;
  }
  for (const call of message.tool_calls) {
    messages.push({ role: "tool", tool_call_id: call.id, content: runTool(call.function) });
  }
}
