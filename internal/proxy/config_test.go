package proxy

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/shm/unixsock"
	"github.com/stretchr/testify/require"
)

func TestFileSaysMapsAndOptions(t *testing.T) {
	c, err := parseConfig("f", []byte(`
# A comment.
maps:
  - listen: tcp://127.0.0.1:6380
    target: sdp://localhost:7000
    dial-timeout: 2s
    balance: roundrobin
    retries: 2
    check: 1s
    max-rate: 5
    when-full: wait
    idle-timeout: 1m
    half-closed-timeout: 2h
    keepalive: 0s
    allow-from: [10.0.0.0/8, "::1"]
    accept-proxy: 10.1.0.0/16
    send-proxy-v2: true
  - {listen: "unix:///s", target: "tcp://:2", allow-user: 7, mode: 0660, group: 5}
  - {listen: "sdp://:7001", targets: [tcp://127.0.0.1:1, "unix:///run/a=b"], max-connections: 0, allow-user: [1001, root], allow-group: 7}
defaults:
  max-connections: 10
drain-timeout: 1m
quiet: true
`))
	require.NoError(t, err)
	require.Equal(t, time.Minute, c.DrainTimeout)
	require.True(t, c.Quiet)
	require.False(t, c.Own)
	require.Equal(t, []Map{
		{Listen: Endpoint{"tcp", "127.0.0.1:6380"}, Targets: []Endpoint{{"sdp", "localhost:7000"}}, DialTimeout: 2 * time.Second, MaxConnections: 10,
			Balance: roundRobin, Retries: 2, Check: time.Second, MaxRate: 5, WhenFull: letWait, IdleTimeout: time.Minute, HalfClosed: 2 * time.Hour,
			Sources: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128")},
			Proxies: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}, SendProxyV2: true},
		{Listen: Endpoint{"unix", "/s"}, Targets: []Endpoint{{"tcp", ":2"}}, DialTimeout: 10 * time.Second, MaxConnections: 10, Balance: first,
			WhenFull: refuseThem, HalfClosed: time.Hour, KeepAlive: 15 * time.Second, Users: Users{uids: []int{7}}, Socket: &unixsock.Rights{Mode: 0o660, UID: -1, GID: 5}},
		{Listen: Endpoint{"sdp", ":7001"}, Targets: []Endpoint{{"tcp", "127.0.0.1:1"}, {"unix", "/run/a=b"}}, DialTimeout: 10 * time.Second, Balance: first,
			WhenFull: refuseThem, HalfClosed: time.Hour, KeepAlive: 15 * time.Second,
			Users: Users{[]int{1001, 0}, []int{7}}},
	}, c.Maps)
}

