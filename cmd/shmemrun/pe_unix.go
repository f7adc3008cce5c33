//go:build unix

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/ntbnet/ntbnet/internal/launch"
)

// pe is a process and the group that it leads.
type pe struct {
	number  int
	process *os.Process
	end     *os.ProcessState // nil if waiting for it failed; set before ended is closed
	ended   chan struct{}    // closed when the process has ended
	// The main goroutine owns the following.
	gone  bool         // the group gets no more signals, since its number may be reused
	over  bool         // the process has ended
	state launch.State // what the PE has reported last; 0: nothing
	dead  bool         // another PE has found that it has ended
	// How it failed: for the job's status, and for people, "" if they know.
	status int
	how    string
}

// start starts the PE with this number.
func (j *job) start(prog *program, number int) (*pe, error) {
	p := &pe{number: number, ended: make(chan struct{})}
	var mine []*os.File // ends of pipes for the PE, and its input: closed here once the PE has them
	defer func() {
		for _, f := range mine {
			f.Close()
		}
	}()
	in, err := j.stdin(number)
	if err != nil {
		return nil, err
	}
	if in != os.Stdin {
		mine = append(mine, in)
	}
	files := []*os.File{in, os.Stdout, os.Stderr, j.tell}
	if j.files != "" {
		if files[1], files[2], err = j.outputFiles(number); err != nil {
			return nil, err
		}
		mine = append(mine, files[1], files[2])
	}
	var outs [3]*os.File // the ends to read from
	if j.prefix {
		for i := 1; i <= 2; i++ {
			r, w, err := os.Pipe()
			if err != nil {
				closeAll(outs[:])
				return nil, err
			}
			outs[i], files[i] = r, w
			mine = append(mine, w)
		}
	}
	if len(j.cores) > 0 {
		defer j.cores[number%len(j.cores)].bind()()
	}
	p.process, err = os.StartProcess(prog.path, prog.command, &os.ProcAttr{
		Dir: prog.dir, Env: j.environment(append(os.Environ(), prog.env...), j.name, number), Files: files, Sys: processAttributes(),
	})
	if err != nil {
		closeAll(outs[:])
		return nil, err
	}
	for i, to := range []*os.File{1: os.Stdout, 2: os.Stderr} {
		if r := outs[i]; r != nil {
			l := &lines{mu: &j.output, to: to, prefix: prefixOf(number), ended: p.ended, grace: j.grace}
			j.copies.Go(func() { l.copy(r) })
		}
	}
	return p, nil
}

// outputFiles creates the files of a PE's output, by the names that mpirun gives them.
func (j *job) outputFiles(number int) (out, errs *os.File, err error) {
	dir := filepath.Join(j.files, "1", fmt.Sprintf("rank.%0*d", len(strconv.Itoa(j.n-1)), number))
	if err = os.MkdirAll(dir, 0o777); err != nil {
		return nil, nil, err
	}
	if out, err = os.Create(filepath.Join(dir, "stdout")); err != nil {
		return nil, nil, err
	}
	if errs, err = os.Create(filepath.Join(dir, "stderr")); err != nil {
		out.Close()
	}
	return out, errs, err
}

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}

// signal sends a signal to the group, and reports whether the group has any member.
// Signal 0 only checks that.
func (p *pe) signal(s syscall.Signal) bool {
	if !p.gone {
		// The number is not given to another process while the group has members, and
		// not soon after.
		err := syscall.Kill(-p.process.Pid, s)
		p.gone = err == syscall.ESRCH
		if err == syscall.EPERM { // darwin returns it for a group that was not waited for yet
			select {
			case <-p.ended:
				p.gone = true
			default:
			}
		}
	}
	return !p.gone
}
