//go:build (libsma || libsdp) && cgo && linux

// Package csignals keeps the signals of a program in C away from the threads of Go's runtime, which
// libraries for C bring into its process. It has constructors of the library, and nothing to call.
//
// It does not handle signals: handlers of the program stay the program's.
package csignals
