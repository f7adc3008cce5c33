package hostdir

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/ntbnet/ntbnet/internal/shm/unixsock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAUserThatStandsForOthersIsRefused(t *testing.T) {
	const (
		full    = "         0          0 4294967295\n"
		none    = ""
		missing = "missing"
	)
	for _, tt := range []struct {
		name          string
		uids, unknown string // contents of uid_map and overflowuid, or missing
		euid          int
		text          string // part of the error; "" for none
	}{
		{"nobody of the host", full, "65534\n", 65534, ""},
		{"a user of the host", full, "65534\n", 1000, ""},
		{"nobody, mapped", "0 100000 65536\n", "65534\n", 65534, "in this user namespace"},
		{"root, mapped", "0 100000 65536\n", "65534\n", 0, ""},
		{"nobody, nothing is mapped", none, "65534\n", 65534, "in this user namespace"},
		{"all but one user is mapped", "0 0 4294967294\n", "65534\n", 65534, "in this user namespace"},
		{"all are mapped, to others", "0 1 4294967295\n", "65534\n", 65534, "in this user namespace"},
		{"two ranges", "0 0 1000\n1000 1000 4294966295\n", "65534\n", 65534, "in this user namespace"},
		{"another number for those without", "0 1000 1\n", "99\n", 99, "in this user namespace"},
		{"nobody, where others look like 99", "65534 1000 1\n", "99\n", 65534, ""},
		{"a kernel without user namespaces", missing, "65534\n", 65534, ""},
		{"the number is missing", "0 1000 1\n", missing, 1000, "mount it"},
		{"the number is none", "0 1000 1\n", "x\n", 1000, "mount it"},
		{"the number is not needed", full, missing, 65534, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			proc := t.TempDir()
			write := func(path, text string) {
				path = filepath.Join(proc, path)
				require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
				if text != missing {
					require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
				}
			}
			write("self/stat", "")
			write("self/uid_map", tt.uids)
			write("sys/kernel/overflowuid", tt.unknown)
			err := checkUserAt(proc, tt.euid)
			if tt.text == "" {
				assert.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, syscall.EPERM)
			assert.ErrorContains(t, err, tt.text)
			assert.ErrorContains(t, err, fmt.Sprintf("uid %d", tt.euid))
		})
	}
	err := checkUserAt(t.TempDir(), 1000)
	require.ErrorIs(t, err, syscall.EPERM, "without /proc")
	assert.ErrorContains(t, err, "mount it")
}

func TestNumbersOfNobodyAreNobodys(t *testing.T) {
	proc := t.TempDir()
	for name, text := range map[string]string{
		"self/uid_map": "0 1000 2\n", "sys/kernel/overflowuid": "65534\n",
		"self/gid_map": "0 1000 2\n", "sys/kernel/overflowgid": "65533\n",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(proc, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(proc, name), []byte(text), 0o600))
	}
	p := Peer{PID: 7, UID: 65534, GID: 65533, Groups: []int{1, 65533, 65534}}
	require.NoError(t, forgetStrangers(&p, proc))
	require.Equal(t, Peer{PID: 7, UID: -1, GID: -1, Groups: []int{1, -1, 65534}}, p)
	// Where all have numbers, these are numbers like others.
	require.NoError(t, os.WriteFile(filepath.Join(proc, "self/uid_map"), []byte("0 0 4294967295\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(proc, "self/gid_map"), []byte("0 0 4294967295\n"), 0o600))
	p = Peer{UID: 65534, GID: 65533}
	require.NoError(t, forgetStrangers(&p, proc))
	require.Equal(t, Peer{UID: 65534, GID: 65533}, p)
	require.Error(t, forgetStrangers(&p, t.TempDir()), "without /proc")
}

// playStandIn is a process whose uid stands for other users too. It listens at an
// abstract socket and accepts as members of a fabric do. Then it opens a fabric and
// dials.
func playStandIn(name string) error {
	l, err := unixsock.ListenAs(context.Background(), name, unixsock.Rights{UID: -1, GID: -1})
	if err != nil {
		return err
	}
	defer l.Close()
	fmt.Println("uid", os.Geteuid())
	// Either result ends it: it accepts a stranger as its own user, or it accepts
	// nobody.
	if c, err := (&Dir{}).Accept(l); err == nil {
		fmt.Fprint(c, "secret")
		c.Close()
		return errors.New("it has accepted another user")
	} else {
		fmt.Println("accept:", oneLine(err))
	}
	base, err := os.MkdirTemp("", "fabric-test-")
	if err != nil {
		return err
	}
	_, err = Open(In(filepath.Join(base, "base"), "default"), true)
	os.RemoveAll(base) // before the test, which has read the last line, kills this process
	fmt.Println("open:", oneLine(err))
	d := &Dir{Claims: &Claims{process: 1}}
	_, err = d.Listen(1)
	fmt.Println("listen:", oneLine(err))
	_, err = d.Connect(context.Background(), 2, nil)
	fmt.Println("connect:", oneLine(err))
	return nil
}

func oneLine(err error) string { return strings.ReplaceAll(fmt.Sprint(err), "\n", "; ") }

// inNamespace starts exe in a role, as the overflow uid of a user namespace of its
// own. It skips the test where the kernel does not allow the namespace.
func inNamespace(t *testing.T, exe, role, arg string, attr *syscall.SysProcAttr) *process {
	t.Helper()
	p, err := tryStart(t, exe, role, arg, attr)
	if err != nil {
		fmt.Printf("WARNING: %s is skipped: no user namespace: %v\n", t.Name(), err)
		t.Skip("no user namespace: ", err)
	}
	return p
}

// TestAProcessThatOthersLookLikeAcceptsNobody tries an attack. A process runs as
// the overflow uid of a user namespace, and a user that the namespace does not know
// connects to it.
func TestAProcessThatOthersLookLikeAcceptsNobody(t *testing.T) {
	exe, stranger := asNobody(t)
	uid := 20_000 + os.Getpid()%40_000 // a uid that no user here has
	one := []syscall.SysProcIDMap{{ContainerID: nobody, HostID: uid, Size: 1}}
	for _, tt := range []struct {
		name string
		attr syscall.SysProcAttr
	}{
		{"nothing is mapped", syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}},
		{"one user is mapped", syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER,
			UidMappings: one, GidMappings: one,
			Credential: &syscall.Credential{Uid: nobody, Gid: nobody, NoSetGroups: true},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			name := "@fabric-test-" + strconv.Itoa(os.Getpid()) + "-" + strconv.Itoa(len(tt.name))
			p := inNamespace(t, exe, "stand-in", name, &tt.attr)
			require.Equal(t, "uid 65534", p.line(t))
			require.Equal(t, `got "", <nil>`, start(t, exe, "dial", name, stranger).line(t),
				"another user has reached it")
			for _, call := range []string{"accept: ", "open: ", "listen: ", "connect: "} {
				said := p.line(t)
				assert.Contains(t, said, call)
				assert.Contains(t, said, "in this user namespace")
				assert.Contains(t, said, syscall.EPERM.Error())
			}
		})
	}
}