func TestErrorsOfFilesHaveLineAndColumn(t *testing.T) {
	const good = "maps:\n- listen: tcp://:1\n  target: tcp://:2\n"
	for text, want := range map[string]string{
		"":                                  "f:1:1: nothing is in it: want maps",
		"# nothing\n":                       "f:1:1: nothing is in it: want maps",
		"maps: []":                          "f:1:1: nothing to do: want a map, or own",
		"own: maybe":                        `f:1:6: own "maybe": want true or false`,
		"maps: 7":                           "f:1:7: want a list of maps",
		"- maps":                            "f:1:1: want the file, as keys with values",
		"maps:\n- 7":                        "f:2:3: want a map, as keys with values",
		"mops: []":                          `f:1:1: unknown key "mops" of the file`,
		"maps: []\nmaps: []":                "f:2:1: maps is there twice",
		good + "  port: 1":                  `f:4:3: unknown key "port" of a map`,
		good + "  target: tcp://:3":         "f:4:3: target is there twice",
		good + "  dial-timeout: 2":          `f:4:17: dial-timeout "2": want a time with its unit, as in 300ms or 2s`,
		good + "  dial-timeout: -2s":        "f:4:17: dial-timeout -2s: cannot be negative",
		good + "  dial-timeout: [2s]":       "f:4:17: want a value of dial-timeout",
		good + "  dial-timeout:":            "f:4:16: want a value of dial-timeout",
		good + "  max-connections: many":    `f:4:20: max-connections "many": want a whole number`,
		good + "  max-connections: 1e3":     `f:4:20: max-connections "1e3": want a whole number`,
		good + "  allow-user: [root, \"\"]": `f:4:15: allow-user "": want a name or number`,
		good + "  allow-user: [[1]]":        "f:4:16: want a value of allow-user",
		good + "  allow-user: no one":       `f:4:15: allow-user user "no one": `,
		good + "  allow-user: []":           `f:4:15: allow-user is an empty list; give it a value, or leave it out`,
		good + "  allow-group: []":          `f:4:16: allow-group is an empty list`,
		good + "  allow-from: []":           `f:4:15: allow-from is an empty list`,
		good + "  accept-proxy: []":         `f:4:17: accept-proxy is an empty list`,
		"defaults:\n  allow-from: []":       `f:2:15: allow-from is an empty list`,
		good + "  balance: source":          `f:4:12: balance "source": want first or roundrobin or leastconn`,
		good + "  allow-from: 10.0.0.1/8":   `f:4:15: allow-from "10.0.0.1/8": want a network`,
		"maps:\n- listen: tcp://:1\n  transparent: true\n  send-proxy: true":        "f:2:3: send-proxy, send-proxy-v2 and accept-proxy are not for transparent",
		good + "  accept-proxy: all":                                                `f:4:17: accept-proxy "all": want a network`,
		good + "  send-proxy: true\n  send-proxy-v2: true":                          "f:2:3: send-proxy and send-proxy-v2 are two forms of one header",
		good + "- listen: sdp://:1\n  target: tcp://:3\n  accept-proxy: 10.0.0.0/8": "f:4:3: accept-proxy is for tcp://",
		good + "  mode: 888": `f:4:9: mode "888": want permissions in octal`,
		good + "  mode: 660": "f:2:3: mode, owner and group are for the file of a Unix socket, and tcp://:1 has none",
		good + "- listen: sdp://:1\n  target: tcp://:3\n  allow-from: 10.0.0.0/8": "f:4:3: allow-from is for tcp://",
		good + "  allow-user: 1":                          "f:2:3: cannot listen on tcp://:1 for some users alone",
		good + "- listen: tcp://:1\n  target: tcp://:3":   "two maps listen on tcp://:1",
		"maps:\n- target: tcp://:2":                       "f:2:3: listen is missing",
		"maps:\n- listen: tcp://:2":                       "f:2:3: target is missing",
		"maps:\n- listen: tcp://:2\n  target: tcp://:2":   "f:2:3: the two sides are the same",
		"maps:\n- listen: tcp://:x\n  target: tcp://:2":   `f:2:11: "x" is not a port`,
		"maps:\n- listen: tcp://:1\n  target: tcp://:0":   `f:3:11: "0" is not a port; use a number from 1 to 65535`,
		"maps:\n- listen: [tcp://:1]\n  target: tcp://:2": "f:2:11: want an address",
		"maps:\n- listen: tcp://:1\n  targets: tcp://:2":  "f:3:12: want a list of targets",
		"maps:\n- listen: tcp://:1\n   target: tcp://:2":  "f:3:4: mapping values are not allowed in this context",
		"maps: \"":                      "f:1:1: ",
		"maps:\n\t- listen: x":          "f:2:2: found character that cannot start any token",
		"a: &a [*a]":                    `f:1:1: unknown key "a"`,
		"maps: *a":                      "f:1:1: unknown anchor 'a' referenced",
		good + "---\n" + good:           "f:4:1: want one document",
		good + "...\n\x00":              "f:1:1: control characters are not allowed",
		"defaults:\n  listen: tcp://:1": `f:2:3: unknown key "listen" of defaults`,
		"defaults:\n  <<: {}":           `f:2:3: unknown key "<<" of defaults`,
		"maps: &m\n- *m":                "f:1:7: want a map, as keys with values",
	} {
		_, err := parseConfig("f", []byte(text))
		require.ErrorContains(t, err, want, text)
		require.NotContains(t, err.Error(), "\n", text)
		require.Regexp(t, `^f:\d+:\d+: `, err.Error(), text)
	}
}

func TestFilesThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	_, err := ReadFile(dir + "/none")
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = ReadFile(dir)
	require.Error(t, err)
	large := filepath.Join(dir, "large")
	require.NoError(t, os.WriteFile(large, []byte(strings.Repeat("#", 1<<20+1)), 0o600))
	_, err = ReadFile(large)
	require.ErrorContains(t, err, "more than")
}

// What parses can be served, whatever the text was, and each error has a place and is one line.
func FuzzConfig(f *testing.F) {
	for _, s := range []string{
		"maps:\n- listen: tcp://:1\n  target: sdp://:2\n", "maps: [{listen: 'unix:///a', targets: [tcp://:1, tcp://:2], dial-timeout: 1s}]",
		"own: true", "defaults: &d {max-connections: 1}\nmaps: [*d]", "a: &a [*a, *a]", "{", "maps:\n\t", "- - -", "? [a]\n: b", "!!binary x: y", "own: !!null x",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c, err := parseConfig("f", []byte(s))
		if err != nil {
			require.Regexp(t, `^f:\d+:\d+: [^\n]+$`, err.Error())
			return
		}
		require.NoError(t, c.Check())
		for _, m := range c.Maps {
			require.NoError(t, m.check())
		}
	})
}

// The max-connections for some memory is that of each map.
func TestMostConnectionsOfMemory(t *testing.T) {
	one, three := &Config{Maps: make([]Map, 1)}, &Config{Maps: make([]Map, 3)}
	n, err := one.MostConnections(48 << 20)
	require.NoError(t, err)
	require.Equal(t, 25, n)
	n, err = three.MostConnections(48 << 20)
	require.NoError(t, err)
	require.Equal(t, 8, n)
	_, err = three.MostConnections(16 << 20)
	require.EqualError(t, err, "16777216 bytes of memory are too little for 3 maps: want at least 20 MiB")
	_, err = three.MostConnections(20 << 20)
	require.NoError(t, err)
}
