package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/ntbnet/ntbnet/sdp"
)

// asCommand makes the test binary the command.
const asCommand = "NTBNET_OTHERS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// waits is a suite whose test starts a process and waits for it, over one transport: it
// says which processes they are, and the fabric.
const waits = `package suite

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"
)

func TestWaits(t *testing.T) {
	fabric := os.Getenv("SDP_FABRIC")
	if os.Getenv("OVER") != fabric[:min(len(fabric), 3)] {
		return
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	sleep := exec.Command("sh", "-c", "trap '' INT; sleep 300 & wait")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	ready := os.Getenv("READY")
	said := fmt.Sprintln(os.Getpid(), sleep.Process.Pid, fabric)
	if err := os.WriteFile(ready+".tmp", []byte(said), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(ready+".tmp", ready); err != nil {
		t.Fatal(err)
	}
	sleep.Wait()
}
`

// fabricDirs are the directories of a fabric.
func fabricDirs(t *testing.T, name string) []string {
	var all []string
	for _, base := range []string{"/tmp/ntbnet-*", "/run/user/*/ntbnet"} {
		found, err := filepath.Glob(filepath.Join(base, name))
		require.NoError(t, err)
		all = append(all, found...)
	}
	return all
}

// An interrupt of the command ends the suite that it runs, with all processes of that, and
// leaves no directory behind: neither the temporary one nor the fabric's.
func TestAnInterruptLeavesNothing(t *testing.T) {
	if os.Getenv("NTBNET_LONG") == "" {
		t.Skip("it builds much of Go's library twice; NTBNET_LONG runs it")
	}
	f, err := sdp.Open("shm:" + fabrictest.Name(t))
	if err != nil {
		t.Skip(err)
	}
	f.Close()
	for _, tc := range []struct {
		name, over string
		signal     syscall.Signal
	}{
		{"TCP, SIGINT", "", syscall.SIGINT},
		{"SDP, SIGINT", "shm", syscall.SIGINT},
		{"SDP, SIGTERM", "shm", syscall.SIGTERM},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			suite, tmp, ready := filepath.Join(dir, "suite"), filepath.Join(dir, "tmp"), filepath.Join(dir, "ready")
			for _, d := range []string{suite, tmp} {
				require.NoError(t, os.Mkdir(d, 0o700))
			}
			require.NoError(t, os.WriteFile(filepath.Join(suite, "go.mod"), []byte("module example.org/waits\n\ngo 1.26.0\n"), 0o600))
			require.NoError(t, os.WriteFile(filepath.Join(suite, "suite_test.go"), []byte(waits), 0o600))
			exe, err := os.Executable()
			require.NoError(t, err)
			cmd := exec.Command(exe, suite)
			cmd.Env = append(os.Environ(), asCommand+"=1", "SDP_FABRIC=", "TMPDIR="+tmp, "READY="+ready, "OVER="+tc.over)
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			require.NoError(t, cmd.Start())
			ended := make(chan struct{})
			go func() { cmd.Wait(); close(ended) }()
			t.Cleanup(func() { cmd.Process.Kill() })

			var text []byte
			for err = os.ErrNotExist; errors.Is(err, os.ErrNotExist); text, err = os.ReadFile(ready) {
				select {
				case <-ended:
					require.Fail(t, "the command has ended", out.String())
				case <-time.After(10 * time.Millisecond):
				}
			}
			require.NoError(t, err)
			var test, child int
			var fabric string
			fmt.Sscan(string(text), &test, &child, &fabric)
			fabric = strings.TrimPrefix(fabric, "shm:")
			t.Cleanup(func() {
				for _, pid := range []int{test, child} {
					syscall.Kill(pid, syscall.SIGKILL)
				}
				if fabric != "" {
					_ = clean(func() error { return spec.Remove(fabric) })
				}
			})
			if tc.over == "shm" {
				require.Len(t, fabricDirs(t, fabric), 1)
			}

			require.NoError(t, cmd.Process.Signal(tc.signal))
			select {
			case <-ended:
			case <-time.After(2 * endTimeout):
				require.Fail(t, "the command does not end", out.String())
			}
			left, err := os.ReadDir(tmp)
			require.NoError(t, err)
			require.Empty(t, left, out.String())
			if tc.over == "shm" {
				require.Empty(t, fabricDirs(t, fabric))
			}
			for _, pid := range []int{test, child} {
				require.Eventually(t, func() bool { return gone(pid) }, endTimeout, 10*time.Millisecond, pid)
			}
			require.Equal(t, exitInterrupted, cmd.ProcessState.ExitCode(), out.String())
			require.Equal(t, "others: interrupted\n", out.String())
		})
	}
}

// gone reports whether a process has ended, though its parent may not know it yet.
func gone(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(after, "Z") || strings.HasPrefix(after, "X")
}
