// Command sdp-tun carries IP packets between the nodes of a fabric, so that programs which know only
// the kernel's sockets run between them unchanged: ssh, NFS, ping, databases.
//
// On each node, as root:
//
//	SDP_FABRIC='ring:lab?node=1&nodes=3' sdp-tun
//	ping 10.77.0.2
//
// It only parses flags, handles signals and changes the user. Package internal/tun does the work.
// "sdp-tun --help" describes all flags, and docs/tun.md has the rest.
package main
