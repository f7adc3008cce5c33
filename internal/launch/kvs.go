package launch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"time"
)

// errNoKVS is the error of the methods below without a connection.
var errNoKVS = errors.New("launch: the launcher has no key-value space")

// HasKVS reports whether the launcher keeps keys and values, and a barrier, for the
// job. Only launchers with PMI-1 do. All methods of a Job may be called from any
// goroutine; they wait for each other.
func (j *Job) HasKVS() bool { return j.pmi != nil }

// Put sets a key, which other PEs can get after the next Barrier. Each key may be
// put once. Key and value are printable ASCII without space and '='. mpiexec.hydra
// takes keys of 64 bytes and values of 1024.
func (j *Job) Put(key, value string) error {
	p := j.pmi
	if p == nil {
		return errNoKVS
	}
	err := checkWord("key", key, p.maxKey)
	if err == nil {
		err = checkWord("value", value, p.maxValue)
	}
	if err == nil {
		_, err = p.ask("put_result", message{{"cmd", "put"}, {"kvsname", p.kvs}, {"key", key}, {"value", value}})
	}
	return j.failed(err)
}

// Get returns the value that a PE has put. The error wraps fs.ErrNotExist if the
// launcher has no such key.
func (j *Job) Get(key string) (string, error) {
	p := j.pmi
	if p == nil {
		return "", errNoKVS
	}
	if err := checkWord("key", key, p.maxKey); err != nil {
		return "", j.failed(err)
	}
	m, err := p.ask("get_result", message{{"cmd", "get"}, {"kvsname", p.kvs}, {"key", key}})
	switch {
	case errors.Is(err, errRefused):
		return "", j.failed(fmt.Errorf("key %s: %w: %w", key, err, fs.ErrNotExist))
	case err != nil:
		return "", j.failed(err)
	}
	value := m.get("value")
	if !m.has("value") || len(value) > p.maxValue {
		return "", j.failed(fmt.Errorf("key %s: the launcher answers with a value of %d bytes, want 1 to %d", key, len(value), p.maxValue))
	}
	return value, nil
}

// Barrier returns when all PEs have called it. If ctx ends before that, the
// connection to the launcher can only be closed.
func (j *Job) Barrier(ctx context.Context) error {
	p := j.pmi
	if p == nil {
		return errNoKVS
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := p.askLocked(ctx, 0, "barrier_out", message{{"cmd", "barrier_in"}})
	return j.failed(err)
}

// Abort writes why to standard error, unless it is empty, and asks the launcher to
// end all PEs with the exit status code. Some launchers then lose the most recent
// output. Abort does not wait for that. The caller then exits with code itself,
// because other launchers end the job for that.
func (j *Job) Abort(code int, why string) error {
	if why != "" {
		fmt.Fprintf(os.Stderr, "PE %d of %d: %s\n", j.PE, j.N, why)
	}
	if j.pmi == nil {
		return nil
	}
	return j.failed(j.pmi.tell(message{{"cmd", "abort"}, {"exitcode", strconv.Itoa(code)}}))
}

// AbortKills reports whether Abort makes the launcher kill the PEs, and end with another status
// than Abort's. Slurm's srun with pmi2 does. mpiexec.hydra within a job of Slurm does not.
func (j *Job) AbortKills() bool { return j.slurm }

// Close informs the launcher that this PE ends well, and closes the connection. Some
// launchers take an exit without it for a failure. A second Close does nothing.
func (j *Job) Close() error {
	if j.pmi == nil {
		return nil
	}
	return j.failed(j.pmi.close())
}

func (j *Job) failed(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("launch: PMI of PE %d: %w", j.PE, err)
}

// tell sends a line that has no answer. It must not wait for a Barrier, so it does
// not take p.mu. That is safe, since a short line is written in one piece.
func (p *pmi) tell(m message) error {
	if err := p.conn.SetWriteDeadline(time.Now().Add(answerTimeout)); err != nil {
		return err
	}
	_, err := p.conn.WriteString(m.String() + "\n")
	return err
}

// close says goodbye, unless the conversation is broken, and closes the connection.
func (p *pmi) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == errClosed {
		return nil
	}
	var err error
	if p.err == nil {
		_, err = p.askLocked(context.Background(), answerTimeout, "finalize_ack", message{{"cmd", "finalize"}})
	}
	p.err = errClosed
	return errors.Join(err, p.conn.Close())
}

// errClosed is the sticky error after Close.
var errClosed = fmt.Errorf("use after Close: %w", net.ErrClosed)
