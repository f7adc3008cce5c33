package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/internal/flags"
	"github.com/ntbnet/ntbnet/internal/metrics"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/internal/tun"
	"github.com/ntbnet/ntbnet/sdp"
)

// Exit statuses.
const (
	statusOK     = 0
	statusFailed = 1 // it could not go on
	statusUsage  = 2 // it could not start
)

func main() {
	signal.Ignore(syscall.SIGPIPE, syscall.SIGHUP)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run runs the program, and returns its exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	logger := log.New(stderr, "sdp-tun: ", log.Lmsgprefix)
	o, err := parseOptions(args, stdout)
	if err != nil {
		return flags.Status("sdp-tun", err, stderr)
	}
	o.config.Logf = logger.Printf
	d := &daemon{options: o, out: stdout, log: logger}
	defer d.close()
	if err := d.start(ctx); err != nil {
		if ctx.Err() != nil {
			return statusOK
		}
		logger.Print(err)
		return statusUsage
	}
	if o.command != "" {
		return statusOK
	}
	if err := d.node.Run(ctx, d.fabric, d.listener); err != nil {
		logger.Printf("cannot go on: %v", err)
		return statusFailed
	}
	return statusOK
}

// daemon is what runs. What is nil has not been opened.
type daemon struct {
	*options
	out      io.Writer
	log      *log.Logger
	fabric   *sdp.Fabric
	node     *tun.Node
	listener *sdp.Listener
	web      *http.Server
}

// start does all that can fail: after it, only Run is left. For the commands it does everything.
func (d *daemon) start(ctx context.Context) error {
	spec, text, err := findFabric()
	if err != nil {
		return fmt.Errorf("cannot find the SDP fabric: %w", err)
	}
	c := &d.config
	c.Self, c.Nodes = spec.Node, spec.Nodes
	known := c.Self > 0 && c.Nodes > 0
	if !known && (d.command != "" || d.user != nil) {
		return fmt.Errorf("the fabric is %q: setup, remove, hosts and --user want node=I and nodes=N, as in SDP_FABRIC='ring:lab?node=1&nodes=3'", text)
	}
	if !known {
		if err := d.join(ctx, spec, text); err != nil {
			return err
		}
	}
	if err := c.Check(); err != nil {
		return err
	}
	switch d.command {
	case "setup":
		return tun.Setup(c, d.owner())
	case "remove":
		return tun.Remove(c)
	case "hosts":
		return c.WriteHosts(d.out)
	}
	if d.node, err = tun.Open(c); err != nil {
		return err
	}
	if err := d.user.become(); err != nil {
		return err
	}
	if d.fabric == nil {
		if err := d.join(ctx, spec, text); err != nil {
			return err
		}
	}
	if d.listener, err = d.node.Listen(ctx, d.fabric); err != nil {
		return fmt.Errorf("cannot listen: %w", err)
	}
	if err := d.serve(); err != nil {
		return err
	}
	d.log.Printf("node %d of %d of %s", c.Self, c.Nodes, spec.Whose())
	return nil
}

// findFabric returns the fabric of this process, with the text that names it.
func findFabric() (*spec.Spec, string, error) {
	text, _, err := spec.Default()
	if err != nil {
		return nil, "", err
	}
	spec, err := spec.Parse(text)
	return spec, text, err
}

// join joins the fabric, and finds out which node this is, and how many there are.
func (d *daemon) join(ctx context.Context, spec *spec.Spec, text string) error {
	if spec.Spin < 0 { // packets come from the kernel, by waits that do not spin
		text += map[bool]string{true: "&", false: "?"}[strings.Contains(text, "?")] + "spin=0"
	}
	var err error
	if d.fabric, err = sdp.Open(text); err != nil {
		return fmt.Errorf("cannot open the SDP fabric: %w", err)
	}
	for waits := false; ctx.Err() == nil; waits = true {
		nodes := d.fabric.Nodes()
		own := slices.IndexFunc(nodes, func(n sdp.Node) bool { return n.Up && n.Hops == 0 })
		if len(nodes) > 1 && own >= 0 {
			d.config.Self, d.config.Nodes = nodes[own].Number, len(nodes)
			return nil
		}
		if spec.Node == 0 && spec.Nodes == 0 {
			return nil // it has one node, of which Check complains
		}
		if !waits {
			d.log.Printf("waiting for the process that owns the links of node %d", spec.Node)
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// become makes this process one of a user, without capabilities.
func (a *account) become() error {
	if a == nil {
		return nil
	}
	err := syscall.Setgroups(a.groups)
	if err == nil {
		err = syscall.Setresgid(a.gid, a.gid, a.gid)
	}
	if err == nil {
		err = syscall.Setresuid(a.uid, a.uid, a.uid)
	}
	if err != nil {
		return fmt.Errorf("--user: %w; it needs root", err)
	}
	return nil
}

// serve serves the counters.
func (d *daemon) serve() error {
	if d.http == "" {
		return nil
	}
	ln, err := metrics.Listen(context.Background(), d.http)
	if err != nil {
		return fmt.Errorf("--http: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) { metrics.Respond(w, d.node.WriteMetrics) })
	d.web = metrics.Serve(ln, mux)
	return nil
}

// close closes what start opened.
func (d *daemon) close() {
	if d.web != nil {
		d.web.Close()
	}
	if d.listener != nil {
		d.listener.Close()
	}
	if d.fabric != nil {
		d.fabric.Close()
	}
	if d.node != nil {
		d.node.Close()
	}
}
