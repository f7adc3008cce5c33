package shmem

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/internal/fabric"
	"github.com/ntbnet/ntbnet/sdp"
)

// Open joins the job that the launcher has started, and waits until all PEs have.
// Which PE this is it learns from, in this order: the option PE; SHMEM_PE and
// SHMEM_NPES; PMI_RANK and PMI_SIZE with PMI_FD (mpiexec.hydra, Slurm's pmi2);
// OMPI_COMM_WORLD_RANK and _SIZE; SLURM_PROCID and SLURM_NTASKS. Without any of them
// it is PE 0 of 1. A launcher whose variables do not say is an error.
//
// It fails if not all PEs have come when ctx or the option Timeout ends, and says
// which are missing.
func Open(ctx context.Context, opts ...Option) (*World, error) {
	o := options{pe: -1}
	for _, set := range opts {
		set(&o)
	}
	err := o.environment()
	if err == nil {
		err = o.launched()
	}
	if err != nil {
		return nil, fmt.Errorf("shmem: %w", err)
	}
	w, err := open(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("shmem: open PE %d of %d: %w", o.pe, o.n, err)
	}
	return w, nil
}

// launched sets what the launcher says, unless an option has.
func (o *options) launched() error {
	if o.n != 0 || o.pe != -1 {
		return nil
	}
	o.pe, o.n, o.job = 0, 1, "alone"
	return nil
}

func open(ctx context.Context, o options) (*World, error) {
	if o.fabric == "" {
		o.fabric = os.Getenv(fabric.EnvFabric)
	}
	if o.fabric == "" {
		o.fabric = fmt.Sprintf("shm:shmem-%016x", hashOf(o.job))
	}
	if o.timeout == 0 {
		o.timeout = defaultTimeout
	}
	spec, err := fabric.ParseSpec(o.fabric)
	if err != nil && o.n > 1 {
		return nil, err
	}
	o.inProcess = err == nil && spec.Backend == "mem"
	if o.heap == 0 {
		o.heap = defaultHeap
		if o.inProcess {
			o.heap = defaultGoHeap
		}
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	w, err := newWorld(o, o.inProcess)
	if err != nil {
		return nil, err
	}
	if o.n > 1 {
		w.spec, w.self.node = spec, spec.Node
		err = w.join(ctx)
	}
	if err != nil {
		w.abandon()
		return nil, err
	}
	w.ctx = newCtx(w, nil, w.peers)
	w.team = worldTeam(w)
	if err := w.share(ctx); err != nil {
		w.abandon()
		return nil, err
	}
	return w, nil
}

// abandon gives back what a World has that did not come up.
func (w *World) abandon() {
	w.mu.Lock()
	w.closing = true
	w.mu.Unlock()
	w.hangUp()
	w.release()
}

// Ports of a job's PEs: a range by the job's name.
const (
	firstPort = 10240
	portBases = 40000
)

func (w *World) port(pe int) int {
	return firstPort + int(hashOf(w.opts.job)%portBases) + pe
}

// hashOf is a number that all PEs make of the job's name, which may be longer than
// names of fabrics, and of other characters.
func hashOf(job string) uint64 {
	h := fnv.New64a()
	io.WriteString(h, job)
	return h.Sum64()
}

// join connects all PEs with each other.
func (w *World) join(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, w.opts.timeout)
	defer cancel()
	host, err := sdp.Open(w.opts.fabric)
	if err != nil {
		return err
	}
	w.host = host
	ln, err := host.Listen(sdp.Network, ":"+strconv.Itoa(w.port(w.pe)))
	if errors.Is(err, syscall.EADDRINUSE) {
		err = fmt.Errorf("job %q, or another whose ports are the same, has a PE %d in this fabric already: %w", w.opts.job, w.pe, err)
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
					cancel() // waiting for the others would not mend it
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
	if err != nil && w.misfit != nil {
		err = w.misfit // whoever it is may not have answered us any more
	}
	return err
}

// joinError says what is wrong, what is final first.
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
	return fmt.Errorf("PEs %s are missing: %w", strings.Join(missing, ", "), first)
}

