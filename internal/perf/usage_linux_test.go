package perf

import (
	"math"
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestSleepsOfAProcessAreCounted(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := ProcessSleeps(os.Getpid())
	require.NoError(t, err)
	for range 20 {
		err := unix.Nanosleep(&unix.Timespec{Nsec: 1000}, nil)
		for err == unix.EINTR {
			err = unix.Nanosleep(&unix.Timespec{Nsec: 1000}, nil)
		}
		require.NoError(t, err)
	}
	after, err := ProcessSleeps(os.Getpid())
	require.NoError(t, err)
	assert.GreaterOrEqual(t, after-before, uint64(20))

	_, err = ProcessSleeps(math.MaxInt32)
	assert.ErrorIs(t, err, os.ErrNotExist)
}
