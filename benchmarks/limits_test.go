package benchmarks

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ntbnet/ntbnet/internal/shm/memfd"
	"github.com/ntbnet/ntbnet/ntb"
)

// What the machine allows two processes that share memory, without the code of a connection.
// Of this module it uses the stores and loads of ntb, since no other publish is cheaper. Both
// processes map one memory file:
//
//	0        ping   the word of the process that measures, on a line of its own
//	1024     pong   the other one's word
//	2048     head   bytes produced
//	3072     tail   bytes consumed, stored by the other one
//	4096     queue  8 MiB
const (
	pingAt    = 0
	pongAt    = 1024
	headAt    = 2048
	tailAt    = 3072
	queueAt   = 4096
	mostQueue = 8 << 20
)

// shared is memory that processes share.
type shared struct {
	b   []byte
	out ntb.Window // the same bytes, for stores
}

// newShared makes size bytes, and the file by which other processes map them.
func newShared(b *testing.B, size int) (*shared, *os.File) {
	fd, err := memfd.Create("benchmarks", int64(size))
	if err != nil {
		b.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "memory")
	m, err := mapShared(f, size)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := errors.Join(f.Close(), unix.Munmap(m.b)); err != nil {
			b.Error(err)
		}
	})
	return m, f
}

// mapShared maps a file of newShared, and touches all pages, so that no measurement does.
func mapShared(f *os.File, size int) (*shared, error) {
	b, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("map memory file: %w", err)
	}
	return &shared{b, ntb.MappedWindow(b, ntb.Cacheable)}, nil
}

// inherited maps the file that is the first one of this process, another one's.
func inherited(size int) (*shared, error) { return mapShared(os.NewFile(3, "memory"), size) }

// await spins until the word at off is at least want, and returns it. It pairs with
// Publish64.
func (m *shared) await(off int, want uint64) uint64 {
	for {
		if v := ntb.Load64(m.b, off); v >= want {
			return v
		}
	}
}

// message is what goes to and fro: a word, and payload of n bytes that both sides copy from
// and to memory of their own. Offsets are from pingAt and pongAt.
type message struct {
	name             string
	word, payload, n int
}

// A message of two lines is a record of the transport with 64 bytes.
var messages = []message{
	{"word", 0, 0, 0},
	{"line", 56, 0, 56},
	{"lines", 0, 8, 64},
}

// BenchmarkWord sends a message to and fro between two processes that spin. by=c is a program
// in C.
func BenchmarkWord(b *testing.B) {
	twoProcessors(b)
	for i, w := range messages {
		b.Run("message="+w.name+"/by=go", func(b *testing.B) {
			m, f := newShared(b, queueAt)
			startFor(b, "word", []*os.File{f}, strconv.Itoa(i))
			private, n := make([]byte, w.n), uint64(0)
			for b.Loop() {
				n++
				copy(m.b[pingAt+w.payload:][:w.n], private)
				m.out.Publish64(pingAt+w.word, n)
				m.await(pongAt+w.word, n)
				copy(private, m.b[pongAt+w.payload:][:w.n])
			}
		})
	}
	b.Run("message=word/by=c", func(b *testing.B) {
		gcc, err := exec.LookPath("gcc")
		if err != nil {
			missing(b, "gcc")
		}
		program := filepath.Join(b.TempDir(), "pingpong")
		if out, err := exec.Command(gcc, "-O2", "-Wall", "-Werror", "-o", program, "testdata/pingpong.c").CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
		b.ResetTimer()
		out, err := exec.Command(program, strconv.Itoa(b.N)).Output()
		if err != nil {
			b.Fatal(err)
		}
		us, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(1e3*us, "ns/op")
	})
}

func twoProcessors(b *testing.B) {
	if runtime.NumCPU() < 2 {
		b.Skip("both sides spin, which takes two processors")
	}
}

// answerWords is the role of Word's other process. Its argument is the number of the message.
func answerWords(args []string) error {
	i, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	m, err := inherited(queueAt)
	if err != nil {
		return err
	}
	exitWithParent()
	w := messages[i]
	private := make([]byte, w.n)
	for n := uint64(1); ; n++ {
		m.await(pingAt+w.word, n)
		copy(private, m.b[pingAt+w.payload:][:w.n])
		copy(m.b[pongAt+w.payload:][:w.n], private)
		m.out.Publish64(pongAt+w.word, n)
	}
}

// privateSize is how much memory of its own each side of Copies has, for messages of 64 KiB:
// smaller memory, in a nearer cache, is copied faster.
const privateSize = 64 << 10

// BenchmarkCopies has one process copy messages from its own memory into a queue, in pieces,
// and another one from the queue into its own. A transport whose writer and reader have memory
// of their own cannot do without these two copies. The limit is the best of the rows.
func BenchmarkCopies(b *testing.B) {
	twoProcessors(b)
	for _, queue := range []int{256 << 10, 1 << 20, 4 << 20, 8 << 20} {
		for _, piece := range []int{16 << 10, 64 << 10, 256 << 10} {
			for _, stores := range []string{"plain", "nontemporal"} {
				if stores != "plain" && piece != 64<<10 {
					continue
				}
				b.Run(fmt.Sprintf("queue=%s/piece=%s/stores=%s", sizeText(queue), sizeText(piece), stores), func(b *testing.B) {
					copies(b, queue, piece, stores != "plain")
				})
			}
		}
	}
}

func copies(b *testing.B, queue, piece int, stream bool) {
	m, f := newShared(b, queueAt+mostQueue)
	if stream && !m.out.Streams() {
		b.Skip("no non-temporal stores here")
	}
	startFor(b, "copies", []*os.File{f}, strconv.Itoa(queue), strconv.Itoa(piece))
	private := slices.Repeat([]byte{1}, max(privateSize, piece))
	size, pos, room := uint64(piece), uint64(0), uint64(queue)
	b.SetBytes(int64(piece))
	for b.Loop() {
		if pos+size > room {
			room = m.await(tailAt, pos+size-uint64(queue)) + uint64(queue)
		}
		at, from := queueAt+int(pos)&(queue-1), private[int(pos)&(len(private)-1):][:piece]
		if stream {
			m.out.Stream(at, from)
		} else {
			copy(m.b[at:], from)
		}
		pos += size
		m.out.Publish64(headAt, pos)
	}
	m.await(tailAt, pos)
}

// consume is the role of the process that empties the queue. Its arguments are the sizes of
// queue and piece.
func consume(args []string) error {
	queue, queueErr := strconv.Atoi(args[0])
	piece, pieceErr := strconv.Atoi(args[1])
	m, err := inherited(queueAt + mostQueue)
	if err := errors.Join(queueErr, pieceErr, err); err != nil {
		return err
	}
	exitWithParent()
	private := slices.Repeat([]byte{1}, max(privateSize, piece))
	for pos, have := uint64(0), uint64(0); ; {
		next := pos + uint64(piece)
		if have < next {
			have = m.await(headAt, next)
		}
		copy(private[int(pos)&(len(private)-1):][:piece], m.b[queueAt+int(pos)&(queue-1):])
		pos = next
		m.out.Publish64(tailAt, pos)
	}
}
