//go:build linux

// Command sdp-tun carries IP packets between the nodes of a fabric. Programs that know only the
// kernel's sockets run between nodes unchanged: ssh, NFS, ping, databases.
//
// On each node, as root:
//
//	SDP_FABRIC='ring:lab?node=1&nodes=3' sdp-tun
//	ping 10.77.0.2
//
// It only parses flags, handles signals and changes the user. Package internal/tun does the work.
// "sdp-tun --help" describes all flags, and docs/tun.md has the rest.
package main
