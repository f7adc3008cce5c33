//go:build amd64 || arm64

package ntbivshmem

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/ivshmem"
	"github.com/ntbnet/ntbnet/internal/shm/unixsock"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/internal/testing/ntbtest"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbfixed"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const testTimeout = 30 * time.Second

// serve serves a memory at a path until the test ends, or stop is called.
func serve(t *testing.T, path string, size int64, peers int) (stop func()) {
	s, err := ivshmem.NewServer(ivshmem.Options{Size: size, Peers: peers, Vectors: 1})
	require.NoError(t, err)
	ln, err := unixsock.ListenAs(t.Context(), path, unixsock.Rights{UID: -1, GID: -1})
	require.NoError(t, err)
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(ln) }()
	stop = func() { s.Close(); <-done }
	t.Cleanup(stop)
	return stop
}

// ends returns the two ends of a bridge between places.
func ends(t *testing.T, path string, places, i, j int) (a, b ntb.Attachment) {
	a, err := AttachSocket(path, Place{Places: places, Own: i, Peer: j})
	require.NoError(t, err)
	b, err = AttachSocket(path, Place{Places: places, Own: j, Peer: i})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
	})
	return a, b
}

// open opens a session on both sides.
func open(t *testing.T, a, b ntb.Attachment) (x, y ntb.Device) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		var err error
		y, err = b.Open(ctx)
		done <- err
	}()
	x, err := a.Open(ctx)
	require.NoError(t, err)
	require.NoError(t, <-done)
	return x, y
}

func TestConformance(t *testing.T) {
	ntbtest.Run(t, func(t *testing.T) (ntb.Device, ntb.Device) {
		path := filepath.Join(t.TempDir(), "s")
		serve(t, path, 1<<20, 2)
		a, b := ends(t, path, 2, 0, 1)
		return open(t, a, b)
	})
}

func TestSessions(t *testing.T) {
	ntbtest.RunAttachments(t, func(t *testing.T) (a, b ntb.Attachment) {
		path := filepath.Join(t.TempDir(), "s")
		serve(t, path, 1<<20, 2)
		return ends(t, path, 2, 0, 1)
	})
}

// A session outlives the server. The next one is opened at the next server.
func TestTheServerGoesAndComes(t *testing.T) {
	leak.Check(t)
	path := filepath.Join(t.TempDir(), "s")
	stop := serve(t, path, 1<<20, 2)
	a, b := ends(t, path, 2, 0, 1)
	x, y := open(t, a, b)
	require.True(t, x.Caps().Untrusted)
	require.Equal(t, "ivshmem", x.Caps().Backend)
	stop()
	out := x.Outbound()
	out.Publish32(64, 7)
	x.RingDoorbell(3)
	require.NoError(t, y.WaitDoorbell(3))
	require.EqualValues(t, 7, ntb.Load32(y.Inbound(), 64))

	x.Close()
	require.Eventually(t, func() bool { return !y.LinkUp() }, testTimeout, time.Millisecond)
	_, err := a.Open(context.Background())
	require.ErrorContains(t, err, "ntb-ivshmem-server starts one")
	y.Close()
	serve(t, path, 2<<20, 2)
	x, y = open(t, a, b)
	require.Len(t, x.Inbound(), 1<<20-ntbfixed.PageSize)
	x.Close()
	y.Close()

	// A server that goes while one waits for the other end.
	path = filepath.Join(t.TempDir(), "s")
	stop = serve(t, path, 1<<20, 2)
	a, b = ends(t, path, 2, 0, 1)
	opened := make(chan error, 1)
	go func() {
		_, err := a.Open(context.Background())
		opened <- err
	}()
	time.Sleep(10 * time.Millisecond)
	stop()
	select {
	case err = <-opened:
		require.Error(t, err)
	case <-time.After(testTimeout):
		t.Fatal("Open waits for a server that has gone")
	}
	go func() {
		_, err := b.Open(context.Background())
		opened <- err
	}()
	require.NoError(t, b.Close())
	select {
	case err = <-opened:
		require.Error(t, err)
	case <-time.After(testTimeout):
		t.Fatal("Open outlasts Close")
	}
}

