package doctor

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ntbnet/ntbnet/internal/inetdiag"
	"github.com/ntbnet/ntbnet/internal/shm/memfd"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/internal/status"
)

const (
	defaultWindow = 1 << 30 // of a link, in bytes
	beside        = 1 << 30 // address space that a process takes besides windows
	fewFiles      = 1024
)

// system checks what the kernel allows. spec is nil if it is not known.
func (r *Report) system(spec *spec.Spec) {
	window := defaultWindow
	if spec != nil && spec.Window != 0 {
		window = spec.Window
	}
	r.namespaces("/proc/self/ns")
	r.limits(window)
	r.memory(window)
	r.barrier()
	r.lookUps()
	r.quota("/proc/self/cgroup", "/sys/fs/cgroup")
}

// namespaces reports in which namespaces this process is.
func (r *Report) namespaces(dir string) {
	const name = "namespaces"
	var found []string
	for _, kind := range []string{"net", "user", "pid"} {
		text, err := os.Readlink(filepath.Join(dir, kind))
		if err != nil {
			r.warn(name, remedy(err, "mount /proc"), "cannot be read: %v", err)
			return
		}
		found = append(found, text)
	}
	r.ok(name, "%s", strings.Join(found, ", "))
}

// foreign reports processes of other namespaces.
func (r *Report) foreign(hosts []*status.Directory) {
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return // which namespaces reports
	}
	for _, h := range hosts {
		for _, p := range h.Processes {
			if p.User == "" {
				continue
			}
			if p.PID == 0 {
				r.ok("processes", "process %d is of another pid namespace", p.Process)
				continue
			}
			other, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", p.PID))
			if err == nil && other != own {
				r.warn("processes", "use network sdp with it: network tcp reaches what net would reach there", "process %d (pid %d) is of another network namespace, %s", p.Process, p.PID, other)
			}
		}
	}
}

// limits checks the limits of this process that count: on files, address space, and sizes of
// files, of which memory files are some.
func (r *Report) limits(window int) {
	const name = "limits"
	get := func(resource int) unix.Rlimit {
		var l unix.Rlimit
		if unix.Getrlimit(resource, &l) != nil {
			l.Cur = unix.RLIM_INFINITY & (1<<64 - 1)
		}
		return l
	}
	files, space, size := get(unix.RLIMIT_NOFILE), get(unix.RLIMIT_AS), get(unix.RLIMIT_FSIZE)
	found := fmt.Sprintf("RLIMIT_NOFILE %s, RLIMIT_AS %s, RLIMIT_FSIZE %s; RLIMIT_MEMLOCK does not count, since no memory is locked",
		limit(files.Cur), limit(space.Cur), limit(size.Cur))
	switch {
	case size.Cur < uint64(window)+1<<20:
		r.fail(name, fmt.Sprintf("ulimit -f unlimited (LimitFSIZE=infinity), or a smaller window than %d, as in ?window=131072", window), "%s", found)
	case space.Cur < 2*uint64(window)+beside:
		r.warn(name, fmt.Sprintf("ulimit -v unlimited (LimitAS=infinity), or a smaller window than %d, as in ?window=131072: each link maps two", window), "%s", found)
	case files.Cur < fewFiles:
		r.warn(name, "ulimit -n 4096 (LimitNOFILE=4096): each link takes files", "%s", found)
	default:
		r.ok(name, "%s", found)
	}
}

func limit(n uint64) string {
	if n == unix.RLIM_INFINITY&(1<<64-1) {
		return "unlimited"
	}
	return strconv.FormatUint(n, 10)
}

// memory makes the memory of an end of a link.
func (r *Report) memory(window int) {
	const name = "memory files"
	found := "memfd_create and seals"
	strict, err := os.ReadFile("/proc/sys/vm/memfd_noexec")
	if err == nil {
		found += ", vm.memfd_noexec=" + strings.TrimSpace(string(strict))
	}
	if last := r.Checks[len(r.Checks)-1]; last.Name == "limits" && last.Status == Error {
		r.fail(name, "mend the limits, and ask again", "not tried: the kernel would end the process")
		return
	}
	fd, err := memfd.Create("ntbnet-doctor", int64(window))
	if err == nil {
		err = unix.Close(fd)
	}
	if err != nil {
		todo := "let the filter of system calls (seccomp) allow memfd_create, ftruncate and fcntl, and see the limits"
		if strings.TrimSpace(string(strict)) == "2" {
			todo = "sysctl vm.memfd_noexec=1, in this pid namespace and those around it"
		}
		r.fail(name, remedy(err, todo), "%s: %v", found, err)
		return
	}
	r.ok(name, "%s", found)
}

