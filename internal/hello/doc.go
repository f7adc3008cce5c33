// Package hello encodes and decodes the set-up messages that open a connection:
// Hello, HelloAck and Refuse.
//
// It is not a transport. Package internal/link carries the messages, and dial and listen
// give them meaning. The layouts are in docs/protocol/stream.md.
package hello
