package sdp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/stretchr/testify/require"
)

// numbered makes a file of words that count.
func numbered(t *testing.T, size int) (*os.File, []byte) {
	t.Helper()
	var content []byte
	for i := range size / 4 {
		content = binary.BigEndian.AppendUint32(content, uint32(i))
	}
	name := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(name, content, 0o600))
	file, err := os.Open(name)
	require.NoError(t, err)
	t.Cleanup(func() { file.Close() })
	return file, content
}

// A copy that reaches its deadline goes on where it stopped: the source was read no further than
// was said.
func TestACopyGoesOnAfterADeadline(t *testing.T) {
	const size = 6 << 20
	file, content := numbered(t, size)
	for name, source := range map[string]func(c *Conn) func() (int64, error){
		"io.Copy of a file": func(c *Conn) func() (int64, error) {
			return func() (int64, error) { return io.Copy(c, file) }
		},
		"ReadFrom of a file": func(c *Conn) func() (int64, error) {
			return func() (int64, error) { return c.ReadFrom(file) }
		},
		"io.Copy of a part": func(c *Conn) func() (int64, error) {
			part := io.LimitReader(file, size)
			return func() (int64, error) { return io.Copy(c, part) }
		},
		"io.Copy of a section": func(c *Conn) func() (int64, error) {
			section := io.NewSectionReader(file, 0, size)
			return func() (int64, error) { return io.Copy(c, section) }
		},
		"ReadFrom of bytes": func(c *Conn) func() (int64, error) {
			r := bytes.NewReader(content)
			return func() (int64, error) { return c.ReadFrom(r) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			onFabrics(t, func(t *testing.T, f *Fabric) {
				_, err := file.Seek(0, io.SeekStart)
				require.NoError(t, err)
				a, b := mustPipe(t, f)
				send, sum := source(a), int64(0)
				for range 5 { // nobody reads
					require.NoError(t, a.SetWriteDeadline(time.Now().Add(5*time.Millisecond)))
					n, err := send()
					require.ErrorIs(t, err, os.ErrDeadlineExceeded)
					sum += n
				}
				require.NoError(t, a.SetWriteDeadline(time.Time{}))
				got := make(chan []byte)
				go func() { all, _ := io.ReadAll(b); got <- all }()
				n, err := send()
				require.NoError(t, err)
				require.EqualValues(t, size, sum+n)
				require.NoError(t, a.CloseWrite())
				require.True(t, bytes.Equal(content, <-got))
			})
		})
	}
}

// What cannot be put back is counted.
func TestACopyCountsWhatItHasTaken(t *testing.T) {
	onFabrics(t, func(t *testing.T, f *Fabric) {
		a, _ := mustPipe(t, f)
		require.NoError(t, a.SetWriteDeadline(time.Unix(1, 0)))
		for _, source := range []io.Reader{
			strings.NewReader("0123456789"), // which is put back
			bytes.NewBufferString("0123456789"),
			io.LimitReader(bytes.NewBufferString("0123456789"), 7),
		} {
			n, err := a.ReadFrom(source)
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			rest, err := io.ReadAll(source)
			require.NoError(t, err)
			size := 10
			if _, ok := source.(*io.LimitedReader); ok {
				size = 7
			}
			require.EqualValues(t, size, int(n)+len(rest), "%T", source)
		}
	})
}

// other writes a byte again and again, until stop is called.
func other(c *Conn) (stop func()) {
	end, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-end:
				return
			default:
				c.Write([]byte{'x'})
			}
		}
	}()
	return func() { close(end); <-done }
}

// Nothing that others write comes between the bytes of a file, or of buffers.
func TestWritesKeptTogether(t *testing.T) {
	const size = 2 << 20
	file, content := numbered(t, size)
	for name, send := range map[string]func(c *Conn) (int64, error){
		"file": func(c *Conn) (int64, error) { return io.Copy(c, file) },
		"part": func(c *Conn) (int64, error) { return io.CopyN(c, file, size) },
		"buffers": func(c *Conn) (int64, error) {
			v := net.Buffers(slices.Collect(slices.Chunk(bytes.Clone(content), 100<<10)))
			n, err := c.WriteBuffers(&v)
			if len(v) > 0 {
				err = fmt.Errorf("%d buffers are left: %w", len(v), err)
			}
			return n, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			onFabrics(t, func(t *testing.T, f *Fabric) {
				_, err := file.Seek(0, io.SeekStart)
				require.NoError(t, err)
				a, b := mustPipe(t, f)
				got := make(chan []byte)
				go func() { all, _ := io.ReadAll(b); got <- all }()
				stop := other(a)
				n, err := send(a)
				require.NoError(t, err)
				require.EqualValues(t, size, n)
				stop()
				require.NoError(t, a.CloseWrite())
				require.True(t, bytes.Contains(<-got, content))
			})
		})
	}
}

