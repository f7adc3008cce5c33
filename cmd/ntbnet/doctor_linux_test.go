package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/doctor"
	"github.com/ntbnet/ntbnet/internal/fabric"
	"github.com/ntbnet/ntbnet/internal/hello"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/internal/status"
	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/ntbnet/ntbnet/sdp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// diagnose runs the doctor, and returns its report and its exit status.
func diagnose(t *testing.T, name string) (r doctor.Report, status int) {
	t.Helper()
	p := newProgram([]string{"SDP_FABRIC=" + name}, "doctor", "--json")
	status = p.run()
	dec := json.NewDecoder(&p.stdout)
	dec.DisallowUnknownFields()
	require.NoError(t, dec.Decode(&r), p.stderr.String())
	require.Equal(t, status == 0, r.Works)
	if status != 0 {
		assertOneLine(t, p.stderr.String(), "does not work by SDP in fabric "+name)
	}
	for _, c := range r.Checks {
		assert.NotEmpty(t, c.Found, c.Name)
		assert.Equal(t, c.Status != doctor.OK, c.Remedy != "", "%s: %s", c.Name, c.Remedy)
	}
	return r, status
}

// check returns the first check of that name that is not ok, or the last one that is.
func check(t *testing.T, r doctor.Report, name string) (found doctor.Check) {
	t.Helper()
	for _, c := range r.Checks {
		if c.Name == name {
			if found = c; c.Status != doctor.OK {
				break
			}
		}
	}
	require.Equal(t, name, found.Name, "there is no such check in %v", r.Checks)
	return found
}

func TestDoctorOfAFabricThatWorks(t *testing.T) {
	name := "shm:" + fabrictest.Name(t)
	r, status := diagnose(t, name)
	require.Zero(t, status, r.Checks)
	var names []string
	for _, c := range r.Checks {
		names = append(names, c.Name)
		assert.NotEqual(t, doctor.Error, c.Status, c)
	}
	assert.Equal(t, []string{"fabric", "user", "namespaces", "limits", "memory files", "membarrier", "sock_diag", "quota", "processors",
		"directory", "processes", "connection"}, names)
	require.Len(t, r.Hosts, 1)
	assert.Equal(t, name, r.Hosts[0].Fabric)
	assert.Contains(t, check(t, r, "directory").Found, r.Hosts[0].Directory+", mode 0700, owner ")
	assert.Contains(t, check(t, r, "user").Found, fmt.Sprintf("uid %d (", os.Geteuid()))

	p := newProgram([]string{"SDP_FABRIC=" + name}, "doctor")
	require.Zero(t, p.run(), p.stderr.String())
	text := p.stdout.String()
	assert.Regexp(t, `(?m)^ok +fabric +`+regexp.QuoteMeta(name)+`, by SDP_FABRIC: fabric `+regexp.QuoteMeta(name)+` of user .+$`, text)
	assert.Regexp(t, `(?m)^ok +connection +a listener on a free port`, text)
	assert.True(t, strings.HasSuffix(text, "\nA dial and a listen work by SDP.\n"), text)
	assert.Empty(t, p.stderr.String())
}

// What the doctor says makes the directory right.
func TestDoctorSaysWhatMakesADirectoryRight(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o755))
	r, status := diagnose(t, "shm:"+dir)
	require.Equal(t, statusFailed, status)
	c := check(t, r, "directory")
	assert.Equal(t, doctor.Error, c.Status)
	assert.Contains(t, c.Found, dir+", mode 0755, owner ")
	_, err := sdp.Open("shm:" + dir)
	require.Error(t, err)
	assert.Contains(t, err.Error(), c.Remedy, "the program's error has the same words")
	assert.Contains(t, c.Remedy, " && chmod 700 "+dir+";")
	assert.Equal(t, doctor.Error, check(t, r, "connection").Status)

	require.NoError(t, os.Chmod(dir, 0o700)) // it is ours already
	r, status = diagnose(t, "shm:"+dir)
	require.Zero(t, status, r.Checks)
}

