package main

// known lists the tests that pass over TCP and do not over SDP, with the reason. A
// test stands for its subtests too. docs/replacing-net.md lists them as well.
var known = map[test]string{
	{"github.com/coder/websocket", ""}: "counts goroutines behind its last test; a fabric has some for 250 ms behind its last connection",
	{"net/http", ""}:                   leaves, // TestTransportReqCancelerCleanupOnRequestBodyWriteError
	{"google.golang.org/grpc/internal/transport", "Test/TCPUserTimeout"}:             "asks the socket for an option of TCP",
	{"google.golang.org/grpc/internal/transport", "Test/HTTPConnectWithServerHello"}: leaves,
	{"google.golang.org/grpc/test", "Test/GoAwayStreamIDSmallerThanCreatedStreams"}:  leaves,
}

const leaves = "leaves a listener open and looks for goroutines; the fabric has some as long as it is used"
