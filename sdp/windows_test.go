package sdp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/internal/testing/ntbattach"
	"github.com/ntbnet/ntbnet/internal/testing/recorder"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
	"github.com/ntbnet/ntbnet/sdp"
	"github.com/ntbnet/ntbnet/shmem"
	"github.com/stretchr/testify/require"
)

// bridged opens the nodes of a ring, or of a line of two, with a bridge of its own between each two neighbours,
// whose windows have so many bytes. It returns what names each one's fabric.
type bridged func(t testing.TB, nodes, window int) []string

// inMemory is a bridged with bridges in this process, which are recorded in tests.
func inMemory(t testing.TB, nodes, window int) (specs []string) {
	rec := recorder.For(t)
	pair := func() (a, b ntb.Device) { return rec.Pair(ntbmem.Pair(window)) }
	left, right := make([]ntb.Attachment, nodes), make([]ntb.Attachment, nodes)
	for i := range nodes {
		right[i], left[(i+1)%nodes] = ntbattach.Ends(pair)
	}
	name := fabrictest.Name(t)
	for i := range nodes {
		spec := fmt.Sprintf("%s:%s?node=%d&nodes=%d&backend=mem", topology(nodes), name, i+1, nodes)
		f, err := sdp.OpenWith(spec, sdp.Devices{Attach: func(w sdp.Wire) (ntb.Attachment, error) {
			if w.Side == sdp.SideLeft {
				return left[i], nil
			}
			return right[i], nil
		}})
		require.NoError(t, err)
		t.Cleanup(func() { f.Close() })
		specs = append(specs, spec)
	}
	return specs
}

// inFiles is a bridged with files.
func inFiles(t testing.TB, nodes, window int) (specs []string) {
	dir, name := t.TempDir(), fabrictest.Name(t)
	file := func(i int) string {
		path := filepath.Join(dir, fmt.Sprint("memory", i%nodes))
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		require.NoError(t, os.Truncate(path, 2*int64(window)))
		return path
	}
	for i := range nodes {
		ends := ""
		if i > 0 || nodes > 2 {
			ends = "&left=file:" + file(i+nodes-1)
		}
		if i+1 < nodes || nodes > 2 {
			ends += "&right=file:" + file(i)
		}
		specs = append(specs, fmt.Sprintf("%s:%s?node=%d&nodes=%d%s", topology(nodes), name, i+1, nodes, ends))
	}
	for _, spec := range specs {
		f, err := sdp.Open(spec)
		require.NoError(t, err)
		t.Cleanup(func() { f.Close() })
	}
	return specs
}

func topology(nodes int) string {
	if nodes == 2 {
		return "line"
	}
	return "ring"
}

// open opens a fabric once more.
func open(t testing.TB, spec string) *sdp.Fabric {
	t.Helper()
	f, err := sdp.Open(spec)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// onBridges runs f with each kind of bridge.
func onBridges(t *testing.T, f func(t *testing.T, nodes bridged)) {
	t.Run("mem", func(t *testing.T) { leak.Check(t); f(t, inMemory) })
	t.Run("file", func(t *testing.T) {
		if runtime.GOOS != "linux" {
			t.Skip("needs Linux")
		}
		leak.Check(t)
		f(t, inFiles)
	})
}

// serve has a listener's connections served until the test ends.
func serve(t testing.TB, f *sdp.Fabric, conn func(net.Conn)) net.Listener {
	ln, err := f.Listen("sdp", ":0")
	require.NoError(t, err)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer c.Close()
				conn(c)
			})
		}
	})
	t.Cleanup(func() { ln.Close(); all.Wait() })
	return ln
}

// There is room for 64 connections at once in a window of 1 MiB: each has all that it sends echoed, whatever
// the others do.
func TestConnectionsShareASmallWindow(t *testing.T) {
	onBridges(t, func(t *testing.T, nodes bridged) {
		const conns, each = 64, 128 << 10
		specs := nodes(t, 2, 1<<20)
		ln := serve(t, open(t, specs[0]), func(c net.Conn) { io.Copy(c, c) })
		client := open(t, specs[1])
		failed := make(chan error, conns)
		var open sync.WaitGroup
		open.Add(conns)
		for i := range conns {
			go func() {
				c, err := client.Dial("sdp", ln.Addr().String())
				open.Done()
				if err == nil {
					open.Wait()
					err = echoed(c, uint64(i), each)
				}
				failed <- err
			}()
		}
		for range conns {
			require.NoError(t, <-failed)
		}
	})
}

