package spec

import (
	"fmt"
	"hash/fnv"
	"io"
	"net/url"
	"strconv"
	"strings"
)

// What programs that run as several processes, such as the PEs of a SHMEM job, want to know
// of a fabric. So they need not know how specs are written.

// OneHost returns the spec of a fabric of one host.
func OneHost(name string) string { return "shm:" + name }

// OfJob returns the spec of a fabric of one host for the processes of one job, which find it by
// the job's name, with nothing set up before. program keeps jobs of different kinds apart. The
// name of a job may be longer than that of a fabric, and have other characters, so a hash stands
// for it.
func OfJob(program, job string) string {
	h := fnv.New64a()
	io.WriteString(h, job)
	return OneHost(fmt.Sprintf("%s-%016x", program, h.Sum64()))
}

// Member returns the text of a spec with which a process comes to the same host of the fabric,
// and owns no links.
func (s *Spec) Member() string {
	v := url.Values{}
	if s.Group != "" {
		v.Set("group", s.Group)
	}
	if len(s.Owners) > 0 {
		v.Set("owner", strings.Join(s.Owners, ","))
	}
	if s.Node != 0 {
		v.Set("node", strconv.Itoa(s.Node))
	}
	if s.Window != 0 {
		v.Set("window", strconv.Itoa(s.Window))
	}
	if s.Several() && s.Backend == "mem" {
		v.Set("backend", s.Backend)
	}
	text := s.Kind + ":" + s.Name
	if len(v) > 0 {
		text += "?" + v.Encode()
	}
	return text
}
