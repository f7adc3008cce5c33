// Package listen is a part of package sdp, which programs import: the passive half of opening a
// connection. It answers Hellos and keeps the accept queues.
//
// It is not the public Listen. Package sdp claims ports and makes addresses.
//
// The link's goroutine answers a Hello before anybody calls Accept. So, as with a
// kernel's listener, a peer may connect, write and even exit before that. Only a place
// in the backlog is reserved under the lock that all peers share. After that the Hello
// is answered, and the connection delivered, unless the listener has been closed.
//
// An Accept that finds nothing polls the peer that connected last before it sleeps, as a Read
// polls its connection.
package listen