func TestDoctorOfAFabricThatIsNoneOrNotThere(t *testing.T) {
	r, status := diagnose(t, "shop")
	require.Equal(t, statusFailed, status)
	assert.Contains(t, check(t, r, "fabric").Remedy, "want shm:NAME")

	dir := filepath.Join(t.TempDir(), "none")
	r, status = diagnose(t, "shm:"+dir)
	require.Equal(t, statusFailed, status)
	assert.Equal(t, dir+", which is not there", check(t, r, "directory").Found)
	assert.Contains(t, check(t, r, "directory").Remedy, "mkdir -m 700 "+dir)

	r, status = diagnose(t, "mem:x")
	require.Zero(t, status, r.Checks)
}

// The kernel ends a process that makes a file larger than its limit.
func TestDoctorOfALimitThatForbidsMemory(t *testing.T) {
	p := newProgram([]string{"SDP_FABRIC=shm:" + fabrictest.Name(t)})
	p.Args = []string{"sh", "-c", `ulimit -f 100000; exec "$0" doctor --json`, p.Path}
	p.Path = "/bin/sh"
	require.Equal(t, statusFailed, p.run(), p.stderr.String())
	var r doctor.Report
	require.NoError(t, json.Unmarshal(p.stdout.Bytes(), &r))
	c := check(t, r, "limits")
	assert.Equal(t, doctor.Error, c.Status)
	assert.Contains(t, c.Remedy, "ulimit -f unlimited")
}

// A dial that fails, the doctor and ls say the same of a process that is stopped.
func TestAProcessThatIsStoppedIsNamed(t *testing.T) {
	name := "shm:" + fabrictest.Name(t)
	f, err := sdp.Open(name)
	require.NoError(t, err)
	defer f.Close()
	srv := server(t, name)
	dialled := func(within time.Duration) error {
		c, err := (&sdp.Dialer{Fabric: f, Timeout: within}).Dial("sdp", "localhost:7007")
		if err == nil {
			c.Close()
		}
		return err
	}
	eventually(t, "the server listens", func() bool { return dialled(time.Minute) == nil })
	require.NoError(t, srv.Process.Signal(syscall.SIGSTOP))
	defer srv.Process.Signal(syscall.SIGCONT)
	eventually(t, "it is stopped", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", srv.Process.Pid))
		return err == nil && strings.Contains(string(stat), ") T ")
	})
	says := fmt.Sprintf("pid %d is stopped: kill -CONT %[1]d, or end it", srv.Process.Pid)
	eventually(t, "a dial says it, which looks for 10 ms at most", func() bool {
		err := dialled(100 * time.Millisecond)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.True(t, err.(net.Error).Timeout())
		return strings.Contains(err.Error(), says)
	})
	r, _ := diagnose(t, name)
	assert.Contains(t, check(t, r, "processes").Remedy, says)
	p := lsJSON(t, "--fabric", name).Fabrics[0].Processes[1]
	assert.Contains(t, p.Error, says)
	assert.NotContains(t, p.Error, "/proc/self/fd")
}

// Who names another fabric than the server does learns where that is.
func TestADialToAnotherFabricSaysWhereProcessesAre(t *testing.T) {
	elsewhere, here := "shm:"+fabrictest.Name(t), "shm:"+fabrictest.Name(t)+"b"
	srv := server(t, elsewhere)
	eventually(t, "the server is in its fabric", func() bool {
		p := newProgram(nil, "ls", "--fabric", elsewhere)
		return p.run() == 0 && strings.Contains(p.stdout.String(), fmt.Sprint(srv.Process.Pid))
	})
	says := fmt.Sprintf("pid %d in %s", srv.Process.Pid, elsewhere)
	f, err := sdp.Open(here)
	require.NoError(t, err)
	defer spec.Remove(strings.TrimPrefix(here, "shm:"))
	defer f.Close()
	eventually(t, "a dial says it, which looks once a second, for 10 ms at most", func() bool {
		_, err = f.Dial("sdp", "localhost:7007")
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		return strings.Contains(err.Error(), says)
	})
	r, _ := diagnose(t, here)
	assert.Contains(t, check(t, r, "processes").Found, says)
}

// A process whose messages are of another version is met by its status, which says the version before anybody dials.
func TestDoctorMeetsAProcessOfAnotherVersion(t *testing.T) {
	name := "shm:" + fabrictest.Name(t)
	for version, says := range map[int]string{
		hello.Version + 1: "update the side with the lower one", hello.Version - 1: "update the side with the lower one", hello.Version: "", 0: "",
	} {
		place, err := spec.Parse(name)
		require.NoError(t, err)
		f, err := fabric.Open(place, func(f *fabric.Fabric) {
			f.Describe(func(bool) []status.Connection { return nil }, func(p *status.Process) { p.Messages = version })
		})
		require.NoError(t, err)
		r, works := diagnose(t, name)
		assert.Zero(t, works, r.Checks)
		assert.Contains(t, check(t, r, "processes").Remedy, says, "version %d", version)
		assert.Equal(t, says != "", check(t, r, "processes").Status == doctor.Warning, "version %d", version)
		f.Close()
	}
}

