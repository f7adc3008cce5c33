//go:build linux

package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// cage is what a container's runtime or a service manager does to a process of root before it
// runs a program. It is all done by role "cage", in the process that becomes the program.
type cage struct {
	UID    int
	Groups []uint32

	// Namespaces are flags of clone(2). Net is the file of a network namespace that there is
	// already. In a new one loopback is up.
	Namespaces uintptr
	Net        string

	// Root is an empty directory, or "". It becomes a root without /tmp, which nobody can
	// write. Volumes are the places there that can be written, and what directory is mounted
	// at each. Proc are options of its /proc.
	Root    string
	Volumes map[string]string
	Proc    string

	Denied  []uintptr     // numbers of system calls that fail
	Errno   syscall.Errno // with which they do
	Allowed []uintptr     // those that do not; all others fail with EPERM, unless it is empty

	Families []uint32 // address families of sockets; empty for all

	Group string // control group, or ""

	// The following are of the program, and set by option.
	Program string
	Args    []string
	Role    string
}

// cageStatus is the exit status of a process whose cage the kernel forbids.
const cageStatus = 77

// option runs a program in the cage.
func (k cage) option() func(*exec.Cmd) {
	return func(c *exec.Cmd) {
		k.Program, k.Args = c.Path, c.Args
		for _, v := range c.Environ() {
			if role, ok := strings.CutPrefix(v, peerVariable+"="); ok {
				k.Role = role
			}
		}
		b, err := json.Marshal(k)
		if err != nil {
			panic(err)
		}
		if c.Path, err = os.Executable(); err != nil {
			panic(err)
		}
		c.Args = []string{c.Path, string(b)}
		c.Env = append(c.Environ(), peerVariable+"=cage")
		c.SysProcAttr.Cloneflags |= k.Namespaces
	}
}

// try skips the test, with a warning, where the kernel forbids the cage.
func (k cage) try(t *testing.T) cage {
	t.Helper()
	trial := exec.Command(tool(t, "true"))
	trial.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	k.option()(trial)
	out, err := trial.CombinedOutput()
	// Other errors of clone(2): there are too many namespaces, or the kernel has no such ones.
	forbidden := errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EINVAL)
	if forbidden || trial.ProcessState.ExitCode() == cageStatus {
		fmt.Printf("WARNING: %s is skipped: %v: %s\n", t.Name(), err, strings.TrimSpace(string(out)))
		t.Skipf("%v: %s", err, out)
	}
	require.NoError(t, err, "%s", out)
	return k
}

// playCage makes the cage, and becomes the program.
func playCage(p *self) error {
	var k cage
	if err := json.Unmarshal([]byte(p.args[0]), &k); err != nil {
		return err
	}
	// What belongs to a thread, such as a filter, is kept by the thread that runs the program.
	runtime.LockOSThread()
	err := k.become()
	for _, forbids := range []error{fs.ErrPermission, syscall.ENOSYS, syscall.EROFS} {
		if errors.Is(err, forbids) {
			fmt.Fprintln(os.Stderr, "error:", err)
			os.Exit(cageStatus)
		}
	}
	return err
}

func (k *cage) become() error {
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"enter the control group", k.enterGroup},
		{"enter the network namespace", k.enterNet},
		{"make the root", k.makeRoot},
		{"become the user", k.becomeUser},
		{"filter the system calls", k.filter},
	} {
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	// The end of the tests is not that of this process any more, since it has become another
	// user.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0, 0, 0); err != nil {
		return err
	}
	os.Unsetenv(peerVariable)
	if k.Role != "" {
		os.Setenv(peerVariable, k.Role)
	}
	if err := syscall.Exec(k.Program, k.Args, os.Environ()); err != nil {
		return fmt.Errorf("%s as uid %d: %v", k.Program, os.Geteuid(), err) // which nobody forbids
	}
	return nil
}

func (k *cage) enterGroup() error {
	if k.Group == "" {
		return nil
	}
	return os.WriteFile(filepath.Join(k.Group, "cgroup.procs"), []byte("0"), 0o644)
}

func (k *cage) enterNet() error {
	if k.Net == "" {
		if k.Namespaces&syscall.CLONE_NEWNET != 0 {
			return loopbackUp()
		}
		return nil
	}
	f, err := os.Open(k.Net)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Setns(int(f.Fd()), unix.CLONE_NEWNET)
}

// makeRoot makes a root of the programs of this machine, /proc and the volumes.
func (k *cage) makeRoot() error {
	if k.Root == "" {
		return nil
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", k.Root, "tmpfs", 0, "mode=0755"); err != nil {
		return err
	}
	if err := k.fillRoot(); err != nil {
		return err
	}
	if err := unix.Mount("", k.Root, "", unix.MS_REMOUNT|unix.MS_RDONLY, "mode=0755"); err != nil {
		return err
	}
	if err := os.Chdir(k.Root); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return err
	}
	return os.Chdir("/")
}

