// Package integration drives the built programs, as a user would: in processes
// of their own, over fabrics of their own, and with real servers and clients. It
// has only tests, one file per behaviour; the shared parts are in main_test.go
// (building), process_test.go and pair_test.go.
//
// A test whose tool is missing is skipped with a reason. With CI=true in the
// environment it fails instead. Tests that move much are left out by -short. With
// NTBNET_LONG in the environment some take minutes: whole rings under load, and
// links that are cut while gigabytes move. CI does that in a step of its own. With
// NTBNET_ALONE tests more run, which measure: one fails where others want the processors
// too; see docs/performance.md.
//
// Longer campaigns are no part of CI, or only a sample of them is:
//
//   - TestMatrix makes every public call while another process is stopped, killed or cut
//     off, wherever that is and whatever goes on. Without the variable it tries a few
//     cells of the matrix, others with -short.
//   - TestKillAndRestartCampaign makes as many runs of 45 s as NTBNET_CAMPAIGN says, in
//     which nodes are killed and started again all the time.
//   - TestSoak is an hour of mixed load on rings and on one host, with nodes that are
//     killed and stopped, after which the other processes must hold no more than at its
//     beginning. Any time from 2 minutes on will do.
//
// The commands are:
//
//	NTBNET_MATRIX=all go test ./integration -run TestMatrix -timeout 60m
//	NTBNET_CAMPAIGN=20 go test ./integration -run TestKillAndRestartCampaign -timeout 60m -v
//	NTBNET_SOAK=1h go test ./integration -run TestSoak -timeout 90m -v
package integration
