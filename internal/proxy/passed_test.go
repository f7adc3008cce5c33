package proxy

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestASocketIsForTheMapAtItsAddress(t *testing.T) {
	for _, c := range []struct {
		socket, listen string
		is             bool
	}{
		{"tcp://127.0.0.1:80", "tcp://127.0.0.1:80", true},
		{"tcp://127.0.0.1:80", "tcp://127.0.0.1:81", false},
		{"tcp://127.0.0.1:80", "tcp://:80", false},
		{"tcp://127.0.0.1:80", "tcp://127.0.0.2:80", false},
		{"tcp://[::]:80", "tcp://:80", true},
		{"tcp://0.0.0.0:80", "tcp://:80", true},
		{"tcp://[::]:80", "tcp://[::]:80", true},
		{"tcp://[::]:80", "tcp://0.0.0.0:80", false},
		{"tcp://[::1]:80", "tcp://[::1]:80", true},
		{"tcp://[::1]:80", "sdp://[::1]:80", false},
		{"unix:///run/s", "unix:///run/../run/s", true},
		{"unix:///run/s", "unix:///run/t", false},
		{"unix://@s", "unix://@s", true},
		{"unix://@s", "unix:///s", false},
	} {
		at, err := parseEndpoint(c.socket, 1)
		require.NoError(t, err)
		listen, err := parseEndpoint(c.listen, 0)
		require.NoError(t, err)
		require.Equal(t, c.is, passed{at: at}.isFor(listen), "%v", c)
	}
}