// asUser lets a program or a server run as another user.
func asUser(t *testing.T, cmd *exec.Cmd, uid uint32) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be another user")
	}
	exe, err := os.Open(cmd.Path) // whose directory may be closed to that user
	require.NoError(t, err)
	t.Cleanup(func() { exe.Close() })
	cmd.Path, cmd.ExtraFiles = "/proc/self/fd/3", []*os.File{exe}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid, NoSetGroups: true}}
	t.Cleanup(func() { os.RemoveAll(fmt.Sprintf("/tmp/ntbnet-%d", uid)) })
}

// Processes of other users have a row with as much as this user may know: directory, and the directory's owner.
func TestDoctorSaysWhereOtherUsersAre(t *testing.T) {
	const uid = 12346
	theirs := exec.Command(os.Args[0])
	asUser(t, theirs, uid)
	theirs.Env = append(os.Environ(), asServer+"=shm:theirs", "GORACE=atexit_sleep_ms=0")
	stdin, err := theirs.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, theirs.Start())
	defer func() { stdin.Close(); _ = theirs.Wait() }()
	here := "shm:" + fabrictest.Name(t)
	eventually(t, "root is told pid, directory and user", func() bool {
		r, _ := diagnose(t, here)
		return strings.Contains(check(t, r, "processes").Found, fmt.Sprintf("pid %d in /tmp/ntbnet-%d/theirs of uid %[2]d", theirs.Process.Pid, uid))
	})

	srv := server(t, here)
	eventually(t, "the server is in its fabric", func() bool {
		p := newProgram(nil, "ls", "--fabric", here)
		return p.run() == 0 && strings.Contains(p.stdout.String(), fmt.Sprint(srv.Process.Pid))
	})
	p := newProgram([]string{"SDP_FABRIC=shm:other"}, "doctor", "--json")
	asUser(t, p.Cmd, uid)
	require.Zero(t, p.run(), p.stderr.String())
	var r doctor.Report
	require.NoError(t, json.Unmarshal(p.stdout.Bytes(), &r))
	found := check(t, r, "processes").Found
	assert.Contains(t, found, fmt.Sprintf("pid %d in shm:theirs,", theirs.Process.Pid))
	assert.Regexp(t, `, \d+ that this user may not look at, perhaps in .*/tmp/ntbnet-0 of root \(uid 0\)`, found)
}

// A process that is short of descriptors is told so, and the processes that it cannot ask are not.
func TestDoctorBlamesNoHealthyPeerForItsOwnLimit(t *testing.T) {
	name := "shm:" + fabrictest.Name(t)
	srv := server(t, name)
	eventually(t, "the server is in its fabric", func() bool {
		p := newProgram(nil, "ls", "--fabric", name)
		return p.run() == 0 && strings.Contains(p.stdout.String(), fmt.Sprint(srv.Process.Pid))
	})
	blamed := 0
	for files := 9; files < 16; files++ {
		p := newProgram([]string{"SDP_FABRIC=" + name})
		p.Args = []string{"sh", "-c", fmt.Sprintf(`ulimit -n %d; exec "$0" doctor --json`, files), p.Path}
		p.Path = "/bin/sh"
		p.run()
		var r doctor.Report
		if json.Unmarshal(p.stdout.Bytes(), &r) != nil {
			continue // the program itself did not begin
		}
		for _, c := range r.Checks {
			if c.Status != doctor.OK && c.Name == "processes" {
				blamed++
				assert.Contains(t, c.Remedy, "ulimit -n 4096", "%d files: %v", files, c)
				assert.NotContains(t, c.Found, "does not answer")
			}
		}
	}
	assert.NotZero(t, blamed, "no limit was low enough")
	require.NoError(t, srv.Process.Kill())
}

