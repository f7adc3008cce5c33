//go:build linux

package integration

import (
	"crypto/sha256"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// staticClient is a program that knows only sockets. It prints what an HTTP server answers.
const staticClient = `package main

import (
	"fmt"
	"io"
	"net"
	"os"
)

func main() {
	c, err := net.Dial("tcp", os.Args[1])
	if err == nil {
		fmt.Fprint(c, "GET /stream?n=7 HTTP/1.0\r\n\r\n")
		_, err = io.Copy(os.Stdout, c)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
`

// server is what a client asks for.
const server = "http://10.77.0.2:8080/stream?n=5"

// redirected are two nodes without a network between them. On the first one rules redirect what goes to the second
// one's addresses to a transparent proxy.
type redirected struct {
	t     *testing.T
	one   *tunNode
	dir   string
	front *configured
}

// newRedirected starts a web server of package sdp on the second node. options are the fabric's.
func newRedirected(t *testing.T, options string) *redirected {
	nft := tool(t, "nft")
	for _, name := range []string{"ip", "nginx", "curl"} {
		tool(t, name)
	}
	dir, exe := shop(t)
	nodes := newTunNodes(t, 2, "line:"+dir+"?node=%d&nodes=2&host1=10.77.0.1,fd77::1&host2=10.77.0.2,fd77::2"+options)
	r := &redirected{t: t, one: nodes[0], dir: shortDir(t)}
	if p := start(t, nft, []string{"list", "ruleset"}, r.one.within()); p.status() != 0 {
		fmt.Printf("WARNING: %s is skipped: %s\n", t.Name(), strings.TrimSpace(p.out.String()))
		t.Skip(p.out.String())
	}
	for _, n := range nodes {
		for _, format := range []string{"addr add 10.77.0.%d/32 dev lo", "addr add fd77::%d/128 dev lo"} {
			n.run("ip", words(fmt.Sprintf(format, n.number))...)
		}
	}
	for _, route := range []string{"10.77.0.0/24", "fd77::/64", "10.79.0.0/24"} {
		r.one.run("ip", "route", "add", route, "dev", "lo")
	}
	s := startCaged(t, exe, strings.TrimPrefix(nodes[1].fabric, "SDP_FABRIC="), cage{UID: userB, Groups: inShop, Net: nodes[1].namespace()})
	s.meets("http tcp [::]:8080")
	t.Cleanup(s.end)
	return r
}

// starts starts the proxy of docs/proxy.md on the first node, and its rules, which leave out a user.
func (r *redirected) starts(uid, leftOut int) {
	r.t.Helper()
	r.front = &configured{file: filepath.Join(r.t.TempDir(), "proxy.yaml")}
	files := documentedFiles(r.t, "proxy.md")
	r.front.write(r.t, files["/etc/ntbnet/transparent.yaml"])
	for path := r.front.file; path != os.TempDir() && path != "/"; path = filepath.Dir(path) { // the user must get there
		require.NoError(r.t, os.Chmod(path, 0o755))
	}
	r.front.proxy = &proxy{process: start(r.t, filepath.Join(programs, "sdp-proxy"), []string{"--config", r.front.file}, withEnv(r.one.fabric), cage{UID: uid, Groups: inShop, Net: r.one.namespace()}.option())}
	r.front.waitFor(readyLine, 2)
	rules := filepath.Join(r.dir, "rules")
	text := strings.ReplaceAll(files["/etc/ntbnet/transparent.nft"], `"sdp-proxy"`, fmt.Sprint(leftOut))
	require.NoError(r.t, os.WriteFile(rules, []byte(text), 0o600))
	r.one.run("nft", "-f", rules)
	eventually(r.t, "the server answers", func() bool {
		return start(r.t, tool(r.t, "curl"), []string{"-sf", "--noproxy", "*", server}, r.one.within()).status() == 0
	})
}

// logs waits for a line of the proxy.
func (r *redirected) logs(line string) {
	r.t.Helper()
	r.front.waitFor(regexp.MustCompile("(?m)"+line), 1)
}

// resets connects from the first node, and waits for a reset.
func (r *redirected) resets(address string) {
	r.t.Helper()
	r.one.do(func() { wantRefused(r.t, "tcp", address) })
}

// refuses connects until the log says why that is refused: it has one such line a second.
func (r *redirected) refuses(address, line string) {
	r.t.Helper()
	eventually(r.t, address+" is refused", func() bool {
		r.resets(address)
		return regexp.MustCompile(`(?m)end=refused .*` + line).MatchString(r.front.out.String())
	})
}

// Programs that cannot be changed, nor preloaded, reach the addresses of the hosts table by SDP: a static one, one that waits by
// epoll in a process that it has forked, and one of another runtime. Nothing else is reached.
func TestRedirectedClientsOfANamespace(t *testing.T) {
	r := newRedirected(t, "&fallback=0")
	r.starts(userA, userA)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "client.go"), []byte(staticClient), 0o600))
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "client"), filepath.Join(dir, "client.go"))
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	binary, err := elf.Open(filepath.Join(dir, "client"))
	require.NoError(t, err)
	defer binary.Close()
	for _, part := range binary.Progs {
		require.NotEqual(t, elf.PT_INTERP, part.Type, "it is static")
	}
	const size = 32 << 20
	sum := sha256.New()
	_, err = io.CopyN(sum, newStream(1), size)
	require.NoError(t, err)
	for _, host := range []string{"10.77.0.2", "[fd77::2]"} {
		require.Regexp(t, `^HTTP/1.0 200 OK(?s:.*)\r\n\r\n(?s:.{7})$`, r.one.run(filepath.Join(dir, "client"), host+":8080"))
		got := filepath.Join(dir, "got")
		r.curl("-g", "-o", got, "http://"+host+":8080/stream?n="+fmt.Sprint(size))
		requireSum(t, sum.Sum(nil), got)
		r.logs(`end=closed map=\S+:7999 client=\S+ client_by=tcp target=\S+` + regexp.QuoteMeta(host) + `:8080 target_by=sdp .* from_target=335\d{5} `)
	}
	r.startNginx()
	got := r.curl("http://127.0.0.1:8080/stream?n=9")
	require.Len(t, got, 9)

	// No open relay.
	r.one.run("nft", "add", "element", "inet", "sdp-proxy", "hosts", "{ 10.79.0.9 }")
	r.refuses("10.79.0.9:80", `target=tcp://10.79.0.9:80 .* cause="transparent: not an address of the fabric's hosts"`)
	r.refuses("127.0.0.1:7999", `map=tcp://127.0.0.1:7999 .* cause="transparent: nothing redirected it"`)
	r.refuses("[::1]:7999", `map="?tcp://\[::1\]:7999"? .* cause="transparent: nothing redirected it"`)

	// It stays as it is until a restart.
	r.front.write(t, "maps: [{listen: 'tcp://127.0.0.1:7999', target: 'sdp://node2:80'}]")
	r.front.signal(syscall.SIGHUP)
	r.front.waitFor(regexp.MustCompile(`nothing is changed" reason="tcp://127.0.0.1:7999 is transparent, or was: `), 1)

	r.one.run("nft", "delete", "table", "inet", "sdp-proxy")
	require.Empty(t, r.one.run("nft", "list", "ruleset"))
	r.front.signal(syscall.SIGTERM)
	require.Zero(t, r.front.status())
}

