//go:build linux

package integration

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/ntbnet/ntbnet/internal/metrics"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

var (
	readAgain  = regexp.MustCompile(`(?m) msg="read again" file=(\S+)$`)
	notChanged = regexp.MustCompile(`(?m) msg="nothing is changed" reason="(.*)"$`)
)

// configured is a proxy that has its maps from a file.
type configured struct {
	*proxy
	file string
}

// startConfigured starts a proxy with a file, which has so many targets.
func startConfigured(t *testing.T, text string, targets int) *configured {
	t.Helper()
	c := &configured{file: filepath.Join(t.TempDir(), "proxy.yaml")}
	c.write(t, text)
	c.proxy = &proxy{process: start(t, filepath.Join(programs, "sdp-proxy"), []string{"--config", c.file}, withEnv(fabric(t)))}
	for _, m := range c.waitFor(readyLine, targets) {
		c.listening = append(c.listening, m[1])
	}
	return c
}

func (c *configured) write(t *testing.T, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(c.file, []byte(text), 0o600))
}

// reload has the proxy read a text, and waits until it has done so n times.
func (c *configured) reload(text string, n int) {
	c.t.(*testing.T).Helper()
	c.write(c.t.(*testing.T), text)
	c.signal(syscall.SIGHUP)
	c.waitFor(readAgain, n)
}

// dialTo connects to "NETWORK://ADDRESS".
func dialTo(t *testing.T, at string) net.Conn {
	t.Helper()
	return (&proxy{process: &process{t: t}, listening: []string{at}}).dial(0)
}

// SIGHUP reads the file again: new maps take effect, removed ones listen no more, and what is open goes on.
func TestSIGHUPReadsTheFileAgain(t *testing.T) {
	target, dir := echo(t), shortDir(t)
	oneMap := func(listen, target string) string { return "- listen: " + listen + "\n  target: " + target + "\n" }
	a, b, s := "unix://"+dir+"/a", "unix://"+dir+"/b", "sdp://localhost:0"
	p := startConfigured(t, "maps:\n"+oneMap(a, target)+oneMap(s, target), 2)
	old := dialTo(t, a)
	mustEcho(t, old, "before")

	p.reload("maps:\n"+oneMap(b, target)+oneMap(s, target), 1)
	mustEcho(t, old, "of a removed map")
	_, err := net.Dial("unix", dir+"/a")
	require.Error(t, err)
	other := dialTo(t, b)
	mustEcho(t, other, "of a new map")

	for i, bad := range []string{"maps:\n" + oneMap(a, target) + "  port: 7\n", "maps: []", "maps:\n" + oneMap("unix://"+dir+"/none/s", target), "maps:\n" + oneMap(b, b)} {
		p.write(t, bad)
		p.signal(syscall.SIGHUP)
		lines := p.waitFor(notChanged, i+1)
		if i == 0 {
			require.Equal(t, p.file+`:4:3: unknown key \"port\" of a map`, lines[0][1])
		}
		mustEcho(t, other, "still")
		mustEcho(t, dialTo(t, b), "served")
	}

	// A map may lead to what another one listens on, as long as it does not come back.
	p.reload("maps:\n"+oneMap(b, target)+oneMap(a, b), 2)
	mustEcho(t, dialTo(t, a), "through both")
	closeBothWays(t, old)
	closeBothWays(t, other)
	p.signal(syscall.SIGTERM)
	p.waitFor(regexp.MustCompile(` msg=stopping `), 1)
	p.signal(syscall.SIGTERM) // the others are open
	require.Zero(t, p.status())
}

// Of a changed map, new connections go to the new target, and old ones are cut when their time is over.
func TestConnectionsOfAChangedMapHaveTheDrainTime(t *testing.T) {
	socket := "unix://" + shortDir(t) + "/s"
	text := func(target, drain string) string {
		return "maps: [{listen: '" + socket + "', target: '" + target + "'}]\ndrain-timeout: " + drain
	}
	p := startConfigured(t, text(echo(t), "1h"), 1)
	old := dialTo(t, socket)
	mustEcho(t, old, "before")
	p.reload(text("tcp://127.0.0.1:1", "1h"), 1)
	wantRefused(t, "unix", strings.TrimPrefix(socket, "unix://"))
	mustEcho(t, old, "still")
	p.reload(text(echo(t), "10ms"), 2)
	if n, err := old.Read(make([]byte, 1)); err == nil {
		t.Errorf("read %d bytes, want the end", n)
	}
	mustEcho(t, dialTo(t, socket), "new")
	p.signal(syscall.SIGTERM)
	require.Zero(t, p.status())
}

func TestCheckSaysWhetherAFileIsRight(t *testing.T) {
	file := filepath.Join(t.TempDir(), "proxy.yaml")
	require.NoError(t, os.WriteFile(file, []byte("maps:\n- listen: sdp://:7000\n  target: tcp://127.0.0.1:6379\n"), 0o600))
	require.Equal(t, file+": 1 maps\n", command(t, filepath.Join(programs, "sdp-proxy"), "check", file))
	require.NoError(t, os.WriteFile(file, []byte("maps:\n- listen: sdp://:7000\n  taget: tcp://127.0.0.1:6379\n"), 0o600))
	refused(t, "sdp-proxy: "+file+`:3:3: unknown key "taget" of a map`, []string{"check", file})
	refused(t, "sdp-proxy: "+file+`:3:3: unknown key "taget" of a map`, []string{"--config", file})
}

