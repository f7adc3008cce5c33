package main

import (
	"errors"
	"io"
	"os"
	"sync"
)

// output is where the report goes: the standard output, or the file of --logfile. Each Write is
// whole.
type output struct {
	mu   sync.Mutex
	w    io.Writer
	file *os.File // nil for the standard output
}

func openOutput(logfile string, out io.Writer) (*output, error) {
	if logfile == "" {
		return &output{w: out}, nil
	}
	f, err := os.OpenFile(logfile, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return nil, badInputf("--logfile: %w", err)
	}
	return &output{w: f, file: f}, nil
}

// Write writes b.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.w.Write(b)
}

func (o *output) close() error {
	if o.file == nil {
		return nil
	}
	return o.file.Close()
}

// writeFile writes a file whole, or leaves none.
func writeFile(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := errors.Join(write(f), f.Close()); err != nil {
		return errors.Join(err, os.Remove(name))
	}
	return nil
}
