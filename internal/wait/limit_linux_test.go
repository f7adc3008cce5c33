package wait

import (
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// On one processor only those spin whose waits another machine ends.
func TestOneProcessor(t *testing.T) {
	if runtime.NumCPU() > 1 {
		runtime.LockOSThread() // which ends with this goroutine, as its processors are no longer all
		var one, all unix.CPUSet
		require.NoError(t, unix.SchedGetaffinity(0, &all))
		for i := 0; one.Count() == 0; i++ {
			if all.IsSet(i) {
				one.Set(i)
			}
		}
		require.NoError(t, unix.SchedSetaffinity(0, &one))
		out, err := exec.Command(os.Args[0], "-test.v", "-test.timeout=5m").CombinedOutput() // all tests of this package
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "--- PASS: TestOneProcessor")
		return
	}
	s := NewSpinner(Config{Budget: time.Hour})
	require.Equal(t, None, s.Spin(&testSource{ready: 1}))
	s.Remote = true
	require.Equal(t, Hit, s.Spin(&testSource{ready: 1}))
	require.True(t, enter(clock(), true))
	require.Equal(t, None, s.Spin(&testSource{ready: 1}), "one at a time")
	leave()
}
