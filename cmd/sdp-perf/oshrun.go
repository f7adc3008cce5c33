package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/internal/perf/pgas"
)

// oshJob is the program of benchmarks/oshmem/perf.c, run by Open MPI.
type oshJob struct {
	program string
	pes     int
	keys    []string
	time    time.Duration
}

func oshrun() (string, error) {
	path, err := exec.LookPath("oshrun")
	if err != nil {
		return "", fmt.Errorf("oshrun of Open MPI is missing: %w", err)
	}
	return path, nil
}

// run runs one round. Open MPI ends its processes whether it is told to end or
// dies.
func (j oshJob) run(ctx context.Context) (pgas.Sample, error) {
	path, err := oshrun()
	if err != nil {
		return nil, err
	}
	// Open MPI's memory hooks make it crash at the end.
	args := []string{"-n", strconv.Itoa(j.pes), "--mca", "memory", "^patcher"}
	if os.Getuid() == 0 {
		args = append(args, "--allow-run-as-root")
	}
	if j.pes > runtime.NumCPU() {
		args = append(args, "--oversubscribe")
	}
	millis := strconv.FormatFloat(float64(j.time)/float64(time.Millisecond), 'g', -1, 64)
	args = append(args, j.program, millis, "1", strings.Join(j.keys, ","))
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = childStop
	dieWithParent(cmd)
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, errors.Join(err, errors.New(firstWords(stderr.String())))
	}
	return decodeSample(stdout.Bytes(), j.keys)
}

// firstWords returns enough of a program's output to know what is wrong.
func firstWords(text string) string {
	const most = 300
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > most {
		text = text[:most] + "…"
	}
	return text
}
