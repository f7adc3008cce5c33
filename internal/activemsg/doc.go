// Package activemsg carries out operations on the symmetric heap of a PE that is not mapped: as
// active messages, requests over a connection that a server goroutine of the target handles, without
// the application's help. Requests of a connection are handled in their order.
//
// It does not know which PEs there are, nor how they are connected. That is package shmem.
//
//	c := activemsg.NewChannel(conn)                         // at the PE that asks
//	err := c.Put(off, data)
//	old, err := c.Fetch(symheap.Add, off, 8, 1, 0)
//	err = c.Quiet()                                         // all are done
//
//	err := activemsg.Serve(conn, heap, target)              // at the target, in a goroutine
package activemsg
