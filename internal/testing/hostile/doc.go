// Package hostile makes what a hostile process sends to another one over a Unix socket: files that take
// an hour to close. It is for tests.
package hostile
