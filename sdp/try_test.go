package sdp

import (
	"bytes"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTriesDoNotWait(t *testing.T) {
	onFabrics(t, func(t *testing.T, f *Fabric) {
		a, b := mustPipe(t, f)
		buf := make([]byte, 1<<20)
		_, err := b.TryRead(buf)
		require.ErrorIs(t, err, syscall.EAGAIN)

		// Until the other side reads, some is taken, and no more. Pieces of both kinds go on from where the last one ended.
		var sent bytes.Buffer
		write := func() (full bool) {
			piece := bytes.Repeat([]byte{byte(sent.Len())}, 1+sent.Len()%100000)
			n, err := a.TryWrite(piece)
			if err != nil {
				require.ErrorIs(t, err, syscall.EAGAIN)
			}
			sent.Write(piece[:n])
			return err != nil
		}
		for !write() {
		}
		require.Positive(t, sent.Len())
		var got bytes.Buffer
		for got.Len() < 8<<20 {
			require.NoError(t, b.WaitRead())
			n, err := b.TryRead(buf)
			require.NoError(t, err)
			got.Write(buf[:n])
			require.NoError(t, a.WaitWrite())
			for !write() {
			}
		}
		require.NoError(t, a.CloseWrite())
		rest, err := io.ReadAll(b)
		require.NoError(t, err)
		got.Write(rest)
		require.True(t, bytes.Equal(sent.Bytes(), got.Bytes()), "%d bytes sent, %d read", sent.Len(), got.Len())
		require.NoError(t, b.WaitRead())
		_, err = b.TryRead(buf)
		require.ErrorIs(t, err, io.EOF)
	})
}

// What a wait returns for is left to the next call: an end, and the reset, which is told once.
func TestWaitsTakeNoErrors(t *testing.T) {
	onFabrics(t, func(t *testing.T, f *Fabric) {
		a, b := mustPipe(t, f)
		waits := map[string]func() error{"read": b.WaitRead, "write": b.WaitWrite}
		waiting := make(chan error, 1)
		go func() { waiting <- b.WaitRead() }()
		require.NoError(t, a.SetLinger(0))
		require.NoError(t, a.Close())
		require.NoError(t, <-waiting)
		for name, wait := range waits {
			require.NoError(t, wait(), name)
		}
		_, err := b.TryRead(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)
		_, err = b.TryWrite([]byte{1})
		require.ErrorIs(t, err, syscall.EPIPE)

		_, c := mustPipe(t, f)
		require.NoError(t, c.SetReadDeadline(time.Now()))
		require.ErrorIs(t, c.WaitRead(), os.ErrDeadlineExceeded)
		require.NoError(t, c.Close())
		require.ErrorIs(t, c.WaitRead(), net.ErrClosed)
		require.ErrorIs(t, c.WaitWrite(), net.ErrClosed)
	})
}
