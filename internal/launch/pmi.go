package launch

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"
)

// answerTimeout is how long the launcher may take for an answer.
const answerTimeout = 30 * time.Second

// pmi is the connection to a launcher that implements PMI-1.
type pmi struct {
	kvs   string        // name of the job's key-value space; immutable after open
	conn  *os.File      // immutable
	in    *bufio.Reader // of conn; for openPMI, and then for close
	close func() error  // says goodbye, once, and closes conn; immutable
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
	pe, n, err := rankAndSize(getenv, "PMI_RANK", "PMI_SIZE")
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
	p.close = sync.OnceValue(func() error {
		_, err := p.ask("finalize", "finalize_ack")
		return errors.Join(err, conn.Close())
	})
	if err := p.greet(); err != nil {
		conn.Close()
		return nil, err
	}
	return p, nil
}

func (p *pmi) greet() error {
	if _, err := p.ask("init pmi_version=1 pmi_subversion=1", "response_to_init"); err != nil {
		return err
	}
	name, err := p.ask("get_my_kvsname", "my_kvsname")
	if err != nil {
		return err
	}
	if p.kvs = name["kvsname"]; p.kvs == "" {
		return errors.New("the launcher says no kvsname, and nothing else is the same for all PEs of the job")
	}
	return nil
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
	return j.failed(j.pmi.tell("abort exitcode=" + strconv.Itoa(code)))
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

// tell sends a line. Any goroutine may call it, since a short line is written in one piece.
func (p *pmi) tell(command string) error {
	if err := p.conn.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		return err
	}
	_, err := io.WriteString(p.conn, "cmd="+command+"\n")
	return err
}

// ask sends a line and returns the answer. The answer must be the command want and
// not report a failure.
func (p *pmi) ask(command, want string) (map[string]string, error) {
	answer, err := p.exchange(command)
	switch rc := answer["rc"]; {
	case err == nil && answer["cmd"] != want:
		err = fmt.Errorf("the answer is cmd=%.40q, not cmd=%s", answer["cmd"], want)
	case err == nil && rc != "" && rc != "0":
		err = fmt.Errorf("the launcher says rc=%.40s %.80s", rc, answer["msg"])
	}
	if err != nil {
		return nil, fmt.Errorf("cmd=%s: %w", command, err)
	}
	return answer, nil
}

// exchange sends one line and reads one.
func (p *pmi) exchange(command string) (map[string]string, error) {
	if err := p.tell(command); err != nil {
		return nil, err
	}
	line, err := p.in.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, fmt.Errorf("the answer is longer than %d bytes", maxLine)
	case errors.Is(err, io.EOF):
		return nil, fmt.Errorf("the launcher has closed the connection: %w", io.ErrUnexpectedEOF)
	case err != nil:
		return nil, err
	}
	answer, err := parse(string(line[:len(line)-1]))
	if err != nil {
		return nil, fmt.Errorf("the answer: %w", err)
	}
	return answer, nil
}
