package perf

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ntbnet/ntbnet/internal/leak"
)

func TestSystemCallsOfAProcessAreCounted(t *testing.T) {
	leak.Check(t)
	c, err := CountCalls(os.Getpid())
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
		t.Skip("this user may not count, or this kernel does not: ", err)
	}
	require.NoError(t, err)
	defer c.Close()
	before, err := c.Each()
	require.NoError(t, err)
	const each, of = 10_000, 4
	var callers sync.WaitGroup
	for range of {
		callers.Go(func() {
			// It is a thread of its own, which may be new.
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			for range each {
				unix.Getppid()
			}
		})
	}
	callers.Wait()
	after, err := c.Each()
	require.NoError(t, err)
	assert.GreaterOrEqual(t, after[0]-before[0], uint64(each*of))
	assert.Less(t, after[0]-before[0], uint64(2*each*of), "none is counted twice")

	_, err = CountCalls(os.Getpid(), math.MaxInt32)
	assert.ErrorIs(t, err, os.ErrNotExist)
}
