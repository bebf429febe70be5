// Ask a model by one of the clients of Node: node ask.mjs CLIENT URL BODY
import { Buffer } from "node:buffer";
import https from "node:https";
import http2 from "node:http2";
import tls from "node:tls";

const [, , client, url, body] = process.argv;
const { hostname, pathname } = new URL(url);
const print = (text) => console.log(String(text));

const clients = {
  https: () =>
    https
      .request(url, { method: "POST" }, (reply) => reply.on("data", print))
      .end(body),
  tls: () => {
    const head = `POST ${pathname} HTTP/1.1\r\nHost: ${hostname}\r\nConnection: close`;
    const socket = tls.connect({ host: hostname, port: 443, servername: hostname });
    socket.on("data", print);
    socket.write(`${head}\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`);
  },
  http2: () => {
    const session = http2.connect(new URL(url).origin);
    session.on("error", (error) => print(error.message));
    session.request({ ":method": "POST", ":path": pathname }).on("error", () => {}).end(body);
  },
  axios: async () => print((await (await import("axios")).default.post(url, body, { responseType: "text" })).data),
  got: async () => print(await (await import("got")).default.post(url, { body, retry: { limit: 0 } }).text()),
  undici: async () => print(await (await (await import("undici")).request(url, { method: "POST", body })).body.text()),
  superagent: async () => print((await (await import("superagent")).default.post(url).type("json").send(body)).text),
};
await clients[client]();
