// Package archtest checks rules of this repository that a compiler does not check:
// imports, the use of unsafe, the length of a file, forbidden words, and more. It has
// only tests. No package imports it.
//
// A new package needs a place in the picture and a row in the table of
// docs/packages.md, which house_test.go reads. The other rules are in
// rules_test.go, imports_test.go, links_test.go, versions_test.go and api_test.go.
// checks_test.go sees most of them broken, and the test of the repository itself is in
// arch_test.go.
//
// The sources are read with go/parser, whatever their build tags, rather than by
// the go command. The test cache records what a test itself reads, but not what a
// command that it runs reads. So with the go command a stale pass would be
// possible.
package archtest
