package proxy

import (
	"context"
	"net"
	"net/netip"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestListenerAnswersForWhatNetWouldReach(t *testing.T) {
	local := func(ip netip.Addr) bool { return ip.IsLoopback() || ip == netip.MustParseAddr("10.0.0.1") }
	for _, c := range []struct {
		listening, target string
		want              bool
	}{
		{"127.0.0.1:80", "127.0.0.1:80", true},
		{"127.0.0.1:80", "127.0.0.1:81", false},
		{"127.0.0.1:80", "127.0.0.2:80", false},
		{"127.0.0.1:80", "[::1]:80", false},
		{"[::ffff:127.0.0.1]:80", "127.0.0.1:80", true},
		{"[::]:80", "127.0.0.2:80", true},
		{"[::]:80", "[::1]:80", true},
		{"[::]:80", "10.0.0.1:80", true},
		{"[::]:80", "10.0.0.2:80", false},
		{"0.0.0.0:80", "10.0.0.1:80", true},
		{"0.0.0.0:80", "[::1]:80", false},
		{"[fe80::1%eth0]:80", "[fe80::1%eth0]:80", true},
		{"[fe80::1%eth0]:80", "[fe80::1%eth1]:80", false},
		{"not an address", "127.0.0.1:80", false},
	} {
		require.Equal(t, c.want, answers(c.listening, netip.MustParseAddrPort(c.target), local), c)
	}
}

func TestTargetsAreLookedUpAsNetDoes(t *testing.T) {
	for target, want := range map[string][]string{
		":80":                   {"127.0.0.1:80"},
		"0.0.0.0:80":            {"127.0.0.1:80"},
		"[::]:80":               {"[::1]:80", "127.0.0.1:80"},
		"[::ffff:127.0.0.3]:80": {"127.0.0.3:80"},
		"10.1.2.3:80":           {"10.1.2.3:80"},
		"[fe80::1%lo]:80":       {"[fe80::1%lo]:80"},
	} {
		var got []string
		for _, a := range resolveTCP(context.Background(), target) {
			got = append(got, a.String())
		}
		require.Equal(t, want, got, target)
	}
	all, err := net.Interfaces()
	require.NoError(t, err)
	for _, i := range all {
		got := resolveTCP(context.Background(), "[fe80::1%"+strconv.Itoa(i.Index)+"]:80")
		require.Equal(t, []netip.AddrPort{netip.AddrPortFrom(netip.MustParseAddr("fe80::1%"+i.Name), 80)}, got)
	}
	require.Empty(t, resolveTCP(context.Background(), "nowhere.invalid:80"))
}

// The check agrees with what dials reach. Each kind of target dials a listener on
// each kind of address.
func TestCheckAgreesWithTheSystem(t *testing.T) {
	local := localAddresses()
	hosts := []string{"127.0.0.1", "127.0.0.2", "0.0.0.0", "", "::1", "::", "::ffff:127.0.0.1"}
	addrs, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLinkLocalUnicast() {
			hosts = append(hosts, n.IP.String())
		}
	}
	tried := 0
	for _, at := range hosts {
		ln, err := listen(context.Background(), &Map{Listen: Endpoint{networkTCP, net.JoinHostPort(at, "0")}}, nil, nil)
		if err != nil {
			continue // for example, without IPv6
		}
		_, port, err := net.SplitHostPort(ln.Addr().String())
		require.NoError(t, err)
		for _, host := range hosts {
			target := net.JoinHostPort(host, port)
			c, err := net.Dial(networkTCP, target)
			if err == nil {
				c.Close()
			}
			found := false
			for _, a := range resolveTCP(context.Background(), target) {
				found = found || answers(ln.Addr().String(), a, local)
			}
			require.Equal(t, err == nil, found, "listening on %q, %v; dialling %s: %v", at, ln.Addr(), target, err)
			tried++
		}
		ln.Close()
	}
	require.Greater(t, tried, 20)
}

func TestLoopsAreFoundInAnyGraph(t *testing.T) {
	// An edge from each number to those in its list.
	graph := [][]int{{1, 2}, {3}, {4}, {1}, {0, 4}, {5}, {}}
	leads := func(from, to int) bool {
		for _, next := range graph[from] {
			if next == to {
				return true
			}
		}
		return false
	}
	for start, want := range [][]int{{0, 2, 4}, {1, 3}, {2, 4, 0}, {3, 1}, {4}, {5}, nil} {
		require.Equal(t, want, shortestLoop(start, len(graph), leads), start)
	}
}
