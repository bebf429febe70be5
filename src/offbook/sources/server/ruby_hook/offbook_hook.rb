# Directs the connections of a Ruby process to the proxy of its run: see proxy.py.
#
# Net::HTTP reads http_proxy, but looks up the name of the host before, and other clients do not
# read it. The proxy finds the host in the first message of TLS, or in the Host header.
require "socket"

module OffbookProxy
  PORT, TLS_PORT, *ALLOWED = ENV.fetch("OFFBOOK_PROXY", "").split(",")
  LOCAL = /\A(|localhost|.*\.localhost|127\.[\d.]+|::1|::|0\.0\.0\.0)\z/i
  HTTPS = [443, "443", "https"].freeze

  def self.open?(host, port)
    name = host.to_s.downcase.delete_suffix(".")
    LOCAL.match?(name) || ALLOWED.include?(name) || ALLOWED.include?("#{name}:#{port}")
  end

  def self.direct(host, port)
    return [host, port] if open?(host, port)

    ["127.0.0.1", (HTTPS.include?(port) ? TLS_PORT : PORT).to_i]
  end

  module Connecting
    def initialize(host, port, ...)
      host, port = OffbookProxy.direct(host, port)
      super(host, port, ...)
    end
  end

  module Opening
    def tcp(host, port, ...)
      host, port = OffbookProxy.direct(host, port)
      super(host, port, ...)
    end
  end

  module LookingUp
    def getaddress(host)
      raise SocketError, "refused by Offbook: #{host}" unless OffbookProxy.open?(host, nil)

      super
    end
  end
end

if OffbookProxy::TLS_PORT
  TCPSocket.prepend(OffbookProxy::Connecting)
  Socket.singleton_class.prepend(OffbookProxy::Opening)
  IPSocket.singleton_class.prepend(OffbookProxy::LookingUp)
end
