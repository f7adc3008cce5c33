// Package archtest holds the rules of this repository that a compiler does not
// check: which package may import which, where unsafe may stand, how long a
// file may be, what no file may mention. It has only tests; no package imports
// it.
//
// A new package needs a place in the picture and a row in the table of
// ARCHITECTURE.md, which house_test.go reads. The other rules are in
// rules_test.go and imports_test.go. checks_test.go sees each of them broken, and
// the test of the repository itself is in arch_test.go.
//
// The sources are read with go/parser, whatever their build tags, rather than
// asked of the go command: what a test reads itself is known to the test cache,
// what a command that it runs reads is not, and a stale pass would be served.
package archtest