// awaitAll waits until all others have connected here.
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
		case <-w.failed:
			return w.failure
		case <-ctx.Done():
			return fmt.Errorf("%d of %d PEs have connected here: %w", n, len(w.peers)-1, ctx.Err())
		}
	}
}

// hello is what each side of a connection says first, as JSON behind its length.
type hello struct {
	Version int      `json:"version"`
	Job     string   `json:"job"`
	PE      int      `json:"pe"`
	PEs     int      `json:"pes"`
	Heap    int      `json:"heap"`
	Node    int      `json:"node"` // of the fabric
	Strict  bool     `json:"strict,omitempty"`
	File    heapFile `json:"file"`
	Refused string   `json:"refused,omitempty"` // why the other one may not join
}

const (
	helloVersion = 1
	maxHello     = 4096
)

// errRefused: a PE is of another kind than this one. Waiting does not mend it.
var errRefused = errors.New("PEs do not fit together")

func (w *World) hello() *hello {
	f := w.heap.file()
	f.Token = w.token
	return &hello{Version: helloVersion, Job: w.opts.job, PE: w.pe, PEs: len(w.peers), Heap: w.heap.size, Node: w.spec.Node, Strict: w.opts.strict, File: f}
}

// fits compares another PE's words with ours.
func (w *World) fits(h *hello) error {
	mine := w.hello()
	switch {
	case h.Version != mine.Version:
		return fmt.Errorf("%w: version %d here, %d there", errRefused, mine.Version, h.Version)
	case h.Job != mine.Job:
		return fmt.Errorf("%w: job %q here, %.50q there", errRefused, mine.Job, h.Job)
	case h.PEs != mine.PEs:
		return fmt.Errorf("%w: PE %d of %d here, PE %d of %d there", errRefused, mine.PE, mine.PEs, h.PE, h.PEs)
	case h.PE < 0 || h.PE >= mine.PEs || h.PE == mine.PE:
		return fmt.Errorf("%w: PE %d here, PE %d there", errRefused, mine.PE, h.PE)
	case h.Heap != mine.Heap:
		return fmt.Errorf("%w: symmetric heap of %d bytes here, %d at PE %d", errRefused, mine.Heap, h.Heap, h.PE)
	}
	return nil
}

func writeHello(c net.Conn, h *hello) error {
	b, err := json.Marshal(h)
	if err != nil {
		return err
	}
	_, err = c.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(b))), b...))
	return err
}