// What cannot be in the fabric is refused by check, which joins none, also while a proxy owns the links of the same node.
func TestCheckRefusesWhatTheFabricHasNot(t *testing.T) {
	dir := filepath.Join(shortDir(t), "f")
	require.NoError(t, os.Mkdir(dir, 0o700))
	fabric := "SDP_FABRIC=line:" + dir + "?node=1&nodes=2&host2=storage.example"
	file := filepath.Join(t.TempDir(), "proxy.yaml")
	check := func(listen, target string) (status int, out string) {
		text := "maps: [{listen: '" + listen + "', target: '" + target + "'}]\n"
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		p := start(t, filepath.Join(programs, "sdp-proxy"), []string{"check", file}, withEnv(fabric))
		return p.status(), p.out.String()
	}
	for _, running := range []bool{false, true} {
		if running {
			left, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Empty(t, left, "check has left something")
			owner := start(t, filepath.Join(programs, "sdp-proxy"), []string{"--own"}, withEnv(fabric))
			owner.waitFor(regexp.MustCompile(`"owning the links"`), 1)
		}
		for _, target := range []string{"node1:7", "node2:7", "2:7", "localhost:7", "storage.example:7", "127.0.0.1:7"} {
			status, out := check("sdp://node1:7000", "sdp://"+target)
			require.Zero(t, status, out)
		}
		for _, target := range []string{"node3:7", "192.0.2.1:7", "other.invalid:7"} {
			status, out := check("tcp://:7000", "sdp://"+target)
			require.Equal(t, 2, status)
			require.Regexp(t, `^sdp-proxy: `+file+`: map tcp://:7000=sdp://`+target+`: the target cannot be: no node ".*" in this fabric, which has node1 to node2: no route to host\n$`, out)
		}
		status, out := check("sdp://node2:7000", "tcp://127.0.0.1:7")
		require.Equal(t, 2, status)
		require.Equal(t, "sdp-proxy: "+file+": cannot listen on sdp://node2:7000: cannot assign requested address; this machine has no such address\n", out)
	}
}

// feed opens a FIFO for writing, once somebody has opened it for reading.
func feed(t *testing.T, fifo string) *os.File {
	t.Helper()
	var f *os.File
	eventually(t, "the file is opened", func() (ok bool) {
		var err error
		f, err = os.OpenFile(fifo, os.O_WRONLY|unix.O_NONBLOCK, 0)
		return err == nil
	})
	t.Cleanup(func() { f.Close() })
	return f
}

// While its file does not come, at the start or again, sdp-proxy ends by SIGTERM and serves what it has.
func TestAFileThatDoesNotComeHoldsNothingUp(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	require.NoError(t, unix.Mkfifo(fifo, 0o600))
	p := start(t, filepath.Join(programs, "sdp-proxy"), []string{"--config", fifo}, withEnv(fabric(t)))
	feed(t, fifo)
	p.signal(syscall.SIGTERM)
	p.status()

	c := startConfigured(t, "maps: [{listen: 'unix://"+shortDir(t)+"/s', target: '"+echo(t)+"'}]", 1)
	require.NoError(t, os.Remove(c.file))
	require.NoError(t, unix.Mkfifo(c.file, 0o600))
	c.signal(syscall.SIGHUP)
	feed(t, c.file)
	conn := c.dial(0)
	mustEcho(t, conn, "served")
	closeBothWays(t, conn)
	c.signal(syscall.SIGTERM)
	require.Zero(t, c.status())
}

// Each file that is refused is counted.
func TestRefusedFilesAreCounted(t *testing.T) {
	dir := shortDir(t)
	good := "metrics: 'unix:" + dir + "/m'\nmaps: [{listen: 'unix://" + dir + "/s', target: '" + echo(t) + "'}]\n"
	p := startConfigured(t, good, 1)
	for i, spoil := range []func(){
		func() { p.write(t, good+"nonsense: 1") },
		func() { p.write(t, good[:len(good)/2]) },
		func() { p.write(t, "") },
		func() { require.NoError(t, os.Remove(p.file)) },
		func() { require.NoError(t, os.Mkdir(p.file, 0o700)) },
	} {
		spoil()
		p.signal(syscall.SIGHUP)
		p.waitFor(notChanged, i+1)
	}
	require.NoError(t, os.Remove(p.file))
	p.reload(good, 1)
	r, err := metrics.Client("unix:" + dir + "/m").Get("http://proxy/metrics")
	require.NoError(t, err)
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	require.Contains(t, string(text), "sdp_proxy_reloads_total{result=\"taken\"} 1\nsdp_proxy_reloads_total{result=\"refused\"} 5\n")
	p.signal(syscall.SIGTERM)
	require.Zero(t, p.status())
}
