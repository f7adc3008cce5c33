package launch

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"
)

// answerTimeout is how long the launcher may take for an answer that needs no waiting.
const answerTimeout = 30 * time.Second

// pmi is the connection to a launcher that implements PMI-1.
type pmi struct {
	kvs              string // name of the job's key-value space; immutable after open
	maxKey, maxValue int    // bytes, at least 1; immutable after open

	mu   sync.Mutex
	conn *os.File      // immutable after open; read and written with mu held, except by tell
	in   *bufio.Reader // of conn; guarded by mu
	err  error         // why there are no more answers; sticky, since a late answer would be taken for the next one; guarded by mu
}

// spent has the jobs whose connection was opened, by PMI_FD. After Close that
// number may be another file's. The connection of a Job that was dropped without
// Close stays open, because the launcher would take its end for the end of the PE.
var spent = struct {
	sync.Mutex
	jobs map[int]Job
}{jobs: map[int]Job{}}

// fromPMI reads what launchers with PMI-1 set, and opens the connection.
func fromPMI(getenv env) (*Job, error) {
	if !anySet(getenv, "PMI_FD", "PMI_RANK", "PMI_SIZE") {
		return nil, nil
	}
	pe, n, err := place(getenv, "PMI_RANK", "PMI_SIZE")
	if err != nil {
		return nil, err
	}
	text := getenv("PMI_FD")
	if text == "" {
		return nil, fmt.Errorf("PMI_RANK=%d, but PMI_FD is not set: %w", pe, errNoJob)
	}
	fd, err := strconv.Atoi(text)
	if err != nil || fd <= 2 || fd > 1<<20 {
		return nil, fmt.Errorf("PMI_FD=%s: want the number of an open socket", text)
	}
	spent.Lock()
	defer spent.Unlock()
	if j, ok := spent.jobs[fd]; ok && j.PE == pe && j.N == n {
		j.pmi = nil
		return &j, nil
	}
	p, err := openPMI(fd)
	if err != nil {
		return nil, fmt.Errorf("PMI_FD=%d: %w", fd, err)
	}
	j := Job{PE: pe, N: n, Name: hashed("pmi", p.kvs), From: "PMI", pmi: p}
	j.slurm = p.kvs == getenv("SLURM_JOB_ID")+"."+getenv("SLURM_STEP_ID")
	spent.jobs[fd] = j
	return &j, nil
}

// openPMI takes over the socket fd and greets the launcher. If that fails it closes
// fd, unless fd is no socket and so belongs to other code.
func openPMI(fd int) (*pmi, error) {
	conn, err := takeSocket(fd)
	if err != nil {
		return nil, err
	}
	p := &pmi{conn: conn, in: bufio.NewReaderSize(conn, maxLine)}
	if err := p.greet(); err != nil {
		conn.Close()
		return nil, err
	}
	return p, nil
}

func (p *pmi) greet() error {
	if _, err := p.ask("response_to_init", message{{"cmd", "init"}, {"pmi_version", "1"}, {"pmi_subversion", "1"}}); err != nil {
		return err
	}
	limits, err := p.ask("maxes", message{{"cmd", "get_maxes"}})
	if err != nil {
		return err
	}
	var sizes [3]int
	for i, name := range []string{"kvsname_max", "keylen_max", "vallen_max"} {
		if sizes[i], err = strconv.Atoi(limits.get(name)); err != nil || sizes[i] < 1 {
			return fmt.Errorf("the launcher says %s=%q, want a number", name, limits.get(name))
		}
	}
	// A line has to hold a key-value space's name, a key and a value.
	p.maxKey, p.maxValue = min(sizes[1], maxLine/4), min(sizes[2], maxLine/4)
	name, err := p.ask("my_kvsname", message{{"cmd", "get_my_kvsname"}})
	if err != nil {
		return err
	}
	p.kvs = name.get("kvsname")
	if err := checkWord("kvsname", p.kvs, min(sizes[0], maxLine/4)); err != nil {
		return fmt.Errorf("from the launcher: %w", err)
	}
	return nil
}

// errRefused reports that a launcher refused a request.
var errRefused = errors.New("the launcher says")

// ask sends a line and returns the answer. The answer must be the command want and
// not report a failure.
func (p *pmi) ask(want string, m message) (message, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.askLocked(context.Background(), answerTimeout, want, m)
}

// askLocked is ask for a caller that holds p.mu. It ends with ctx. If wait is 0, it
// has no other time limit.
func (p *pmi) askLocked(ctx context.Context, wait time.Duration, want string, m message) (message, error) {
	if p.err != nil {
		return nil, p.err
	}
	answer, err := p.exchange(ctx, wait, m)
	if err == nil && answer.get("cmd") != want {
		err = fmt.Errorf("the answer is cmd=%.40q, not cmd=%s", answer.get("cmd"), want)
	}
	if err != nil {
		p.err = fmt.Errorf("%s: %w", m.get("cmd"), err)
		return nil, p.err
	}
	if rc := answer.get("rc"); rc != "" && rc != "0" {
		return nil, fmt.Errorf("%s: %w rc=%.40s %.80s", m.get("cmd"), errRefused, rc, answer.get("msg"))
	}
	return answer, nil
}

// exchange sends one line and reads one. The caller holds p.mu.
func (p *pmi) exchange(ctx context.Context, wait time.Duration, m message) (message, error) {
	var deadline time.Time
	if wait > 0 {
		deadline = time.Now().Add(wait)
	}
	if err := p.conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	// This comes after the deadline was set, which would undo what ctx does.
	fired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		p.conn.SetDeadline(time.Unix(1, 0))
		close(fired)
	})
	defer func() {
		if !stop() {
			<-fired // otherwise it would end the next exchange
		}
	}()
	if _, err := io.WriteString(p.conn, m.String()+"\n"); err != nil {
		return nil, cause(ctx, err)
	}
	line, err := p.in.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, fmt.Errorf("the answer is longer than %d bytes", maxLine)
	case errors.Is(err, io.EOF):
		return nil, fmt.Errorf("the launcher has closed the connection: %w", io.ErrUnexpectedEOF)
	case err != nil:
		return nil, cause(ctx, err)
	}
	answer, err := parse(string(line[:len(line)-1]))
	if err != nil {
		return nil, fmt.Errorf("the answer: %w", err)
	}
	return answer, nil
}

// cause returns ctx's error if ctx has ended, else err.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
