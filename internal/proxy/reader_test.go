//go:build linux

package proxy

import (
	"io"
	"net"
	"testing"

	"github.com/ntbnet/ntbnet/internal/shm/unixsock"
	"github.com/stretchr/testify/require"
)

func TestReaderHoldsABufferOnlyWhileThereIsData(t *testing.T) {
	for _, network := range []string{networkTCP, networkUnix} {
		t.Run(network, func(t *testing.T) {
			e := newEnv(t)
			ln, at := e.serverOn(network)
			client := e.dial(at)
			server := unixsock.Plain(accept(t, ln).(net.Conn))
			if network == networkUnix && !unixsock.IsPlain(server) {
				t.Skip("WARNING: this kernel lets peers send files, so that Unix sockets are read otherwise")
			}
			r := newReader(server)
			waits := make(chan bool, 100)
			try := r.try
			r.try = func(fd uintptr) bool {
				done := try(fd)
				if !done {
					select {
					case waits <- r.buf != nil:
					default:
					}
				}
				return done
			}
			type result struct {
				text string
				err  error
			}
			got := make(chan result)
			next := func(arrive func() error) result {
				go func() {
					b, err := r.next()
					got <- result{string(b), err}
				}()
				require.False(t, <-waits, "it waits with a buffer")
				require.NoError(t, arrive())
				return <-got
			}
			for range 3 {
				require.Equal(t, result{text: "some"}, next(func() error {
					_, err := client.Write([]byte("some"))
					return err
				}))
				require.NotNil(t, r.buf)
			}
			require.Equal(t, result{err: io.EOF}, next(client.CloseWrite))
			r.release()
			require.Nil(t, r.buf)
			_, err := r.next()
			require.Equal(t, io.EOF, err, "the end comes again")
			r.release()
		})
	}
}

// A reset that a read finds behind data is returned behind that data, since the kernel reports it once.
func TestAResetBehindDataIsReturned(t *testing.T) {
	for _, size := range []int{1 << 10, 2 * wakesWithin} {
		e := newEnv(t)
		ln, at := e.serverOn(networkTCP)
		client := e.dial(at)
		server := accept(t, ln).(net.Conn)
		_, err := client.Write(make([]byte, size))
		require.NoError(t, err)
		reset(client)
		eventually(t, "the reset arrives", func() bool { return isDown(server) })
		r, n := newReader(server), 0
		for err == nil {
			var b []byte
			b, err = r.next()
			n += len(b)
		}
		require.True(t, isReset(err), "%d bytes, then %v", n, err)
		r.release()
	}
}
