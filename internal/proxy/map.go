package proxy

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ntbnet/ntbnet/internal/shm/unixsock"
)

// Map says where to listen, where the connections go, and what holds for them. It is not changed once it is used.
type Map struct {
	Listen  Endpoint
	Targets []Endpoint // one or more, which a connection tries until one answers
	Balance string     // in which order: first, roundRobin or leastConn

	// Transparent maps have no targets. Connections that the kernel redirects go where their clients wanted to go, if
	// that is an address of the fabric's hosts.
	Transparent bool

	DialTimeout time.Duration // of each target; 0 for the network's own limit
	Retries     int           // how often all targets are tried again
	SendProxy   bool          // targets get a header of the PROXY protocol, version 1
	SendProxyV2 bool          // likewise, version 2
	Check       time.Duration // between checks of the targets; 0 for none

	MaxConnections int           // open ones, including those whose target is being dialled; 0 for no limit
	MaxRate        int           // new ones a second; 0 for no limit
	WhenFull       string        // what is done with clients beyond both: refuseThem or letWait
	IdleTimeout    time.Duration // cuts connections that pass on nothing; 0 for none
	HalfClosed     time.Duration // likewise, for those of which one direction has ended
	KeepAlive      time.Duration // of silence on TCP, before the kernel asks whether the peer is there; 0 for never

	Users   Users            // those who may connect, by sdp and unix alone
	Sources []netip.Prefix   // whence they may connect, by tcp alone; none for everywhere
	Proxies []netip.Prefix   // whence alone connections come, by tcp, each with a header of the PROXY protocol; none for no headers
	Socket  *unixsock.Rights // of the file of a Unix socket; nil for what the umask leaves
}

// Values of Map.Balance and Map.WhenFull.
const (
	first      = "first"
	roundRobin = "roundrobin"
	leastConn  = "leastconn"
	refuseThem = "refuse"
	letWait    = "wait"
)

// Options by which clients are refused.
const (
	allowFrom   = "allow-from"
	acceptProxy = "accept-proxy"
)

// MapOptions are those of a [Map].
var MapOptions = []Option[Map]{
	boolOption("transparent", "maps have no TARGET: what nftables redirects to them goes where it was going, if that is an address of the fabric's hosts", func(m *Map) *bool { return &m.Transparent }),
	wordOption("balance", "which of several targets is dialled `FIRST`: first, roundrobin or leastconn", []string{first, roundRobin, leastConn}, func(m *Map) *string { return &m.Balance }),
	countOption("retries", "0", "try all targets `N` times more, with pauses of 100 ms and more", func(m *Map) *int { return &m.Retries }),
	durationOption("check", "", "dial each target every `TIME`, so that those that are down are known; 0 for never", func(m *Map) *time.Duration { return &m.Check }),
	durationOption("dial-timeout", "10s", "give up on a target after `TIME`; 0 for no limit", func(m *Map) *time.Duration { return &m.DialTimeout }),
	boolOption("send-proxy", "begin each connection to a target with a header of the PROXY protocol, version 1, which names the client", func(m *Map) *bool { return &m.SendProxy }),
	boolOption("send-proxy-v2", "likewise, version 2", func(m *Map) *bool { return &m.SendProxyV2 }),
	countOption("max-connections", "4096", "`N` connections of a map may be open, further clients are reset; 0 for no limit", func(m *Map) *int { return &m.MaxConnections }),
	countOption("max-rate", "0", "`N` connections a second are taken; 0 for no limit", func(m *Map) *int { return &m.MaxRate }),
	wordOption("when-full", "clients beyond max-connections and max-rate: `WHAT` is done: refuse or wait", []string{refuseThem, letWait}, func(m *Map) *string { return &m.WhenFull }),
	durationOption("idle-timeout", "", "cut connections that pass on nothing for `TIME`; 0 for never", func(m *Map) *time.Duration { return &m.IdleTimeout }),
	durationOption("half-closed-timeout", "1h", "likewise after `TIME`, where one side has sent its end of file", func(m *Map) *time.Duration { return &m.HalfClosed }),
	durationOption("keepalive", "15s", "have the kernel ask a silent peer of TCP after `TIME` whether it is there; 0 for never", func(m *Map) *time.Duration { return &m.KeepAlive }),
	listOption(allowFrom, "`NETWORKS`, as in 10.0.0.0/8, from which clients may connect by tcp://", networksOf(func(m *Map) *[]netip.Prefix { return &m.Sources })),
	listOption(acceptProxy, "`NETWORKS` of proxies: from these alone tcp:// takes connections, and each begins with a header of the PROXY protocol, which names the client", networksOf(func(m *Map) *[]netip.Prefix { return &m.Proxies })),
	listOption("allow-user", "`USERS`, by names or numbers with commas between, may connect by sdp:// or unix://, and nobody else of this machine, nor of other nodes", func(m *Map, values []string) (err error) {
		m.Users.uids, err = userNumbers(values)
		return err
	}),
	listOption("allow-group", "members of `GROUPS` may connect, likewise; with --allow-user, both may", func(m *Map, values []string) (err error) {
		m.Users.gids, err = groupNumbers(values)
		return err
	}),
	{Name: "mode", Usage: "permissions of Unix sockets, `OCTAL`, as in 660", set: func(m *Map, values []string) error {
		n, err := strconv.ParseUint(values[0], 8, 9)
		if err != nil || n == 0 {
			return fmt.Errorf("%q: want permissions in octal, as in 660", values[0])
		}
		r := m.rights()
		r.Mode = os.FileMode(n)
		m.Socket = &r
		return nil
	}},
	numberOption("owner", "`USER` who owns Unix sockets, by name or number", userNumbers, func(r *unixsock.Rights) *int { return &r.UID }),
	numberOption("group", "`GROUP` of Unix sockets, by name or number", groupNumbers, func(r *unixsock.Rights) *int { return &r.GID }),
}

