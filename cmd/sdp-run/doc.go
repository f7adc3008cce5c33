//go:build linux

// Command sdp-run runs a program whose TCP connections inside this machine carry their bytes by SDP, where both
// ends were started so. The program is not changed.
//
//	sdp-run redis-server --port 7000 &
//	sdp-run redis-benchmark -p 7000
//
// The program's sockets stay those of the kernel. So bind, connect, accept, poll, epoll, options, names and dup are the
// kernel's. Directory preload has the library in C that sdp-run loads into the program; internal/libsdp
// builds it. docs/unmodified.md says which programs were tried, and what stays TCP.
//
// "sdp-run --help" describes all flags, and the file of rules.
package main
