// Package greeting has what two processes of a fabric say to each other before they share memory: over a cable, which is
// a Unix socket, one greets and the other answers. Both learn whether they have the same version and plan. Some ask for
// no more than that, or for a status; docs/protocol/meeting.md has the messages.
//
// What becomes of the cable is up to internal/fabric. Who only asks, such as internal/census, joins no fabric.
package greeting