// When a process is killed, the server tells the other end, which does not wait for its heartbeat. Here
// the connection with the server is all that ends.
func TestTheServerTellsWhoHasGone(t *testing.T) {
	leak.Check(t)
	path := filepath.Join(t.TempDir(), "s")
	serve(t, path, 1<<20, 3) // one more than ends: an end may be back before the server has seen it go
	a, b := ends(t, path, 2, 0, 1)
	client, err := connect(t.Context(), path, Place{Places: 2, Own: 0, Peer: 1})
	require.NoError(t, err)
	x, y := open(t, client, b)
	require.NoError(t, client.Close())
	require.Eventually(t, func() bool { return !y.LinkUp() }, testTimeout, time.Millisecond)
	x.Close()
	y.Close()
	x, y = open(t, a, b)
	x.Close()
	y.Close()
}

// Four ends share a memory, each pair with a bridge of its own.
func TestPlaces(t *testing.T) {
	leak.Check(t)
	path := filepath.Join(t.TempDir(), "s")
	serve(t, path, 1<<20, 12)
	var devices []ntb.Device
	for i := range 4 {
		for j := range i {
			a, b := ends(t, path, 4, i, j)
			x, y := open(t, a, b)
			devices = append(devices, x, y)
		}
	}
	for i, d := range devices {
		out := d.Outbound()
		for off := 0; off < out.Len(); off += 8 {
			out.Store64(off, uint64(i))
		}
		ntb.Fence()
	}
	for i, d := range devices {
		in := d.Inbound()
		for off := 0; off+8 <= len(in); off += 8 {
			require.EqualValues(t, i^1, ntb.Load64(in, off))
		}
		d.Close()
	}
}

// No two areas overlap, and all lie in the memory.
func TestAreas(t *testing.T) {
	for places := 2; places <= MaxPlaces; places++ {
		const size = 64 << 20
		end, heaps := int64(0), 0
		for owner := range places {
			for writer := range places {
				if owner == writer {
					require.Error(t, Place{Places: places, Own: owner, Peer: writer}.check())
					continue
				}
				p := Place{Places: places, Own: owner, Peer: writer}
				require.NoError(t, p.check())
				off, n := p.area(size, owner, writer)
				require.Equal(t, end, off)
				require.Zero(t, n%ntbfixed.PageSize)
				all := n
				p.Heap = 4 * ntbfixed.PageSize
				at, n := p.area(size, owner, writer)
				require.Equal(t, off, at, "the header page stays where it is")
				if heap, room := p.HeapAt(size, owner); n != all { // the owner's last
					require.Equal(t, off+int64(n), heap)
					require.Equal(t, all, n+p.Heap)
					require.Equal(t, all-ntbfixed.PageSize, room)
					heaps++
				}
				end += int64(all)
			}
		}
		require.Equal(t, places, heaps)
		require.LessOrEqual(t, end, int64(size))
		require.Greater(t, end, int64(size-places*places*ntbfixed.PageSize))
	}
	for _, p := range []Place{{}, {Places: 2, Peer: 2}, {Places: 2, Own: -1}, {Places: 17, Peer: 1}, {Places: 1}} {
		_, err := AttachSocket("/none", p)
		require.Error(t, err)
	}
}

// functionEnds returns the two ends of a bridge whose ends are functions of this machine, which
// NTBNET_FUNCTIONS names.
func functionEnds(t *testing.T) (a, b ntb.Attachment) {
	t.Helper()
	names := strings.Split(os.Getenv("NTBNET_FUNCTIONS"), ";")
	if len(names) != 2 {
		t.Skip("NTBNET_FUNCTIONS names no two functions of one memory, as 0000:00:03.0;0000:00:04.0,poll does")
	}
	var ends [2]ntb.Attachment
	for i, name := range names {
		attach := AttachFunction
		address, _, polls := strings.Cut(name, ",")
		if polls {
			attach = AttachResources
		}
		var err error
		ends[i], err = attach(address, Place{Places: 2, Own: i, Peer: 1 - i})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, ends[i].Close()) })
	}
	return ends[0], ends[1]
}

func TestConformanceOfFunctions(t *testing.T) {
	// The suite opens pairs while earlier ones are open, and only one process, once, can have a function.
	a, b := functionEnds(t)
	ntbtest.Run(t, func(t *testing.T) (ntb.Device, ntb.Device) { return open(t, a, b) })
}

