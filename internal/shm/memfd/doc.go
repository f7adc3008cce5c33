// Package memfd makes and checks the memory files that processes share. Such a file has no name,
// and a size that is sealed, so that no mapping of it can fault. A process that has the file
// may store to it, and punch holes in it, which read as zeros. That is all it can do to others
// that map it.
//
//	fd, err := memfd.Create("window", 1<<20)
//	err = memfd.Check(received, 1<<20)
//
// It maps nothing. It is for Linux.
package memfd
