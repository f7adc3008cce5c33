//go:build linux

package integration

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// proxyExample is a row of the table of examples in docs/proxy.md.
type proxyExample struct {
	server, client string // maps of the proxies beside them
	use            []string
}

// proxyExamples returns the examples by their names.
func proxyExamples(t *testing.T) map[string]proxyExample {
	t.Helper()
	text, err := os.ReadFile("../docs/proxy.md")
	require.NoError(t, err)
	all := map[string]proxyExample{}
	for _, m := range regexp.MustCompile("(?m)^\\| ([^|]+) \\| `(sdp://[^`]+)` \\| `(tcp://[^`]+)` \\| `([^`]+)` \\|$").FindAllStringSubmatch(string(text), -1) {
		all[m[1]] = proxyExample{m[2], m[3], words(m[4])}
	}
	return all
}

// The examples of docs/proxy.md work, with the ports that they have there.
func TestProxyExamplesInANamespace(t *testing.T) {
	examples := proxyExamples(t)
	require.Len(t, examples, 4)
	n := newTunNodes(t, 1, "node %d has a namespace, and no fabric")[0]
	// serve starts the proxies of an example, and returns its client, which may have further arguments.
	serve := func(t *testing.T, name string) func(more ...string) string {
		e := examples[name]
		require.NotEmpty(t, e)
		variable := fabric(t)
		for _, m := range []string{e.server, e.client} {
			p := startProxyIn(t, variable, []option{n.within()}, nil, m)
			t.Cleanup(func() { p.stop() })
		}
		return func(more ...string) string {
			t.Helper()
			c := start(t, tool(t, e.use[0]), append(e.use[1:], more...), withEnv("PGUSER=postgres"), n.within())
			require.Equal(t, 0, c.status(), c.out.String())
			return c.out.String()
		}
	}
	t.Run("Redis", func(t *testing.T) {
		startRedisWith(t, []option{n.within()}, "--bind", "127.0.0.1", "--port", "6379", "--dir", shortDir(t))
		cli := serve(t, "Redis")
		require.Equal(t, "OK\n", cli("set", "key", "value"))
		require.Equal(t, "value\n", cli("get", "key"))
	})
	t.Run("HTTP", func(t *testing.T) {
		dir := shortDir(t)
		for _, d := range []string{"www", "tmp"} {
			require.NoError(t, os.Mkdir(filepath.Join(dir, d), 0o700))
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, "www", "index.html"), []byte("hello\n"), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "nginx.conf"), []byte(fmt.Sprintf(nginxConfig, "user root;", 80)), 0o600))
		start(t, tool(t, "nginx"), []string{"-p", dir + "/", "-c", "nginx.conf", "-e", "stderr"}, n.within())
		eventually(t, "nginx answers", func() bool { return tunAnswers(n, "127.0.0.1:80") })
		require.Equal(t, "hello\n", serve(t, "HTTP")("-sS"))
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		postgres, err := filepath.EvalSymlinks(postgresProgram(t))
		require.NoError(t, err)
		dir := shortDir(t)
		require.NoError(t, os.Chown(dir, nobody, nobody)) // it refuses to run as root, and as a user without a name
		within := cage{UID: nobody, Net: n.namespace()}.option()
		here := func(c *exec.Cmd) { c.Dir = dir }
		made := start(t, filepath.Join(filepath.Dir(postgres), "initdb"), []string{"-D", dir + "/data", "-A", "trust", "-U", "postgres", "--no-locale", "-N"}, here, within)
		require.Equal(t, 0, made.status(), made.out.String())
		start(t, postgres, []string{"-D", dir + "/data", "-k", dir, "-h", "127.0.0.1", "-F"}, here, within).waitFor(regexp.MustCompile(`ready to accept connections`), 1)
		psql := serve(t, "PostgreSQL")
		require.Equal(t, "500500\n", psql("-Atq", "-c", "create table t as select generate_series(1, 1000) n", "-c", "select sum(n) from t"))
	})
	t.Run("disk", func(t *testing.T) {
		dir := shortDir(t)
		disk := make([]byte, 64<<20)
		_, err := rand.Read(disk[len(disk)/4 : len(disk)/2]) // the rest is a hole
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(dir+"/disk", disk, 0o600))
		start(t, tool(t, "nbdkit"), []string{"-f", "--exit-with-parent", "-i", "127.0.0.1", "-p", "10809", "file", dir + "/disk"}, n.within())
		eventually(t, "nbdkit answers", func() bool { return tunAnswers(n, "127.0.0.1:10809") })
		copies := serve(t, "a disk")
		copies(dir + "/copy")
		sum := sha256.Sum256(disk)
		requireSum(t, sum[:], dir+"/copy")
	})
}

// postgresProgram finds the server, which Debian keeps apart from other programs.
func postgresProgram(t *testing.T) string {
	t.Helper()
	if all, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres"); len(all) > 0 {
		return all[0]
	}
	return tool(t, "postgres")
}
