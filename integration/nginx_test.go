//go:build linux

package integration

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
)

const nginxConfig = `
%s
daemon off;
worker_processes 1;
pid nginx.pid;
error_log stderr;
events { worker_connections 64; }
http {
  access_log off;
  sendfile on;
  client_body_temp_path tmp;
  proxy_temp_path tmp;
  fastcgi_temp_path tmp;
  uwsgi_temp_path tmp;
  scgi_temp_path tmp;
  server {
    listen 127.0.0.1:%d;
    root www;
  }
}
`

// startNginx starts a server for dir/www.
func startNginx(t *testing.T, dir string) (target string) {
	t.Helper()
	nginx := tool(t, "nginx")
	user := ""
	if os.Getuid() == 0 {
		user = "user root;" // else it switches to a user that may not read dir
	}
	// A port is free only until some process takes it. So a few are tried.
	for range 5 {
		port := freePort(t)
		config := fmt.Sprintf(nginxConfig, user, port)
		if err := os.WriteFile(filepath.Join(dir, "nginx.conf"), []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		p := start(t, nginx, []string{"-p", dir + "/", "-c", "nginx.conf", "-e", "stderr"})
		address := fmt.Sprintf("127.0.0.1:%d", port)
		for end := time.Now().Add(testTimeout); time.Now().Before(end) && !p.over(); time.Sleep(5 * time.Millisecond) {
			if c, err := net.Dial("tcp", address); err == nil {
				c.Close()
				return "tcp://" + address
			}
		}
		if !strings.Contains(p.out.String(), "in use") {
			t.Fatal("nginx does not answer")
		}
	}
	t.Fatal("nginx found no free port")
	return ""
}

// freePort returns a port of 127.0.0.1 that the system gives to nobody else during the test.
func freePort(t *testing.T) int {
	t.Helper()
	keep, _ := fabrictest.OwnPort(t, rand.New(rand.NewPCG(rand.Uint64(), 0)))
	t.Cleanup(func() { keep.Close() })
	return keep.Addr().(*net.TCPAddr).Port
}

// sparseFile makes a file with random stretches and holes, and returns its SHA-256.
func sparseFile(t *testing.T, path string, size int64) []byte {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	const stretches = 16
	random := rand.NewChaCha8([32]byte{2})
	b := make([]byte, 1<<20+1)
	for i := range int64(stretches) {
		random.Read(b)
		off := i*(size/stretches) + 12345*i // at no round offset
		if i == stretches-1 {
			off = size - int64(len(b)) // the file does not end with a hole
		}
		if _, err := f.WriteAt(b, off); err != nil {
			t.Fatal(err)
		}
	}
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(f, 0, size)); err != nil {
		t.Fatal(err)
	}
	return h.Sum(nil)
}

func TestNginxServesCurl(t *testing.T) {
	const size = 512 << 20
	if testing.Short() {
		t.Skip("512 MiB")
	}
	curl := tool(t, "curl")
	tool(t, "nginx")
	dir := shortDir(t)
	for _, d := range []string{"www", "tmp"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	want := sparseFile(t, filepath.Join(dir, "www", "big"), size)
	p := startPair(t, startNginx(t, dir))
	url := "http://" + net.JoinHostPort(p.host, p.port)

	got := &countedHash{Hash: sha256.New()}
	fetch(t, curl, got, url+"/big")
	if got.n != size || !bytes.Equal(got.Sum(nil), want) {
		t.Errorf("curl read %d bytes with SHA-256 %x, want %d with %x", got.n, got.Sum(nil), size, want)
	}

	// Two parts over one connection.
	got = &countedHash{Hash: sha256.New()}
	fetch(t, curl, got, "--range", fmt.Sprintf("%d-", size-100), url+"/big", url+"/big")
	if got.n != 200 {
		t.Errorf("curl read %d bytes of two ranges, want 200", got.n)
	}

	front, back := p.stop()
	for name, c := range map[string]counters{"front": front, "back": back} {
		if c.total != 2 || c.fromTarget < size || c.toTarget == 0 {
			t.Errorf("the %s proxy's counters do not cover the transfer: %+v", name, c)
		}
	}
}

// fetch runs curl, which must succeed without output.
func fetch(t *testing.T, curl string, to io.Writer, args ...string) {
	t.Helper()
	var errs strings.Builder
	cmd := exec.Command(curl, append([]string{"-q", "-sS", "--fail", "--noproxy", "*", "--max-time", "60"}, args...)...)
	cmd.Stdout, cmd.Stderr = to, &errs
	if err := cmd.Run(); err != nil || errs.Len() > 0 {
		t.Fatalf("curl %q: %v %s", args, err, errs.String())
	}
}

type countedHash struct {
	hash.Hash
	n int64
}

func (c *countedHash) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return c.Hash.Write(p)
}
