//go:build unix

package launch

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"io/fs"
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

// server is a launcher for n PEs, with keys and values, and a barrier.
type server struct {
	mu   sync.Mutex
	kvs  map[string]string
	in   int           // PEs in the barrier
	out  chan struct{} // closed when all are in
	n    int
	last []string // requests, in order
}

func newServer(n int) *server {
	return &server{kvs: map[string]string{}, out: make(chan struct{}), n: n}
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
	switch m.get("cmd") {
	case "init":
		return "rc=0 pmi_version=1 pmi_subversion=1 cmd=response_to_init"
	case "get_maxes":
		return "cmd=maxes vallen_max=16 keylen_max=8 kvsname_max=256"
	case "get_my_kvsname":
		return "cmd=my_kvsname kvsname=kvs_1_0"
	case "put":
		s.kvs[m.get("key")] = m.get("value")
		return "cmd=put_result rc=0 msg=success"
	case "get":
		if v, ok := s.kvs[m.get("key")]; ok {
			return "cmd=get_result rc=0 msg=success value=" + v
		}
		return "cmd=get_result rc=-1 msg=not_found value=unknown"
	case "barrier_in":
		out := s.out
		if s.in++; s.in == s.n {
			s.in, s.out = 0, make(chan struct{})
			close(out)
		}
		s.mu.Unlock()
		<-out
		s.mu.Lock()
		return "cmd=barrier_out"
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

func TestPEsExchangeKeysThroughTheLauncher(t *testing.T) {
	leak.Check(t)
	const n = 3
	s := newServer(n)
	var wg sync.WaitGroup
	for pe := range n {
		vars := connect(t, pe, n, s.answer)
		wg.Go(func() {
			j, err := Find(vars)
			if !assert.NoError(t, err) {
				return
			}
			assert.Equal(t, Job{PE: pe, N: n, Name: hashed("pmi", "kvs_1_0"), From: "PMI", pmi: j.pmi}, *j)
			assert.True(t, j.HasKVS())
			assert.NoError(t, j.Put("k"+strconv.Itoa(pe), strconv.Itoa(10*pe)))
			assert.NoError(t, j.Barrier(t.Context()))
			for other := range n {
				v, err := j.Get("k" + strconv.Itoa(other))
				assert.NoError(t, err)
				assert.Equal(t, strconv.Itoa(10*other), v)
			}
			_, err = j.Get("none")
			assert.ErrorIs(t, err, fs.ErrNotExist)
			assert.NoError(t, j.Close())
			assert.NoError(t, j.Close())
			assert.ErrorIs(t, j.Put("k", "v"), net.ErrClosed)
		})
	}
	wg.Wait()
	assert.Contains(t, s.requests(), "cmd=finalize")
}

func TestKeysAndValuesAreChecked(t *testing.T) {
	leak.Check(t)
	j, err := Find(connect(t, 0, 1, newServer(1).answer))
	require.NoError(t, err)
	defer j.Close()
	for _, c := range []struct{ key, value, want string }{
		{"", "v", "an empty key"},
		{"k", "", "an empty value"},
		{"123456789", "v", "a key of 9 bytes: the launcher takes 8"},
		{"k", "12345678901234567", "a value of 17 bytes: the launcher takes 16"},
		{"k k", "v", "without space"},
		{"k", "v\ncmd=abort", "without space"},
		{"k", "a=b", "'='"},
		{"k", "ä", "printable ASCII"},
	} {
		assert.ErrorContains(t, j.Put(c.key, c.value), c.want)
	}
	_, err = j.Get("a b")
	assert.ErrorContains(t, err, "without space")
	assert.NoError(t, j.Put("k", "v"), "none of these ends the conversation")
}

func TestWhatTheLauncherSaysIsChecked(t *testing.T) {
	leak.Check(t)
	for _, c := range []struct{ request, answer, want string }{
		{"init", "cmd=response_to_init rc=-1 msg=no", "rc=-1 no"},
		{"init", "cmd=maxes", "not cmd=response_to_init"},
		{"init", "hello", "not NAME=VALUE"},
		{"get_maxes", "cmd=maxes", `kvsname_max=""`},
		{"get_maxes", "cmd=maxes kvsname_max=256 keylen_max=0 vallen_max=1024", `keylen_max="0"`},
		{"get_maxes", "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=9999999999999999999999", "vallen_max"},
		{"get_my_kvsname", "cmd=my_kvsname", "empty kvsname"},
		{"get_my_kvsname", "cmd=my_kvsname kvsname=" + strings.Repeat("k", 257), "a kvsname of 257 bytes"},
		{"get_my_kvsname", "cmd=my_kvsname kvsname=" + strings.Repeat("k", maxLine), "longer than"},
	} {
		s := newServer(1)
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
	s := newServer(1)
	var hangUp func()
	vars := connect(t, 0, 1, func(line string) string {
		if strings.Contains(line, "cmd=put") {
			hangUp()
		}
		return s.answer(line)
	})
	fd, err := strconv.Atoi(vars("PMI_FD"))
	require.NoError(t, err)
	j, err := Find(vars)
	require.NoError(t, err)
	hangUp = func() { unix.Shutdown(fd, unix.SHUT_RDWR) }
	assert.ErrorIs(t, j.Put("k", "v"), io.ErrUnexpectedEOF)
	assert.ErrorIs(t, j.Barrier(t.Context()), io.ErrUnexpectedEOF)
	assert.NoError(t, j.Close())
}

func TestBarrierEndsWithItsContext(t *testing.T) {
	leak.Check(t)
	s := newServer(2) // the other PE never comes
	ctx, cancel := context.WithCancel(t.Context())
	j, err := Find(connect(t, 0, 2, func(line string) string {
		if line == "cmd=barrier_in" {
			cancel()
			return ""
		}
		return s.answer(line)
	}))
	require.NoError(t, err)
	assert.ErrorIs(t, j.Barrier(ctx), context.Canceled)
	assert.ErrorIs(t, j.Put("k", "v"), context.Canceled, "the barrier's answer may still come")
	assert.NoError(t, j.Abort(3, ""))
	assert.NoError(t, j.Close())
	assert.Eventually(t, func() bool { return strings.HasSuffix(s.requests(), "cmd=abort exitcode=3") }, eventually, tick)
}

// srun names the key-value space for the step. Other launchers run within a job of Slurm as well.
func TestSlurmIsKnownByItsKeyValueSpace(t *testing.T) {
	leak.Check(t)
	for kvs, want := range map[string]bool{"7.1": true, "kvs_1_0": false} {
		t.Run(kvs, func(t *testing.T) {
			s := newServer(1)
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
	vars := connect(t, 1, 2, newServer(2).answer)
	first, err := Find(vars)
	require.NoError(t, err)
	require.NoError(t, first.Close())
	second, err := Find(vars)
	require.NoError(t, err)
	assert.False(t, second.HasKVS())
	assert.Equal(t, Job{PE: 1, N: 2, Name: first.Name, From: "PMI"}, *second)
}

func TestTheConnectionIsNotInherited(t *testing.T) {
	leak.Check(t)
	vars := connect(t, 0, 1, newServer(1).answer)
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
