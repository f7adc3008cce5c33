//go:build linux

package integration

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ntbnet/ntbnet/internal/leak"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// calls are those of a process that wants to meet others. The last one would reach a server by
// TCP.
func calls(server string) []string {
	return []string{"listen sdp localhost:0 x", "dial sdp localhost:1", "listen tcp localhost:0 x", "dial tcp " + server}
}

// Where another user has taken the place of a user's fabrics, or a directory is refused, calls
// fail and say so, on both networks. Nothing is by TCP.
func TestAPlaceThatIsRefusedIsAnError(t *testing.T) {
	leak.Check(t)
	exe := strangerExe(t)
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer serveLab(plain, "plain").stop()
	uid := someUID()
	base := fabricBase(uid)
	defer os.RemoveAll(base)
	squatter := startStranger(t, exe, nobody)
	victim := startUser(t, exe, "shm:taken", uid, nil)
	require.Equal(t, attempt{}, squatter.try("mkdir "+base))
	for _, call := range calls(plain.Addr().String()) {
		m := victim.misses("%s", call)
		m.denied(t)
		require.Contains(t, m.Error, fmt.Sprintf("%s belongs to uid %d, and this process is uid %d: have it removed", base, nobody, uid))
	}
	require.Equal(t, attempt{}, squatter.try("remove "+base))
	require.Equal(t, "tcp", victim.meets("dial tcp %s", plain.Addr()).By)
	address := victim.meets("listen tcp localhost:0 x").Address
	require.Equal(t, "sdp", victim.meets("dial tcp %s", address).By)
	squatter.end()
	victim.end()

	dir := filepath.Join(filepath.Dir(exe), "private")
	for fabric, text := range map[string]string{
		"shm:" + dir:                          fmt.Sprintf("uid %d", nobody),
		"shm:" + filepath.Dir(exe):            "chmod 3770",
		"shm:" + filepath.Dir(exe) + "/none":  "mkdir -m 700",
		"shm:" + strings.Repeat("toolong", 9): "want 1 to 32 letters",
	} {
		require.NoError(t, os.RemoveAll(dir))
		require.NoError(t, os.Mkdir(dir, 0o700))
		require.NoError(t, os.Chown(dir, nobody, nobody))
		victim := startUser(t, exe, fabric, uid, nil)
		for _, call := range calls(plain.Addr().String()) {
			require.Contains(t, victim.misses("%s", call).Error, text, call)
		}
		victim.end()
	}
}

// As long as a process is in a fabric, another one gets no exclusive flock on the directory. So
// systemd-tmpfiles leaves it alone.
func TestAFabricIsLocked(t *testing.T) {
	name := newFabric(t)
	p := startPeer(t, "user", nil)
	require.Equal(t, "ready", p.readLine())
	require.NotEmpty(t, p.meets("listen sdp localhost:0 p").Address)
	dir, err := os.Open(filepath.Join(fabricBase(os.Geteuid()), name))
	require.NoError(t, err)
	defer dir.Close()
	require.ErrorIs(t, unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK)
	p.end()
	require.NoError(t, unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB))
}
