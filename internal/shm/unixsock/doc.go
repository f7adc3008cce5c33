// Package unixsock has the Unix stream sockets of which the other end may be hostile.
//
// A peer may send files with its bytes, and to close a file can take as long as its sender likes: a
// TCP socket may linger, and a file system of the sender's own may not answer. The kernel closes them
// when a plain read or close of the socket discards them. So what may have such files is closed
// by goroutines of this package, of which there is a bounded number, and no method of [Conn]
// waits for them, and Close of a [Listener] for a tenth of a second at most. A Read takes no file. ReadFiles
// takes as many as the caller asks for, and [Discard] closes them.
//
// A listener that has a path replaces the file of one that was killed, and not that of one that lives, and
// removes its own file only. A path that is too long for a socket is named as such.
package unixsock
