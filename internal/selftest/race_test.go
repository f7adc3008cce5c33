//go:build race

package selftest_test

// racing is set with the race detector, which reports payload that comes behind its word or too late.
const racing = true
