//go:build linux && (amd64 || arm64)

package sdp

import (
	"bytes"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/nettest"
)

const fileSize = 4 << 20

// fileNodes opens two nodes whose bridge is a file.
func fileNodes(t *testing.T, options string) (path string, one, two *Fabric) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "memory")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, os.Truncate(path, fileSize))
	line := "line:" + fabrictest.Name(t)
	one, err := Open(line + "?node=1&nodes=2&right=file:" + path + options)
	require.NoError(t, err)
	t.Cleanup(func() { one.Close() })
	two, err = Open(line + "?node=2&nodes=2&left=file:" + path + options)
	require.NoError(t, err)
	t.Cleanup(func() { two.Close() })
	return path, one, two
}

func TestConnOfFiles(t *testing.T) {
	_, one, two := fileNodes(t, "")
	nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) { return pipeBetween(one, two, ":0") })
}

// flow has one side write ones to the other, and the other count what else it reads. It returns channels for
// how writing and reading ended. read counts bytes.
func flow(from, to net.Conn, read, others *atomic.Int64) (wrote, ended chan error) {
	wrote, ended = make(chan error, 1), make(chan error, 1)
	go func() {
		ones, err := bytes.Repeat([]byte{1}, 64<<10), error(nil)
		for err == nil {
			_, err = from.Write(ones)
		}
		wrote <- err
	}()
	go func() {
		var b [64 << 10]byte
		for {
			n, err := to.Read(b[:])
			if err != nil {
				ended <- err
				return
			}
			others.Add(int64(n - bytes.Count(b[:n], []byte{1})))
			read.Add(int64(n))
		}
	}()
	return wrote, ended
}

// goesOn waits until more is read, or reading has ended.
func goesOn(t *testing.T, read *atomic.Int64, ended chan error) {
	t.Helper()
	before := read.Load()
	require.Eventually(t, func() bool { return len(ended) > 0 || read.Load() > before }, time.Minute, time.Millisecond)
}

// cut makes a file shorter while bytes are read, and perhaps as long as before at once.
func cut(t *testing.T, rng *rand.Rand, path string) {
	t.Helper()
	time.Sleep(time.Duration(rng.IntN(2000)) * time.Microsecond)
	require.NoError(t, os.Truncate(path, 0))
	if rng.IntN(2) == 0 {
		require.NoError(t, os.Truncate(path, fileSize))
	}
}

// A file that shrinks resets the connections. What they deliver before is what was sent, and none of the
// zeros that are there now.
func TestAFileThatShrinks(t *testing.T) {
	path, one, two := fileNodes(t, "")
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 40 {
		var a, b net.Conn
		var stop func()
		// A node that finds a file of no bytes refuses dials with that reason until it tries again.
		require.Eventually(t, func() (ok bool) {
			var err error
			a, b, stop, err = pipeBetween(one, two, ":0")
			if err != nil {
				require.ErrorContains(t, err, "has 0 bytes")
			}
			return err == nil
		}, time.Minute, time.Millisecond)
		var read, others atomic.Int64
		wrote, ended := flow(a, b, &read, &others)
		goesOn(t, &read, ended)
		cut(t, rng, path)
		require.ErrorIs(t, <-wrote, syscall.ECONNRESET)
		require.ErrorIs(t, <-ended, syscall.ECONNRESET)
		require.Zero(t, others.Load(), "round %d", round)
		require.NoError(t, os.Truncate(path, fileSize))
		stop()
	}
}

// A connection by frames may go on when the file is as long as before, or end on both sides if that took long.
func TestFramesWhenAFileHasShrunk(t *testing.T) {
	path, one, two := fileNodes(t, "&failover=1")
	rng := rand.New(rand.NewPCG(1, 2))
	for round := 0; round < 20; {
		a, b, stop, err := pipeBetween(one, two, ":0")
		require.NoError(t, err)
		var read, others atomic.Int64
		wrote, ended := flow(a, b, &read, &others)
		for ; round < 20 && len(ended) == 0; round++ {
			goesOn(t, &read, ended)
			cut(t, rng, path)
			require.NoError(t, os.Truncate(path, fileSize))
			goesOn(t, &read, ended)
			require.Zero(t, others.Load(), "round %d", round)
		}
		if round == 20 {
			stop()
		}
		require.Error(t, <-wrote)
		require.Error(t, <-ended)
		require.Zero(t, others.Load())
		stop()
	}
}
