// Package listen is the passive half of opening a connection: it answers Hellos
// and keeps the accept queues. It is not the public Listen; package sdp claims
// ports and makes addresses.
//
// A Hello is answered by the link's goroutine, before anybody calls Accept: like
// a kernel's, a listener's peer may connect, write and even exit before that. Only a
// place in the backlog is taken under the lock that all peers share; then the Hello is
// answered, and the connection delivered, unless the listener has been closed.
package listen
