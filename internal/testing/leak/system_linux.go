package leak

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// system is what the process has of the kernel's resources.
type system struct {
	fds      map[string]string // descriptor to what it is open on
	mappings map[string]mapping
}

// mapping summarizes the shared mappings of one file. The kernel splits and merges
// the ranges as it likes, so only their total is compared.
type mapping struct {
	bytes  uint64
	ranges string // lines of /proc/self/maps
}

// warmUp opens what the runtime opens at the first use and keeps: the descriptors
// of its poller.
var warmUp = sync.OnceFunc(func() {
	r, w, err := os.Pipe()
	if err != nil {
		panic(err)
	}
	r.Close()
	w.Close()
})

func takeSystem() system {
	warmUp()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		panic(err)
	}
	return system{fds: descriptors(), mappings: sharedMappings(string(maps))}
}

func descriptors() map[string]string {
	const dir = "/proc/self/fd"
	entries, err := os.ReadDir(dir)
	if err != nil {
		panic(err)
	}
	fds := map[string]string{}
	for _, e := range entries {
		// The descriptor of ReadDir itself is closed by now.
		if link, err := os.Readlink(dir + "/" + e.Name()); err == nil {
			fds[e.Name()] = link
		}
	}
	return fds
}

// sharedMappings reads lines like
//
//	7f0c6a5f7000-7f0c6a5f8000 rw-s 00000000 00:01 2050     /memfd:x (deleted)
//
// and returns those of shared memory and of any memfd, by device, inode and name.
func sharedMappings(maps string) map[string]mapping {
	all := map[string]mapping{}
	for line := range strings.Lines(maps) {
		f := strings.Fields(line)
		if len(f) < 5 || len(f[1]) != 4 {
			continue
		}
		name := strings.Join(f[5:], " ")
		if f[1][3] != 's' && !strings.HasPrefix(name, "/memfd:") {
			continue
		}
		from, to, _ := strings.Cut(f[0], "-")
		begin, err1 := strconv.ParseUint(from, 16, 64)
		end, err2 := strconv.ParseUint(to, 16, 64)
		if err1 != nil || err2 != nil {
			continue
		}
		key := f[3] + " " + f[4] + " " + name
		m := all[key]
		m.bytes += end - begin
		m.ranges += "\n" + strings.TrimSpace(line)
		all[key] = m
	}
	return all
}

func (s system) since(before system) []string {
	var extra []string
	for fd, link := range s.fds {
		if before.fds[fd] != link {
			extra = append(extra, fmt.Sprintf("descriptor %s -> %s", fd, link))
		}
	}
	for key, m := range s.mappings {
		if was := before.mappings[key].bytes; m.bytes > was {
			extra = append(extra, fmt.Sprintf("mapping, %d bytes more than before, of all this:%s", m.bytes-was, m.ranges))
		}
	}
	slices.Sort(extra)
	return extra
}
