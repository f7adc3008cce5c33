// Package lock provides the mutex of this module. A [Mutex] is a sync.Mutex with a class.
// That says what it protects, what may be locked while it is held, and whether several
// peers share it.
//
// In a normal build that costs nothing, since the class is a type parameter that is not
// used. With the build tag lockcheck, on amd64 and arm64, every Lock is checked. It panics
// if
//
//   - the goroutine holds a lock of the same class, or of one that comes after it in the
//     table in classes.go. Two goroutines that lock in different orders can stop each other,
//     which need not happen during a test;
//   - a lock that several peers share is held at a store, a doorbell, an Order or a set-up
//     message to one of them ([Device]). One peer that takes nothing would stop all others.
//
// So all tests also run once as
//
//	go test -short -tags lockcheck ./...
//
// It is not a lock manager. It does not find deadlocks of channels or of locks of other
// packages.
package lock
