//go:build unix

package spec

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// unnamed unsets EnvFabric.
func unnamed(t *testing.T) {
	t.Setenv(EnvFabric, "") // so that it is set again
	require.NoError(t, os.Unsetenv(EnvFabric))
}

// file makes a file of this user.
func file(t *testing.T, text string) string {
	path := filepath.Join(t.TempDir(), "fabric")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

func TestWhatNamesTheFabric(t *testing.T) {
	path := file(t, "fabric shm:lab\n")
	ask := func(path string) []string {
		text, from, err := defaultIn(path, os.Geteuid())
		require.NoError(t, err)
		return []string{text, from}
	}
	unnamed(t)
	require.Equal(t, []string{"shm:lab", path}, ask(path))
	require.Equal(t, []string{"shm:default", ""}, ask(path+"s"), "a missing file")
	require.Equal(t, []string{"shm:default", ""}, ask(file(t, "# nothing\n\n")))
	t.Setenv(EnvFabric, "")
	require.Equal(t, []string{"shm:default", EnvFabric}, ask(path), "a variable that is empty")
	t.Setenv(EnvFabric, "mem:x")
	require.Equal(t, []string{"mem:x", EnvFabric}, ask(path))
	// While the variable is set, nobody reads the file.
	require.NoError(t, os.Chmod(path, 0o666))
	require.Equal(t, []string{"mem:x", EnvFabric}, ask(path))
}

func TestTheFileMustBeItsOwners(t *testing.T) {
	unnamed(t)
	refused := func(path string, owner int, errno syscall.Errno, want string) {
		t.Helper()
		_, _, err := defaultIn(path, owner)
		require.ErrorIs(t, err, errno)
		require.ErrorContains(t, err, "fabric: "+path+" "+want)
		require.NotContains(t, err.Error(), "\n")
	}
	self := os.Geteuid()
	path := file(t, "fabric shm:lab")
	refused(path, self+1, syscall.EPERM, "belongs to uid")
	for _, mode := range []os.FileMode{0o664, 0o646} {
		require.NoError(t, os.Chmod(path, mode))
		refused(path, self, syscall.EPERM, "has mode 06")
	}
	require.NoError(t, os.Chmod(path, 0o644))
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(path, link))
	refused(link, self, syscall.EPERM, "is a symbolic link")
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o644))
	refused(pipe, self, syscall.EPERM, "is not a regular file")
	refused(filepath.Dir(path), self, syscall.EPERM, "is not a regular file")
	refused(file(t, strings.Repeat("#\n", maxFile/2+1)), self, syscall.EINVAL, "has more than 65536 bytes")
	if self != 0 { // whom modes do not keep out
		require.NoError(t, os.Chmod(path, 0))
		refused(path, self, syscall.EACCES, "cannot be read: chmod")
	}
}

func TestFiles(t *testing.T) {
	for text, want := range map[string]string{
		"":                            "",
		"fabric shm:lab":              "shm:lab",
		"fabric\tshm:lab \nspin  0\n": "shm:lab?spin=0",
		" # of the lab\n\n\tfabric ring:/run/ntbnet/lab\nnode 1\nnodes 4\nright ntb:0000:b1:00.0\nleft file:/a b;c&d%e+f#g\nhost2 storage2,Backup.lan\n": "ring:/run/ntbnet/lab?node=1&nodes=4&right=ntb:0000:b1:00.0&left=file:/a b%3Bc%26d%25e%2Bf#g&host2=storage2,Backup.lan&share=1",
		"fabric ring:lab\nnode 1\nnodes 4\nshare 0\n":                     "ring:lab?node=1&nodes=4&share=0",
		"fabric ring:lab\nnode 1\n":                                       "ring:lab?node=1",
		"fabric ring:lab\nnode 1\nnodes 2\nbackend mem\n":                 "ring:lab?node=1&nodes=2&backend=mem",
		"fabric ntb:0000:b1:00.0\nhost2 b,10.7.0.2,fd00::2\nfallback 0\n": "ntb:0000:b1:00.0?host2=b,10.7.0.2,fd00::2&fallback=0",
	} {
		got, err := parseFile("/f", text)
		require.NoError(t, err, text)
		require.Equal(t, want, got)
		if want != "" {
			_, err = Parse(got)
			require.NoError(t, err, got)
		}
	}
	spec, err := Parse("ring:lab?node=1&nodes=2&left=file:/a b%3Bc%26d%25e%2Bf#g")
	require.NoError(t, err)
	require.Equal(t, "/a b;c&d%e+f#g", spec.ends["left"].target)
}

