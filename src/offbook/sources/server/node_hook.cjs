// Directs the connections of a Node process to the proxy of its run: see proxy.py.
//
// `fetch` does not read HTTPS_PROXY before Node 24, and many clients never do. The proxy finds the
// host in the first message of TLS, or in the Host header.
"use strict";
const dgram = require("dgram");
const dns = require("dns");
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

// Names that a program looks up itself, and datagrams: the proxy notes and refuses them.
const isOpen = (host) =>
  isLocal(host) || allowed.some((entry) => entry === host || entry.startsWith(`${host}:`));

const refuse = (host, to) => {
  const report = connect.call(new net.Socket(), { host: "127.0.0.1", port: Number(port) });
  report.on("error", () => {});
  report.end(`CONNECT ${host}:${to} HTTP/1.1\r\n\r\n`);
  const error = new Error(`refused by Offbook: ${host}`);
  return Object.assign(error, { code: "ENOTFOUND", hostname: host });
};

const guardLookups = (target, isRefused, fail) => {
  for (const name of Object.getOwnPropertyNames(target)) {
    const original = target[name];
    if (typeof original !== "function" || !/^(lookup|resolve|reverse)/.test(name)) continue;
    target[name] = function (host, ...rest) {
      return isRefused(name, host) ? fail(refuse(host, 0), rest) : original.call(this, host, ...rest);
    };
  }
};

if (tlsPort) {
  const isRefused = (name, host) =>
    !isOpen(host) && !(name === "lookup" && net.isIP(host)) && typeof host === "string";
  const callBack = (error, rest) => process.nextTick(rest.at(-1), error);
  guardLookups(dns, isRefused, callBack);
  guardLookups(dns.Resolver.prototype, isRefused, callBack);
  guardLookups(Object.getPrototypeOf(dns.Resolver.prototype), isRefused, callBack);
  guardLookups(dns.promises, isRefused, (error) => Promise.reject(error));
  guardLookups(dns.promises.Resolver.prototype, isRefused, (error) => Promise.reject(error));

  const { send, connect: connectDatagrams } = dgram.Socket.prototype;
  const failDatagram = (socket, host, to, callback) => {
    const error = refuse(host, to);
    if (typeof callback === "function") process.nextTick(callback, error);
    else process.nextTick(() => socket.emit("error", error));
  };
  dgram.Socket.prototype.send = function (message, ...rest) {
    const index = rest.findIndex((value) => typeof value === "string");
    if (index < 0 || isOpen(rest[index])) return send.call(this, message, ...rest);
    return failDatagram(this, rest[index], rest[index - 1], rest.at(-1));
  };
  dgram.Socket.prototype.connect = function (to, host, callback) {
    if (typeof host !== "string" || isOpen(host)) return connectDatagrams.call(this, to, host, callback);
    return failDatagram(this, host, to, callback);
  };
}
