// Directs the connections of a Node process to the proxy of its run: see proxy.py.
//
// `fetch` does not read HTTPS_PROXY before Node 24, and many clients never do. The proxy finds the
// host in the first message of TLS, or in the Host header.
"use strict";
const net = require("net");
const tls = require("tls");

const [port, tlsPort, ...allowed] = (process.env.OFFBOOK_PROXY ?? "").split(",");
const isLocal = (host) =>
  !host || /^(localhost|.*\.localhost|127\.[\d.]+|::1|::|0\.0\.0\.0)$/i.test(host);
const isAllowed = (host, to) => allowed.includes(host) || allowed.includes(`${host}:${to}`);
const connect = net.Socket.prototype.connect;

net.Socket.prototype.connect = function (...given) {
  const first = Array.isArray(given[0]) ? given[0][0] : given[0];
  const options = typeof first === "object" ? first : { port: given[0], host: given[1] };
  const host = options.host ?? options.hostname;
  if (!tlsPort || options.path || isLocal(host) || isAllowed(host, options.port)) {
    return connect.apply(this, given);
  }
  const secure = this instanceof tls.TLSSocket;
  const directed = {
    ...options,
    host: "127.0.0.1",
    port: Number(secure ? tlsPort : port),
    lookup: undefined,
    family: 4,
  };
  const callback = given.flat().findLast((value) => typeof value === "function");
  return callback ? connect.call(this, directed, callback) : connect.call(this, directed);
};
