// Package explore is for tests of step functions: code with neither clock nor goroutine, in
// which all that happens is a call. Only tests import it.
//
// A test makes a world. It has the code's state, what is under way, and what only the test
// knows. The world is explored in two ways.
//
//	Small, Choices   all that can happen, in each order, in a small case
//	Seeds            longer runs, of which one number fixes every choice
//
// Whether they would find a fault is shown by faults that are planted: [Planted]. A fault is a
// mistake that a world makes in place of the code, and its name says which.
//
// What is here knows nothing of the code that is explored. It has no goroutines and no clock
// of its own.
package explore
