package fabrictest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/fabric"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/ntb"
)

// endTimeout is how long the processes of a fabric may take to end.
const endTimeout = 60 * time.Second

var names = struct {
	mu  sync.Mutex
	all map[testing.TB]string // guarded by mu
}{all: map[testing.TB]string{}}

// Name returns the name of the test's own fabric, the same each time. When the test and
// its later cleanups are done, what the fabric has left in the file system is removed.
// The test fails if a process is still attached a minute later.
func Name(t testing.TB) string {
	t.Helper()
	names.mu.Lock()
	defer names.mu.Unlock()
	if name, ok := names.all[t]; ok {
		return name
	}
	name := fmt.Sprintf("test-%d-%08x", os.Getpid(), rand.Uint32())
	names.all[t] = name
	t.Cleanup(func() {
		names.mu.Lock()
		delete(names.all, t)
		names.mu.Unlock()
		if err := remove(name, t.Failed()); err != nil {
			t.Errorf("fabric %s: %v", name, err)
		}
	})
	return name
}

// remove waits for the processes of a fabric and removes it. If the test has failed it
// does not wait, since the test has often stopped half-way.
func remove(name string, failed bool) error {
	for end := time.Now().Add(endTimeout); ; time.Sleep(time.Millisecond) {
		err := spec.Remove(name)
		switch {
		case err == nil || errors.Is(err, ntb.ErrNotSupported):
			return nil
		case !errors.Is(err, syscall.EBUSY) || failed || time.Now().After(end):
			return err
		}
	}
}

// OpenNodes opens all nodes of a fabric of several hosts within this process. Element i of the
// result is node i+1. The spec's name and node are ignored. wrap, if not nil, may wrap each bridge.
func OpenNodes(spec *spec.Spec, wrap func(a, b ntb.Device) (ntb.Device, ntb.Device), start func(*fabric.Fabric)) (all []*fabric.Fabric, err error) {
	hosts := fabric.NewMemHosts(func(_, _ int, a, b ntb.Device) (ntb.Device, ntb.Device) {
		if wrap == nil {
			return a, b
		}
		return wrap(a, b)
	})
	for node := 1; node <= spec.Nodes; node++ {
		own := *spec
		own.Node = node
		f, err := hosts.Open(&own, start)
		if err != nil {
			for _, f := range all {
				f.Close()
			}
			return nil, err
		}
		all = append(all, f)
	}
	return all, nil
}

// Main runs the tests in a process whose default fabric is one of its own. TestMain
// calls it.
func Main(m *testing.M) int {
	name := fmt.Sprintf("test-%d-%08x", os.Getpid(), rand.Uint32())
	os.Setenv(spec.EnvFabric, "shm:"+name)
	status := m.Run()
	if err := remove(name, status != 0); err != nil && status == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return status
}
