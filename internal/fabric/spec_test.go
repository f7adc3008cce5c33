package fabric

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSpecs(t *testing.T) {
	got, err := ParseSpec("shm:x?spin=0&buffer=65536&window=1048576")
	require.NoError(t, err)
	require.Equal(t, &Spec{Kind: "shm", Name: "x", Window: 1 << 20, Buffer: 64 << 10}, got)
	got, err = ParseSpec("mem:a.b?spin=15us")
	require.NoError(t, err)
	require.Equal(t, &Spec{Kind: "mem", Name: "a.b", Spin: 15 * time.Microsecond}, got)
	got, err = ParseSpec("shm:default")
	require.NoError(t, err)
	require.Equal(t, time.Duration(-1), got.Spin)
	for _, bad := range []string{
		"", "shm", "shm:", "tcp:x", "shm:a/b", "shm:x?spin", "shm:x?spin=-1s", "shm:x?spin=2ms",
		"shm:x?buffer=5000", "shm:x?buffer=33554432", "shm:x?window=1000", "shm:x?nodes=3", "shm:x?dma=17", "shm:x?dma=-1", "shm:x?dmafrom=-1", "shm:x?a=%zz",
	} {
		_, err := ParseSpec(bad)
		require.ErrorIs(t, err, syscall.EINVAL, bad)
	}
}

func FuzzParseSpec(f *testing.F) {
	f.Add("shm:x?spin=0&buffer=65536&window=1048576")
	f.Add("mem:a?b=%41")
	f.Fuzz(func(t *testing.T, s string) {
		spec, err := ParseSpec(s)
		if err == nil && (spec.Window < 0 || spec.Buffer < 0 || spec.Spin > time.Millisecond) {
			t.Fatalf("%q: %+v", s, spec)
		}
	})
}
