//go:build linux && (amd64 || arm64)

package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/sdp"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func init() {
	roles["lacking dialler"] = playLackingDialler
	roles["lacking listener"] = playLackingListener
}

// lackTimes is how many links are tried with a lack. Each has a little more of it than the one before.
const lackTimes = 100

// scarcity gives a process little of something.
type scarcity struct {
	pid, kind   int // the process, 0 for this one, and the limit
	least, step uint64
	before      unix.Rlimit
}

// newScarcity is for what a process has little of, by its name.
func newScarcity(pid int, what string) (*scarcity, error) {
	proc := "/proc/self"
	if pid != 0 {
		proc = fmt.Sprintf("/proc/%d", pid)
	}
	s := &scarcity{pid: pid}
	switch what {
	case "descriptors": // the limit is one of numbers, and low ones may be free
		s.kind, s.least, s.step = unix.RLIMIT_NOFILE, 4, 1
	case "addresses": // a window has a GiB of them
		text, err := os.ReadFile(proc + "/statm")
		if err != nil {
			return nil, err
		}
		pages, err := strconv.ParseUint(strings.Fields(string(text))[0], 10, 64)
		if err != nil {
			return nil, err
		}
		s.kind, s.least, s.step = unix.RLIMIT_AS, pages*uint64(os.Getpagesize())+256<<20, 64<<20
	case "large files":
		s.kind, s.least, s.step = unix.RLIMIT_FSIZE, 0, 4096
	default:
		return nil, fmt.Errorf("what is %q?", what)
	}
	return s, unix.Prlimit(pid, s.kind, nil, &s.before)
}

// begin has the process lack it, a bit less for a greater i.
func (s *scarcity) begin(i int) error {
	return unix.Prlimit(s.pid, s.kind, &unix.Rlimit{Cur: s.least + uint64(i%50)*s.step, Max: s.before.Max}, nil)
}

func (s *scarcity) end() error { return unix.Prlimit(s.pid, s.kind, &s.before, nil) }

// noSpace has files of this process not grow any more.
func noSpace() error {
	return denyCalls(unix.ENOSPC, []uint32{unix.SYS_FTRUNCATE, unix.SYS_FALLOCATE})
}

// playLackingDialler dials an address, each time as another process of the fabric, while it lacks something. It says how
// many dials have failed. What is left behind then fails the role.
func playLackingDialler(p *self) error {
	var lack *scarcity
	if p.args[1] != "space" {
		var err error
		if lack, err = newScarcity(0, p.args[1]); err != nil {
			return err
		}
	}
	failed := 0
	for i := range lackTimes {
		f, err := sdp.Open(os.Getenv("SDP_FABRIC"))
		if err != nil && lack == nil {
			failed++
			continue
		}
		if err == nil && lack != nil {
			err = lack.begin(i)
		} else if err == nil && i == 0 {
			err = noSpace()
		}
		if err != nil {
			return err
		}
		c, err := f.Dial("sdp", p.args[0])
		if err != nil {
			failed++
		} else {
			c.Close()
		}
		if lack != nil {
			if err := lack.end(); err != nil {
				return err
			}
		}
		f.Close()
	}
	p.printf("%d", failed)
	return nil
}

// playLackingListener accepts until the test is done with it. Told so, its files do not grow any more. What is left
// behind fails the role.
func playLackingListener(p *self) error {
	ln, err := sdp.Listen("sdp", "localhost:0")
	if err != nil {
		return err
	}
	p.printf("%s", ln.Addr())
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	})
	for {
		line, ok := p.readLine()
		if !ok {
			break
		}
		if line == "no space" {
			err = noSpace()
		}
		p.printf("%v", err)
	}
	err = errors.Join(err, ln.Close())
	all.Wait()
	return err
}

// A link that cannot be made, at any step and for any lack at either side, leaves nothing at both.
func TestALinkThatCannotBeMadeLeavesNothing(t *testing.T) {
	for _, what := range []string{"descriptors", "addresses", "large files", "space"} {
		t.Run("dialler lacks "+what, func(t *testing.T) {
			newFabric(t)
			listener := startPeer(t, "lacking listener", nil)
			dialler := startPeer(t, "lacking dialler", []string{listener.readLine(), what})
			n, err := strconv.Atoi(dialler.readLine())
			require.NoError(t, err)
			t.Logf("%d of %d dials failed", n, lackTimes)
			require.Positive(t, n)
			endLacking(t, dialler)
			endLacking(t, listener)
		})
		t.Run("listener lacks "+what, func(t *testing.T) {
			newFabric(t)
			listener := startPeer(t, "lacking listener", nil)
			address, failed := listener.readLine(), 0
			var lack *scarcity
			if what == "space" {
				require.Equal(t, "<nil>", listener.ask("no space"))
			} else {
				var err error
				lack, err = newScarcity(listener.cmd.Process.Pid, what)
				require.NoError(t, err)
			}
			for i := range lackTimes {
				f, err := sdp.Open(os.Getenv("SDP_FABRIC"))
				require.NoError(t, err)
				if lack != nil {
					require.NoError(t, lack.begin(i))
				}
				// A listener that cannot answer need not be waited for.
				ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				c, err := f.DialContext(ctx, "sdp", address)
				cancel()
				if err != nil {
					failed++
				} else {
					c.Close()
				}
				if lack != nil {
					require.NoError(t, lack.end())
				}
				require.NoError(t, f.Close())
			}
			t.Logf("%d of %d dials failed", failed, lackTimes)
			require.Positive(t, failed)
			endLacking(t, listener)
		})
	}
}

// endLacking is peer.end for one that may have complained of what it lacks.
func endLacking(t *testing.T, p *peer) {
	t.Helper()
	p.in.Close()
	p.wait()
	require.Equal(t, 0, p.cmd.ProcessState.ExitCode(), "%s: %s", p.role, p.stderr.String())
}
