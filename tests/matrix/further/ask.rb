require "net/http"

puts Net::HTTP.post(URI(ARGV[0]), ARGV[1]).body
