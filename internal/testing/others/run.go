package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// test names a test, or a package if the name is empty.
type test struct{ pkg, name string }

func (t test) String() string {
	if t.name == "" {
		return t.pkg
	}
	return t.pkg + " " + t.name
}

// top returns the test that a subtest belongs to.
func (t test) top() string {
	name, _, _ := strings.Cut(t.name, "/")
	return name
}

// tally counts the results of a test.
type tally struct {
	passed, failed, skipped, died int
	output                        string // of the last run
}

// String returns the result that counts most.
func (t *tally) String() string {
	switch {
	case t == nil:
		return "-"
	case t.died > 0:
		return "died"
	case t.failed > 0:
		return "fail"
	case t.skipped > 0:
		return "skip"
	}
	return "pass"
}

// results are the results of one or more runs.
type results map[test]*tally

func (r results) of(t test) *tally {
	if r[t] == nil {
		r[t] = &tally{}
	}
	return r[t]
}

// any reports whether any test has passed.
func (r results) any() bool {
	for t, sum := range r {
		if t.name != "" && sum.passed > 0 {
			return true
		}
	}
	return false
}

// output is what was said by all that failed.
func (r results) output() string {
	var all strings.Builder
	for _, sum := range r {
		if sum.failed+sum.died > 0 {
			all.WriteString(sum.output)
		}
	}
	return all.String()
}

// runner runs tests over one transport.
type runner struct {
	src *source
	options
	args []string // for the go command
	env  []string // added to the usual environment
}

// maxDeaths is how many tests of a package may end the binary.
const maxDeaths = 16

// run runs the tests of packages. It runs packages whose binary died again, without the
// tests that killed it.
func (r *runner) run(ctx context.Context, patterns []string) (results, error) {
	all := results{}
	dead, err := r.once(ctx, all, patterns)
	if err != nil {
		return nil, err
	}
	for pkg, names := range dead {
		skip := names
		for len(names) > 0 && len(skip) <= maxDeaths {
			var again map[string][]string
			one := results{}
			again, err = r.once(ctx, one, []string{pkg}, "-skip=^("+strings.Join(skip, "|")+")$")
			if err != nil {
				return nil, err
			}
			maps.DeleteFunc(all, func(t test, _ *tally) bool { return t.pkg == pkg && !slices.Contains(skip, t.top()) })
			maps.Copy(all, one)
			names = again[pkg]
			skip = append(skip, names...)
		}
	}
	return all, nil
}

// event is a line of go test -json.
type event struct {
	Action, Package, Test, Output string
}

// once runs the tests of packages and adds their results to into. It returns the tests
// that killed the binary of a package.
func (r *runner) once(ctx context.Context, into results, patterns []string, more ...string) (dead map[string][]string, err error) {
	args := slices.Concat([]string{"test", "-json", "-vet=off", "-count=1", "-timeout=" + r.timeout.String()}, r.args, more)
	if r.short {
		args = append(args, "-short")
	}
	if r.only != "" && !slices.ContainsFunc(more, func(s string) bool { return strings.HasPrefix(s, "-run=") }) {
		args = append(args, "-run="+r.only)
	}
	cmd := newCommand(ctx, "go", append(args, patterns...)...)
	cmd.Dir = r.src.dir
	cmd.Env = environ(r.env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, w := io.Pipe()
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() {
		ended <- wait(ctx, cmd) // fails if a test does
		w.Close()
	}()
	packages := map[string]*progress{}
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) == nil && e.Package != "" {
				r.log.Write([]byte(e.Output))
				if packages[e.Package] == nil {
					packages[e.Package] = newProgress()
				}
				packages[e.Package].add(e)
			} else {
				r.log.Write(line)
			}
		}
		if err != nil {
			break
		}
	}
	err = <-ended
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if len(packages) == 0 {
		return nil, fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, stderr.Bytes())
	}
	r.log.Write(stderr.Bytes())
	dead = map[string][]string{}
	for pkg, p := range packages {
		if names := p.finish(pkg, into); len(names) > 0 {
			dead[pkg] = names
		}
	}
	return dead, nil
}

// progress is what a package's tests have printed so far.
type progress struct {
	results map[string]*tally
	output  map[string]*strings.Builder // by test; "" for the package itself
	running map[string]bool
	failed  bool // the package has failed
}

