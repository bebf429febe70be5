interface Message {
  role: string;
  content: unknown;
}

const base = process.env.ANTHROPIC_BASE_URL ?? "https://api.anthropic.com";

function freeSlots(day: string): string[] {
  const slots: Record<string, string[]> = { monday: ["09:00", "11:00"], tuesday: ["15:00"] };
  return slots[day.toLowerCase()] ?? [];
}

async function complete(messages: Message[]): Promise<any> {
  const response = await fetch(`${base}/v1/messages`, {
    method: "POST",
    headers: {
      "content-type": "application/json",
      "anthropic-version": "2023-06-01",
      "x-api-key": process.env.ANTHROPIC_API_KEY ?? "",
    },
    body: JSON.stringify({
      model: "claude-sonnet-4-5",
      max_tokens: 500,
      messages,
      tools: [
        {
          name: "free_slots",
          description: "The free hours of a day",
          input_schema: {
            type: "object",
            properties: { day: { type: "string", enum: ["monday", "tuesday"] } },
            required: ["day"],
          },
        },
      ],
    }),
  });
  return response.json();
}

const messages: Message[] = [{ role: "user", content: process.argv[2] }];
let reply = await complete(messages);
while (reply.stop_reason === "tool_use") {
  messages.push({ role: "assistant", content: reply.content });
  const results = reply.content
    .filter((block: any) => block.type === "tool_use")
    .map((block: any) => ({
      type: "tool_result",
      tool_use_id: block.id,
      content: freeSlots(block.input.day).join(", "),
    }));
  messages.push({ role: "user", content: results });
  reply = await complete(messages);
}
console.log(reply.content[0].text);