func TestSessionsOfFunctions(t *testing.T) { ntbtest.RunAttachments(t, functionEnds) }

// What is no such function is refused with what to do.
func TestFunctionsThatAreNone(t *testing.T) {
	for address, want := range map[string]string{
		"0000:00:03":   "is no PCI address, as 0000:00:03.0 is",
		"../../x":      "is no PCI address",
		"fffe:ff:1f.7": "lspci -D lists what there is",
	} {
		for _, attach := range []func(string, Place) (ntb.Attachment, error){AttachFunction, AttachResources} {
			_, err := attach(address, Place{Places: 2, Own: 0, Peer: 1})
			require.ErrorContains(t, err, want)
		}
	}
}

// newMemory makes a file of a size.
func newMemory(t *testing.T, size int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "memory")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, os.Truncate(path, size))
	return path
}

// fileEnds returns the two ends of a bridge at a file.
func fileEnds(t *testing.T, path string, places, i, j int) (a, b ntb.Attachment) {
	a, err := AttachFile(path, Place{Places: places, Own: i, Peer: j})
	require.NoError(t, err)
	b, err = AttachFile(path, Place{Places: places, Own: j, Peer: i})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
	})
	return a, b
}

func TestConformanceOfFiles(t *testing.T) {
	ntbtest.Run(t, func(t *testing.T) (ntb.Device, ntb.Device) {
		a, b := fileEnds(t, newMemory(t, 1<<20), 3, 2, 0)
		return open(t, a, b)
	})
}

func TestSessionsOfFiles(t *testing.T) {
	ntbtest.RunAttachments(t, func(t *testing.T) (a, b ntb.Attachment) { return fileEnds(t, newMemory(t, 1<<20), 2, 0, 1) })
}

// A file that becomes smaller ends the session, and so does one that becomes longer again at once. A
// later session is of the file that is there then, even if Open waits meanwhile.
func TestAFileShrinks(t *testing.T) {
	leak.Check(t)
	for _, sizes := range [][]int64{{0}, {1 << 19}, {5000}, {0, 1 << 20}} {
		path := newMemory(t, 1<<20)
		a, b := fileEnds(t, path, 2, 0, 1)
		x, y := open(t, a, b)
		require.True(t, x.Caps().Untrusted)
		require.Equal(t, "file", x.Caps().Backend)
		require.False(t, y.Caps().Revocable.Gone())
		for _, size := range sizes {
			require.NoError(t, os.Truncate(path, size))
		}
		gone := func() bool { return !x.LinkUp() && !y.LinkUp() }
		require.Eventually(t, gone, testTimeout, time.Millisecond)
		if sizes[0] == 0 {
			require.True(t, y.Caps().Revocable.Gone())
		}
		x.Close()
		y.Close()
		_, err := os.Stat(path)
		require.NoError(t, err)
		require.NoError(t, os.Truncate(path, 2<<20))
		x, y = open(t, a, b)
		require.Equal(t, 1<<20-ntbfixed.PageSize, len(x.Inbound()))
		require.NoError(t, errors.Join(x.Close(), y.Close()))

		opened := make(chan error, 1)
		go func() {
			var err error
			x, err = a.Open(context.Background())
			opened <- err
		}()
		require.NoError(t, os.Rename(newMemory(t, 1<<20), path))
		y, err = b.Open(context.Background())
		require.NoError(t, errors.Join(err, <-opened))
		require.Equal(t, 1<<19-ntbfixed.PageSize, len(x.Inbound()))
		require.NoError(t, errors.Join(x.Close(), y.Close()))
	}
}

