// Package clib builds a library for C of a command in Go, such as cmd/libsma, and installs it. It is for the commands that
// do that, such as internal/libsma.
//
// It knows nothing of what a library does.
package clib
