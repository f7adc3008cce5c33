// Package lock is the mutex of this module. A [Mutex] is a sync.Mutex that knows its
// class: what it protects, which other classes may be locked while it is held, and
// whether several peers share it.
//
// In a normal build that costs nothing: the class is a type parameter that nothing looks
// at. With the build tag lockcheck, on amd64 and arm64, every Lock is checked, and panics if
//
//   - the goroutine holds a lock of the same class, or of one that comes after it in the
//     table in classes.go: two goroutines that lock in different orders stop each other
//     some day, and the tests need not meet that day;
//   - a lock that several peers share is held where something is said to one of them:
//     at a store, a doorbell, an Order, a set-up message ([Device]). One peer that takes
//     nothing would stop all others.
//
// So all tests run once as
//
//	go test -short -tags lockcheck ./...
//
// It is not a lock manager: it finds no deadlocks of channels, nor of locks of other
// packages.
package lock
