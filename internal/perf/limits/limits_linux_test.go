package limits

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ntbnet/ntbnet/internal/leak"
)

// helperFD makes the test binary the second process, or with chainPlace, "2/3", a process of a
// chain: the second one after the first of 3 hops.
const (
	helperFD   = "LIMITS_TEST_HELPER_FD"
	chainPlace = "LIMITS_TEST_CHAIN"
)

func TestMain(m *testing.M) {
	if fd, err := strconv.Atoi(os.Getenv(helperFD)); err == nil {
		f := os.NewFile(uintptr(fd), "limits")
		var index, hops int
		if _, scanErr := fmt.Sscanf(os.Getenv(chainPlace), "%d/%d", &index, &hops); scanErr == nil {
			err = ServeChain(f, hops, index, os.Stdin)
		} else {
			var mem *Memory
			if mem, err = OpenMemory(f); err == nil {
				err = Serve(mem, os.Stdin)
			}
		}
		if err != nil {
			os.Stderr.WriteString(err.Error())
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// together returns a meter whose helper is in this process.
func together(t *testing.T) (s *Meter, commands io.WriteCloser, served <-chan error) {
	t.Helper()
	if runtime.NumCPU() < 2 {
		t.Skip("needs two processors")
	}
	leak.Check(t)
	mem, f, err := NewMemory()
	require.NoError(t, err)
	other, err := OpenMemory(f)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	r, w := io.Pipe()
	end := make(chan error, 1)
	go func() {
		end <- Serve(other, r)
		r.Close()
		other.Close()
	}()
	t.Cleanup(func() {
		w.Close()
		mem.Close()
	})
	return NewMeter(mem, w), w, end
}

func TestMeasureHasAFigureForEverything(t *testing.T) {
	s, commands, served := together(t)
	r, err := s.Measure(Quick, nil, 1)
	require.NoError(t, err)
	assert.Positive(t, r.Line.Best)
	assert.Positive(t, r.Filled.Best)
	assert.Positive(t, r.Double.Best)
	sizes := 53 // 8 queues with 7 pieces, but no piece larger than its queue
	if s.m.out.Streams() {
		sizes += 8 // by non-temporal stores
	}
	assert.Len(t, r.Copies, sizes)
	for _, c := range r.Copies {
		assert.Positive(t, c.GBs, c)
		assert.LessOrEqual(t, c.GBs, r.Best.GBs)
	}
	assert.Contains(t, r.Fastest(1), r.Best)
	assert.Len(t, r.Fastest(3), map[bool]int{false: 3, true: 6}[s.m.out.Streams()])

	var b bytes.Buffer
	require.NoError(t, r.Table(&b))
	for _, row := range []string{"one cache line to and fro", "a word and 56 B", "two cache lines to and fro", "a word and 64 B", "two copies through a queue", "8 MiB"} {
		assert.Contains(t, b.String(), row)
	}
	require.NoError(t, commands.Close())
	assert.NoError(t, <-served)
}

// The test checks the helper's copy through the queue, which at the end contains
// the meter's last pieces.
func TestEveryPieceGoesThroughTheQueue(t *testing.T) {
	s, _, _ := together(t)
	c := command{copies, 64 << 10, 16 << 10, 10}
	require.NoError(t, s.begin(c))
	private := newMessage(c.piece)
	for i := range c.count {
		clear(private)
		copy(private[int(i)*c.piece%messageSize:], bytes.Repeat([]byte{byte(i)}, c.piece))
		require.True(t, s.produce(c, private, i%2 > 0, i, i+1))
		assert.Equal(t, (i+1)*uint64(c.piece), s.m.load(tail))
	}
	for slot, want := range []byte{8, 9, 6, 7} {
		assert.Equal(t, bytes.Repeat([]byte{want}, c.piece), s.m.piece(uint64(slot*c.piece), c.piece, c.queue))
	}
}

// Both sides copy all 64 bytes, and no more, before they publish the word.
func TestAMessageOfTwoLinesArrives(t *testing.T) {
	s, _, _ := together(t)
	m := s.m.b
	for i := range m[:256] {
		m[ping+i], m[pong+i] = byte(i)+1, 0
	}
	want := bytes.Clone(m[ping+payloadAt : ping+payloadAt+twoLines])
	require.NoError(t, s.begin(command{double, 0, 0, 1}))
	// begin stores to the words of all kinds, of which one is within the payload.
	copy(want[wordAt-payloadAt:], make([]byte, 8))
	s.m.publish(ping, 1)
	require.True(t, s.await(pong, 1))
	assert.Equal(t, want, m[pong+payloadAt:pong+payloadAt+twoLines])
	assert.Equal(t, make([]byte, 128), m[pong+payloadAt+twoLines:][:128])
	us, err := s.CacheLine(TwoLines, 10)
	require.NoError(t, err)
	assert.Positive(t, us)
}

func TestStopEndsAMeasurementWhoseHelperIsDead(t *testing.T) {
	mem, f, err := NewMemory()
	require.NoError(t, err)
	defer f.Close()
	defer mem.Close()
	if runtime.NumCPU() < 2 {
		t.Skip("needs two processors")
	}
	s := NewMeter(mem, io.Discard)
	time.AfterFunc(10*time.Millisecond, s.Stop)
	for _, m := range []Message{Word, FilledLine, TwoLines} {
		_, err = s.CacheLine(m, 10)
		assert.ErrorIs(t, err, errStopped)
	}
	_, err = s.Copies(64<<10, 4<<10, 1<<20, false)
	assert.ErrorIs(t, err, errStopped)
}

func TestServeEndsWithItsCommands(t *testing.T) {
	s, commands, served := together(t)
	require.NoError(t, s.begin(command{lines, 0, 0, 10}), "and nobody plays")
	require.NoError(t, commands.Close())
	assert.NoError(t, <-served)
}

func TestBadCommandsAreRefused(t *testing.T) {
	for _, line := range []string{
		"", "lines", "lines 0 0 -1", "frob 0 0 1", "copies 0 0 1", "copies 4096 8192 1",
		"copies 65536 3000 1", "copies 60000 4096 1", "copies 16777216 4096 1", "copies -8192 4096 1",
	} {
		_, err := parseCommand(line)
		assert.Error(t, err, line)
	}
	c := command{copies, 1 << 20, 1 << 12, 7}
	got, err := parseCommand(c.String())
	require.NoError(t, err)
	assert.Equal(t, c, got)
	assert.Error(t, Serve(nil, strings.NewReader("frob 0 0 1\n")))
}

func TestTheMemorysSizeCannotChange(t *testing.T) {
	mem, f, err := NewMemory()
	require.NoError(t, err)
	defer f.Close()
	defer mem.Close()
	assert.ErrorIs(t, f.Truncate(0), unix.EPERM)
	assert.ErrorIs(t, f.Truncate(2*memorySize), unix.EPERM)
}

// twoProcesses returns a meter whose helper is in another process.
func twoProcesses(t *testing.T) *Meter {
	t.Helper()
	mem, f, err := NewMemory()
	require.NoError(t, err)
	defer f.Close()
	t.Cleanup(func() { mem.Close() })
	return NewMeter(mem, anotherProcess(t, f))
}

// chainOfProcesses returns a chain whose other processes are processes.
func chainOfProcesses(t *testing.T, hops int) *Chain {
	t.Helper()
	c, f, err := NewChain(hops)
	require.NoError(t, err)
	defer f.Close()
	t.Cleanup(func() { c.Close() })
	for i := 1; i <= hops; i++ {
		anotherProcess(t, f, fmt.Sprintf("%s=%d/%d", chainPlace, i, hops))
	}
	return c
}

// anotherProcess starts one that maps the file f. It ends with the test.
func anotherProcess(t *testing.T, f *os.File, env ...string) (stdin io.Writer) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), helperFD+"=3"), env...)
	cmd.ExtraFiles = []*os.File{f}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		in.Close()
		assert.NoError(t, cmd.Wait())
	})
	return in
}

