package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/ntbnet/ntbnet/internal/launch"
)

// pe is a process and the group that it leads.
type pe struct {
	number  int
	process *os.Process
	end     *os.ProcessState // nil if waiting for it failed; set before ended ends
	ended   context.Context  // ends when the process does
	exited  func()           // ends it
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
	p := &pe{number: number}
	p.ended, p.exited = context.WithCancel(context.Background())
	cmd := &exec.Cmd{
		Path: prog.path, Args: prog.command, Dir: prog.dir, Env: j.environment(append(os.Environ(), prog.env...), j.name, number),
		Stdout: os.Stdout, Stderr: os.Stderr, ExtraFiles: []*os.File{j.tell}, SysProcAttr: processAttributes(),
	}
	if number == 0 {
		in, err := stdin()
		if err != nil {
			return nil, err
		}
		if cmd.Stdin = in; in != os.Stdin {
			defer in.Close()
		}
	}
	var outs [2]io.ReadCloser // the ends to read from
	switch {
	case j.files != "":
		out, errs, err := j.outputFiles(number)
		if err != nil {
			return nil, err
		}
		defer out.Close()
		defer errs.Close()
		cmd.Stdout, cmd.Stderr = out, errs
	case j.prefix:
		cmd.Stdout, cmd.Stderr = nil, nil
		var outErr, errsErr error
		outs[0], outErr = cmd.StdoutPipe()
		outs[1], errsErr = cmd.StderrPipe()
		if err := cmp.Or(outErr, errsErr); err != nil {
			return nil, err
		}
	}
	if len(j.cores) > 0 {
		defer j.cores[number%len(j.cores)].bind()()
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p.process = cmd.Process
	for i, to := range []*os.File{os.Stdout, os.Stderr} {
		if r := outs[i]; r != nil {
			l := &lines{mu: &j.output, lost: &j.lost[i], to: to, prefix: prefixOf(number), ended: p.ended, grace: j.grace}
			j.copies.Go(func() { l.copy(r.(*os.File)) })
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

// signal sends a signal to the group, and reports whether the group has any member.
// Signal 0 only checks that.
func (p *pe) signal(s syscall.Signal) bool {
	if !p.gone {
		// The number is not given to another process while the group has members, and
		// not soon after.
		err := syscall.Kill(-p.process.Pid, s)
		// Darwin returns EPERM for a group that was not waited for yet.
		p.gone = err == syscall.ESRCH || err == syscall.EPERM && p.ended.Err() != nil
	}
	return !p.gone
}