func newProgress() *progress {
	return &progress{results: map[string]*tally{}, output: map[string]*strings.Builder{"": {}}, running: map[string]bool{}}
}

func (p *progress) add(e event) {
	if e.Action == "output" {
		if p.output[e.Test] == nil {
			p.output[e.Test] = &strings.Builder{}
		}
		p.output[e.Test].WriteString(e.Output)
		return
	}
	if e.Test == "" {
		p.failed = p.failed || e.Action == "fail"
		return
	}
	if p.results[e.Test] == nil {
		p.results[e.Test] = &tally{}
	}
	t := p.results[e.Test]
	switch e.Action {
	case "run":
		p.running[e.Test] = true
		return
	case "pass":
		t.passed++
	case "fail":
		t.failed++
	case "skip":
		t.skipped++
	default:
		return
	}
	delete(p.running, e.Test)
}

var (
	diedOf  = regexp.MustCompile(`(?m)^(panic: |fatal error: |SIG[A-Z]+: |exit status 2$|signal: )`)
	hanging = regexp.MustCompile(`(?m)^\t\t?((?:Test|Example|Fuzz)\S*) \(`)
)

// finish adds the results of the package to into, at the end of its output. The package
// itself has passed unless it failed without a test that did. finish returns the names of
// the tests that killed the binary, as regular expressions.
func (p *progress) finish(pkg string, into results) (dead []string) {
	any := false // test has failed
	for name, t := range p.results {
		any = any || t.failed > 0
		if p.running[name] {
			continue
		}
		sum := into.of(test{pkg, name})
		sum.passed += t.passed
		sum.failed += t.failed
		sum.skipped += t.skipped
		if out := p.output[name]; out != nil {
			sum.output = out.String()
		}
	}
	all := ""
	for _, out := range p.output {
		all += out.String()
	}
	died := p.failed && (len(p.running) > 0 || diedOf.MatchString(all))
	own := into.of(test{pkg, ""})
	if !died && p.failed && !any {
		own.failed++ // it was not built, or TestMain failed
		own.output = p.output[""].String()
	} else {
		own.passed++
	}
	if !died {
		return nil
	}
	names := map[string]string{} // tests that killed it, with their output
	for name, out := range p.output {
		if _, after, timeout := strings.Cut(out.String(), "panic: test timed out"); timeout {
			for _, m := range hanging.FindAllStringSubmatch(after, -1) {
				names[test{pkg, m[1]}.top()] = out.String()
			}
		} else if name != "" && diedOf.MatchString(out.String()) {
			names[test{pkg, name}.top()] = out.String()
		}
	}
	if len(names) == 0 {
		for name := range p.running {
			names[test{pkg, name}.top()] = p.output[""].String()
		}
	}
	if len(names) == 0 {
		own.died++
		own.output = all
		return nil
	}
	for name, out := range names {
		sum := into.of(test{pkg, name})
		sum.died++
		sum.output = out
		dead = append(dead, regexp.QuoteMeta(name))
	}
	return dead
}

// transports are the two runners of a suite.
type transports struct {
	tcp, sdp *runner
	log      string // where connections are counted
}

func newTransports(s *source, fabric string, o options) (*transports, error) {
	t := &transports{log: filepath.Join(s.tmp, "connections")}
	if err := os.WriteFile(t.log, nil, 0o600); err != nil {
		return nil, err
	}
	t.tcp = &runner{src: s, options: o, args: s.mod}
	ours := slices.Concat(s.mod, []string{"-overlay=" + filepath.Join(s.tmp, "overlay.json")})
	t.sdp = &runner{src: s, options: o, args: ours, env: []string{"SDP_FABRIC=shm:" + fabric, "NTBNET_OTHERS_LOG=" + t.log}}
	return t, nil
}

// connections returns how many connections were made so far, by "sdp" and "tcp",
// and how many listeners, by "listen".
func (t *transports) connections() (map[string]int, error) {
	text, err := os.ReadFile(t.log)
	if err != nil {
		return nil, err
	}
	n := map[string]int{}
	for line := range strings.Lines(string(text)) {
		n[strings.TrimSuffix(line, "\n")]++
	}
	return n, nil
}
