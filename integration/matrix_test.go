//go:build linux

package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// matrixVariable makes TestMatrix try every cell if its value is "all".
const matrixVariable = "NTBNET_MATRIX"

// cell is one cell of the matrix, and its processes.
type cell struct {
	t *testing.T
	r *ring

	subject *peer // makes all the calls
	healthy *peer // dials and listens all the time, and is dialled by the subject
	victim  *peer // is stopped, killed or cut off
	beyond  *peer // reached through the victim; nil if the subject calls the victim itself
	cutter  *peer // has a cable to the victim
	// Addresses that the processes reported.
	address map[*peer]string
}

// matrixPlaces are the places of the victim, as seen by the subject.
var matrixPlaces = []struct {
	name  string
	build func(c *cell)
}{
	{"neighbour", func(c *cell) {
		c.ring("line", 3)
		c.healthy, c.subject, c.victim = c.node(1), c.node(2), c.node(3)
		c.cutter = c.subject
	}},
	{"several hops", func(c *cell) {
		c.ring("line", 3)
		c.subject, c.healthy, c.victim = c.node(1), c.node(2), c.node(3)
		c.cutter = c.healthy
	}},
	{"forwarder", func(c *cell) {
		c.ring("line", 4)
		c.healthy, c.subject, c.victim, c.beyond = c.node(1), c.node(2), c.node(3), c.node(4)
		c.cutter = c.subject
	}},
	{"second process of this host", func(c *cell) {
		c.ring("", 1) // for its name
		spec := "shm:" + c.r.name
		c.subject, c.healthy, c.victim = c.begin(spec), c.begin(spec), c.begin(spec)
		c.cutter = c.subject
	}},
	{"second process of a neighbour", func(c *cell) {
		c.ring("line", 2)
		c.subject, c.healthy = c.node(1), c.node(2)
		c.victim = c.begin(c.r.memberSpec(2))
		c.cutter = c.healthy
	}},
	{"owner of this host's links", func(c *cell) {
		c.ring("line", 2)
		c.victim, c.beyond = c.node(1), c.node(2)
		c.subject, c.healthy = c.begin(c.r.memberSpec(1)), c.begin(c.r.memberSpec(1))
		c.cutter = c.subject
	}},
}

var (
	matrixStates = []string{"idle", "bulk", "dialling"}
	matrixEvents = []string{"stopped", "killed", "cut"}
)

// matrixSample are the cells of a plain go test, and matrixShort those with -short.
var (
	matrixSample = map[string]bool{
		"forwarder/dialling/killed":                 true,
		"second process of this host/bulk/stopped":  true,
		"owner of this host's links/idle/cut":       true,
		"second process of a neighbour/idle/killed": true,
	}
	matrixShort = map[string]bool{
		"neighbour/dialling/stopped": true,
		"several hops/idle/killed":   true,
	}
)

// A process is stopped, killed, or cut off, wherever it is and whatever goes on. Each
// call of another process that depends on it ends, by its deadline, with an error that
// users of package net expect. Each call that does not depend on it succeeds.
//
// Every cell makes all calls at once, each on a connection of its own. A few cells are
// tried by default, one that takes longer with NTBNET_LONG, and all of them by
//
//	NTBNET_MATRIX=all go test ./integration -run TestMatrix -timeout 60m
func TestMatrix(t *testing.T) {
	sample := matrixSample
	if testing.Short() {
		sample = matrixShort
	}
	if longRun() {
		sample = map[string]bool{"several hops/bulk/stopped": true}
	}
	all, tried := os.Getenv(matrixVariable) == "all", 0
	for _, place := range matrixPlaces {
		for _, state := range matrixStates {
			for _, event := range matrixEvents {
				name := place.name + "/" + state + "/" + event
				if !all && !sample[name] {
					continue
				}
				tried++
				t.Run(name, func(t *testing.T) {
					c := &cell{t: t, address: map[*peer]string{}}
					place.build(c)
					c.try(state, event)
				})
			}
		}
	}
	require.GreaterOrEqual(t, tried, len(sample))
}

func (c *cell) ring(topology string, n int) { c.r = newRing(c.t, topology, n) }

// node starts the owner of a node's links.
func (c *cell) node(i int) *peer { return c.begin(c.r.spec(i)) }

// begin starts a process, and waits until it listens.
func (c *cell) begin(spec string) *peer {
	c.t.Helper()
	p := startPeer(c.t, "matrix", []string{spec}, func(cmd *exec.Cmd) {
		cmd.Env = append(cmd.Env, "SDP_FABRIC="+spec) // for the default Fabric
	})
	c.address[p] = p.readLine()
	return p
}

// ask sends a line, and wants ok.
func (c *cell) ask(p *peer, format string, args ...any) {
	c.t.Helper()
	line := fmt.Sprintf(format, args...)
	require.Equal(c.t, "ok", p.ask(line), "%s", line)
}

func (c *cell) try(state, event string) {
	t := c.t
	called := c.victim
	if c.beyond != nil {
		called = c.beyond
	}
	c.ask(c.subject, "prepare %s %s", state, c.address[called])
	c.ask(c.subject, "bystand %s", c.address[c.healthy])
	c.ask(c.healthy, "bystand %s", c.address[c.subject])
	if state == "dialling" {
		c.ask(called, "pester %s", c.address[c.subject])
	}
	c.progress()

	c.begins(event)
	var wrong []outcome
	require.NoError(t, json.Unmarshal([]byte(c.subject.ask("call "+event)), &wrong))
	for _, o := range wrong {
		t.Errorf("%s: %s", o.Call, o.Wrong)
	}
	c.progress()
	if c.r.topology != "" {
		within(t, "ntbnet topology", func() { c.r.look() })
	}
	switch event { // the victim is there again
	case "stopped":
		c.goesOn()
		c.ask(c.subject, "survive")
		c.ask(c.subject, "reach")
		c.begins(event)
	case "cut":
		c.ask(c.subject, "reach")
		c.begins(event)
	}
	c.progress()
	// The processes that dial the subject end first.
	c.ask(c.healthy, "rest")
	c.ask(c.subject, "rest")
	c.ask(c.subject, "close")
	if event == "stopped" {
		c.goesOn()
	}
	for _, p := range []*peer{c.subject, c.healthy, c.beyond, c.victim} {
		if p != nil && (p != c.victim || event != "killed") {
			p.end()
		}
	}
}

// progress waits until the bystanders have dialled and listened some times more.
func (c *cell) progress() {
	c.t.Helper()
	c.ask(c.subject, "progress 3")
	c.ask(c.healthy, "progress 3")
}

func (c *cell) begins(event string) {
	c.t.Helper()
	switch event {
	case "stopped":
		require.NoError(c.t, c.victim.cmd.Process.Signal(syscall.SIGSTOP))
		until(c.t, "the victim is stopped", c.victim.stopped)
	case "killed":
		c.victim.kill()
	case "cut":
		until(c.t, "a cable is cut", func() bool {
			answer := c.cutter.ask(fmt.Sprintf("cut %d", c.victim.cmd.Process.Pid))
			n, err := strconv.Atoi(answer)
			require.NoError(c.t, err, answer)
			return n > 0
		})
	}
}

func (c *cell) goesOn() {
	c.t.Helper()
	require.NoError(c.t, c.victim.cmd.Process.Signal(syscall.SIGCONT))
}
