// Package dial is a part of package sdp, which programs import: the active half of opening a
// connection. A [Table] sends a Hello to
// a peer and waits for the answer. A [Retry] decides what a dial does after a step that
// failed.
//
// It is not the public Dial. Package sdp resolves addresses and reaches the peer.
package dial
