package fabrictest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// OwnPort returns a port that is free on all addresses, and a listener on an address that nobody
// dials. The system gives the port to no other process that takes any.
func OwnPort(t *testing.T, r *rand.Rand) (net.Listener, string) {
	t.Helper()
	for range 1000 {
		port := fmt.Sprint(10000 + r.IntN(20000))
		free, err := net.Listen("tcp", ":"+port)
		if err != nil {
			continue
		}
		free.Close()
		if keep, err := net.Listen("tcp", "127.0.0.9:"+port); err == nil {
			return keep, port
		}
	}
	t.Fatal("no port is free")
	return nil, ""
}
