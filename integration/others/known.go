package main

// known are the tests that pass over TCP and do not over SDP, with the reason. A test
// stands for its subtests too. docs/replacing-net.md has them as well.
var known = map[test]string{}
