// Package ntbmem is a bridge whose two ends are in one process and whose
// windows are on the Go heap. It is for tests: the race detector sees its
// memory, testing/synctest its doorbells. It is not a transport between
// processes; that is ntb/ntbshm.
package ntbmem
