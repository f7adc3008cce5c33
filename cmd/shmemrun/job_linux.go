package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/internal/launch"
	"github.com/ntbnet/ntbnet/internal/spec"
)

// job is the state of the PEs. Only the main goroutine uses it, but for what output guards.
type job struct {
	options
	log    *log.Logger
	name   string
	output sync.Mutex // held by a PE while it writes one line
	lost   [2]error   // why standard output and error could not be written; guarded by output
	copies sync.WaitGroup
	pes    []*pe
	live   int                    // PEs that have not ended
	failed []*pe                  // PEs that failed before the job was ended, in the order in which that was seen
	tell   *os.File               // a pipe for the PEs' reports, see launch.EnvReport, and how PEs end
	cores  []cpus                 // to bind the PEs to; none to bind none
	passed map[syscall.Signal]int // how often each signal was passed on
	status int                    // exit status of the job, so far
	ending bool                   // the job is being ended because of status
	notice bool                   // the PEs that have joined notice that by themselves
	killed bool                   // the grace time is over
}

// ended is the state of a PE whose process has ended, beside those of package launch.
const ended launch.State = 'e'

// report says that a PE is in a state now. Reports come in the order in which they were made.
type report struct {
	pe    int
	state launch.State
}

// passedOn are the signals that shmemrun passes on to all PEs.
var passedOn = []os.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1,
	syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGTSTP, syscall.SIGCONT,
}

// runJob starts the PEs, waits for all of them, and returns the exit status. Its
// goroutine must keep its thread.
func runJob(o options, logger *log.Logger) int {
	for i := range o.programs {
		if err := o.programs[i].find(); err != nil {
			logger.Print(err)
			return cannot(err)
		}
	}
	if o.files != "" {
		if err := os.MkdirAll(o.files, 0o777); err != nil {
			logger.Printf("--output-filename: %v", err)
			return statusUsage
		}
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		logger.Print(err)
		return statusCannot
	}
	signals := make(chan os.Signal, 64)
	signal.Notify(signals, passedOn...)
	// It is caught rather than ignored, since the PEs would inherit that.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	j := &job{
		options: o, log: logger, name: launch.NewName(),
		tell: writer, passed: map[syscall.Signal]int{},
	}
	if o.bind == bindCore {
		j.cores = cores()
	}
	for number := range o.n {
		p, err := j.start(o.program(number), number)
		if err != nil {
			logger.Printf("start PE %d: %v", number, err)
			j.fail(cannot(err))
			break
		}
		j.pes = append(j.pes, p)
		j.live++
		go func() {
			p.end, _ = p.process.Wait()
			p.exited()
			writer.Write([]byte{byte(number >> 8), byte(number), byte(ended)})
		}()
	}
	reports := make(chan report)
	go read(reader, o.n, reports)
	j.wait(signals, reports)
	j.copies.Wait()
	for _, err := range j.lost {
		if err != nil && !errors.Is(err, syscall.EPIPE) { // head has what it wants
			logger.Print(err)
			j.status = cmp.Or(j.status, 1)
		}
	}
	if o.ownFabric() {
		// No other job knows the name. A failure does not matter: a process that a
		// PE has left behind still uses the fabric, or this system has no fabrics.
		_ = spec.Remove(fabricName(j.name))
	}
	return j.status
}

// read passes reports of n PEs on. It skips what a program has written to the pipe by mistake.
func read(r io.Reader, n int, reports chan<- report) {
	for in := bufio.NewReader(r); ; {
		b, err := in.Peek(launch.ReportBytes)
		if err != nil {
			return
		}
		got := report{int(b[0])<<8 | int(b[1]), launch.State(b[2])}
		if got.pe >= n || !slices.Contains([]launch.State{launch.Joining, launch.Joined, launch.Left, launch.Dead, ended}, got.state) {
			in.Discard(1)
			continue
		}
		in.Discard(launch.ReportBytes)
		reports <- got
	}
}

// cannot returns the exit status for a program that did not start.
func cannot(err error) int {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, exec.ErrDot) || errors.Is(err, fs.ErrNotExist) {
		return statusNotFound
	}
	return statusCannot
}

