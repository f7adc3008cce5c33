// Package ntbmem is a bridge for tests. Both ends are in one process, with windows
// on the Go heap. So the race detector sees its memory, and testing/synctest its
// doorbells. It is not a transport between processes. That is ntb/ntbshm.
package ntbmem