// within is the largest accepted ratio of the figures of C and Go. attempts is how
// often both are measured at most. On a machine that does other work too, a figure
// can be bad at any time, but the best of a few is not.
const (
	within   = 1.5
	attempts = 25
)

// These are the only comparisons of times in the tests. A limit that is not the
// machine's would make every share of it wrong.
func TestTheCacheLineFigureIsThatOfC(t *testing.T) {
	inC := programInC(t, "pingpong.c")
	const rounds = 50_000
	s := twoProcesses(t)
	figureIsThatOf(t,
		func() (float64, error) { return inC(rounds) },
		func() (float64, error) { return s.CacheLine(Word, rounds) })
}

func TestTheChainFigureIsThatOfC(t *testing.T) {
	inC := programInC(t, "chain.c")
	for _, hops := range []int{2, 3, 4} {
		c := chainOfProcesses(t, hops)
		figureIsThatOf(t,
			func() (float64, error) { return inC(hops, 5000) },
			func() (float64, error) {
				us, _, err := c.RoundTrips(50 * time.Millisecond)
				return us, err
			})
	}
}

// programInC compiles a program of testdata. What it returns runs it, and returns what it
// prints. It skips the test unless it has the processors for itself.
func programInC(t *testing.T, source string) func(args ...int) (float64, error) {
	t.Helper()
	if os.Getenv("NTBNET_ALONE") == "" {
		t.Skip("needs the processors for itself; NTBNET_ALONE=1 runs it")
	}
	if runtime.NumCPU() < 2 {
		t.Skip("needs two processors")
	}
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("CI needs gcc")
		}
		t.Skip("needs gcc")
	}
	program := filepath.Join(t.TempDir(), "program")
	out, err := exec.Command(gcc, "-O2", "-Wall", "-Werror", "-o", program, filepath.Join("testdata", source)).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return func(args ...int) (float64, error) {
		var texts []string
		for _, a := range args {
			texts = append(texts, strconv.Itoa(a))
		}
		out, err := exec.Command(program, texts...).Output()
		if err != nil {
			return 0, err
		}
		return strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
	}
}

// figureIsThatOf requires that two programs have the same figure, in microseconds.
func figureIsThatOf(t *testing.T, inC, inGo func() (float64, error)) {
	t.Helper()
	var c, own []float64
	for i := range attempts {
		v, err := inC()
		require.NoError(t, err)
		w, err := inGo()
		require.NoError(t, err)
		c, own = append(c, v), append(own, w)
		slices.Sort(c)
		slices.Sort(own)
		// The best or the median must agree. In a virtual machine both processors
		// may be one core's for a moment, which makes a single round far too good.
		if i >= 2 && (near(c[0], own[0]) || near(c[i/2], own[i/2])) {
			t.Logf("%d rounds: C %.3f µs, Go %.3f µs", i+1, c, own)
			return
		}
		time.Sleep(time.Duration(i) * 20 * time.Millisecond)
	}
	t.Errorf("C %.3f µs, Go %.3f µs: more than %vx apart", c, own, within)
}

func near(a, b float64) bool { return a < within*b && b < within*a }
