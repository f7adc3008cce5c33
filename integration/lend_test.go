//go:build linux

package integration

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"

	fabrics "github.com/ntbnet/ntbnet/internal/fabric"
	"github.com/ntbnet/ntbnet/internal/heapmem"
	"github.com/ntbnet/ntbnet/internal/shm/memfd"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/stretchr/testify/require"
)

// playBorrower asks for files of processes of the fabric of its argument: each line is a port and
// a key. It answers with the size of the file, or why it got none.
func playBorrower(p *self) error {
	spec, err := spec.Parse(p.args[0])
	if err != nil {
		return err
	}
	p.printf("ready")
	for {
		line, ok := p.readLine()
		if !ok {
			return nil
		}
		w := words(line)
		port, _ := strconv.Atoi(w[0])
		key, _ := strconv.ParseUint(w[1], 10, 64)
		p.printf("%s", borrow(spec, port, key))
	}
}

func borrow(spec *spec.Spec, port int, key uint64) string {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	f, err := heapmem.Fetch(ctx, spec, spec.Node, port, key)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(info.Size(), " bytes")
}

// A file that a process lends, as the heap of a PE, goes over a cable to processes of its user
// that know the key, and to no others.
func TestFilesAreLentToProcessesOfTheSameUser(t *testing.T) {
	const port, key, size = 4001, 1<<63 + 12345, 12 << 10
	dir, exe := shop(t)
	spec, err := spec.Parse("shm:" + dir)
	require.NoError(t, err)
	f, err := fabrics.Open(spec, func(*fabrics.Fabric) {})
	require.NoError(t, err)
	defer f.Close()
	_, err = f.ClaimPort(port)
	require.NoError(t, err)
	fd, err := memfd.Create("lent", size)
	require.NoError(t, err)
	file := os.NewFile(uintptr(fd), "lent")
	defer file.Close()
	end := heapmem.Lend(key, file)

	same := startPeer(t, "borrower", []string{"shm:" + dir})
	other := startPeer(t, "borrower", []string{"shm:" + dir}, asUser(exe, userB), inGroups(inShop))
	for _, p := range []*peer{same, other} {
		require.Equal(t, "ready", p.readLine())
	}
	ask := func(p *peer, port int, key uint64) string { return p.ask(fmt.Sprint(port, key)) }
	require.Equal(t, fmt.Sprint(size, " bytes"), ask(same, port, key))
	require.Contains(t, ask(other, port, key), "the process is of another user")
	require.Contains(t, ask(same, port, key+1), "there is no such file")
	require.Contains(t, ask(same, port+1, key), "no process of this machine holds port 4002")
	require.Equal(t, os.Geteuid(), fabrics.Self().UID)
	require.Equal(t, uint64(1), f.Refused().Count) // the other user asked nobody: it knows whose the process is
	end()
	require.Contains(t, ask(same, port, key), "there is no such file")
	other.end()
	same.end()
}
