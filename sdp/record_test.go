package sdp

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ntbnet/ntbnet/bounce"
	"github.com/ntbnet/ntbnet/internal/fabric"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/ntbnet/ntbnet/internal/testing/recorder"
	"github.com/stretchr/testify/require"
)

// open is Open. A fabric within this process is a new one, and what passes its bridges is
// recorded.
func open(t testing.TB, spec string) *Fabric {
	t.Helper()
	if strings.HasPrefix(spec, "mem:") {
		return openWrapped(bounce.Options{Spin: -1}, 16<<20, recorder.For(t).Pair)
	}
	f, err := Open(spec)
	require.NoError(t, err)
	return f
}

// recordedNodes opens all nodes of a fabric within this process. What passes the bridges
// and the tunnels is recorded.
func recordedNodes(t testing.TB, topology string, n int, options string) (hosts []*Fabric) {
	t.Helper()
	spec, err := spec.Parse(fmt.Sprintf("%s:recorded?backend=mem&node=1&nodes=%d&window=1048576%s", topology, n, options))
	require.NoError(t, err)
	var stacks []*stack
	all, err := fabrictest.OpenNodes(spec, recorder.For(t).Pair, func(f *fabric.Fabric) {
		s := newStack(bounce.Options{Spin: -1})
		s.fabric, s.refs = f, 1
		s.start(f)
		stacks = append(stacks, s)
	})
	require.NoError(t, err)
	require.Len(t, all, n)
	for _, s := range stacks {
		joined := newFabric(s, &networkCounters{})
		t.Cleanup(func() { joined.Close() })
		hosts = append(hosts, joined)
	}
	return hosts
}
