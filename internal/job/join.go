package job

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/ntbnet/ntbnet/internal/heapmem"
	"github.com/ntbnet/ntbnet/internal/launch"
	"github.com/ntbnet/ntbnet/internal/onesided"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/sdp"
)

// Open joins the job that the launcher has started, see internal/launch, and waits until all PEs
// have joined. If they have not when ctx or the option Timeout ends, the error says which are
// missing.
func Open(ctx context.Context, given Options) (*World, error) {
	o := options{Options: given}
	err := o.environment()
	if err == nil {
		err = o.launched()
	}
	if err != nil {
		return nil, fmt.Errorf("shmem: %w", err)
	}
	if o.PE == 0 {
		inform(os.Stderr)
	}
	o.launcher.Report(launch.Joining)
	w, err := open(ctx, o)
	if err != nil {
		// This does not call the launcher's Close. A launcher takes an end without
		// it for a failure, as it should.
		return nil, fmt.Errorf("shmem: open PE %d of %d: %w", o.PE, o.N, err)
	}
	w.reportJoined()
	return w, nil
}

// reportJoined tells the launcher that this PE has joined, unless it has said already that another one has failed.
func (w *World) reportJoined() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.Err() == nil {
		w.opts.launcher.Report(launch.Joined)
	}
}

// launched sets what the launcher says, unless that is given.
func (o *options) launched() error {
	if o.Given {
		o.launcher = &launch.Job{PE: o.PE, N: o.N}
		return nil
	}
	job, err := launch.Find(os.Getenv)
	if err != nil {
		return err
	}
	o.launcher = job
	o.PE, o.N, o.Job, o.turn = job.PE, job.N, job.Name, closedJobs.Load()
	return nil
}

func open(ctx context.Context, o options) (*World, error) {
	if o.Fabric == "" {
		o.Fabric = os.Getenv(spec.EnvFabric)
	}
	if o.Fabric == "" {
		o.Fabric, o.ownFabric = spec.OfJob("shmem", o.Job), true
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	spec, err := spec.Parse(o.Fabric)
	if err != nil && o.N > 1 {
		return nil, err
	}
	o.inProcess = err == nil && spec.InProcess()
	anyHeap := o.Heap == 0
	if anyHeap {
		o.Heap = defaultHeap
		if o.inProcess {
			o.Heap = defaultGoHeap
		}
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	if o.N > 1 && spec.Heap != 0 && !o.inProcess {
		if err := o.fit(spec, anyHeap); err != nil {
			return nil, err
		}
		if o.common, err = heapmem.OpenCommon(ctx, spec); err != nil {
			return nil, err
		}
	}
	w, err := newWorld(ctx, o)
	if err != nil {
		return nil, err
	}
	if o.N > 1 {
		w.spec = spec
		err = w.join(ctx)
	}
	if err != nil {
		w.abandon()
		return nil, err
	}
	if crowded(w.parts, o.PE, 1) || o.Strict && o.N > 1 {
		w.space.SetCrowded()
	}
	if w.ctx = o.Ctx; w.ctx == nil {
		w.ctx = new(onesided.Ctx)
	}
	w.ctx.Init(w.space, w.space.Peers())
	w.space.SetRecheck(o.Recheck)
	w.team = worldTeam(w)
	if err := w.share(ctx); err != nil {
		w.abandon()
		return nil, err
	}
	if w.served() {
		w.space.SetServed()
	}
	return w, nil
}

// abandon releases a World that did not come up.
func (w *World) abandon() {
	w.mu.Lock()
	w.closing = true
	w.mu.Unlock()
	w.hangUp()
	w.release()
}

// closedJobs is how many jobs this process has left in order. Its launcher has started each of them with the same PEs, so
// all have the same number.
var closedJobs atomic.Int64

// Ports of a job's PEs are a range that depends on the job's name. Jobs alternate between two ranges.
// So a PE that opens the next job does not reach PEs that are still in the last one.
const (
	firstPort = 10240
	portBases = 40000
)

func (w *World) port(pe int) int {
	h := fnv.New64a()
	io.WriteString(h, w.opts.Job)
	return firstPort + int(h.Sum64()%portBases) + int(w.opts.turn%2)*launch.MaxPEs + pe
}

// join connects this PE with all others.
func (w *World) join(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f, err := sdp.Open(w.opts.Fabric)
	if err != nil {
		return err
	}
	w.fabric = f
	if w.spec, err = w.spec.Settled(ctx); err != nil {
		return err
	}
	w.peers[w.pe].node = w.spec.Node
	if err := w.offer(ctx); err != nil {
		return err
	}
	ln, err := f.Listen(sdp.Network, ":"+strconv.Itoa(w.port(w.pe)))
	if errors.Is(err, syscall.EADDRINUSE) {
		err = fmt.Errorf("job %q, or another whose ports are the same, has a PE %d in this fabric already: %w", w.opts.Job, w.pe, err)
	}
	if err != nil {
		return err
	}
	w.ln, w.giveUp = ln, cancel
	w.wg.Add(1)
	go w.accept(ln)

	errs := make([]error, len(w.peers))
	var wg sync.WaitGroup
	for pe := range w.peers {
		if pe != w.pe {
			wg.Go(func() {
				if errs[pe] = w.connect(ctx, pe); errors.Is(errs[pe], errRefused) {
					cancel() // to wait for the others would not help
				}
			})
		}
	}
	wg.Wait()
	err = joinError(errs)
	if err == nil {
		err = w.awaitAll(ctx)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err == nil:
		return nil
	case w.misfit != nil:
		return w.misfit // that PE may not have answered us any more
	case w.Err() != nil && !errors.Is(err, errRefused) && err != w.Err():
		return fmt.Errorf("%w (%w)", err, w.Err()) // failure is perhaps why we gave up
	}
	return err
}

// joinError joins errors, those that are final first.
func joinError(errs []error) error {
	var missing []string
	var first error
	for pe, err := range errs {
		switch {
		case errors.Is(err, errRefused):
			return err
		case err != nil:
			missing = append(missing, strconv.Itoa(pe))
			if first == nil {
				first = err
			}
		}
	}
	if first == nil {
		return nil
	}
	if len(missing) == 1 {
		return fmt.Errorf("PE %s is missing: %w", missing[0], first)
	}
	return fmt.Errorf("PEs %s are missing: %w", strings.Join(missing, ", "), first)
}

// awaitAll waits until all other PEs have connected to this one.
func (w *World) awaitAll(ctx context.Context) error {
	for {
		w.mu.Lock()
		n := len(w.joined)
		w.mu.Unlock()
		if n == len(w.peers)-1 {
			return nil
		}
		select {
		case <-w.arrived:
		case <-w.space.Failed():
			return w.Err()
		case <-ctx.Done():
			return fmt.Errorf("%d of %d PEs have connected here: %w", n, len(w.peers)-1, ctx.Err())
		}
	}
}
