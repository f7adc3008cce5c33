//go:build linux

package integration

import (
	"io"
	"os"
	"strconv"
	"syscall"
	"testing"

	"github.com/ntbnet/ntbnet/sdp"
	"github.com/stretchr/testify/require"
)

// playHit dials, writes, closes if told to, and exits at once. Its arguments are
// the address, the number of bytes, "close" or "exit", and the number of
// repetitions.
func playHit(p *self) error {
	n, err := strconv.Atoi(p.args[1])
	if err != nil {
		return err
	}
	times, err := strconv.Atoi(p.args[3])
	if err != nil {
		return err
	}
	for i := range times {
		c, err := sdp.Dial("sdp", p.args[0])
		if err != nil {
			return err
		}
		if _, err := io.CopyN(c, newStream(i), int64(n)); err != nil {
			return err
		}
		if p.args[2] == "close" {
			if err := c.Close(); err != nil {
				return err
			}
		}
	}
	os.Exit(0)
	return nil
}

func startHit(t *testing.T, address string, n int, how string, times int) *peer {
	t.Helper()
	return startPeer(t, "hit", []string{address, strconv.Itoa(n), how, strconv.Itoa(times)})
}

// A client that writes much and exits at once loses nothing, even data that is read
// only after its exit. The stream has ended in order only if the client called
// Close.
func TestClientExitsAtOnce(t *testing.T) {
	const size, tail = 64 << 20, 512 << 10
	for _, how := range []string{"close", "exit"} {
		t.Run(how, func(t *testing.T) {
			newFabric(t)
			ln := listenSDP(t)
			client := startHit(t, ln.Addr().String(), size, how, 1)
			c := acceptSDP(t, ln)
			s := newStream(0)
			require.NoError(t, s.readExactly(c, size-tail))
			client.wait() // the rest is in our window
			require.Zero(t, client.cmd.ProcessState.ExitCode(), "%s", client.stderr.String())
			require.NoError(t, s.readExactly(c, tail))
			n, err := c.Read(make([]byte, 1))
			require.Zero(t, n)
			if how == "close" {
				require.Equal(t, io.EOF, err)
			} else {
				require.ErrorIs(t, err, syscall.ECONNRESET)
			}
			require.GreaterOrEqual(t, c.Stats().BytesRead, uint64(size))
			client.quiet()
		})
	}
}

// Clients that have exited before Accept are accepted all the same, with what they
// wrote.
func TestClientExitsBeforeAccept(t *testing.T) {
	newFabric(t)
	ln := listenSDP(t)
	const times = 20
	sizes := []int{0, 1, 100, 3000}
	for _, n := range sizes {
		client := startHit(t, ln.Addr().String(), n, "close", times)
		client.wait()
		require.Zero(t, client.cmd.ProcessState.ExitCode(), "%s", client.stderr.String())
		client.quiet()
	}
	for _, n := range sizes {
		for i := range times {
			c := acceptSDP(t, ln)
			require.NoError(t, newStream(i).readExactly(c, int64(n)), "connection %d of %d bytes", i, n)
			_, err := c.Read(make([]byte, 1))
			require.Equal(t, io.EOF, err)
			require.NoError(t, c.Close())
		}
	}
}