func TestErrorsHaveLineAndColumn(t *testing.T) {
	for text, want := range map[string]string{
		"node 1\n":                                  "/f:1:1: want fabric KIND:NAME before all options",
		"fabric\n":                                  `/f:1:7: want a value behind "fabric"`,
		"  fabric  star:x":                          `/f:1:11: fabric "star:x": want shm:NAME`,
		"fabric shm:a/b":                            "/f:1:8: fabric: name",
		"fabric shm:lab?spin=0":                     "/f:1:15: options have lines of their own",
		"fabric shm:lab\r\n":                        `/f:1:15: '\r' is no character of a line`,
		"fabric shm:lab\n\nfabric shm:lab":          "/f:3:1: fabric is there twice",
		"fabric shm:lab\nspin 0\n# x\n spin 0":      "/f:4:2: spin is there twice",
		"fabric shm:lab\nhops 2":                    "/f:2:1: hops: want window, buffer, spin or dmafrom",
		"fabric shm:lab\n\tspin   20":               "/f:2:9: spin: want a time from 0 to 1ms",
		"fabric shm:lab\nnode 1":                    "/f:2:6: node: shm:lab is one host",
		"# a\n fabric ring:lab\nnodes 4":            "/f:2:9: option node is missing",
		"fabric ring:lab\nnode 5\nnodes 4":          "/f:1:8: option node=5: want 1 to 4",
		"fabric ring:lab\nnode 1\nnodes 4\nhost5 a": "/f:1:8: option host5=a: want host1 to host4",
		"fabric ring:lab\nnode 1\nhost2 node3":      "/f:3:7: host2: want names or IP addresses of machines",
		"fabric ring:lab\nnode 1\nhost2 a,,b":       "/f:3:7: host2: want names or IP addresses of machines",
		"fabric ring:lab\nnode 1\nhost2 a\nhost3 A": "/f:4:7: host3: want names or IP addresses of machines, each of one node",
		"fabric ring:lab\nnode 1\nhost2 127.0.0.1":  "/f:3:7: host2: want names or IP addresses of machines",
		"fabric ring:lab\nnode 1\nhostI a":          "/f:3:1: hostI: want window",
		"fabric ring:lab\nnode 1\nhost17 a":         "/f:3:1: host17: want window",
		"fabric ring:/lab\nnode 1\nbackend mem":     "/f:1:8: backend=mem uses no directory",
	} {
		_, err := parseFile("/f", text)
		require.ErrorContains(t, err, want, text)
		require.ErrorIs(t, err, syscall.EINVAL, text)
	}
}

// What a file says is a spec, or an error that says where.
func FuzzFile(f *testing.F) {
	f.Add("# lab\nfabric ring:/run/ntbnet/lab\nnode 1\nnodes 4\nright file:/a;b\nhost2 storage2\n")
	f.Add("fabric shm:lab\n\tspin 20us\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := parseFile("/f", text)
		if err != nil {
			require.Regexp(t, `^/f:[1-9][0-9]*:[1-9][0-9]*: `, err.Error())
			require.False(t, strings.ContainsAny(err.Error(), "\n\r\x00"), "%q", err)
			return
		}
		if got != "" {
			_, err = Parse(got)
			require.NoError(t, err, "%q", got)
		}
	})
}