func readHello(c net.Conn) (*hello, error) {
	var n [4]byte
	if _, err := io.ReadFull(c, n[:]); err != nil {
		return nil, err
	}
	size := binary.LittleEndian.Uint32(n[:])
	if size > maxHello {
		return nil, fmt.Errorf("%w: greeting of %d bytes", errRefused, size)
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(c, b); err != nil {
		return nil, err
	}
	h := new(hello)
	if err := json.Unmarshal(b, h); err != nil {
		return nil, fmt.Errorf("%w: greeting: %v", errRefused, err)
	}
	return h, nil
}

// accept takes the connections that carry others' requests.
func (w *World) accept(ln net.Listener) {
	defer w.wg.Done()
	for {
		c, err := ln.Accept()
		if err != nil {
			return // closed
		}
		w.mu.Lock()
		if w.closing {
			w.mu.Unlock()
			c.Close()
			continue
		}
		w.conns[c] = struct{}{}
		w.wg.Add(1)
		w.mu.Unlock()
		go func() {
			defer w.wg.Done()
			w.greet(c)
			c.Close()
			w.mu.Lock()
			delete(w.conns, c)
			w.mu.Unlock()
		}()
	}
}

// greet answers who connects, and serves its requests if it may join.
func (w *World) greet(c net.Conn) {
	_ = c.SetDeadline(time.Now().Add(w.opts.timeout))
	h, err := readHello(c)
	if err != nil {
		return
	}
	answer := w.hello()
	err = w.fits(h)
	w.mu.Lock()
	if err == nil && w.joined[h.PE] {
		err = fmt.Errorf("%w: there is a PE %d already", errRefused, h.PE)
	}
	if err != nil {
		answer.Refused = err.Error()
		if h.Job == w.opts.job && w.misfit == nil {
			w.misfit = err
			w.giveUp()
		}
	} else {
		w.joined[h.PE] = true
	}
	w.mu.Unlock()
	if writeHello(c, answer) != nil || err != nil {
		return
	}
	_ = c.SetDeadline(time.Time{})
	select {
	case w.arrived <- struct{}{}:
	default:
	}
	s := &server{w: w, pe: h.PE, conn: c}
	s.run()
}

// connect makes the connection for requests to a PE, and maps its heap if that can
// be.
func (w *World) connect(ctx context.Context, pe int) error {
	c, err := w.dial(ctx, pe)
	if err != nil {
		return err
	}
	release := context.AfterFunc(ctx, func() { c.Close() })
	h, err := w.introduce(c)
	if err == nil && h.PE != pe {
		err = fmt.Errorf("%w: PE %d answers for PE %d", errRefused, h.PE, pe)
	}
	if !release() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		c.Close()
		return fmt.Errorf("PE %d: %w", pe, err)
	}
	p := w.peers[pe]
	p.ch = &channel{pe: pe, conn: c}
	p.node = h.Node
	p.why = w.mapPeer(p, h)
	return nil
}

func (w *World) introduce(c net.Conn) (*hello, error) {
	if err := writeHello(c, w.hello()); err != nil {
		return nil, err
	}
	h, err := readHello(c)
	if err != nil {
		return nil, err
	}
	if err := w.fits(h); err != nil {
		return nil, err
	}
	if h.Refused != "" {
		return nil, fmt.Errorf("%w: PE %d says: %.200s", errRefused, h.PE, h.Refused)
	}
	return h, nil
}

// Reasons not to map a heap.
var (
	errStrict = errors.New("option Strict")
	errFar    = errors.New("its host is not a neighbour")
)

// mapPeer maps the heap of a PE, or says why not.
func (w *World) mapPeer(p *peer, h *hello) error {
	switch {
	case w.opts.strict:
		return errStrict
	case w.spec.Hops(h.Node) > 1:
		return errFar
	case w.opts.inProcess:
		m := findGoMemory(h.File.Token)
		if m == nil || len(m.bytes) != w.heap.size {
			return errors.New("its heap is of another process")
		}
		p.reach(m)
		return nil
	}
	m, err := mapHeap(h.File, w.heap.size)
	if err != nil {
		return err
	}
	p.mem = m
	p.reach(m)
	return nil
}

// Pauses between dials of a PE that is not there yet.
const (
	firstPause = time.Millisecond
	lastPause  = 50 * time.Millisecond
)

// dial looks for a PE on all hosts of the fabric, until it is there.
func (w *World) dial(ctx context.Context, pe int) (net.Conn, error) {
	port := strconv.Itoa(w.port(pe))
	d := &sdp.Dialer{Host: w.host}
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		var err error
		for i := range max(1, w.spec.Nodes) {
			host := "localhost"
			if w.spec.Nodes > 0 {
				host = "node" + strconv.Itoa((pe+i)%w.spec.Nodes+1)
			}
			var c net.Conn
			c, err = w.dialHost(ctx, d, host+":"+port)
			if err == nil {
				return c, nil
			}
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, fmt.Errorf("PE %d: %w", pe, err)
		}
	}
}

// hostLimit is how long one host is waited for, since the PE may be on another.
const hostLimit = time.Second

func (w *World) dialHost(ctx context.Context, d *sdp.Dialer, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, hostLimit)
	defer cancel()
	return d.DialContext(ctx, sdp.Network, address)
}
