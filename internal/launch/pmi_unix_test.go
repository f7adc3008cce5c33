//go:build unix

package launch

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// server is a launcher.
type server struct {
	mu   sync.Mutex
	last []string // requests, in order
}

// answer returns the line for a request, or "" for none.
func (s *server) answer(line string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = append(s.last, line)
	m, err := parse(line)
	if err != nil {
		return "cmd=error"
	}
	switch m["cmd"] {
	case "init":
		return "rc=0 pmi_version=1 pmi_subversion=1 cmd=response_to_init"
	case "get_my_kvsname":
		return "cmd=my_kvsname kvsname=kvs_1_0"
	case "finalize":
		return "cmd=finalize_ack"
	}
	return ""
}

func (s *server) requests() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.last, "\n")
}

// connect makes a socket pair, serves one end with answer, and returns the
// environment of a PE that has the other end.
func connect(t *testing.T, pe, n int, answer func(string) string) env {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	require.NoError(t, err)
	f := os.NewFile(uintptr(fds[1]), "launcher")
	conn, err := net.FileConn(f)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	done := make(chan struct{})
	go func() {
		defer close(done)
		in := bufio.NewScanner(conn)
		for in.Scan() {
			if a := answer(in.Text()); a != "" {
				io.WriteString(conn, a+"\n")
			}
		}
		conn.Close()
	}()
	t.Cleanup(func() {
		conn.Close()
		<-done
		spent.Lock()
		delete(spent.jobs, fds[0])
		spent.Unlock()
	})
	return variables(fmt.Sprintf("PMI_FD=%d PMI_RANK=%d PMI_SIZE=%d", fds[0], pe, n))
}

func TestPEsOfALauncherHaveOneName(t *testing.T) {
	leak.Check(t)
	const n = 3
	var s server
	for pe := range n {
		j, err := Find(connect(t, pe, n, s.answer))
		require.NoError(t, err)
		require.Equal(t, Job{PE: pe, N: n, Name: hashed("pmi", "kvs_1_0"), From: "PMI", pmi: j.pmi}, *j)
		require.NoError(t, j.Close())
		require.NoError(t, j.Close())
		require.Error(t, j.Abort(3, ""))
	}
	require.Equal(t, n, strings.Count(s.requests(), "cmd=finalize"))
}

func TestWhatTheLauncherSaysIsChecked(t *testing.T) {
	leak.Check(t)
	for _, c := range []struct{ request, answer, want string }{
		{"init", "cmd=response_to_init rc=-1 msg=no", "rc=-1 no"},
		{"init", "cmd=maxes", "not cmd=response_to_init"},
		{"init", "hello", "not NAME=VALUE"},
		{"get_my_kvsname", "cmd=my_kvsname", "no kvsname"},
		{"get_my_kvsname", "cmd=my_kvsname kvsname=" + strings.Repeat("k", maxLine), "longer than"},
	} {
		var s server
		vars := connect(t, 0, 1, func(line string) string {
			if strings.HasPrefix(line+" ", "cmd="+c.request+" ") {
				return c.answer
			}
			return s.answer(line)
		})
		j, err := Find(vars)
		assert.Nil(t, j)
		assert.ErrorContains(t, err, c.want)
		assert.ErrorContains(t, err, "PMI_FD=")
	}
}

func TestALauncherThatGoesAwayEndsTheConversation(t *testing.T) {
	leak.Check(t)
	var s server
	var hangUp func()
	vars := connect(t, 0, 1, func(line string) string {
		if line == "cmd=finalize" {
			hangUp()
		}
		return s.answer(line)
	})
	fd, err := strconv.Atoi(vars("PMI_FD"))
	require.NoError(t, err)
	j, err := Find(vars)
	require.NoError(t, err)
	hangUp = func() { unix.Shutdown(fd, unix.SHUT_RDWR) }
	assert.ErrorIs(t, j.Close(), io.ErrUnexpectedEOF)
}

func TestAbortIsTold(t *testing.T) {
	leak.Check(t)
	var s server
	j, err := Find(connect(t, 0, 2, s.answer))
	require.NoError(t, err)
	assert.NoError(t, j.Abort(3, ""))
	assert.Eventually(t, func() bool { return strings.HasSuffix(s.requests(), "cmd=abort exitcode=3") }, eventually, tick)
	assert.NoError(t, j.Close())
}

// srun names the key-value space for the step. Other launchers run within a job of Slurm as well.
func TestSlurmIsKnownByItsKeyValueSpace(t *testing.T) {
	leak.Check(t)
	for kvs, want := range map[string]bool{"7.1": true, "kvs_1_0": false} {
		t.Run(kvs, func(t *testing.T) {
			var s server
			pmi := connect(t, 0, 1, func(line string) string {
				if line == "cmd=get_my_kvsname" {
					return "cmd=my_kvsname kvsname=" + kvs
				}
				return s.answer(line)
			})
			slurm := variables("SLURM_JOB_ID=7 SLURM_STEP_ID=1")
			j, err := Find(func(name string) string { return pmi(name) + slurm(name) })
			require.NoError(t, err)
			assert.Equal(t, want, j.AbortKills())
			assert.NoError(t, j.Close())
		})
	}
}

// A program may open, close and open again.
func TestTheConnectionIsOpenedOnce(t *testing.T) {
	leak.Check(t)
	vars := connect(t, 1, 2, new(server).answer)
	first, err := Find(vars)
	require.NoError(t, err)
	require.NoError(t, first.Close())
	second, err := Find(vars)
	require.NoError(t, err)
	assert.Equal(t, Job{PE: 1, N: 2, Name: first.Name, From: "PMI"}, *second)
}

func TestTheConnectionIsNotInherited(t *testing.T) {
	leak.Check(t)
	vars := connect(t, 0, 1, new(server).answer)
	fd, err := strconv.Atoi(vars("PMI_FD"))
	require.NoError(t, err)
	j, err := Find(vars)
	require.NoError(t, err)
	defer j.Close()
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	require.NoError(t, err)
	assert.NotZero(t, flags&unix.FD_CLOEXEC)
}

func TestAFileThatIsNoSocketIsLeftAlone(t *testing.T) {
	f, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer f.Close()
	_, err = Find(variables(fmt.Sprintf("PMI_FD=%d PMI_RANK=0 PMI_SIZE=2", f.Fd())))
	assert.ErrorContains(t, err, "no socket")
	_, err = f.Stat()
	assert.NoError(t, err)
}
