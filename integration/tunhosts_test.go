//go:build linux

package integration

import (
	"maps"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/ntbnet/ntbnet/sdp"
	"github.com/stretchr/testify/require"
)

// The hosts table has the addresses of the TUN devices. Network "tcp" goes by SDP to listeners of package sdp. To programs that
// know nothing of it, and where SDP is refused, it goes by TCP, through the devices. All are in the fabric of the file.
func TestTunAddressesInTheHostsTable(t *testing.T) {
	dir, exe := shop(t)
	nodes := newTunNodes(t, 2, "line:"+dir+"?node=%d&nodes=2")
	var machines []*machine
	for i, n := range nodes {
		m := newMachine(t, dir, exe, i+1, "host1 "+addressOfOne, "host2 "+addressOfTwo)
		m.cage.Net = n.namespace()
		machines = append(machines, m)
		daemon := *m
		daemon.cage.Volumes = maps.Clone(m.cage.Volumes)
		daemon.cage.Volumes["/dev"] = "/dev"
		n.daemon = start(t, filepath.Join(programs, "sdp-tun"), nil, daemon.within(0))
	}
	tunsUp(nodes)
	one, two := machines[0], machines[1]

	ours, dials := two.process(userA), one.process(userB)
	port := ours.meets("listen tcp 0.0.0.0:0 ours").port()
	dials.bySDP("ours", addressOfTwo, port)
	require.Contains(t, one.doctor(0), addressOfTwo+" of node2: network tcp goes by SDP to listeners of the fabric")

	// byTCP dials until a counter says why, since an answer that is late means TCP too.
	byTCP := func(name, port string, why func(*sdp.NetworkStats) uint64) {
		until(t, name+" is refused", func() bool {
			m := dials.meets("dial tcp %s:%s", addressOfTwo, port)
			require.Equal(t, name+" by tcp at "+addressOfTwo+":"+port, m.Name+" by "+m.By+" at "+m.Remote)
			return why(dials.meets("networks").Stats) > 0
		})
	}
	plain, itsPort := two.plain("0.0.0.0:0")
	byTCP("plain", itsPort, func(s *sdp.NetworkStats) uint64 { return s.DialNoSDP })
	ours.end()

	// The table of node 2 gives node 1 another address.
	two.says(0o644, "fabric line:/run/ntbnet/lab", "node 2", "nodes 2", "host1 10.77.0.7", "host2 "+addressOfTwo)
	ours = two.process(userA)
	port = ours.meets("listen tcp 0.0.0.0:0 ours").port()
	byTCP("ours", port, func(s *sdp.NetworkStats) uint64 { return s.DialSDPFailed })
	dials.ends()
	ours.ends()
	plain.end()
	for _, n := range nodes {
		n.daemon.signal(syscall.SIGTERM)
		require.Equal(t, 0, n.daemon.status(), n.daemon.out.String())
	}
}
