//go:build linux && (amd64 || arm64)

package integration

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/ntbnet/ntbnet/sdp"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func init() { roles["denied"] = playDenied }

// deniable are the calls that a fabric makes in its directory, and programs of package net do not, by the numbers that
// they have.
var deniable = map[string][]uint32{
	"flock":    {unix.SYS_FLOCK},
	"fchmod":   {unix.SYS_FCHMOD, unix.SYS_FCHMODAT, unix.SYS_FCHMODAT2},
	"rename":   {unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2},
	"link":     {unix.SYS_LINKAT},
	"getdents": {unix.SYS_GETDENTS64},
	"mkdir":    {unix.SYS_MKDIRAT},
}

// denyCalls makes calls fail in this process.
func denyCalls(errno syscall.Errno, numbers []uint32) error {
	program := []unix.SockFilter{{Code: bpfLoad, K: 0}} // the number of the call
	for _, n := range numbers {
		program = append(program,
			unix.SockFilter{Code: bpfEqual, K: n, Jf: 1},
			unix.SockFilter{Code: bpfReturn, K: unix.SECCOMP_RET_ERRNO | uint32(errno)})
	}
	return filterCalls(append(program, unix.SockFilter{Code: bpfReturn, K: unix.SECCOMP_RET_ALLOW}))
}

// playDenied denies itself a call, by name and error number. It listens by network "tcp", dials that, and says by which
// transport, or the error of Listen.
func playDenied(p *self) error {
	errno, err := strconv.Atoi(p.args[1])
	if err != nil {
		return err
	}
	if numbers := deniable[p.args[0]]; numbers != nil {
		if err := denyCalls(syscall.Errno(errno), numbers); err != nil {
			return err
		}
	}
	defer os.Exit(0) // what is left behind cannot be listed
	ln, err := sdp.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		p.printf("%v", err)
		return nil
	}
	defer ln.Close()
	accepted := make(chan error, 1)
	go func() {
		c, err := ln.Accept()
		if err == nil {
			defer c.Close()
			err = (&flow{c: c}).accepted()
		}
		accepted <- err
	}()
	c, err := sdp.Dial("tcp", ln.Addr().String())
	if err != nil {
		p.printf("%v", err)
		return nil
	}
	defer c.Close()
	p.printf("by %s, %v", transportOf(c), errors.Join((&flow{c: c, n: 1000}).dialling(), <-accepted))
	p.stay()
	return nil
}

// Where the kernel denies a process what a fabric takes, network "tcp" is TCP, as with package net. That is logged once.
func TestNetworkTCPWhereACallIsDenied(t *testing.T) {
	for call := range deniable {
		for _, errno := range []syscall.Errno{unix.EPERM, unix.EACCES} {
			t.Run(fmt.Sprintf("%s, %v", call, errno), func(t *testing.T) {
				t.Setenv("SDP_FABRIC", "shm:"+fabrictest.Name(t))
				p := startPeer(t, "denied", []string{call, strconv.Itoa(int(errno))})
				require.Equal(t, "by tcp, <nil>", p.readLine())
				p.in.Close()
				p.wait()
				require.Equal(t, 0, p.cmd.ProcessState.ExitCode(), p.stderr.String())
				require.Equal(t, 1, strings.Count(p.stderr.String(), "\n"), p.stderr.String())
				require.Contains(t, p.stderr.String(), `network "tcp" uses TCP: this system has no fabrics`)
				require.Contains(t, p.stderr.String(), errno.Error())
			})
		}
	}
}

// A fabric that is refused stays an error, whatever else is denied.
func TestWhatIsRefusedIsNotTCP(t *testing.T) {
	open := filepath.Join(shortDir(t), "open")
	require.NoError(t, os.Mkdir(open, 0o700))
	require.NoError(t, os.Chmod(open, 0o755))
	refusals := map[string]string{
		"mode":     "shm:" + open,
		"missing":  "shm:" + open + "-missing",
		"nonsense": "nonsense:",
		"a file":   "shm:" + filepath.Join(open, "file"),
	}
	require.NoError(t, os.WriteFile(filepath.Join(open, "file"), nil, 0o600))
	if os.Geteuid() == 0 {
		other := filepath.Join(shortDir(t), "other")
		require.NoError(t, os.Mkdir(other, 0o700))
		require.NoError(t, os.Chown(other, userA, userA))
		refusals["another owner"] = "shm:" + other
	}
	calls := []string{"nothing"}
	for call := range deniable {
		calls = append(calls, call)
	}
	slices.Sort(calls)
	for name, fabric := range refusals {
		for _, call := range calls {
			t.Run(name+", "+call, func(t *testing.T) {
				t.Setenv("SDP_FABRIC", fabric)
				p := startPeer(t, "denied", []string{call, strconv.Itoa(int(unix.EPERM))})
				require.Contains(t, p.readLine(), "listen tcp")
				p.end()
			})
		}
	}
}
