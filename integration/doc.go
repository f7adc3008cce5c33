// Package integration tests the built programs, as a user would run them: in processes of
// their own, over fabrics of their own, and with real servers and clients. It has only
// tests, one file per behaviour. The shared parts are in main_test.go (building),
// process_test.go and pair_test.go.
//
// A test whose tool is missing is skipped with a reason. With CI=true in the environment
// it fails instead. With -short, tests that move much data are left out. With NTBNET_LONG
// in the environment some tests take minutes: whole rings under load, and links that are
// cut while gigabytes move. A part of CI does that. With NTBNET_ALONE further
// tests run, which measure. One of them fails where other programs need the processors
// too; see docs/performance.md.
//
// Tests of several users, namespaces, filters of system calls and control groups need root. Their
// processes are in a cage, which cage_test.go makes. What the kernel or a container forbids is
// skipped, with a line that begins with "WARNING:", also with CI=true.
//
// With NTBNET_VM in the environment virtual machines run under QEMU, which emulates the processor. Their
// kernels come from .ci/vm-kernel. A test that lacks something then fails, in place of being skipped.
//
// CI does not run the longer campaigns, or only a sample of them:
//
//   - TestMatrix makes every public call while another process is stopped, killed or cut
//     off, wherever that process is and whatever goes on. Without NTBNET_MATRIX it tries a
//     few cells of the matrix, and with -short others.
//   - TestKillAndRestartCampaign makes as many runs of 45 s as NTBNET_CAMPAIGN says. In
//     each, nodes are killed and started again all the time.
//   - TestSoak is an hour of mixed load on rings and on one host, while nodes are killed
//     and stopped. At the end the other processes must hold no more resources than at the
//     beginning. Any time of 2 minutes or more is possible.
//
// The commands are:
//
//	NTBNET_MATRIX=all go test ./integration -run TestMatrix -timeout 60m
//	NTBNET_CAMPAIGN=20 go test ./integration -run TestKillAndRestartCampaign -timeout 60m -v
//	NTBNET_SOAK=1h go test ./integration -run TestSoak -timeout 90m -v
package integration
