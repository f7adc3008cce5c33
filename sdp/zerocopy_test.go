package sdp

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLeasesCarryEveryByte(t *testing.T) {
	onFabrics(t, func(t *testing.T, f *Fabric) {
		a, b := mustPipe(t, f)
		want := make([]byte, 5<<20)
		rand.NewChaCha8([32]byte{1}).Read(want)
		go func() {
			rnd := rand.New(rand.NewPCG(1, 1))
			for rest := want; len(rest) > 0; {
				space, err := a.Reserve(min(len(rest), 1+rnd.IntN(1<<(1+rnd.IntN(18)))))
				if err != nil {
					t.Error(err)
					return
				}
				n := rnd.IntN(len(space) + 1)
				copy(space, rest[:n])
				a.Commit(n)
				rest = rest[n:]
			}
			a.CloseWrite()
		}()
		var got []byte
		for {
			p, err := b.Peek()
			if err == io.EOF {
				break
			}
			require.NoError(t, err)
			n := (len(p) + 2) / 2
			n = min(n, len(p))
			got = append(got, p[:n]...)
			b.Discard(n)
		}
		require.True(t, bytes.Equal(got, want))
	})
}

// Close does not wait for a lease, whose memory stays. At the end of the lease
// comes what Close left to do.
func TestCloseUnderALease(t *testing.T) {
	onFabrics(t, func(t *testing.T, f *Fabric) {
		a, b := mustPipe(t, f)
		_, err := a.Write([]byte("data"))
		require.NoError(t, err)
		p, err := b.Peek()
		require.NoError(t, err)
		space, err := b.Reserve(100)
		require.NoError(t, err)
		require.NoError(t, b.Close())
		require.Equal(t, "data", string(p))
		copy(space, "answer")
		b.Commit(6)
		b.Discard(4)
		got, err := io.ReadAll(a)
		require.NoError(t, err)
		require.Equal(t, "answer", string(got))
		_, err = b.Peek()
		require.ErrorIs(t, err, net.ErrClosed)
		_, err = b.Reserve(1)
		require.ErrorIs(t, err, net.ErrClosed)
		require.Eventually(t, func() bool {
			_, err := a.Write([]byte("x"))
			return errors.Is(err, syscall.EPIPE)
		}, 60*time.Second, time.Millisecond)
	})
}

func TestLeaseHoldsBackItsOwnConnectionOnly(t *testing.T) {
	onFabrics(t, func(t *testing.T, f *Fabric) {
		a, b := mustPipe(t, f)
		c, d := mustPipe(t, f)
		a.Write([]byte("held"))
		_, err := b.Peek()
		require.NoError(t, err)
		a.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		_, err = a.Write(make([]byte, 16<<20))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		go c.Write(make([]byte, 16<<20))
		_, err = io.ReadFull(d, make([]byte, 16<<20))
		require.NoError(t, err)
		b.Discard(4)
	})
}

func TestLeaseMistakesPanic(t *testing.T) {
	f, err := Open("mem:test")
	require.NoError(t, err)
	defer f.Close()
	a, b := mustPipe(t, f)
	require.Panics(t, func() { a.Reserve(0) })
	space, err := a.Reserve(10)
	require.NoError(t, err)
	require.Panics(t, func() { a.Commit(len(space) + 1) })
	a.Commit(copy(space, "x"))
	p, err := b.Peek()
	require.NoError(t, err)
	require.Panics(t, func() { b.Discard(len(p) + 1) })
	b.Discard(len(p))
}

// io.Copy from a file to a connection, through another one, to a file.
func TestCopyFromFileToFile(t *testing.T) {
	onFabrics(t, func(t *testing.T, f *Fabric) {
		want := make([]byte, 3<<20)
		rand.NewChaCha8([32]byte{2}).Read(want)
		name := filepath.Join(t.TempDir(), "from")
		require.NoError(t, os.WriteFile(name, want, 0o600))
		a, b := mustPipe(t, f)
		c, d := mustPipe(t, f)
		from, err := os.Open(name)
		require.NoError(t, err)
		defer from.Close()
		to, err := os.Create(name + ".to")
		require.NoError(t, err)
		defer to.Close()
		go func() { io.Copy(a, from); a.CloseWrite() }()
		go func() { io.Copy(c, b); c.CloseWrite() }()
		n, err := io.Copy(to, d)
		require.NoError(t, err)
		require.EqualValues(t, len(want), n)
		got, err := os.ReadFile(name + ".to")
		require.NoError(t, err)
		require.True(t, bytes.Equal(got, want))
	})
}

// As with any io.Copy, a failure to write is an error only if there is something to
// write.
func TestReadFromNothingIntoAClosedPeer(t *testing.T) {
	onFabrics(t, func(t *testing.T, f *Fabric) {
		a, b := mustPipe(t, f)
		b.Close()
		require.Eventually(t, func() bool {
			_, err := a.Write([]byte("x"))
			return err != nil
		}, 60*time.Second, time.Millisecond)
		n, err := a.ReadFrom(bytes.NewReader(nil))
		require.NoError(t, err)
		require.Zero(t, n)
		_, err = a.ReadFrom(bytes.NewReader([]byte("data")))
		require.ErrorIs(t, err, syscall.EPIPE)
	})
}

// A copy from a source that blocks does not keep Close or CloseWrite from informing
// the other side, nor other Writes from going on.
func TestCloseWhileCopyingFromABlockedSource(t *testing.T) {
	onFabrics(t, func(t *testing.T, f *Fabric) {
		for _, half := range []bool{false, true} {
			a, b := mustPipe(t, f)
			r, w := io.Pipe()
			done := make(chan struct{})
			go func() { io.Copy(a, r); close(done) }()
			w.Write([]byte("some"))
			b.SetReadDeadline(time.Now().Add(60 * time.Second))
			_, err := io.ReadFull(b, make([]byte, 4))
			require.NoError(t, err)
			_, err = a.Write([]byte("more"))
			require.NoError(t, err)
			if half {
				a.CloseWrite()
			} else {
				a.Close()
			}
			got, err := io.ReadAll(b)
			require.NoError(t, err)
			require.Equal(t, "more", string(got))
			w.Close()
			<-done
		}
	})
}

// A lease that is out keeps Close from freeing memory, and nothing else.
func TestTheOtherSideNeedNotWaitForALease(t *testing.T) {
	onFabrics(t, func(t *testing.T, f *Fabric) {
		a, b := mustPipe(t, f)
		b.Write([]byte("held"))
		_, err := a.Peek()
		require.NoError(t, err)
		read, written := make(chan error), make(chan error)
		go func() { _, err := b.Read(make([]byte, 1)); read <- err }()
		go func() { _, err := b.Write(make([]byte, 16<<20)); written <- err }()
		time.Sleep(20 * time.Millisecond)
		require.NoError(t, a.Close())
		require.Equal(t, io.EOF, <-read)
		require.ErrorIs(t, <-written, syscall.EPIPE)
		a.Discard(4)
	})
}
