// Package integration drives the built programs, as a user would: in processes
// of their own, over fabrics of their own, and with real servers and clients. It
// has only tests, one file per behaviour; the shared parts are in main_test.go
// (building), process_test.go and pair_test.go.
//
// A test whose tool is missing is skipped with a reason. With CI=true in the
// environment it fails instead. Tests that move much are left out by -short. With
// NTBNET_LONG in the environment some take minutes: whole rings under load, and
// links that are cut while gigabytes move. CI does that in a step of its own. With
// NTBNET_ALONE one test more runs, which fails where others want the processors too;
// see PERFORMANCE.md.
//
// TestMatrix makes every public call while another process is stopped, killed or cut
// off, wherever that is and whatever goes on. It tries a few cells of the matrix, others
// with -short, and all of them by
//
//	NTBNET_MATRIX=all go test ./integration -run TestMatrix -timeout 60m
//
// TestKillAndRestartCampaign is no part of CI: it makes as many runs of 45 s as
// NTBNET_CAMPAIGN says, in which nodes are killed and started again all the time.
package integration
