//go:build linux

package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

const fileSize = 16 << 20

// Two containers without a network, a directory or processes in common are neighbours by a file. When it
// shrinks, their connections are reset and the processes live on.
func TestContainersWithAFile(t *testing.T) {
	volume, exe := shop(t)
	file := filepath.Join(volume, "memory")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, os.Truncate(file, fileSize))
	require.NoError(t, os.Chown(file, 0, shopGID))
	require.NoError(t, os.Chmod(file, 0o660))

	node := func(number, uid int, end string) *peer {
		own := filepath.Join(filepath.Dir(exe), fmt.Sprint("node", number))
		require.NoError(t, os.Mkdir(own, 0o700))
		require.NoError(t, os.Chown(own, uid, uid))
		k := container(t, volume, "/volume", uid, inShop)
		k.Namespaces |= syscall.CLONE_NEWNET
		k.Volumes["/own"] = own
		k.try(t)
		p := startPeer(t, "far", []string{fmt.Sprintf("line:/own?node=%d&nodes=2&%s=file:/volume/memory", number, end)},
			func(c *exec.Cmd) { c.Path = exe }, k.option())
		require.Equal(t, "ready", p.readLine())
		return p
	}
	one, two := node(1, userA, "right"), node(2, userB, "left")
	converse(one, two)
	for _, sizes := range [][]int64{{0, fileSize}, {fileSize / 2, fileSize}} {
		does(one, "node 1", "keep node2")
		does(two, "node 2", "keep node1")
		for _, size := range sizes {
			require.NoError(t, os.Truncate(file, size))
		}
		for _, p := range []*peer{one, two} {
			require.Contains(t, p.ask("lost"), "connection reset by peer")
		}
		converse(one, two) // while the connections that were reset are open
		does(one, "node 1", "drop")
		does(two, "node 2", "drop")
	}
	endHost(one)
	endHost(two)
}
