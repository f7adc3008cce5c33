package proxy

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseMapAccepts(t *testing.T) {
	for in, want := range map[string][2]Endpoint{
		"tcp://127.0.0.1:6379=sdp://localhost:7000": {{"tcp", "127.0.0.1:6379"}, {"sdp", "localhost:7000"}},
		"sdp://:0=tcp://[::1]:80":                   {{"sdp", ":0"}, {"tcp", "[::1]:80"}},
		"tcp://[fe80::1%eth0]:80=sdp://node2:65535": {{"tcp", "[fe80::1%eth0]:80"}, {"sdp", "node2:65535"}},
		"unix:///run/a=b.sock=unix://rel/c=d":       {{"unix", "/run/a=b.sock"}, {"unix", "rel/c=d"}},
		"unix://@name=sdp://h:1":                    {{"unix", "@name"}, {"sdp", "h:1"}},
	} {
		got, err := Map{MaxConnections: 7}.ParseMap(in)
		require.NoError(t, err, in)
		require.Equal(t, Map{Listen: want[0], Targets: want[1:], MaxConnections: 7}, got, in)
	}
}

func TestParseMapSaysWhatIsWrong(t *testing.T) {
	long := "unix:///" + strings.Repeat("x", 107)
	for in, want := range map[string]string{
		"":                                "must be LISTEN=TARGET",
		"tcp://a:1":                       "must be LISTEN=TARGET",
		"tcp://a:1=":                      "the target, right of the =, must begin with",
		"tcp://a:1=b:2":                   "the target, right of the =, must begin with",
		"=tcp://a:1":                      `left side: "" must begin with tcp://`,
		"a:1=tcp://b:2":                   `left side: "a:1" must begin with tcp://`,
		"http://a:1=tcp://b:2":            `left side: unknown scheme "http://"; use tcp://`,
		"TCP://a:1=tcp://b:2":             `left side: unknown scheme "TCP://"; use tcp://`,
		"tcp://a:1=ws://b:2":              `right side: unknown scheme "ws://"; use tcp://`,
		"tcp://a:1=tcp://b:2=tcp://c:3":   "more than one",
		"tcp://a=tcp://b:2":               `"a" must be host:port`,
		"tcp://::1:1=tcp://b:2":           `"::1:1" must be host:port, with an IPv6 address in brackets`,
		"tcp://a:=tcp://b:2":              `"" is not a port; use a number from 0 to 65535`,
		"tcp://a:http=tcp://b:2":          `"http" is not a port`,
		"tcp://a:65536=tcp://b:2":         `"65536" is not a port`,
		"tcp://a:-1=tcp://b:2":            `"-1" is not a port`,
		"tcp://a:+1=tcp://b:2":            `"+1" is not a port`,
		"tcp://a:1/=tcp://b:2":            `"1/" is not a port`,
		"tcp://a:1=tcp://b:0":             `"0" is not a port; use a number from 1 to 65535`,
		"tcp://a:99999999999999=sdp://b:": `"99999999999999" is not a port`,
		"tcp://u@a:1=tcp://b:2":           `"u@a" is not the name or address of a host`,
		"tcp:// a:1=tcp://b:2":            `" a" is not the name or address of a host`,
		"unix://=tcp://b:2":               "the path is missing",
		"unix://@=tcp://b:2":              "the path is missing",
		"unix:///a\x00b=tcp://b:2":        "zero byte",
		long + "=tcp://b:2":               "takes at most 107",
		"tcp://a:1=tcp://a:1":             "forward to itself",
	} {
		_, err := Map{}.ParseMap(in)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseMap(%q): %v; want %q in it", in, err, want)
		} else if strings.ContainsAny(err.Error(), "\n\x00") {
			t.Errorf("ParseMap(%q): %q is not one plain line", in, err)
		}
	}
}

// Accepted text is returned unchanged, and either side can be used: a port is in
// range, and a path fits.
func FuzzParseMap(f *testing.F) {
	for _, s := range []string{
		"tcp://127.0.0.1:6379=sdp://localhost:7000", "unix:///run/a=b.sock=unix://c=d",
		"unix://@name=sdp://h:1", "tcp://[fe80::1%eth0]:80=sdp://n:65535", "sdp://:0=tcp://:1",
		"", "=", "tcp://a:1", "tcp://a:1=tcp://b:2=tcp://c:3", "unix://\x00=tcp://b:2", "tcp://a:+1=x://",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		m, err := Map{}.ParseMap(s)
		if err != nil {
			require.Zero(t, m)
			if strings.ContainsAny(err.Error(), "\n\r\x00") {
				t.Errorf("ParseMap(%q): %q is not one plain line", s, err)
			}
			return
		}
		if m.String() != s {
			t.Errorf("ParseMap(%q) gives back %q", s, m)
		}
		for _, e := range append(m.Targets, m.Listen) {
			switch e.Network {
			case networkTCP, networkSDP:
				err = checkHostPort(e.Address, 0)
			case networkUnix:
				err = checkPath(e.Address)
			default:
				t.Errorf("ParseMap(%q) accepts network %q", s, e.Network)
			}
			if err != nil {
				t.Errorf("ParseMap(%q) accepts %v: %v", s, e, err)
			}
		}
	})
}
