// Package hello is the codec of the set-up messages that open a connection:
// Hello, HelloAck and Refuse. It is not a transport; ring carries the messages,
// dial and listen give them meaning. The layouts are in sdp/PROTOCOL.md.
package hello