// rights returns the rights of the map's socket.
func (m *Map) rights() unixsock.Rights {
	if m.Socket == nil {
		return unixsock.Rights{UID: -1, GID: -1}
	}
	return *m.Socket
}

func numberOption(name, usage string, numbers func([]string) ([]int, error), field func(*unixsock.Rights) *int) Option[Map] {
	return Option[Map]{Name: name, Usage: usage, set: func(m *Map, values []string) error {
		all, err := numbers(values)
		if err == nil {
			r := m.rights()
			*field(&r) = all[0]
			m.Socket = &r
		}
		return err
	}}
}

// networksOf returns what sets a list of networks.
func networksOf(field func(*Map) *[]netip.Prefix) func(*Map, []string) error {
	return func(m *Map, values []string) error {
		var all []netip.Prefix
		for _, v := range values {
			p, err := netip.ParsePrefix(v)
			if a, bad := netip.ParseAddr(v); bad == nil {
				p, err = netip.PrefixFrom(a, a.BitLen()), nil
			}
			if err != nil || p != p.Masked() || p.Addr().Is4In6() {
				return fmt.Errorf("%q: want a network without bits beyond its length, as in 10.0.0.0/8", v)
			}
			all = append(all, p)
		}
		*field(m) = all
		return nil
	}
}

// String returns the listener and the targets, "LISTEN=TARGET" or "LISTEN=TARGET,TARGET", and "LISTEN" of a
// transparent map. [ParseMap] parses the first and the last.
func (m Map) String() string {
	if m.Transparent {
		return m.Listen.String()
	}
	return m.Listen.String() + "=" + strings.Join(m.TargetNames(), ",")
}

// TargetNames returns what stands for the targets in what people read.
func (m *Map) TargetNames() (names []string) {
	if m.Transparent {
		return []string{transparentTarget}
	}
	for _, t := range m.Targets {
		names = append(names, t.String())
	}
	return names
}

