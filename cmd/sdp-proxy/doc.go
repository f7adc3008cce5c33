// Command sdp-proxy forwards connections between TCP, Unix sockets and SDP, so
// that programs which know only sockets can use it.
//
// It connects a Redis server with its clients, over SDP:
//
//	sdp-proxy --map sdp://:7000=tcp://127.0.0.1:6379
//	sdp-proxy --map tcp://127.0.0.1:6380=sdp://localhost:7000
//	redis-cli -p 6380
//
// "sdp-proxy --help" has all flags and more examples, and docs/proxy.md the rest. This command only parses
// flags, handles signals, and tells systemd what it does. Package internal/proxy does the work.
package main
