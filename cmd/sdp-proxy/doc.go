// Command sdp-proxy forwards connections between TCP, Unix sockets and SDP, so
// that programs which know only sockets can use it.
//
// It connects a Redis server with its clients, over SDP:
//
//	sdp-proxy --map sdp://:7000=tcp://127.0.0.1:6379
//	sdp-proxy --map tcp://127.0.0.1:6380=sdp://localhost:7000
//	redis-cli -p 6380
//
// As a process that owns the links of one node of several, and does nothing else:
//
//	SDP_FABRIC='ring:lab?node=2&nodes=5' sdp-proxy --own
//
// As a service, with its maps in a file that it reads again on SIGHUP:
//
//	sdp-proxy check /etc/ntbnet/proxy.yaml
//	sdp-proxy --config /etc/ntbnet/proxy.yaml
//
// It only parses flags, handles signals, and tells systemd what it does. Package internal/proxy does the work.
// "sdp-proxy --help" describes all flags.
package main
