// Package dial is the active half of opening a connection: it sends a Hello and
// waits for the answer. It is not the public Dial; package sdp resolves
// addresses and finds the peer.
package dial
