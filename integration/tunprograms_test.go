//go:build linux

package integration

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Programs that know nothing of SDP run between three nodes, whose namespaces have only lo and the TUN devices.
func TestTunPrograms(t *testing.T) {
	for _, name := range []string{"ping", "iperf3", "redis-server", "redis-cli", "redis-benchmark", "nginx", "curl", "ssh", "scp", "sshd", "ssh-keygen"} {
		tool(t, name)
	}
	nodes := startTun(t, 3)
	from, to := nodes[0], nodes[2]

	t.Run("ping", func(t *testing.T) {
		for _, a := range []string{"10.77.0.2", "10.77.0.3", "fd77::3"} {
			from.pings(5, a)
		}
		// As large as a packet can be, which is cut.
		from.pings(2, "-s", "65507", "10.77.0.3")
		// Multicast, by the device that is named.
		from.pings(2, "-I", "sdp3", "ff02::1")
	})
	t.Run("iperf3", func(t *testing.T) {
		for _, flags := range []string{"-n 64M", "-n 64M -P 4", "-n 64M -R", "-n 64M -6", "-u -b 50M -l 1400 -t 1"} {
			server := start(t, tool(t, "iperf3"), []string{"-s", "-1", "--forceflush"}, to.within())
			server.waitFor(regexp.MustCompile(`Server listening`), 1)
			args := append([]string{"-J", "-c", "10.77.0.3"}, words(flags)...)
			if flags == "-n 64M -6" {
				args[2] = "fd77::3"
			}
			out := from.run("iperf3", args...)
			var result struct {
				End struct {
					Received struct{ Bytes float64 } `json:"sum_received"`
					Sum      struct{ Bytes float64 } `json:"sum"`
				} `json:"end"`
			}
			require.NoError(t, json.Unmarshal([]byte(out), &result), out)
			require.NotZero(t, result.End.Received.Bytes+result.End.Sum.Bytes, out)
			require.Equal(t, 0, server.status())
		}
	})
	t.Run("redis", func(t *testing.T) {
		startRedisWith(t, []option{to.within()}, "--bind", "10.77.0.3", "--port", "6379", "--protected-mode", "no", "--dir", shortDir(t))
		redisAnswers(t, "10.77.0.3:6379", from.within())
	})
	t.Run("nginx and curl", func(t *testing.T) {
		const size = 32 << 20
		dir := shortDir(t)
		for _, d := range []string{"www", "tmp"} {
			require.NoError(t, os.Mkdir(filepath.Join(dir, d), 0o700))
		}
		want := sparseFile(t, filepath.Join(dir, "www", "big"), size)
		config := fmt.Sprintf(nginxConfig, "user root;", 8080)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "nginx.conf"), []byte(strings.ReplaceAll(config, "127.0.0.1:8080", "10.77.0.3:8080")), 0o600))
		start(t, tool(t, "nginx"), []string{"-p", dir + "/", "-c", "nginx.conf", "-e", "stderr"}, to.within())
		eventually(t, "nginx answers", func() bool { return tunAnswers(from, "10.77.0.3:8080") })
		got := filepath.Join(dir, "got")
		from.run("curl", "-q", "-sS", "--fail", "--noproxy", "*", "--max-time", "60", "-o", got, "http://10.77.0.3:8080/big")
		requireSum(t, want, got)
	})
	t.Run("ssh and scp", func(t *testing.T) {
		dir := shortDir(t)
		path := func(name string) string { return filepath.Join(dir, name) }
		require.NoError(t, os.MkdirAll("/run/sshd", 0o755))
		for _, key := range []string{"host", "user"} {
			from.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path(key))
		}
		require.NoError(t, os.WriteFile(path("sshd.conf"), []byte(fmt.Sprintf(
			"Port 22\nListenAddress 10.77.0.3\nHostKey %s\nAuthorizedKeysFile %s\nPermitRootLogin yes\nUsePAM no\nStrictModes no\nPidFile none\nSubsystem sftp internal-sftp\n",
			path("host"), path("user.pub"))), 0o600))
		start(t, tool(t, "sshd"), []string{"-D", "-e", "-f", path("sshd.conf")}, to.within())
		eventually(t, "sshd answers", func() bool { return tunAnswers(from, "10.77.0.3:22") })
		options := []string{"-F", "none", "-i", path("user"), "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"}
		require.Equal(t, "hello\n", from.run("ssh", append(options, "root@10.77.0.3", "echo hello")...))
		want := sparseFile(t, path("sent"), 16<<20)
		from.run("scp", append(options, path("sent"), "root@10.77.0.3:"+path("arrived"))...)
		requireSum(t, want, path("arrived"))
	})
	for _, node := range nodes {
		node.daemon.signal(os.Interrupt)
		require.Equal(t, 0, node.daemon.status(), node.daemon.out.String())
	}
}

// tunAnswers reports whether somebody listens at an address.
func tunAnswers(n *tunNode, address string) bool {
	c, err := n.dial(address)
	if err != nil {
		return false
	}
	c.Close()
	return true
}

func requireSum(t *testing.T, want []byte, path string) {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	require.NoError(t, err)
	require.Equal(t, want, h.Sum(nil))
}
