// Package activemsg carries out operations on the symmetric heap of a PE that is not mapped. Each
// is an active message: a request over a connection. A server goroutine of the target carries it
// out, without the application's help, in the order of the connection's requests.
//
// It does not know which PEs there are, nor how they are connected. That is internal/job.
//
//	c := activemsg.NewChannel(conn)                         // at the PE that asks
//	err := c.Put(off, data)
//	old, err := c.Fetch(symheap.Add, off, 8, 1, 0)
//	err = c.Ack()                                           // asks that all are done
//	err = c.Quiet()                                         // waits for the answers
//
//	err := activemsg.Serve(conn, heap, target)              // at the target, in a goroutine
package activemsg
