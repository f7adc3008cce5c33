//go:build linux

package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// callNumbers returns the numbers of the system calls, as the C compiler's headers have them.
func callNumbers(t *testing.T) map[string]uintptr {
	t.Helper()
	p := start(t, tool(t, "gcc"), []string{"-E", "-dM", "-include", "sys/syscall.h", "-x", "c", "/dev/null"})
	require.Equal(t, 0, p.status())
	defined := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^#define (__NR\w+) (\w+)$`).FindAllStringSubmatch(p.out.String(), -1) {
		defined[m[1]] = m[2]
	}
	numbers := map[string]uintptr{}
	for name, value := range defined {
		for defined[value] != "" { // another name of the call
			value = defined[value]
		}
		if n, err := strconv.Atoi(value); err == nil {
			numbers[strings.TrimPrefix(name, "__NR_")] = uintptr(n)
		}
	}
	require.Contains(t, numbers, "memfd_create")
	return numbers
}

// worksFiltered has two users of a group meet, who may make these system calls, by networks
// "sdp" and "tcp", and in a directory that the first of them makes.
func worksFiltered(t *testing.T, k cage) {
	t.Helper()
	dir, exe := shop(t)
	k.Groups = inShop
	k.try(t)
	for _, fabric := range []string{"shm:" + dir, fmt.Sprintf("shm:%s/inner?group=%d&owner=%d", dir, shopGID, userA)} {
		k.UID = userA
		a := startCaged(t, exe, fabric, k)
		address := a.meets("http tcp 127.0.0.1:0").Address
		k.UID = userB
		b := startCaged(t, exe, fabric, k)
		require.Equal(t, "sdp", b.meets("get tcp %s 100 100", address).By)
		require.Equal(t, "sdp", b.meets("get sdp %s 1 10000000", address).By)
		require.Equal(t, "sdp", b.meets("flow sdp %s 8 1000000", a.meets("flows sdp localhost:0").Address).By)
		m := b.meets("dial sdp %s", b.meets("listen sdp localhost:0 b").Address)
		require.Equal(t, userB, m.Peer.UID)
		b.end()
		a.end()
	}
}

// callsOf returns the numbers of the system calls of one of systemd's sets.
func callsOf(t *testing.T, set string) (calls []uintptr) {
	t.Helper()
	p := start(t, tool(t, "systemd-analyze"), []string{"syscall-filter"})
	require.Equal(t, 0, p.status())
	sets, name := map[string][]string{}, ""
	for line := range strings.Lines(p.out.String()) {
		inner, isInner := strings.CutPrefix(strings.TrimRight(line, "\n"), "    ")
		switch {
		case strings.HasPrefix(line, "@"):
			name = strings.TrimSpace(line)
		case isInner && !strings.HasPrefix(inner, "#"):
			sets[name] = append(sets[name], inner)
		}
	}
	require.NotEmpty(t, sets[set])
	numbers := callNumbers(t)
	var add func(name string)
	add = func(name string) {
		if strings.HasPrefix(name, "@") {
			for _, inner := range sets[name] {
				add(inner)
			}
		} else if n, ok := numbers[name]; ok { // an older header, or another architecture
			calls = append(calls, n)
		}
	}
	add(set)
	require.Contains(t, calls, numbers["memfd_create"])
	require.NotContains(t, calls, numbers["mount"])
	return calls
}

// The system calls of systemd's set @system-service are enough. So a unit may have
// SystemCallFilter=@system-service.
func TestSystemCallsOfAService(t *testing.T) {
	worksFiltered(t, cage{Allowed: callsOf(t, "@system-service")})
}

// profileVariable is a file with a profile, in the form of Docker and Kubernetes.
const profileVariable = "NTBNET_SECCOMP"

// A profile is enough for a process without capabilities. What it says of arguments is not
// looked for.
func TestASeccompProfile(t *testing.T) {
	file := os.Getenv(profileVariable)
	if file == "" {
		t.Skip(profileVariable + "=FILE tries a profile of Docker or Kubernetes")
	}
	type condition struct{ Arches, Caps []string }
	var profile struct {
		Syscalls []struct {
			Names              []string
			Action             string
			ErrnoRet           syscall.Errno
			Includes, Excludes condition
		}
	}
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &profile))
	k := cage{}
	numbers := callNumbers(t)
	for _, rule := range profile.Syscalls {
		here := len(rule.Includes.Arches) == 0 || slices.Contains(rule.Includes.Arches, runtime.GOARCH)
		if !here || len(rule.Includes.Caps) > 0 || slices.Contains(rule.Excludes.Arches, runtime.GOARCH) {
			continue
		}
		for _, name := range rule.Names {
			n, ok := numbers[name]
			switch {
			case !ok:
			case rule.Action == "SCMP_ACT_ALLOW":
				k.Allowed = append(k.Allowed, n)
			default:
				k.Denied, k.Errno = append(k.Denied, n), rule.ErrnoRet
			}
		}
	}
	require.NotEmpty(t, k.Allowed)
	t.Logf("%d system calls are allowed", len(k.Allowed))
	worksFiltered(t, k)
}
