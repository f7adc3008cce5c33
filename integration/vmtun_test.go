//go:build linux

package integration

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// tunFiles are what machines with sdp-tun have.
func tunFiles(t *testing.T) map[string]string {
	return map[string]string{"sdp-tun": programOf(t, "../cmd/sdp-tun")}
}

// startTun starts sdp-tun.
func (v *vm) startTun() {
	v.t.Helper()
	v.must("load tun")
	v.must("start tun /sdp-tun")
}

// pings has echo requests of two sizes answered by an address, in the end: an emulated machine may be too slow for a daemon's heartbeats.
func (v *vm) pings(address string) {
	v.t.Helper()
	for _, ping := range []string{"ping %s 20 1000", "ping %s 2 20000"} {
		until(v.t, address+" answers", func() bool { _, err := v.operate(ping, address); return err == nil })
	}
}

// Two machines, one of which has an older kernel, use programs and a disk of each other by IP over their memory. The disk is
// attached by the kernel.
func TestVMTun(t *testing.T) {
	wantVM(t)
	files := tunFiles(t)
	systems := [2]vmSystem{needVM(t, files), needVMOf(t, "6.1", files)}
	path := memory(t)
	var machines [2]*vm
	for i, s := range systems {
		s.variables = []string{"SDP_FABRIC=" + lineSpec(t, i+1, function(0))}
		machines[i] = s.startVM(t, []string{path}, "operator")
	}
	for _, v := range machines {
		v.ready()
		v.startTun()
	}
	one, two := machines[0], machines[1]
	one.pings("10.77.0.2")
	two.pings("10.77.0.1")
	require.Equal(t, "ready", two.must("start far far mem:far 10.77.0.2"))
	require.Equal(t, "ready", one.must("start far far mem:far client"))
	for _, question := range []string{"get 10.77.0.2 1048576", "send 10.77.0.2 4194304", "echo 10.77.0.2 100"} {
		answer := one.must("ask far %s", question)
		t.Logf("%s: %s", question, answer)
		require.Regexp(t, "^ok ", answer)
	}

	const disk = "10.77.0.2:10809 4194304"
	require.Equal(t, "ready", two.must("start disk disk %s", disk))
	one.must("load nbd")
	one.must("attach %s", disk)
	sum := one.must("fill /dev/nbd0 4194304 1")
	one.must("detach")
	require.Equal(t, sum, two.must("ask disk sum"))
	one.must("attach %s", disk)
	require.Equal(t, sum, one.must("sum /dev/nbd0 4194304"))
	one.must("detach")
	for _, v := range machines {
		v.must("end far")
		v.must("kill tun")
	}
	two.must("end disk")
	one.end()
	two.end()
}

// TestVMTunOverBridges has sdp-tun between two machines over models of bridges. What 1 MiB costs is in its log, beside
// ntb_netdev over the same bridge, by the model's counts and not by the clock.
func TestVMTunOverBridges(t *testing.T) {
	wantMatrix(t)
	for _, kind := range bridgeKinds {
		t.Run(kind.name, func(t *testing.T) {
			b := &bridged{t: t, kind: kind, bridge: kind.make(), system: bridgeSystem(t, kind, tunFiles(t))}
			b.system.variables = []string{"SDP_FABRIC=ntb"}
			b.boot(0, 1)
			b.join() // which nodes they are
			b.leave()
			var addresses, devices [2]string
			for i, s := range b.sides {
				number := strings.TrimPrefix(s.node, "node")
				addresses[i], devices[1-i] = "10.77.0."+number, "sdp"+number
				s.startTun()
			}
			b.carries("TCP over sdp-tun", addresses, devices)
			for _, s := range b.sides {
				s.must("kill tun")
				s.must("unload ntb_cdev")
			}
			addresses = [2]string{hostAddress, machineAddress}
			loadTransport(b.bridge, b.sides[0].vm, b.sides[1].vm)
			for i, s := range b.sides {
				s.must("up eth0 %s", addresses[i])
			}
			b.carries("TCP over ntb_netdev", addresses, [2]string{"eth0", "eth0"})
			for _, s := range b.sides { // QEMU may crash when such a machine turns itself off
				require.Empty(t, kernelFault.FindAllString(string(s.log()), -1))
				s.kill()
			}
		})
	}
}

// carries has machines ping each other, and side 0 get 1 MiB by HTTP. It logs what 1 MiB to side 1 costs.
func (b *bridged) carries(name string, addresses, devices [2]string) {
	b.t.Helper()
	for i, s := range b.sides {
		s.pings(addresses[1-i])
		require.Equal(b.t, "ready", s.must("start far far mem:far %s", addresses[i]))
		s.node = name
	}
	b.sides[0].does("get %s %d", addresses[1], countedBytes)
	c := &counted{t: b.t, bridge: b.bridge, sides: [2]*vm{b.sides[0].vm, b.sides[1].vm}}
	packets := func() (sum int) {
		for i, s := range b.sides {
			n, err := strconv.Atoi(s.must("read /sys/class/net/%s/statistics/tx_packets", devices[i]))
			require.NoError(b.t, err)
			sum += n
		}
		return sum
	}
	of := func(n int) (cost, int) {
		before, sent := c.now(), packets()
		b.sides[0].does("stream %s %d", addresses[1], n)
		return c.between(before, 1), packets() - sent
	}
	little, fewPackets := of(65536)
	much, manyPackets := of(65536 + countedBytes)
	mebibyte := much.minus(little)
	b.t.Logf("%s, 1 MiB: %v, %d packets", name, mebibyte, manyPackets-fewPackets)
	require.GreaterOrEqual(b.t, much.bytes, float64(countedBytes)) // what is sent again makes the little one larger at times
	for _, s := range b.sides {
		s.must("end far")
	}
}