// fillRoot mounts what is in the new root.
func (k *cage) fillRoot() error {
	for _, dir := range []string{"/usr", "/etc", "/bin", "/sbin", "/lib", "/lib64"} {
		link, err := os.Readlink(dir)
		if err == nil {
			err = os.Symlink(link, k.Root+dir)
		} else if _, missing := os.Stat(dir); missing != nil {
			continue
		} else {
			err = k.bind(dir, dir, unix.MS_RDONLY)
		}
		if err != nil {
			return err
		}
	}
	for at, dir := range k.Volumes {
		if err := k.bind(dir, at, 0); err != nil {
			return err
		}
	}
	if err := k.bind(filepath.Dir(k.Program), "/program", unix.MS_RDONLY); err != nil {
		return err
	}
	k.Program = filepath.Join("/program", filepath.Base(k.Program))
	if err := os.Mkdir(k.Root+"/proc", 0o555); err != nil {
		return err
	}
	if err := unix.Mount("proc", k.Root+"/proc", "proc", 0, k.Proc); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	return nil
}

// bind mounts a directory of the machine in the new root.
func (k *cage) bind(dir, at string, flags uintptr) error {
	to := k.Root + at
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	err := unix.Mount(dir, to, "", unix.MS_BIND, "")
	if err == nil && flags != 0 { // the kernel takes no flags when it binds
		err = unix.Mount("", to, "", unix.MS_BIND|unix.MS_REMOUNT|flags, "")
	}
	if err != nil {
		return fmt.Errorf("mount %s at %s: %w", dir, at, err)
	}
	return nil
}

func (k *cage) becomeUser() error {
	if k.UID == 0 {
		return nil
	}
	var groups []int
	for _, g := range k.Groups {
		groups = append(groups, int(g))
	}
	if err := syscall.Setgroups(groups); err != nil {
		return err
	}
	if err := syscall.Setgid(k.UID); err != nil {
		return err
	}
	return syscall.Setuid(k.UID)
}

func (k *cage) filter() error {
	if err := k.filterFamilies(); err != nil {
		return err
	}
	if len(k.Denied)+len(k.Allowed) == 0 {
		return nil
	}
	const (
		allow  = unix.SECCOMP_RET_ALLOW
		forbid = unix.SECCOMP_RET_ERRNO
	)
	program := []unix.SockFilter{{Code: bpfLoad, K: 0}} // the number of the call
	gives := func(calls []uintptr, what uint32) {
		for _, call := range calls {
			program = append(program, unix.SockFilter{Code: bpfEqual, K: uint32(call), Jf: 1}, unix.SockFilter{Code: bpfReturn, K: what})
		}
	}
	gives(k.Denied, forbid|uint32(k.Errno))
	gives(k.Allowed, allow)
	others := unix.SockFilter{Code: bpfReturn, K: allow}
	if len(k.Allowed) > 0 {
		others.K = forbid | uint32(syscall.EPERM)
	}
	program = append(program, others)
	if err := filterCalls(program); err != nil {
		return err
	}
	for _, call := range k.Denied {
		if _, _, errno := unix.RawSyscall(call, 0, 0, 0); errno != k.Errno {
			return fmt.Errorf("system call %d gives %v, want %v", call, errno, k.Errno)
		}
	}
	return nil
}

func (k *cage) filterFamilies() error {
	if len(k.Families) == 0 {
		return nil
	}
	program := []unix.SockFilter{
		{Code: bpfLoad, K: 0}, // the number of the call
		{Code: bpfEqual, K: unix.SYS_SOCKET, Jt: 1},
		{Code: bpfReturn, K: unix.SECCOMP_RET_ALLOW},
		{Code: bpfLoad, K: 16}, // its first argument, the lower half
	}
	for _, family := range k.Families {
		program = append(program,
			unix.SockFilter{Code: bpfEqual, K: family, Jf: 1},
			unix.SockFilter{Code: bpfReturn, K: unix.SECCOMP_RET_ALLOW})
	}
	program = append(program, unix.SockFilter{Code: bpfReturn, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EAFNOSUPPORT)})
	if err := filterCalls(program); err != nil {
		return err
	}
	if fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0); err != unix.EAFNOSUPPORT {
		return fmt.Errorf("a socket of another family is %d, %v", fd, err)
	}
	return nil
}

// Instructions of filters.
const (
	bpfLoad   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	bpfEqual  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	bpfReturn = unix.BPF_RET | unix.BPF_K
)

// filterCalls filters the system calls of this process.
func filterCalls(program []unix.SockFilter) error {
	// The filter must apply to new threads and to those that exist.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&filter)))
	if errno != 0 {
		return errno
	}
	return nil
}

// inGroup reports whether a process is in a control group.
func inGroup(t *testing.T, group string, pid int) bool {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(group, "cgroup.procs"))
	require.NoError(t, err)
	return slices.Contains(words(strings.ReplaceAll(string(b), "\n", " ")), fmt.Sprint(pid))
}