// Small buffers arrive as one.
func TestSmallBuffersAreOneWrite(t *testing.T) {
	onFabrics(t, func(t *testing.T, f *Fabric) {
		a, b := mustPipe(t, f)
		v := net.Buffers{[]byte("one"), nil, []byte("two")}
		n, err := a.WriteBuffers(&v)
		require.NoError(t, err)
		require.EqualValues(t, 6, n)
		require.Empty(t, v)
		buf := make([]byte, 10)
		k, err := b.Read(buf)
		require.NoError(t, err)
		require.Equal(t, "onetwo", string(buf[:k]))
	})
}

// Of buffers that reach a deadline, the rest is left.
func TestBuffersThatReachADeadline(t *testing.T) {
	_, content := numbered(t, 6<<20)
	onFabrics(t, func(t *testing.T, f *Fabric) {
		a, b := mustPipe(t, f)
		v := net.Buffers(slices.Collect(slices.Chunk(bytes.Clone(content), 100<<10)))
		require.NoError(t, a.SetWriteDeadline(time.Now().Add(10*time.Millisecond)))
		n, err := a.WriteBuffers(&v)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.NoError(t, a.SetWriteDeadline(time.Time{}))
		got := make(chan []byte)
		go func() { all, _ := io.ReadAll(b); got <- all }()
		more, err := a.WriteBuffers(&v)
		require.NoError(t, err)
		require.EqualValues(t, len(content), n+more)
		require.NoError(t, a.CloseWrite())
		require.True(t, bytes.Equal(content, <-got))
	})
}

// Close and CloseWrite end a copy that keeps other Writes waiting, and these too.
func TestCloseDuringACopyOfAFile(t *testing.T) {
	file, content := numbered(t, 16<<20)
	onFabrics(t, func(t *testing.T, f *Fabric) {
		for _, half := range []bool{false, true} {
			_, err := file.Seek(0, io.SeekStart)
			require.NoError(t, err)
			a, b := mustPipe(t, f)
			copied, wrote := make(chan error, 1), make(chan error, 1)
			go func() { _, err := io.Copy(a, file); copied <- err }()
			_, err = io.ReadFull(b, make([]byte, 100)) // it has begun
			require.NoError(t, err)
			go func() { _, err := a.Write([]byte{1}); wrote <- err }()
			want := net.ErrClosed
			if half {
				want = syscall.EPIPE
				require.NoError(t, a.CloseWrite())
			} else {
				require.NoError(t, a.Close())
			}
			require.ErrorIs(t, <-copied, want)
			require.ErrorIs(t, <-wrote, want)
			rest, err := io.ReadAll(b)
			require.NoError(t, err)
			require.True(t, bytes.HasPrefix(content[100:], rest))
		}
	})
}

// BenchmarkFile sends a file and has one byte sent back, on a connection that is used again and
// again, and on a new one each time.
func BenchmarkFile(b *testing.B) {
	f, err := Open("shm:" + fabrictest.Name(b))
	require.NoError(b, err)
	defer f.Close()
	answer := func(c net.Conn, size int) {
		buf := make([]byte, size)
		for {
			if _, err := io.ReadFull(c, buf); err != nil {
				return
			}
			c.Write(buf[:1])
		}
	}
	for _, size := range []int{64 << 10, 1 << 20} {
		name := filepath.Join(b.TempDir(), "file")
		require.NoError(b, os.WriteFile(name, make([]byte, size), 0o600))
		file, err := os.Open(name)
		require.NoError(b, err)
		defer file.Close()
		for _, way := range []string{"ReadFrom", "Copy"} {
			send := func(c net.Conn) {
				_, err := file.Seek(0, io.SeekStart)
				require.NoError(b, err)
				if way == "Copy" {
					_, err = io.Copy(c, file)
				} else {
					_, err = c.(io.ReaderFrom).ReadFrom(file)
				}
				require.NoError(b, err)
				_, err = c.Read(make([]byte, 1))
				require.NoError(b, err)
			}
			b.Run(fmt.Sprintf("%s/%d", way, size), func(b *testing.B) {
				from, to, stop, err := pipe(f)
				require.NoError(b, err)
				defer stop()
				go answer(to, size)
				b.SetBytes(int64(size))
				for b.Loop() {
					send(from)
				}
			})
			b.Run(fmt.Sprintf("%s/new/%d", way, size), func(b *testing.B) {
				b.SetBytes(int64(size))
				for b.Loop() {
					b.StopTimer()
					from, to, stop, err := pipe(f)
					require.NoError(b, err)
					go answer(to, size)
					b.StartTimer()
					send(from)
					stop()
				}
			})
		}
	}
}
