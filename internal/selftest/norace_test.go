//go:build !race

package selftest_test

const racing = false