// echoed sends n bytes, from a seed, and compares what comes back. It closes c.
func echoed(c net.Conn, seed uint64, n int) error {
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Minute))
	want := make([]byte, n)
	rnd := rand.NewChaCha8([32]byte{byte(seed)})
	rnd.Read(want)
	wrote := make(chan error, 1)
	go func() {
		_, err := c.Write(want)
		wrote <- err
	}()
	got := make([]byte, n)
	_, err := io.ReadFull(c, got)
	if err := errors.Join(err, <-wrote); err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return errors.New("what came back is something else")
	}
	return nil
}

// The lanes of a ring have room in windows of 1 MiB: each node of four reaches each other one.
func TestARingOfSmallWindows(t *testing.T) {
	onBridges(t, func(t *testing.T, nodes bridged) {
		specs := nodes(t, 4, 1<<20)
		var fabrics []*sdp.Fabric
		var listeners []net.Listener
		for _, spec := range specs {
			f := open(t, spec)
			fabrics = append(fabrics, f)
			listeners = append(listeners, serve(t, f, func(c net.Conn) { io.Copy(c, c) }))
		}
		failed := make(chan error)
		for i, from := range fabrics {
			for j, to := range listeners {
				go func() {
					c, err := from.Dial("sdp", to.Addr().String())
					if err == nil {
						err = echoed(c, uint64(i*len(fabrics)+j), 300<<10)
					}
					if err != nil {
						err = fmt.Errorf("node %d to node %d: %w", i+1, j+1, err)
					}
					failed <- err
				}()
			}
		}
		for range len(fabrics) * len(fabrics) {
			require.NoError(t, <-failed)
		}
	})
}

// Processing elements put into each other's memory, get from it and meet, by a window of 1 MiB that is smaller
// than what they put.
func TestSHMEMOverASmallWindow(t *testing.T) {
	onBridges(t, func(t *testing.T, nodes bridged) {
		specs := nodes(t, 2, 1<<20)
		failed := make(chan error)
		for pe, spec := range specs {
			go func() { failed <- putAndGet(spec, pe, fabrictest.Name(t)) }()
		}
		for range specs {
			require.NoError(t, <-failed)
		}
	})
}

// putAndGet is one processing element of two.
func putAndGet(spec string, pe int, job string) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	w, err := shmem.Open(ctx, shmem.PE(pe, 2, job), shmem.Fabric(spec), shmem.HeapLimit(16<<20))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close(ctx)) }()
	const n = 3 << 20 / 8
	s, err := shmem.AllocZeroed[uint64](ctx, w, n)
	if err != nil {
		return err
	}
	values := make([]uint64, n)
	for i := range values {
		values[i] = uint64(i*2 + pe)
	}
	shmem.Put(w.Ctx(), s, values, 1-pe)
	if err := w.Team().Barrier(ctx); err != nil {
		return err
	}
	got := make([]uint64, n)
	shmem.Get(w.Ctx(), got, s, 1-pe)
	for i := range got {
		if got[i] != values[i] || s.Local()[i] != uint64(i*2+1-pe) {
			return fmt.Errorf("PE %d: element %d: got %d, have %d", pe, i, got[i], s.Local()[i])
		}
	}
	return w.Team().Barrier(ctx)
}

// BenchmarkWindows writes 64 KiB one way, by 1 connection or in turn by 64 at once, through windows of several sizes.
func BenchmarkWindows(b *testing.B) {
	const size = 64 << 10
	for _, bridge := range []struct {
		name  string
		nodes bridged
	}{{"mem", inMemory}, {"file", inFiles}} {
		for _, conns := range []int{1, 64} {
			for _, mib := range []int{1, 2, 4, 16, 64} {
				b.Run(fmt.Sprintf("%s/conns=%d/MiB=%d", bridge.name, conns, mib), func(b *testing.B) {
					specs := bridge.nodes(b, 2, mib<<20)
					var read sync.WaitGroup
					read.Add(conns)
					ln := serve(b, open(b, specs[0]), func(c net.Conn) {
						defer read.Done()
						io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{c}, make([]byte, size))
					})
					client := open(b, specs[1])
					var dialled []net.Conn
					for range conns {
						c, err := client.Dial("sdp", ln.Addr().String())
						require.NoError(b, err)
						dialled = append(dialled, c)
					}
					b.SetBytes(size)
					b.ResetTimer()
					for i, c := range dialled {
						go func() {
							defer c.Close()
							for p, n := make([]byte, size), i; n < b.N; n += conns {
								if _, err := c.Write(p); err != nil {
									b.Error(err)
									return
								}
							}
						}()
					}
					read.Wait()
				})
			}
		}
	}
}