// A side whose store finds no file tells the other one, of whose memory as much has gone or as little: its lock says that
// its process lives.
func TestAStoreBehindTheEndOfAFile(t *testing.T) {
	leak.Check(t)
	for _, size := range []int64{1<<20 - ntbfixed.PageSize, 1<<19 + ntbfixed.PageSize, 1 << 19} {
		path := newMemory(t, 1<<20)
		a, b := fileEnds(t, path, 2, 0, 1)
		x, y := open(t, a, b)
		out := x.Outbound()
		require.NoError(t, os.Truncate(path, size))
		out.Publish64(out.Len()-8, 7)
		for _, d := range []ntb.Device{x, y} {
			ended := make(chan error, 1)
			go func() { ended <- d.WaitDoorbell(0) }()
			select {
			case err := <-ended:
				require.ErrorIs(t, err, ntb.ErrLinkDown)
			case <-time.After(testTimeout):
				t.Fatalf("a wait goes on, of a file of %d bytes, with link %t", size, d.LinkUp())
			}
		}
		require.NoError(t, os.Truncate(path, 1<<20))
		require.NoError(t, errors.Join(x.Close(), y.Close()))
		x, y = open(t, a, b)
		require.NoError(t, errors.Join(x.Close(), y.Close()))
	}
}

// An end has one lock, however long the file is when a process takes it. Another end never has that one.
func TestEndsHaveLocksOfTheirOwn(t *testing.T) {
	leak.Check(t)
	path := newMemory(t, 1<<20)
	a, b := fileEnds(t, path, 2, 0, 1)
	x, y := open(t, a, b)
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	for _, size := range []int64{0, 1 << 16} {
		require.NoError(t, os.Truncate(path, size))
		for own := range 2 {
			other, err := AttachFile(path, Place{Places: 2, Own: own, Peer: 1 - own})
			require.NoError(t, err)
			_, err = other.Open(ctx)
			require.ErrorIs(t, err, ntb.ErrInUse, "of this end, with %d bytes", size)
			require.NoError(t, other.Close())
		}
	}
	require.NoError(t, a.Close())
	other, err := AttachFile(path, Place{Places: 2, Own: 0, Peer: 1})
	require.NoError(t, err)
	require.NoError(t, os.Truncate(path, 0))
	_, err = other.Open(ctx)
	require.ErrorContains(t, err, "has 0 bytes", "nobody has this end")
	require.NoError(t, errors.Join(other.Close(), x.Close(), y.Close(), b.Close()))
}

// A session ends when memory has gone that is mapped at other addresses, once that is touched there.
func TestMappedMemoryThatHasGone(t *testing.T) {
	leak.Check(t)
	const size, heap = 2 * 42 * ntbfixed.PageSize, 16 * ntbfixed.PageSize
	path := newMemory(t, size)
	var ends [2]ntb.Attachment
	for i := range ends {
		var err error
		ends[i], err = AttachFile(path, Place{Places: 2, Own: 1 - i, Peer: i})
		require.NoError(t, err)
		defer ends[i].Close()
	}
	x, y := open(t, ends[0], ends[1])
	defer x.Close()
	defer y.Close()
	at, err := unix.Mmap(-1, 0, heap, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	require.NoError(t, err)
	defer unix.Munmap(at)
	release, err := x.Caps().Mapper.MapAt(len(x.Inbound())-heap, at)
	require.NoError(t, err)
	defer release()
	out := y.Outbound()
	out.Publish64(out.Len()-8, 7)
	require.EqualValues(t, 7, ntb.Load64(at, heap-8))
	require.NoError(t, os.Truncate(path, size-heap))
	at[heap-1]++
	require.ErrorIs(t, x.WaitDoorbell(0), ntb.ErrLinkDown)
	require.ErrorIs(t, y.WaitDoorbell(0), ntb.ErrLinkDown)
}

func TestFilesThatAreNoMemory(t *testing.T) {
	leak.Check(t)
	none := filepath.Join(t.TempDir(), "none")
	for path, want := range map[string]string{
		none:                "truncate -s 16M " + none,
		newMemory(t, 8192):  "has 8192 bytes for 2 places",
		t.TempDir():         "is a directory",
		"/dev/null":         "not a regular file",
		newMemory(t, 16383): "has 16383 bytes",
	} {
		a, err := AttachFile(path, Place{Places: 2, Own: 0, Peer: 1})
		require.NoError(t, err)
		_, err = a.Open(context.Background())
		require.ErrorContains(t, err, want)
		require.NoError(t, a.Close())
	}
	_, err := AttachFile(none, Place{Places: 2, Own: 0, Peer: 2})
	require.ErrorContains(t, err, "from place 0 to 2 of 2")
}
