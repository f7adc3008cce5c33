package job

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/ntbnet/ntbnet/internal/activemsg"
)

// hello is the first message of each side of a connection: JSON behind its length.
type hello struct {
	Version int         `json:"version"`
	Job     string      `json:"job"`
	PE      int         `json:"pe"`
	PEs     int         `json:"pes"`
	Heap    int         `json:"heap"`             // the sender's HeapLimit
	Common  int         `json:"common,omitempty"` // option heap of its fabric
	At      int64       `json:"at,omitempty"`     // where its heap begins in that memory
	Node    int         `json:"node"`             // the sender's node in the fabric
	Window  uint32      `json:"window,omitempty"` // its number of the bridge's session whose memory has parts of its heap; 0 if there is none
	Strict  bool        `json:"strict,omitempty"`
	Fence   bool        `json:"fence,omitempty"` // a PE that stores to the sender's heap needs a barrier, see peer
	Token   uint64      `json:"token"`           // by which the sender lends its heap
	Place   machinePart `json:"place"`
	Refused string      `json:"refused,omitempty"` // why the receiver may not join
}

const maxHello = 4096

// errRefused reports that a PE is of another kind than this one. To wait for it
// does not help.
var errRefused = errors.New("PEs do not fit together")

// hello returns what this PE says of itself.
func (w *World) hello() *hello {
	_, at := w.heap.File()
	h := &hello{Version: activemsg.Version, Job: w.opts.Job, PE: w.pe, PEs: len(w.peers), Heap: w.HeapLimit(), Common: w.spec.Heap, At: at, Node: w.spec.Node, Strict: w.opts.Strict, Fence: w.fence, Token: w.token, Place: w.parts[w.pe]}
	if w.window != nil {
		h.Window = w.window.Own
	}
	return h
}

// fits returns nil if another PE's hello agrees with ours.
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
	case h.Common != mine.Common:
		return fmt.Errorf("%w: option heap=%d of the fabric here, heap=%d at PE %d", errRefused, mine.Common, h.Common, h.PE)
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
	// What is the same in every version comes first: others may have other types of fields.
	var v struct {
		Version int
		Job     string
	}
	if json.Unmarshal(b, &v) == nil && v.Version != activemsg.Version {
		return &hello{Version: v.Version, Job: v.Job}, nil
	}
	h := new(hello)
	if err := json.Unmarshal(b, h); err != nil {
		return nil, fmt.Errorf("%w: greeting: %v", errRefused, err)
	}
	return h, nil
}

// accept takes the connections that carry others' requests, until the listener is
// closed.
func (w *World) accept(ln net.Listener) {
	defer w.wg.Done()
	for {
		c, err := ln.Accept()
		if err != nil {
			return // the listener is closed
		}
		w.mu.Lock()
		if w.closing {
			w.mu.Unlock()
			c.Close()
			continue
		}
		w.conns[c] = false
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

// greet answers a new connection, and serves its requests if that PE may join.
func (w *World) greet(c net.Conn) {
	_ = c.SetDeadline(time.Now().Add(w.opts.Timeout))
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
	misfit := err != nil && h.Job == w.opts.Job
	if err != nil {
		answer.Refused = err.Error()
		if misfit && w.misfit == nil {
			w.misfit = err // before the other PE can hang up on us
		}
	} else {
		w.joined[h.PE], w.conns[c] = true, true
		_ = c.SetDeadline(time.Time{}) // the greeting is over; Close may set another deadline later
	}
	w.mu.Unlock()
	failed := writeHello(c, answer) != nil
	if misfit {
		w.giveUp() // which closes c, so only after the answer
	}
	if failed || err != nil {
		return
	}
	select {
	case w.arrived <- struct{}{}:
	default:
	}
	w.serve(c, h.PE)
}

// serve handles the requests of PE pe until the last. If they end early, that PE counts as
// ended.
func (w *World) serve(c net.Conn, pe int) {
	err := activemsg.Serve(c, w.heap, w.space.Target(
		func(dead int) { w.fail(dead, fmt.Errorf("PE %d says so", pe)) },
		func(status int) { w.exit(pe, status) }))
	if err == activemsg.ErrBye {
		w.left(pe)
	} else {
		w.fail(pe, err)
	}
	c.Close()
}
