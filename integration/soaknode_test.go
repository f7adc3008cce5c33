//go:build linux

package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/sdp"
)

// soakLimit is how long an operation may take where no process is killed or
// stopped.
const soakLimit = 60 * time.Second

// soakNode is a process of the soak test. It serves the loads on one port, and HTTP
// on the next one, and dials other processes.
type soakNode struct {
	fabric  *sdp.Fabric
	targets []soakTarget
	pace    soakPace

	mu     sync.Mutex
	report soakReport           // guarded by mu
	begun  map[string]time.Time // start of the operations under way, by name; guarded by mu
}

type soakTarget struct {
	name, address, web string
	shaky              bool // the process, or the way to it, is killed or stopped at times
}

// soakReport is what a process has done.
type soakReport struct {
	Done    map[string]int // by load: operations that went well
	Failed  map[string]int // by load: operations with an error that is allowed
	Bad     []string       // errors that are not allowed
	Oldest  time.Duration  // age of the oldest operation under way
	Longest time.Duration  // longest operation that ended, where no process is killed or stopped
	CPU     time.Duration  // of the process, so far
	Held    soakHeld
}

func (r soakReport) String() string {
	return fmt.Sprintf("done %v failed %v cpu %v longest %v held %v",
		r.Done, r.Failed, r.CPU.Round(time.Second), r.Longest.Round(time.Millisecond), r.Held.numbers())
}

// playSoak serves and, when told to, dials. Its arguments are the fabric, the port,
// and the addresses to dial.
func playSoak(p *self) error {
	f, err := sdp.Open(p.args[0])
	if err != nil {
		return err
	}
	defer f.Close()
	n := &soakNode{fabric: f, begun: map[string]time.Time{}, report: soakReport{Done: map[string]int{}, Failed: map[string]int{}}}
	for _, a := range p.args[2:] {
		address, shaky := strings.CutSuffix(a, "?")
		host, _, _ := strings.Cut(address, ":")
		n.targets = append(n.targets, soakTarget{host, address, host + ":80", shaky})
	}
	stop, err := n.serve(p.args[1])
	if err != nil {
		return err
	}
	defer stop()
	p.printf("ready")
	pause := func() {}
	defer func() { pause() }()
	for {
		line, ok := p.readLine()
		if !ok {
			return nil
		}
		switch line {
		case "load":
			pause = n.load()
			p.printf("loaded")
		case "pause":
			pause()
			pause = func() {}
			p.printf("paused")
		case "touch":
			if err := n.touch(); err != nil {
				p.printf("%v", err)
			} else {
				p.printf("ok")
			}
		case "report":
			err = printJSON(p, n.takeReport)
		case "measure":
			err = printJSON(p, settledHeld)
		}
		if err != nil {
			return err
		}
	}
}

func printJSON[T any](p *self, take func() (T, error)) error {
	v, err := take()
	if err != nil {
		return err
	}
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	p.printf("%s", b)
	return nil
}

func (n *soakNode) takeReport() (soakReport, error) {
	held, err := takeHeld()
	n.mu.Lock()
	defer n.mu.Unlock()
	r := n.report
	r.Done, r.Failed, r.Bad = maps.Clone(r.Done), maps.Clone(r.Failed), slices.Clone(r.Bad)
	r.Held, r.CPU = held, processCPU()
	for _, begun := range n.begun {
		r.Oldest = max(r.Oldest, time.Since(begun))
	}
	return r, err
}

// load starts one worker for each kind of load and target. It returns a function
// that stops them and waits until they have stopped.
func (n *soakNode) load() (pause func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var workers sync.WaitGroup
	for _, target := range n.targets {
		for _, name := range soakLoads {
			workers.Go(func() { n.work(ctx, name, target) })
		}
	}
	return func() {
		cancel()
		workers.Wait()
	}
}

func (n *soakNode) work(ctx context.Context, name string, target soakTarget) {
	load, done := newLoad(name, n, target)
	defer done()
	for ctx.Err() == nil {
		key := name + " " + target.address
		begun := time.Now()
		n.mu.Lock()
		n.begun[key] = begun
		n.mu.Unlock()
		err := load()
		n.mu.Lock()
		delete(n.begun, key)
		n.mu.Unlock()
		n.note(name, target, time.Since(begun), err)
		if err != nil {
			time.Sleep(50 * time.Millisecond)
		}
		n.pace.wait(ctx)
	}
}

// note counts the outcome of an operation.
func (n *soakNode) note(name string, target soakTarget, took time.Duration, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !target.shaky {
		n.report.Longest = max(n.report.Longest, took)
	}
	switch {
	case err == nil:
		n.report.Done[name]++
	case !target.shaky || neverAllowed(err):
		if len(n.report.Bad) < 10 {
			n.report.Bad = append(n.report.Bad, fmt.Sprintf("%s %s to %s: %v", time.Now().Format(time.TimeOnly), name, target.address, err))
		}
	default:
		n.report.Failed[name]++
	}
}

// neverAllowed reports whether an error is one that no kill explains: wrong bytes,
// or memory of a window that was not freed.
func neverAllowed(err error) bool {
	return errors.Is(err, errWrongBytes) || errors.Is(err, syscall.ENOBUFS)
}

// limit returns how long an operation may take.
func (n *soakNode) limit(target soakTarget) time.Duration {
	if target.shaky {
		return soakLimit / 4
	}
	return soakLimit
}

func (n *soakNode) dial(target soakTarget) (*sdp.Conn, error) {
	limit := n.limit(target)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	c, err := n.fabric.DialContext(ctx, "sdp", target.address)
	if err != nil {
		return nil, err
	}
	return c.(*sdp.Conn), c.SetDeadline(time.Now().Add(limit))
}

// touch reaches every target once. All of them run.
func (n *soakNode) touch() error {
	for _, target := range n.targets {
		var err error
		for end := time.Now().Add(soakLimit / 2); ; time.Sleep(10 * time.Millisecond) {
			if err = n.once(target); err == nil || time.Now().After(end) {
				break
			}
		}
		if err != nil {
			return fmt.Errorf("touch %s: %w", target.address, err)
		}
	}
	return nil
}

// soakPace limits a process to a part of a processor. Its zero value is ready to
// use.
type soakPace struct {
	mu   sync.Mutex
	last time.Time     // guarded by mu
	used time.Duration // CPU time at last; guarded by mu
	left time.Duration // CPU time that may be used now; guarded by mu
}

const (
	soakShare = 6               // that part, in percent
	soakTurn  = 2 * time.Second // a worker waits no longer, since others may use up the part
)

func (p *soakPace) wait(ctx context.Context) {
	for end := time.Now().Add(soakTurn); ctx.Err() == nil && time.Now().Before(end); {
		// Each wait is short, so that no worker gets the whole part.
		time.Sleep(5*time.Millisecond + rand.N(20*time.Millisecond))
		p.mu.Lock()
		now, used := time.Now(), processCPU()
		if p.last.IsZero() {
			p.last, p.used = now, used
		}
		p.left += now.Sub(p.last)*soakShare/100 - (used - p.used)
		p.left = max(min(p.left, 100*time.Millisecond), -100*time.Millisecond)
		p.last, p.used = now, used
		ok := p.left >= 0
		p.mu.Unlock()
		if ok {
			return
		}
	}
}

func processCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
