// Package unixsock has the Unix stream sockets of which the other end may be hostile.
//
// A peer may send files with its bytes, and closing a file can take as long as its sender likes. A TCP
// socket may linger, and a file system of the sender's own may not answer. The kernel closes them when a
// plain read or close of the socket discards them. So a bounded number of goroutines of this package
// closes what may have such files. No method of [Conn] waits for them, and Close of a [Listener] waits for
// a tenth of a second at most. A Read takes no file. ReadFiles takes as many as the caller asks for, and
// [Discard] closes them.
//
// A listener with a path replaces the file of a killed one, not that of a living one. It removes its own
// file only. A path that is too long for a socket is named as such.
package unixsock
