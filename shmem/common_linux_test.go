package shmem

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/ivshmem"
	"github.com/ntbnet/ntbnet/internal/shm/unixsock"
	"github.com/stretchr/testify/require"
)

const (
	commonHeap   = 16 << 20 // of each node
	commonMemory = 64 << 20

	envMark = "SHMEM_TEST_MARK" // begins the name of a file that a PE makes
)

func init() {
	bodies["direct"] = func(t require.TestingT, w *World) {
		for pe := range w.NumPEs() {
			mapped, err := w.Mapped(pe)
			require.True(t, mapped, "PE %d: %v", pe, err)
		}
		direct(t, w)
		basics(t, w)
	}
	bodies["puts"] = func(t require.TestingT, w *World) {
		s, err := Alloc[int64](context.Background(), w, w.HeapLimit()/8)
		require.NoError(t, err)
		require.NoError(t, w.Team().Barrier(context.Background()))
		src := slices.Repeat([]int64{-1}, 1<<16)
		for marked := false; w.Err() == nil; {
			for at := 0; at+len(src) <= s.Len(); at += len(src) {
				Put(w.Ctx(), s.From(at), src, (w.PE()+1)%w.NumPEs())
			}
			if !marked && AtomicFetch(w.Ctx(), s, 0, w.PE()) == -1 { // all put
				marked = true
				_ = os.WriteFile(os.Getenv(envMark)+strconv.Itoa(w.PE()), nil, 0o600)
			}
		}
		require.NoError(t, w.Err())
	}
	bodies["zeros"] = func(t require.TestingT, w *World) {
		s, err := Alloc[int64](context.Background(), w, w.HeapLimit()/8)
		require.NoError(t, err)
		for i, v := range s.Local() {
			if v != 0 {
				require.Zero(t, v, "element %d", i)
			}
		}
	}
	bodies["open"] = func(require.TestingT, *World) {}
}

// requests returns how many bytes of requests this PE has sent to another one.
func requests(w *World, pe int) uint64 {
	return reflect.ValueOf(w.core.Peer(pe).Channel()).Elem().FieldByName("sent").Uint()
}

// direct puts, gets and adds at the next PE, which waits awake, and sends no request for it.
func direct(t require.TestingT, w *World) {
	ctx, c, n := context.Background(), w.Ctx(), w.NumPEs()
	right, left := (w.PE()+1)%n, (w.PE()+n-1)%n
	s, err := AllocZeroed[int64](ctx, w, 100_000)
	require.NoError(t, err)
	sum, err := AllocZeroed[int64](ctx, w, 4)
	require.NoError(t, err)
	awake := func(i int) { // waits without sleep, in which a request would wake it
		for AtomicFetch(c, sum, i, w.PE()) == 0 {
			runtime.Gosched()
		}
	}
	AtomicAdd(c, sum, 2, 1, left)
	awake(2)
	AtomicAdd(c, sum, 3, 1, right) // answers its last sleep
	before := requests(w, right)
	src, got := make([]int64, s.Len()), make([]int64, s.Len())
	for i := range src {
		src[i] = int64(w.PE()*1_000_000 + i)
	}
	Put(c, s, src, right)
	Get(c, got, s, right)
	require.Equal(t, src, got)
	require.Zero(t, AtomicFetchAdd(c, sum, 0, 7, right))
	require.Equal(t, int64(7), AtomicSwap(c, sum, 0, 8, right))
	require.NoError(t, c.Quiet())
	AtomicAdd(c, sum, 1, 1, right)
	require.Equal(t, before, requests(w, right))
	awake(1)
	require.NoError(t, w.Team().Barrier(ctx))
}

// memory makes a file that all nodes have in common.
func memory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "ntbnet-test-")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	file := filepath.Join(dir, "memory")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, os.Truncate(file, commonMemory))
	return file
}

// lineOf returns a fabric of two nodes whose wire is of an end, with PEs in turn on both.
func lineOf(end string, heap int) func(job string, pe int) string {
	return func(job string, pe int) string {
		side := []string{"right", "left"}[pe%2]
		return fmt.Sprintf("line:%s?node=%d&nodes=2&share=1&heap=%d&%s=%s", job, pe%2+1, heap, side, end)
	}
}

