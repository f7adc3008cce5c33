// Package unixsock listens on Unix sockets that have a path. The file of a listener that was killed is
// replaced, that of one that lives is not, and a listener that is closed removes its own file only. A
// path that is too long for a socket is named as such.
package unixsock
