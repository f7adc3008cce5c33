package examples

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var bin string // the directory of the programs

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if bin, err = os.MkdirTemp("", "examples"); err == nil {
			defer os.RemoveAll(bin)
			build := exec.Command("go", "build", "-o", bin+string(filepath.Separator), "./...", "github.com/ntbnet/ntbnet/cmd/shmemrun")
			build.Stderr = os.Stderr
			err = build.Run()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return fabrictest.Main(m)
	}())
}

// program is one that goes on until the test ends.
type program struct {
	out *bufio.Scanner
	in  io.WriteCloser
}

func start(t *testing.T, env string, name string, args ...string) *program {
	t.Helper()
	cmd := exec.Command(filepath.Join(bin, name), args...)
	cmd.Env = append(os.Environ(), env)
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return &program{bufio.NewScanner(out), in}
}

// line returns the next line that the program prints.
func (p *program) line(t *testing.T) string {
	t.Helper()
	require.True(t, p.out.Scan(), "it has ended")
	return p.out.Text()
}

// run returns what a program prints until it ends.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(filepath.Join(bin, name), args...)
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	require.NoError(t, err)
	return string(out)
}

func TestHTTP(t *testing.T) {
	url := start(t, "", "server", "127.0.0.1:0").line(t)
	out := run(t, "client", url)
	assert.Regexp(t, `^by \*sdp\.Conn\nhello, 127\.0\.0\.1:\d+\n$`, out)
}

func TestGRPC(t *testing.T) {
	assert.Equal(t, "the server is SERVING\n", run(t, "grpc"))
}

func TestChat(t *testing.T) {
	fabric := "SDP_FABRIC=shm:" + fabrictest.Name(t)
	start(t, fabric, "chat", "serve").line(t)
	ann, bob := start(t, fabric, "chat", "ann"), start(t, fabric, "chat", "bob")
	// Ann does not know when Bob is in the room.
	heard := make(chan string)
	go func() {
		defer close(heard)
		if bob.out.Scan() {
			heard <- bob.out.Text()
		}
	}()
	var said bytes.Buffer
	for n := 1; ; n++ {
		fmt.Fprintf(&said, "ann: %d\n", n)
		fmt.Fprintln(ann.in, n)
		select {
		case line, ok := <-heard:
			require.True(t, ok)
			require.Contains(t, said.String(), line+"\n")
			fmt.Fprintln(bob.in, "hello")
			require.Equal(t, "bob: hello", ann.line(t))
			return
		default:
		}
	}
}

func TestARing(t *testing.T) {
	const nodes = 4
	ring := "ring:" + fabrictest.Name(t)
	var all []*program
	for n := 1; n <= nodes; n++ {
		all = append(all, start(t, "", "ringnode", fmt.Sprintf("%s?node=%d&nodes=%d", ring, n, nodes)))
	}
	for i, p := range all {
		var answers []string
		for range nodes - 1 {
			answers = append(answers, p.line(t))
		}
		for n := 1; n <= nodes; n++ {
			if n != i+1 {
				assert.Contains(t, strings.Join(answers, "\n"), fmt.Sprintf("node%d:7701 answers node%d:", n, i+1))
			}
		}
	}
}

func TestSHMEM(t *testing.T) {
	for pes := 1; pes <= 3; pes++ {
		assert.Equal(t, fmt.Sprintf("%d PEs, 10194 steps: 49.23 degrees in the middle\n", pes),
			run(t, "shmemrun", "-n", strconv.Itoa(pes), filepath.Join(bin, "heat")))
	}
	assert.Equal(t, "record 1: 65536 bytes, 1 to 1\nrecord 2: 65536 bytes, 2 to 2\nrecord 3: 65536 bytes, 3 to 3\nPE 1 is gone\n",
		run(t, "shmemrun", "-n", "2", filepath.Join(bin, "segment")))
}