// PEs of several nodes have their heaps in the memory of the nodes' ends, and reach all without requests.
func TestHeapsInCommonMemory(t *testing.T) {
	t.Run("2 nodes", func(t *testing.T) {
		processes(t, "direct", 2, "mapped", lineOf("file:"+memory(t), commonHeap))
	})
	t.Run("4 PEs", func(t *testing.T) {
		processes(t, "direct", 4, "mapped", lineOf("file:"+memory(t), commonHeap))
	})
	t.Run("server", func(t *testing.T) {
		processes(t, "direct", 2, "mapped", lineOf("ivshmem:"+server(t), commonHeap))
	})
	for _, tt := range []nodesOf{{"line", 3}, {"mesh", 3}, {"line", 16}} { // of a line, some are many hops apart
		if tt.n == 16 && os.Getenv("NTBNET_LONG") == "" {
			continue
		}
		t.Run(fmt.Sprintf("%s of %d nodes", tt.kind, tt.n), func(t *testing.T) {
			file := memory(t)
			require.NoError(t, os.Truncate(file, int64(tt.n*(tt.n-1)*commonMemory/3)))
			processes(t, "direct", tt.n, "mapped", func(job string, pe int) string {
				text := fmt.Sprintf("%s:%s?node=%d&nodes=%d&heap=%d", tt.kind, job, pe+1, tt.n, commonHeap)
				for other := range tt.n {
					if end := tt.end(pe, other); end != "" {
						text += fmt.Sprintf("&%s=file:%s,peers=%d", end, file, tt.n)
					}
				}
				return text
			})
		})
	}
}

// nodesOf are nodes that are joined in a way.
type nodesOf struct {
	kind string
	n    int
}

// end returns the option for the end of a node's wire to another one, both from 0 on. It is "" if there is none.
func (f nodesOf) end(node, other int) string {
	switch {
	case f.kind == "mesh" && other != node:
		return "node" + strconv.Itoa(other+1)
	case f.kind == "line" && other == node+1:
		return "right"
	case f.kind == "line" && other == node-1:
		return "left"
	}
	return ""
}

// server serves a memory at a socket.
func server(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	s, err := ivshmem.NewServer(ivshmem.Options{Size: commonMemory, Peers: 2, Vectors: 1})
	require.NoError(t, err)
	ln, err := unixsock.ListenAs(t.Context(), path, unixsock.Rights{UID: -1, GID: -1})
	require.NoError(t, err)
	go s.Serve(ln)
	t.Cleanup(func() { s.Close() })
	return path
}

// A PE is killed while both put. The other ends, and the next job on the same memory sees zeros.
func TestTheNextJobSeesZeros(t *testing.T) {
	file := memory(t)
	for killed := range 2 {
		t.Run(fmt.Sprint("PE ", killed), func(t *testing.T) {
			mark := filepath.Join(t.TempDir(), "pe")
			t.Setenv(envMark, mark)
			all := start(t, "puts", 2, "mapped", lineOf("file:"+file, commonHeap))
			for pe := range all {
				require.Eventually(t, func() bool { _, err := os.Stat(mark + strconv.Itoa(pe)); return err == nil }, time.Minute, time.Millisecond)
			}
			require.NoError(t, all[killed].Process.Kill())
			require.Error(t, all[killed].Wait())
			next := start(t, "zeros", 2, "mapped", lineOf("file:"+file, commonHeap)) // before the other one has ended
			_ = all[1-killed].Wait()
			require.Contains(t, all[1-killed].Stderr.(*bytes.Buffer).String(), fmt.Sprintf("PE %d has ended", killed))
			for _, cmd := range next {
				require.NoError(t, cmd.Wait(), "%s", cmd.Stderr)
			}
		})
	}
}

// A heap for which there is no room is refused, with the size for which there is, and so are ends that differ.
func TestHeapsThatDoNotFit(t *testing.T) {
	file := memory(t)
	end := "file:" + file
	for name, tt := range map[string]struct {
		fabric func(job string, pe int) string
		want   string
	}{
		"memory":   {lineOf(end, commonMemory/2), "has room for at most heap="},
		"heap":     {lineOf(end, commonHeap), "there is room for "},
		"differs":  {func(job string, pe int) string { return lineOf(end, commonHeap+pe<<20)(job, pe) }, "option heap="},
		"too many": {lineOf(end, 1<<20), "want at least heap="},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "heap" {
				t.Setenv("SHMEM_SYMMETRIC_SIZE", "32m")
			}
			var all string
			for _, cmd := range start(t, "open", 2, "mapped", tt.fabric) {
				_ = cmd.Wait()
				all += cmd.Stderr.(*bytes.Buffer).String()
			}
			require.Contains(t, all, tt.want)
		})
	}
}
