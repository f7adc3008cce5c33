package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ntbnet/ntbnet/internal/perf/pgas"
	"github.com/ntbnet/ntbnet/shmem"
)

// peCommand is one PE of a measurement. Its argument is a peArgs as JSON. Like
// every child, it ends when its standard input does, whatever it waits for. PE 0
// writes the sample to its standard output.
const peCommand = "shmem-pe"

type peArgs struct {
	PE, PEs int
	Job     string
	Fabric  string
	Strict  bool
	Peer    int
	Keys    []string
	Time    time.Duration
}

func runPE(ctx context.Context, args []string, out io.Writer) error {
	ignoreSignals()
	var a peArgs
	if len(args) != 1 || json.Unmarshal([]byte(args[0]), &a) != nil {
		return badInputf("%s is started by sdp-perf itself", peCommand)
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // its end is enough
		os.Exit(exitFailed)
	}()
	opts := []shmem.Option{shmem.PE(a.PE, a.PEs, a.Job), shmem.Fabric(a.Fabric), shmem.HeapLimit(peHeap)}
	if a.Strict {
		opts = append(opts, shmem.Strict())
	}
	w, err := shmem.Open(ctx, opts...)
	if err != nil {
		return err
	}
	// After an error the process ends. So all other PEs learn of it.
	sample, err := pgas.Measure(ctx, w, a.Peer, a.Keys, a.Time)
	if err == nil {
		err = w.Close(ctx)
	}
	if err == nil && a.PE == 0 {
		err = json.NewEncoder(out).Encode(sample)
	}
	return err
}

const peHeap = 64 << 20

// shmemJob are the PEs of one measurement.
type shmemJob struct {
	pes, peer int
	topology  string // of the fabric; "shm" for PEs of one host
	strict    bool
	keys      []string
	time      time.Duration
}

// fabric returns the fabric of a PE.
func (j shmemJob) fabric(name string, pe int) string {
	if j.topology == "shm" {
		return name
	}
	return fmt.Sprintf("%s?node=%d&nodes=%d", name, pe+1, j.pes)
}

// run starts the PEs and waits for them. If one fails, it ends all.
func (j shmemJob) run(ctx context.Context) (s pgas.Sample, err error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var answer bytes.Buffer
	var wg sync.WaitGroup
	name := freshName(j.topology)
	defer func() { err = errors.Join(err, removeFabric(name)) }()
	for pe := range j.pes {
		a, err := json.Marshal(peArgs{pe, j.pes, "perf-" + strconv.Itoa(os.Getpid()), j.fabric(name, pe), j.strict, j.peer, j.keys, j.time})
		if err != nil {
			return nil, err
		}
		var stderr bytes.Buffer
		cmd := exec.CommandContext(ctx, exe, peCommand, string(a))
		cmd.Stderr, cmd.WaitDelay = &stderr, childStop
		if pe == 0 {
			cmd.Stdout = &answer
		}
		stdin, err := cmd.StdinPipe()
		if err == nil {
			cmd.Cancel = stdin.Close
			err = cmd.Start()
		}
		if err != nil {
			cancel(err)
			break
		}
		wg.Go(func() {
			if err := cmd.Wait(); err != nil {
				cancel(fmt.Errorf("PE %d: %w", pe, withOutput(err, stderr.String())))
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return decodeSample(answer.Bytes(), j.keys)
}

// withOutput returns the error of a process together with its output, without this
// program's name.
func withOutput(err error, stderr string) error {
	if output := strings.TrimPrefix(strings.TrimSpace(stderr), "sdp-perf: "); output != "" {
		return errors.New(output)
	}
	return err
}

// decodeSample decodes the output of PE 0.
func decodeSample(b []byte, keys []string) (pgas.Sample, error) {
	var s pgas.Sample
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, fmt.Errorf("what PE 0 says: %w", err)
	}
	for _, k := range keys {
		if s[k] <= 0 {
			return nil, fmt.Errorf("no figure of item %s", k)
		}
	}
	return s, nil
}
