package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ntbnet/ntbnet/ntb/ntbkernel"
	"github.com/stretchr/testify/require"
)

// The least quota of a control group and those around it counts.
func TestQuotas(t *testing.T) {
	for name, c := range map[string]struct {
		cgroup string
		files  map[string]string
		status Status
		found  string
	}{
		"none":            {"0::/a/b\n", map[string]string{"a/b/cpu.max": "max 100000\n", "a/cpu.max": "max 100000\n"}, OK, "none"},
		"of version 2":    {"0::/a/b\n", map[string]string{"a/b/cpu.max": "max 100000\n", "a/cpu.max": "50000 100000\n"}, Warning, "0.5 processors, by ROOT/a/cpu.max"},
		"the least":       {"0::/a/b\n", map[string]string{"a/b/cpu.max": "300000 100000\n", "a/cpu.max": "400000 100000\n"}, OK, "3 processors, by ROOT/a/b/cpu.max"},
		"of the root":     {"0::/../../x\n", map[string]string{"cpu.max": "100000 100000\n"}, Warning, "1 processors, by ROOT/cpu.max"},
		"of version 1":    {"3:cpuset:/\n2:cpu,cpuacct:/a\n", map[string]string{"cpu,cpuacct/a/cpu.cfs_quota_us": "150000\n", "cpu,cpuacct/a/cpu.cfs_period_us": "100000\n"}, Warning, "1.5 processors, by ROOT/cpu,cpuacct/a/cpu.cfs_quota_us"},
		"none, version 1": {"2:cpu,cpuacct:/a\n", map[string]string{"cpu,cpuacct/a/cpu.cfs_quota_us": "-1\n", "cpu,cpuacct/a/cpu.cfs_period_us": "100000\n"}, OK, "none"},
		"nonsense":        {"what\n0::/a\n", map[string]string{"a/cpu.max": "1 0\n", "cpu.max": "x y\n"}, OK, "none"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			root := filepath.Join(dir, "root")
			for file, text := range c.files {
				path := filepath.Join(root, file)
				require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
				require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
			}
			list := filepath.Join(dir, "cgroup")
			require.NoError(t, os.WriteFile(list, []byte(c.cgroup), 0o644))
			var r Report
			r.quota(list, root)
			require.Len(t, r.Checks, 1)
			require.Equal(t, c.status, r.Checks[0].Status)
			found := r.Checks[0].Found
			if c.status == Warning {
				require.NotEmpty(t, r.Checks[0].Remedy)
			}
			require.Contains(t, found, strings.ReplaceAll(c.found, "ROOT", root))
		})
	}
}

// Without /proc nothing of it is known, which is no reason to fail.
func TestWithoutProc(t *testing.T) {
	var r Report
	r.quota("/nonexistent", "/nonexistent")
	r.namespaces("/nonexistent")
	require.Len(t, r.Checks, 2)
	for _, c := range r.Checks {
		require.Equal(t, Warning, c.Status)
		require.Equal(t, "mount /proc", c.Remedy)
	}
	require.False(t, r.failed())
}

// What is done against a lack is not what is done against another failure of the same call.
func TestARemedyIsThatOfTheCause(t *testing.T) {
	lack := fmt.Errorf("fabric: open /proc/self/uid_map: %w", syscall.EMFILE)
	require.Equal(t, "ulimit -n 4096 (LimitNOFILE=4096): fabric: open /proc/self/uid_map: too many open files", remedy(lack, "mount /proc"))
	require.Equal(t, remedy(lack, ""), advice(lack))
	full := fmt.Errorf("fabric: make directory /tmp/ntbnet-1000: %w", syscall.ENOSPC)
	require.Equal(t, "free room (df -h and df -i have the file systems), or name a directory of another one by SDP_FABRIC=shm:/PATH: "+full.Error(), advice(full))
	large := fmt.Errorf("ntbshm: map window of 1073741824 bytes: %w", syscall.ENOMEM)
	require.Equal(t, "ulimit -v unlimited (LimitAS=infinity), or smaller windows, as in SDP_FABRIC='shm:NAME?window=16777216': "+large.Error(), advice(large))
	long := fmt.Errorf("make memory file of 1073745920 bytes: %w", syscall.EFBIG)
	require.Equal(t, "ulimit -f unlimited (LimitFSIZE=infinity): "+long.Error(), advice(long))
	missing := fmt.Errorf("fabric: mount it: %w", syscall.ENOENT)
	require.Equal(t, "mount /proc", remedy(missing, "mount /proc"))
	require.Equal(t, "mount it", advice(missing))
}

// A bridge has a line, and one that cannot be used is no error, for SDP works without.
func TestBridgesHaveLines(t *testing.T) {
	var r Report
	r.bridges(nil, nil)
	require.Empty(t, r.Checks)
	r.bridges([]ntbkernel.Bridge{
		{Address: "0000:b1:00.0", About: "8086:347e, link ready"},
		{Address: "0000:b2:00.0", About: "8086:347e", Err: fmt.Errorf("ntbkernel: no driver has bridge 0000:b2:00.0: modprobe ntb_hw_intel: %w", syscall.ENODEV)},
	}, nil)
	require.Equal(t, []Check{
		{"bridge", OK, "0000:b1:00.0: 8086:347e, link ready; SDP_FABRIC=ntb:0000:b1:00.0 uses it", ""},
		{"bridge", Warning, "0000:b2:00.0: 8086:347e", "no driver has bridge 0000:b2:00.0: modprobe ntb_hw_intel"},
	}, r.Checks)
}