// check returns an error about a map that cannot be.
func (m *Map) check() error {
	switch {
	case m.Listen == Endpoint{}:
		return errors.New("listen is missing: where clients connect, as in tcp://127.0.0.1:6380")
	case m.Transparent && len(m.Targets) > 0:
		return errors.New("a transparent map has no target: its connections go where their clients wanted to go")
	case m.Transparent && m.Listen.Network != networkTCP:
		return fmt.Errorf("transparent is for tcp://, and nothing is redirected to %v", m.Listen)
	case len(m.Targets) == 0 && !m.Transparent:
		return errors.New("target is missing: where connections go, as in sdp://localhost:7000")
	case slices.ContainsFunc(m.Targets, func(t Endpoint) bool { return t.Network == networkBoth }):
		return errors.New("tcp+sdp:// is where clients connect; a target is tcp:// or sdp://")
	case slices.ContainsFunc(m.Targets, func(t Endpoint) bool { return m.Listen.has(t.Network) && m.Listen.half(t.Network) == t }):
		return errors.New("the two sides are the same, so it would forward to itself")
	case m.Listen.has(networkTCP) && !m.Users.All():
		return fmt.Errorf("cannot listen on %v for some users alone: TCP does not know whose process connects; use sdp:// or unix://, or another map without allow-user and allow-group", m.Listen)
	case !m.Listen.has(networkTCP) && len(m.Sources) > 0:
		return fmt.Errorf("allow-from is for tcp://, and %v has no addresses of clients", m.Listen)
	case !m.Listen.has(networkTCP) && len(m.Proxies) > 0:
		return fmt.Errorf("accept-proxy is for tcp://, and %v has no addresses of proxies", m.Listen)
	case m.Transparent && (m.SendProxy || m.SendProxyV2 || len(m.Proxies) > 0):
		return errors.New("send-proxy, send-proxy-v2 and accept-proxy are not for transparent maps")
	case m.SendProxy && m.SendProxyV2:
		return errors.New("send-proxy and send-proxy-v2 are two forms of one header; choose one")
	case m.Socket != nil && (m.Listen.Network != networkUnix || unixsock.IsAbstract(m.Listen.Address)):
		return fmt.Errorf("mode, owner and group are for the file of a Unix socket, and %v has none", m.Listen)
	}
	return nil
}

// targetStart finds the "=" of LISTEN=TARGET. A path may contain others.
var targetStart = regexp.MustCompile(`=[A-Za-z][A-Za-z0-9+.-]*://`)

// ParseMap parses "LISTEN=TARGET". Each side is tcp://host:port, sdp://host:port,
// unix:///path or unix://relative/path. Port 0 is allowed on the left, where it
// picks a free one. Of a transparent map it is "LISTEN". Host names are not looked up. The rest is that of m. The error is one line that says
// what to do. [Map.String] returns accepted text unchanged.
func (m Map) ParseMap(s string) (Map, error) {
	if err := m.parse(s); err != nil {
		return Map{}, fmt.Errorf("map %q: %w", s, err)
	}
	return m, nil
}

func (m *Map) parse(s string) error {
	at := targetStart.FindAllStringIndex(s, 2)
	if m.Transparent && len(at) == 0 {
		listen, err := parseEndpoint(s, 0)
		if err != nil {
			return err
		}
		m.Listen = listen
		return m.check()
	}
	switch {
	case len(at) > 1:
		return errors.New(`more than one "=SCHEME://"; give one --map for each pair`)
	case len(at) == 0 && strings.Contains(s, "="):
		return errors.New("the target, right of the =, must begin with tcp://, sdp:// or unix://")
	case len(at) == 0:
		return errors.New("must be LISTEN=TARGET, as in tcp://127.0.0.1:6379=sdp://localhost:7000")
	}
	eq := at[0][0]
	listen, err := parseEndpoint(s[:eq], 0)
	if err != nil {
		return fmt.Errorf("left side: %w", err)
	}
	target, err := parseEndpoint(s[eq+1:], 1)
	if err != nil {
		return fmt.Errorf("right side: %w", err)
	}
	m.Listen, m.Targets = listen, []Endpoint{target}
	return m.check()
}
