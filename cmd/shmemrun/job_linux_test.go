package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestPEsEndWhenShmemrunIsKilled(t *testing.T) {
	cmd := start(t, "-n 3", "signals")
	lines := listen(t, cmd, 3)
	require.NoError(t, cmd.Process.Kill())
	assert.False(t, lines.Scan(), "the PEs, which alone hold the pipe, end and say nothing: %q", lines.Text())
	assert.NoError(t, lines.Err())
	cmd.Wait()
}

// terminal returns both ends of a new terminal.
func terminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	t.Cleanup(func() { master.Close() })
	require.NoError(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { slave.Close() })
	return master, slave
}

func TestControlCReachesEachPEOnce(t *testing.T) {
	master, slave := terminal(t)
	cmd := start(t, "-n 2", "signals")
	cmd.Stdin, cmd.SysProcAttr = slave, &syscall.SysProcAttr{Setsid: true, Setctty: true}
	lines := listen(t, cmd, 2)
	_, err := master.WriteString("\x03")
	require.NoError(t, err)
	expect(t, lines, 2, "interrupt")
	require.NoError(t, cmd.Process.Signal(syscall.SIGUSR1))
	expect(t, lines, 2, "user defined signal 1") // there was no second interrupt before it
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	expect(t, lines, 2, "terminated")
	cmd.Wait()
}

func TestTheJobStopsAndGoesOn(t *testing.T) {
	cmd := start(t, "-n 2", "signals")
	lines := listen(t, cmd, 2)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTSTP))
	expect(t, lines, 2, "stopped")
	assert.Eventually(t, func() bool {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
		return err == nil && strings.Contains(string(b), ") T ")
	}, 60*time.Second, 10*time.Millisecond, "shmemrun stops too, or its shell would wait")
	require.NoError(t, cmd.Process.Signal(syscall.SIGUSR1))
	require.NoError(t, cmd.Process.Signal(syscall.SIGCONT))
	expect(t, lines, 2, "user defined signal 1")
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	expect(t, lines, 2, "terminated")
	assert.NoError(t, cmd.Wait())
}

func TestPE0ReadsFromTheTerminal(t *testing.T) {
	master, slave := terminal(t)
	cmd := start(t, "-n 2", "cat")
	cmd.Stdin, cmd.SysProcAttr = slave, &syscall.SysProcAttr{Setsid: true, Setctty: true}
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = master.WriteString("typed\n\x04")
	require.NoError(t, err)
	b, err := io.ReadAll(bufio.NewReader(out))
	require.NoError(t, err)
	assert.Contains(t, string(b), "0 typed\n <nil>\n")
	assert.Contains(t, string(b), "1  <nil>\n")
	assert.NoError(t, cmd.Wait())
}

func TestPEsAreBoundToCores(t *testing.T) {
	n := len(cores())
	status, out, errs := result(t, command(t, "-n", fmt.Sprint(n+1), "--bind-to", "core", "sh", "-c", "echo $SHMEM_PE $(grep Cpus_allowed: /proc/self/status)"))
	require.Equal(t, 0, status, errs)
	sets := map[string]string{}
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		require.Len(t, f, 3)
		sets[f[0]] = f[2]
	}
	assert.Equal(t, sets["0"], sets[fmt.Sprint(n)], "the last PE has the first core again")
	delete(sets, "0")
	seen := map[string]bool{}
	for _, s := range sets {
		assert.False(t, seen[s], sets)
		seen[s] = true
	}
}

func TestNothingIsLeftOfTheJobsFabric(t *testing.T) {
	for _, flags := range []string{"-n 2", "--hosts 2"} {
		status, out, errs := result(t, start(t, flags, "attach"))
		require.Equal(t, 0, status, errs)
		dirs := strings.Fields(out)
		require.Len(t, dirs, 2)
		for _, dir := range dirs {
			_, err := os.Stat(dir)
			assert.ErrorIs(t, err, os.ErrNotExist)
		}
	}
}