// Rules that redirect what the proxy itself dials by TCP make a loop, which ends at once.
func TestRedirectedProxyOfANamespace(t *testing.T) {
	r := newRedirected(t, "")
	r.starts(userB, userA)
	r.resets("10.77.0.2:81")
	r.logs(`end=failed .* target=tcp://10.77.0.2:81 .* by=proxy cause="transparent: rules redirect the proxy's own connections; have them leave out its user"$`)
	require.Len(t, r.curl(server), 5, "by SDP there is no loop")
	r.front.signal(syscall.SIGTERM)
	require.Zero(t, r.front.status())
}

// startNginx has nginx of the first node, at its port 8080, ask the second one. Its worker is a process that it has forked.
func (r *redirected) startNginx() {
	r.t.Helper()
	require.NoError(r.t, os.Mkdir(filepath.Join(r.dir, "tmp"), 0o700))
	config := strings.Replace(fmt.Sprintf(nginxConfig, "user root;", 8080), "root www;", "location / { proxy_pass http://10.77.0.2:8080; }", 1)
	require.NoError(r.t, os.WriteFile(filepath.Join(r.dir, "nginx.conf"), []byte(config), 0o600))
	start(r.t, tool(r.t, "nginx"), []string{"-p", r.dir + "/", "-c", "nginx.conf", "-e", "stderr"}, r.one.within())
	eventually(r.t, "nginx answers", func() bool { return tunAnswers(r.one, "127.0.0.1:8080") })
}

// curl runs curl on the first node.
func (r *redirected) curl(args ...string) string {
	r.t.Helper()
	return r.one.run("curl", append([]string{"-q", "-sS", "--fail", "--noproxy", "*", "--max-time", "60"}, args...)...)
}
