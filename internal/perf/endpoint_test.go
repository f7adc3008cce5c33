package perf

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseEndpoint(t *testing.T) {
	for _, c := range []struct{ in, network, address string }{
		{"sdp://localhost:7000", "sdp", "localhost:7000"},
		{"tcp://[::1]:0", "tcp", "[::1]:0"},
		{"tcp://:65535", "tcp", ":65535"},
		{"unix:///tmp/a b", "unix", "/tmp/a b"},
	} {
		e, err := ParseEndpoint(c.in)
		require.NoError(t, err, c.in)
		assert.Equal(t, Endpoint{c.network, c.address}, e)
		assert.Equal(t, c.in, e.String())
	}
}

func TestParseEndpointSaysWhatToWriteInstead(t *testing.T) {
	for _, c := range []struct{ in, says string }{
		{"", "write it as sdp://localhost:7000"},
		{"localhost:7000", "write it as sdp://localhost:7000"},
		{"udp://localhost:7000", "use one of sdp, tcp, unix"},
		{"sdp://localhost", "write it as sdp://localhost:7000"},
		{"tcp://localhost:65536", "use a number from 0 to 65535"},
		{"tcp://localhost:-1", "use a number from 0 to 65535"},
		{"tcp://localhost:http", "use a number from 0 to 65535"},
		{"unix://", "write it as unix:///path"},
	} {
		_, err := ParseEndpoint(c.in)
		assert.ErrorContains(t, err, c.says, "%q", c.in)
	}
}
