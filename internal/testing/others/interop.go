package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// latency is how many milliseconds a call of a soak case may take. It is long, so
// that no case depends on how busy the machine is.
const latency = "60000"

// interop compares the cases of gRPC's interop client against its interop server, each a
// process of its own. The cases and arguments are those of the project's own script.
func interop(ctx context.Context, t *transports) (*comparison, error) {
	src := t.sdp.src
	text, err := os.ReadFile(filepath.Join(src.dir, "interop", "interop_test.sh"))
	if err != nil {
		return nil, err
	}
	list := regexp.MustCompile(`(?s)\nCASES=\((.*?)\)`).FindSubmatch(text)
	if list == nil {
		return nil, fmt.Errorf("interop_test.sh has no list of cases")
	}
	var cases []string
	for _, f := range strings.Fields(string(list[1])) {
		cases = append(cases, strings.Trim(f, `"`))
	}
	packages, err := src.list(ctx, []string{"./interop/client", "./interop/server"})
	if err != nil {
		return nil, err
	}
	for _, p := range packages {
		if err := src.patchPackage(p); err != nil {
			return nil, err
		}
	}
	if err := src.writeOverlay(); err != nil {
		return nil, err
	}
	var both [2]results
	for i, r := range []*runner{t.tcp, t.sdp} {
		bin := filepath.Join(src.tmp, fmt.Sprintf("bin%d", i))
		if err := r.build(ctx, bin, "./interop/client", "./interop/server"); err != nil {
			return nil, err
		}
		if both[i], err = r.cases(ctx, bin, cases); err != nil {
			return nil, err
		}
	}
	c := &comparison{tcp: both[0], sdp: both[1]}
	for _, d := range differing(c.tcp, c.sdp) {
		why, ok := reason(d)
		c.rows = append(c.rows, row{test: d, tcp: c.tcp[d].String(), sdp: c.sdp[d].String(),
			note: why, bad: !ok, output: c.sdp.of(d).output})
	}
	return c, nil
}

// build builds commands into a directory.
func (r *runner) build(ctx context.Context, dir string, packages ...string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	args := append([]string{"build", "-o", dir + "/"}, r.args...)
	_, err := output(ctx, r.src.dir, "go", append(args, packages...)...)
	return err
}

// cases runs the server, and the client once for each case.
func (r *runner) cases(ctx context.Context, bin string, names []string) (results, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	serving, cancel := context.WithCancel(ctx)
	server := newCommand(serving, filepath.Join(bin, "server"), "--use_tls", "--port="+port)
	server.Dir = r.src.dir
	server.Env = environ(r.env...)
	server.Stdout, server.Stderr = r.log, r.log
	if err := server.Start(); err != nil {
		cancel()
		return nil, err
	}
	defer func() {
		cancel()
		wait(serving, server) // says how it was made to end
	}()
	// The server listens after some time.
	for end := time.Now().Add(r.timeout); ; time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial("tcp", "localhost:"+port)
		if err == nil {
			c.Close()
			break
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("the interop server does not listen: %w", err)
		}
	}
	all := results{}
	for _, name := range names {
		running, cancel := context.WithTimeout(ctx, r.timeout)
		client := newCommand(running, filepath.Join(bin, "client"), "--use_tls", "--use_test_ca",
			"--server_host_override=foo.test.google.fr", "--server_port="+port, "--test_case="+name,
			"--soak_per_iteration_max_acceptable_latency_ms="+latency, "--soak_overall_timeout_seconds=600",
			`--service_config_json={ "loadBalancingConfig": [{ "test_backend_metrics_load_balancer": {} }]}`)
		client.Dir = r.src.dir
		client.Env = environ(r.env...)
		var out bytes.Buffer
		client.Stdout, client.Stderr = &out, &out
		err := client.Start()
		if err == nil {
			err = wait(running, client)
		}
		cancel()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		r.log.Write(out.Bytes())
		sum := all.of(test{"interop", name})
		sum.output = out.String()
		if err != nil {
			sum.failed++
		} else {
			sum.passed++
		}
	}
	return all, nil
}

// freePort returns a port that nothing listens on now.
func freePort() (string, error) {
	ln, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(ln.Addr().String())
	ln.Close()
	return port, err
}