// A directory above one that is closed to this user is a matter of permission.
func TestDoctorOfADirectoryBehindAClosedOne(t *testing.T) {
	closed := t.TempDir()
	require.NoError(t, os.Chmod(closed, 0o700))
	p := newProgram([]string{"SDP_FABRIC=shm:" + closed + "/in"}, "doctor", "--json")
	asUser(t, p.Cmd, 12345)
	require.Equal(t, statusFailed, p.run(), p.stderr.String())
	var r doctor.Report
	require.NoError(t, json.Unmarshal(p.stdout.Bytes(), &r))
	c := check(t, r, "directory")
	assert.Contains(t, c.Found, "permission denied")
	assert.Contains(t, c.Remedy, "gives uid 12345 no permission: chmod a+x it")
}

func TestDoctorOfANode(t *testing.T) {
	name := "ring:" + fabrictest.Name(t)
	r, status := diagnose(t, name+"?node=1")
	require.Zero(t, status, r.Checks)
	assert.Equal(t, doctor.Warning, check(t, r, "links").Status)
	assert.Contains(t, check(t, r, "links").Found, "nobody owns the links of node 1")

	nodesUp(t, name, 1, 3)
	r, status = diagnose(t, name+"?node=1&nodes=3")
	require.Zero(t, status, "the owner is the program that is asked about")
	assert.Equal(t, doctor.OK, check(t, r, "links").Status)
	assert.Contains(t, check(t, r, "links").Found, "owns the links of node 1; a second one needs "+name+"?node=1")
	r, status = diagnose(t, name+"?node=1")
	require.Zero(t, status, r.Checks)
	assert.Equal(t, doctor.OK, check(t, r, "links").Status)
	r, status = diagnose(t, name+"?node=2&nodes=4")
	require.Equal(t, statusFailed, status, "the ring has another number of nodes")
	assert.Contains(t, check(t, r, "links").Remedy, "nodes=3")
	r, status = diagnose(t, name+"?node=2&nodes=3")
	require.Zero(t, status, r.Checks)
}

// The doctor says what the owner of the links knows of a link that does not come up.
func TestDoctorOfAFileThatIsMissing(t *testing.T) {
	name := "line:" + fabrictest.Name(t)
	file := filepath.Join(t.TempDir(), "memory")
	f, err := sdp.Open(name + "?node=1&nodes=2&right=file:" + file)
	require.NoError(t, err)
	defer f.Close()
	var c doctor.Check
	eventually(t, "the link was tried", func() bool {
		r, status := diagnose(t, name+"?node=1")
		require.Zero(t, status, r.Checks)
		c = check(t, r, "links")
		return c.Status == doctor.Warning
	})
	assert.Contains(t, c.Found, "no link to node2: node1: ntbivshmem: there is no memory (truncate -s 16M "+file)
}

// What a wire is to be made of and is not there, or does not fit, is an error.
func TestDoctorChecksTheEndsOfWires(t *testing.T) {
	name := "line:" + fabrictest.Name(t)
	dir := t.TempDir()
	sized := func(file string, bytes int64) string {
		path := filepath.Join(dir, file)
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		require.NoError(t, os.Truncate(path, bytes))
		return path
	}
	for end, want := range map[string]string{
		"file:" + filepath.Join(dir, "none"):              "there is no memory (truncate -s 16M ",
		"file:" + sized("small", 4096):                    "has 4096 bytes for 2 places",
		"file:" + sized("tight", 64<<10):                  "windows of 28672 bytes, want at least ",
		"file:" + sized("good", 16<<20):                   "",
		"file:" + dir:                                     "is a directory",
		"ivshmem:" + filepath.Join(dir, "none"):           "no server (ntb-ivshmem-server starts one)",
		"ivshmem:" + dir + "/" + strings.Repeat("a", 110): "a Unix socket takes at most 107",
		"ivshmem:ffff:ff:1f.7":                            "there is no PCI function ffff:ff:1f.7",
		"ivshmem:ffff:ff:1f.7,poll":                       "there is no PCI function ffff:ff:1f.7",
	} {
		r, status := diagnose(t, name+"?node=1&nodes=2&right="+end)
		if want == "" {
			assert.Zero(t, status, "%s: %v", end, r.Checks)
			continue
		}
		assert.Equal(t, statusFailed, status, end)
		c := check(t, r, "links")
		assert.Equal(t, doctor.Error, c.Status, end)
		assert.Contains(t, c.Found, "the end right cannot be used: ", end)
		assert.Contains(t, c.Found, want, end)
	}
}