// wait returns when all PEs have ended. If the job was ended, it also waits for all
// that they had started.
func (j *job) wait(signals <-chan os.Signal, reports <-chan report) {
	var timeout, judge, overdue, kill, look <-chan time.Time
	if j.timeout > 0 {
		timeout = time.After(j.timeout)
	}
	for {
		if !j.ending && len(j.failed) > 0 && judge == nil {
			judge = time.After(j.grace)
		}
		if j.ending && overdue == nil {
			overdue = time.After(j.grace)
		}
		if j.ending && kill == nil && !(j.notice && j.anyJoined()) {
			j.signal(syscall.SIGTERM)
			j.signal(syscall.SIGCONT) // a stopped process does not notice the signal
			kill = time.After(j.grace)
			look = time.Tick(10 * time.Millisecond)
		}
		// A group may still have members that are dead, but not waited for.
		if j.live == 0 && (!j.ending || j.killed || !j.signal(0)) {
			return
		}
		select {
		case r := <-reports:
			j.took(r)
		case s := <-signals:
			j.pass(s.(syscall.Signal))
		case <-timeout:
			j.log.Printf("the job has not ended after %v", j.timeout)
			j.fail(statusTimeout)
		case <-judge:
			j.judge(true)
		case <-overdue:
			j.notice = false
		case <-kill:
			j.killed = true
			j.signal(syscall.SIGKILL)
		case <-look: // for groups whose PE has ended
		}
	}
}

// anyJoined reports whether a PE is there that notices when another one ends. It ends by itself, or
// reports that it has noticed.
func (j *job) anyJoined() bool {
	return slices.ContainsFunc(j.pes, func(p *pe) bool { return !p.over && p.state == launch.Joined })
}

// took handles a report.
func (j *job) took(r report) {
	if r.pe >= len(j.pes) {
		return
	}
	p := j.pes[r.pe]
	switch r.state {
	case launch.Dead:
		p.dead = true
	case ended:
		if p.ended.Err() == nil {
			return // a program has written that
		}
		if !p.over {
			p.over = true
			j.live--
			j.look(p)
		}
	default:
		p.state = r.state
	}
	if j.ending || !slices.ContainsFunc(j.pes, func(p *pe) bool { return !p.over && p.state == launch.Joining }) {
		return
	}
	for _, p := range j.pes {
		if p.over && p.state != launch.Joined && p.state != launch.Left {
			j.log.Printf("PE %d of %d exited with status 0 before it joined the job", p.number, j.n)
			j.fail(1)
			return
		}
	}
}

// fail ends the job, if it is not being ended already.
func (j *job) fail(status int) {
	if !j.ending {
		j.ending, j.status = true, status
	}
}

// look decides what it means that a PE has ended.
func (j *job) look(p *pe) {
	p.status, p.how = 1, "ended in an unknown way"
	if p.end != nil {
		ws := p.end.Sys().(syscall.WaitStatus)
		switch {
		case ws.Exited():
			p.status, p.how = ws.ExitStatus(), fmt.Sprintf("exited with status %d", ws.ExitStatus())
		case ws.Signaled():
			p.status, p.how = statusSignal+int(ws.Signal()), fmt.Sprintf("was killed by signal %d (%v)", int(ws.Signal()), ws.Signal())
			if j.passed[ws.Signal()] > 0 {
				p.how = "" // no message: shmemrun passed this signal on
			}
		}
	}
	switch {
	case j.ending:
	case p.status == 0:
		p.gone = true // what it has left behind, it has left on purpose
	default:
		j.failed = append(j.failed, p)
	}
	j.judge(false)
}

// judge ends the job because of the PE that failed first. A PE that found another one dead may be seen to end before that
// one. Then judge waits for it, unless it is late.
func (j *job) judge(late bool) {
	if j.ending || len(j.failed) == 0 {
		return
	}
	first := j.failed[0]
	if i := slices.IndexFunc(j.failed, func(p *pe) bool { return p.dead }); i >= 0 {
		first = j.failed[i]
	} else if !late && slices.ContainsFunc(j.pes, func(p *pe) bool { return p.dead && !p.over }) {
		return
	}
	if first.how != "" {
		j.log.Printf("PE %d of %d %s", first.number, j.n, first.how)
	}
	j.fail(first.status)
	j.notice = true
}

// pass passes a signal on.
func (j *job) pass(s syscall.Signal) {
	j.passed[s]++
	j.signal(s)
	switch {
	case s == syscall.SIGTSTP:
		syscall.Kill(os.Getpid(), syscall.SIGSTOP) // continues after SIGCONT
	case (s == syscall.SIGINT || s == syscall.SIGTERM) && j.passed[syscall.SIGINT]+j.passed[syscall.SIGTERM] > 1:
		j.fail(statusSignal + int(s))
	}
}

// signal sends a signal to the groups of all PEs, and reports whether there are
// any.
func (j *job) signal(s syscall.Signal) (any bool) {
	for _, p := range j.pes {
		any = p.signal(s) || any
	}
	return any
}
