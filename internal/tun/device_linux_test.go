package tun

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"

	"github.com/ntbnet/ntbnet/internal/metrics"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// apart moves the test's thread to a network namespace of its own, until the test ends.
func apart(t *testing.T) {
	t.Helper()
	f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err == nil {
		f.Close()
		runtime.LockOSThread()
		var here int
		here, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		require.NoError(t, err)
		t.Cleanup(func() {
			if unix.Setns(here, unix.CLONE_NEWNET) == nil {
				runtime.UnlockOSThread()
			}
			unix.Close(here)
		})
		err = unix.Unshare(unix.CLONE_NEWNET)
	}
	if err != nil {
		fmt.Printf("WARNING: %s is skipped: %v\n", t.Name(), err)
		t.Skip(err)
	}
}

// testConfig returns the configuration of node 1 of 2.
func testConfig() *Config {
	return &Config{
		Self: 1, Nodes: 2, Device: "tst", MTU: maxMTU, Queue: 1 << 20, Addresses: true,
		Net4: netip.MustParsePrefix("10.77.0.0/24"), Net6: netip.MustParsePrefix("fd77::/64"),
		Routes: []Route{{netip.MustParsePrefix("192.168.7.0/24"), 2}}, Logf: func(string, ...any) {},
	}
}

// A peer sends frames with any header and source to a real device. The kernel takes some, refuses others and
// survives all; none reaches it that the peer may not send.
func TestForgedFramesAtADevice(t *testing.T) {
	leak.Check(t)
	apart(t)
	c := testConfig()
	require.NoError(t, c.Check())
	n, err := Open(c)
	require.NoError(t, err)
	defer n.Close()
	p := n.peers[2]
	require.NoError(t, p.dev.carrier(true))
	p.dev.settle(true)
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	r := &receiver{sources: p.sources, count: &p.count}
	r.write = func(b []byte) error {
		requireAllowed(t, b)
		return p.dev.write(b)
	}
	sources := []string{"10.77.0.2", "10.77.0.3", "192.168.7.9", "127.0.0.1", "fd77::2", "fd77::3", "fe80::2", "::1"}
	for i := range 200_000 {
		src := sources[rnd.IntN(len(sources))]
		dst := map[bool]string{true: "10.77.0.1", false: "fd77::1"}[src[0] == '1']
		b := ipPacket(src, dst, []byte{protocolTCP, protocolUDP, 1, 58}[rnd.IntN(4)], uint16(rnd.IntN(3)), 80, rnd.IntN(3000))
		header := make([]byte, virtioSize)
		for j := range header {
			header[j] = []byte{0, 0, byte(rnd.IntN(64)), byte(rnd.Uint32())}[rnd.IntN(4)]
		}
		if i%2 == 0 { // nearly right, so that more of the kernel sees it
			header = virtio(needsCsum, []byte{0, gsoTCPv4, gsoTCPv6, gsoUDP}[rnd.IntN(4)], uint16(rnd.IntN(2000)), uint16(20+20*rnd.IntN(2)), uint16(rnd.IntN(24)))
		}
		if rnd.IntN(4) == 0 {
			b[rnd.IntN(min(len(b), 48))] = byte(rnd.Uint32())
		}
		_, err := r.take(frameOf(header, b))
		require.NoError(t, err)
		if i%100 == 0 {
			p.drain() // the kernel's answers
		}
	}
	t.Logf("written %d, refused by the kernel %d, malformed %d, of other sources %d",
		p.count.rxPackets.Load(), p.count.kern.Load(), p.count.malformed.Load(), p.count.source.Load())
	require.NotZero(t, p.count.rxPackets.Load())
	require.NotZero(t, p.count.malformed.Load())
	require.NotZero(t, p.count.source.Load())
	require.NoError(t, metrics.Write(io.Discard, n.WriteMetrics))
}

// A device that this process has made ends with it, and what it was given is there before.
func TestADeviceIsConfigured(t *testing.T) {
	leak.Check(t)
	apart(t)
	c := testConfig()
	for range 2 { // the second Open finds nothing of the first
		n, err := Open(c)
		require.NoError(t, err)
		mtu, err := n.peers[2].dev.readMTU()
		require.NoError(t, err)
		require.Equal(t, maxMTU, mtu)
		_, err = Open(c)
		require.ErrorContains(t, err, "another process has the device")
		n.Close()
		_, err = n.peers[2].dev.readMTU()
		require.Error(t, err)
	}
	require.NoError(t, Setup(c, 7))
	require.NoError(t, Setup(c, 7))
	n, err := Open(c)
	require.NoError(t, err)
	require.False(t, n.peers[2].dev.fresh)
	n.Close()
	require.NoError(t, Remove(c))
	require.NoError(t, Remove(c))
}

// A device of which the kernel refuses the MTU stays down.
func TestADeviceOfARefusedMTUStaysDown(t *testing.T) {
	apart(t)
	n, err := Open(testConfig())
	require.NoError(t, err)
	defer n.Close()
	d := n.peers[2].dev
	link, err := netlink.LinkByIndex(d.index)
	require.NoError(t, err)
	require.NoError(t, netlink.LinkSetDown(link))
	require.ErrorIs(t, d.up(1), unix.EINVAL)
	link, err = netlink.LinkByIndex(d.index)
	require.NoError(t, err)
	require.Zero(t, link.Attrs().Flags&net.FlagUp)
}
