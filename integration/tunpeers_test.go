//go:build linux

package integration

import (
	"fmt"
	"io"
	"net"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/ntbnet/ntbnet/sdp"
	"github.com/stretchr/testify/require"
)

// flood sends datagrams to a node until stop is called.
func (n *tunNode) flood(to int) (stop func()) {
	n.t.Helper()
	var c net.Conn
	var err error
	n.do(func() { c, err = net.Dial("udp4", fmt.Sprintf("10.77.0.%d:9", to)) })
	require.NoError(n.t, err)
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		datagram := make([]byte, 32<<10)
		for {
			select {
			case <-end:
				return
			case <-time.After(time.Millisecond):
				c.Write(datagram) // what nobody takes may be refused
			}
		}
	}()
	return func() { close(end); <-ended; c.Close() }
}

// A peer whose daemon lives and reads nothing has what is meant for it dropped, and holds up nobody else. It
// gets what comes once it reads.
func TestTunOfAPeerThatReadsNothing(t *testing.T) {
	r := startMembers(t, "ring", 3, "")
	nodes := newTunNodes(t, 3, "ring:"+r.name+"?node=%d", "--http", tunCounters)[:2]
	for _, node := range nodes {
		node.start()
	}
	tunsUp(nodes)
	f, err := sdp.Open("ring:" + r.name + "?node=3")
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	slow, ended := dialTun(t, f)
	nodes[0].daemon.waitFor(regexp.MustCompile(`node3 is up`), 1)

	e := tunEcho(nodes[0], nodes[1])
	stop := nodes[0].flood(3)
	eventually(t, "packets to node 3 are dropped", nodes[0].counts(`dropped_packets_total\{node="3",reason="queue_full"\} [1-9]\d*`))
	for range 20 {
		e.alive()
	}
	nodes[0].pings(50, "10.77.0.2")
	require.True(t, nodes[0].counts(`up\{node="3"\} 1`)())
	require.True(t, nodes[0].counts(`queued_bytes\{node="3"\} [1-9]\d*`)())
	stop()

	reads := make(chan struct{})
	go func() { defer close(reads); io.Copy(io.Discard, slow) }()
	eventually(t, "nothing waits", nodes[0].counts(`queued_bytes\{node="3"\} 0`))
	e.alive()
	slow.Close()
	<-ended
	<-reads
	for _, node := range nodes {
		node.daemon.signal(syscall.SIGTERM)
		require.Equal(t, 0, node.daemon.status())
	}
	r.end()
}

// A peer whose daemon is stopped, while much goes to it, holds up nobody else, before it is found out and after.
func TestTunOfAPeerThatIsStopped(t *testing.T) {
	nodes := startTun(t, 3)
	two, three := tunEcho(nodes[0], nodes[1]), tunEcho(nodes[0], nodes[2])
	three.alive()
	defer nodes[0].flood(3)()
	nodes[2].daemon.signal(syscall.SIGSTOP)
	for n := 0; n < 10 || nodes[0].carrier(3); n++ {
		two.alive()
	}
	nodes[0].pings(50, "10.77.0.2")
	nodes[2].daemon.signal(syscall.SIGCONT)
	three.alive()
}

// Kernels forward between two fabrics by an Ethernet, whose MTU is 1500. TCP finds out what fits. Datagrams are
// cut, or refused.
func TestTunForwardsOverAnEthernet(t *testing.T) {
	// left1 - TUN - left2 - Ethernet - right1 - TUN - right2
	left := newTunNodes(t, 2, "ring:"+fabrictest.Name(t)+"?node=%d&nodes=2")
	right := newTunNodes(t, 2, "line:"+shortDir(t)+"?node=%d&nodes=2", "--net4", "10.78.0.0/24", "--net6", "fd78::/64")
	for _, network := range []string{"192.168.7.0/24", "fd07::/64", "10.78.0.0/24", "fd78::/64"} {
		left[0].args = append(left[0].args, "--route", network+"=2")
	}
	for _, network := range []string{"192.168.7.0/24", "fd07::/64", "10.77.0.0/24", "fd77::/64"} {
		right[1].args = append(right[1].args, "--route", network+"=1")
	}
	joinNetworks(t, left[1].holder.cmd.Process.Pid, right[0].holder.cmd.Process.Pid)
	for i, gate := range []*tunNode{left[1], right[0]} {
		gate.start()
		other, beyond := 2-i, 8-i
		gate.run("sh", "-c", fmt.Sprintf(`set -e
			echo 1 >/proc/sys/net/ipv4/ip_forward
			echo 1 >/proc/sys/net/ipv6/conf/all/forwarding
			ip link set %[1]s up
			ip addr add 192.168.7.%[2]d/24 dev %[1]s
			ip addr add fd07::%[2]d/64 dev %[1]s nodad
			ip route add 10.7%[4]d.0.0/24 via 192.168.7.%[3]d
			ip route add fd7%[4]d::/64 via fd07::%[3]d`, cableName, 1+i, other, beyond))
	}
	left[0].start()
	right[1].start()
	tunsUp(left)
	tunsUp(right)
	from, to := left[0], right[1]

	// A datagram that may be cut is, by the first kernel whose device it does not fit. There is another one for the answer.
	from.pings(3, "-M", "dont", "-s", "8000", "192.168.7.2")
	for _, address := range []string{"10.78.0.2", "fd78::2"} {
		e := tunEchoAt(from, to, address)
		e.carries(8 << 20)
		// The path's MTU is known now.
		p := start(t, tool(t, "ping"), []string{"-c", "1", "-W", "30", "-M", "do", "-s", "8000", address}, from.within())
		require.Equal(t, 1, p.status())
		require.Regexp(t, `(?i)message too long,? \(?mtu[=:] ?1500|mtu ?= ?1500`, p.out.String())
	}
}
