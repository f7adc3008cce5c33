// Package integration drives the built programs, as a user would: in processes
// of their own, over fabrics of their own, and with real servers and clients. It
// has only tests, one file per behaviour; the shared parts are in main_test.go
// (building), process_test.go and pair_test.go.
//
// A test whose tool is missing is skipped with a reason. With CI=true in the
// environment it fails instead. Tests that move much are left out by -short. With
// NTBNET_LONG in the environment some take minutes: whole rings under load, and
// links that are cut while gigabytes move. CI does that in a step of its own.
//
// An hour of mixed load on rings and on one host, with nodes that are killed and
// stopped, after which the other processes must hold no more than at its
// beginning, is a command of its own; any time from 2 minutes on will do:
//
//	NTBNET_SOAK=1h go test ./integration -run TestSoak -timeout 90m -v
package integration
