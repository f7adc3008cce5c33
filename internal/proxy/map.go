package proxy

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Map says where to listen, where the connections go, and what holds for them. It is not changed once it is used.
type Map struct {
	Listen  Endpoint
	Targets []Endpoint // one or more: the first one that answers is taken

	DialTimeout    time.Duration // of each target; 0 for the network's own limit
	MaxConnections int           // open ones, including those whose target is being dialled; 0 for no limit
	Users          Users         // those who may connect, by sdp alone
}

// MapOptions are those of a [Map].
var MapOptions = []Option[Map]{
	durationOption("dial-timeout", "10s", "give up on a target after `TIME`; 0 for no limit", func(m *Map) *time.Duration { return &m.DialTimeout }),
	countOption("max-connections", "4096", "`N` connections of a map may be open, further clients are reset; 0 for no limit", func(m *Map) *int { return &m.MaxConnections }),
	listOption("allow-user", "`USERS`, by names or numbers with commas between, may connect by sdp://, and nobody else of this machine, nor of other nodes", func(m *Map, values []string) (err error) {
		m.Users.uids, err = userNumbers(values)
		return err
	}),
	listOption("allow-group", "members of `GROUPS` may connect, likewise; with --allow-user, both may", func(m *Map, values []string) (err error) {
		m.Users.gids, err = groupNumbers(values)
		return err
	}),
}

// String returns the listener and the targets, "LISTEN=TARGET" or "LISTEN=TARGET,TARGET". [ParseMap] parses the
// former.
func (m Map) String() string {
	var targets []string
	for _, t := range m.Targets {
		targets = append(targets, t.String())
	}
	return m.Listen.String() + "=" + strings.Join(targets, ",")
}

// check returns an error about a map that cannot be.
func (m *Map) check() error {
	switch {
	case m.Listen == Endpoint{}:
		return errors.New("listen is missing: where clients connect, as in tcp://127.0.0.1:6380")
	case len(m.Targets) == 0:
		return errors.New("target is missing: where connections go, as in sdp://localhost:7000")
	case slices.Contains(m.Targets, m.Listen):
		return errors.New("the two sides are the same, so it would forward to itself")
	case m.Listen.Network != networkSDP && !m.Users.All():
		return fmt.Errorf("cannot listen on %v for some users alone: only an sdp:// listener knows whose process connects; use sdp://, or another map without allow-user and allow-group", m.Listen)
	}
	return nil
}

// targetStart finds the "=" of LISTEN=TARGET. A path may contain others.
var targetStart = regexp.MustCompile(`=[A-Za-z][A-Za-z0-9+.-]*://`)

// ParseMap parses "LISTEN=TARGET". Each side is tcp://host:port, sdp://host:port,
// unix:///path or unix://relative/path. Port 0 is allowed on the left, where it
// picks a free one. Host names are not looked up. The rest is that of m. The error is one line that says
// what to do. [Map.String] returns accepted text unchanged.
func (m Map) ParseMap(s string) (Map, error) {
	if err := m.parse(s); err != nil {
		return Map{}, fmt.Errorf("map %q: %w", s, err)
	}
	return m, nil
}

func (m *Map) parse(s string) error {
	at := targetStart.FindAllStringIndex(s, 2)
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
