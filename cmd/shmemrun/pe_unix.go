//go:build unix

package main

import (
	"os"
	"syscall"
)

// pe is a process and the group that it leads.
type pe struct {
	number  int
	process *os.Process
	ended   chan struct{} // closed when the process has ended
	gone    bool          // the group gets no more signals, since its number may be reused; owned by the main goroutine
}

// start starts the PE with this number.
func (j *job) start(path string, number int) (*pe, error) {
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
	files := []*os.File{in, os.Stdout, os.Stderr}
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
	p.process, err = os.StartProcess(path, j.command, &os.ProcAttr{
		Env: j.environment(os.Environ(), j.name, number), Files: files, Sys: processAttributes(),
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
