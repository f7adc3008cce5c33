package leak

import (
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestDescriptorIsFound(t *testing.T) {
	name := filepath.Join(t.TempDir(), "open")
	expectFound(t, func() func() {
		f := must[*os.File](t)(os.Create(name))
		return func() { f.Close() }
	}, "descriptor ", " -> "+name)
}

func TestSocketIsFound(t *testing.T) {
	expectFound(t, func() func() {
		ln := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
		return func() { ln.Close() }
	}, "descriptor ", " -> socket:[")
}

func TestPipeIsFound(t *testing.T) {
	expectFound(t, func() func() {
		var p [2]int
		if err := syscall.Pipe(p[:]); err != nil {
			t.Fatal(err)
		}
		syscall.Close(p[0])
		return func() { syscall.Close(p[1]) }
	}, "descriptor ", " -> pipe:[")
}

func TestPipesThatPackageNetKeepsAreNotFound(t *testing.T) {
	expectNothing(t, func() {
		ln := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
		defer ln.Close()
		var in, out [2]net.Conn // of two connections, both ends
		for i := range in {
			in[i] = must[net.Conn](t)(net.Dial("tcp", ln.Addr().String()))
			defer in[i].Close()
			out[i] = must[net.Conn](t)(ln.Accept())
			defer out[i].Close()
		}
		if _, err := in[0].Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		in[0].Close()
		before := len(descriptors())
		if n, err := out[1].(*net.TCPConn).ReadFrom(out[0]); n != 5 || err != nil {
			t.Fatal(n, err)
		}
		if len(descriptors()) == before {
			t.Error("no pipe was kept: this tests nothing")
		}
	})
}

func TestMappingOfMemfdIsFound(t *testing.T) {
	for _, flags := range []int{unix.MAP_SHARED, unix.MAP_PRIVATE} {
		expectFound(t, func() func() {
			fd := must[int](t)(unix.MemfdCreate("window", unix.MFD_CLOEXEC))
			defer unix.Close(fd)
			if err := unix.Ftruncate(fd, 3<<16); err != nil {
				t.Fatal(err)
			}
			mem := must[[]byte](t)(unix.Mmap(fd, 0, 3<<16, unix.PROT_READ, flags))
			return func() {
				if err := unix.Munmap(mem); err != nil {
					t.Fatal(err)
				}
			}
		}, "mapping, 196608 bytes more", "/memfd:window")
	}
}

func TestSecondMappingOfOneFileIsFound(t *testing.T) {
	f := must[*os.File](t)(os.Create(filepath.Join(t.TempDir(), "window")))
	defer f.Close()
	if err := f.Truncate(1 << 16); err != nil {
		t.Fatal(err)
	}
	mmap := func() func() {
		mem := must[[]byte](t)(syscall.Mmap(int(f.Fd()), 0, 1<<16, syscall.PROT_READ, syscall.MAP_SHARED))
		return func() {
			if err := syscall.Munmap(mem); err != nil {
				t.Fatal(err)
			}
		}
	}
	unmap := mmap()
	defer unmap()
	expectFound(t, mmap, "mapping, 65536 bytes more", f.Name())
}

func TestProtectionOfPartOfAMappingIsNoLeak(t *testing.T) {
	mem := must[[]byte](t)(unix.Mmap(-1, 0, 3<<16, unix.PROT_READ, unix.MAP_SHARED|unix.MAP_ANONYMOUS))
	defer unix.Munmap(mem)
	expectNothing(t, func() {
		if err := unix.Mprotect(mem[1<<16:2<<16], unix.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	})
}

func TestMapsAreSummedUpByFile(t *testing.T) {
	got := sharedMappings(`00400000-00401000 r-xp 00000000 08:01 7          /bin/x
7f0000000000-7f0000001000 rw-s 00000000 00:01 12         /memfd:a b (deleted)
7f0000001000-7f0000003000 r--s 00001000 00:01 12         /memfd:a b (deleted)
7f0000003000-7f0000004000 rw-p 00000000 00:01 13         /memfd:a b (deleted)
7f0000004000-7f0000005000 rw-p 00000000 00:00 0
7f0000005000-7f0000006000 rw-s 00000000 00:01 14         /dev/zero (deleted)
`)
	want := map[string]uint64{
		"00:01 12 /memfd:a b (deleted)": 0x3000,
		"00:01 13 /memfd:a b (deleted)": 0x1000,
		"00:01 14 /dev/zero (deleted)":  0x1000,
	}
	if len(got) != len(want) {
		t.Errorf("got %v", got)
	}
	for key, bytes := range want {
		if got[key].bytes != bytes {
			t.Errorf("%s: %d bytes, want %d", key, got[key].bytes, bytes)
		}
	}
}
