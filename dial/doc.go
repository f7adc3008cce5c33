// Package dial is the active half of opening a connection. It sends a Hello and
// waits for the answer.
//
// It is not the public Dial. Package sdp resolves addresses and finds the peer.
package dial