// lookUps checks whether the kernel says which TCP socket a connection would reach.
func (r *Report) lookUps() {
	const name = "sock_diag"
	const allow = "let the filter of system calls (seccomp) allow netlink sockets (RestrictAddressFamilies=AF_NETLINK and others), and load tcp_diag; network sdp does not need it"
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.warn(name, remedy(err, "ip link set lo up, if network tcp is used"), "not tried: %v", err)
		return
	}
	defer ln.Close()
	var k inetdiag.Kernel
	defer k.Close()
	at := ln.Addr().(*net.TCPAddr).AddrPort()
	route, err := k.RouteTo(netip.AddrFrom4([4]byte{127, 0, 0, 1}))
	ok := false
	if err == nil {
		_, ok, err = k.Listening(at, route.Interface)
	}
	if err == nil && !ok {
		err = errors.New("it does not find a socket that listens")
	}
	if err != nil {
		r.warn(name, remedy(err, allow), "network tcp is TCP here, since the kernel does not say which server is meant: %v", err)
		return
	}
	r.ok(name, "works, so that network tcp can be SDP")
}

// quota checks how much processor time the control groups of this process allow, which file
// cgroup lists and which are below root.
func (r *Report) quota(cgroup, root string) {
	const name = "quota"
	text, err := os.ReadFile(cgroup)
	if err != nil {
		r.warn(name, remedy(err, "mount /proc"), "of the control group cannot be read: %v", err)
		return
	}
	least, where := 0.0, ""
	for line := range strings.Lines(string(text)) {
		w := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(w) != 3 {
			continue
		}
		if q, at := quotaOf(root, w[1], w[2]); q > 0 && (least == 0 || q < least) {
			least, where = q, at
		}
	}
	switch {
	case least == 0:
		r.ok(name, "none")
	case least < 2:
		r.warn(name, "give the control group 2 processors or more (CPUQuota=200%, docker run --cpus 2, cpu.max), or say ?spin=0 in SDP_FABRIC",
			"%.3g processors, by %s: waits that spin use it up", least, where)
	default:
		r.ok(name, "%.3g processors, by %s", least, where)
	}
}

// quotaOf returns the least quota of a control group and those around it, in processors, and its
// file; 0 if there is none. controllers is empty for version 2.
func quotaOf(root, controllers, path string) (least float64, where string) {
	if controllers != "" {
		if !strings.Contains(","+controllers+",", ",cpu,") {
			return 0, ""
		}
		root = filepath.Join(root, controllers)
	}
	for dir := filepath.Clean("/" + path); ; dir = filepath.Dir(dir) {
		if q, file := quotaIn(filepath.Join(root, dir), controllers != ""); q > 0 && (least == 0 || q < least) {
			least, where = q, file
		}
		if dir == "/" {
			return least, where
		}
	}
}

// quotaIn returns the quota that a directory of a control group has, 0 for none, and its file.
func quotaIn(dir string, v1 bool) (q float64, file string) {
	names := []string{"cpu.max"}
	if v1 {
		names = []string{"cpu.cfs_quota_us", "cpu.cfs_period_us"}
	}
	var words []string
	for _, name := range names {
		text, _ := os.ReadFile(filepath.Join(dir, name)) // without it there is none
		words = append(words, strings.Fields(string(text))...)
	}
	file = filepath.Join(dir, names[0])
	if len(words) != 2 {
		return 0, file
	}
	quota, err := strconv.ParseFloat(words[0], 64) // "max" and -1 are none
	period, periodErr := strconv.ParseFloat(words[1], 64)
	if err != nil || periodErr != nil || quota <= 0 || period <= 0 {
		return 0, file
	}
	return quota / period, file
}
